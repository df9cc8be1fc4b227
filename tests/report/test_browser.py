"""The HTML report in a real browser: it draws, selects, is walked with keys, and stays usable."""

import os
import shutil

import numpy as np
import pytest
from onnx import numpy_helper
from report_models import NASTY, net, without_blocks

import onnx_spatial
from onnx_spatial.report import verification_html
from onnx_spatial.report.graphs import SideBySide
from onnx_spatial.report.outcome import Outcome
from onnx_spatial.report.page import render

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is missing (pip install '.[browser]')"
)
pytestmark = pytest.mark.browser

#: Names of a Chromium on the path; else that of playwright is used.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


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


@pytest.fixture
def opened(browser, tmp_path):
    """Open the report of a net in a window; every error and every request fails the test."""
    contexts, problems = [], []

    def open_page(text: str, *, width: int = 1280, scheme: str = "light"):
        path = tmp_path / "report.html"
        path.write_text(text, "utf-8")
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
        assert page.title() != "broken"
        drawn = [page.locator(".pane").nth(i).locator(".node").count() for i in (0, 1)]
        assert min(drawn) > 0 and max(drawn) < 400
        assert page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def test_a_click_shows_what_took_the_place_of_a_node_and_graphs_are_walked_with_keys(opened):
    page = opened(onnx_spatial.convert(net(200, 8)).to_html(), width=400, scheme="dark")
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
    page = opened(onnx_spatial.convert(net(10, 1)).to_html())
    page.locator(".pane").first.locator(".node[tabindex='0']").focus()
    names = []
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "End", "Home"):
        page.keyboard.press(key)
        names.append(page.evaluate("document.activeElement.querySelector('title').textContent"))
    assert names[0] == names[2] != names[1]
    assert "Identity end" in names[3] and NASTY.split("<")[1] in names[4]
    page.keyboard.press("Enter")
    assert "Relu" in page.locator(".chosen h4").inner_text()
    # One stop of the Tab key for each graph.
    assert page.locator(".pane").first.locator("[tabindex='0']").count() == 1


def test_every_node_of_a_large_graph_is_found(opened):
    model = net(5000, 20)  # quicker than a conversion, and as large
    shown = SideBySide.of(model, without_blocks(model))
    page = opened(render("verify", [Outcome("net", "passed", "", shown=shown)]))
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


def test_the_first_value_that_differs_is_shown_in_the_graph(opened):
    wrong = onnx_spatial.convert(net(30, 2)).model
    (weight,) = [t for t in wrong.graph.initializer if t.name == "w"]
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(2), "w"))
    found = onnx_spatial.verify(net(30, 2), wrong)
    page = opened(verification_html(found, net(30, 2), wrong))
    page.locator("a[data-value]").click()
    page.locator(".node.selected").wait_for()
    assert found.first_value.name in page.locator(".chosen").inner_text()
