"""Give a convolution the border of ExtractPatches, also where sizes are unknown until run time.

    VALID                          no pads
    SAME, stride 1                 pads, which do not depend on the size
    SAME, other strides            auto_pad, or a Pad of computed amounts: onnxruntime has no auto_pad
                                   for dilated convolutions

Patches of an image without a window are an empty tensor, and a convolution without a window fails. Where
that may be, zeros behind the image make room for more windows, and a Slice drops as many.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnx_spatial.lowering.core import cost_model
from onnx_spatial.lowering.core.builder import Emitter
from onnx_spatial.operators import Dim, ExtractPatches

#: Pad has taken its amounts as an input since this opset; Mod is older.
_PAD_INPUTS = 11

#: Nodes that compute the amounts of a Pad.
_COMPUTED_NODES = 7


@dataclass(frozen=True)
class Border:
    """The border of the windows of a convolution of [N, C, spatial..].

    Attributes:
        operator: the patches with the same windows.
        pads: zeros at the beginning of each spatial axis, then at the end; None for auto_pad.
        more: windows behind the last one, to be dropped, per spatial axis.
        is_computed: whether a Pad of computed amounts stands in front, besides `pads`.
    """

    operator: ExtractPatches
    pads: tuple[int, ...] | None
    more: tuple[int, ...]
    is_computed: bool = False

    @classmethod
    def of(
        cls,
        operator: ExtractPatches,
        shape: Sequence[Dim],
        may_be_empty: Collection[int],
        opset: int,
    ) -> Border | str:
        """Return the border, or say why no convolution has it.

        Args:
            operator: the patches.
            shape: of the image, in the layout of the operator.
            may_be_empty: numbers of the spatial axes that may hold no window.
            opset: version of the default domain.
        """
        pairs, more, is_computed = [], [], False
        for number, axis in enumerate(operator.spatial_axes):
            size, stride, extent = shape[axis], operator.strides[number], operator.extent(number)
            extra = 0
            if isinstance(size, int):
                if operator.output_size(number, size) < 1:
                    return "there are no patches"
                begin, end = operator.padding(number, size)
            elif operator.auto_pad == "valid":
                least = 0 if operator.clamp_negative else max(0, extent - 2 * stride + 1)
                extra = -(-(extent - least) // stride) if number in may_be_empty else 0
                begin = end = 0
            else:
                begin, end = operator.padding(number, extent)  # with stride 1 any size is padded so
                is_computed |= stride != 1
                extra = int(number in may_be_empty)
                if operator.auto_pad == "same_unclamped" and stride > extent + 1:
                    return "sampling may start inside the image, which no convolution does"
            if begin < 0 or end < 0:
                return "sampling starts inside the image, which no convolution does"
            pairs.append((begin, end + extra * stride))
            more.append(extra)
        if is_computed and max(operator.rates) > 1:
            if opset < _PAD_INPUTS:
                return f"the padding is computed, and Pad takes it from opset {_PAD_INPUTS} on"
            room = (n * s for n, s in zip(more, operator.strides, strict=True))
            return cls(operator, (*(0 for _ in more), *room), tuple(more), is_computed=True)
        pads = (*(begin for begin, _ in pairs), *(end for _, end in pairs))
        return cls(operator, None if is_computed else pads, tuple(more))

    @property
    def attributes(self) -> dict[str, str | Sequence[int]]:
        """The attributes of the convolution."""
        if self.pads is not None:
            return {"pads": self.pads}
        return {
            "auto_pad": "SAME_LOWER" if self.operator.auto_pad == "same_lower" else "SAME_UPPER"
        }

    def padded(self, image: ir.Value, emit: Emitter) -> ir.Value:
        """Emit what has to stand in front of the convolution."""
        none = [0, 0]
        if self.is_computed:
            begin, end = self._computed(image, emit)
            pads = emit.vector([*none, begin, *none, end], "pads")
        elif self.pads is None and any(self.more):
            behind = [n * s for n, s in zip(self.more, self.operator.strides, strict=True)]
            known = [*none, *(0 for _ in behind), *none, *behind]
            if emit.opset < _PAD_INPUTS:
                return emit.op("Pad", image, pads=known)
            pads = emit.ints(known, "pads")
        else:
            return image
        return emit.op("Pad", image, pads)

    def _computed(self, image: ir.Value, emit: Emitter) -> tuple[ir.Value, ir.Value]:
        """Compute the zeros in front of each spatial axis and behind it.

        A last window that starts at element `size - 1 - rest` ends `extent - 1 - rest` behind the image.
        """
        operator = self.operator
        extents = [operator.extent(number) for number in range(len(operator.kernel))]
        sizes = emit.lengths(image, range(2, operator.rank))
        before = emit.op("Sub", sizes, emit.ints([1], "one"))
        rest = emit.op("Mod", before, emit.ints(operator.strides, "strides"))
        total = emit.op("Sub", emit.ints([e - 1 for e in extents], "reach"), rest)
        if any(s > e for s, e in zip(operator.strides, extents, strict=True)):
            count = len(extents)
            each = emit.elements(total, range(count), count)
            total = emit.vector([emit.max(zeros, 0) for zeros in each], "zeros")
        odd = operator.auto_pad == "same_lower"
        rounded = emit.op("Add", total, emit.ints([1], "one")) if odd else total
        begin = emit.op("Div", rounded, emit.ints([2], "two"))
        return begin, emit.op("Sub", total, begin)

    def cut(self, value: ir.Value, emit: Emitter) -> ir.Value:
        """Emit what has to stand behind the convolution."""
        axes = [number for number, count in enumerate(self.more) if count]
        if not axes:
            return value
        ends = [-self.more[number] for number in axes]
        x = emit.tensor(value, [1] * self.operator.rank)  # the dims serve estimates only
        behind = [number + 2 for number in axes]
        return emit.slice(x, behind, [0] * len(axes), ends, x.dims).value

    def cost(self, image: Sequence[int], result: Sequence[int], itemsize: int) -> float:
        """Estimate the microseconds of the nodes that `padded` and `cut` add.

        The sizes are those of the image and the result, [N, C, spatial..].
        """
        works = [cost_model.small()] * (_COMPUTED_NODES if self.is_computed else 0)
        if self.is_computed or (self.pads is None and any(self.more)):
            size = math.prod(image)
            works.append(cost_model.pad(size // max(1, image[-1]), size * itemsize))
        if any(self.more):
            size = math.prod(result)
            runs = size // max(1, result[-1])
            works.append(cost_model.take(runs, size * itemsize, strided=False, single=False))
        return cost_model.total(works) / 1000
