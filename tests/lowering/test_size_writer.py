"""Sizes of a lowering: the right values, all at once by no more nodes than each vector by itself."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
import structure
from adapter import convert
from building import one_node
from hypothesis import event, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from onnx_spatial.lowering.core.builder import Emitter

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
    emit, x = Emitter(opset, defers=defers), ir.Value(name="x")
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
    emit, x = Emitter(17, defers=True), ir.Value(name="x")
    length = emit.length(x, 0)
    rows = emit.op("Reshape", x, emit.vector([emit.mul(length, 2), -1], "shape"))
    shape = emit.vector([emit.length(rows, 1), emit.div(length, 2)], "shape")
    output = emit.op("Concat", emit.op("Neg", shape), shape, axis=0)
    emit.prune(output)
    emit.write_sizes()
    assert run(emit, output, np.zeros((4, 6), np.float32)).tolist() == [-3, -2, 3, 2]


@pytest.mark.parametrize(
    ("strategy", "ops"),
    [
        # Lengths in order take no Gather, and are apart where a product would need one.
        ("transpose", "Shape Div Mul Concat Concat Reshape Transpose Reshape"),
        # The number of rows is the product of all lengths.
        (
            "row-gather",
            "Shape ReduceProd Div Concat Mul Reshape Range Reshape Transpose Reshape Gather",
        ),
    ],
)
def test_sizes_in_order_are_read_by_the_shapes_as_they_are(strategy, ops):
    inputs = (np.zeros((4, 5, 7, 64), np.float32), np.full(2, 2), np.zeros((2, 2), np.int64))
    model = one_node("BatchToSpaceND", inputs, shape=("N", "H", "W", 64))
    assert sorted(structure.ops(convert(model, prefer=strategy))) == sorted(ops.split())


def test_a_parameter_that_is_a_shape_is_not_looked_behind():
    """Else the lowering would read a tensor that is no input of the operator."""
    emit, x, block = Emitter(17, defers=True), ir.Value(name="x"), ir.Value(name="other")
    parameter = ir.node("Shape", [block]).outputs[0]
    (size,) = emit.elements(parameter, [0])
    sizes = [emit.mul(emit.length(x, axis), size) for axis in range(6)]
    emit.op("Neg", emit.vector(sizes, "vector"))
    emit.write_sizes()
    assert all(block not in node.inputs for node in emit.nodes)
