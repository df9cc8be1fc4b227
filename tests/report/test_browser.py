"""The HTML report in a real browser: it draws, selects, is walked with keys, and stays usable."""

from __future__ import annotations

import os
import shutil

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from report_models import NASTY, net, without_blocks

import onnx_spatial
from onnx_spatial.report import verification_html
from onnx_spatial.report.graphs import SideBySide
from onnx_spatial.report.outcome import Outcome, describe
from onnx_spatial.report.page import render

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is missing (pip install '.[browser]')"
)
pytestmark = pytest.mark.browser

#: Names of a Chromium on the path; else that of playwright is used.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def report(nodes: int, regions: int) -> str:
    model = net(nodes, regions)
    if nodes < 1000:
        return onnx_spatial.convert(model).to_html()
    # Quicker than a conversion, and as large.
    shown = SideBySide.of(model, without_blocks(model))
    return render("verify", [Outcome("net", "passed", "", shown=shown)])


@pytest.fixture(scope="module")
def browser():
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    # Chromium refuses its sandbox to root, and in most containers.
    arguments = ["--no-sandbox"] if os.name == "posix" else []
    with sync_api.sync_playwright() as playwright:
        try:
            found = playwright.chromium.launch(executable_path=path, args=arguments)
        except sync_api.Error as error:
            pytest.skip(f"no Chromium: {str(error).splitlines()[0]}")
        yield found
        found.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture
def opened(browser, folder, request):
    """Open the report of a net in a window; every error and every request fails the test."""
    contexts, problems = [], []

    def open_page(nodes: int, regions: int, *, width: int = 1280, scheme: str = "light"):
        path = folder / f"{nodes}.html"
        if not path.exists():
            path.write_text(report(nodes, regions), "utf-8")
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text))
        page.on("request", lambda r: r.url.startswith("file:") or problems.append(r.url))
        page.goto(path.as_uri())
        page.locator(".graphs").scroll_into_view_if_needed()
        page.locator(".pane svg").first.wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


@pytest.mark.parametrize(("nodes", "regions"), [(10, 1), (200, 8), (5000, 20)])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_it_draws_and_fits_the_window(opened, nodes, regions, width, scheme):
    page = opened(nodes, regions, width=width, scheme=scheme)
    assert page.title() != "broken"
    drawn = [page.locator(".pane").nth(i).locator(".node").count() for i in (0, 1)]
    assert min(drawn) > 0 and max(drawn) < 400
    assert page.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )


def test_a_click_shows_what_took_the_place_of_a_node(opened):
    page = opened(200, 8)
    page.locator("a[data-region='2']").first.click()
    page.locator(".pane").first.locator(".node", has_text="SpaceToBatchND").click()
    assert "SpaceToBatchND" in page.locator(".node.selected").text_content()
    partners = page.locator(".pane").nth(1).locator(".node.partner")
    assert "Conv" in " ".join(partners.all_text_contents())
    assert "regionlayer_54/Conv, " in page.locator(".chosen").inner_text().replace("\n", "")
    # The button of the partner leads there, and back.
    page.locator(".chosen button", has_text="Conv").first.click()
    assert "~ Conv" in page.locator(".chosen h4").inner_text()
    assert page.locator(".pane").nth(1).locator(".node.selected").count() == 1


def test_graphs_are_walked_with_keys(opened):
    page = opened(10, 1)
    page.locator(".pane").first.locator(".node[tabindex='0']").focus()
    names = []
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "End", "Home"):
        page.keyboard.press(key)
        names.append(page.evaluate("document.activeElement.querySelector('title').textContent"))
    assert names[0] == names[2] != names[1]
    assert "Identity end" in names[3]
    assert NASTY.split("<")[1] in names[4]
    page.keyboard.press("Enter")
    assert "Relu" in page.locator(".chosen h4").inner_text()
    # One stop of the Tab key for each graph.
    assert page.locator(".pane").first.locator("[tabindex='0']").count() == 1


def test_every_node_of_a_large_graph_is_found(opened):
    page = opened(5000, 20)
    page.locator(".all > summary").click()
    assert page.locator(".filter .note").inner_text() == "5000 of 5000 nodes"
    # Only the rows that can be seen are in the page.
    assert page.locator(".list .row").count() < 40
    page.locator("input[type=search]").fill("layer_4321/")
    page.locator(".list .row").click()
    assert "layer_4321/" in page.locator(".node.selected").text_content()
    assert "layer_4321/" in page.locator(".node.partner").text_content()
    page.locator(".filter select").select_option("removed")
    page.locator("input[type=search]").fill("BatchToSpaceND")
    page.locator(".list").focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert "BatchToSpaceND" in page.locator(".chosen h4").inner_text()


