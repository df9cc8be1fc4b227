"""Lower overlapping patches plane by plane: dense Slices along the last axis, then whole rows.

    [N, C, H, W] -> kw Slices [N*C*H, ow] -> Concat [kw*N*C*H, ow] -> one Gather of rows
    channels first   rows in the order N, kh, kw, C, oh
    channels last    rows in the order kh, kw, C, N, oh; then [kh*kw*C, N*oh*ow] -> T[1,0]

With a stride s the last axis is split into its s phases first, so that the taps are dense: by a
Transpose and a Reshape that joins the phases with the rows, or by Split for a single row, where
onnxruntime's optimizer would push the Transpose through the Slices. Channels-last data is transposed
to planes first: it is small compared to the output.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor, same
from onnx_spatial.lowering.core.gather_indices import Term, index
from onnx_spatial.lowering.core.padding import pad
from onnx_spatial.lowering.core.strategy import Request, Strategy
from onnx_spatial.lowering.patches import windows
from onnx_spatial.lowering.patches.windows import Windows
from onnx_spatial.lowering.permutation.stage_plan import MAX_PARTS
from onnx_spatial.lowering.slices import Place, window_slice
from onnx_spatial.operators import ExtractPatches

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
        rows = _rows(op, emit, w, taps, channels_last=last)
        depth = emit.product([*op.kernel, w.channels])
        batch = w.x.dims[0]
        if not last:
            return emit.reshape(rows, [batch, depth, *w.counts]).value
        flat = emit.reshape(rows, [depth, emit.product([batch, *w.counts])])
        return emit.reshape(emit.transpose(flat, [1, 0]), [batch, *w.counts, depth]).value


def _splits(op: ExtractPatches) -> bool:
    """Tell whether the last axis is split into the phases of its stride."""
    return op.kernel[-1] > 1 and 1 < op.strides[-1] <= MAX_PARTS


def _taps(op: ExtractPatches, request: Request, emit: Emitter, w: Windows) -> Tensor:
    """Return [positions in the window along the last axis * rows, windows along the last axis]."""
    last = len(op.kernel) - 1
    kernel, stride, rate = op.kernel[last], op.strides[last], op.rates[last]
    size, count = w.size(last), w.counts[last]
    rows = emit.product(w.x.dims[:-1])
    if not _splits(op):
        x = emit.reshape(w.x, [rows, size])
        parts = [
            window_slice(emit, x, {1: Place.of(op, last, i, count)}, [rows, count])
            for i in range(kernel)
        ]
        return emit.concat(parts, 0)
    # [rows * cells, phases]: tap i is cells of phase i * rate % stride
    if isinstance(size, int) and isinstance(count, int):
        cells: Size = max(-(-((count - 1) * stride + (kernel - 1) * rate + 1) // stride), 0)
        more = emit.sub(emit.mul(cells, stride), size)
        x = emit.reshape(w.x, [rows, size])
        if isinstance(more, int) and more < 0:
            x = emit.slice(x, [1], [0], [emit.mul(cells, stride)], [rows, emit.mul(cells, stride)])
        else:
            x = pad(emit, x, [(0, 0), (0, more)], request.element_types)
        left = 0
    else:
        x, left = w.x, w.spare
        cells = emit.add(count, left)
    taps = []
    for i in range(kernel):
        start, phase = divmod(i * rate, stride)
        taps.append((phase, Place(start, 1, count, left - start)))
    return _of_phases(emit, x, [rows, cells], stride, taps)


def _of_phases(
    emit: Emitter, x: Tensor, dims: list[Size], stride: int, taps: Sequence[tuple[int, Place]]
) -> Tensor:
    """Split rows of cells into the phases of each cell; return the taps, each in one phase, joined."""
    rows, cells = dims
    x = emit.reshape(x, [emit.mul(rows, cells), stride])
    if x.itemsize not in _FAST or same(rows, 1):
        split = [emit.reshape(phase, dims) for phase in emit.split(x, 1, stride)]
        parts = [
            window_slice(emit, split[phase], {1: tap}, [rows, tap.count]) for phase, tap in taps
        ]
        return emit.concat(parts, 0)
    moved = emit.transpose(x, [1, 0])
    parts = []
    if isinstance(rows, int):
        joined = emit.reshape(moved, [stride * rows, cells])
        for phase, tap in taps:
            window = {0: Place(phase * rows, 1, rows, 0), 1: tap}
            parts.append(window_slice(emit, joined, window, [rows, tap.count]))
        return emit.concat(parts, 0)
    planes = emit.reshape(moved, [stride, rows, cells])
    for phase, tap in taps:
        window = {0: Place(phase, 1, 1, 0), 2: tap}
        parts.append(window_slice(emit, planes, window, [1, rows, tap.count]))
    count = taps[0][1].count
    return emit.reshape(emit.concat(parts, 0), [emit.mul(rows, len(taps)), count])


def _rows(
    op: ExtractPatches, emit: Emitter, w: Windows, taps: Tensor, *, channels_last: bool
) -> Tensor:
    """Return the rows of the taps in the order of the output."""
    batch, channels = w.x.dims[0], w.channels
    outside, inside, stride = w.row_terms(emit, op, 1, len(op.kernel) - 1)
    channel = Term(channels, stride)
    stride = emit.mul(stride, channels)
    image = Term(batch, stride)
    stride = emit.mul(stride, batch)
    inside.append(Term(np.arange(op.kernel[-1], dtype=np.int64), stride))
    parts = [*inside, channel] if op.major == "place" else [channel, *inside]
    order = [*parts, image, *outside] if channels_last else [image, *parts, *outside]
    if _in_order(order, taps.dims[0]):
        return taps
    value, dims = index(emit, order)
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
