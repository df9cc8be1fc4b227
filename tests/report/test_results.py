"""What results say in Python, as JSON and in words, and the graphs of two models side by side."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import chain_models
import onnx
import pytest
from report_models import net, without_blocks

import onnx_spatial
from onnx_spatial.conversion.summary import Estimate, Figures, Summary
from onnx_spatial.report.figures import figure_rows, file_size, headline
from onnx_spatial.report.graphs import SideBySide, compare, script_json


@pytest.fixture(scope="module")
def conversion() -> onnx_spatial.Conversion:
    return onnx_spatial.optimize(chain_models.six_dims())


def test_chains_that_were_rewritten_are_operators_with_their_proofs(conversion):
    assert [each.op_type for each in conversion.operators] == ["SpaceToBatchND", "BatchToSpaceND"]
    for operator in conversion.operators:
        assert operator.is_chain and operator.dialect == "standard nodes"
        assert (operator.action, operator.lowering) == ("fuse", "dilated convolution")
        assert operator.proven == "these sizes"
    results = conversion.verification.operators
    assert [each.assumptions for each in conversion.operators] == [r.assumptions for r in results]


def test_what_is_not_verified_is_not_proven():
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


def test_each_result_has_a_document_of_version_2_and_prints_as_one_line(conversion):
    results = (conversion, conversion.inspection, conversion.verification)
    for document in (json.loads(json.dumps(each.to_dict())) for each in results):
        assert document["version"] == 2 and [each["node"] for each in document["operators"]]
    document = conversion.to_dict()
    assert document["operators"] == [each.to_dict() for each in conversion.operators]
    nodes = (conversion.nodes_before, conversion.nodes_after)
    assert (document["nodes_before"], document["nodes_after"]) == nodes
    said = f"2 operators (2 fuse), {nodes[0]} -> {nodes[1]} nodes, passed"
    assert repr(conversion) == f"<Conversion of model: {said}>"
    assert repr(conversion.inspection) == "<Inspection of model: 2 operators (2 fuse)>"
    assert repr(conversion.verification) == f"<Verification {conversion.verification.message}>"
    assert repr(conversion.verification).startswith("<Verification passed: ")


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
    assert row == ("time of 2 of 3 chains", "~120 us", "~40.0 us")


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
