"""A convolution on a value in blocks is a dilated one on the value itself.

    Conv(SpaceToBatch(u, D), dilations d, pads p) = SpaceToBatch(Conv(u, dilations D d, pads D p), D)

with stride 1 along the axes that are split; an axis that is only padded (block 1) may have any stride.
The pads P of SpaceToBatch and the crops Q of BatchToSpace go into its own pads: P + D p - Q, or
P + p - s Q for a stride s.

The same holds for ConvTranspose with stride 1: it is a Conv with the flipped kernel and pads r - p,
where r = (kernel size - 1) * dilation, and that is how its pads are counted here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnx_spatial.errors import OperatorError
from onnx_spatial.fusion.dilated_conv.amounts import (
    ZERO,
    Amount,
    Bounds,
    Pairs,
    number,
)
from onnx_spatial.fusion.dilated_conv.operators import Blocked, Border
from onnx_spatial.fusion.graph_view import NodeView
from onnx_spatial.fusion.rule import Reason
from onnx_spatial.operators import AutoPad, ExtractPatches

#: Convolutions, with the index of the input that holds the kernel.
KERNELS = {"Conv": 1, "ConvInteger": 1, "ConvTranspose": 1, "QLinearConv": 3}

#: Values of auto_pad that depend on the size of the input, as `ExtractPatches` calls them.
_SAME: dict[object, AutoPad] = {"SAME_UPPER": "same_upper", "SAME_LOWER": "same_lower"}


@dataclass(frozen=True)
class Axis:
    """A spatial axis of a convolution.

    Attributes:
        stride, dilation: along it.
        pads: at its two ends.
        reach: (kernel size - 1) * dilation; None if unknown.
    """

    stride: int
    dilation: int
    pads: tuple[int, int]
    reach: int | None

    def without_blocks(self, block: int) -> Axis:
        """Return the axis on u for one on t that is split into blocks."""
        begin, end = (pad * block for pad in self.pads)
        reach = None if self.reach is None else self.reach * block
        return Axis(self.stride, self.dilation * block, (begin, end), reach)


@dataclass(frozen=True)
class Convolution:
    """A convolution of a value in blocks, written on u.

    Attributes:
        layout: of its input and output.
        axes: its spatial axes, on u.
        pad_value: the number it pads with; None if unknown.
        is_transposed: whether it is a ConvTranspose, of which `axes` holds the pads of the Conv.

    In its methods an `output_crop` is what nobody needs of the output at its ends, a `crop` what the
    input lacks of u there, and `lengths` are those of the axes of t, None where unknown.
    """

    layout: Blocked
    axes: tuple[Axis, ...]
    pad_value: Border
    is_transposed: bool = False

    @property
    def _taken(self) -> list[Axis]:
        return [self.axes[axis - 2] for axis in self.layout.axes]

    def net_pads(self, crop: Pairs, output_crop: Pairs) -> Pairs:
        """Compute the pads of the input per axis of the layout, the convolution's own included."""
        pads = []
        for axis, before, behind in zip(self._taken, crop, output_crop, strict=True):
            begin, end = (
                before[side] + axis.pads[side] - behind[side] * axis.stride for side in (0, 1)
            )
            pads.append((begin, end))
        return tuple(pads)

    def input_crop(
        self, output_crop: Pairs, lengths: Sequence[int | None], bounds: Bounds
    ) -> Pairs:
        """Compute what nobody needs of the input at its ends.

        An axis is left whole where possibly nothing would be left of it: all that is needed may lie
        in the pads.
        """
        result = []
        for i, (axis, crop) in enumerate(zip(self._taken, output_crop, strict=True)):
            rests = [crop[side] * axis.stride - axis.pads[side] for side in (0, 1)]
            begin, end = (rest if bounds.is_at_least(rest) else ZERO for rest in rests)
            fits = bounds.is_below(begin + end, self._least_length(i, lengths))
            result.append((begin, end) if fits else (ZERO, ZERO))
        return tuple(result)

    def _least_length(self, index: int, lengths: Sequence[int | None]) -> int:
        """Return the least length of an axis of u: each block holds something."""
        length = lengths[index]
        return self.layout.blocks[index] * (1 if length is None else length)

    def growth(self, of_input: Sequence[Amount | None]) -> tuple[Amount | None, ...]:
        """Return how much larger the output is than the image, along the axes of the layout."""
        return tuple(
            growth + (sum(axis.pads) - axis.reach)
            if growth is not None and axis.reach is not None and axis.stride == 1
            else None
            for growth, axis in zip(of_input, self._taken, strict=True)
        )

    def shelter_crop(
        self,
        crop: Pairs,
        growth: Sequence[Amount | None],
        lengths: Sequence[int | None],
        bounds: Bounds,
    ) -> Pairs:
        """Reduce the crop of the output to axes of which something is provably left.

        BatchToSpace may crop everything away, and onnxruntime fails on a convolution with an empty
        result. `growth` and `lengths` are those of the output.
        """
        kept = []
        for i, (pair, more) in enumerate(zip(crop, growth, strict=True)):
            total = pair[0] + pair[1]
            is_safe = more is not None and bounds.is_at_least(more - total)
            is_safe |= bounds.is_below(total, self._least_length(i, lengths))
            kept.append(pair if is_safe else (ZERO, ZERO))
        return tuple(kept)

    def own_pads(self, net: Pairs, lengths: Sequence[int | None]) -> Pairs:
        """Select the part of the pads that the convolution takes itself: known ones.

        None along an axis that is cropped at one end, if more may be cropped there than is left
        before the other end is padded.
        """
        pads = []
        for axis, pair, length in zip(self._taken, net, lengths, strict=True):
            known = [amount.constant for amount in pair]
            own = [max(n or 0, 0) for n in known]
            least = min((-math.inf if n is None else n for n in known), default=0)
            too_large = self.is_transposed and max(own) > (axis.reach or 0)
            if too_large or (least < 0 and -least > (length or 0)):
                own = [0, 0]
            pads.append((number(own[0]), number(own[1])))
        return tuple(pads)

    def attributes(self, own: Pairs) -> dict[str, list[int]]:
        """Return the attributes that change on u, with these pads, all of them known."""
        pads = [axis.pads for axis in self.axes]
        for axis, (begin, end) in zip(self.layout.axes, own, strict=True):
            pads[axis - 2] = (begin.constant or 0, end.constant or 0)
        if self.is_transposed:
            reaches = [axis.reach or 0 for axis in self.axes]
            pads = [(r - begin, r - end) for r, (begin, end) in zip(reaches, pads, strict=True)]
        changed = {"pads": [*(begin for begin, _ in pads), *(end for _, end in pads)]}
        if any(axis.dilation > 1 for axis in self.axes):
            changed["dilations"] = [axis.dilation for axis in self.axes]
        return changed


