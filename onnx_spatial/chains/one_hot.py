"""Find one-hot convolutions: each output channel copies one element of the window.

    y[n, o, i, j] = sum of w[o, c, k, l] * x[n, c, i*s + k*d - p, ..]     one w[o] is 1, the others are 0

Exporters write patches in this way. A Conv is one where its weight is known before the model runs, its
bias is zero, and its output channels copy each element of the window once, in an order of which the
channels and the places count one after the other.

The Conv spreads a NaN or an infinity in a window over all output channels, because it multiplies them by
0, and it turns -0.0 into 0.0. What copies does neither.

A weight is an initializer, a Constant, or what nodes compute from these, of any size and external ones
included: constant folding of the package (`model.inference.constant_folding`) is about sizes, and skips
large tensors.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, reference

from onnx_spatial.maps.cases import Case
from onnx_spatial.maps.constants import Array
from onnx_spatial.maps.node import NodeView
from onnx_spatial.maps.rules_products import copied_order, copying_conv
from onnx_spatial.maps.tensor import Tensor
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


#: The operator that takes the place of a one-hot Conv where maps are computed; its only input is the
#: data. Attributes beside those of the Conv: `channels` of the input, and `order` (see `copied_order`).
COPYING = ("onnx_spatial.chains", "CopyingConv")

#: What the values of a one-hot Conv and of what copies differ in, for reports.
NOTE = (
    "inputs with NaN, infinities or -0.0 give other values: the one-hot convolution spreads NaN and "
    "infinities over the window and turns -0.0 into 0.0, the patches copy them"
)

#: The same where products of what is copied are summed up: then NaN spreads in both.
NOTE_OF_SUMS = (
    "inputs with infinities give other values: the one-hot convolution makes NaN of an infinity and 0, "
    "and all sums over the window become NaN"
)

_KEPT = ("auto_pad", "dilations", "pads", "strides")


def find_one_hot(
    proto: onnx.ModelProto, folder: Path | None = None
) -> dict[traversal.Place, dict[str, onnx.NodeProto]]:
    """Return the one-hot Convs of a model by graph and output, as nodes of the operator `COPYING`.

    Weights are only read where their shape fits.

    Args:
        proto: the model.
        folder: where external data lies.
    """
    local = {(f.domain, f.name) for f in proto.functions}
    weights: Weights | None = None
    found: dict[traversal.Place, dict[str, onnx.NodeProto]] = {}
    for place, _, node in traversal.nodes(proto):
        if node.op_type != "Conv" or not op_traits.is_standard(node) or len(node.input) < 2:
            continue
        if (node.domain, node.op_type) in local:
            continue
        weights = weights or Weights(proto, folder)
        copying = _as_copying(place, node, weights)
        if copying is not None:
            found.setdefault(place, {})[node.output[0]] = copying
    return found


def _as_copying(
    place: traversal.Place, node: onnx.NodeProto, weights: Weights
) -> onnx.NodeProto | None:
    """Return a one-hot Conv as a node of `COPYING`; None for other ones."""
    if any(attribute.ref_attr_name for attribute in node.attribute):
        return None
    known = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    group = known.get("group", 1)
    dims = weights.dims(place, node.input[1])
    if dims is not None and not _may_copy(dims, group):
        return None
    weight = weights.array(place, node.input[1])
    if weight is None or not _may_copy(weight.shape, group):
        return None
    order = copied_order(weight, group)
    if order is None or known.get("kernel_shape", list(weight.shape[2:])) != [*weight.shape[2:]]:
        return None
    if len(node.input) > 2 and node.input[2]:
        bias = weights.array(place, node.input[2])
        if bias is None or bias.astype(np.float64).any():
            return None
    domain, op_type = COPYING
    return helper.make_node(
        op_type,
        node.input[:1],
        node.output[:1],
        node.name,
        domain=domain,
        kernel_shape=weight.shape[2:],
        channels=weight.shape[1] * group,
        group=group,
        order=order,
        **{name: value for name, value in known.items() if name in _KEPT},
    )


def _may_copy(dims: Sequence[int], group: int) -> bool:
    """Return whether a kernel has one output channel for each element of a window of several places."""
    if len(dims) < 3 or min(dims) < 1 or group < 1:
        return False
    outputs, channels, *kernel = dims
    places = math.prod(kernel)
    return places > 1 and outputs == channels * group * places


def rule(
    case: Case, node: onnx.NodeProto, inputs: Sequence[Tensor | None], _: object
) -> Tensor | None:
    """Return the map of a node of `COPYING`, see `GraphMaps`."""
    if (node.domain, node.op_type) != COPYING:
        return None
    known = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    view = NodeView(node.op_type, known, inputs, list(node.output), legal=True)
    return copying_conv(case, view, known["channels"], known["order"])
