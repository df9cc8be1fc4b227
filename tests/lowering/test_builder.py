"""Writing nodes: what is known is folded, what is a no-op is not written, what is the same is shared."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnx_spatial import ConversionError
from onnx_spatial.lowering.core.builder import INT64_MAX, Emitter, Size, Tensor
from onnx_spatial.lowering.core.sizes import typical_sides


def value(name: str = "x") -> ir.Value:
    return ir.Value(name=name)


def size(name: str = "x") -> Size:
    return Emitter(17).length(value(name), 0)


def written(emit: Emitter) -> list[str]:
    return [node.op_type for node in emit.nodes]


def constant(emit: Emitter, value_: ir.Value) -> list[int]:
    found = next(v for v, _ in emit.constants if v is value_)
    return found.const_value.numpy().tolist()


def test_known_sizes_are_folded():
    emit = Emitter(17)
    assert emit.add(2, 3) == 5
    assert emit.sub(2, 3) == -1
    assert emit.mul(2, 3) == 6
    assert emit.max(2, 3) == 3
    assert emit.product([2, 3, 4]) == 24
    assert not emit.nodes


@pytest.mark.parametrize(("a", "b", "quotient"), [(7, 2, 3), (-7, 2, -3), (6, 3, 2), (-1, 2, 0)])
def test_division_truncates_like_c(a, b, quotient):
    assert Emitter(17).div(a, b) == quotient


def test_neutral_elements_change_nothing():
    emit, n = Emitter(17), size()
    assert emit.add(n, 0) == n
    assert emit.add(0, n) == n
    assert emit.sub(n, 0) == n
    assert emit.sub(n, n) == 0
    assert emit.mul(n, 1) == n
    assert emit.mul(1, n) == n
    assert emit.mul(n, 0) == 0
    assert emit.div(n, 1) == n
    assert emit.product([1, n, 1]) == n


def test_arithmetic_on_sizes_writes_nothing_until_a_node_reads_them():
    emit, n = Emitter(17), size()
    double = emit.mul(emit.max(emit.div(emit.add(n, 1), 3), 2), 2)
    assert not emit.nodes
    first, second = emit.size(double), emit.size(double)
    assert first is second
    assert written(emit) == ["Shape", "Add", "Div", "Max", "Mul"]


def test_known_factors_of_a_product_are_multiplied_beforehand():
    emit, n = Emitter(17), size()
    emit.size(emit.product([2, n, 3]))
    assert written(emit) == ["Shape", "Mul"]
    assert [constant(emit, v) for v, _ in emit.constants] == [[6]]


def test_images_with_more_sides_are_taken_for_shorter_ones():
    sides = [typical_sides(["N", *["D"] * count, 3])[0] for count in (1, 2, 3)]
    assert sides == sorted(sides, reverse=True)
    assert typical_sides(["N", 3, 224, "W"])[0] == sides[1]
    assert typical_sides(["N", "H", "W", "C"])[0] < sides[1]


def test_products_in_any_order_are_equal_and_strides_come_first():
    emit, n, h, w = Emitter(17), size("n"), size("h"), size("w")
    rows = emit.product([h, w])
    assert emit.product([n, emit.mul(w, 2), h]) == emit.mul(emit.mul(rows, n), 2)
    emit.vector([emit.mul(n, rows), rows], "strides")
    assert written(emit).count("Mul") == 2  # the product of the inner axes serves twice


def test_a_sum_within_a_product_is_not_multiplied_out():
    emit, h, w = Emitter(17), size("h"), size("w")
    emit.size(emit.mul(emit.mul(emit.add(h, 2), 3), emit.add(emit.mul(w, 4), 4)))
    assert written(emit) == ["Shape", "Add", "Shape", "Add", "Mul", "Mul"]


def test_known_summands_are_added_up():
    emit, n = Emitter(17), size()
    padded = emit.add(emit.add(n, 1), 3)
    assert padded == emit.add(4, n)
    assert emit.sub(padded, 4) == n


def test_what_cancels_is_not_computed():
    emit, n, m = Emitter(17), size("n"), size("m")
    begin = emit.div(n, 2)
    end = emit.sub(n, begin)
    assert emit.add(emit.add(m, begin), end) == emit.add(m, n)
    assert emit.sub(emit.add(n, m), m) == n
    twice = emit.mul(n, 2)
    assert emit.add(emit.sub(twice, m), m) == twice
    assert emit.mul(emit.add(n, 1), 2) == emit.add(twice, 2)


def test_known_neighbours_of_a_vector_are_one_constant():
    emit, n = Emitter(17), value()
    emit.vector([1, 2, n, 3], "shape")
    assert written(emit) == ["Concat"]
    assert [constant(emit, v) for v, _ in emit.constants] == [[1, 2], [3]]
    assert emit.vector([n], "shape") is n
    emit = Emitter(17)
    emit.vector([1, 2, size(), 3], "shape")
    assert written(emit) == ["Shape", "Concat"]
    assert [constant(emit, v) for v, _ in emit.constants] == [[1, 2], [3]]
    assert constant(emit, emit.vector([], "shape")) == []


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


def test_an_exact_reshape_leaves_nothing_to_be_inferred():
    emit = Emitter(17)
    emit.reshape(Tensor(value(), (N, 2)), [2, N], exact=True)
    assert written(emit) == ["Shape", "Concat", "Reshape"]


def test_a_reshape_of_a_reshape_reads_what_that_one_read():
    emit = Emitter(17)
    x = Tensor(value(), (24,))
    output = emit.reshape(emit.reshape(x, [2, 12]), [4, 6])
    assert emit.reshape(output, [24]) is x
    emit.prune(output.value)
    assert [node.inputs[0] for node in emit.nodes] == [x.value]


def test_an_exact_reshape_is_not_left_out():
    emit = Emitter(17)
    x = Tensor(value(), (N, 4))
    output = emit.reshape(emit.reshape(x, [2, N, 2], exact=True), [N, 4])
    emit.prune(output.value)
    assert written(emit) == ["Shape", "Concat", "Reshape", "Reshape"]


def test_a_reshape_whose_shape_is_a_constant_is_not_replaced_by_one_that_computes_it():
    emit = Emitter(17)
    x = emit.reshape(Tensor(value(), (M, N)), [N, M, 1])
    output = emit.reshape(x, [N, M])
    emit.prune(output.value)
    assert written(emit) == ["Shape", "Shape", "Concat", "Reshape", "Reshape"]
    assert constant(emit, emit.nodes[-1].inputs[1]) == [0, 0]


def test_no_transpose_is_written_that_moves_nothing():
    emit = Emitter(17)
    x = Tensor(value(), (2, 3))
    assert emit.transpose(x, [0, 1]) is x
    assert emit.transpose(x, [1, 0]).dims == (3, 2)
    assert written(emit) == ["Transpose"]


def test_a_slice_has_steps_only_where_they_are_not_1():
    emit = Emitter(17)
    x = Tensor(value(), (8, 3))
    emit.slice(x, [0], [0], [INT64_MAX], [8], [1])
    emit.slice(x, [0], [0], [INT64_MAX], [4], [2])
    assert [len(n.inputs) for n in emit.nodes] == [4, 5]


def test_short_ranges_are_constants_and_others_are_made_at_run_time():
    emit = Emitter(17)
    assert constant(emit, emit.range(4, 3)) == [0, 3, 6, 9]
    assert not emit.nodes
    emit.range(size(), 3)
    assert written(emit) == ["Shape", "Mul", "Reshape", "Range"]
    emit = Emitter(17)
    emit.range(1 << 20)
    assert written(emit)[-1] == "Range"


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


def test_the_largest_rank_is_remembered():
    emit = Emitter(17)
    x = emit.reshape(emit.tensor(value(), (24,)), [2, 3, 4])
    emit.reshape(x, [24])
    assert emit.max_rank == 3
