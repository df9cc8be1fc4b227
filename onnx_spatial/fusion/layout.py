"""Changes of layout, and which axes an operator looks along: it commutes with what happens along others.

    Layout: the axes of a value in another order, with axes of size 1 added or removed

    op(SpaceToBatch u) = SpaceToBatch(op u)     no axis of op is split       `dilated_conv.nodes`
    op(Transpose t) = Transpose(op' t)          op' names the new places     `layout_graph`

operators                                  look along
single elements, of one input or several   no axis: the traits UNARY and BROADCASTS
Transpose, Squeeze, Unsqueeze, Reshape     no axis: they change the layout (`change_of`)
`NAMED`                                    the axes that an attribute or an input names (`axes_of`)
BatchNormalization                         axis 1
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_spatial.fusion.graph_view import NodeView
from onnx_spatial.fusion.rules import Reason
from onnx_spatial.model import op_traits
from onnx_spatial.model.graph.replace_nodes import Draft
from onnx_spatial.model.op_traits import Trait

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
    def weight(self) -> int:
        """What the nodes of the change cost in comparison to others."""
        return sum(_WEIGHTS[op_type] for op_type, _ in self.steps)

    @cached_property
    def inverse(self) -> Layout:
        """The change back."""
        places = (self.axes.index(a) if a in self.axes else None for a in range(self.rank))
        return Layout(len(self.axes), tuple(places))

    def then(self, other: Layout) -> Layout:
        """Return this change followed by another one, with as few steps as possible."""
        axes = (None if axis is None else self.axes[axis] for axis in other.axes)
        return Layout(self.rank, tuple(axes)).paired

    @cached_property
    def paired(self) -> Layout:
        """The same change, with added axes that are removed ones where that takes fewer steps."""
        removed, added = self.removed, [i for i, axis in enumerate(self.axes) if axis is None]
        if not removed or not added or max(len(removed), len(added)) > _MOST_PAIRED:
            return self
        count = min(len(removed), len(added))
        places = itertools.combinations(added, count)
        pairings = []
        for pairs in itertools.product(places, itertools.permutations(removed, count)):
            axes = dict(enumerate(self.axes)) | dict(zip(*pairs, strict=True))
            pairings.append(Layout(self.rank, tuple(axes.values())))
        return min(pairings, key=lambda pairing: (pairing.weight, pairing.inversions))

    @property
    def inversions(self) -> int:
        """Number of pairs of axes that change their order."""
        kept = [axis for axis in self.axes if axis is not None]
        return sum(a > b for a, b in itertools.combinations(kept, 2))

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

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The nodes: Squeeze, Transpose, Unsqueeze, as far as they are needed."""
        steps: list[Step] = []
        if removed := self.removed:
            steps.append(("Squeeze", removed))
        kept = [axis for axis in self.axes if axis is not None]
        if not self.keeps_order:
            steps.append(("Transpose", tuple(sorted(kept).index(axis) for axis in kept)))
        if added := tuple(place for place, axis in enumerate(self.axes) if axis is None):
            steps.append(("Unsqueeze", added))
        return tuple(steps)

    def single_steps(self) -> list[Layout]:
        """Cut the change into changes of one node each."""
        parts, rank = [], self.rank
        for op_type, numbers in self.steps:
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


@cache
def ways_to_make(contents: frozenset[Layout], rank: int) -> Mapping[Layout, tuple[Layout, Layout]]:
    """Say how to make layouts of a value of this rank: each from which other one, and by which step.

    Intermediate layouts are included. A step without nodes only writes a layout in another way.
    """
    identity = Layout.identity(rank)
    made: dict[Layout, tuple[Layout, Layout]] = {}
    for content in sorted(contents, key=lambda content: content.weight):
        if content == identity or content in made:
            continue
        base = min((identity, *made), key=lambda known: known.inverse.then(content).weight)
        for step in base.inverse.then(content).single_steps():
            behind = base.then(step)
            if behind != identity:
                made.setdefault(behind, (base, step))
            base = behind
        made.setdefault(content, (base, Layout.identity(len(base.axes))))
    return made


def write_change(layout: Layout, value: ir.Value, draft: Draft, opset: int) -> ir.Value:
    """Draft the nodes of a change."""
    for op_type, numbers in layout.steps:
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


#: Operators that only change the order of the axes, or add and remove axes of size 1.
CHANGES = frozenset({"Transpose", "Squeeze", "Unsqueeze", "Reshape"})
QUANTIZING = frozenset({"DequantizeLinear", "QuantizeLinear"})
#: Operators that, before opset 13, look along all axes from `axis` on.
FLATTENING = frozenset({"Hardmax", "LogSoftmax", "Softmax"})


