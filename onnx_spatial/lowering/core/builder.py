"""Emit operations on tensors whose dims may be known at run time only; what changes nothing is left out.

Older opsets hold in attributes what newer ones take as inputs: Slice has inputs, and steps, since opset
10. Before, known bounds are attributes, and a Gather serves for computed ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from onnx_spatial.errors import Code, ConversionError
from onnx_spatial.lowering.core import cost_model
from onnx_spatial.lowering.core.cost_model import Work
from onnx_spatial.lowering.core.nodes import INT64_MAX
from onnx_spatial.lowering.core.sizes import (
    LARGEST_RANGE,
    TYPICAL_DIM,
    Size,
    SizeArithmetic,
)

__all__ = ["INT64_MAX", "TYPICAL_DIM", "Emitter", "Size", "Tensor"]

#: The opset in which Slice got its bounds as inputs.
SLICE_INPUTS = 10


@dataclass(frozen=True)
class Tensor:
    """A value and its dims, known or computed at run time.

    Attributes:
        value: the value.
        dims: its shape.
        itemsize: bytes of an element, for estimates of time.
    """

    value: ir.Value
    dims: tuple[Size, ...]
    itemsize: int = 8

    @property
    def rank(self) -> int:
        """Number of dims."""
        return len(self.dims)


class Emitter(SizeArithmetic):
    """The nodes that one operator is lowered to.

    Attributes:
        rank_limit: the largest rank that the target of the lowering admits; None for any.
        max_rank: the largest rank of any tensor so far.
        slices_by_gather: whether a Gather replaces a Slice that the opset lacks.
    """

    def __init__(self, opset: int, rank_limit: int | None = None, *, defers: bool = False) -> None:
        super().__init__(opset, defers=defers)
        self.rank_limit = rank_limit
        self.max_rank = 0
        self.slices_by_gather = False
        #: What was reshaped: another Reshape reads it.
        self._before_reshape: dict[ir.Value, Tensor] = {}

    def tensor(self, value: ir.Value, dims: Sequence[Size], itemsize: int = 8) -> Tensor:
        """Return a value with its dims, and record its rank."""
        self.max_rank = max(self.max_rank, len(dims))
        return Tensor(value, tuple(dims), itemsize)

    def reshape(self, x: Tensor, dims: Sequence[Size], *, exact: bool = False) -> Tensor:
        """Reshape to `dims`, with as little arithmetic as zero-sized tensors allow.

        A literal 0 copies the input's dim unless allowzero is set (opset 14); -1 fails beside a
        zero-sized dim, so it is used only where every other dim is known and not 0.

        Args:
            x: the tensor.
            dims: its new shape.
            exact: whether a run whose number of elements differs from that of `dims` must fail.
        """
        if not exact:
            x = self._reshaped_from(x, dims)
        if _are_same(dims, x.dims):
            return x
        literal = self._literal_shape(x, dims, exact)
        if literal is not None:
            shape, allow_zero = literal
            extra: dict[str, Any] = {"allowzero": 1} if allow_zero else {}
            value = self.op("Reshape", x.value, self.ints(shape, "shape"), **extra)
        else:
            kept = _same_places(x, dims)
            sizes = [
                0 if self.opset < 14 and k and not isinstance(d, int) else d
                for d, k in zip(dims, kept, strict=True)
            ]
            value = self.reshape_exactly(x.value, sizes, kept)
        if not exact:
            self._before_reshape[value] = x
        return self.tensor(value, dims, x.itemsize)

    def _reshaped_from(self, x: Tensor, dims: Sequence[Size]) -> Tensor:
        """Return what a Reshape to `dims` reads: `x`, or what `x` was reshaped from."""
        source = self._before_reshape.get(x.value)
        if source is None or _are_same(dims, x.dims):
            return x
        # The shape may be a constant from the one, and computed from the other.
        again = self._literal_shape(source, dims, exact=False)
        return x if again is None and self._literal_shape(x, dims, exact=False) else source

    def _literal_shape(
        self, x: Tensor, dims: Sequence[Size], exact: bool
    ) -> tuple[list[int], bool] | None:
        """Return the shape of a Reshape and whether it needs allowzero; None if it is computed."""
        unknown = [i for i, d in enumerate(dims) if not isinstance(d, int)]
        kept = _same_places(x, dims)
        zero_free = all(d != 0 for d in dims if isinstance(d, int))
        if unknown and zero_free and len(unknown) == 1 and not exact:
            return [d if isinstance(d, int) else -1 for d in dims], False
        if unknown and zero_free and all(kept[i] for i in unknown):
            return [d if isinstance(d, int) else 0 for d in dims], False
        if unknown:
            return None
        literal = [d for d in dims if isinstance(d, int)]
        allow_zero = any(d == 0 and not copied for d, copied in zip(literal, kept, strict=True))
        if allow_zero and self.opset < 14:
            if literal.count(0) > 1:
                raise ConversionError(
                    f"a Reshape to {literal} needs allowzero, opset 14", code=Code.OPSET_TOO_OLD
                )
            allow_zero, literal[literal.index(0)] = False, -1
        return literal, allow_zero

    def reshape_exactly(
        self, value: ir.Value, dims: Sequence[Size | ir.Value], kept: Sequence[bool] = ()
    ) -> ir.Value:
        """Reshape to sizes none of which is inferred by the Reshape.

        Before allowzero one of them may be 0: it is replaced by -1.

        Args:
            value: the tensor.
            dims: its new shape; an entry may be a 1-D value of several sizes.
            kept: for each dim whether it is the input's; a 0 is then copied. None by default.
        """
        shape = self.vector(dims, "shape")
        if self.opset >= 14:
            return self.op("Reshape", value, shape, allowzero=1)
        instead = self.ints([0 if k else -1 for k in kept] or [-1], "instead_of_0")
        empty = self.op("Equal", shape, self.ints([0], "zero"))
        return self.op("Reshape", value, self.where(empty, instead, shape))

    def reshape_to(self, value: ir.Value, dims: Sequence[int]) -> ir.Value:
        """Reshape to known dims, one of which may be -1; no dim may become zero."""
        return self.op("Reshape", value, self.ints(dims, "shape"))

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        """Permute the axes."""
        if list(perm) == sorted(perm):
            return x

        def work() -> Work:
            return cost_model.transpose(tuple(map(self.guess, x.dims)), tuple(perm), x.itemsize)

        value = self.op("Transpose", x.value, perm=list(perm), work=work)
        return self.tensor(value, [x.dims[p] for p in perm], x.itemsize)

    def transpose_as(self, x: Tensor, dims: Sequence[Size], perm: Sequence[int]) -> Tensor:
        """Reshape to `dims` and permute these, with another dim of 1 where that is faster."""

        def moved() -> tuple[int, tuple[int, ...]] | None:
            sizes = tuple(map(self.guess, dims))
            return cost_model.swap_inwards(sizes, tuple(perm), x.itemsize, self.rank_limit)

        votes = self.in_each_case(moved)
        swap = next(filter(None, votes), None)
        if swap is None or 2 * votes.count(None) > len(votes):
            return self.transpose(self.reshape(x, dims), perm)
        place, perm = swap
        return self.transpose(self.reshape(x, [*dims[:place], 1, *dims[place:]]), perm)

    def permute(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        """Permute the axes by a Transpose of the lowest rank, or by a Reshape where none moves."""
        groups = cost_model.axis_groups(perm, [dim == 1 for dim in x.dims])
        inner = sorted(groups)
        if groups != inner:
            dims = [self.product([x.dims[axis] for axis in group]) for group in inner]
            y = self.transpose_as(x, dims, [inner.index(group) for group in groups])
        else:
            y = x
        return self.reshape(y, [x.dims[axis] for axis in perm])

    def slice(
        self,
        x: Tensor,
        axes: Sequence[int],
        starts: Sequence[Size],
        ends: Sequence[Size],
        dims: Sequence[Size],
        steps: Sequence[int] | None = None,
    ) -> Tensor:
        """Slice to the dims `dims`; an end of INT64_MAX is the end of the axis."""
        steps = steps or [1] * len(axes)
        if self.opset < SLICE_INPUTS:
            return self._slice_by_attributes(x, axes, starts, ends, dims, steps)
        inputs = [self.vector(starts, "starts"), self.vector(ends, "ends"), self.ints(axes, "axes")]
        strided = any(step != 1 for step in steps)
        if strided:
            inputs.append(self.ints(steps, "steps"))
        inner = max(axes)
        elementwise = steps[list(axes).index(inner)] != 1
        work = self._slice_work(dims, inner + elementwise, x, strided, elementwise)
        return self.tensor(self.op("Slice", x.value, *inputs, work=work), dims, x.itemsize)

    def _slice_work(
        self, dims: Sequence[Size], first: int, x: Tensor, strided: bool, elementwise: bool
    ) -> Callable[[], Work]:
        """Return the work of a Slice whose contiguous pieces are the axes from `first` on."""

        def work() -> Work:
            run, count = self.elements_in(dims[first:]), self.elements_in(dims)
            regime = "slice" if strided else "crop"
            if elementwise and run == 1:
                regime = "slice elements"
            return cost_model.copies(regime, count // max(run, 1), count * x.itemsize)

        return work

    def _slice_by_attributes(
        self,
        x: Tensor,
        axes: Sequence[int],
        starts: Sequence[Size],
        ends: Sequence[Size],
        dims: Sequence[Size],
        steps: Sequence[int],
    ) -> Tensor:
        """Slice before opset 10: by attributes where the bounds are known, else by a Gather."""
        literal: list[tuple[int, int, int]] = []
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
            known = isinstance(start, int) and start >= 0
            if known and isinstance(end, int) and step == 1:
                assert isinstance(start, int)
                literal.append((axis, start, end))
                continue
            first = start if not isinstance(start, int) or known else self.add(x.dims[axis], start)
            count = dims[axis]
            if isinstance(first, int) and isinstance(count, int) and count <= LARGEST_RANGE:
                places = self.ints([first + i * step for i in range(count)], "index")
            else:
                places = self.range(count, step)
                if first != 0:
                    places = self.op("Add", places, self.size(first))
            self.slices_by_gather = True
            x = self.gather(x, self.tensor(places, [count]), axis)
        if not literal:
            return self.tensor(x.value, dims, x.itemsize)
        first = max(axis for axis, _, _ in literal)
        value = self.op(
            "Slice",
            x.value,
            axes=[axis for axis, _, _ in literal],
            starts=[start for _, start, _ in literal],
            ends=[end for _, _, end in literal],
            work=self._slice_work(dims, first, x, False, False),
        )
        return self.tensor(value, dims, x.itemsize)

    def split(self, x: Tensor, axis: int, parts: int) -> list[Tensor]:
        """Split into equal parts along `axis`; they may have one more axis, of size 1."""
        if not isinstance(x.dims[axis], int) or x.dims[axis] == 0:
            # onnxruntime does not split an axis of 0.
            length = self.div(x.dims[axis], parts)
            x = self.reshape(x, [*x.dims[:axis], parts, length, *x.dims[axis + 1 :]])
        part = list(x.dims)
        part[axis] = self.div(x.dims[axis], parts)

        def work() -> Work:
            run, count = self.elements_in(part[axis:]), self.elements_in(x.dims)
            runs, size = count // max(run, 1), count * x.itemsize
            return cost_model.copies("split elements" if run == 1 else "split", runs, size, parts)

        attributes = {"axis": axis} | ({"num_outputs": parts} if self.opset >= 18 else {})
        values = self.add_node("Split", [x.value], parts, work, attributes)
        return [self.tensor(value, part, x.itemsize) for value in values]

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        """Join along `axis`."""
        dims = list(parts[0].dims)
        for part in parts[1:]:
            dims[axis] = self.add(dims[axis], part.dims[axis])
        if len(parts) == 1:
            return parts[0]

        def work() -> Work:
            run = min(self.elements_in(part.dims[axis:]) for part in parts)
            runs = len(parts) * self.elements_in(dims[:axis])
            size = self.elements_in(dims) * parts[0].itemsize
            return cost_model.concat_work(len(parts), runs, size, single=run == 1)

        value = self.op("Concat", *(part.value for part in parts), axis=axis, work=work)
        return self.tensor(value, dims, parts[0].itemsize)

    def gather(self, x: Tensor, indices: Tensor, axis: int) -> Tensor:
        """Gather along `axis`; the dims of the indices replace it."""
        dims = (*x.dims[:axis], *indices.dims, *x.dims[axis + 1 :])

        def work() -> Work:
            count, row = self.elements_in(dims), self.elements_in(x.dims[axis + 1 :])
            return cost_model.copies("gather", count // max(row, 1), count * x.itemsize)

        value = self.op("Gather", x.value, indices.value, axis=axis, work=work)
        return self.tensor(value, dims, x.itemsize)

    def gather_elements(self, x: Tensor, indices: ir.Value, count: Size) -> Tensor:
        """Gather `count` elements of a 1-D tensor, by 1-D indices."""

        def work() -> Work:
            elements = self.elements_in([count])
            return cost_model.copies("gather elements", elements, elements * x.itemsize)

        value = self.op("GatherElements", x.value, indices, axis=0, work=work)
        return self.tensor(value, [count], x.itemsize)


def _are_same(some: Sequence[Size], others: Sequence[Size]) -> bool:
    return len(some) == len(others) and all(a == b for a, b in zip(some, others, strict=True))


def _same_places(x: Tensor, dims: Sequence[Size]) -> list[bool]:
    """Tell for each of `dims` whether `x` has it in the same place."""
    return [axis < x.rank and dim == x.dims[axis] for axis, dim in enumerate(dims)]
