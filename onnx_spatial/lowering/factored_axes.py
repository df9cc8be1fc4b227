"""Describe an operator as a permutation of the factors of its axes: pad, split, permute, merge, crop.

    SpaceToBatch    [N, D, C]      D + pads = cells * block     -> [block * N, cells, C]
    BatchToSpace    [block * N, cells, C]                       -> [N, cells * block - crops, C]
    patches that tile the image
                    [N, D, C]      D + pads = windows * kernel  -> [N, windows, kernel * C]
    ReorgYolo       [N, q*H, s, W, s] in the order of memory    -> [N, s, s, q*H, W]

Each axis is a tuple of factors; the output has the same factors in another order. Transposes in
front of and behind the operator only reorder the axes, so they cost nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering.core.builder import INT64_MAX, Emitter, Size, Tensor
from onnx_spatial.lowering.core.gather_indices import MAX_INDEX_ENTRIES, Numbers, outer_sum
from onnx_spatial.lowering.core.padding import Pads, is_zero, pad
from onnx_spatial.lowering.core.strategy import Request
from onnx_spatial.lowering.windows import windows_and_pads
from onnx_spatial.operators import (
    BatchToSpace,
    ExtractPatches,
    Operator,
    Rearrange,
    ReorgYolo,
    SpaceToBatch,
)

Order = tuple[int, ...]
Cut = tuple[Size, Size] | None


@dataclass(frozen=True)
class Rearrangement:
    """Pad, split into factors, permute, merge, crop.

    Attributes:
        x: the data.
        pads: zeros around each axis of `x`; negative amounts cut off.
        sizes: of the factors.
        inputs: factors of each axis of the padded data, outermost first.
        outputs: factors of each axis of the output.
        crops: elements cut off each axis of the output in the end.
        element_types: ONNX element types that the data may have.
        signed: whether computed amounts of `pads` may be negative.
        cuts: (start, end) that each axis of `x` is cut to before it is padded, None for no cut.
        tail: last dims of an input of unknown rank, which `x` joins to one axis; None for a known rank.
        shape: dims of the output if these are not `outputs` merged and cropped.
        checks_division: whether the run must check that blocks divide the sizes that they split, by a
            Reshape to exact sizes.
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
    tail: ir.Value | None = None
    shape: tuple[Size, ...] = ()
    checks_division: bool = False

    @classmethod
    def of(cls, request: Request, emit: Emitter, x: Tensor | None = None) -> Rearrangement:
        """Describe a request; `x` replaces its data.

        Raises:
            ConversionError: it is no permutation of factors.
        """
        tail = None
        if x is None:
            x, tail = _data_of(request, emit)
        plain = _OF[request.call.kind](request, emit, x)
        return replace(plain, tail=tail)._with_transposes(request)

    @property
    def before(self) -> Order:
        """Factors in the order of the input, without those of size 1."""
        return tuple(f for axis in self.inputs for f in axis if self.sizes[f] != 1)

    @property
    def after(self) -> Order:
        """Factors in the order of the output, without those of size 1."""
        return tuple(f for axis in self.outputs for f in axis if self.sizes[f] != 1)

    def padded(self, emit: Emitter, value: npt.NDArray[np.generic] | None = None) -> Tensor:
        """Emit the cuts and the padding, with zeros or another value."""
        x = self.x
        cut = {axis: cut for axis, cut in enumerate(self.cuts) if cut is not None}
        if cut:
            dims = list(x.dims)
            for axis, (start, end) in cut.items():
                dims[axis] = emit.sub(end, start)
            starts, ends = zip(*cut.values(), strict=True)
            x = emit.slice(x, list(cut), starts, ends, dims)
        return pad(emit, x, self.pads, self.element_types, value, signed=self.signed)

    def size(self, emit: Emitter, factors: Iterable[int]) -> Size:
        """Return the size of factors together."""
        return emit.product([self.sizes[factor] for factor in factors])

    def finished(self, emit: Emitter, x: Tensor) -> ir.Value:
        """Emit the final Reshape and crop, and return the operator's output.

        Args:
            emit: collects the nodes.
            x: the factors in the order of the output, merged in any way.
        """
        if self.shape:
            return emit.reshape(x, self.shape).value
        whole = [self.size(emit, factors) for factors in self.outputs]
        x = emit.reshape(x, whole)
        cropped = [axis for axis, pair in enumerate(self.crops) if not is_zero(pair)]
        if cropped:
            starts, cuts = zip(*(self.crops[axis] for axis in cropped), strict=True)
            ends = [
                slice_end(emit, whole[axis], cut) for axis, cut in zip(cropped, cuts, strict=True)
            ]
            x = emit.slice(x, cropped, starts, ends, self.final(emit))
        if self.tail is None:
            return x.value
        return emit.reshape_exactly(x.value, [*x.dims[:-1], self.tail])

    def final(self, emit: Emitter) -> list[Size]:
        """Return the dims of the output."""
        whole = (self.size(emit, factors) for factors in self.outputs)
        return [
            emit.sub(emit.sub(d, begin), end)
            for d, (begin, end) in zip(whole, self.crops, strict=True)
        ]

    def offsets(self) -> list[Numbers] | None:
        """Return what each axis of the output adds to the place of an element; None if unknown."""
        sizes = {f: size for f in self.before if isinstance(size := self.sizes[f], int)}
        # A file may declare huge dims beside one of 0.
        if (
            len(sizes) < len(self.before)
            or math.prod(s or 1 for s in sizes.values()) > MAX_INDEX_ENTRIES
        ):
            return None
        strides, stride = {}, 1
        for factor in reversed(self.before):
            strides[factor] = np.arange(sizes[factor]) * stride
            stride *= sizes[factor]
        tables = []
        for factors, (begin, end) in zip(self.outputs, self.crops, strict=True):
            table = outer_sum(strides[factor] for factor in factors if factor in strides)
            if not isinstance(begin, int) or not isinstance(end, int):
                return None
            tables.append(table[begin : len(table) - end])
        return tables

    def _with_transposes(self, request: Request) -> Rearrangement:
        """Include `Request.before` and `after`."""
        r = self
        if request.before is not None:
            back = [request.before.index(axis) for axis in range(len(request.before))]
            r = replace(
                r,
                x=replace(r.x, dims=tuple(r.x.dims[j] for j in back)),
                inputs=tuple(r.inputs[j] for j in back),
                pads=tuple(r.pads[j] for j in back),
                cuts=tuple(r.cuts[j] for j in back) if r.cuts else (),
            )
        if request.after is not None:
            r = replace(
                r,
                outputs=tuple(r.outputs[j] for j in request.after),
                crops=tuple(r.crops[j] for j in request.after),
            )
        return r


