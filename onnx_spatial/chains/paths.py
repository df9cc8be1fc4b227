"""Find the paths of data through a graph, without types or shapes.

    x -> Pad -> Reshape -> Transpose -> Reshape -> Conv        a path of four steps, from x on
    x -> Reshape -> Sigmoid, Mul -> Transpose -> y             the middle step changes single elements

A value that nodes only move or change element by element has one parent: its data input, or the nearest
value that all of its data inputs come from. Sizes, pads and indices are not data. All searches walk the
same tree, and say which steps they admit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait

#: Operators that split axes and join them; those that change the order of elements; those that take a
#: part of an axis; and all whose output is their first input, moved, but for Pad and Gathers of windows.
REGROUPING = frozenset({"DepthToSpace", "Flatten", "Reshape", "SpaceToDepth"})
REORDERING = frozenset({"DepthToSpace", "SpaceToDepth", "Transpose"})
SELECTING = frozenset({"Gather", "Slice", "Split"})
MOVING = REGROUPING | REORDERING | SELECTING | {"Identity", "Squeeze", "Unsqueeze"}

_SIZES = op_traits.having(Trait.SIZES)
_UNARY = op_traits.having(Trait.UNARY) - op_traits.having(Trait.RANDOM) - {"Dropout"}
_BROADCASTING = op_traits.having(Trait.BROADCASTS) - {"SwiGLU"}

#: The most steps of a path.
MAX_STEPS = 24


@dataclass(frozen=True)
class Step:
    """A step from a value to the next.

    Attributes:
        data: name of the value.
        nodes: the nodes that compute the next one from it, in order: several change elements.
        changes: whether they change single elements, and move none.
    """

    data: str
    nodes: tuple[onnx.NodeProto, ...]
    changes: bool = False

    @property
    def last(self) -> onnx.NodeProto:
        """The node that computes the next value."""
        return self.nodes[-1]


@dataclass(frozen=True)
class Path:
    """A path of data through a graph.

    Attributes:
        values: names of the values, from the first that nothing moves to the last that is not moved on.
        steps: the step from each value to the next.
    """

    values: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def lasts(self) -> list[onnx.NodeProto]:
        """The last node of each step."""
        return [step.last for step in self.steps]

    @property
    def kinds(self) -> list[str]:
        """The operator type of the last node of each step."""
        return [step.last.op_type for step in self.steps]

    @property
    def nodes(self) -> list[onnx.NodeProto]:
        """All nodes, in order."""
        return [node for step in self.steps for node in step.nodes]

    def part(self, start: int, end: int) -> Path:
        """Return the part from one value to another, by their positions."""
        return Path(self.values[start : end + 1], self.steps[start:end])


class DataGraph:
    """The data of one graph: the step to each value, and who reads what.

    Args:
        graph: the graph.
        local: domains and names of the local functions, which hide ONNX's operators.
        copying: outputs of the Convs that only copy their data (`one_hot`).

    Attributes:
        numbers: names of the values that hold a single number.
    """

    def __init__(
        self,
        graph: traversal.GraphLike,
        local: Collection[tuple[str, str]] = (),
        copying: Collection[str] = (),
    ) -> None:
        self._local, self._copying = local, frozenset(copying)
        self._outputs = set(traversal.value_names(graph.output))
        stored = getattr(graph, "initializer", ())
        # What nodes compute from shapes and constants alone is no data.
        self._fixed = {t.name for t in stored}
        self.numbers = {t.name for t in stored if len(t.dims) < 2 and set(t.dims) <= {1}}
        self._steps: dict[str, Step] = {}
        self._depths: dict[str, int] = {}
        self._flow = traversal.Flow(graph)
        for position in self._flow.order:
            self._add_step(position)

    def _add_step(self, position: int) -> None:
        """Note the step to the outputs of a node, and whether these are no data."""
        node = self._flow.nodes[position]
        if not (op_traits.is_standard(node) and (node.domain, node.op_type) not in self._local):
            return
        outputs = [name for name in node.output if name]
        if node.op_type in _SIZES or self._fixed.issuperset(
            filter(None, self._flow.reads[position])
        ):
            self._fixed.update(outputs)
            if node.op_type == "Constant" and _is_number(node):
                self.numbers.update(outputs)
            return
        data = self._data_of(node)
        parent = self._common_source(data) if data else None
        if parent is None:
            return
        nodes = (node,) if len(data) == 1 else self._nodes_between(parent, position)
        changes = not self._moves_data(node)
        if all(self._moves_data(each) != changes for each in nodes):
            self._steps.update(dict.fromkeys(outputs, Step(parent, nodes, changes)))
            self._depths.update(dict.fromkeys(outputs, self._depths.get(parent, 0) + 1))

    def _moves_data(self, node: onnx.NodeProto) -> bool:
        return (
            node.op_type in MOVING
            or node.op_type == "Pad"
            or not self._copying.isdisjoint(node.output)
        )

    def _data_of(self, node: onnx.NodeProto) -> list[str]:
        """Return the values whose elements a node moves or changes; none if it does something else."""
        names = list(node.input[:1])
        if node.op_type in _BROADCASTING:
            names = [name for name in node.input if name not in self.numbers]
            if not self._fixed.isdisjoint(names):
                return []
        elif not self._moves_data(node) and node.op_type not in _UNARY:
            return []
        return [name for name in dict.fromkeys(names) if name and name not in self._fixed]

    def _common_source(self, names: Sequence[str]) -> str | None:
        """Return the nearest value that all of some values are, or come from."""
        first, *others = names
        for other in others:
            while first != other:
                if self._depths.get(first, 0) < self._depths.get(other, 0):
                    first, other = other, first
                if first not in self._steps:
                    return None
                first = self._steps[first].data
        return first

    def _nodes_between(self, first: str, last: int) -> tuple[onnx.NodeProto, ...]:
        """Return the nodes that compute a value from its parent, in the order of the graph."""
        nodes, todo, found = self._flow.nodes, self._data_of(self._flow.nodes[last]), {last}
        while todo:
            name = todo.pop()
            position = self._flow.producers.get(name)
            if name != first and position is not None and position not in found:
                found.add(position)
                todo += self._data_of(nodes[position])
        return tuple(nodes[position] for position in sorted(found, key=self._flow.order.index))

    # Paths

    def longest_paths(self, admits: Callable[[Step], bool]) -> list[Path]:
        """Return the longest paths of the steps that are admitted."""
        admitted = {name for name, step in self._steps.items() if admits(step)}
        ends = (
            name for name in self._steps if name in admitted and self._ends_path(name, admitted)
        )
        return [self._path_to(name, admitted) for name in ends]

    def _ends_path(self, name: str, admitted: Collection[str]) -> bool:
        """Return whether a value is read by a node that is no step from it on."""
        readers = [self._flow.nodes[position] for position in self._flow.readers.get(name, ())]
        return name in self._outputs or any(
            not self._continues_path(node, name, admitted) for node in readers
        )

    def _continues_path(self, node: onnx.NodeProto, name: str, admitted: Collection[str]) -> bool:
        if node.op_type in _SIZES and op_traits.is_standard(node):
            return True
        output = next(filter(None, node.output), "")
        return output in admitted and name in self._data_of(node)

    def _path_to(self, end: str, admitted: Collection[str]) -> Path:
        values, steps = [end], list[Step]()
        while values[0] in admitted and len(steps) < MAX_STEPS:
            steps.insert(0, self._steps[values[0]])
            values.insert(0, steps[0].data)
        return Path(tuple(values), tuple(steps))

    # What a chain leaves

    def forks_of(self, path: Path) -> list[int]:
        """Return the positions of the inner values of a path that stay for other readers."""
        own = {self._flow.producers[name] for node in path.nodes for name in node.output if name}
        inner = enumerate(path.values[1:-1], start=1)
        return [place for place, name in inner if self._is_needed(name, own)]

    def freed_nodes(self, path: Path) -> list[onnx.NodeProto]:
        """Return the nodes that become unused when the path is replaced."""
        return self.dead_nodes([path.values[-1]], [path.values[0]])

    def dead_nodes(self, replaced: Collection[str], kept: Collection[str]) -> list[onnx.NodeProto]:
        """Return the nodes that become unused when some values are computed otherwise.

        Args:
            replaced: these values, each the only output of its node.
            kept: values that the new nodes read.
        """
        gone = dict.fromkeys(map(self._flow.producers.__getitem__, replaced))
        todo = list(gone)
        while todo:
            for name in self._flow.reads[todo.pop()]:
                maker = self._flow.producers.get(name)
                if maker is None or maker in gone or name in kept:
                    continue
                if not any(self._is_needed(output, gone) for output in self._flow.computes[maker]):
                    gone[maker] = None
                    todo.append(maker)
        return [self._flow.nodes[position] for position in gone]

    def _is_needed(self, name: str, gone: Collection[int]) -> bool:
        readers = self._flow.readers.get(name, ())
        return name in self._outputs or any(position not in gone for position in readers)


def _is_number(node: onnx.NodeProto) -> bool:
    """Return whether a Constant holds a single number."""
    return any(
        a.name in ("value_float", "value_int")
        or (a.name == "value" and len(a.t.dims) < 2 and set(a.t.dims) <= {1})
        for a in node.attribute
    )