@dataclass(frozen=True)
class Name:
    """Where an operator names the axes that it looks along.

    Attributes:
        attribute: its name.
        default: the axis without the attribute; None if it must be there.
        input: the index of the input that replaces the attribute in newer opsets; None if none does.
    """

    attribute: str
    default: int | None = None
    input: int | None = None


NAMED: Mapping[str, Name] = {
    **dict.fromkeys(op_traits.having(Trait.REDUCES), Name("axes", input=1)),
    **dict.fromkeys(("ArgMax", "ArgMin", "Concat", "Split"), Name("axis", 0)),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "LpNormalization", "Softmax"), Name("axis", -1)),
    **dict.fromkeys(QUANTIZING, Name("axis", 1)),
    "Slice": Name("axes", input=3),
}


@dataclass(frozen=True)
class Axes:
    """The axes that a node looks along, and what names them.

    Attributes:
        axes: none of them negative.
        name: the attribute, or the index of the input; None if the operator has no choice.
    """

    axes: tuple[int, ...]
    name: str | int | None = None


def axes_of(node: NodeView, rank: int) -> Axes | Reason:
    """Return the axes that a node of `NAMED`, or a BatchNormalization, looks along, or why not."""
    op_type = node.op_type
    if op_type == "BatchNormalization":
        is_training = node.integer("training_mode", 0) != 0 or node.integer("spatial", 1) != 1
        return f"{op_type} is in training mode" if is_training else Axes((1,))
    name = NAMED[op_type]
    if name.attribute == "axes":
        axes = node.axes(name.input or 0)
        if not axes:
            return f"the axes of {op_type} are unknown, or all"
        held = name.attribute if name.attribute in node.attributes else name.input
        return Axes(tuple(axis % rank for axis in axes), held)
    axis = node.integer(name.attribute, -1 if name.default is None else name.default)
    if axis is None:
        return f"the axis of {op_type} is unknown"
    if op_type in QUANTIZING:
        scale = node.dims(1)
        if scale is None or len(scale) > 1 or node.integer("block_size", 0) != 0:
            return f"{op_type} is neither per tensor nor per channel"
        if not scale or scale[0].constant == 1 or node.opset < 13:
            return Axes(())
    if op_type in FLATTENING and node.opset < 13:
        is_last = node.integer("axis", 1) in (-1, rank - 1)
        return Axes((rank - 1,)) if is_last else f"{op_type} looks along several axes"
    return Axes((axis % rank,), name.attribute)


def change_of(node: NodeView, rank: int) -> Layout | Reason:
    """Return the change of layout that a node of `CHANGES` makes of a value, or why it is none."""
    if node.op_type == "Transpose":
        perm = node.integers("perm", tuple(reversed(range(rank))))
        if perm is None or sorted(perm) != list(range(rank)):
            return "the permutation of Transpose is unknown"
        return Layout(rank, perm)
    if node.op_type == "Reshape":
        return _change_of_reshape(node, rank)
    axes = node.axes(1)
    if axes is None or not (axes or node.op_type == "Unsqueeze"):
        return f"the axes of {node.op_type} are unknown"
    if node.op_type == "Squeeze":
        removed = {axis % rank for axis in axes}
        return Layout(rank, tuple(axis for axis in range(rank) if axis not in removed))
    places = range(rank + len(axes))
    added = {axis % len(places) for axis in axes} if axes else set()
    if len(added) != len(axes):
        return "the axes of Unsqueeze are not different"
    old = iter(range(rank))
    return Layout(rank, tuple(None if place in added else next(old) for place in places))


def _change_of_reshape(node: NodeView, rank: int) -> Layout | Reason:
    """Return the change that a Reshape makes which only adds and removes axes of size 1.

        [n, h, w, 1] -> [n, 1, h, w]        size 1 goes, size 1 comes; n, h and w keep their order

    Sizes are compared as polynomials: what is not provably the same counts as different. A size of -1
    is that of the one axis that has no other place.
    """
    dims, target = node.dims(0), node.entries(1) if node.opset >= 5 else None
    if dims is None or target is None:
        return "the shape that Reshape gives is unknown"
    if node.integer("allowzero", 0) == 0:
        target = tuple(
            dims[i] if t.constant == 0 and i < len(dims) else t for i, t in enumerate(target)
        )
    large = [axis for axis, size in enumerate(dims) if size.constant != 1]
    slots = [place for place, size in enumerate(target) if size.constant != 1]
    if len(slots) == len(large) + 1:  # -1 is inferred to be 1
        slots = [place for place in slots if target[place].constant != -1]
    pairs = dict(zip(slots, large, strict=False))
    if len(slots) != len(large) or any(
        target[place] != dims[axis] and target[place].constant != -1
        for place, axis in pairs.items()
    ):
        is_known = all(size.constant is not None for size in (*dims, *target))
        return f"Reshape splits or joins axes{'' if is_known else ', or may do so'}"
    return Layout(rank, tuple(map(pairs.get, range(len(target))))).paired
