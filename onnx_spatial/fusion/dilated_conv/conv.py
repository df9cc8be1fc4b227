"""Rules for convolutions: one on a value in blocks is a dilated one on the value itself.

    Conv(SpaceToBatch(u, D), dilations d, pads p) = SpaceToBatch(Conv(u, dilations D d, pads D p), D)

with stride 1 along the axes that are split; an axis that is only padded (block 1) may have any stride.
The pads of SpaceToBatch and the crops of BatchToSpace go into its own pads (`net_pads`).

The same holds for ConvTranspose with stride 1: it is a Conv with the flipped kernel and pads r - p,
where r = (kernel size - 1) * dilation, and that is how its pads are counted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.graph_view import NodeView
from onnx_spatial.fusion.dilated_conv.pad_amounts import (
    NOTHING,
    PadAmount,
    PadPair,
    PadPairs,
)
from onnx_spatial.fusion.dilated_conv.rule import BorderValue
from onnx_spatial.fusion.dilated_conv.window_axes import KERNELS, Axis, enlarged, spatial_axes
from onnx_spatial.fusion.rule import Reason


@dataclass(frozen=True)
class BlockedConv:
    """A convolution of a value in blocks, written on u.

    Attributes:
        layout: layout of its output.
        axes: its spatial axes, on u.
        place: which of these each axis of the layout is.
        pad_value: the number it pads with; None if unknown.
        is_transposed: whether it is a ConvTranspose, of which `axes` holds the pads of the Conv.

    The methods take `output_crop`, what nobody needs of the output at its ends, `crop`, the zeros
    that the input lacks of u at its ends, and `lengths` in blocks, None where unknown.
    """

    layout: BlockedLayout
    axes: tuple[Axis, ...]
    place: tuple[int, ...]
    pad_value: BorderValue
    is_transposed: bool = False

    def net_pads(self, crop: PadPairs, output_crop: PadPairs) -> PadPairs:
        """Compute the pads of the input per axis of the layout, the convolution's own included."""
        return tuple(
            (
                before[0] + PadAmount.known(axis.pads[0]) - behind[0].times(axis.stride),
                before[1] + PadAmount.known(axis.pads[1]) - behind[1].times(axis.stride),
            )
            for axis, before, behind in zip(self._own(), crop, output_crop, strict=True)
        )

    def input_crop(self, output_crop: PadPairs, lengths: Sequence[int | None]) -> PadPairs:
        """Compute what nobody needs of the input, of these lengths, at its ends.

        An axis is left whole where possibly nothing would be left of it: all that is needed may lie
        in the pads.
        """
        result = []
        for i, (axis, crop) in enumerate(zip(self._own(), output_crop, strict=True)):
            pair = (_rest(crop[0], axis, 0), _rest(crop[1], axis, 1))
            fits = (pair[0] + pair[1]).is_below(self._least(i, lengths))
            result.append(pair if fits else (NOTHING, NOTHING))
        return tuple(result)

    def _least(self, index: int, lengths: Sequence[int | None]) -> int:
        """Return the least length of an axis of u: each block holds something."""
        length = lengths[index]
        return self.layout.blocks[index] * (1 if length is None else length)

    def sheltered(
        self, output_crop: PadPairs, crop: PadPairs | None, lengths: Sequence[int | None]
    ) -> PadPairs:
        """Reduce the crop of the output, of these lengths, to axes of which something is provably left.

        BatchToSpace may crop everything away, and onnxruntime fails on a convolution with an empty
        result. `crop` is None if the input does not lack zeros.
        """
        net = None if crop is None else self.net_pads(crop, output_crop)
        kept = []
        for i, pair in enumerate(output_crop):
            total = pair[0] + pair[1]
            added = None if net is None else (net[i][0] + net[i][1]).constant
            reach = self._own()[i].reach
            grows = added is not None and reach is not None and added >= reach
            safe = grows or total.is_below(self._least(i, lengths))
            kept.append(pair if safe and self._can_pad(i, pair) else (NOTHING, NOTHING))
        return tuple(kept)

    def _can_pad(self, index: int, crop: PadPair) -> bool:
        """Return whether a Pad in front can take pads minus crops that are known at run time only."""
        known = all(amount.constant is not None for amount in crop)
        return known or self.pad_value is not None or self._own()[index].pads == (0, 0)

    def _own(self) -> list[Axis]:
        return [self.axes[place] for place in self.place]

    def within_limits(self, own: PadPairs) -> PadPairs:
        """Drop the pads, all of them known, of axes where they are larger than runtimes accept."""
        result = []
        for axis, pair in zip(self._own(), own, strict=True):
            fits = axis.most is None or all((a.constant or 0) <= axis.most for a in pair)
            result.append(pair if fits else (NOTHING, NOTHING))
        return tuple(result)

    def attributes(self, own: PadPairs) -> dict[str, int | list[int]]:
        """Return the attributes that change on u, with these pads, all of them known."""
        pads = [axis.pads for axis in self.axes]
        for place, pair in zip(self.place, own, strict=True):
            begin, end = pair[0].constant, pair[1].constant
            assert begin is not None and end is not None
            pads[place] = (begin, end)
        if self.is_transposed:
            reaches = [axis.reach or 0 for axis in self.axes]
            pads = [(r - begin, r - end) for r, (begin, end) in zip(reaches, pads, strict=True)]
        ends = [*(begin for begin, _ in pads), *(end for _, end in pads)]
        changed: dict[str, int | list[int]] = {"pads": ends}
        if any(axis.dilation > 1 for axis in self.axes):
            changed["dilations"] = [axis.dilation for axis in self.axes]
        return changed


