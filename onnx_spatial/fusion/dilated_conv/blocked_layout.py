"""Describe how the axes of a value t in blocks hold those of the value u that it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


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
    """

    blocks: tuple[int, ...]
    axes: tuple[int, ...]
    batch: int
    rank: int
    element_types: frozenset[int]

    @property
    def taken(self) -> tuple[int, ...]:
        """Batch and blocked axes: no operator may mix elements along them, or tell them apart."""
        return (self.batch, *self.axes)

    @property
    def order(self) -> tuple[tuple[int, int], ...]:
        """(axis, block) of the axes that lie in the batch axis, the outermost first."""
        return tuple((a, b) for a, b in zip(self.axes, self.blocks, strict=True) if b > 1)

    def is_free(self, axis: int) -> bool:
        """Whether an axis, possibly negative, is neither batch nor blocked."""
        return axis % self.rank not in self.taken

    def aligned_with(self, other: BlockedLayout) -> bool:
        """Whether the axes of two values are blocked alike."""
        return self.with_types(other.element_types) == other

    def with_types(self, element_types: frozenset[int]) -> BlockedLayout:
        """Return the same layout with other element types."""
        return replace(self, element_types=element_types)

    def moved(self, places: Sequence[int], rank: int) -> BlockedLayout:
        """Return the layout with its axes at other places.

        Args:
            places: new place of each axis; -1 for one that is dropped.
            rank: number of dims afterwards.
        """
        axes = tuple(places[axis] for axis in self.axes)
        return replace(self, axes=axes, batch=places[self.batch], rank=rank)

    def without(self, axes: Sequence[int]) -> BlockedLayout:
        """Return the layout without some free axes."""
        gone = {axis % self.rank for axis in axes}
        kept = [axis for axis in range(self.rank) if axis not in gone]
        return self.moved([-1 if a in gone else kept.index(a) for a in range(self.rank)], len(kept))
