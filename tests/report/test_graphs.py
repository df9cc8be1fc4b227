"""The graphs of two models side by side: status, partner and region of each node, whole or left out."""

from __future__ import annotations

import pickle
from typing import Any

import onnx
import pytest
from onnx import parser
from report_models import net, without_blocks

import onnx_spatial
from onnx_spatial.report.graphs import SideBySide, compare, script_json

HEAD = '<ir_version: 9, opset_import: ["" : 17]>\ng (float[4] x) => (float[4] y)'
CHAIN = "{ [a] b = Relu(x) [b] c = Neg(b) [c] y = Abs(c) }"
TWINS = "{ [a] b = Relu(x) [a] c = Relu(b) [c] y = Abs(c) }"


def status(nodes: list[dict[str, Any]]) -> list[str]:
    return [node.get("s", "same") for node in nodes]


@pytest.mark.parametrize(
    ("before", "after", "statuses", "partners", "regions"),
    [
        pytest.param(
            CHAIN,
            "{ [a] b = Relu(x) [b] c = Exp(b) [c] y = Abs(b) }",
            ("same removed changed", "same added changed"),
            [0, None, 2],
            [None, 0, 0],
            id="by name and type; what differs beside each other is one region",
        ),
        pytest.param(
            CHAIN,
            "{ [d] b = Exp(x) [b] c = Neg(b) [e] y = Sin(c) }",
            ("removed same removed", "added same added"),
            [None, 1, None],
            [0, None, 1],
            id="differences apart are regions apart",
        ),
        pytest.param(
            TWINS,
            TWINS,
            ("same same same", "same same same"),
            [0, 1, 2],
            [None, None, None],
            id="two nodes of one name",
        ),
    ],
)
def test_nodes_have_partners_and_regions(before, after, statuses, partners, regions):
    found = compare(*(parser.parse_model(HEAD + text) for text in (before, after)))
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
