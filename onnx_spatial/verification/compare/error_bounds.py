"""Bound the rounding error of each element by the magnitudes of the terms that it is the sum of.

    y = sum of w * x + b      magnitude(y) = sum of |w| * magnitude(x) + |b|

An element may be the small difference of large numbers, or small beside large elements. Judged by its
own magnitude, an error in a channel of small weights shows beside large channels, and a difference need
not be more exact than the numbers that are subtracted.

The magnitudes are computed by a model: the same nodes with positive constants, without the activations
that shrink their input.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
from onnx import helper

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.compare import to_float64

#: Operators that sum up their inputs, or take the largest; which of these are real numbers.
_SUMS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm"), (0, 1, 2)),
    **dict.fromkeys(("Add", "Div", "Mul", "MatMul"), (0, 1)),
    **dict.fromkeys(
        "AveragePool Cast Dropout GlobalAveragePool GlobalMaxPool MaxPool ReduceMax ReduceMean "
        "ReduceSum".split(),
        (0,),
    ),
}
_SHRINKING = op_traits.having(Trait.SHRINKS)
_SHRINKING_TO_ONE = op_traits.having(Trait.SHRINKS_TO_ONE)

_PREFIX = "magnitude of "


def magnitudes(
    model: onnx.ModelProto, sites: Collection[int]
) -> tuple[onnx.ModelProto, list[int]] | None:
    """Build the model of magnitudes and the positions of its sites; None without a rule for an operator.

    The model is in double precision, without local functions. The inputs of the new one are the absolute
    values of its inputs.
    """
    data = to_float64.reached(model.graph, to_float64.reals(model))
    nodes = [n for _, _, n in traversal.nodes(model)]
    site_ids = {id(nodes[i]) for i in sites}
    writer = _Writer(data)
    new_nodes: list[onnx.NodeProto] = []
    kept: set[int] = set()
    for node in traversal.in_order(model.graph):
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        if data.isdisjoint(traversal.needs(node)) or node.op_type in to_float64.SIZES:
            new_nodes.append(copy)
        elif id(node) in site_ids:
            if not data.isdisjoint(node.input[1:]):
                return None
            kept.add(id(copy))
            new_nodes.append(copy)
        else:
            written = writer.of(copy)
            if written is None:
                return None
            new_nodes += written
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    result.graph.node.extend(new_nodes)
    one = onnx.numpy_helper.from_array(np.ones((), np.float64), writer.one)
    result.graph.initializer.append(one)
    # Initializers that are inputs, too, are data: their defaults become positive like all inputs.
    fed = {v.name for v in model.graph.input}
    for tensor in result.graph.initializer:
        if tensor.name in fed and tensor.data_type == to_float64.DOUBLE:
            positive = np.abs(onnx.numpy_helper.to_array(tensor))
            tensor.CopyFrom(onnx.numpy_helper.from_array(positive, tensor.name))
    targets = list(result.graph.node)
    kept = {id(t) for copy, t in zip(new_nodes, targets, strict=True) if id(copy) in kept}
    return result, [i for i, (_, _, n) in enumerate(traversal.nodes(result)) if id(n) in kept]


class _Writer:
    """Write the nodes that compute the magnitude of a node's output."""

    def __init__(self, data: set[str]) -> None:
        self._data = data
        self.one = _PREFIX + "one"
        self._positive: set[str] = set()

    def of(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        """Return the nodes in place of one that reads data; None without a rule for it."""
        if not op_traits.is_standard(node) or any(traversal.subgraphs(node)):
            return None
        x = node.input[0]
        if node.op_type in _SHRINKING:
            return [helper.make_node("Identity", [x], node.output)] if x in self._data else None
        if node.op_type in _SHRINKING_TO_ONE:
            return [helper.make_node("Add", [x, self.one], node.output)]
        if node.op_type == "PRelu":
            return self._parametric(node)
        if node.op_type == "Div" and node.input[1] in self._data:
            return None
        if node.op_type == "BatchNormalization":
            return self._normalised(node)
        node.op_type = {"Sub": "Add", "Min": "Max"}.get(node.op_type, node.op_type)
        if node.op_type in ("Max", "Sum"):
            return self._with_positive(node, range(len(node.input)))
        summed = _SUMS.get(node.op_type) or op_traits.moved_inputs(node)
        if not summed or node.op_type == "SequenceInsert":  # Abs takes no sequences
            return None
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.FLOAT:  # alpha and beta of Gemm
                attribute.f = abs(attribute.f)
        return self._with_positive(node, summed)

    def _with_positive(
        self, node: onnx.NodeProto, numbers: Collection[int]
    ) -> list[onnx.NodeProto]:
        """Return the node with the absolute values of those of its inputs that are not data."""
        before = []
        for number in numbers:
            name = node.input[number] if number < len(node.input) else ""
            if name and name not in self._data:
                node.input[number] = _PREFIX + name
                if name not in self._positive:
                    self._positive.add(name)
                    before.append(helper.make_node("Abs", [name], [_PREFIX + name]))
        return [*before, node]

    def _parametric(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        x, slope = node.input
        if x not in self._data or slope in self._data:
            return None
        name = _PREFIX + node.output[0]
        factor = helper.make_node("Add", [slope, self.one], [name])
        return [*self._with_positive(factor, (0,)), helper.make_node("Mul", [x, name], node.output)]

    def _normalised(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        if len([n for n in node.output if n]) > 1 or not self._data.isdisjoint(node.input[1:]):
            return None
        nodes = self._with_positive(node, (1, 2, 3))
        # scale * (x - mean): the mean is subtracted.
        name = _PREFIX + node.output[0]
        negative = helper.make_node("Neg", [node.input[3]], [name])
        node.input[3] = name
        return [*nodes[:-1], negative, node]
