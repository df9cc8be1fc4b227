"""Find one-hot convolutions: each output channel copies one element of the window.

    y[n, o, i, j] = sum of w[o, c, k, l] * x[n, c, i*s + k*d - p, ..]     one w[o] is 1, the others are 0

1. Weights that are known before a model runs: an initializer, a Constant, or what nodes compute from
   these, of any size and external ones included.
2. Exporters write patches as one-hot Convs. A Conv is one where its weight is known, its bias is zero,
   and its output channels copy each element of the window once, in an order of which the channels and
   the places count one after the other. It spreads a NaN or an infinity in a window over all output
   channels, because it multiplies them by 0, and it turns -0.0 into 0.0. What copies does neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from onnx_spatial.maps.cases import Case
from onnx_spatial.maps.elements import Array
from onnx_spatial.maps.node import NodeView
from onnx_spatial.maps.rules_products import copied_order, copying_conv
from onnx_spatial.maps.tensor import Tensor
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import constant_folding, shape_inference
from onnx_spatial.model.io import external_data

# 1. Weights


class Weights:
    """Values of any size that are known before a model runs, external ones included."""

    def __init__(self, proto: onnx.ModelProto, folder: Path | None) -> None:
        """Read nothing yet.

        Args:
            proto: the model.
            folder: where external data lies.
        """
        scopes = constant_folding.scopes(proto, partial(_LargeScope, folder))
        places = (place for place, _ in traversal.graphs(proto))
        self._scopes = {place: scope for place, (scope, _) in zip(places, scopes, strict=True)}

    def dims(self, place: traversal.Place, name: str) -> tuple[int, ...] | None:
        """Return the shape of a value, as the file says it; None if it does not, or not all of it."""
        dims = shape_inference.dims(self._scopes[place].type(name)) or ()
        known = tuple(d for d in dims if isinstance(d, int))
        return known if known and len(known) == len(dims) else None

    def array(self, place: traversal.Place, name: str) -> Array | None:
        """Return a value that is known before the model runs, if it is not too large."""
        return self._scopes[place].value(name)


class _LargeScope(constant_folding.ConstantScope):
    """Values that exporters store, or compute weights with."""

    foldable = frozenset(
        "Cast CastLike Concat ConstantOfShape DequantizeLinear Div Equal Expand EyeLike Flatten Gather "
        "Identity Mul OneHot Pad Range Reshape ScatterElements ScatterND Slice Squeeze Tile Transpose "
        "Unsqueeze Where".split()
    )
    most_elements = 1 << 26

    def __init__(self, folder: Path | None, *graph: Any, **context: Any) -> None:
        super().__init__(*graph, **context)
        self._folder = folder

    def read(self, tensor: onnx.TensorProto) -> Array | None:
        if math.prod(tensor.dims) > self.most_elements:
            return None
        try:
            return external_data.read_array(tensor, self._folder)
        except (OSError, ValueError, TypeError, KeyError, RuntimeError):
            return None  # damaged, or not there


# 2. One-hot Convs

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
