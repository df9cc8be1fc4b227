"""Sizes and the nodes that are written for them: the right values, and as few nodes as they need."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from onnx_spatial import ConversionError
from onnx_spatial.lowering.emitter import Emitter, Size, Tensor


def value(name: str = "x") -> ir.Value:
    return ir.Value(name=name)


def size(name: str = "x") -> Size:
    return Emitter(17).length(value(name), 0)


def written(emit: Emitter) -> list[str]:
    return [node.op_type for node in emit.nodes]


def constant(emit: Emitter, value_: ir.Value) -> list[int]:
    found = next(v for v, _ in emit.constants if v is value_)
    return found.const_value.numpy().tolist()


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


# Sizes that are written at once

PLACES = st.integers(1, 9)


@st.composite
def programs(draw):
    """Draw an opset, a shape, and what computes vectors of sizes from it."""
    shape = draw(st.lists(st.integers(0, 7), min_size=3, max_size=4))
    axes = [("axis", axis, 0) for axis in range(len(shape))]
    kinds = st.sampled_from(["axis", "add", "div", "div", "max", "mul", "mul", "mul", "sum"])
    steps = axes + draw(st.lists(st.tuples(kinds, PLACES, PLACES), min_size=6, max_size=16))
    entries = st.lists(st.integers(-5, 20), min_size=2, max_size=5)
    vectors = draw(st.lists(entries, min_size=3, max_size=5))
    return draw(st.sampled_from([11, 13, 14, 17, 21])), tuple(shape), steps, vectors


def sizes_of(emit, x, shape, steps):
    """Emit the sizes that steps compute, and return them with their values."""
    found = []
    for kind, a, b in steps:
        if kind == "axis" or not found:
            axis = a % len(shape)
            found.append((emit.length(x, axis), shape[axis]))
            continue
        (one, value), (other, more) = found[a % len(found)], found[b % len(found)]
        if kind == "add":
            found.append((emit.add(one, a - b), value + a - b))
        elif kind == "div":
            found.append((emit.div(one, b), int(value / b)))
        elif kind == "max":
            found.append((emit.max(one, b), max(value, b)))
        elif kind == "mul":
            found.append((emit.mul(one, other), value * more))
        else:
            found.append((emit.add(one, other), value + more))
    return found


def emitted(opset, shape, steps, vectors, *, defers):
    """Return an Emitter, its output and the values that the output must have."""
    emit, x = Emitter(opset, defers=defers), value()
    found = sizes_of(emit, x, shape, steps)
    parts, expected = [], []
    for vector in vectors:
        # A negative entry is a number, another one the place of a size.
        entries = [(-v, -v) if v < 0 else found[v % len(found)] for v in vector]
        parts.append(emit.op("Neg", emit.vector([size for size, _ in entries], "vector")))
        expected += [-value for _, value in entries]
    output = emit.op("Concat", *parts, axis=0)
    emit.prune(output)
    return emit, output, expected


def run(emit, output, x):
    """Run the nodes of an Emitter on x."""
    output.name = "y"
    for number, (value, _) in enumerate(emit.constants):
        value.name = f"c{number}"
    for number, node in enumerate(emit.nodes):
        for place, value in enumerate(node.outputs):
            value.name = value.name or f"v{number}_{place}"
    nodes = [ir.serde.serialize_node(node) for node in emit.nodes]
    stored = []
    for value, _ in emit.constants:
        stored.append(ir.serde.serialize_tensor(value.const_value))
        stored[-1].name = value.name
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)]
    infos.append(helper.make_tensor_value_info("y", TensorProto.INT64, None))
    graph = helper.make_graph(nodes, "sizes", infos[:1], infos[1:], stored)
    imports = [helper.make_opsetid("", emit.opset)]
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=imports)).run(None, {"x": x})[
        0
    ]


@settings(max_examples=150, deadline=None)
@given(programs())
def test_sizes_that_are_written_at_once_have_the_same_values_by_no_more_nodes(program):
    _, shape, _, _ = program
    apart, _, _ = emitted(*program, defers=False)
    emit, output, expected = emitted(*program, defers=True)
    emit.write_sizes()
    event(f"joined: {len(emit.nodes) < len(apart.nodes)}")
    assert len(emit.nodes) <= len(apart.nodes)
    assert all(value is not None for node in emit.nodes for value in node.inputs)
    assert run(emit, output, np.zeros(shape, np.float32)).tolist() == expected


def test_sizes_of_what_is_computed_of_sizes_are_written_behind_it():
    emit, x = Emitter(17, defers=True), value()
    length = emit.length(x, 0)
    rows = emit.op("Reshape", x, emit.vector([emit.mul(length, 2), -1], "shape"))
    shape = emit.vector([emit.length(rows, 1), emit.div(length, 2)], "shape")
    output = emit.op("Concat", emit.op("Neg", shape), shape, axis=0)
    emit.prune(output)
    emit.write_sizes()
    assert run(emit, output, np.zeros((4, 6), np.float32)).tolist() == [-3, -2, 3, 2]


def test_a_parameter_that_is_a_shape_is_not_looked_behind():
    """Else the lowering would read a tensor that is no input of the operator."""
    emit, x, block = Emitter(17, defers=True), value(), ir.Value(name="other")
    parameter = ir.node("Shape", [block]).outputs[0]
    (size,) = emit.elements(parameter, [0])
    sizes = [emit.mul(emit.length(x, axis), size) for axis in range(6)]
    emit.op("Neg", emit.vector(sizes, "vector"))
    emit.write_sizes()
    assert all(block not in node.inputs for node in emit.nodes)
