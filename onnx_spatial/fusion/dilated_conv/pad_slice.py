"""Write the Pads and Slices between the computed part of a value and the part that is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import sub

import numpy as np
import onnx_ir as ir

from onnx_spatial.errors import ConversionError
from onnx_spatial.fusion.dilated_conv.amount_vectors import AmountVectors
from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.graph_view import Array, GraphView
from onnx_spatial.fusion.dilated_conv.pad_amounts import (
    NOTHING,
    PadAmount,
    PadPair,
    PadPairs,
    combined,
    flat,
    reordered,
)
from onnx_spatial.fusion.dilated_conv.rule import BorderValue
from onnx_spatial.lowering import Emitter
from onnx_spatial.lowering.core import padding
from onnx_spatial.lowering.core.builder import INT64_MAX, SLICE_INPUTS, Size, Tensor
from onnx_spatial.model.graph.replace_nodes import Draft


@dataclass(frozen=True)
class ComputedPart:
    """The computed part of a value u.

    Attributes:
        value: the part in the graph.
        crop: what it lacks of u at the ends of each axis of the layout.
        border: the number that u holds there; None if unknown.
        layout: the axes.
    """

    value: ir.Value
    crop: PadPairs
    border: BorderValue
    layout: BlockedLayout


class PadSliceWriter:
    """Writer of the Pads and Slices of one graph.

    Attributes:
        amounts: what writes amounts that are computed at run time.
        at_exits: whether nodes are written for the ends of regions: those reuse no Pad or Slice of a
            node inside, which may stand behind the end in the file.

    Args:
        view: the graph.
        amounts: what writes amounts that are computed at run time.
    """

    def __init__(self, view: GraphView, amounts: AmountVectors) -> None:
        self._view = view
        self.amounts = amounts
        self._adjusted: dict[tuple[object, ...], ir.Value] = {}
        self._origins: dict[ir.Value, tuple[ComputedPart, PadPairs]] = {}
        self.at_exits = False

    def at(self, computed: ComputedPart, crop: PadPairs, draft: Draft) -> ir.Value:
        """Write u with this crop: a Slice, or a Pad where less of it is computed."""
        amounts = combined(sub, computed.crop, crop)
        key = (id(computed.value), computed.layout.axes, amounts, self.at_exits)
        if key not in self._adjusted:
            self._adjusted[key] = self.padded(computed, amounts, computed.border, draft)
        return self._adjusted[key]

    def padded(
        self, computed: ComputedPart, amounts: PadPairs, number: BorderValue, draft: Draft
    ) -> ir.Value:
        """Write the value padded by these amounts; negative ones crop."""
        if all(amount.constant == 0 for amount in flat(amounts)):
            return computed.value
        computed = replace(computed, border=number)
        if computed.value in self._origins:
            computed, amounts = self._composed(computed, amounts)
            if all(amount.constant == 0 for amount in flat(amounts)):
                return computed.value
        layout, number = computed.layout, computed.border
        emit = Emitter(self._view.opset)
        shape = emit.shape_of(computed.value)
        sizes = [emit.elements(shape, [axis])[0] for axis in range(layout.rank)]
        x = emit.tensor(computed.value, sizes, 4)
        pads, crops = self._steps(computed, amounts)
        x = self._padded(emit, x, pads, layout, number)
        if self._pad_crops(layout) and any(amount.constant is None for amount in flat(crops)):
            x = self._padded(emit, x, combined(lambda amount: amount.times(-1), crops), layout, 0)
        else:
            x = self._cropped(emit, x, crops, layout)
        emit.prune(x.value)
        draft.nodes += emit.nodes
        draft.constants += emit.constants
        self._origins[x.value] = computed, amounts
        return x.value

    def _composed(self, computed: ComputedPart, amounts: PadPairs) -> tuple[ComputedPart, PadPairs]:
        """Return what the value was padded from, and both amounts, if one Pad can do both."""
        source, before = self._origins[computed.value]
        axes = dict.fromkeys((*source.layout.axes, *computed.layout.axes))
        firsts = reordered(before, source.layout.axes, list(axes))
        seconds = reordered(amounts, computed.layout.axes, list(axes))
        pads = not all(map(NOTHING.is_at_least, flat(firsts)))
        pads_more = not all(map(NOTHING.is_at_least, flat(seconds)))
        if (pads and pads_more and source.border != computed.border) or not all(
            first.is_at_least(NOTHING)
            or (NOTHING.is_at_least(first) and NOTHING.is_at_least(second))
            for first, second in zip(flat(firsts), flat(seconds), strict=True)
        ):
            return computed, amounts
        layout = replace(computed.layout, axes=tuple(axes), blocks=(1,) * len(axes))
        border = source.border if pads else computed.border
        both = combined(PadAmount.__add__, firsts, seconds)
        return ComputedPart(source.value, source.crop, border, layout), both

    def steps_between(self, computed: ComputedPart, crop: PadPairs) -> int | None:
        """Count the Pads and Slices of `at`; None if the border is not known where it is needed."""
        amounts = combined(sub, computed.crop, crop)
        if computed.border is None and not all(map(NOTHING.is_at_least, flat(amounts))):
            return None
        steps = self._steps(computed, amounts)
        return sum(any(a.constant != 0 for a in flat(step)) for step in steps)

    def _steps(self, computed: ComputedPart, amounts: PadPairs) -> tuple[PadPairs, PadPairs]:
        """Return what to pad by, less than nothing to crop, and what to crop by then.

        A Pad may crop, too, but no more at one end than is there before the other end is padded. A
        crop by known amounts is a Slice.
        """
        layout, steps = computed.layout, []
        lengths: list[int | None] = [None] * len(amounts)
        if computed.value.name is not None:
            lengths = self._view.lengths(computed.value.name, layout.axes)
        known = all(a.constant is not None and a.constant <= 0 for a in flat(amounts))
        may_crop = not known and self._pad_crops(layout)
        for pair, length in zip(amounts, lengths, strict=True):
            if may_crop and _fits(pair, length):
                steps.append((pair, (NOTHING, NOTHING)))
            else:
                begin, end = (amount.split() for amount in pair)
                steps.append(((begin[0], end[0]), (begin[1], end[1])))
        return tuple(pads for pads, _ in steps), tuple(crops for _, crops in steps)

    def _pad_crops(self, layout: BlockedLayout) -> bool:
        """Return whether a Pad by negative amounts crops values of a layout."""
        types, opset = layout.element_types, self._view.opset
        return bool(types) and opset >= padding.PAD_INPUTS and padding.has_pad_kernel(types, opset)

    def _padded(
        self, emit: Emitter, x: Tensor, pads: PadPairs, layout: BlockedLayout, number: BorderValue
    ) -> Tensor:
        """Write a Pad."""
        if all(amount.constant == 0 for amount in flat(pads)):
            return x
        pairs = reordered(pads, layout.axes, range(layout.rank))
        # Not for some axes only: onnxruntime moves Transposes across a Pad and forgets its axes.
        vector, sizes = self._sizes(
            emit, [*(begin for begin, _ in pairs), *(end for _, end in pairs)]
        )
        both = list(zip(sizes[: layout.rank], sizes[layout.rank :], strict=True))
        crops_only = all(map(NOTHING.is_at_least, flat(pads)))
        filling = _filling(layout, 0 if crops_only else number, emit)
        return padding.pad(emit, x, both, layout.element_types, filling, vector=vector)

    def _cropped(self, emit: Emitter, x: Tensor, crops: PadPairs, layout: BlockedLayout) -> Tensor:
        """Write a Slice of the axes that are cropped."""
        pair_of = {
            axis: pair
            for axis, pair in zip(layout.axes, crops, strict=True)
            if any(amount.constant != 0 for amount in pair)
        }
        if not pair_of:
            return x
        axes = sorted(pair_of)
        begin_vector, begins = self._sizes(emit, [pair_of[axis][0] for axis in axes])
        end_vector, ends = self._sizes(emit, [pair_of[axis][1] for axis in axes])
        dims = list(x.dims)
        stops: list[Size] = []
        for axis, begin, end in zip(axes, begins, ends, strict=True):
            stop = emit.sub(x.dims[axis], end)
            dims[axis] = emit.sub(stop, begin)
            # An end of -0 would leave nothing.
            known = -end if isinstance(end, int) and end else INT64_MAX
            stops.append(known if isinstance(end, int) else stop)
        if emit.opset >= SLICE_INPUTS:
            begins = begins if begin_vector is None else [begin_vector]
            if end_vector is not None:
                stops = [emit.op("Sub", emit.lengths(x.value, axes), end_vector)]
        return emit.slice(x, axes, begins, stops, dims)

    def _sizes(
        self, emit: Emitter, amounts: Sequence[PadAmount]
    ) -> tuple[ir.Value | None, list[Size]]:
        """Write amounts as a vector, None if all are known, and each as a size."""
        if all(amount.constant is not None for amount in amounts):
            return None, [amount.constant or 0 for amount in amounts]
        vector = self.amounts.write(emit, amounts)
        sizes: list[Size] = []
        for place, amount in enumerate(amounts):
            known = amount.constant
            sizes.append(emit.elements(vector, [place])[0] if known is None else known)
        return vector, sizes


def _fits(pair: PadPair, length: int | None) -> bool:
    """Return whether a Pad can crop one end of an axis of this length and pad the other.

    onnxruntime 1.23 writes anything where nothing is left between the two.
    """
    crops = [amount.bounds.least for amount in pair if not amount.is_at_least(NOTHING)]
    if not crops or NOTHING in pair or all(map(NOTHING.is_at_least, pair)):
        return True
    return length is not None and all(crop is not None and length + crop > 0 for crop in crops)


def _filling(layout: BlockedLayout, number: BorderValue, emit: Emitter) -> Array | None:
    """Return what a Pad fills a border with; None for zeros."""
    if number is None:
        raise ConversionError("the number beyond its border is not known")
    if not number:
        return None
    types = layout.element_types
    dtype = padding.numpy_dtype(next(iter(types))) if len(types) == 1 else None
    if dtype is None or not padding.has_pad_kernel(types, emit.opset):
        raise ConversionError(f"a border of {number} cannot be written for this element type")
    return np.array(number, dtype)
