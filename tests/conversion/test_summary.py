"""The summary of a conversion: what became of the operators, and figures before and after."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import parser

import onnx_spatial
from onnx_spatial.conversion.summary import Summary

HEAD = '<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>\n'
REGION = """g (float[2,8,12,GROUP] x) => (float[?,?,?,?] z)
    <float[4,1,3,3] w = {WEIGHTS}, int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}> {
        [s2b] b = com.microsoft.SpaceToBatchND(x, block, none)
        [to] c = Transpose <perm = [0, 3, 1, 2]> (b)
        [conv] d = Conv <pads = [1, 1, 1, 1], group = GROUP> (c, w)
        [back] e = Transpose <perm = [0, 2, 3, 1]> (d)
        [b2s] f = com.microsoft.BatchToSpaceND(e, block, none)
        [out] z = Neg(f)
    }""".replace("WEIGHTS", ", ".join(map(str, range(36))))


def summary(text: str, **options: object) -> Summary:
    model = parser.parse_model(HEAD + text)
    result = onnx_spatial.convert(model, verify=False, **options).summary
    assert result is not None
    return result


@pytest.mark.parametrize(("group", "kind"), [("4", "depthwise 3x3, 4"), ("1", "Conv 3x3, 1 -> 4")])
def test_a_region_is_one_row(group, kind):
    found = summary(REGION.replace("GROUP", group))
    assert found.text == "2 operators became 1 dilated convolution"
    (row,) = found.replacements
    assert row.node == "conv"
    assert row.what == f"{kind.replace(', ', ', dilation 2, ')} channels"
    assert row.nodes_before == 5
    assert (found.before.operators, found.after.operators) == (2, 0)
    assert found.estimate is None  # no runtime runs the operators: there is no time to compare with


def test_nodes_are_counted_by_type_and_the_file_is_measured():
    text = REGION.replace("GROUP", "4")
    found = summary(text)
    model = parser.parse_model(HEAD + text)
    assert found.before.nodes["Transpose"] == 2
    assert sum(found.before.nodes.values()) == 6
    assert found.before.bytes == len(model.SerializeToString())
    result = onnx_spatial.convert(model, verify=False)
    assert found.after.bytes == len(result.model.SerializeToString())
    assert found.after.nodes == {
        name: sum(node.op_type == name for node in result.model.graph.node)
        for name in found.after.nodes
    }


@pytest.mark.parametrize("options", [{}, {"fuse": False}, {"mode": "function"}])
def test_the_rows_add_up_to_the_nodes_of_the_model(options):
    found = summary(REGION.replace("GROUP", "4"), **options)
    rows = [(row.nodes_before, row.nodes_after) for row in found.replacements]
    rows += [(before, after) for _, _, before, after in found.other_nodes()]
    totals = tuple(sum(each.nodes.values()) for each in (found.before, found.after))
    assert tuple(map(sum, zip(*rows, strict=True))) == totals
    assert min(map(min, rows)) >= 0
    if "mode" in options:  # a call, and the function is counted once
        assert [row.nodes_after for row in found.replacements] == [1, 1]


def test_nodes_that_only_served_operators_are_a_row_of_their_own():
    path = Path(__file__).parents[2] / "models" / "wavenet" / "model.onnx"
    found = onnx_spatial.convert(path, verify=False).summary
    assert found.other_nodes() == [
        ("removed with them", "shape arithmetic and layout", 66, 0),
        ("other nodes", "", 26, 26),
    ]
