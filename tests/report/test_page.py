"""The HTML report: one file without references, names escaped, and the data of the JSON report."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from report_models import NASTY, net

import onnx_spatial
from onnx_spatial import UsageError
from onnx_spatial.errors import one_line
from onnx_spatial.report import page as report_page
from onnx_spatial.report import verification_html
from onnx_spatial.report.figures import headline
from onnx_spatial.report.page import render

VOID = {"meta", "br", "wbr", "input", "link", "img"}


class Page(HTMLParser):
    """A parsed page: its elements, its text outside of scripts, and the cells of its tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        self.scripts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == [], "an element is not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            self.scripts[-1] += data
        elif "style" not in self.open:
            self.words.append(data)
            if {"td", "th"} & {*self.open}:
                self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    @property
    def graphs(self) -> dict:
        kinds = [attributes.get("type") for tag, attributes in self.elements if tag == "script"]
        return json.loads(self.scripts[kinds.index("application/json")])


@pytest.fixture(scope="module")
def conversion() -> onnx_spatial.Conversion:
    return onnx_spatial.convert(net(30, 2))


@pytest.fixture(scope="module")
def page(conversion) -> Page:
    return Page(conversion.to_html())


def assert_complete(page: Page) -> None:
    """Check that a page refers to nothing outside of it."""
    for tag, attributes in page.elements:
        assert tag not in ("link", "iframe", "img", "object", "embed", "base")
        for name in ("src", "href", "action", "data", "srcset"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
    policies = [
        a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policies[0].startswith("default-src 'none'")


def test_the_page_needs_no_other_file_and_is_always_the_same(conversion, page):
    assert_complete(page)
    text = conversion.to_html()
    assert "@import" not in text and "url(" not in text and "sourceMappingURL" not in text
    for call in ("fetch(", "XMLHttpRequest", "import(", "WebSocket", "sendBeacon"):
        assert call not in text
    assert text == onnx_spatial.convert(net(30, 2)).to_html()


def test_names_are_text_and_no_markup(page):
    # Each script is one of the page's own: the name ends none and starts none.
    assert len(page.scripts) == 5
    assert page.graphs["graphs"][0]["before"][0]["l"] == NASTY
    assert not any("<" in script for script in page.scripts if script.startswith("{"))
    model = net(30, 1)
    for node in model.graph.node:
        if node.op_type == "BatchToSpaceND":
            node.name = NASTY
    named = Page(render("inspect", [onnx_spatial.inspect(model).describe(NASTY)]))
    assert len(named.scripts) == 5
    assert any(cell.strip() == one_line(NASTY) for row in named.rows for cell in row)
    for each in (page, named):
        assert "b" not in {tag for tag, _ in each.elements}


def test_tables_hold_the_data_of_the_json_report(conversion, page):
    document = conversion.to_dict()
    nodes = [sum(document["summary"][side]["nodes"].values()) for side in ("before", "after")]
    assert ["nodes", *map(str, nodes)] in page.rows
    for each in document["summary"]["replacements"]:
        counts = f"{each['nodes_before']} -> {each['nodes_after']}"
        assert [each["node"], each["what"], counts] in page.rows
    counts = [row[-1].split(" -> ") for row in page.rows if len(row) == 3 and " -> " in row[-1]]
    assert [sum(map(int, each)) for each in zip(*counts, strict=True)] == nodes  # they add up
    proofs = {each["node"]: each["proven"] for each in document["verification"]["operators"]}
    for site in document["operators"]:
        action = f"{site['action']}: {site['lowering']}"
        (row,) = [row for row in page.rows if row[0] == site["node"] and action in " ".join(row)]
        assert row[-2:] == [proofs[site["node"]], "agrees"]
        assert f"{site['nodes_before']} -> {site['nodes_after']}" in row
    for output in document["verification"]["outputs"]:
        cells = {f"{output['p99_relative_error']:.1e}", f"{output['tolerance']:.0e}"}
        error = f"{output['max_relative_error']:.1e}"
        assert output["equal_bits"] or any(cells <= {*row} for row in page.rows if error in row)


def test_the_words_are_those_of_the_screen_and_stand_once(conversion, page):
    assert headline(conversion.summary) in page.text
    assert page.text.count(conversion.verification.message.removeprefix("passed: ")) == 1
    assert "x float32 [1, 2, 4, 4]" in page.text


def test_a_notebook_shows_the_verdict_and_a_table(conversion):
    shown = Page(conversion._repr_html_())
    assert headline(conversion.summary) in shown.text
    assert conversion.verification.message.removeprefix("passed: ") in shown.text
    assert len([row for row in shown.rows if "fuse: dilated convolution" in row]) == 4
    assert "script" not in {tag for tag, _ in shown.elements}
    alone = Page(conversion.verification._repr_html_())
    assert conversion.verification.message.removeprefix("passed: ") in alone.text
    assert len(alone.rows) == 1 + 4


def test_failures_show_their_worst_elements(conversion):
    wrong = onnx.ModelProto()
    wrong.CopyFrom(conversion.model)
    (weight,) = [t for t in wrong.graph.initializer if t.name == "w"]
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(1.1), "w"))
    found = onnx_spatial.verify(net(30, 2), wrong)
    page = Page(verification_html(found, net(30, 2), wrong))
    assert_complete(page)
    worst = max(found.outputs, key=lambda output: output.max_relative_error).worst_elements[0]
    assert [str([*worst.index]), worst.original, worst.converted] in page.rows
    assert any("DIFFERS" in row for row in page.rows) and "failed" in page.text


def test_outputs_that_differ_come_first_and_errors_that_are_no_numbers_are_named():
    text = (
        '<ir_version: 9, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>'
        "g (float[2,4,6,3] x) => (float[8,2,3,3] y, float[8,2,3,3] root, bool[8,2,3,3] flag)"
        "<int64[2] block = {2, 2}, int64[2,2] none = {0, 0, 0, 0}, float[1] k = {1}, float[1] t = {0}> {"
        "  y = ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, none)"
        "  a = Mul(y, k) root = Sqrt(a) flag = Greater(y, t) }"
    )
    model = onnx.parser.parse_model(text)
    wrong = onnx_spatial.convert(model, verify=False).model
    for tensor in wrong.graph.initializer:
        if tensor.name in "kt":
            changed = np.array([-1 if tensor.name == "k" else 0.5], np.float32)
            tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))
    page = Page(verification_html(onnx_spatial.verify(model, wrong), model, wrong))
    rows = [row for row in page.rows if row[-1] in ("DIFFERS", "ok") and len(row) > 6]
    assert [row[-1] for row in rows] == sorted(row[-1] for row in rows)
    differing = {(row[0], row[4]) for row in rows if row[-1] == "DIFFERS"}
    assert differing == {("root", "NaN, inf"), ("flag", "-")}


def test_without_jinja2_one_line_says_what_to_install(monkeypatch, conversion):
    monkeypatch.setattr(report_page.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        UsageError, match=r"needs the package jinja2: python -m pip install jinja2$"
    ):
        conversion.to_html()
