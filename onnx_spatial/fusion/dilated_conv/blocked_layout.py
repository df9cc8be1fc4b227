"""How a value inside a region stands for one outside of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class BlockedLayout:
    """A value t of the original that is SpaceToBatch of a value u, with blocks and without pads.

    Attributes:
        blocks: block of each axis that SpaceToBatch splits or pads, in the order in which the blocks
            lie in the batch axis. An axis with block 1 is one that was padded only.
        axes: which axis of t, and of u, each of them is.
        batch: which axis is the batch axis.
        rank: number of dims.
        element_types: ONNX element types that it may have; empty if unknown.
    """

    blocks: tuple[int, ...]
    axes: tuple[int, ...]
    batch: int
    rank: int
    element_types: frozenset[int]

    @property
    def taken(self) -> tuple[int, ...]:
        """Axes along which an operator may not mix or tell apart elements."""
        return (self.batch, *self.axes)

    @property
    def order(self) -> tuple[tuple[int, int], ...]:
        """(axis, block) of the axes that lie in the batch axis, the outermost first."""
        return tuple((a, b) for a, b in zip(self.axes, self.blocks, strict=True) if b > 1)

    def is_free(self, axis: int) -> bool:
        """Whether an axis, maybe counted from the end, is neither batch nor blocked."""
        return axis % self.rank not in self.taken

    def aligned_with(self, other: BlockedLayout) -> bool:
        """Whether the axes of two values are blocked alike."""
        mine, others = (replace(s, element_types=frozenset()) for s in (self, other))
        return mine == others

    def with_types(self, element_types: frozenset[int]) -> BlockedLayout:
        """The same for other element types."""
        return replace(self, element_types=element_types)

    def moved(self, places: Sequence[int], rank: int) -> BlockedLayout:
        """The axes at other places.

        Args:
            places: new place of each axis; -1 for one that goes.
            rank: number of dims afterwards.
        """
        axes = tuple(places[axis] for axis in self.axes)
        return replace(self, axes=axes, batch=places[self.batch], rank=rank)
