"""Find convolutions with auto_pad SAME and dilations, and compute their pads.

ONNX pads each axis by (ceil(in / stride) - 1) * stride + (kernel - 1) * dilation + 1 - in, at least 0;
half of it on each side, an odd one at the end (SAME_UPPER) or at the beginning (SAME_LOWER). With
stride 1 the size of the input cancels out.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from onnx_spatial import analysis
from onnx_spatial.errors import Code, OperatorError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.strip import strip_weights
from onnx_spatial.model.inference import constant_folding, functions, shape_inference
from onnx_spatial.operators import Dim
from onnx_spatial.operators.shapes import show
from onnx_spatial.operators.spellings import Conflict, InputFacts, NodeFacts
from onnx_spatial.operators.spellings.call import AttributeValue

if TYPE_CHECKING:
    from onnx_spatial.lowering import Emitter
    from onnx_spatial.lowering.core.builder import Size

logger = logging.getLogger(__name__)

_SAME = frozenset({"SAME_UPPER", "SAME_LOWER"})


@dataclass(frozen=True)
class ConvKind:
    """Indices of the weight and of the zero point among the inputs of an operator."""

    weight: int
    zero: int | None = None


_KINDS = {
    ("", "Conv"): ConvKind(1),
    ("", "ConvInteger"): ConvKind(1, 2),
    ("", "QLinearConv"): ConvKind(3, 2),
    ("com.microsoft", "FusedConv"): ConvKind(1),
}


@dataclass(frozen=True)
class SamePadding:
    """A convolution with auto_pad SAME.

    Attributes:
        lower: whether an odd zero goes to the beginning.
        dilations, strides: one entry per spatial axis.
        kernel, sizes: spatial sizes of the weight and of the data, None where unknown.
    """

    lower: bool
    dilations: tuple[int, ...]
    strides: tuple[int, ...]
    kernel: tuple[Dim, ...]
    sizes: tuple[Dim, ...]

    def split(self, emit: Emitter, axis: int, size: Size, kernel: Size) -> tuple[Size, Size]:
        """Compute the pads (begin, end) of one axis."""
        stride = self.strides[axis]
        extent = emit.add(emit.mul(emit.sub(kernel, 1), self.dilations[axis]), 1)
        if stride == 1:
            total = emit.sub(extent, 1)
        else:
            windows = emit.div(emit.add(size, stride - 1), stride)
            covered = emit.add(emit.mul(emit.sub(windows, 1), stride), extent)
            total = emit.max(emit.sub(covered, size), 0)
        half = emit.div(total, 2)
        rest = emit.sub(total, half)
        return (rest, half) if self.lower else (half, rest)


def kind_of(node: onnx.NodeProto) -> ConvKind | None:
    """Return the inputs of an operator that has auto_pad; None for other operators."""
    return _KINDS.get((op_traits.canonical_domain(node.domain), node.op_type))


def _is_refused(attributes: Mapping[str, AttributeValue], *, unknown: bool) -> bool:
    """Return whether there are auto_pad SAME and dilations; `unknown` if the callers give them."""
    padding, dilations = attributes.get("auto_pad"), attributes.get("dilations")
    same = unknown if isinstance(padding, Conflict) else padding in _SAME
    if isinstance(dilations, Conflict):
        return same and unknown
    return same and isinstance(dilations, tuple) and any(d != 1 for d in dilations)


def find(model: onnx.ModelProto, folder: Path | None = None) -> dict[int, NodeFacts]:
    """Find the convolutions that onnxruntime refuses, by their position in `traversal.nodes`.

    Returns what is known of each, from all calls of the function around it. In a function a convolution
    counts if a call gives it auto_pad SAME and dilations.
    """
    local = {(f.domain, f.name) for f in model.functions}
    suspects = {
        index
        for index, (_, _, node) in enumerate(traversal.nodes(model))
        if kind_of(node) is not None
        and (node.domain, node.op_type) not in local
        and _is_refused(analysis.attributes(node), unknown=True)
    }
    return _known(model, suspects, folder) if suspects else {}


def _known(
    model: onnx.ModelProto, suspects: Collection[int], folder: Path | None
) -> dict[int, NodeFacts]:
    copy = strip_weights(model, folder)
    for index, (_, _, node) in enumerate(list(traversal.nodes(copy))):
        if index in suspects:
            node.attribute.append(onnx.helper.make_attribute(shape_inference.NUMBER, index))
    try:
        copy = functions.inline(copy)
    except Exception as error:  # the calls stay, and less is known of the functions
        logger.info("onnx inliner gave up: %s", error)
    symbols = shape_inference.symbols(model)
    seen: dict[int, list[NodeFacts]] = {}
    for scope, graph in constant_folding.scopes(
        shape_inference.infer(copy, lambda number, types: None)
    ):
        for node in graph.node:
            numbers = [int(a.i) for a in node.attribute if a.name == shape_inference.NUMBER]
            if numbers and numbers[0] in suspects:
                inputs = [_input(scope.type(n), symbols) if n else None for n in node.input]
                seen.setdefault(numbers[0], []).append(_facts(node, inputs))
    for index, (_, _, node) in enumerate(traversal.nodes(model)):
        if index in suspects and index not in seen:  # in a function that nothing calls
            seen[index] = [_facts(node, [InputFacts() if name else None for name in node.input])]
    return {
        index: analysis.join(each)
        for index, each in sorted(seen.items())
        if any(_is_refused(facts.attributes, unknown=False) for facts in each)
    }


def _facts(node: onnx.NodeProto, inputs: Sequence[InputFacts | None]) -> NodeFacts:
    return NodeFacts(node.op_type, node.domain, tuple(inputs), analysis.attributes(node))


def _input(known: onnx.TypeProto | None, symbols: Collection[str]) -> InputFacts:
    """Return the facts of an input; dims that inference named, not the model, are unknown."""
    facts = analysis.input_facts(known)
    if facts.shape is None:
        return facts
    dims = (d if isinstance(d, int) or d in symbols else None for d in facts.shape)
    return replace(facts, shape=tuple(dims))


def read(node: onnx.NodeProto, known: NodeFacts) -> SamePadding:
    """Read the attributes and sizes of a convolution.

    Raises:
        OperatorError: the callers of its function contradict each other, or it breaks a rule.
    """
    if "pads" in known.attributes:
        raise OperatorError(
            "has both auto_pad and pads, which contradict each other", code=Code.ATTRIBUTE
        )
    padding, dilations = known.string("auto_pad"), known.integers("dilations")
    axes = len(dilations)
    strides = known.integers("strides", axes) if "strides" in known.attributes else (1,) * axes
    if min(*dilations, *strides) < 1:
        raise OperatorError("strides and dilations must be at least 1", code=Code.OUT_OF_RANGE)
    kind = kind_of(node)
    assert kind is not None
    data, weight = (_shape(known, index, axes + 2) for index in (0, kind.weight))
    kernel: tuple[Dim, ...] = weight[2:]
    if "kernel_shape" in known.attributes:
        kernel = known.integers("kernel_shape", axes)
    if any(isinstance(size, int) and size < 1 for size in kernel):
        raise OperatorError(f"its kernel {show(kernel)} is empty")
    return SamePadding(padding == "SAME_LOWER", dilations, strides, kernel, data[2:])


def _shape(known: NodeFacts, index: int, rank: int) -> tuple[Dim, ...]:
    """Return the dims of an input, None where unknown.

    Raises:
        OperatorError: it is missing, or of another rank.
    """
    facts = known.inputs[index] if index < len(known.inputs) else None
    if facts is None:
        raise OperatorError(f"input {index} is missing", code=Code.PARAMETER)
    if facts.shape is not None and len(facts.shape) != rank:
        raise OperatorError(
            f"input {index} must have rank {rank}, not {show(facts.shape)}", code=Code.RANK
        )
    shape = facts.shape or (None,) * rank
    return tuple(d if isinstance(d, int) else None for d in shape)


def output_shape(node: onnx.NodeProto, known: NodeFacts) -> tuple[Dim, ...] | None:
    """Return the shape of the output, dims None where unknown; None if the rank is unknown."""
    kind, data = kind_of(node), known.inputs[0] if known.inputs else None
    assert kind is not None
    weight = known.inputs[kind.weight] if kind.weight < len(known.inputs) else None
    if data is None or data.shape is None or len(data.shape) < 3:
        return None
    spatial, strides = data.shape[2:], known.attributes.get("strides")
    steps = strides if isinstance(strides, tuple) else (1,) * len(spatial)
    windows = (_windows(d, s) for d, s in zip(spatial, steps, strict=False))
    channels = weight.shape[0] if weight is not None and weight.shape else None
    return (data.shape[0], channels, *windows)


def _windows(size: Dim, stride: object) -> Dim:
    if stride == 1:
        return size
    return -(-size // stride) if isinstance(size, int) and isinstance(stride, int) else None
