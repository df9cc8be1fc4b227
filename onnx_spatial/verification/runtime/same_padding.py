"""Run convolutions that onnxruntime refuses, auto_pad SAME with dilations: numpy does the padding.

    x -> Conv (SAME, dilated) -> y        x -> zeros around it, by numpy -> Conv (VALID, dilated) -> y

The amounts follow from the shapes of a run and the text of the ONNX standard. This is deliberately
independent of `conversion.same_padding`, which does the same in converted models: a mistake there must
not be a mistake here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.operators.shapes import show
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.runtime.context import RunContext
from onnx_spatial.verification.runtime.scope import RunScope
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.runtime.spatial_kernels import MAX_BYTES
from onnx_spatial.verification.runtime.steps import Step
from onnx_spatial.verification.runtime.windows import same_pads

#: onnxruntime's message for such a convolution.
REFUSAL = "Dilation not supported for AutoPadType"

#: Domain of the node for the padding of a convolution.
DOMAIN = "onnx_spatial.padding"
_PADDED = "onnx_spatial.padded:"

_SAME = (b"SAME_UPPER", b"SAME_LOWER")

#: By domain and operator type: number of the weight input, and of the zero point of the data.
_OPERATORS: dict[tuple[str, str], tuple[int, int | None]] = {
    ("", "Conv"): (1, None),
    ("", "ConvInteger"): (1, 2),
    ("", "QLinearConv"): (3, 2),
    ("com.microsoft", "FusedConv"): (1, None),
}


def is_refused(node: onnx.NodeProto) -> bool:
    """Return whether onnxruntime refuses a node for its padding, by its attributes."""
    attributes = {a.name: a for a in node.attribute}
    if _operator(node) is None or "pads" in attributes:
        return False
    if not {"auto_pad", "dilations"} <= attributes.keys():
        return False
    if not (node.input and node.output and node.output[0]):
        return False
    dilated = any(d != 1 for d in attributes["dilations"].ints)
    return attributes["auto_pad"].s in _SAME and dilated


def may_be_refused(node: onnx.NodeProto) -> bool:
    """Return whether onnxruntime refuses a node, or may in some call of the function that holds it."""
    referred = {a.name for a in node.attribute if a.ref_attr_name}
    return is_refused(node) or (
        _operator(node) is not None and not referred.isdisjoint(("auto_pad", "dilations"))
    )


def _operator(node: onnx.NodeProto) -> tuple[int, int | None] | None:
    return _OPERATORS.get((op_traits.canonical_domain(node.domain), node.op_type))


def weight_of(node: onnx.NodeProto) -> int:
    """Number of the weight input of a refused node."""
    operator = _operator(node)
    assert operator is not None
    return operator[0]


def split(node: onnx.NodeProto) -> tuple[onnx.NodeProto, onnx.NodeProto]:
    """Split a refused node into its padding, which only `PaddingStep` runs, and the convolution."""
    operator = _operator(node)
    assert operator is not None
    names = [node.input[i] if i is not None and i < len(node.input) else "" for i in (0, *operator)]
    padded = _PADDED + node.output[0]
    padding = onnx.NodeProto(op_type="Same", domain=DOMAIN, name=traversal.label(node))
    padding.input.extend(names)
    padding.output.append(padded)
    padding.attribute.extend(node.attribute)
    rest = onnx.NodeProto()
    rest.CopyFrom(node)
    rest.input[0] = padded
    for attribute in rest.attribute:
        if attribute.name == "auto_pad":
            attribute.s = b"VALID"
    return padding, rest


@dataclass
class PaddingStep(Step):
    """The padding of a refused convolution, `site` of the original: the padding node of `split`."""

    context: RunContext
    nodes: list[onnx.NodeProto]
    site: int | None

    def run(self, scope: RunScope) -> None:
        """Put the padded data into the scope."""
        (node,) = self.nodes
        data, weight, zero = node.input
        kernel = _ints(node, "kernel_shape") or _dims(scope, weight)[2:]
        value = scope.value(zero) if zero else 0
        try:
            result = _padded(node, scope.value(data), kernel, value)
        except (ArithmeticError, AttributeError, MemoryError, ValueError) as error:
            raise RunFailure(f"{node.name!r} cannot be padded: {error}", "run") from None
        scope.values[node.output[0]] = result
        if self.site is not None:
            self.context.executed.add(self.site)


def _padded(node: onnx.NodeProto, data: Array, kernel: tuple[int, ...], zero: object) -> Array:
    dilations = _ints(node, "dilations")
    strides = _ints(node, "strides") or (1,) * len(dilations)
    upper = any(a.name == "auto_pad" and a.s == b"SAME_UPPER" for a in node.attribute)
    widths = [(0, 0), (0, 0)]
    for size, k, s, d in zip(data.shape[2:], kernel, strides, dilations, strict=True):
        widths.append(same_pads(size, (k - 1) * d + 1, s, upper=upper))
    shape = [size + sum(pair) for size, pair in zip(data.shape, widths, strict=True)]
    if math.prod(shape) * data.itemsize > MAX_BYTES:
        raise ValueError(f"{show(shape)} is too large to be compared")
    return np.pad(data, widths, constant_values=np.asarray(zero, data.dtype).reshape(()))


def _ints(node: onnx.NodeProto, name: str) -> tuple[int, ...]:
    return next((tuple(a.ints) for a in node.attribute if a.name == name), ())


def _dims(scope: RunScope, name: str) -> tuple[int, ...]:
    """Return the shape of a value; a stored one is not loaded for it."""
    computed = scope.computed(name)
    stored = scope.stored(name) if computed is None else None
    if isinstance(stored, onnx.TensorProto):
        return tuple(stored.dims)
    return tuple(np.shape(scope.value(name)))
