"""Read weights that are known before a model runs, large and external ones included.

A weight is an initializer, a Constant, or what nodes compute from these. Constant folding of the package
(`model.inference.constant_folding`) is about sizes, and skips large tensors.
"""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import reference

from onnx_spatial.maps.elements import Array
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import constant_folding
from onnx_spatial.model.io import external_data

#: The most elements of a weight, and of each value on the way to it.
_MAX_ELEMENTS = 1 << 26

#: The longest path of nodes to a weight.
_MAX_DEPTH = 32

#: Operators that exporters compute weights with.
_FOLDABLE = frozenset(
    "Cast CastLike Concat Constant ConstantOfShape DequantizeLinear Div Equal Expand EyeLike Flatten "
    "Gather Identity Mul OneHot Pad Range Reshape ScatterElements ScatterND Slice Squeeze Tile "
    "Transpose Unsqueeze Where".split()
)

#: Operators whose result may be much larger than their inputs, which say how large.
_GROWS = {"ConstantOfShape": 0, "Expand": 1}


class _TooDeepError(Exception):
    """A value is behind more nodes than are followed."""


class Weights:
    """The weights of a model.

    Args:
        proto: the model.
        folder: where external data lies.
    """

    def __init__(self, proto: onnx.ModelProto, folder: Path | None) -> None:
        self._folder = folder
        self._opset = op_traits.opset_of(proto.opset_import) or 1
        self._tensors: dict[tuple[traversal.Place, str], onnx.TensorProto] = {}
        self._nodes: dict[tuple[traversal.Place, str], onnx.NodeProto] = {}
        self._inputs: set[tuple[traversal.Place, str]] = set()
        self._known: dict[tuple[traversal.Place, str], Array | None] = {}
        for place, graph in traversal.graphs(proto):
            if isinstance(graph, onnx.GraphProto):
                main = not place.steps and place.function is None
                # Callers of the model may replace an initializer that is an input, too, since IR 4.
                fed = {v.name for v in graph.input} if not main or proto.ir_version >= 4 else set()
                self._inputs.update((place, name) for name in fed)
                tensors = {t.name: t for t in graph.initializer if t.name not in fed}
                self._tensors.update(((place, name), t) for name, t in tensors.items())
            else:
                self._inputs.update((place, name) for name in graph.input)
            for node in graph.node:
                self._nodes.update(((place, name), node) for name in node.output if name)

    def _owner_of(self, place: traversal.Place, name: str) -> traversal.Place | None:
        """Return the graph that a visible value belongs to."""
        while True:
            key = (place, name)
            if key in self._tensors or key in self._nodes or key in self._inputs:
                return place
            if not place.steps:
                return None
            place = place.outer

    def dims(self, place: traversal.Place, name: str) -> tuple[int, ...] | None:
        """Return the shape of an initializer or a Constant; None for other values."""
        tensor = self._tensor_of(place, name)
        return None if tensor is None else tuple(tensor.dims)

    def _tensor_of(self, place: traversal.Place, name: str) -> onnx.TensorProto | None:
        owner = self._owner_of(place, name)
        if owner is None:
            return None
        node = self._nodes.get((owner, name))
        if node is not None and node.op_type == "Constant" and op_traits.is_standard(node):
            return next(
                (a.t for a in node.attribute if a.name == "value" and not a.ref_attr_name), None
            )
        return self._tensors.get((owner, name))

    def array(self, place: traversal.Place, name: str) -> Array | None:
        """Return a value that is known before the model runs, if it is not too large."""
        try:
            return self._array_within(place, name, _MAX_DEPTH)
        except _TooDeepError:
            return None

    def _array_within(self, place: traversal.Place, name: str, depth_left: int) -> Array | None:
        owner = self._owner_of(place, name)
        if owner is None:
            return None
        key = (owner, name)
        if key not in self._known:
            if not depth_left:
                raise _TooDeepError  # not kept as unknown: from another value it is near enough
            tensor = self._tensor_of(owner, name)
            node = self._nodes.get(key)
            if tensor is not None:
                self._known[key] = self._read_tensor(tensor)
            elif node is not None:
                self._known[key] = self._compute_array(owner, node, name, depth_left)
            else:
                return None
        return self._known[key]

    def _read_tensor(self, tensor: onnx.TensorProto) -> Array | None:
        if math.prod(tensor.dims) > _MAX_ELEMENTS:
            return None
        try:
            return external_data.read_array(tensor, self._folder)
        except (OSError, ValueError, TypeError, KeyError, RuntimeError):
            return None  # damaged, or not there

    def _compute_array(
        self, place: traversal.Place, node: onnx.NodeProto, name: str, depth_left: int
    ) -> Array | None:
        if node.op_type not in _FOLDABLE or not op_traits.is_standard(node):
            return None
        if any(attribute.ref_attr_name for attribute in node.attribute):
            return None
        if node.op_type == "Constant":
            return constant_folding.held(node, self._read_tensor)
        feeds: dict[str, Array] = {}
        for source in filter(None, node.input):
            value = self._array_within(place, source, depth_left - 1)
            if value is None:
                return None
            feeds[source] = value
        grows = _GROWS.get(node.op_type)
        if grows is not None and math.prod(map(int, feeds[node.input[grows]].flat)) > _MAX_ELEMENTS:
            return None
        inputs = [onnx.ValueInfoProto(name=source) for source in feeds]
        graph = onnx.helper.make_graph([node], "fold", inputs, [onnx.ValueInfoProto(name=name)])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                evaluator = reference.ReferenceEvaluator(graph, opsets={"": self._opset})
                (result,) = evaluator.run(None, feeds)
        except Exception:  # of any type: the value stays unknown
            return None
        return result if isinstance(result, np.ndarray) and result.size <= _MAX_ELEMENTS else None
