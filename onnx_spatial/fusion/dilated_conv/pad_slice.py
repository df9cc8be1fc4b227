"""Write the Pads and Slices between the computed part of a value and the part that is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import sub

import numpy as np
import onnx
import onnx_ir as ir

from onnx_spatial.errors import ConversionError
from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.graph_view import Array, GraphView
from onnx_spatial.fusion.dilated_conv.pad_amounts import PadAmount, PadPairs, combined, flat
from onnx_spatial.fusion.dilated_conv.rule import BorderValue
from onnx_spatial.lowering import Emitter
from onnx_spatial.lowering.core import padding
from onnx_spatial.lowering.core.builder import INT64_MAX, Size, Tensor
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
        elements: names of the run-time parameters that amounts were read from.
        at_exits: whether nodes are written for the ends of regions: those reuse no Pad or Slice of a
            node inside, which may stand behind the end in the file.

    Args:
        view: the graph.
        sources: values of run-time parameters, by name.
    """

    def __init__(self, view: GraphView, sources: Mapping[str, ir.Value]) -> None:
        self._view = view
        self._sources = sources
        self._adjusted: dict[tuple[int, PadPairs, bool], ir.Value] = {}
        self.elements: set[str] = set()
        self.at_exits = False

    def at(self, computed: ComputedPart, crop: PadPairs, draft: Draft) -> ir.Value:
        """Write u with this crop: a Slice, or a Pad where less of it is computed."""
        amounts = combined(sub, computed.crop, crop)
        key = (id(computed.value), amounts, self.at_exits)
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
        pads: list[tuple[Size, Size]] = [(0, 0)] * layout.rank
        crops = list(pads)
        for axis, (begin, end) in zip(layout.axes, amounts, strict=True):
            pads[axis] = (self._size(emit, begin), self._size(emit, end))
            crops[axis] = (self._size(emit, begin.times(-1)), self._size(emit, end.times(-1)))
        # Pad first: the crop at one end may be larger than the axis before the other end is padded.
        if any(amount != 0 for pair in pads for amount in pair):
            x = padding.pad(emit, x, pads, layout.element_types, _filling(layout, number, emit))
        x = _cropped(emit, x, crops)
        emit.prune(x.value)
        draft.nodes += emit.nodes
        draft.constants += emit.constants
        return x.value

    def _size(self, emit: Emitter, amount: PadAmount) -> Size:
        """Write max(amount, 0) as a size of the emitter."""
        if amount.constant is not None:
            return max(amount.constant, 0)
        least, most = amount.bounds
        if most is not None and most <= 0:
            return 0
        result: Size = amount.plus
        for (name, place), count in amount.elements:
            self.elements.add(name)
            flat = emit.op("Reshape", self._sources[name], emit.ints([-1], "flat"))
            if self._view.element_types(name) != {onnx.TensorProto.INT64}:
                flat = emit.op("Cast", flat, to=int(onnx.TensorProto.INT64))
            (element,) = emit.elements(flat, [place])
            result = emit.add(result, emit.mul(element, count))
        return result if least is not None and least >= 0 else emit.max(result, 0)


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


def _cropped(emit: Emitter, x: Tensor, crops: Sequence[tuple[Size, Size]]) -> Tensor:
    """Write a Slice of the axes that are cropped."""
    axes = [axis for axis, pair in enumerate(crops) if any(amount != 0 for amount in pair)]
    if not axes:
        return x
    dims = list(x.dims)
    ends: list[Size] = []
    for axis in axes:
        begin, end = crops[axis]
        if isinstance(end, int):
            ends.append(-end if end else INT64_MAX)
        else:  # an end of -0 would leave nothing
            ends.append(emit.sub(x.dims[axis], end))
        dims[axis] = emit.sub(emit.sub(x.dims[axis], begin), end)
    return emit.slice(x, axes, [crops[axis][0] for axis in axes], ends, dims)
