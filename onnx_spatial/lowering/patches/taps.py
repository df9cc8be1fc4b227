"""Lower overlapping patches of channels-last data tap by tap, in runs of channels.

    [N, H, W, C] -> kw Slices -> Concat on C [N*H*ow, kw*C]        the taps along the last axis
    "taps"        -> one Gather of rows of kw*C in the order N, oh, ow, kh
    "tap-concat"  -> kh Slices -> Concat [N*oh*ow, kh*kw*C]        the taps along the other axes

Each axis makes the runs longer.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor
from onnx_spatial.lowering.core.gather_indices import Term, index
from onnx_spatial.lowering.core.strategy import Request, Strategy
from onnx_spatial.lowering.patches import windows
from onnx_spatial.lowering.patches.windows import Windows
from onnx_spatial.lowering.slices import Place, window_slice
from onnx_spatial.operators import ExtractPatches


class TapConcat(Strategy):
    """Slices along every axis, the last one first."""

    name = "tap-concat"
    accepts = (ExtractPatches,)
    _gathers = False

    def absorbs(self, request: Request) -> bool:
        """Include Transposes if the output behind them is channels last."""
        return windows.layout_behind(request) == "channels_last"

    def refuse(self, request: Request) -> str | None:
        """Refuse an output that is not channels last, large windows, and strings in a Gather."""
        reason = windows.refusal(request, gathers=self._gathers)
        if reason is None and not self.absorbs(request):
            return "the channel is not the last axis"
        return reason

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Emit the nodes and return the operator's output."""
        op = windows.patches(request)
        w = Windows.of(request, emit, channels_last=True)
        x = w.x
        for number in reversed(range(len(op.kernel))):
            x = _taps_along(op, emit, w, x, number)
        return x.value


class Taps(TapConcat):
    """Slices along the last axis and a Gather of rows along the others."""

    name = "taps"
    _gathers = True

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Emit the nodes and return the operator's output."""
        op = windows.patches(request)
        w = Windows.of(request, emit, channels_last=True)
        last = len(op.kernel) - 1
        x = _taps_along(op, emit, w, w.x, last)
        batch, run = w.x.dims[0], emit.mul(w.channels, op.kernel[-1])
        if len(op.kernel) > 1:
            outside, inside, image = w.row_terms(emit, op, w.counts[last], last)
            terms = [*outside, Term(w.counts[last], 1), *inside]
            lead = [] if isinstance(batch, int) else [batch]  # a Gather for each image by itself
            if not lead:
                terms.insert(0, Term(batch, image))
            rows = emit.product([image] if lead else [batch, image])
            x = emit.gather(emit.reshape(x, [*lead, rows, run]), index(emit, terms), len(lead))
        depth = emit.product([*op.kernel, w.channels])
        return emit.reshape(x, [batch, *w.counts, depth]).value


def _taps_along(op: ExtractPatches, emit: Emitter, w: Windows, x: Tensor, number: int) -> Tensor:
    """Emit the windows along spatial axis number `number`, their positions joined to the channel."""
    axis = 1 + number
    dims: list[Size] = [*x.dims]
    dims[axis] = w.counts[number]
    parts = [
        window_slice(emit, x, {axis: Place.of(op, number, i, dims[axis])}, dims)
        for i in range(op.kernel[number])
    ]
    return emit.concat(parts, x.rank - 1)
