"""Chains that move blocks to the channels become part of the convolution behind them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
import running
from onnx import helper, numpy_helper, parser

import onnx_spatial
from onnx_spatial.conversion.depth_convs import fuse_depth_convs

RNG = np.random.default_rng(6)
END = 2**31 - 1

YOLOX = [(0, 0), (1, 0), (0, 1), (1, 1)]
SPACE_TO_DEPTH = [(0, 0), (0, 1), (1, 0), (1, 1)]


def model(
    chain: str,
    conv: str = "Conv <pads = [1, 1, 1, 1]> (y, w)",
    *,
    shape: str = "N,3,H,W",
    weight: Sequence[int] = (5, 12, 3, 3),
    **tables: object,
) -> onnx.ModelProto:
    head = '<ir_version: 9, opset_import: ["" : 17]>'
    text = f"{head} g (float[{shape}] x) => (float[?,?,?,?] z) {{ {chain} z = {conv} }}"
    made = parser.parse_model(text)
    arrays = {name: np.array(table, np.int64) for name, table in tables.items()}
    arrays["w"] = RNG.normal(size=weight).astype(np.float32)
    arrays["bias"] = RNG.normal(size=weight[0]).astype(np.float32)
    read = {name for node in made.graph.node for name in node.input}
    for name in sorted(read & arrays.keys()):
        made.graph.initializer.append(numpy_helper.from_array(arrays[name], name))
    return made


def slices(order: Sequence[tuple[int, int]]) -> tuple[str, dict[str, object]]:
    """YOLO's Focus: a Slice for each place of a block, and a Concat."""
    lines, tables = [], {"ends": [END, END], "axes": [2, 3], "steps": [2, 2]}
    for number, place in enumerate(order):
        lines.append(f"p{number} = Slice(x, start{number}, ends, axes, steps)")
        tables[f"start{number}"] = place
    parts = ", ".join(f"p{number}" for number in range(len(order)))
    return "\n".join([*lines, f"y = Concat <axis = 1> ({parts})\n"]), tables


def slices_of_slices() -> tuple[str, dict[str, object]]:
    lines = [f"r{i} = Slice(x, s{i}, end, rows, two)" for i in (0, 1)]
    lines += [f"p{i}{j} = Slice(r{i}, s{j}, end, columns, two)" for j in (0, 1) for i in (0, 1)]
    tables = {"s0": [0], "s1": [1], "end": [END], "rows": [2], "columns": [3], "two": [2]}
    return "\n".join([*lines, "y = Concat <axis = 1> (p00, p10, p01, p11)\n"]), tables


def same(given: onnx.ModelProto, made: onnx.ModelProto, shape: Sequence[int]) -> None:
    x = RNG.normal(size=shape).astype(np.float32)
    (expected,), (actual,) = running.run(given, {"x": x}), running.run(made, {"x": x})
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-5)


PIXEL_UNSHUFFLE = """
    a = Reshape(x, split)
    b = Transpose <perm = [0, 1, 3, 5, 2, 4]> (a)
    y = Reshape(b, merged)
"""
CHAINS = {
    "yolox": slices(YOLOX),
    "in order": slices(SPACE_TO_DEPTH),
    "no order": slices([(1, 1), (0, 1), (0, 0), (1, 0)]),
    "slices of slices": slices_of_slices(),
    "operator": ("y = SpaceToDepth <blocksize = 2> (x)\n", {}),
    "behind other nodes": ("v = SpaceToDepth <blocksize = 2> (x) y = Identity(v)\n", {}),
}


@pytest.mark.parametrize(("chain", "tables"), CHAINS.values(), ids=CHAINS)
def test_chains_of_any_size(chain, tables):
    given = model(chain, **tables)
    result = onnx_spatial.optimize(given)
    (conv,) = result.model.graph.node
    onnx.checker.check_model(result.model, full_check=True)
    known = {a.name: list(a.ints) for a in conv.attribute}
    assert known == {"kernel_shape": [6, 6], "strides": [2, 2], "pads": [2, 2, 2, 2]}
    assert [t.name for t in result.model.graph.initializer] == [conv.input[1]]
    assert result.verification.status == "passed"
    assert result.summary.text == "1 chain became 1 strided convolution"
    assert result.inspection.summary.startswith("1 chain is a strided convolution: ")
    for size in ((2, 2), (10, 34)):
        same(given, result.model, (2, 3, *size))


def test_pixel_unshuffle():
    given = model(
        PIXEL_UNSHUFFLE,
        "Conv <strides = [2, 1], pads = [0, 1, 2, 1]> (y, w, bias)",
        shape="2,3,8,12",
        split=[2, 3, 4, 2, 6, 2],
        merged=[2, 12, 4, 6],
    )
    made = onnx_spatial.optimize(given).model
    assert [node.op_type for node in made.graph.node] == ["Conv"]
    same(given, made, (2, 3, 8, 12))


def test_rows_alone():
    rows = """a = Slice(x, s0, end, rows, two) b = Slice(x, s1, end, rows, two)
        y = Concat <axis = 1> (a, b)\n"""
    tables = {"s0": [0], "s1": [1], "end": [END], "rows": [2], "two": [2]}
    given = model(rows, 'Conv <auto_pad = "VALID"> (y, w)', weight=(5, 6, 3, 2), **tables)
    made = onnx_spatial.optimize(given).model
    (conv,) = made.graph.node
    assert [list(a.ints) for a in conv.attribute if a.name == "kernel_shape"] == [[6, 2]]
    same(given, made, (1, 3, 8, 7))


CHAIN, TABLES = CHAINS["yolox"]
TWICE, FAR = (slices([(0, 0), place, (0, 1), (1, 1)]) for place in ((0, 0), (0, 2)))
LEFT = {
    "groups": model(CHAIN, "Conv <group = 3> (y, w)", weight=(6, 4, 3, 3), **TABLES),
    "dilations": model(CHAIN, "Conv <dilations = [2, 2]> (y, w)", **TABLES),
    "same padding": model(CHAIN, 'Conv <auto_pad = "SAME_UPPER"> (y, w)', **TABLES),
    "20 channels": model(CHAIN, shape="N,20,H,W", weight=(5, 80, 3, 3), **TABLES),
    "a large weight": model(CHAIN, shape="N,16,H,W", weight=(64, 64, 3, 3), **TABLES),
    "a place twice": model(TWICE[0], **TWICE[1]),
    "another place": model(FAR[0], **FAR[1]),
    "another reader": model(CHAIN + "r = Relu(y)\n", "Conv(y, w) u = Add(r, r)", **TABLES),
}


@pytest.mark.parametrize("given", LEFT.values(), ids=LEFT)
def test_what_stays(given):
    assert fuse_depth_convs(given).model is None


def test_a_weight_that_is_an_input_stays():
    given = model(CHAIN, **TABLES)
    given.graph.input.append(helper.make_tensor_value_info("w", 1, [5, 12, 3, 3]))
    assert fuse_depth_convs(given).model is None


def test_a_weight_for_two():
    """The old weight stays for its other reader."""
    given = model(CHAIN + "other = Conv(q, w)\n", **TABLES)
    given.graph.input.append(helper.make_tensor_value_info("q", 1, [1, 12, 4, 4]))
    given.graph.output.append(helper.make_tensor_value_info("other", 1, None))
    made = onnx_spatial.optimize(given).model
    assert {t.name for t in made.graph.initializer} > {"w"}
    data = {"x": RNG.random((1, 3, 6, 8), np.float32), "q": RNG.random((1, 12, 4, 4), np.float32)}
    for a, b in zip(running.run(given, data), running.run(made, data), strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=2e-5)