def slice_end(emit: Emitter, size: Size, cut: Size) -> Size:
    """Return the end of a Slice that cuts this much, at most all, off the end of an axis."""
    if isinstance(cut, int) and not isinstance(size, int):
        return -cut if cut else INT64_MAX  # -0 would mean empty
    # A negative end would count from the end.
    return emit.max(emit.sub(size, cut), 0)


def _data_of(request: Request, emit: Emitter) -> tuple[Tensor, ir.Value | None]:
    """Return the data with dims in the operator's order, and the `Rearrangement.tail`."""
    if request.shape is not None or request.before is not None or request.after is not None:
        return request.operand(emit), None
    value, lead = request.inputs[0], request.call.axes
    assert value is not None
    shape = emit.shape_of(value)
    # One dim is assumed, which affects the estimated cost alone.
    tail = emit.slice(emit.tensor(shape, [lead + 1]), [0], [lead], [INT64_MAX], [1]).value
    (rest,) = emit.elements(emit.op("ReduceProd", tail, keepdims=1), [0], 1)
    dims = (*(emit.length(value, axis) for axis in range(lead)), rest)
    target: Sequence[Size] = dims if emit.opset >= 14 else [*[0] * lead, rest]
    flat = emit.reshape_exactly(value, target, [*[True] * lead, False])
    return emit.tensor(flat, dims, request.itemsize), tail


def _space_to_batch(request: Request, emit: Emitter, x: Tensor) -> Rearrangement:
    block, begins, ends = request.parameters(emit)
    blocked = len(block)
    rest = x.rank - 1 - blocked
    cells = [
        emit.quotient(emit.add(emit.add(d, begin), end), b)
        for d, begin, end, b in zip(x.dims[1:], begins, ends, block, strict=False)
    ]
    sizes, space, channels = _number_factors(x.dims[0], cells, block, x.dims[1 + blocked :])
    return Rearrangement(
        x,
        ((0, 0), *zip(begins, ends, strict=True), *[(0, 0)] * rest),
        sizes,
        ((0,), *space, *channels),
        ((*(b for _, b in space), 0), *((cell,) for cell, _ in space), *channels),
        ((0, 0),) * x.rank,
        request.element_types,
        checks_division=any(
            not isinstance(c, int) and b != 1 for c, b in zip(cells, block, strict=True)
        ),
    )


