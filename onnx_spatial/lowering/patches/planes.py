"""Lower overlapping patches plane by plane: dense Slices along the last axis, then whole rows.

    [N, C, H, W] -> kw Slices [N*C*H, ow] -> Concat [kw*N*C*H, ow] -> one Gather of rows
    channels first   rows in the order N, kh, kw, C, oh
    channels last    rows in the order kh, kw, C, N, oh; then [kh*kw*C, N*oh*ow] -> T[1,0]
                     or in the order N, oh, kh, kw, C; then [N*oh, kh*kw*C, ow] -> T[0,2,1]

The second order is for rows that would compete for the lines of the cache, as those of images whose
sides are powers of two. With several threads each of its small Transposes is a task of its own.

With a stride s the last axis is split into its s phases first, so that the taps are dense: by a
Transpose and a Reshape that joins the phases with the rows, or by Split for a single row, where
onnxruntime's optimizer would push the Transpose through the Slices. Channels-last data is transposed
to planes first: it is small compared to the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import onnx_ir as ir

from onnx_spatial.lowering.core import cost_model
from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor, same
from onnx_spatial.lowering.core.gather_indices import Term, index
from onnx_spatial.lowering.core.padding import pad
from onnx_spatial.lowering.core.strategy import Request, Strategy
from onnx_spatial.lowering.patches import windows
from onnx_spatial.lowering.patches.windows import Windows
from onnx_spatial.lowering.permutation.stage_plan import MAX_PARTS
from onnx_spatial.lowering.slices import window_slice
from onnx_spatial.operators import ExtractPatches

#: The most time that a Transpose for each row of windows takes, as a share of that of one for all.
_LESS = 0.9

#: Bytes of the elements that onnxruntime transposes in tiles.
_FAST = (1, 2, 4)


class Planes(Strategy):
    """Dense Slices along the last axis and a Gather of rows along the others."""

    name = "planes"
    accepts = (ExtractPatches,)
    majors = frozenset({"place", "channel"})

    def absorbs(self, request: Request) -> bool:
        """Include Transposes if the output behind them has one of the layouts."""
        return windows.layout_behind(request) is not None

    def refuse(self, request: Request) -> str | None:
        """Refuse large windows and strings."""
        return windows.refusal(request, gathers=True)

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Emit the nodes and return the operator's output."""
        op = windows.patches(request)
        phases = op.strides[-1] if _splits(op) else 1
        w = Windows.of(request, emit, channels_last=False, phases=phases)
        taps = _taps(op, request, emit, w)
        last = windows.layout_behind(request) == "channels_last"
        depth = emit.product([*op.kernel, w.channels])
        batch = w.x.dims[0]
        if not last:
            rows = _rows(op, emit, w, taps, "places inside")
            return emit.reshape(rows, [batch, depth, *w.counts]).value
        outer, inner = emit.product([batch, *w.counts[:-1]]), w.counts[-1]
        sizes = (emit.guess(outer), emit.guess(depth), emit.guess(inner))
        if _turns_row_by_row(*sizes, w.x.itemsize):
            rows = _rows(op, emit, w, taps, "places behind")
            turned = emit.transpose(emit.reshape(rows, [outer, depth, inner]), [0, 2, 1])
        else:
            rows = _rows(op, emit, w, taps, "places ahead")
            flat = emit.reshape(rows, [depth, emit.mul(outer, inner)])
            turned = emit.transpose(flat, [1, 0])
        return emit.reshape(turned, [batch, *w.counts, depth]).value


def _turns_row_by_row(rows: int, depth: int, windows: int, itemsize: int) -> bool:
    """Tell whether a Transpose for each row of windows is faster than one for all."""
    each = cost_model.transpose((rows, depth, windows), (0, 2, 1), itemsize)
    joined = cost_model.transpose((depth, rows * windows), (1, 0), itemsize)
    return each.nanoseconds < _LESS * joined.nanoseconds


