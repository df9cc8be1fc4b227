"""Build a model around the nodes of one lowering, in which they cost what they cost in a real model.

    x [1, data's shape] -> GatherND -> data -> [ the operator's nodes ] -> y -> GatherND -> one element

A Reshape is free between nodes, and copies everything if it reads a graph input or produces a graph
output. So a node produces the data, and a node reads the result. onnxruntime has GatherND for every
element type, and neither fuses nor removes it, nor moves Transposes through it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper

from onnx_spatial.lowering import Lowered, Request
from onnx_spatial.verification.arrays import Array, patterns

T = TypeVar("T")

#: Allows any opset, and every version of onnxruntime accepts it.
_IR_VERSION = 8

#: Name of the data in `Request.apart`; the parameters behind it are input_1, ...
_DATA = "input_0"
_INPUT = "x"


@dataclass(frozen=True)
class HarnessData:
    """Inputs that an operator is measured with.

    Attributes:
        shape: shape of the data.
        element_type: ONNX's element type of the data.
        parameters: values of the inputs behind the data; None if missing or unknown.
    """

    shape: tuple[int, ...]
    element_type: int
    parameters: tuple[Array | None, ...] = ()


def build(
    request: Request, data: HarnessData, lowered: Lowered | None, rank: int
) -> onnx.ModelProto:
    """Build a model that produces the data, runs the lowering and reads the result.

    Args:
        request: request with inputs of its own (`Request.apart`).
        data: the data.
        lowered: the lowering; None: the model without it, whose time is subtracted.
        rank: rank of the operator's output, or without a lowering of the data.
    """
    output = _DATA if lowered is None else "y"
    nodes = [helper.make_node("GatherND", [_INPUT, "first"], [_DATA], "producer")]
    stored = [onnx.numpy_helper.from_array(np.zeros(1, np.int64), "first")]
    declared = before_transpose(request, request.shape or (None,) * len(data.shape))
    dims = [d if isinstance(d, int) else f"d{axis}" for axis, d in enumerate(declared)]
    inputs = [helper.make_tensor_value_info(_INPUT, data.element_type, [1, *dims])]
    if lowered is not None:
        emitted, constants = serialize(lowered, output)
        nodes += emitted
        stored += constants
        read = {name for node in nodes for name in node.input}
        for index, array in _parameters(request, data):
            if (name := f"input_{index}") in read:
                kind = request.parameter_types[index] or TensorProto.INT64
                inputs.append(helper.make_tensor_value_info(name, kind, array.shape))
    nodes.append(helper.make_node("GatherND", [output, "corner"], ["used"], "consumer"))
    stored.append(onnx.numpy_helper.from_array(np.zeros((1, rank), np.int64), "corner"))
    used = [helper.make_tensor_value_info("used", data.element_type, [1])]
    graph = helper.make_graph(nodes, "net", inputs, used, stored)
    opsets = [helper.make_opsetid("", request.opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)


def feeds(request: Request, data: HarnessData) -> dict[str, Array]:
    """Return inputs for the models, by name: generated data and the parameters."""
    shape = before_transpose(request, data.shape)
    generated = patterns(data.element_type, shape, np.random.default_rng(0))
    arrays = {f"input_{index}": array for index, array in _parameters(request, data)}
    return {**arrays, _INPUT: generated.reshape(1, *shape)}


def before_transpose(request: Request, shape: Sequence[T]) -> tuple[T, ...]:
    """Return the dims of the request's input: those of the data in front of its Transpose, if any."""
    if request.before is None:
        return tuple(shape)
    return tuple(shape[request.before.index(axis)] for axis in range(len(shape)))


def _parameters(request: Request, data: HarnessData) -> Iterator[tuple[int, Array]]:
    """Yield index and value of the inputs behind the data, in the types of the request."""
    for index, array in enumerate(data.parameters, start=1):
        if array is not None and index < len(request.inputs) and request.inputs[index] is not None:
            kind = request.parameter_types[index] or TensorProto.INT64
            yield index, array.astype(helper.tensor_dtype_to_np_dtype(kind))


def serialize(lowered: Lowered, output: str) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """Name the values of a lowering, with `output` for its output; return its nodes and constants."""
    tensors = []
    for number, (value, _) in enumerate(lowered.emitted.constants):
        value.name = f"constant_{number}"
        assert value.const_value is not None
        tensors.append(ir.serde.serialize_tensor(value.const_value))
        tensors[-1].name = value.name
    for number, node in enumerate(lowered.emitted.nodes):
        node.name = f"{node.op_type}_{number}"
        for place, value in enumerate(node.outputs):
            value.name = output if value is lowered.output else f"value_{number}_{place}"
    return [ir.serde.serialize_node(node) for node in lowered.emitted.nodes], tensors
