"""The nodes that stand for one operator, as a model of their own that is like a part of a real one.

    x [1, data's shape] -> GatherND -> data -> [ the operator's nodes ] -> y -> GatherND -> one element

A Reshape costs nothing inside a net and a whole copy where it reads a graph input or gives a graph
output, so the data comes from a node and goes to a node. GatherND is one that onnxruntime has for
every element type and neither fuses with others, nor moves Transposes through, nor takes out.
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

#: Takes any opset, and every version of onnxruntime takes it.
_IR_VERSION = 8

#: What `Request.apart` calls the data; the parameters behind it are input_1, ...
_DATA = "input_0"
_FED = "x"


@dataclass(frozen=True)
class HarnessData:
    """What an operator is measured with.

    Attributes:
        shape: of the data.
        element_type: of the data, ONNX's.
        parameters: values of the inputs behind the data; None where they are not given or known.
    """

    shape: tuple[int, ...]
    element_type: int
    parameters: tuple[Array | None, ...] = ()


def net(
    request: Request, given: HarnessData, lowered: Lowered | None, rank: int
) -> onnx.ModelProto:
    """A model that makes the data, moves it and uses it.

    Args:
        request: on inputs of its own (`Request.apart`).
        given: the data.
        lowered: what stands for the operator; None for a net without it, whose time is the others'.
        rank: of what is used: the operator's output, or the data.
    """
    output = _DATA if lowered is None else "y"
    nodes = [helper.make_node("GatherND", [_FED, "first"], [_DATA], "producer")]
    stored = [onnx.numpy_helper.from_array(np.zeros(1, np.int64), "first")]
    declared = before_transpose(request, request.shape or (None,) * len(given.shape))
    dims = [d if isinstance(d, int) else f"d{axis}" for axis, d in enumerate(declared)]
    inputs = [helper.make_tensor_value_info(_FED, given.element_type, [1, *dims])]
    if lowered is not None:
        stored += list(_constants(lowered))
        nodes += list(_nodes(lowered, output))
        read = {name for node in nodes for name in node.input}
        for index, array in _parameters(request, given):
            if (name := f"input_{index}") in read:
                kind = request.parameter_types[index] or TensorProto.INT64
                inputs.append(helper.make_tensor_value_info(name, kind, array.shape))
    nodes.append(helper.make_node("GatherND", [output, "corner"], ["used"], "consumer"))
    stored.append(onnx.numpy_helper.from_array(np.zeros((1, rank), np.int64), "corner"))
    used = [helper.make_tensor_value_info("used", given.element_type, [1])]
    graph = helper.make_graph(nodes, "net", inputs, used, stored)
    opsets = [helper.make_opsetid("", request.opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)


def feeds(request: Request, given: HarnessData) -> dict[str, Array]:
    """What a net may be fed, by input name: made-up data and the parameters."""
    shape = before_transpose(request, given.shape)
    data = patterns(given.element_type, shape, np.random.default_rng(0))
    arrays = {f"input_{index}": array for index, array in _parameters(request, given)}
    arrays[_FED] = data.reshape(1, *shape)
    return arrays


def before_transpose(request: Request, shape: Sequence[T]) -> tuple[T, ...]:
    """Dims of the request's input, from those of the operator's data."""
    if request.before is None:
        return tuple(shape)
    return tuple(shape[request.before.index(axis)] for axis in range(len(shape)))


def _parameters(request: Request, given: HarnessData) -> Iterator[tuple[int, Array]]:
    """Values of the inputs behind the data, by number, as the types that the model gives them."""
    for index, array in enumerate(given.parameters, start=1):
        if array is not None and index < len(request.inputs) and request.inputs[index] is not None:
            kind = request.parameter_types[index] or TensorProto.INT64
            yield index, array.astype(helper.tensor_dtype_to_np_dtype(kind))


def _constants(lowered: Lowered) -> Iterator[onnx.TensorProto]:
    for number, (value, _) in enumerate(lowered.emitted.constants):
        value.name = f"constant_{number}"
        assert value.const_value is not None
        tensor = ir.serde.serialize_tensor(value.const_value)
        tensor.name = value.name
        yield tensor


def _nodes(lowered: Lowered, output: str) -> Iterator[onnx.NodeProto]:
    for number, node in enumerate(lowered.emitted.nodes):
        node.name = f"{node.op_type}_{number}"
        for place, value in enumerate(node.outputs):
            value.name = output if value is lowered.output else f"value_{number}_{place}"
    for node in lowered.emitted.nodes:
        yield ir.serde.serialize_node(node)
