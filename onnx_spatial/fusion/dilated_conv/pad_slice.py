"""Write the Pads and Slices between the computed part of a value and the part that is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    PadPairs,
    combined,
    flat,
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
        layout = computed.layout
        emit = Emitter(self._view.opset)
        shape = emit.shape_of(computed.value)
        sizes = [emit.elements(shape, [axis])[0] for axis in range(layout.rank)]
        x = emit.tensor(computed.value, sizes, 4)
        # Pad first: the crop at one end may be larger than the axis before the other end is padded.
        split = [[amount.split() for amount in pair] for pair in amounts]
        pads = tuple((begin[0], end[0]) for begin, end in split)
        crops = tuple((begin[1], end[1]) for begin, end in split)
        x = self._padded(emit, x, pads, layout, number)
        x = self._cropped(emit, x, crops, layout)
        emit.prune(x.value)
        draft.nodes += emit.nodes
        draft.constants += emit.constants
        return x.value

    def _padded(
        self, emit: Emitter, x: Tensor, pads: PadPairs, layout: BlockedLayout, number: BorderValue
    ) -> Tensor:
        """Write a Pad."""
        if all(amount.constant == 0 for amount in flat(pads)):
            return x
        pair_of = dict(zip(layout.axes, pads, strict=True))
        pairs = [pair_of.get(axis, (NOTHING, NOTHING)) for axis in range(layout.rank)]
        vector, sizes = self._sizes(
            emit, [*(begin for begin, _ in pairs), *(end for _, end in pairs)]
        )
        both = list(zip(sizes[: layout.rank], sizes[layout.rank :], strict=True))
        filling = _filling(layout, number, emit)
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
