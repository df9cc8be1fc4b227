"""What results say in Python, as JSON, in words, and as one HTML file without references to others."""

import json
import pickle
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import chain_models
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from report_models import NASTY, net, without_blocks

import onnx_spatial
from onnx_spatial import UsageError
from onnx_spatial.conversion.summary import Estimate, Figures, Summary
from onnx_spatial.errors import one_line
from onnx_spatial.report import page as report_page
from onnx_spatial.report import verification_html
from onnx_spatial.report.figures import figure_rows, file_size, headline
from onnx_spatial.report.graphs import SideBySide, compare, script_json
from onnx_spatial.report.page import render
from onnx_spatial.verification.evidence import SCOPES

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
        assert row[-2:] == [SCOPES[proofs[site["node"]]], "agrees"]
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
    assert "fuse: dilated convolution" in onnx_spatial.inspect(conversion.original)._repr_html_()
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


@pytest.fixture(scope="module")
def chains() -> onnx_spatial.Conversion:
    return onnx_spatial.optimize(chain_models.six_dims())


def test_chains_that_were_rewritten_are_operators_with_their_proofs(chains):
    assert [each.op_type for each in chains.operators] == ["SpaceToBatchND", "BatchToSpaceND"]
    for operator in chains.operators:
        assert operator.is_chain and operator.dialect == "standard nodes"
        assert (operator.action, operator.lowering) == ("fuse", "dilated convolution")
        assert operator.proven == "these sizes"
    results = chains.verification.operators
    assert [each.assumptions for each in chains.operators] == [r.assumptions for r in results]
    done = onnx_spatial.optimize(chain_models.six_dims(), verify=False)
    assert [(each.proven, each.assumptions) for each in done.operators] == [(None, ())] * 2