def may_pad(pad_value: Border, border: Border, net: Pairs, crop: Pairs) -> bool:
    """Return whether a convolution may pad its input itself: with the number that u holds there."""
    if border is not None and border == pad_value:
        return True
    return all(
        lack.constant == 0 or (amount.constant is not None and amount.constant <= 0)
        for amounts, lacks in zip(net, crop, strict=True)
        for amount, lack in zip(amounts, lacks, strict=True)
    )


def commute_convolution(node: NodeView, layouts: Sequence[Blocked | None]) -> Convolution | Reason:
    """Write a convolution on u, or say why that is impossible."""
    layout, op_type = layouts[0], node.op_type
    if layout is None or any(other is not None for other in layouts[1:]):
        return f"the kernel or the bias of {op_type} is a value in blocks"
    if layout.batch != 0:
        return f"the batch axis is not the first axis of {op_type}"
    if 1 in layout.axes:
        is_padded = 1 in layout.unsplit
        return f"the channels of {op_type} are {'padded, or may be' if is_padded else 'blocked'}"
    axes = _spatial_axes(node, layout.rank - 2)
    if isinstance(axes, str):
        return axes
    is_transposed = op_type == "ConvTranspose"
    if is_transposed:
        transposed = _as_conv(node, axes)
        if isinstance(transposed, str):
            return transposed
        axes = transposed
    for axis, block in zip(layout.axes, layout.blocks, strict=True):
        if block > 1 and axes[axis - 2].stride != 1:
            return f"{op_type} has stride {axes[axis - 2].stride} on a blocked axis"
        axes[axis - 2] = axes[axis - 2].without_blocks(block)
    pad_value: Border = 0
    if op_type not in ("Conv", "ConvTranspose") and node.has(2):  # the zero point of the data
        point = node.known(2)
        pad_value = None if point is None or point.size != 1 else int(point.reshape(-1)[0])
    return Convolution(layout, tuple(axes), pad_value, is_transposed)


