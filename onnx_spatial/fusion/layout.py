"""Changes of layout, which nodes commute with them, and the layouts that a graph makes of its values.

    Layout: the axes of a value in another order, with axes of size 1 added or removed

    op(SpaceToBatch u) = SpaceToBatch(op u)     no axis of op is split       `dilated_conv.nodes`
    op(Transpose t) = Transpose(op' t)          op' names the new places     `Adapted`

1. An operator commutes with what happens along the axes that it does not look along:

   operators                                  look along
   single elements, of one input or several   no axis: the traits UNARY and BROADCASTS
   Transpose, Squeeze, Unsqueeze, Reshape     no axis: they change the layout (`change_of`)
   `NAMED`                                    the axes that an attribute or an input names (`axes_of`)
   BatchNormalization                         axis 1

2. A graph is values and the layouts that are made of them. It is read as far as it is needed: a model
   may be much larger than the part around its operators.

       s -> Squeeze -> t -> Transpose -> u      one value s, and its forms t and u

3. What a node is in another layout. Operators that sum along an axis commute only with changes that keep
   the order of the elements: another order rounds otherwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import dropwhile

import numpy as np
import onnx_ir as ir

from onnx_spatial.fusion.rules import Reason
from onnx_spatial.fusion.views import GraphView, NodeInfo
from onnx_spatial.maps.elements import Array
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.new_nodes import Draft
from onnx_spatial.model.op_traits import Trait

#: Axes added or removed that are paired with each other; more are left as they are.
_MAX_PAIRED = 3

#: What a node costs in comparison to others: a Transpose moves memory.
_WEIGHTS = {"Squeeze": 2, "Transpose": 3, "Unsqueeze": 2}

#: The type of a node that changes a layout, and its perm or axes.
ChangeStep = tuple[str, tuple[int, ...]]


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
        if not removed or not added or max(len(removed), len(added)) > _MAX_PAIRED:
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
    def steps(self) -> tuple[ChangeStep, ...]:
        """The nodes: Squeeze, Transpose, Unsqueeze, as far as they are needed."""
        steps: list[ChangeStep] = []
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
def ways_to_make(layouts: frozenset[Layout], rank: int) -> Mapping[Layout, tuple[Layout, Layout]]:
    """Say how to make layouts of a value of this rank: each from which other one, and by which step.

    Intermediate layouts are included. A step without nodes only writes a layout in another way.
    """
    identity = Layout.identity(rank)
    ways: dict[Layout, tuple[Layout, Layout]] = {}
    for layout in sorted(layouts, key=lambda layout: layout.weight):
        if layout == identity or layout in ways:
            continue
        base = min((identity, *ways), key=lambda start: start.inverse.then(layout).weight)
        for step in base.inverse.then(layout).single_steps():
            behind = base.then(step)
            if behind != identity:
                ways.setdefault(behind, (base, step))
            base = behind
        ways.setdefault(layout, (base, Layout.identity(len(base.axes))))
    return ways


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


# 1. Along which axes

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


def axes_of(node: NodeInfo, rank: int) -> Axes | Reason:
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


def change_of(node: NodeInfo, rank: int) -> Layout | Reason:
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


def _change_of_reshape(node: NodeInfo, rank: int) -> Layout | Reason:
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


# 2. Values and their layouts

_SAME_RANK = op_traits.having(Trait.SAME_RANK) | {"Concat"}
_BROADCASTING = op_traits.having(Trait.BROADCASTS)


@dataclass
class Forms:
    """A value and what Transpose, Squeeze and Unsqueeze make of it.

    Attributes:
        root: the value.
        layouts: the layout of each value that is made of it, the root included, in order.
        nodes: the nodes between, in order.
    """

    root: ir.Value
    layouts: dict[ir.Value, Layout]
    nodes: list[ir.Node] = field(default_factory=list)


#: Key in `meta` of a constant in another layout: the constant that it was made of.
SOURCE = "onnx_spatial.source"


class LayoutGraph:
    """View of one graph.

    Args:
        graph: the graph.
        view: what is known of its values.

    Attributes:
        order: the place of each node.
    """

    def __init__(self, graph: ir.Graph | ir.Function, view: GraphView) -> None:
        self.view, self.matcher = view, view.matcher
        self.opset = view.opset
        self.order = {node: number for number, node in enumerate(graph)}
        self._ranks: dict[ir.Value, int | None] = {}
        self._changes: dict[ir.Node, Layout | None] = {}
        self._forms: dict[ir.Value, Forms] = {}

    @property
    def is_sorted(self) -> bool:
        """Whether every node stands behind those that it reads."""
        return all(
            value is None or self.place_of(value) < place
            for node, place in self.order.items()
            for value in node.inputs
        )

    def place_of(self, value: ir.Value) -> int:
        """Return the place of the node that computes a value; -1 if no node of the graph does."""
        producer = value.producer()
        return -1 if producer is None else self.order.get(producer, -1)

    # Values

    def rank(self, value: ir.Value) -> int | None:
        """Return the rank of a value; None if it is unknown."""
        is_known = self._ranks.__contains__
        for unknown in traversal.depth_first(value, self._sources, is_known):
            self._ranks[unknown] = self._find_rank(unknown)
        return self._ranks[value]

    def _sources(self, value: ir.Value) -> list[ir.Value]:
        """Return the values from whose ranks that of a value follows."""
        producer = value.producer()
        if producer not in self.order or self.view.dims(value.name) is not None:
            return []
        return [source for source in producer.inputs if source is not None]

    def is_read_by_window(self, value: ir.Value) -> bool:
        """Return whether a convolution or pool reads a value, in any layout."""
        return any(
            Trait.WINDOWS in op_traits.of(node).traits
            for form in self.forms(value).layouts
            for node, _ in self.matcher.readers(form)
        )

    def _find_rank(self, value: ir.Value) -> int | None:
        """Return the rank of a value, from those of what its node reads if the file does not say it."""
        dims, node = self.view.dims(value.name), value.producer()
        if dims is not None:
            return len(dims)
        if (constant := self.view.known(value)) is not None:
            return constant.ndim
        if node not in self.order or not op_traits.is_standard(node):
            return None
        ranks = [self.rank(source) for source in node.inputs if source is not None]
        if node.op_type in _BROADCASTING:
            known = [rank for rank in ranks if rank is not None]
            return max(known) if known and len(known) == len(ranks) else None
        change = self.change_of(node)
        if change is not None:
            return len(change.axes)
        return ranks[0] if ranks and node.op_type in _SAME_RANK else None

    # Changes of layout

    def forms(self, value: ir.Value) -> Forms:
        """Return the forms of the value that a value is made of."""
        if value not in self._forms:
            root = value
            while (node := root.producer()) is not None and self.is_change(node):
                assert node.inputs[0] is not None
                root = node.inputs[0]
            forms = Forms(root, {root: Layout.identity(self.rank(root) or 0)})
            todo = [root]
            while todo:
                source = todo.pop()
                self._forms[source] = forms
                for node, index in self.matcher.readers(source):
                    change = self.change_of(node) if index == 0 and node in self.order else None
                    if change is not None:
                        forms.layouts[node.outputs[0]] = forms.layouts[source].then(change)
                        forms.nodes.append(node)
                        todo.append(node.outputs[0])
            forms.nodes.sort(key=self.order.__getitem__)
            made = [node.outputs[0] for node in forms.nodes]
            forms.layouts = {each: forms.layouts[each] for each in (root, *made)}
        return self._forms[value]

    def is_change(self, node: ir.Node) -> bool:
        """Return whether a node of the graph only changes the layout of a value."""
        return node in self.order and self.change_of(node) is not None

    def change_of(self, node: ir.Node) -> Layout | None:
        """Return the layout that a node makes; None for other nodes."""
        if node not in self._changes:
            self._changes[node] = self._find_change(node)
        return self._changes[node]

    def _find_change(self, node: ir.Node) -> Layout | None:
        if self.matcher.standard_type(node) not in CHANGES or not node.inputs:
            return None
        rank = None if node.inputs[0] is None else self.rank(node.inputs[0])
        if rank is None or len(node.outputs) != 1:
            return None
        change = change_of(NodeInfo(node, self.view), rank)
        return None if isinstance(change, str) else change


# 3. In another layout

_UNARY = op_traits.having(Trait.UNARY) - {"Dropout"}  # which may draw a mask for each place
_BROADCASTS = op_traits.having(Trait.BROADCASTS) - {"SwiGLU"}

#: The rank of a signal with a batch and channels; values of lower rank may be sizes.
LEAST_RANK = 3


@dataclass(frozen=True)
class Adapted:
    """What a node is in another layout.

    Attributes:
        inputs: the change of layout of each input that is not the same in all layouts.
        constants: inputs that are known, as they are in the layout.
        attributes: attributes that are others in the layout.
    """

    inputs: dict[int, Layout]
    constants: dict[int, Array] = field(default_factory=dict)
    attributes: dict[str, int | tuple[int, ...]] = field(default_factory=dict)


#: Adapts a node of a graph to a change of the layout of its outputs; None if it does not commute.
_Rule = Callable[[ir.Node, LayoutGraph, Layout], Adapted | None]


def rank_with_rule(node: ir.Node, graph: LayoutGraph) -> int | None:
    """Return the rank of the outputs of a node with a rule; None for others and for low ranks."""
    if graph.matcher.standard_type(node) not in RULES or graph.is_change(node):
        return None
    ranks = {graph.rank(value) for value in node.outputs}
    least = min((rank or 0 for rank in ranks), default=0)
    return least if len(ranks) == 1 and least >= LEAST_RANK else None


def adapt_node(node: ir.Node, graph: LayoutGraph, layout: Layout) -> Adapted | None:
    """Write a node for outputs in another layout; None if it does not commute with the change."""
    if layout.removed:  # other inputs may be longer
        return None
    return RULES[node.op_type](node, graph, layout)


def _adapt_unary(node: ir.Node, graph: LayoutGraph, layout: Layout) -> Adapted | None:
    """Functions of one element."""
    if len(node.outputs) != 1 or node.inputs[0] in node.inputs[1:]:
        return None
    return Adapted({0: layout})


def _adapt_broadcast(node: ir.Node, graph: LayoutGraph, layout: Layout) -> Adapted | None:
    """Functions of elements of several inputs."""
    # Before opset 7 an attribute said how operands line up.
    if len(node.outputs) != 1 or graph.opset < 7:
        return None
    adapted = Adapted({})
    for index, value in enumerate(node.inputs):
        if value is None:
            return None
        known, length = graph.view.known(value), graph.rank(value)
        if known is not None and known.size == 1 and known.ndim <= layout.rank:
            continue
        if known is not None and known.dtype != object:
            wide = known.reshape((1,) * (layout.rank - known.ndim) + known.shape)
            adapted.constants[index] = layout.change_array(wide)
        elif length is None or length > layout.rank:
            return None
        elif length:
            adapted.inputs[index] = layout.of_operand(length)
    if all(change.rank < layout.rank for change in adapted.inputs.values()):
        return None  # the axes of the result are those of a constant
    trimmed = {i: _trim_axes(array) for i, array in adapted.constants.items()}
    return replace(adapted, constants=trimmed)


def _trim_axes(array: Array) -> Array:
    """Leave out the axes in front that broadcasting adds."""
    return array.reshape(tuple(dropwhile((1).__eq__, array.shape)))


def _adapt_along(node: ir.Node, graph: LayoutGraph, layout: Layout) -> Adapted | None:
    """Operators along axes, which get their new places in the attribute or input that names them."""
    op_type, view = node.op_type, NodeInfo(node, graph.view)
    is_elementwise = op_type in QUANTIZING or op_type == "BatchNormalization"
    is_exact = is_elementwise or bool(op_traits.of(node).traits & (Trait.EXACT | Trait.BITWISE))
    if view.integer("keepdims", 1) != 1:
        return None
    axes = axes_of(view, layout.rank)
    if isinstance(axes, str) or not (is_exact or layout.keeps_order):
        return None
    if op_type in FLATTENING and graph.opset < 13:
        return None
    data = range(len(node.inputs)) if op_type == "Concat" else (0,)
    if any(node.inputs[i] is None for i in data) or (len(node.outputs) > 1 and op_type != "Split"):
        return None
    adapted, places = Adapted(dict.fromkeys(data, layout)), tuple(map(layout.place, axes.axes))
    if isinstance(axes.name, int):
        known = view.known(axes.name)
        assert known is not None
        adapted.constants[axes.name] = np.array(places, known.dtype).reshape(known.shape)
    elif axes.name is not None:
        adapted.attributes[axes.name] = places if axes.name == "axes" else places[0]
    elif places != axes.axes:
        return None
    return adapted


def _adapt_pad(node: ir.Node, graph: LayoutGraph, layout: Layout) -> Adapted | None:
    view = NodeInfo(node, graph.view)
    known = view.known(1)
    pads = view.integers("pads", () if known is None else tuple(known.reshape(-1).tolist()))
    if pads is None or len(pads) != 2 * layout.rank or view.has(3):
        return None
    sides = (pads[: layout.rank], pads[layout.rank :])
    moved = tuple(0 if axis is None else side[axis] for side in sides for axis in layout.axes)
    if known is None:
        return Adapted({0: layout}, {}, {"pads": moved})
    return Adapted({0: layout}, {1: np.array(moved, np.int64)})


#: The rule of each operator that commutes.
RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(_UNARY, _adapt_unary),
    **dict.fromkeys(_BROADCASTS, _adapt_broadcast),
    **dict.fromkeys((*NAMED, "BatchNormalization"), _adapt_along),
    "Pad": _adapt_pad,
}