def test_operators_of_one_name_keep_their_own_proofs():
    twins = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17, "ai.onnx.converters.tensorflow": 1]>
        g (float[N,4,6,1] x, float[2,4,6,1] y) => (float[?,?,?,?] a, float[?,?,?,?] b)
        <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}> {
            [twin] a = ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, none)
            [twin] b = ai.onnx.converters.tensorflow.SpaceToBatchND(y, block, none)
        }"""
    )
    operators = onnx_spatial.convert(twins).operators
    assert [(each.node, each.proven) for each in operators] == [
        ("twin", "all sizes"),
        ("twin", "these sizes"),
    ]


def test_each_result_has_a_document_of_version_2_and_prints_as_one_line(chains):
    results = (chains, chains.inspection, chains.verification)
    for document in (json.loads(json.dumps(each.to_dict())) for each in results):
        assert document["version"] == 2 and [each["node"] for each in document["operators"]]
    document = chains.to_dict()
    assert document["operators"] == [each.to_dict() for each in chains.operators]
    nodes = (chains.nodes_before, chains.nodes_after)
    assert (document["nodes_before"], document["nodes_after"]) == nodes
    said = f"2 operators (2 fuse), {nodes[0]} -> {nodes[1]} nodes, passed"
    assert repr(chains) == f"<Conversion of model: {said}>"
    assert repr(chains.inspection) == "<Inspection of model: 2 operators (2 fuse)>"
    assert repr(chains.verification) == f"<Verification {chains.verification.message}>"
    assert repr(chains.verification).startswith("<Verification passed: ")


# Figures in words: the same on the screen and in the HTML report


def test_figures_say_of_which_chains_the_times_are_if_both_are_known():
    assert [file_size(n) for n in (999, 80_321, 2_500_000_000)] == ["999 bytes", "80 kB", "2.5 GB"]
    sizes = Figures({}, 80, 4, 0, 3), Figures({}, 41, 4, 0)
    plain = Summary("3 chains became 3 standard nodes", *sizes, ())
    for times, text in (
        ((120.0, 40.0), "3.0x faster"),
        ((120.0, 240.0), "2.0x slower"),
        ((120.0, 119.0), "as fast as before"),
        ((1200.0, 0.0), "1.20 ms faster"),
    ):
        timed = replace(plain, estimate=Estimate(3, *times))
        assert headline(timed).endswith(f", 3 chains {text} by estimate")
    assert "estimate" not in headline(plain)
    assert not any(row[0].startswith("time") for row in figure_rows(plain, verbose=True))
    *_, row = figure_rows(replace(plain, estimate=Estimate(2, 120.0, 40.0)))
    assert row == ("estimated time of 2 of 3 chains", "120 us", "40.0 us")


# Graphs side by side: status, partner and region of each node, whole or left out

HEAD = '<ir_version: 9, opset_import: ["" : 17]>\ng (float[4] x) => (float[4] y)'
CHAIN = "{ [a] b = Relu(x) [b] c = Neg(b) [c] y = Abs(c) }"
TWINS = "{ [a] b = Relu(x) [a] c = Relu(b) [c] y = Abs(c) }"


def status(nodes: list[dict[str, Any]]) -> list[str]:
    return [node.get("s", "same") for node in nodes]


@pytest.mark.parametrize(
    ("before", "after", "statuses", "partners", "regions"),
    [
        # By name and type; what differs beside each other is one region.
        (CHAIN, "{ [a] b = Relu(x) [b] c = Exp(b) [c] y = Abs(b) }",
         ("same removed changed", "same added changed"), [0, None, 2], [None, 0, 0]),
        # Differences apart are regions apart.
        (CHAIN, "{ [d] b = Exp(x) [b] c = Neg(b) [e] y = Sin(c) }",
         ("removed same removed", "added same added"), [None, 1, None], [0, None, 1]),
        # Two nodes of one name.
        (TWINS, TWINS, ("same same same", "same same same"), [0, 1, 2], [None, None, None]),
    ],
)  # fmt: skip
def test_nodes_have_partners_and_regions(before, after, statuses, partners, regions):
    found = compare(*(onnx.parser.parse_model(HEAD + text) for text in (before, after)))
    (graph,) = found["graphs"]
    assert tuple(" ".join(status(graph[side])) for side in ("before", "after")) == statuses
    assert [node.get("p") for node in graph["before"]] == partners
    for side in ("before", "after"):
        assert [node.get("r") for node in graph[side]] == regions


def test_each_region_of_a_conversion_has_what_took_its_place():
    result = onnx_spatial.convert(net(60, 3), verify=False)
    found = compare(result.original.proto, result.model, result.summary.replacements)
    (graph,) = found["graphs"]
    # The Transposes that went with the operators belong to the operators' regions.
    assert [what for _, what in found["regions"]] == ["Conv 3x3, dilation 2, 2 channels"] * 3
    for region in range(3):
        removed = [n["o"] for n in graph["before"] if n.get("r") == region and n["s"] == "removed"]
        assert {"SpaceToBatchND", "BatchToSpaceND"} <= {*removed}
        after = [n["o"] for n in graph["after"] if n.get("r") == region and n["s"] == "changed"]
        assert "Conv" in after
    assert all("r" in node for node in graph["before"] if "s" in node)


def test_graphs_inside_nodes_are_graphs_of_their_own():
    loop = onnx.load("models/raft/model.onnx")
    outer, inner = compare(loop, onnx_spatial.convert(loop, verify=False).model)["graphs"][:2]
    assert outer["name"] == "main graph" and "Loop" in inner["name"]
    # The Loop itself is the same: what changed is in its body.
    assert status([node for node in outer["before"] if node["o"] == "Loop"]) == ["same"]
    assert "removed" in status(inner["before"])


def test_graphs_go_from_process_to_process_and_are_left_out_without_room():
    model = net(300, 2)
    shown = SideBySide.of(model, without_blocks(model))
    again = pickle.loads(pickle.dumps(shown))
    again.leave_out(len(script_json(shown.graphs)))
    assert again == shown and again.script == shown.script != "" and again.left_out == ""
    assert again.regions()
    again.leave_out(100)
    assert again.graphs is None and again.regions() == {}
    assert again.left_out.startswith("The graphs, with 588 nodes, are not drawn")
