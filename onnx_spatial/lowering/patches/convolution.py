"""Lower patches to a Conv with one-hot weights: exact for finite data only, so it must be declared.

    [N, C, H, W] -> [N*C, 1, H, W] -> Conv [N*C, places, oh, ow] -> the layout of the output

Each output channel has one weight of 1 and copies one place of the window. The sum with 0 times all
others spreads a NaN or an infinity over the window, and makes 0.0 of -0.0. A sequence is an image of
height 1: onnxruntime's convolution of images is the faster one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering.core import cost_model
from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor
from onnx_spatial.lowering.core.strategy import Request, Strategy
from onnx_spatial.lowering.patches import windows
from onnx_spatial.lowering.patches.window_border import Border
from onnx_spatial.operators import ExtractPatches

#: Spatial axes of the Conv.
_AXES = 2

#: The most places of a window: the weight has the square of it.
_MOST_PLACES = 64


class Convolution(Strategy):
    """A Conv with one-hot weights on each channel."""

    name = "convolution"
    accepts = (ExtractPatches,)
    majors = frozenset({"place", "channel"})

    def refuse(self, request: Request) -> str | None:
        """Refuse data that may be infinite, other types than float32, volumes, and large windows."""
        op = windows.patches(request)
        if not request.finite:
            return "the data may hold NaN, infinities or -0.0 (--finite says that it does not)"
        if request.element_types != {TensorProto.FLOAT}:
            return "onnxruntime has a fast convolution of float32 only"
        if len(op.kernel) > _AXES:
            return "onnxruntime has no fast convolution of volumes"
        if not 1 < math.prod(op.kernel) <= _MOST_PLACES:
            return f"the window has one place, or more than {_MOST_PLACES}"
        return None

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Emit the nodes and return the operator's output."""
        op, x = windows.patches(request), request.data(emit)
        batch, channels = x.dims[0], x.dims[op.channel_axis]
        counts = [op.windows(emit, n, x.dims[axis])[0] for n, axis in enumerate(op.spatial_axes)]
        last, places = op.layout == "channels_last", math.prod(op.kernel)
        x = emit.permute(x, [0, op.channel_axis, *op.spatial_axes])
        filled = [1] * (_AXES - len(counts))
        image = emit.reshape(x, [emit.mul(batch, channels), 1, *filled, *x.dims[2:]])
        y = _convolved(op, emit, image, [*filled, *counts], to_last=last and channels == 1)
        if channels != 1:
            y = emit.reshape(y, [batch, channels, places, *counts])
            parts = [2, 1] if op.major == "place" else [1, 2]
            behind = range(3, y.rank)
            y = emit.permute(y, [0, *behind, *parts] if last else [0, *parts, *behind])
        depth = emit.mul(channels, places)
        return emit.reshape(y, [batch, *counts, depth] if last else [batch, depth, *counts]).value


def _convolved(
    op: ExtractPatches, emit: Emitter, image: Tensor, counts: Sequence[Size], *, to_last: bool
) -> Tensor:
    """Return the windows of [images, 1, H, W] as [images, places, windows along H, along W].

    With `to_last` the places come last.
    """
    filled = (1,) * (_AXES - len(op.kernel))
    op = replace(
        op,
        kernel=filled + op.kernel,
        strides=filled + op.strides,
        rates=filled + op.rates,
        layout="channels_first",
        major="place",
    )
    known = [size if isinstance(size, int) else None for size in image.dims]
    unknown = [number for number, size in enumerate(known[2:]) if size is None]
    border = Border.of(op, known, unknown, emit.opset)
    if isinstance(border, str):
        raise ConversionError(border)
    places = math.prod(op.kernel)
    dims = [image.dims[0], places, *counts]
    for work in border.works([*map(emit.guess, image.dims)], [*map(emit.guess, dims)], 4):
        emit.risk(work)
    joined = to_last and not any(border.more)
    value = emit.op(
        "Conv",
        border.padded(image.value, emit),
        emit.constant(np.eye(places, dtype=np.float32).reshape(places, 1, *op.kernel), "one_hot"),
        kernel_shape=op.kernel,
        strides=op.strides,
        dilations=op.rates,
        work=lambda: cost_model.convolution(emit.elements_in(dims) // places, places, last=joined),
        **border.attributes,
    )
    value = border.cut(value, emit)
    result = emit.tensor(value, dims, image.itemsize)
    if not joined:
        return emit.transpose(result, [0, 2, 3, 1]) if to_last else result
    value = emit.op(
        "Transpose", value, perm=[0, 2, 3, 1], work=lambda: cost_model.Work("small", {})
    )
    return emit.tensor(value, [dims[0], *counts, places], image.itemsize)