def _splits(op: ExtractPatches) -> bool:
    """Tell whether the last axis is split into the phases of its stride."""
    return op.kernel[-1] > 1 and 1 < op.strides[-1] <= MAX_PARTS


def _taps(op: ExtractPatches, request: Request, emit: Emitter, w: Windows) -> Tensor:
    """Return [positions in the window along the last axis * rows, windows along the last axis]."""
    kernel, stride, rate = op.kernel[-1], op.strides[-1], op.rates[-1]
    size, count = w.size(len(op.kernel) - 1), w.counts[-1]
    rows = emit.product(w.x.dims[:-1])
    x = emit.reshape(w.x, [rows, size])
    if not _splits(op):
        parts = [
            window_slice(emit, x, {1: (rate * i, stride, count)}, [rows, count])
            for i in range(kernel)
        ]
        return emit.concat(parts, 0)
    # [rows * cells, phases]: tap i is cells of phase i * rate % stride
    if isinstance(size, int) and isinstance(count, int):
        cells: Size = max(-(-((count - 1) * stride + (kernel - 1) * rate + 1) // stride), 0)
        more = emit.sub(emit.mul(cells, stride), size)
        if isinstance(more, int) and more < 0:
            x = emit.slice(x, [1], [0], [emit.mul(cells, stride)], [rows, emit.mul(cells, stride)])
        else:
            x = pad(emit, x, [(0, 0), (0, more)], request.element_types)
    else:
        cells = emit.div(size, stride)
    phases = _phases(emit, x, cells, stride)
    parts = []
    for i in range(kernel):
        phase, row = phases[i * rate % stride]
        window = {0: (row, 1, rows), 1: (i * rate // stride, 1, count)}
        parts.append(window_slice(emit, phase, window, [rows, count]))
    return emit.concat(parts, 0)


def _phases(emit: Emitter, x: Tensor, cells: Size, stride: int) -> list[tuple[Tensor, int]]:
    """Return a tensor of rows of cells, and the first of its rows, for each phase of `x`."""
    rows = x.dims[0]
    flat = emit.mul(rows, cells)
    x = emit.reshape(x, [flat, stride])
    if isinstance(rows, int) and rows > 1 and x.itemsize in _FAST:
        joined = emit.reshape(emit.transpose(x, [1, 0]), [stride * rows, cells])
        return [(joined, phase * rows) for phase in range(stride)]
    return [(emit.reshape(phase, [rows, cells]), 0) for phase in emit.split(x, 1, stride)]


def _rows(
    op: ExtractPatches,
    emit: Emitter,
    w: Windows,
    taps: Tensor,
    order: Literal["places ahead", "places inside", "places behind"],
) -> Tensor:
    """Return the rows of the taps with the places ahead of, between or behind images and windows."""
    batch, channels = w.x.dims[0], w.channels
    outside, inside, stride = w.row_terms(emit, op, 1, len(op.kernel) - 1)
    channel = Term(channels, stride)
    stride = emit.mul(stride, channels)
    image = Term(batch, stride)
    stride = emit.mul(stride, batch)
    inside.append(Term(np.arange(op.kernel[-1], dtype=np.int64), stride))
    parts = [*inside, channel] if op.major == "place" else [channel, *inside]
    orders = {
        "places ahead": [*parts, image, *outside],
        "places inside": [image, *parts, *outside],
        "places behind": [image, *outside, *parts],
    }
    terms = orders[order]
    if _in_order(terms, taps.dims[0]):
        return taps
    value, dims = index(emit, terms)
    return emit.gather(taps, value, dims, 0)


def _in_order(order: Sequence[Term], rows: Size) -> bool:
    """Tell whether the index is 0, 1, 2, ... up to the last row, which changes nothing."""
    stride = 1
    for term in reversed(order):
        count = term.count
        if not isinstance(count, int) or not term.known:
            return False
        if count == 1 and not term.offsets().any():
            continue
        if term.offsets().tolist() != [i * stride for i in range(count)]:
            return False
        stride *= count
    return same(stride, rows)
