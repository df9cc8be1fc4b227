"""What the strategies for overlapping patches share: the data padded, and its windows."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor
from onnx_spatial.lowering.core.padding import pad
from onnx_spatial.lowering.core.sampling import sampled
from onnx_spatial.lowering.core.strategy import Request
from onnx_spatial.operators import ExtractPatches

#: A window that is taken apart has this many places along one axis at most.
MAX_TAPS = 64


@dataclass(frozen=True)
class Windows:
    """The data of a patch operator with its zeros around it.

    Attributes:
        x: [N, spatial.., C] or [N, C, spatial..], padded.
        counts: windows along each spatial axis.
        channels_last: which of the two.
    """

    x: Tensor
    counts: tuple[Size, ...]
    channels_last: bool

    @classmethod
    def of(cls, request: Request, emit: Emitter, *, channels_last: bool) -> Windows:
        """Pad the data and bring it into this layout, the cheaper way round."""
        op = patches(request)
        x = request.operand(emit)
        axes = sampled(emit, op, x)
        around: list[tuple[Size, Size]] = [(0, 0)] * x.rank
        for axis, sample in zip(op.spatial_axes, axes, strict=True):
            around[axis] = (sample.begin, sample.end)
        # axis of the value for each axis of the operator, and back
        perm = list(request.before or range(x.rank))
        given = [perm.index(axis) for axis in range(x.rank)]
        x = emit.tensor(x.value, [x.dims[axis] for axis in given], x.itemsize)
        x = pad(
            emit,
            x,
            [around[axis] for axis in given],
            request.element_types,
            signed=op.auto_pad == "same_unclamped",
        )
        wanted = [0, *op.spatial_axes, op.channel_axis]
        if not channels_last:
            wanted = [0, op.channel_axis, *op.spatial_axes]
        x = emit.permute(x, [perm[axis] for axis in wanted])
        return cls(x, tuple(axis.count for axis in axes), channels_last)

    def size(self, number: int) -> Size:
        """Of spatial axis number `number`."""
        return self.x.dims[number + (1 if self.channels_last else 2)]

    @property
    def channels(self) -> Size:
        """C"""
        return self.x.dims[-1 if self.channels_last else 1]


def patches(request: Request) -> ExtractPatches:
    """The operator of a request that asks for patches."""
    operator = request.call.operator
    assert isinstance(operator, ExtractPatches)
    return operator


def refusal(request: Request) -> str | None:
    """Why patches cannot be told by their windows; None if they can."""
    if max(patches(request).kernel) > MAX_TAPS:
        return f"the window has more than {MAX_TAPS} places along one axis"
    return None


def layout_behind(request: Request) -> str | None:
    """Layout of what the Transpose behind the operator gives, None if it is neither."""
    op = patches(request)
    if request.after is None:
        return op.layout
    last = [0, *op.spatial_axes, op.channel_axis]
    first = [0, op.channel_axis, *op.spatial_axes]
    if list(request.after) == last:
        return "channels_last"
    return "channels_first" if list(request.after) == first else None