def _batch_to_space(request: Request, emit: Emitter, x: Tensor) -> Rearrangement:
    block, begins, ends = request.parameters(emit)
    blocked = len(block)
    factor = emit.product(block)
    batch = emit.quotient(x.dims[0], factor)
    crops = [(0, 0), *zip(begins, ends, strict=True), *[(0, 0)] * (x.rank - 1 - blocked)]
    rest = x.dims[1 + blocked :]
    sizes, space, channels = _number_factors(batch, x.dims[1 : 1 + blocked], block, rest)
    return Rearrangement(
        x,
        ((0, 0),) * x.rank,
        sizes,
        ((*(b for _, b in space), 0), *((cell,) for cell, _ in space), *channels),
        ((0,), *space, *channels),
        tuple(crops),
        request.element_types,
        checks_division=not isinstance(batch, int) and factor != 1,
    )


def _tiles_of(request: Request, emit: Emitter, x: Tensor) -> Rearrangement:
    op = request.call.operator
    assert isinstance(op, ExtractPatches)
    for k, s, r in zip(op.kernel, op.strides, op.rates, strict=True):
        if k != s or (k > 1 and r > 1):
            raise ConversionError(
                "the windows do not tile the image (stride differs from kernel, or rate > 1)"
            )
    counts, pads = windows_and_pads(emit, op, x)
    cuts: list[Cut] = [None] * x.rank
    for axis, k, count in zip(op.spatial_axes, op.kernel, counts, strict=True):
        size = emit.mul(count, k)
        if op.auto_pad == "valid" and k > 1 and x.dims[axis] != size:
            cuts[axis] = (0, size)
    channel = x.dims[op.channel_axis]
    sizes, space, channels = _number_factors(x.dims[0], counts, op.kernel, [channel])
    windows = tuple((window,) for window, _ in space)
    places = tuple(k for _, k in space)
    depth = (*places, *channels[0]) if op.major == "place" else (*channels[0], *places)
    last = op.layout == "channels_last"
    return Rearrangement(
        x,
        tuple(pads),
        sizes,
        ((0,), *space, *channels) if last else ((0,), *channels, *space),
        ((0,), *windows, depth) if last else ((0,), depth, *windows),
        ((0, 0),) * x.rank,
        request.element_types,
        signed=op.signed_pads,
        cuts=tuple(cuts),
    )


def _factors_of_rearrange(request: Request, emit: Emitter, x: Tensor) -> Rearrangement:
    op = request.call.operator
    assert isinstance(op, Rearrange)
    sizes = list[Size](op.sizes)
    divides = False
    for axis, dim in enumerate(x.dims):
        factor, known = op.unknown(axis), op.multiple(axis)
        if factor is not None:
            sizes[factor] = emit.quotient(dim, known)
            divides |= known > 1 and not isinstance(dim, int)
    return Rearrangement(
        x,
        ((0, 0),) * x.rank,
        tuple(sizes),
        op.inputs,
        op.outputs,
        ((0, 0),) * len(op.outputs),
        request.element_types,
        checks_division=divides,
    )


def _factors_of_reorg(request: Request, emit: Emitter, x: Tensor) -> Rearrangement:
    op, (batch, channels, height, width) = request.call.operator, x.dims
    assert isinstance(op, ReorgYolo)
    s = op.stride
    if not isinstance(channels, int) or channels % s**2:
        raise ConversionError("the cells do not divide the channels")
    sizes = (batch, emit.mul(height, channels // (s * s)), s, width, s)
    # If the stride does not divide the sizes of a run, the Reshape to these fails.
    image = [emit.quotient(size, s) for size in (height, width)]
    return Rearrangement(
        x,
        ((0, 0),) * x.rank,
        sizes,
        tuple((factor,) for factor in range(5)),
        tuple((factor,) for factor in (0, 2, 4, 1, 3)),
        ((0, 0),) * 5,
        request.element_types,
        shape=(batch, channels * s * s, *image),
    )


#: The operators that are permutations of factors.
_OF: dict[type[Operator], Callable[[Request, Emitter, Tensor], Rearrangement]] = {
    SpaceToBatch: _space_to_batch,
    BatchToSpace: _batch_to_space,
    ExtractPatches: _tiles_of,
    Rearrange: _factors_of_rearrange,
    ReorgYolo: _factors_of_reorg,
}


def _number_factors(
    batch: Size, cells: Sequence[Size], block: Sequence[Size], rest: Sequence[Size]
) -> tuple[tuple[Size, ...], list[Order], list[Order]]:
    """Return all sizes, the two factors of each blocked axis, the factor of each other axis."""
    sizes = [batch]
    space: list[Order] = []
    for cell, b in zip(cells, block, strict=False):
        space.append((len(sizes), len(sizes) + 1))
        sizes += [cell, b]
    channels: list[Order] = [(len(sizes) + i,) for i in range(len(rest))]
    return (*sizes, *rest), space, channels
