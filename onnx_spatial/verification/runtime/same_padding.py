"""Run convolutions that onnxruntime refuses, auto_pad SAME with dilations: numpy does the padding.

    x -> Conv (SAME, dilated) -> y        x -> zeros around it, by numpy -> Conv (VALID, dilated) -> y

How much is padded follows from the shapes of a run, by the words of the ONNX standard; nothing of it
is taken from a converted model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.operators.shapes import show
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.runtime.scope import RunScope
from onnx_spatial.verification.runtime.segment import Step
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.runtime.spatial_kernels import MAX_BYTES

#: What onnxruntime says of such a convolution.
REFUSAL = "Dilation not supported for AutoPadType"

#: Where a stand-in for the padding of a convolution has its operator.
DOMAIN = "onnx_spatial.padding"
_PADDED = "onnx_spatial.padded:"

_SAME = (b"SAME_UPPER", b"SAME_LOWER")

#: By domain and operator type: which input is the weight, and which the zero of quantised data.
_OPERATORS: dict[tuple[str, str], tuple[int, int | None]] = {
    ("", "Conv"): (1, None),
    ("", "ConvInteger"): (1, 2),
    ("", "QLinearConv"): (3, 2),
    ("com.microsoft", "FusedConv"): (1, None),
}


def is_refused(node: onnx.NodeProto) -> bool:
    """Whether onnxruntime refuses a node for its padding, by what the node itself says."""
    found = {a.name: a for a in node.attribute}
    if _operator(node) is None or "pads" in found or not {"auto_pad", "dilations"} <= found.keys():
        return False
    if not (node.input and node.output and node.output[0]):
        return False
    return found["auto_pad"].s in _SAME and any(d != 1 for d in found["dilations"].ints)


def may_be_refused(node: onnx.NodeProto) -> bool:
    """Whether it is refused, or may be in some call of the function that it stands in."""
    found = {a.name: a for a in node.attribute}
    left = any(n in found and found[n].ref_attr_name for n in ("auto_pad", "dilations"))
    return is_refused(node) or (left and _operator(node) is not None)


def _operator(node: onnx.NodeProto) -> tuple[int, int | None] | None:
    return _OPERATORS.get((op_traits.canonical_domain(node.domain), node.op_type))


def weight_of(node: onnx.NodeProto) -> int:
    """Which input of a refused node is its weight."""
    operator = _operator(node)
    assert operator is not None
    return operator[0]


def split(node: onnx.NodeProto) -> tuple[onnx.NodeProto, onnx.NodeProto]:
    """A refused node as two: its padding, which only `PaddingStep` runs, and the rest of it."""
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
    """The padding of a refused convolution, made by `split`.

    Attributes:
        nodes: the one node.
        note: is told that it has run.
    """

    nodes: list[onnx.NodeProto]
    note: Callable[[], None]

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
        self.note()


def _padded(node: onnx.NodeProto, data: Array, kernel: tuple[int, ...], zero: object) -> Array:
    dilations = _ints(node, "dilations")
    strides = _ints(node, "strides") or (1,) * len(dilations)
    widths = [(0, 0), (0, 0)]
    for size, k, s, d in zip(data.shape[2:], kernel, strides, dilations, strict=True):
        windows = (size + s - 1) // s
        missing = max(0, s * (windows - 1) + d * (k - 1) + 1 - size)
        few, many = missing // 2, missing - missing // 2
        widths.append((few, many) if _auto_pad(node) == b"SAME_UPPER" else (many, few))
    grown = [size + sum(pair) for size, pair in zip(data.shape, widths, strict=True)]
    if math.prod(grown) * data.itemsize > MAX_BYTES:
        raise ValueError(f"{show(grown)} is too large to be made for a comparison")
    return np.pad(data, widths, constant_values=np.asarray(zero, data.dtype).reshape(()))


def _auto_pad(node: onnx.NodeProto) -> bytes:
    return next(bytes(a.s) for a in node.attribute if a.name == "auto_pad")


def _ints(node: onnx.NodeProto, name: str) -> tuple[int, ...]:
    return next((tuple(a.ints) for a in node.attribute if a.name == name), ())


def _dims(scope: RunScope, name: str) -> tuple[int, ...]:
    """The shape of a value; one that is stored stays where it is."""
    computed = scope.computed(name)
    stored = scope.stored(name) if computed is None else None
    if isinstance(stored, onnx.TensorProto):
        return tuple(stored.dims)
    return tuple(np.shape(scope.value(name)))
