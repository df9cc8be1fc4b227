"""Convolutions that onnxruntime refuses, auto_pad SAME with dilations: padding, then VALID.

    x -> Conv (SAME, dilated) -> y        x -> zeros around it -> Conv (VALID, dilated) -> y

The amounts follow from the shapes of a run and the text of the ONNX standard. `conversion.same_padding`
does the same in converted models; nothing is shared, so that a mistake there is none here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from onnx_spatial import analysis
from onnx_spatial.errors import OperatorError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.operators.shapes import show
from onnx_spatial.verification.arrays import Array

#: Most elements of the output of an operator: a block of 10^9 must not exhaust the memory.
MOST_ELEMENTS = 2**27

#: Convolutions by domain and operator type: number of the weight input, and of the data's zero point.
_CONVOLUTIONS: dict[tuple[str, str], tuple[int, int | None]] = {
    ("", "Conv"): (1, None),
    ("", "ConvInteger"): (1, 2),
    ("", "QLinearConv"): (3, 2),
    ("com.microsoft", "FusedConv"): (1, None),
}
_SAME = ("SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True)
class RefusedConvolution:
    """A convolution that onnxruntime refuses.

    Attributes:
        index: its position in `traversal.nodes`.
        place: the graph that holds it.
        node: its message.
        weight: name of its weight.
        zero_point: name of the zero point of quantised data, which is what it is padded with; or "".
    """

    index: int
    place: traversal.Place
    node: onnx.NodeProto
    weight: str
    zero_point: str

    def become_valid(self, padded: str) -> None:
        """Let the convolution read padded data."""
        self.node.input[0] = padded
        next(a for a in self.node.attribute if a.name == "auto_pad").s = b"VALID"


def find(model: onnx.ModelProto) -> Iterator[RefusedConvolution]:
    """Yield the convolutions of a model that onnxruntime refuses."""
    for index, (place, _, node) in enumerate(traversal.nodes(model)):
        operator = _CONVOLUTIONS.get((op_traits.canonical_domain(node.domain), node.op_type))
        if operator is None or len(node.input) <= operator[0]:
            continue
        known = analysis.attributes(node)
        dilations = known.get("dilations")
        dilated = isinstance(dilations, tuple) and any(d != 1 for d in dilations)
        if dilated and known.get("auto_pad") in _SAME and "pads" not in known:
            weight, zero = operator
            zero_point = "" if zero is None else "".join(node.input[zero : zero + 1])
            yield RefusedConvolution(index, place, node, node.input[weight], zero_point)


def padded(
    array: Array, kernel: Sequence[int], attributes: Mapping[str, Any], zero: Any = 0
) -> Array:
    """Return data with the padding of a convolution.

    Args:
        array: the data.
        kernel: spatial sizes of the weight.
        attributes: those of the convolution; strides and dilations may be tuples or lists.
        zero: what it is padded with.

    Raises:
        OperatorError: the result is too large.
        ValueError: the attributes do not fit the data.
    """
    dilations, widths = attributes["dilations"], [(0, 0), (0, 0)]
    strides = attributes.get("strides") or (1,) * len(dilations)
    kernel = attributes.get("kernel_shape") or kernel
    axes = zip(array.shape[2:], kernel, strides, dilations, strict=True)
    for size, taps, stride, dilation in axes:
        windows, extent = -(-size // stride), (taps - 1) * dilation + 1
        total = max(0, (windows - 1) * stride + extent - size)
        half, rest = total // 2, total - total // 2
        widths.append((half, rest) if attributes["auto_pad"] == _SAME[0] else (rest, half))
    check_elements([size + sum(width) for size, width in zip(array.shape, widths, strict=True)])
    return np.pad(array, widths, constant_values=zero)


def check_elements(shape: Sequence[Any]) -> None:
    """Refuse an output that is too large to be computed.

    Raises:
        OperatorError: it is.
    """
    if math.prod(shape) > MOST_ELEMENTS:
        raise OperatorError(f"its output {show(shape)} is too large to be compared")
