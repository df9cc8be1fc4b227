"""Writing nodes: what is known is folded, what is a no-op is not written, what is the same is shared."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnx_spatial import ConversionError
from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor


def value(name: str = "x") -> ir.Value:
    return ir.Value(name=name)


def size(name: str = "x") -> Size:
    return Emitter(17).length(value(name), 0)


def written(emit: Emitter) -> list[str]:
    return [node.op_type for node in emit.nodes]


def constant(emit: Emitter, value_: ir.Value) -> list[int]:
    found = next(v for v, _ in emit.constants if v is value_)
    return found.const_value.numpy().tolist()


@pytest.mark.parametrize(("a", "b", "quotient"), [(7, 2, 3), (-7, 2, -3), (6, 3, 2), (-1, 2, 0)])
def test_division_truncates_like_c(a, b, quotient):
    assert Emitter(17).div(a, b) == quotient


@pytest.mark.parametrize(
    ("opset", "nodes"), [(11, ["Add", "Sub", "Abs", "Add", "Div"]), (12, ["Max"]), (17, ["Max"])]
)
def test_max_before_opset_12_is_arithmetic(opset, nodes):
    """Max of int64 came with 12."""
    emit = Emitter(opset)
    a, b = emit.elements(value("a"), [0], 1) + emit.elements(value("b"), [0], 1)
    emit.size(emit.max(a, b))
    assert written(emit) == nodes


# Reshape


def reshaped(
    dims: list[object], x: list[object], opset: int = 17
) -> tuple[list[str], list[int] | None, bool]:
    """(nodes, literal shape if it is one, allowzero)"""
    emit = Emitter(opset)
    out = emit.reshape(Tensor(value(), tuple(x)), dims)
    assert list(out.dims) == dims
    if not emit.nodes:
        return [], None, False
    node = emit.nodes[-1]
    known = [v for v, _ in emit.constants if v is node.inputs[1]]
    literal = constant(emit, known[0]) if known else None
    return written(emit), literal, "allowzero" in node.attributes


N, M = size("n"), size("m")


@pytest.mark.parametrize(
    ("dims", "x", "expected"),
    [
        ([2, 3], [2, 3], ([], None, False)),
        ([2, N], [2, N], ([], None, False)),
        ([6], [2, 3], (["Reshape"], [6], False)),
        ([2, N], [N, 2], (["Reshape"], [2, -1], False)),
        ([N, 6], [N, 2, 3], (["Reshape"], [-1, 6], False)),
        ([N, M, 6], [N, M, 2, 3], (["Reshape"], [0, 0, 6], False)),  # copies both
        ([M, N, 6], [N, M, 2, 3], (["Shape", "Shape", "Concat", "Reshape"], None, True)),
        ([0, 6], [0, 2, 3], (["Reshape"], [0, 6], False)),  # the copied dim is 0 itself
        ([6, 0], [2, 0, 3], (["Reshape"], [6, 0], False)),
        ([0, 6], [2, 3, 0], (["Reshape"], [0, 6], True)),
        ([0, N], [N, 0], (["Shape", "Concat", "Reshape"], None, True)),  # no -1 beside a zero
    ],
)
def test_reshape_says_as_little_as_zero_sized_dims_allow(dims, x, expected):
    assert reshaped(dims, x) == expected


def test_opset_13_says_one_zero_that_moves_and_refuses_two():
    assert reshaped([0, 6], [2, 3, 0], opset=13) == (["Reshape"], [-1, 6], False)
    with pytest.raises(ConversionError, match="14"):
        reshaped([0, 6, 0], [2, 3, 0], opset=13)
    nodes = ["Shape", "Gather", "Shape", "Gather", "Concat", "Equal", "Where", "Reshape"]
    assert reshaped([M, N, 6], [N, M, 2, 3], opset=13) == (nodes, None, False)


def test_a_reshape_whose_shape_is_a_constant_is_not_replaced_by_one_that_computes_it():
    emit = Emitter(17)
    x = emit.reshape(Tensor(value(), (M, N)), [N, M, 1])
    output = emit.reshape(x, [N, M])
    emit.prune(output.value)
    assert written(emit) == ["Shape", "Shape", "Concat", "Reshape", "Reshape"]
    assert constant(emit, emit.nodes[-1].inputs[1]) == [0, 0]


def test_equal_constants_are_shared_and_different_ones_are_not():
    emit = Emitter(17)
    a = emit.constant(np.array([1, 2]), "a")
    assert emit.constant(np.array([1, 2]), "b") is a
    assert emit.constant(np.array([1, 2], np.int32), "c") is not a
    assert emit.constant(np.array([[1, 2]]), "d") is not a
    zeros = [emit.constant(np.zeros(2, dtype), "z") for dtype in (np.int32, np.float32, np.uint32)]
    assert len(set(map(id, zeros))) == 3  # the same bytes are not the same constant
    empty, space = (emit.constant(np.array([s], object), "e") for s in ("", " "))
    assert empty is not space
    assert empty.const_value.numpy().tolist() == [b""]