def test_parts_and_neighbours_are_drawn_on_demand(opened):
    page = opened(5000, 20)
    counts = []
    for hops in ("0", "3"):
        page.get_by_label("neighbours").select_option(hops)
        counts.append(page.locator(".pane").first.locator(".node").count())
    assert counts[0] < counts[1]
    before = page.locator(".drawn").inner_text()
    page.locator(".bar select").first.select_option(label="nodes 4801 to 4950 of 5000")
    assert "150 of 5000 nodes" in page.locator(".drawn").inner_text() != before
    page.get_by_role("button", name="next").click()
    assert "50 of 5000 nodes" in page.locator(".drawn").inner_text()


def test_what_is_closed_is_printed_and_closed_again(browser, tmp_path):
    inspection = onnx_spatial.inspect(net(20, 1))
    path = tmp_path / "two.html"
    path.write_text(render("inspect", [describe(inspection, name) for name in "ab"]), "utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    states = [page.locator("details.model[open]").count()]
    for event in ("beforeprint", "afterprint"):
        page.evaluate(f"dispatchEvent(new Event('{event}'))")
        states.append(page.locator("details.model[open]").count())
    assert states == [0, 2, 0]
    assert page.locator(".pane svg").count() == 4  # also what was never open is drawn
    page.locator("a[href='#m2']").click()
    page.locator("details#m2[open]").wait_for()
    page.close()


@pytest.mark.parametrize("width", [1024, 1280])
def test_tables_fit_the_window(opened, width):
    page = opened(200, 8, width=width)
    page.evaluate("document.querySelectorAll('details.fold').forEach(d => (d.open = true))")
    wide = page.locator(".wide").evaluate_all("all => all.map(x => x.scrollWidth - x.clientWidth)")
    assert len(wide) > 3 and max(wide) <= 0


BRANCHES = """<ir_version: 9, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1, "own" : 1]>
g (float[N,4,6,3] x, bool c) => (float[P,Q,R,S] y, float[P2,Q2,R2,S2] z)
<int64[2] block = {2, 2}, int64[2,2] none = {0, 0, 0, 0}> {
    [chosen] y = If (c) <
        then_branch = t () => (float[a1,a2,a3,a4] u) {
            [inner] u = ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, none) },
        else_branch = e () => (float[b1,b2,b3,b4] v) { v = Relu(x) }>
    [call] z = own.calm (x)
}
<domain: "own", opset_import: ["" : 17]> calm (q) => (r) { r = Relu(q) }
"""


def test_graphs_inside_of_nodes_are_opened_from_them(browser, tmp_path):
    model = onnx.parser.parse_model(BRANCHES)
    path = tmp_path / "inside.html"
    path.write_text(onnx_spatial.convert(model, verify=False).to_html(), "utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    page.locator(".pane svg").first.wait_for()
    page.locator(".bar select").first.select_option(label="main graph")
    pane = page.locator(".pane").first
    # The If is the same itself; one of its branches is not.
    assert "If chosen" in pane.locator(".node.same.holds title").text_content()
    assert page.locator(".key.holds").is_visible()
    pane.locator(".node", has_text="calm").click()
    assert page.locator(".chosen button").all_inner_texts()[0] == "function own:calm"
    pane.locator(".node.holds").click()
    then, other = page.locator(".chosen button").all_inner_texts()[:2]
    assert (then, other) == (
        "main graph > If y.then_branch, changed",
        "main graph > If y.else_branch",
    )
    page.locator(".chosen button", has_text="then_branch").click()
    assert "inner" in page.locator(".pane").first.locator(".node.removed").text_content()
    assert not page.locator(".key.holds").is_visible()
    page.close()


def test_the_first_value_that_differs_is_shown_in_the_graph(browser, tmp_path):
    wrong = onnx_spatial.convert(net(30, 2)).model
    (weight,) = [t for t in wrong.graph.initializer if t.name == "w"]
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(2), "w"))
    found = onnx_spatial.verify(net(30, 2), wrong)
    path = tmp_path / "wrong.html"
    path.write_text(verification_html(found, net(30, 2), wrong), "utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    page.locator("a[data-value]").click()
    page.locator(".node.selected").wait_for()
    assert found.first_value.name in page.locator(".chosen").inner_text()
    page.close()


def test_no_word_is_broken_in_print(opened):
    page = opened(200, 8, width=720)
    page.emulate_media(media="print")
    heights = page.locator(".cards thead th").evaluate_all(
        "cells => cells.map(c => c.clientHeight)"
    )
    assert len(heights) > 8 and max(heights) < 30  # a line each
    assert page.evaluate("document.documentElement.scrollWidth") <= 720
