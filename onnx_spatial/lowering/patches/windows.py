"""Pad the data of overlapping patches, and describe its windows; shared by several strategies."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import TensorProto

from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor
from onnx_spatial.lowering.core.gather_indices import Term
from onnx_spatial.lowering.core.padding import has_pad_kernel, pad
from onnx_spatial.lowering.core.sampling import windows_and_pads
from onnx_spatial.lowering.core.strategy import Request
from onnx_spatial.operators import ExtractPatches, Layout

#: The most positions in a window along one axis that strategies emit Slices for.
MAX_TAPS = 64


@dataclass(frozen=True)
class Windows:
    """The padded data of a patch operator.

    Attributes:
        x: [N, spatial.., C] or [N, C, spatial..], padded.
        counts: windows along each spatial axis.
        channels_last: which of the two layouts.
        spare: cells of one stride along the last axis beyond the number of windows, if its size is
            unknown and it is padded to whole cells.
    """

    x: Tensor
    counts: tuple[Size, ...]
    channels_last: bool
    spare: int = 0

    @classmethod
    def of(
        cls, request: Request, emit: Emitter, *, channels_last: bool, phases: int = 1
    ) -> Windows:
        """Pad the data and transpose it to the layout.

        Args:
            request: the patches.
            emit: collects the nodes.
            channels_last: the layout.
            phases: the stride of the last spatial axis, if that is padded to whole cells.
        """
        op = patches(request)
        x = request.operand(emit)
        counts, pads = windows_and_pads(emit, op, x)
        # axis of the value for each axis of the operator, and back
        perm = list(request.before or range(x.rank))
        back = [perm.index(axis) for axis in range(x.rank)]
        last, spare = op.spatial_axes[-1], 0
        if phases > 1 and not isinstance(x.dims[last], int):
            spare = (op.extent(len(counts) - 1) - 1) // phases
            cuts = has_pad_kernel(request.element_types, emit.opset) and back[-1] == last
            if op.auto_pad == "valid" and not cuts:
                spare += (
                    1  # so that nothing is cut off: a Pad does that fast on the last axis alone
                )
            length = emit.mul(emit.add(counts[-1], spare), phases)
            begin, _ = pads[last]
            pads[last] = (begin, emit.sub(emit.sub(length, x.dims[last]), begin))
        x = emit.tensor(x.value, [x.dims[axis] for axis in back], x.itemsize)
        pads = [pads[axis] for axis in back]
        x = pad(emit, x, pads, request.element_types, signed=op.signed_pads)
        axes = _axes(op, "channels_last" if channels_last else "channels_first")
        x = emit.permute(x, [perm[axis] for axis in axes])
        return cls(x, tuple(counts), channels_last, spare)

    def size(self, number: int) -> Size:
        """Return the size of spatial axis number `number`."""
        return self.x.dims[number + (1 if self.channels_last else 2)]

    @property
    def channels(self) -> Size:
        """Number of channels."""
        return self.x.dims[-1 if self.channels_last else 1]

    def row_terms(
        self, emit: Emitter, op: ExtractPatches, stride: Size, axes: int
    ) -> tuple[list[Term], list[Term], Size]:
        """Describe the rows of the first spatial axes.

        Args:
            emit: collects the nodes.
            op: the operator.
            stride: rows from one entry of the innermost of these axes to the next.
            axes: number of these axes.

        Returns:
            A term for the windows along each axis, one for the positions in the window along each that
            has several, and the number of rows of one channel.
        """
        outside: list[Term] = []
        inside: list[Term] = []
        for number in reversed(range(axes)):
            outside.insert(0, Term(self.counts[number], stride, op.strides[number]))
            if op.kernel[number] > 1:
                inside.insert(0, Term(op.kernel[number], stride, op.rates[number]))
            stride = emit.mul(stride, self.size(number))
        return outside, inside, stride


def patches(request: Request) -> ExtractPatches:
    """Return the operator of a request for patches."""
    operator = request.call.operator
    assert isinstance(operator, ExtractPatches)
    return operator


def computes_padding(op: ExtractPatches) -> bool:
    """Tell whether the padding depends on the size of the image: such lowerings are hard to prove."""
    return op.auto_pad != "valid" and max(op.strides) > 1


def refusal(request: Request, *, gathers: bool) -> str | None:
    """Return why patches cannot be lowered by `Windows` (and a Gather); None if they can."""
    if gathers and TensorProto.STRING in request.element_types:
        return "onnxruntime's Gather is wrong for strings"  # it takes one string of each row
    if max(patches(request).kernel) > MAX_TAPS:
        return f"the window has more than {MAX_TAPS} places along one axis"
    return None


def layout_behind(request: Request) -> Layout | None:
    """Return the layout of the output behind `Request.after`, None if it is neither."""
    op = patches(request)
    if request.after is None:
        return op.layout
    layouts: tuple[Layout, ...] = ("channels_last", "channels_first")
    return next((layout for layout in layouts if list(request.after) == _axes(op, layout)), None)


def _axes(op: ExtractPatches, layout: Layout) -> list[int]:
    """Return the operator's axes in the order of a layout."""
    if layout == "channels_last":
        return [0, *op.spatial_axes, op.channel_axis]
    return [0, op.channel_axis, *op.spatial_axes]
