"""Fuse ExtractPatches with the sum of products behind it into one strided Conv.

    x -> ExtractImagePatches k, s, r -> Transpose -> Conv 1x1 -> y
    x -> Transpose -> Conv k, strides s, dilations r -> y

    x -> ExtractImagePatches k, s, r -> Reshape -> MatMul -> Reshape -> Add -> y
    x -> Transpose -> Conv k, strides s, dilations r -> Transpose -> y

A patch holds the C channels of each place in the window, one place after the other: its channel number
place * C + c (c * places + place where the channels come first) is multiplied with the kernel's weight
at that place for channel c. So the kernel is the weight, reshaped and transposed; runtimes compute that
once, when they load, and the weight stays where it is. Zeros around the image are zeros in either form.
The same products are summed up in another order, so results agree within rounding.

Costs decide. Overlapping patches are many, and a convolution does without them. Patches side by side are
a cheap permutation; a matrix of many rows is then faster by itself, because onnxruntime packs the second
input of MatMul when it loads, and the kernel of Conv in every run.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.errors import ConversionError
from onnx_spatial.fusion.matcher import MatchedOp, Matcher
from onnx_spatial.fusion.rule import Lower, Reason, Rewrite, Rule, blame
from onnx_spatial.fusion.strided_conv import axis_path, channel_sum, patch_axes, regroup
from onnx_spatial.fusion.strided_conv.axis_groups import AxisGroups
from onnx_spatial.fusion.strided_conv.axis_path import Bias, Order, Path
from onnx_spatial.fusion.strided_conv.channel_sum import Contraction
from onnx_spatial.fusion.strided_conv.window_border import Border
from onnx_spatial.lowering import Emitter, Lowered, are_open, transpose_cost
from onnx_spatial.model.graph.replace_nodes import Draft
from onnx_spatial.operators import ExtractPatches

#: Name of the rule.
STRIDED = "strided convolution"

#: What onnxruntime's Conv takes.
_TYPES = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16})

#: Cost of an element of the kernel in each run, in microseconds. Fitted to 430 nets with patches in
#: onnxruntime 1.31: the chosen form takes 1 % longer than the better one in the mean.
_UNPACKED = 2e-5

#: Nodes that compute a shape of patches, about.
_SHAPE_NODES = 8


@dataclass(frozen=True)
class _Front:
    """What the convolution reads.

    Attributes:
        value: the image, or the input of a Transpose in front of the operator.
        nodes: that Transpose, if it goes.
        before: the orders of the axes that lead from there to the operator.
        after: the same for the convolution: two orders; one order if no Transpose is written.
    """

    value: ir.Value
    nodes: tuple[ir.Node, ...]
    before: tuple[Order, ...]
    after: tuple[Order, ...]


@dataclass(frozen=True)
class _Match:
    """Patches, the node that sums up their channels, and the nodes around the two.

    Attributes:
        subject: the operator in the graph.
        patches: its meaning.
        reader: the node that sums up.
        border: of the new Conv.
        front: what is in front.
        behind: the nodes behind that become part of it.
        bias: what one of these adds to each channel; None if none does.
        is_fed: whether the weight is an input of the model.
        served: nodes that only serve those that go.
        shapes: nodes that go because they read the shape of a value that goes, with its axes.
    """

    subject: MatchedOp
    patches: ExtractPatches
    reader: Contraction
    border: Border
    front: _Front
    behind: Path
    bias: Bias | None
    is_fed: bool
    served: tuple[ir.Node, ...] = ()
    shapes: tuple[tuple[ir.Node, AxisGroups], ...] = ()

    @property
    def growth(self) -> int:
        """Nodes behind the convolution and for shapes, or an estimate, less those that go."""
        shapes = _SHAPE_NODES if self.shapes else 0
        return regroup.node_count(self.behind.axes) + shapes - len(self.removed)

    @property
    def removed(self) -> tuple[ir.Node, ...]:
        """The nodes that go with the operator."""
        nodes = (*self.front.nodes, *self.reader.path.nodes, self.reader.node, *self.behind.nodes)
        return (*nodes, *self.served, *(node for node, _ in self.shapes))


def _match(subject: MatchedOp, matcher: Matcher) -> _Match | Reason | None:
    patches, shape = subject.request.call.operator, subject.request.shape
    if not isinstance(patches, ExtractPatches) or shape is None:
        return None
    axes_of = partial(patch_axes.axes_of, subject, patches, matcher)
    reader = channel_sum.find(subject.node.outputs[0], axes_of, matcher)
    if not isinstance(reader, Contraction):
        return reader
    ways = _behind(reader, matcher)
    nonzero = ways[-1][0].axes.nonzero
    may_be_empty = [n for n in range(len(patches.kernel)) if n + 2 not in nonzero]
    border = Border.of(patches, shape, may_be_empty, subject.request.opset)
    reason = border if isinstance(border, str) else _mismatch(subject, reader, patches, matcher)
    if isinstance(border, str) or reason is not None:
        return f"{blame(reader.node)} {reason}"
    if any(border.more) and subject.request.checked and are_open(subject.request):
        return f"{blame(reader.node)} its sizes are checked at run time, which needs the operator"
    front = _front(subject, patches, matcher)
    weight, is_main = reader.weight, subject.info.place.function is None
    is_fed = is_main and weight.producer() is None and weight.const_value is None
    matches = [_Match(subject, patches, reader, border, front, *way, is_fed) for way in ways]
    results = [_without_readers(match, matcher) for match in matches]
    right = [match for match in results if isinstance(match, _Match)]
    return min(right, key=lambda match: match.growth) if right else results[0]


def _mismatch(
    subject: MatchedOp, reader: Contraction, patches: ExtractPatches, matcher: Matcher
) -> Reason | None:
    """Say why the weight does not fit the patches."""
    tensor, shape = matcher.stored(reader.weight), subject.request.shape
    kinds = subject.info.element_types | ({tensor.data_type} if tensor is not None else set())
    if len(kinds) != 1 or not kinds <= _TYPES:
        names = (TensorProto.DataType.Name(kind).lower() for kind in sorted(kinds - _TYPES))
        return f"onnxruntime has no convolution of {' and '.join(names) or 'several types'}"
    assert shape is not None
    channels, places = shape[patches.channel_axis], math.prod(patches.kernel)
    fits = not isinstance(channels, int) or channels * places == reader.rows
    if not fits or reader.rows % places or min(reader.rows, reader.channels) < 1:
        return "its weight does not fit the channels of the patches"
    return None


def _front(subject: MatchedOp, patches: ExtractPatches, matcher: Matcher) -> _Front:
    """Lead from the image, or from the input of a Transpose in front of it, to [N, C, spatial..]."""
    data = subject.node.inputs[0]
    assert data is not None
    order = patch_axes.order_of(patches)
    first = tuple(range(patches.rank))
    node = data.producer()
    perm = matcher.perm(node, patches.rank)
    if order == first or node is None or perm is None or node.graph is not subject.node.graph:
        return _Front(data, (), (order,), regroup.steps(order, first))
    source = node.inputs[0]
    assert source is not None
    start = tuple(order[perm.index(axis)] for axis in first)
    if matcher.is_named(data) or matcher.readers(data) != [(subject.node, 0)]:
        return _Front(source, (), (start,), regroup.steps(start, first))
    return _Front(source, (node,), (start, order), regroup.steps(start, first))


def _behind(reader: Contraction, matcher: Matcher) -> list[tuple[Path, Bias | None]]:
    """List the chains of nodes behind the sum that can become part of it, the shortest first."""
    rows = reader.path.rows
    path = Path(reader.node.outputs[0], reader.axes, (reader.axes.order,), rows=rows)
    ways: list[tuple[Path, Bias | None]] = [(path, None)]
    while rows is None and reader.added is None and not matcher.is_named(path.value):
        readers = axis_path.data_readers(path.value, matcher)
        if len(readers) != 1 or readers[0][0].graph is not reader.node.graph:
            break
        (node, index), bias = readers[0], ways[-1][1]
        added = None
        if bias is None and reader.bias is None:
            added = axis_path.bias_of(path, node, matcher)
        longer: Path | Reason = "it is no Reshape"
        if added is not None:
            longer, bias = path.with_node(node, path.axes), added
        elif index == 0 and axis_path.is_movement(node, matcher):
            longer = axis_path.extended(path, node, matcher)
        if not isinstance(longer, Path) or longer.rows is not None:
            break
        path = longer
        ways.append((path, bias))
    return ways


def _without_readers(match: _Match, matcher: Matcher) -> _Match | Reason:
    """Add the nodes that go because of the others; say why it cannot be if one of them is to stay."""
    reader, behind = match.reader, match.behind
    kept = {match.front.value, reader.weight, reader.bias, reader.added}
    removed = [match.subject.node, *match.removed]
    served = matcher.serving(removed, kept)
    removed += served
    axes_of = dict((*reader.path.passed, *behind.passed))
    shapes = []
    for value in (value for node in removed for value in node.outputs if value is not behind.value):
        for node in (node for node, _ in matcher.readers(value) if node not in removed):
            if value not in axes_of or matcher.standard(node) is None or node.op_type != "Shape":
                return (
                    f"{blame(node)} it reads a value between the patches and {reader.node.op_type}"
                )
            known = [matcher.attributes(node).get(name) for name in ("start", "end")]
            first, last = (bound if isinstance(bound, int) else None for bound in known)
            part = axes_of[value].groups[first:last]
            shapes.append((node, replace(axes_of[value], groups=part)))
    return replace(match, served=tuple(served), shapes=tuple(shapes))


def _saved(match: _Match, lower: Lower) -> float:
    """Estimate the microseconds that the convolution saves."""
    patches, reader, request = match.patches, match.reader, match.subject.request
    try:
        saved = lower(request).cost
    except ConversionError:  # nothing else can be written
        return math.inf
    sizes = match.subject.sizes
    windows = [
        max(1, patches.output_size(number, max(sizes[axis], patches.extent(number))))
        for number, axis in enumerate(patches.spatial_axes)
    ]
    image = [sizes[0], reader.rows // math.prod(patches.kernel)]
    image += [sizes[axis] for axis in patches.spatial_axes]
    blocks, result = ([sizes[0], count, *windows] for count in (reader.rows, reader.channels))
    first = tuple(range(patches.rank))
    for dims, orders, sign in (
        (image, match.front.before, 1),
        (blocks, reader.path.orders, 1),
        (result, match.behind.orders, 1),
        (image, match.front.after, -1),
        (result, regroup.steps(first, match.behind.axes.order), -1),
    ):
        for start, end in itertools.pairwise(orders):
            shape = [dims[axis] for axis in start]
            saved += sign * transpose_cost(shape, regroup.perm(start, end), request.itemsize)
    saved -= match.border.cost(image, result, request.itemsize)
    if match.is_fed:  # then the kernel is written in each run
        shape, perm = _kernel_order(reader, patches)
        saved -= transpose_cost(shape, perm, request.itemsize)
    return saved - _UNPACKED * reader.rows * reader.channels


def _rewrite(match: _Match, lower: Lower) -> Rewrite | Reason:
    subject, patches, reader = match.subject, match.patches, match.reader
    if _saved(match, lower) <= 0:
        return f"{blame(reader.node)} one strided convolution would not be faster"
    emit = Emitter(subject.request.opset)
    image = regroup.transposed(match.front.value, match.front.after, emit)
    bias = _bias(match, emit)
    value = emit.op(
        "Conv",
        *(match.border.padded(image, emit), _kernel(reader, patches, emit)),
        *(() if bias is None else (bias,)),
        kernel_shape=patches.kernel,
        strides=patches.strides,
        dilations=patches.rates,
        work=None,
        **match.border.attributes,
    )
    emit.nodes[-1].name = reader.node.name or None
    value = match.border.cut(value, emit)
    axes = match.behind.axes
    value = regroup.transposed(value, regroup.steps(tuple(range(patches.rank)), axes.order), emit)
    if match.behind.rows is not None:
        value = emit.reshape_to(value, (*match.behind.rows, reader.channels))
    else:
        value = regroup.joined(value, axes, emit)
    if reader.added is not None:
        value = emit.op("Add", value, reader.added)
    emit.prune(value)
    dims = [dim.constant for dim in axes.dims]
    if match.behind.rows is not None:
        dims = [*(row if row >= 0 else None for row in match.behind.rows), reader.channels]
    return Rewrite(
        Lowered(STRIDED, emit, value),
        (subject,),
        match.removed,
        (match.behind.value,),
        tuple(dims),
        reader.node,
        _shapes(match),
    )


def _shapes(match: _Match) -> tuple[Draft, ...]:
    """Write the shapes of values that go, where nodes that stay read them."""
    if not match.shapes:
        return ()
    emit = Emitter(match.subject.request.opset)
    source = match.front.value, match.front.before[0]
    draft = Draft(match.subject.node, emit.nodes, emit.constants)
    for node, axes in match.shapes:
        dims = patch_axes.write_shape(match.subject, match.patches, source, axes, emit)
        draft.results[node.outputs[0]] = emit.vector(dims, "shape")
    return (draft,)


def _kernel_order(reader: Contraction, patches: ExtractPatches) -> tuple[list[int], list[int]]:
    """Return the weight's shape with an axis for each place, and the order of the axes in the kernel."""
    axes, channels = len(patches.kernel), reader.rows // math.prod(patches.kernel)
    places = list(range(axes))
    rows = [*patches.kernel, channels]
    order = [axes, *places]
    if patches.major == "channel":
        rows, order = [channels, *patches.kernel], [0, *(place + 1 for place in places)]
    if reader.rows_first:
        shape, perm = [*rows, reader.channels], [axes + 1, *order]
    else:
        shape, perm = [reader.channels, *rows], [0, *(place + 1 for place in order)]
    return shape, perm


def _kernel(reader: Contraction, patches: ExtractPatches, emit: Emitter) -> ir.Value:
    """Write the weight as [output channels, C, places in the window..]."""
    shape, perm = _kernel_order(reader, patches)
    weight = emit.op("Reshape", reader.weight, emit.ints(shape, "shape"))
    return weight if perm == sorted(perm) else emit.op("Transpose", weight, perm=perm)


def _bias(match: _Match, emit: Emitter) -> ir.Value | None:
    """Write the bias as [output channels]."""
    if match.bias is None:
        return match.reader.bias
    bias, count = match.bias, match.reader.channels
    if bias.constant is not None:  # which may stand behind the place of the convolution
        array = onnx.numpy_helper.to_array(bias.constant).reshape(-1)
        return emit.constant(np.array(np.broadcast_to(array, count)), "bias")
    if bias.dims == (count,):
        return bias.value
    flat = emit.reshape_to(bias.value, [-1])
    is_one = math.prod(bias.dims) != count
    return emit.op("Expand", flat, emit.ints([count], "count")) if is_one else flat


#: ExtractPatches and a sum over its channels become one Conv.
RULE = Rule(STRIDED, _match, _rewrite)
