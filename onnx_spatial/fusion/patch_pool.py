"""Fuse ExtractPatches with the Reshape and ReduceMax or ReduceMean behind it into one pool.

    x -> ExtractImagePatches k, s, r -> Reshape [N, H, W, places, C] -> ReduceMax over places -> y
    x -> Transpose -> MaxPool k, strides s, dilations r -> Transpose -> y

A patch holds the C channels of each place in the window, one place after the other. Patches are padded
with zeros: AveragePool counts them, MaxPool has none to pad with. In onnxruntime ReduceMax and MaxPool
lose NaN in different places, so that only integers are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.analysis import attributes, dtype_name
from onnx_spatial.fusion.matcher import MatchedOp, Matcher
from onnx_spatial.fusion.rule import Lower, Reason, Rewrite, Rule, blame
from onnx_spatial.lowering import Emitter, Lowered
from onnx_spatial.operators import ExtractPatches

_POOLS = {"ReduceMax": "MaxPool", "ReduceMean": "AveragePool"}
#: The opset in which each pool gets dilations.
_DILATIONS_SINCE = {"AveragePool": 19, "MaxPool": 10}
#: Stands for an unknown number of images.
_ANY = 1 << 20
#: The element types of which onnxruntime computes the same by both nodes.
_TYPES = {
    "AveragePool": {TensorProto.FLOAT},
    "MaxPool": {TensorProto.INT8, TensorProto.UINT8},
}


@dataclass(frozen=True)
class _Match:
    """Patches, and the nodes that reduce each window to one element.

    Attributes:
        subject: the operator in the graph.
        operator: its meaning.
        reshape, reduce: the nodes behind it.
        pads: of the pool.
        ones: axes of size 1 that the reduction keeps.
    """

    subject: MatchedOp
    operator: ExtractPatches
    reshape: ir.Node
    reduce: ir.Node
    pads: tuple[int, ...]
    ones: tuple[int, ...]


def _match(subject: MatchedOp, matcher: Matcher) -> _Match | Reason | None:
    operator, shape = subject.request.call.operator, subject.request.shape
    if not isinstance(operator, ExtractPatches) or shape is None or operator.major != "place":
        return None
    reshape = _only_reader(subject.node, {"Reshape"}, matcher)
    reduce = None if reshape is None else _only_reader(reshape, set(_POOLS), matcher)
    if reshape is None or reduce is None:
        return None
    sizes = [dim if isinstance(dim, int) else _ANY for dim in shape]
    if _ANY in sizes[1:]:
        return f"{blame(reduce)} the sizes of the image are not known, and it may hold no window"
    window = _window(subject, reshape, operator, sizes, matcher)
    if window is None:
        return f"{blame(reshape)} it does not split the channels into places and channels"
    axes = _axes(reduce, len(shape) + len(window), matcher)
    if axes != window:
        return f"{blame(reduce)} it does not reduce the places of the windows"
    reason = _refusal(subject, operator, reduce.op_type, sizes)
    if reason is not None:
        return f"{blame(reduce)} {reason}"
    known = matcher.attributes(reduce)
    pairs = _padding(operator, sizes)
    pads = (*(begin for begin, _ in pairs), *(end for _, end in pairs))
    ones = axes if known.get("keepdims", 1) else ()
    return _Match(subject, operator, reshape, reduce, pads, ones)


def _only_reader(node: ir.Node, op_types: set[str], matcher: Matcher) -> ir.Node | None:
    """Return the node of some types that alone reads the output of another."""
    readers = matcher.readers(node.outputs[0])
    if len(readers) != 1 or matcher.is_named(node.outputs[0]):
        return None
    ((reader, index),) = readers
    message = matcher.standard(reader)
    fits = message is not None and message.op_type in op_types and reader.graph is node.graph
    return reader if fits and index == 0 else None


def _integers(value: ir.Value | None, matcher: Matcher) -> tuple[int, ...] | None:
    tensor = matcher.stored(value)
    if tensor is None or tensor.data_location == TensorProto.EXTERNAL:
        return None
    return tuple(int(v) for v in onnx.numpy_helper.to_array(tensor).reshape(-1))


def _window(
    subject: MatchedOp,
    reshape: ir.Node,
    operator: ExtractPatches,
    sizes: Sequence[int],
    matcher: Matcher,
) -> tuple[int, ...] | None:
    """Return the axes that hold the places of a window behind the Reshape; None if it mixes axes."""
    target = _integers(reshape.inputs[1], matcher)
    if target is None or matcher.attributes(reshape).get("allowzero", 0):
        return None
    dims = [sizes[0], *(d for d in operator.output_shape(sizes)[1:] if isinstance(d, int))]
    at, channels = operator.channel_axis, sizes[operator.channel_axis]
    resolved = [dims[i] if d == 0 and i < len(dims) else d for i, d in enumerate(target)]
    for places in ((math.prod(operator.kernel),), tuple(operator.kernel)):
        wanted = [*dims[:at], *places, channels, *dims[at + 1 :]]
        if len(wanted) != len(resolved) or resolved.count(-1) > 1 or 0 in wanted:
            continue
        if all(d in (-1, size) for d, size in zip(resolved, wanted, strict=True)):
            return tuple(range(at, at + len(places)))
    return None


def _axes(reduce: ir.Node, rank: int, matcher: Matcher) -> tuple[int, ...] | None:
    """Return the axes that a node reduces, None if they are unknown."""
    message = matcher.standard(reduce)
    assert message is not None
    axes = attributes(message).get("axes")
    if axes is None and len(reduce.inputs) > 1:
        axes = _integers(reduce.inputs[1], matcher)
    return tuple(sorted(int(a) % rank for a in axes)) if isinstance(axes, tuple) else None


def _padding(operator: ExtractPatches, sizes: Sequence[int]) -> list[tuple[int, int]]:
    spatial = enumerate(operator.spatial_axes)
    return [operator.padding(number, sizes[axis]) for number, axis in spatial]


def _refusal(
    subject: MatchedOp, operator: ExtractPatches, op_type: str, sizes: Sequence[int]
) -> Reason | None:
    """Say why no pool computes the reduction of all windows; None if one does."""
    pool = _POOLS[op_type]
    types = subject.info.element_types
    if not types or not types <= _TYPES[pool]:
        exact = ", ".join(sorted(map(dtype_name, _TYPES[pool])))
        return f"{pool} gives the same numbers, NaN too, only for {exact}"
    if pool == "MaxPool" and subject.request.opset < 12:
        return "MaxPool has no integers before opset 12"
    if min(d for d in operator.output_shape(sizes) if isinstance(d, int)) < 1:
        return "there are no patches"
    if max(operator.rates) > 1 and subject.request.opset < _DILATIONS_SINCE[pool]:
        return f"{pool} has no dilations before opset {_DILATIONS_SINCE[pool]}"
    pairs = _padding(operator, sizes)
    if min(min(pair) for pair in pairs) < 0:
        return "sampling starts inside the image, which no pool does"
    if pool == "MaxPool" and any(map(any, pairs)):
        return "patches are padded with zeros, and MaxPool pads with minus infinity"
    if any(max(pair) >= k for pair, k in zip(pairs, operator.kernel, strict=True)):
        return f"{pool} would need pads as large as its kernel"
    return None


def _rewrite(match: _Match, lower: Lower) -> Rewrite | Reason:
    operator, subject = match.operator, match.subject
    emit = Emitter(subject.request.opset)
    value = subject.node.inputs[0]
    assert value is not None
    axes = tuple(range(operator.rank))
    last = (0, *axes[2:], 1)
    is_last = operator.layout == "channels_last"
    if is_last:
        value = emit.op("Transpose", value, perm=[last.index(axis) for axis in axes])
    pool = _POOLS[match.reduce.op_type]
    value = emit.op(
        pool, value, kernel_shape=operator.kernel, strides=operator.strides, pads=match.pads
    )
    node = emit.nodes[-1]
    node.name = match.reduce.name or None
    if max(operator.rates) > 1:
        node.attributes["dilations"] = ir.AttrInt64s("dilations", operator.rates)
    if pool == "AveragePool" and any(match.pads):
        node.attributes["count_include_pad"] = ir.AttrInt64("count_include_pad", 1)
    if is_last:
        value = emit.op("Transpose", value, perm=last)
    if match.ones and subject.request.opset < 13:
        value = emit.op("Unsqueeze", value, axes=match.ones)
    elif match.ones:
        value = emit.op("Unsqueeze", value, emit.ints(match.ones, "axes"))
    assert subject.request.shape is not None
    shape = list(operator.output_shape(subject.request.shape))
    shape[operator.channel_axis] = subject.request.shape[operator.channel_axis]
    for axis in match.ones:
        shape.insert(axis, 1)
    nodes, outputs = (match.reshape, match.reduce), (match.reduce.outputs[0],)
    return Rewrite(
        Lowered(POOL, emit, value), (subject,), nodes, outputs, tuple(shape), match.reduce
    )


#: Name of the rule.
POOL = "pool"

#: ExtractPatches and a maximum or mean of each window become one pool.
RULE = Rule(POOL, _match, _rewrite)