def _rest(crop: PadAmount, axis: Axis, side: int) -> PadAmount:
    rest = crop.times(axis.stride) - PadAmount.known(axis.pads[side])
    if not axis.pads[side]:  # a crop is never negative
        return rest
    return rest if rest.is_at_least(NOTHING) else NOTHING


def _conv(node: NodeView, layouts: Sequence[BlockedLayout | None]) -> BlockedConv | Reason:
    """Write a convolution on u, or say why that is impossible."""
    layout = layouts[0]
    if layout is None or any(s is not None for s in layouts[1:]):
        return f"the kernel or the bias of {node.op_type} is a value in blocks"
    if layout.batch != 0:
        return f"the batch axis is not the first axis of {node.op_type}"
    if 1 in layout.axes:
        block = layout.blocks[layout.axes.index(1)]
        what = "are blocked" if block > 1 else "are padded, or may be"
        return f"the channels of {node.op_type} {what}"
    axes = spatial_axes(node, layout.rank - 2)
    if isinstance(axes, str):
        return axes
    is_transposed = node.op_type == "ConvTranspose"
    if is_transposed:
        transposed = _as_conv(node, axes)
        if isinstance(transposed, str):
            return transposed
        axes = transposed
    place = tuple(axis - 2 for axis in layout.axes)
    for block, at in zip(layout.blocks, place, strict=True):
        if block > 1 and axes[at].stride != 1:
            return f"{node.op_type} has stride {axes[at].stride} on a blocked axis"
        axes[at] = enlarged(axes[at], block)
        if is_transposed:
            axes[at] = replace(axes[at], most=axes[at].reach)
    types = node.view.element_types(node.message.output[0])
    if node.op_type in ("Conv", "ConvTranspose"):
        types = layout.element_types
    layout = layout.with_types(types)
    return BlockedConv(layout, tuple(axes), place, _pad_value(node), is_transposed)


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


def _pad_value(node: NodeView) -> BorderValue:
    """Return the number a convolution pads with: the zero point of quantised data."""
    if node.op_type in ("Conv", "ConvTranspose") or not node.input(2):
        return 0
    point = node.known(2)
    if point is None or point.size != 1:
        return None
    return int(point.reshape(-1)[0])


#: The rule for each convolution.
RULES = dict.fromkeys(KERNELS, _conv)
