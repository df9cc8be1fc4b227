"""Describe how the axes of a value t in blocks hold those of the value u that it stands for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from onnx_spatial.model.symbolic.symbolic_values import Polynomial


@dataclass(frozen=True)
class BlockedLayout:
    """Layout of a *value in blocks*: t = SpaceToBatch(u) with these blocks and without pads.

    Attributes:
        blocks: block of each axis that SpaceToBatch splits or pads, in the order in which the blocks
            lie in the batch axis; 1 for an axis that is only padded.
        axes: the axis of t, and of u, for each of these.
        batch: the batch axis.
        rank: number of dims.
        element_types: possible ONNX element types; empty if unknown.
        nesting: the order of the blocks in the batch axis if an axis has several there; empty if not.
        rows: sizes of the axes of t that a Reshape has merged into its first axis: all but the last.
            Then t is a matrix; the layout describes the axes of u, which are not joined.
    """

    blocks: tuple[int, ...]
    axes: tuple[int, ...]
    batch: int
    rank: int
    element_types: frozenset[int]
    nesting: tuple[tuple[int, int], ...] = ()
    rows: tuple[Polynomial, ...] = ()

    @property
    def taken(self) -> tuple[int, ...]:
        """Batch and blocked axes: no operator may mix elements along them, or tell them apart."""
        return (self.batch, *self.axes)

    @property
    def order(self) -> tuple[tuple[int, int], ...]:
        """(axis, block) of the axes that lie in the batch axis, the outermost first."""
        pairs = zip(self.axes, self.blocks, strict=True)
        return self.nesting or tuple((axis, block) for axis, block in pairs if block > 1)

    def is_free(self, *axes: int | None) -> bool:
        """Return whether axes, possibly negative, are known and neither batch nor blocked."""
        return all(axis is not None and axis % self.rank not in self.taken for axis in axes)

    def may_vary(self, dims: Sequence[Polynomial]) -> bool:
        """Return whether a value of these dims may vary along a taken axis when broadcast."""
        first = self.rank - len(dims)
        return any(dims[axis - first].constant != 1 for axis in self.taken if axis >= first)

    def aligned_with(self, other: BlockedLayout) -> bool:
        """Return whether the axes of two values are blocked alike."""
        return self.with_types(other.element_types) == other

    def with_types(self, element_types: frozenset[int]) -> BlockedLayout:
        """Return the same layout with other element types."""
        return replace(self, element_types=element_types)

    def moved(self, places: Sequence[int], rank: int) -> BlockedLayout:
        """Return the layout, of another rank, with each axis at another place, -1 if it is dropped."""
        axes = tuple(places[axis] for axis in self.axes)
        nesting = tuple((places[axis], block) for axis, block in self.nesting)
        return replace(self, axes=axes, batch=places[self.batch], rank=rank, nesting=nesting)

    @property
    def unsplit(self) -> tuple[int, ...]:
        """The axes that are only padded or cropped."""
        return tuple(a for a, b in zip(self.axes, self.blocks, strict=True) if b == 1)

    def with_free(self, axes: Collection[int]) -> BlockedLayout:
        """Return the layout in which some of the unsplit axes are free."""
        pairs = zip(self.axes, self.blocks, strict=True)
        kept = [(axis, block) for axis, block in pairs if block > 1 or axis not in axes]
        return replace(self, axes=tuple(a for a, _ in kept), blocks=tuple(b for _, b in kept))

    def with_unsplit(self, axes: Sequence[int]) -> BlockedLayout:
        """Return the layout in which some free axes may be padded or cropped."""
        return replace(self, axes=(*self.axes, *axes), blocks=(*self.blocks, *(1 for _ in axes)))

    def broadcast(self, rank: int) -> BlockedLayout:
        """Return the layout with new axes in front."""
        return self.moved(range(rank - self.rank, rank), rank)

    def without(self, axes: Sequence[int]) -> BlockedLayout:
        """Return the layout without some free axes."""
        gone = {axis % self.rank for axis in axes}
        kept = [axis for axis in range(self.rank) if axis not in gone]
        return self.moved([-1 if a in gone else kept.index(a) for a in range(self.rank)], len(kept))
