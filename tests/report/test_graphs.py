"""The graphs of two models side by side: status, partner and region of each node, whole or left out."""

from __future__ import annotations

import json

import onnx
from onnx import parser
from report_models import net, without_blocks

import onnx_spatial
from onnx_spatial.report.graphs import (
    GraphDiff,
    SideBySide,
    compare,
    graph_document,
    script_json,
)

HEAD = '<ir_version: 9, opset_import: ["" : 17]>\n'


def diff(before: str, after: str) -> GraphDiff:
    models = (parser.parse_model(HEAD + text) for text in (before, after))
    (graph,) = compare(*models).graphs
    return graph


def status(graph: GraphDiff) -> list[dict[str, str]]:
    return [{n.label: n.status for n in nodes} for nodes in (graph.before, graph.after)]


def test_nodes_are_paired_by_name_and_type():
    graph = diff(
        "g (float[4] x) => (float[4] y) { [a] b = Relu(x) [b] c = Neg(b) [c] y = Abs(c) }",
        "g (float[4] x) => (float[4] y) { [a] b = Relu(x) [b] c = Exp(b) [c] y = Abs(b) }",
    )
    assert status(graph) == [
        {"a": "same", "b": "removed", "c": "changed"},
        {"a": "same", "b": "added", "c": "changed"},
    ]
    assert [node.partner for node in graph.before] == [0, None, 2]
    # What was removed, what was added in its place and the reader beside them are one region.
    assert {n.region for n in (*graph.before[1:], *graph.after[1:])} == {0}
    assert graph.before[0].region is None


def test_differences_apart_are_regions_apart():
    graph = diff(
        "g (float[4] x) => (float[4] y) { [a] b = Relu(x) [b] c = Neg(b) [c] y = Abs(c) }",
        "g (float[4] x) => (float[4] y) { [d] b = Exp(x) [b] c = Neg(b) [e] y = Sin(c) }",
    )
    assert [node.region for node in graph.before] == [0, None, 1]
    assert [node.region for node in graph.after] == [0, None, 1]


def test_two_nodes_of_one_name_have_partners_of_their_own():
    text = "g (float[4] x) => (float[4] y) { [a] b = Relu(x) [a] c = Relu(b) [c] y = Abs(c) }"
    graph = diff(text, text)
    assert [node.partner for node in graph.before] == [0, 1, 2]
    assert {node.status for node in graph.before} == {"same"}


def test_each_region_of_a_conversion_has_what_took_its_place():
    result = onnx_spatial.convert(net(60, 3), verify=False)
    found = compare(result.original.proto, result.model, result.summary.replacements)
    (graph,) = found.graphs
    # The Transposes that went with the operators belong to the operators' regions.
    assert [what for _, what in found.regions] == ["Conv 3x3, dilation 2, 2 channels"] * 3
    for region in range(3):
        before = [n for n in graph.before if n.region == region]
        after = [n for n in graph.after if n.region == region]
        removed = [n.message.op_type for n in before if n.status == "removed"]
        assert {"SpaceToBatchND", "BatchToSpaceND"} <= {*removed}
        assert "Conv" in [n.message.op_type for n in after if n.status == "changed"]
    assert all(node.region is not None for node in graph.before if node.status != "same")


def test_graphs_inside_nodes_are_graphs_of_their_own():
    loop = onnx.load("models/raft/model.onnx")
    found = compare(loop, onnx_spatial.convert(loop, verify=False).model)
    names = [graph.name for graph in found.graphs]
    assert names[0] == "main graph" and "Loop" in names[1]
    # The Loop itself is the same: what changed is in its body.
    assert [node.status for node in found.graphs[0].before if node.message.op_type == "Loop"] == [
        "same"
    ]
    assert "removed" in {node.status for node in found.graphs[1].before}


def test_one_model_has_one_side():
    document = graph_document(compare(net(20, 1), None))
    assert document["regions"] == []
    assert {node.get("s", "same") for node in document["graphs"][0]["before"]} == {"same"}


def compared() -> SideBySide:
    model = net(300, 2)
    return SideBySide.of(model, without_blocks(model))


def test_small_graphs_are_whole():
    shown = compared()
    shown.leave_out(len(script_json(compared().graphs)))
    assert shown == compared()
    assert shown.left_out == ""


def test_graphs_without_room_are_left_out():
    shown = compared()
    before = shown.regions()
    shown.leave_out(100)
    assert shown.graphs is None
    assert shown.left_out.startswith("The graphs, with 588 nodes, are not drawn")
    assert before and shown.regions() == {}


def test_it_survives_json():
    shown = compared()
    again = SideBySide(**json.loads(json.dumps(shown.to_dict())))
    assert again.graphs == shown.graphs and again.left_out == shown.left_out
