"""Rule for a region inside a region: SpaceToBatch of a value in blocks, and its BatchToSpace.

    SpaceToBatch(SpaceToBatch(u, D), E, pads P) = SpaceToBatch(Pad(u, D P), E D)

The blocks of both lie in the batch axis, those of the inner operator outside: (E, D, batch). For several
axes that is another order than that of one SpaceToBatch with block E D.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.pad_amounts import (
    NOTHING,
    PadAmount,
    PadPair,
    PadPairs,
    combined,
    flat,
    reordered,
    whole,
)

#: (axis, block) of the axes that lie in the batch axis, the outermost first.
Order = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Reblocking:
    """An operator inside a region that adds blocks or takes some of them out.

    Attributes:
        before, layout: layouts of its input, with the axes that are only cropped, and of its output.
        pads: how much the value u grows at the ends of each axis of `layout`; negative for crops.
        sources: values of the graph that hold run-time pads or crops, by name.

    The crops of values are given and returned in the order of the axes of their layouts.
    """

    before: BlockedLayout
    layout: BlockedLayout
    pads: PadPairs
    sources: Mapping[str, ir.Value]

    def output_crop(self, crop: PadPairs) -> PadPairs:
        """Compute what the output lacks where the input lacks `crop`."""
        own = reordered(crop, self.before.axes, self.layout.axes)
        return combined(PadAmount.__add__, own, self.pads)

    def input_crop(self, output_crop: PadPairs, *, zeros: bool) -> PadPairs:
        """Compute what nobody needs of the input.

        `zeros`: whether what is cropped off is zeros. If not, the input is left whole where some of
        the padding, which is zeros, may be needed.
        """
        pairs = zip(flat(output_crop), flat(self.pads), strict=True)
        if not zeros and not all(crop.is_at_least(pad) for crop, pad in pairs):
            return whole(len(self.before.axes))
        rest = combined(_rest, output_crop, self.pads)
        return reordered(rest, self.layout.axes, self.before.axes)


def _rest(crop: PadAmount, pad: PadAmount) -> PadAmount:
    rest = crop - pad
    return rest if rest.is_at_least(NOTHING) else NOTHING


def entered(
    layout: BlockedLayout,
    blocks: Sequence[int],
    pads: Sequence[PadPair],
    sources: Mapping[str, ir.Value],
) -> Reblocking | None:
    """Write a SpaceToBatch of a value in blocks; None if that is impossible."""
    if layout.batch != 0 or layout.rows:
        return None
    inner = tuple((axis, block) for axis, block in enumerate(blocks, 1) if block > 1)
    padded = [axis for axis, pair in enumerate(pads, 1) if any(a.constant != 0 for a in pair)]
    after = _layout(layout, (*inner, *layout.order), padded)
    scale = _products(layout.order)
    scaled = [
        (pair[0].times(scale.get(axis, 1)), pair[1].times(scale.get(axis, 1)))
        for axis, pair in enumerate(pads, 1)
    ]
    grown = reordered(tuple(scaled), range(1, len(scaled) + 1), after.axes)
    return Reblocking(layout, after, grown, sources)


def left(
    layout: BlockedLayout,
    blocks: Sequence[int],
    crops: Sequence[PadPair],
    sources: Mapping[str, ir.Value],
) -> Reblocking | None:
    """Write a BatchToSpace that takes out the outermost blocks only; None if it takes others."""
    order = list(layout.order)
    for axis, block in enumerate(blocks, 1):
        if block == 1:
            continue
        if not order or order[0][0] != axis or order[0][1] % block:
            return None
        rest = order[0][1] // block
        order[:1] = [(axis, rest)] if rest > 1 else []
    if layout.batch != 0 or layout.rows or not order:
        return None
    cropped = [axis for axis, pair in enumerate(crops, 1) if any(a.constant != 0 for a in pair)]
    layout = layout.with_unsplit([axis for axis in cropped if axis not in layout.axes])
    after = _layout(layout, tuple(order), ())
    scale = _products(order)
    scaled = [
        (pair[0].times(-scale.get(axis, 1)), pair[1].times(-scale.get(axis, 1)))
        for axis, pair in enumerate(crops, 1)
    ]
    grown = reordered(tuple(scaled), range(1, len(scaled) + 1), after.axes)
    return Reblocking(layout, after, grown, sources)


def _products(order: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Multiply the blocks of each axis."""
    axes = dict.fromkeys(axis for axis, _ in order)
    return {axis: math.prod(b for a, b in order if a == axis) for axis in axes}


def _layout(layout: BlockedLayout, order: Order, padded: Sequence[int]) -> BlockedLayout:
    """Return the layout with other blocks; axes without blocks stay."""
    merged: list[tuple[int, int]] = []
    for axis, block in order:  # neighbours of one axis are one block
        if merged and merged[-1][0] == axis:
            merged[-1] = (axis, merged[-1][1] * block)
        else:
            merged.append((axis, block))
    block_of = _products(merged) | {
        axis: 1
        for axis in dict.fromkeys((*layout.axes, *padded))
        if axis not in {a for a, _ in merged}
    }
    repeated = len(merged) > len(_products(merged))
    return replace(
        layout,
        blocks=tuple(block_of.values()),
        axes=tuple(block_of),
        nesting=tuple(merged) if repeated else (),
    )
