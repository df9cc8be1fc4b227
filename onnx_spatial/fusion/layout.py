"""Changes of layout: the axes of a value in another order, with axes of size 1 added or removed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_spatial.model.graph.new_nodes import Draft

Array = npt.NDArray[np.generic]

#: Axes added or removed that are paired with each other; more are left as they are.
_MOST_PAIRED = 3

#: What a node costs in comparison to others: a Transpose moves memory.
_WEIGHTS = {"Squeeze": 2, "Transpose": 3, "Unsqueeze": 2}

#: The type of a node that changes a layout, and its perm or axes.
Step = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Layout:
    """Change of layout from a value to another with the same elements.

    Attributes:
        rank: number of axes of the value.
        axes: for each axis of the result the axis of the value, or None for a new one of size 1.
            Axes of the value that are missing have size 1 and are removed.
    """

    rank: int
    axes: tuple[int | None, ...]

    @classmethod
    def identity(cls, rank: int) -> Layout:
        """Return the change that changes nothing."""
        return cls(rank, tuple(range(rank)))

    @property
    def is_identity(self) -> bool:
        """Whether nothing changes."""
        return self.axes == tuple(range(self.rank))

    @property
    def removed(self) -> tuple[int, ...]:
        """Axes of the value that are removed."""
        return tuple(axis for axis in range(self.rank) if axis not in self.axes)

    @property
    def keeps_order(self) -> bool:
        """Whether the axes stay in their order, and so the elements in memory."""
        kept = [axis for axis in self.axes if axis is not None]
        return kept == sorted(kept)

    @property
    def inverse(self) -> Layout:
        """The change back."""
        return _inverse_of(self)

    def then(self, other: Layout) -> Layout:
        """Return this change followed by another one, with as few steps as possible."""
        return _compose_layouts(self, other)

    @property
    def paired(self) -> Layout:
        """The same change, with added axes that are removed ones where that takes fewer steps."""
        return _pair_axes(self)

    def place(self, axis: int) -> int:
        """Return the axis of the result that is an axis of the value, which may be negative."""
        return self.axes.index(axis % self.rank)

    def of_operand(self, rank: int) -> Layout:
        """Return the change of an operand of fewer axes, which broadcasting adds in front."""
        missing = self.rank - rank
        if not missing:
            return self
        axes = [None if a is None or a < missing else a - missing for a in self.axes]
        while len(axes) > rank and axes[0] is None:
            del axes[0]
        return Layout(rank, tuple(axes))

    def change_array(self, array: Array) -> Array:
        """Change the layout of a constant."""
        kept = [axis for axis in self.axes if axis is not None]
        moved = array.transpose((*self.removed, *kept)).reshape(
            tuple(1 if axis is None else array.shape[axis] for axis in self.axes)
        )
        return np.ascontiguousarray(moved)

    def steps(self) -> tuple[Step, ...]:
        """Return the nodes: Squeeze, Transpose, Unsqueeze, as far as they are needed."""
        return _steps_of(self)


@cache
def _pair_axes(layout: Layout) -> Layout:
    removed = layout.removed
    added = [place for place, axis in enumerate(layout.axes) if axis is None]
    if not removed or not added or max(len(removed), len(added)) > _MOST_PAIRED:
        return layout
    return min(
        _list_pairings(layout, removed, added),
        key=lambda pairing: (weight_of(pairing), _count_inversions(pairing)),
    )


def _list_pairings(
    layout: Layout, removed: Sequence[int], added: Sequence[int]
) -> Iterator[Layout]:
    count = min(len(removed), len(added))
    for places in itertools.combinations(added, count):
        for sources in itertools.permutations(removed, count):
            axes = list(layout.axes)
            for place, axis in zip(places, sources, strict=True):
                axes[place] = axis
            yield Layout(layout.rank, tuple(axes))


def _count_inversions(layout: Layout) -> int:
    kept = [axis for axis in layout.axes if axis is not None]
    return sum(a > b for a, b in itertools.combinations(kept, 2))


@cache
def _steps_of(layout: Layout) -> tuple[Step, ...]:
    steps: list[Step] = []
    if removed := layout.removed:
        steps.append(("Squeeze", removed))
    kept = [axis for axis in layout.axes if axis is not None]
    if kept != sorted(kept):
        steps.append(("Transpose", tuple(sorted(kept).index(axis) for axis in kept)))
    if added := tuple(place for place, axis in enumerate(layout.axes) if axis is None):
        steps.append(("Unsqueeze", added))
    return tuple(steps)


@cache
def _inverse_of(layout: Layout) -> Layout:
    axes = layout.axes
    places = (axes.index(axis) if axis in axes else None for axis in range(layout.rank))
    return Layout(len(axes), tuple(places))


@cache
def _compose_layouts(first: Layout, second: Layout) -> Layout:
    axes = (None if axis is None else first.axes[axis] for axis in second.axes)
    return Layout(first.rank, tuple(axes)).paired


@cache
def weight_of(layout: Layout) -> int:
    """Return what the nodes of a change cost in comparison to others."""
    return sum(_WEIGHTS[op_type] for op_type, _ in _steps_of(layout))


def ways_to_make(contents: Iterable[Layout], rank: int) -> Mapping[Layout, tuple[Layout, Layout]]:
    """Say how to make layouts of a value of this rank: each from which other one, and by which step.

    Intermediate layouts are included. A step without nodes only writes a layout in another way.
    """
    return _find_ways(tuple(sorted(contents, key=weight_of)), rank)


@cache
def _find_ways(contents: tuple[Layout, ...], rank: int) -> Mapping[Layout, tuple[Layout, Layout]]:
    identity = Layout.identity(rank)
    made: dict[Layout, tuple[Layout, Layout]] = {}
    for content in contents:
        if content == identity or content in made:
            continue
        base = min((identity, *made), key=lambda known: weight_of(known.inverse.then(content)))
        for step in single_steps(base.inverse.then(content)):
            behind = base.then(step)
            if behind != identity:
                made.setdefault(behind, (base, step))
            base = behind
        made.setdefault(content, (base, Layout.identity(len(base.axes))))
    return made


def write_change(layout: Layout, value: ir.Value, draft: Draft, opset: int) -> ir.Value:
    """Draft the nodes of a change."""
    for op_type, numbers in layout.steps():
        if op_type == "Transpose":
            node = ir.node(op_type, [value], {"perm": numbers})
        elif opset < 13:
            node = ir.node(op_type, [value], {"axes": numbers})
        else:
            axes = draft.constant(np.array(numbers, np.int64), "axes")
            node = ir.node(op_type, [value, axes])
        draft.nodes.append(node)
        value = node.outputs[0]
    return value


def single_steps(layout: Layout) -> list[Layout]:
    """Cut a change into changes of one node each."""
    parts, rank = [], layout.rank
    for op_type, numbers in layout.steps():
        axes: list[int | None] = [a for a in range(rank) if a not in numbers]
        if op_type == "Transpose":
            axes = list(numbers)
        elif op_type == "Unsqueeze":
            axes = list(range(rank))
            for place in numbers:
                axes.insert(place, None)
        parts.append(Layout(rank, tuple(axes)))
        rank = len(axes)
    return parts
