"""An operator as what it does to the factors of its axes: pad, split, permute, merge, crop.

    SpaceToBatch    [N, D, C]      D + pads = cells * block     -> [block * N, cells, C]
    BatchToSpace    [block * N, cells, C]                       -> [N, cells * block - crops, C]
    patches that tile the image
                    [N, D, C]      D + pads = windows * kernel  -> [N, windows, kernel * C]

Each axis is a tuple of factors, the output has the same factors in another order. Transposes in
front of and behind the operator only change which axis comes when, so they cost nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_spatial.lowering.core.builder import INT64_MAX, Emitter, Size, Tensor, same
from onnx_spatial.lowering.core.padding import Pads, pad
from onnx_spatial.lowering.core.sampling import sampled
from onnx_spatial.lowering.core.strategy import Parameters, Request
from onnx_spatial.operators import BatchToSpace, ExtractPatches, Operator, SpaceToBatch

Order = tuple[int, ...]
Cut = tuple[Size, Size] | None

#: Cutting cells off in front of the movement is a pass over the rest; it pays from this share on.
_WORTH_CUTTING = 0.3


@dataclass(frozen=True)
class Rearrangement:
    """Pad, split into factors, permute, merge, crop.

    Attributes:
        x: the data as it comes.
        pads: zeros around each axis of `x`; negative amounts cut off.
        signed: whether amounts that are computed at run time may be negative.
        cuts: (start, end) of what is left of each axis of `x` first of all, None for those that stay.
        sizes: of the factors.
        inputs: factors of each axis of the padded data, outermost first.
        outputs: factors of each axis of the output.
        crops: what is cut off each axis of the output in the end.
        element_types: ONNX element types that the data may have.
        near: whether other Transposes stand in front and behind, see `Request.near`.
        tail: the dims of an input of unknown rank that are one axis meanwhile, None if it is known.
        unproven: whether only the run can tell that blocks divide what they split: a Reshape to sizes
            that are computed exactly refuses what they do not.
    """

    x: Tensor
    pads: Pads
    sizes: tuple[Size, ...]
    inputs: tuple[Order, ...]
    outputs: tuple[Order, ...]
    crops: Pads
    element_types: frozenset[int]
    signed: bool = False
    cuts: tuple[Cut, ...] = ()
    near: tuple[bool, bool] = (False, False)
    tail: ir.Value | None = None
    unproven: bool = False

    @classmethod
    def of(cls, request: Request, emit: Emitter, x: Tensor | None = None) -> Rearrangement:
        """What a request asks for; `refusal` says beforehand whether it can be told like this.

        Args:
            request: the operator.
            emit: where the nodes go.
            x: data to use instead of the request's.
        """
        tail = None
        if x is None:
            x, tail = _data(request, emit)
        found = _OF[request.call.kind](request, emit, x)
        return replace(found, tail=tail, near=request.near)._seen_through(request)

    @property
    def before(self) -> Order:
        """The factors in the order of the input, without those of size 1."""
        return tuple(f for axis in self.inputs for f in axis if not same(self.sizes[f], 1))

    @property
    def after(self) -> Order:
        """The factors in the order of the output, without those of size 1."""
        return tuple(f for axis in self.outputs for f in axis if not same(self.sizes[f], 1))

    def padded(self, emit: Emitter, value: npt.NDArray[np.generic] | None = None) -> Tensor:
        """The data with its zeros, or with another value around it."""
        x = self.x
        cut = {axis: cut for axis, cut in enumerate(self.cuts) if cut is not None}
        if cut:
            dims = list(x.dims)
            for axis, (start, end) in cut.items():
                dims[axis] = emit.sub(end, start)
            starts, ends = zip(*cut.values(), strict=True)
            x = emit.slice(x, list(cut), starts, ends, dims)
        return pad(emit, x, self.pads, self.element_types, value, signed=self.signed)

    def merged(self, emit: Emitter, axis: int) -> Size:
        """Size of an axis of the output before it is cropped."""
        return emit.product([self.sizes[f] for f in self.outputs[axis]])

    def final(self, emit: Emitter) -> list[Size]:
        """Dims of the output."""
        whole = [self.merged(emit, axis) for axis in range(len(self.outputs))]
        return [
            emit.sub(emit.sub(d, begin), end)
            for d, (begin, end) in zip(whole, self.crops, strict=True)
        ]

    def cropped(self, axis: int) -> bool:
        """Whether anything is cut off an axis of the output."""
        return not all(same(amount, 0) for amount in self.crops[axis])

    def finished(self, emit: Emitter, x: Tensor, done: Iterable[int] = ()) -> ir.Value:
        """The output: `x`, in the order of the output, in its shape and cropped.

        Args:
            emit: where the nodes go.
            x: the factors in the order of the output, merged in whatever way.
            done: axes of the output that are cropped already.
        """
        done = set(done)
        whole = [self.merged(emit, axis) for axis in range(len(self.outputs))]
        final = self.final(emit)
        dims = [final[a] if a in done else whole[a] for a in range(len(whole))]
        x = emit.reshape(x, dims)
        left = [a for a in range(len(whole)) if a not in done and self.cropped(a)]
        if left:
            ends = [stop(emit, whole[axis], self.crops[axis][1]) for axis in left]
            x = emit.slice(x, left, [self.crops[a][0] for a in left], ends, final)
        if self.tail is None:
            return x.value
        return emit.reshape_exactly(x.value, [*x.dims[:-1], self.tail])

    def _seen_through(self, request: Request) -> Rearrangement:
        """The same with the Transposes around the operator taken in."""
        found = self
        if request.before is not None:
            back = [request.before.index(axis) for axis in range(len(request.before))]
            found = replace(
                found,
                x=replace(found.x, dims=tuple(found.x.dims[j] for j in back)),
                inputs=tuple(found.inputs[j] for j in back),
                pads=tuple(found.pads[j] for j in back),
                cuts=tuple(found.cuts[j] for j in back) if found.cuts else (),
            )
        if request.after is not None:
            found = replace(
                found,
                outputs=tuple(found.outputs[j] for j in request.after),
                crops=tuple(found.crops[j] for j in request.after),
            )
        return found


def stop(emit: Emitter, size: Size, cut: Size) -> Size:
    """Where a Slice has to end that cuts so much off the end of an axis, or all of it."""
    if isinstance(cut, int) and not isinstance(size, int):
        return -cut if cut else INT64_MAX  # -0 would mean empty
    # Below 0 it would count from the end.
    return emit.max(emit.sub(size, cut), 0)


def refusal(request: Request) -> str | None:
    """Why a request cannot be told as one movement of factors; None if it can."""
    operator = request.call.operator
    if request.shape is None and (request.before is not None or request.after is not None):
        return "the rank of the input is unknown"
    if isinstance(operator, ExtractPatches):
        for k, s, r in zip(operator.kernel, operator.strides, operator.rates, strict=True):
            if k != s or (k > 1 and r > 1):
                return "the windows do not tile the image (stride differs from kernel, or rate > 1)"
    return None


def _data(request: Request, emit: Emitter) -> tuple[Tensor, ir.Value | None]:
    """(the data with its dims as the operator sees them, the dims that it does not look at)

    Where the rank is unknown these are one axis meanwhile; otherwise they are None.
    """
    if request.shape is not None:
        return request.operand(emit), None
    value, lead = request.inputs[0], request.call.axes
    assert value is not None
    shape = emit.shape_of(value)
    # As if there were one of them, which matters for its price alone.
    tail = emit.slice(emit.tensor(shape, [lead + 1]), [0], [lead], [INT64_MAX], [1]).value
    rest = emit.op("ReduceProd", tail, keepdims=1)
    dims = (*emit.elements(shape, range(lead)), rest)
    given: Sequence[Size] = dims if emit.opset >= 14 else [*[0] * lead, rest]
    flat = emit.reshape_exactly(value, given, [*[True] * lead, False])
    return emit.tensor(flat, dims, request.itemsize), tail


def _space_to_batch(request: Request, emit: Emitter, x: Tensor) -> Rearrangement:
    p = Parameters.of(request, emit)
    blocked = len(p.block)
    rest = x.rank - 1 - blocked
    cells = [
        emit.quotient(emit.add(emit.add(d, begin), end), b)
        for d, begin, end, b in zip(x.dims[1:], p.begins, p.ends, p.block, strict=False)
    ]
    sizes, space, channels = _numbered(x.dims[0], cells, p.block, x.dims[1 + blocked :])
    return Rearrangement(
        x,
        ((0, 0), *zip(p.begins, p.ends, strict=True), *[(0, 0)] * rest),
        sizes,
        ((0,), *space, *channels),
        ((*(b for _, b in space), 0), *((cell,) for cell, _ in space), *channels),
        ((0, 0),) * x.rank,
        request.element_types,
        unproven=any(
            not isinstance(c, int) and not same(b, 1) for c, b in zip(cells, p.block, strict=True)
        ),
    )


def _batch_to_space(request: Request, emit: Emitter, x: Tensor) -> Rearrangement:
    p = Parameters.of(request, emit)
    blocked = len(p.block)
    factor = emit.product(p.block)
    batch = emit.quotient(x.dims[0], factor)
    crops = [(0, 0), *zip(p.begins, p.ends, strict=True), *[(0, 0)] * (x.rank - 1 - blocked)]
    cells, cuts, crops = _without_lost_cells(emit, x, p.block, crops)
    sizes, space, channels = _numbered(batch, cells, p.block, x.dims[1 + blocked :])
    return Rearrangement(
        x,
        ((0, 0),) * x.rank,
        sizes,
        ((*(b for _, b in space), 0), *((cell,) for cell, _ in space), *channels),
        ((0,), *space, *channels),
        tuple(crops),
        request.element_types,
        cuts=cuts,
        unproven=not isinstance(batch, int) and not same(factor, 1),
    )


def _tiles(request: Request, emit: Emitter, x: Tensor) -> Rearrangement:
    op = request.call.operator
    assert isinstance(op, ExtractPatches)
    axes = sampled(emit, op, x)
    pads: list[tuple[Size, Size]] = [(0, 0)] * x.rank
    cuts: list[Cut] = [None] * x.rank
    for axis, k, sample in zip(op.spatial_axes, op.kernel, axes, strict=True):
        pads[axis] = (sample.begin, sample.end)
        size = emit.mul(sample.count, k)
        if op.auto_pad == "valid" and k > 1 and not same(x.dims[axis], size):
            cuts[axis] = (0, size)
    counts = [axis.count for axis in axes]
    channel = x.dims[op.channel_axis]
    sizes, space, channels = _numbered(x.dims[0], counts, op.kernel, [channel])
    windows = tuple((window,) for window, _ in space)
    depth = (*(k for _, k in space), *channels[0])
    last = op.layout == "channels_last"
    return Rearrangement(
        x,
        tuple(pads),
        sizes,
        ((0,), *space, *channels) if last else ((0,), *channels, *space),
        ((0,), *windows, depth) if last else ((0,), depth, *windows),
        ((0, 0),) * x.rank,
        request.element_types,
        signed=op.auto_pad == "same_unclamped",
        cuts=tuple(cuts),
    )


#: The operators that can be told like this, and how.
_OF: dict[type[Operator], Callable[[Request, Emitter, Tensor], Rearrangement]] = {
    SpaceToBatch: _space_to_batch,
    BatchToSpace: _batch_to_space,
    ExtractPatches: _tiles,
}
OPERATORS = tuple(_OF)


def _numbered(
    batch: Size, cells: Sequence[Size], block: Sequence[Size], rest: Sequence[Size]
) -> tuple[tuple[Size, ...], list[Order], list[Order]]:
    """(sizes of all factors, the two of each blocked axis, the one of each other axis)"""
    sizes = [batch]
    space: list[Order] = []
    for cell, b in zip(cells, block, strict=False):
        space.append((len(sizes), len(sizes) + 1))
        sizes += [cell, b]
    channels: list[Order] = [(len(sizes) + i,) for i in range(len(rest))]
    return (*sizes, *rest), space, channels


def _without_lost_cells(
    emit: Emitter, x: Tensor, block: Sequence[Size], crops: Sequence[tuple[Size, Size]]
) -> tuple[list[Size], tuple[Cut, ...], list[tuple[Size, Size]]]:
    """Cut off cells of which nothing is left in the end, where these are many.

    Returns:
        Cells of each blocked axis, what is cut of each axis of `x`, crops that are left.
    """
    cells = list(x.dims[1 : 1 + len(block)])
    left = list(crops)
    cuts: list[Cut] = [None] * x.rank
    dims = list(x.dims)
    for axis, b in enumerate(block, start=1):
        begin, end = crops[axis]
        size = x.dims[axis]
        if not (isinstance(b, int) and isinstance(begin, int) and isinstance(end, int)):
            continue
        if isinstance(size, int) and (begin // b or end // b) and begin + end < size * b:
            cuts[axis] = (begin // b, size - end // b)
            dims[axis] = cells[axis - 1] = size - begin // b - end // b
            left[axis] = (begin % b, end % b)
    if emit.elements_in(dims) > (1 - _WORTH_CUTTING) * emit.elements_in(x.dims):
        return list(x.dims[1 : 1 + len(block)]), (), list(crops)
    return cells, tuple(cuts), left
