"""Convert a model to double precision: its tensors, its inputs, the types of its casts.

Models that turn reals into whole numbers (QuantizeLinear, ArgMax, a comparison) are excluded: the last
bit of a real may decide there, and no precision is better than another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.arrays import constant_value

DOUBLE = onnx.TensorProto.DOUBLE

#: Types of reals with arithmetic, and the distance from 1 to the next larger number.
EPSILON: dict[int, float] = {
    onnx.TensorProto.BFLOAT16: 2.0**-7,
    onnx.TensorProto.FLOAT16: 2.0**-10,
    onnx.TensorProto.FLOAT: 2.0**-23,
    onnx.TensorProto.DOUBLE: 2.0**-52,
}

#: Their results say nothing of the values of their inputs.
SIZES = op_traits.having(Trait.SIZES)
_STEPS = op_traits.having(Trait.STEPS, Trait.RANDOM)
_CASTS = frozenset({"Cast", "CastLike"})


def reached(graph: onnx.GraphProto, starts: Collection[str]) -> set[str]:
    """Return names in one graph whose values depend on those of `starts`, not only on shapes."""
    names = set(starts)
    for node in traversal.in_order(graph):
        if node.op_type not in SIZES and not names.isdisjoint(traversal.needs(node)):
            names.update(name for name in node.output if name)
    return names


def reals(model: onnx.ModelProto) -> list[str]:
    """Return the names of the inputs of a model that hold reals."""
    return [v.name for v in model.graph.input if v.type.tensor_type.elem_type in EPSILON]


def obstacle(model: onnx.ModelProto) -> str | None:
    """Say why a model cannot be computed in double precision; None if nothing speaks against it."""
    if not reals(model):
        return "it has no floating-point inputs"
    data = reached(model.graph, reals(model))
    for node in model.graph.node:
        if data.isdisjoint(traversal.needs(node)) or node.op_type in SIZES:
            continue
        for each in (node, *traversal.inner_nodes(node)):
            if _is_step(each):
                return f"{each.op_type} node {traversal.label(each)!r} converts floats to integers"
    if any(
        g.sparse_initializer for _, g in traversal.graphs(model) if isinstance(g, onnx.GraphProto)
    ):
        return "it has sparse initializers"
    return None


def _is_step(node: onnx.NodeProto) -> bool:
    if node.op_type in _CASTS:
        return not any(a.name == "to" and a.i in EPSILON for a in node.attribute)
    whole = "Quantize" in node.op_type or "Integer" in node.op_type or "QLinear" in node.op_type
    return whole or node.op_type in _STEPS


def doubled(model: onnx.ModelProto, folder: Path | None) -> onnx.ModelProto:
    """Copy a model so that it computes in double precision; nodes keep their order.

    Raises:
        ModelFileError: a tensor cannot be read.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for _, graph in traversal.graphs(copy):
        del graph.value_info[:]
        if isinstance(graph, onnx.GraphProto):
            for tensor in graph.initializer:
                _double_tensor(tensor, folder)
            for info in (*graph.input, *graph.output):
                for kind in _tensor_types(info.type):
                    if kind.elem_type in EPSILON:
                        kind.elem_type = DOUBLE
    for _, _, node in traversal.nodes(copy):
        _double_node(node, folder)
    return copy


def _tensor_types(known: onnx.TypeProto) -> Iterator[onnx.TypeProto.Tensor]:
    if known.HasField("tensor_type"):
        yield known.tensor_type
    elif known.HasField("sequence_type"):
        yield from _tensor_types(known.sequence_type.elem_type)
    elif known.HasField("optional_type"):
        yield from _tensor_types(known.optional_type.elem_type)


def _double_node(node: onnx.NodeProto, folder: Path | None) -> None:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            _double_tensor(attribute.t, folder)
        elif attribute.name in ("to", "dtype") and attribute.i in EPSILON:
            attribute.i = DOUBLE
        elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            values = np.array(onnx.helper.get_attribute_value(attribute), np.float64)
            tensor = onnx.numpy_helper.from_array(values)
            attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))
    if node.op_type == "ConstantOfShape" and not node.attribute:
        zero = onnx.numpy_helper.from_array(np.zeros(1, np.float64))
        node.attribute.append(onnx.helper.make_attribute("value", zero))


def _double_tensor(tensor: onnx.TensorProto, folder: Path | None) -> None:
    if tensor.data_type not in EPSILON or tensor.data_type == DOUBLE:
        return
    values = constant_value(tensor, folder).astype(np.float64)
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))


def coarsest(models: Collection[onnx.ModelProto]) -> float | None:
    """Return the epsilon of the shortest real type among tensors, inputs and casts of models."""
    types: set[int] = set()
    for model in models:
        types.update(tensor.data_type for tensor in traversal.tensors(model))
        types.update(v.type.tensor_type.elem_type for v in model.graph.input)
        types.update(
            a.i for _, _, n in traversal.nodes(model) for a in n.attribute if a.name == "to"
        )
    return max((EPSILON[t] for t in types if t in EPSILON), default=None)


def least(epsilon: float) -> float:
    """Return the smallest normal number of the type with an epsilon."""
    return 2.0**-14 if epsilon == EPSILON[onnx.TensorProto.FLOAT16] else 2.0**-126