def _as_conv(node: NodeView, axes: Sequence[Axis]) -> list[Axis] | Reason:
    """Return the axes of the Conv with flipped kernel and other pads that a ConvTranspose on t is."""
    added = node.integers("output_padding", ())
    if added is None or any(added) or "output_shape" in node.attributes:
        return "ConvTranspose has output_shape or output_padding"
    result = []
    for axis in axes:
        if axis.stride != 1:
            return "ConvTranspose has stride 2 or more, which spreads the input"
        if axis.reach is None:
            return "the kernel size of ConvTranspose is unknown"
        begin, end = (axis.reach - pad for pad in axis.pads)
        if min(begin, end) < 0:
            return "ConvTranspose has pads larger than its kernel"
        result.append(replace(axis, pads=(begin, end)))
    return result


def _spatial_axes(node: NodeView, spatial: int) -> list[Axis] | Reason:
    """Read the spatial axes of a convolution on t and resolve its auto_pad."""
    op_type, ones = node.op_type, (1,) * spatial
    strides, dilations = node.integers("strides", ones), node.integers("dilations", ones)
    pads = node.integers("pads", (0,) * 2 * spatial)
    if strides is None or dilations is None or pads is None:
        return f"attributes of {op_type} depend on the callers of its function"
    if (len(strides), len(dilations), len(pads)) != (spatial, spatial, 2 * spatial):
        return f"{op_type} has strides, dilations or pads that do not fit the rank of its input"
    auto = node.attributes.get("auto_pad", "NOTSET")
    kernel = _kernel_sizes(node, spatial)
    if auto in _SAME:
        if kernel is None:
            return f"the kernel size of {op_type} is unknown, and auto_pad needs it"
        same = _same_pads(node, kernel, strides, dilations, _SAME[auto])
        if isinstance(same, str):
            return same
        pads = same
    elif auto == "VALID":
        pads = (0,) * 2 * spatial
    elif auto != "NOTSET":
        return f"auto_pad of {op_type} depends on the callers of its function"
    if min(pads, default=0) < 0:
        return f"{op_type} has negative pads"
    reaches = [None if kernel is None else (kernel[i] - 1) * dilations[i] for i in range(spatial)]
    return [
        Axis(strides[i], dilations[i], (pads[i], pads[i + spatial]), reaches[i])
        for i in range(spatial)
    ]


def _kernel_sizes(node: NodeView, spatial: int) -> tuple[int, ...] | None:
    declared = node.integers("kernel_shape", ())
    if declared:
        return declared if len(declared) == spatial else None
    dims = node.dims(KERNELS[node.op_type])
    if dims is None or len(dims) != spatial + 2:
        return None
    sizes = [dim.constant for dim in dims[2:]]
    return None if None in sizes else tuple(size for size in sizes if size is not None)


def _same_pads(
    node: NodeView,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    auto_pad: AutoPad,
) -> tuple[int, ...] | Reason:
    dims = node.dims(0)
    try:
        windows = ExtractPatches(kernel, strides, dilations, auto_pad)
    except OperatorError:
        return f"kernel, strides or dilations of {node.op_type} are not legal"
    pairs = []
    for axis, stride in enumerate(strides):
        # With stride 1 every size is padded alike.
        size = 1 if stride == 1 else dims[axis + 2].constant if dims is not None else None
        if size is None:
            return f"auto_pad of {node.op_type} depends on sizes that are not known"
        pairs.append(windows.padding(axis, size))
    return (*(begin for begin, _ in pairs), *(end for _, end in pairs))
