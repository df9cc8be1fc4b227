"""Overlapping patches of channels-last data tap by tap, in runs of channels.

    [N, H, W, C] -> kw Slices -> Concat on C [N*H*ow, kw*C]        the taps along the last axis
    "taps"        -> one Gather of rows of kw*C in the order N, oh, ow, kh
    "tap-concat"  -> kh Slices -> Concat [N*oh*ow, kh*kw*C]        the taps along the other axes

Runs get longer with every axis that is done.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor
from onnx_spatial.lowering.core.gather_indices import Term, index
from onnx_spatial.lowering.core.strategy import Request
from onnx_spatial.lowering.patches import windows
from onnx_spatial.lowering.patches.windows import Windows
from onnx_spatial.lowering.slices import window_slice
from onnx_spatial.operators import ExtractPatches


class Taps:
    """Slices along the last axis and a Gather of rows along the others."""

    name = "taps"
    accepts = (ExtractPatches,)

    def absorbs(self, request: Request) -> bool:
        """A Transpose in front decides the layout of the data; one behind must give this layout."""
        return _gives_channels_last(request)

    def refuse(self, request: Request) -> str | None:
        """No strings: onnxruntime's Gather takes one string of each row."""
        if TensorProto.STRING in request.element_types:
            return "onnxruntime's Gather is wrong for strings"
        return _refusal(request)

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Write it."""
        op = windows.patches(request)
        w = Windows.of(request, emit, channels_last=True)
        x = along(op, emit, w, w.x, len(op.kernel) - 1)
        batch, run = w.x.dims[0], emit.mul(w.channels, op.kernel[-1])
        if len(op.kernel) > 1:
            rows = emit.product([batch, *x.dims[1:-1]])
            value, dims = index(emit, _terms(op, emit, w))
            x = emit.gather(emit.reshape(x, [rows, run]), value, dims, 0)
        depth = emit.product([*op.kernel, w.channels])
        return emit.reshape(x, [batch, *w.counts, depth]).value


class TapConcat:
    """Slices along every axis, the last one first."""

    name = "tap-concat"
    accepts = (ExtractPatches,)

    def absorbs(self, request: Request) -> bool:
        """A Transpose in front decides the layout of the data; one behind must give this layout."""
        return _gives_channels_last(request)

    def refuse(self, request: Request) -> str | None:
        """Only channels that come last."""
        return _refusal(request)

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Write it."""
        op = windows.patches(request)
        w = Windows.of(request, emit, channels_last=True)
        x = w.x
        for number in reversed(range(len(op.kernel))):
            x = along(op, emit, w, x, number)
        return x.value


def along(op: ExtractPatches, emit: Emitter, w: Windows, x: Tensor, number: int) -> Tensor:
    """The windows along spatial axis number `number`, their places joined in front of the channel."""
    axis = 1 + number
    dims: list[Size] = [*x.dims]
    dims[axis] = w.counts[number]
    parts = [
        window_slice(emit, x, {axis: (op.rates[number] * i, op.strides[number], dims[axis])}, dims)
        for i in range(op.kernel[number])
    ]
    return emit.concat(parts, x.rank - 1)


def _terms(op: ExtractPatches, emit: Emitter, w: Windows) -> list[Term]:
    """Rows of [N, S.., windows along the last axis] in the order of the output."""
    last = len(op.kernel) - 1
    stride: Size = w.counts[last]
    outside, inside = [Term(w.counts[last], 1)], list[Term]()
    for number in reversed(range(last)):
        places = np.arange(op.kernel[number], dtype=np.int64) * op.rates[number]
        outside.insert(0, Term(w.counts[number], stride, op.strides[number]))
        inside.insert(0, Term(places, stride))
        stride = emit.mul(stride, w.size(number))
    return [Term(w.x.dims[0], stride), *outside, *inside]


def _gives_channels_last(request: Request) -> bool:
    return windows.layout_behind(request) == "channels_last"


def _refusal(request: Request) -> str | None:
    reason = windows.refusal(request)
    if reason is None and not _gives_channels_last(request):
        return "the channel is not the last axis"
    return reason
