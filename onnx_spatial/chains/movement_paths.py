"""Find the chains of nodes that only move the elements of one tensor, without types or shapes.

    x -> Reshape -> Transpose -> Relu -> Reshape -> y

Functions of single elements (Relu, Mul by a number) may stand between: they give the same behind the
chain. So do several nodes that are one function of a value: Mul of a value and its Sigmoid. Where a rank
limit asks for more, a part may be taken: that of the queries, keys or values in
[3, batch, heads, tokens, channels].
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import onnx

from onnx_spatial.chains.paths import MAX_STEPS
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait

REORDERING = frozenset({"DepthToSpace", "SpaceToDepth", "Transpose"})
#: Operators that take a part of an axis.
_SELECTING = frozenset({"Gather", "Slice", "Split"})
MOVING = REORDERING | _SELECTING | {"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}
_SIZES = op_traits.having(Trait.SIZES)
_UNARY = op_traits.having(Trait.UNARY) - op_traits.having(Trait.RANDOM) - {"Dropout"}
_BROADCASTING = op_traits.having(Trait.BROADCASTS) - {"SwiGLU"}


class MovementPath:
    """Nodes that follow one another, each of which moves or changes the elements of the value before.

    Attributes:
        values: names of the values, from the source to the last.
        nodes: the nodes between them; of a function of several nodes the last one.
        joined: all nodes of such a function in order, by the id of the last one.
    """

    def __init__(
        self,
        values: list[str],
        nodes: list[onnx.NodeProto],
        joined: Mapping[int, Sequence[onnx.NodeProto]] = MappingProxyType({}),
    ) -> None:
        self.values, self.nodes, self.joined = values, nodes, joined

    @property
    def every_node(self) -> list[onnx.NodeProto]:
        """The nodes in order, with all those of each function."""
        return [each for node in self.nodes for each in self.joined.get(id(node), (node,))]

    def part(self, start: int, end: int) -> MovementPath:
        """Return the part from one value to another, by their positions."""
        return MovementPath(self.values[start : end + 1], self.nodes[start:end], self.joined)


class MovementGraph:
    """The chains of one graph, and who reads what.

    Args:
        graph: the graph.
        local: domains and names of the local functions, which hide ONNX's operators.
        taken: names of values whose nodes belong to other chains.
        selects: whether a node of a chain may take a part of an axis (Gather, Slice, Split).
    """

    def __init__(
        self,
        graph: traversal.GraphLike,
        local: Collection[tuple[str, str]],
        taken: Collection[str] = (),
        *,
        selects: bool = False,
    ) -> None:
        self._outputs = {v if isinstance(v, str) else v.name for v in graph.output}
        stored = getattr(graph, "initializer", ())
        self._fixed = {t.name for t in stored}
        self._numbers = {t.name for t in stored if len(t.dims) < 2 and set(t.dims) <= {1}}
        self._local, self._taken = local, taken
        self._moving = MOVING if selects else MOVING - _SELECTING
        self._producers: dict[str, onnx.NodeProto] = {}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        # For the output of each step of a chain: the node, and its data.
        self._steps: dict[str, tuple[onnx.NodeProto, str]] = {}
        self._joined: dict[int, Sequence[onnx.NodeProto]] = {}
        for node in traversal.in_order(graph):
            self._add(node)

    def _add(self, node: onnx.NodeProto) -> None:
        needs = traversal.needs(node) if node.attribute else set(filter(None, node.input))
        for name in needs:
            self._readers.setdefault(name, []).append(node)
        self._producers.update(dict.fromkeys(filter(None, node.output), node))
        standard = op_traits.is_standard(node) and (node.domain, node.op_type) not in self._local
        if standard and (node.op_type in _SIZES or needs <= self._fixed):
            self._fixed.update(node.output)
            if node.op_type == "Constant" and _is_number(node):
                self._numbers.update(node.output)
        elif standard and (data := self._data(node)) is not None:
            self._steps |= dict.fromkeys(filter(None, node.output), (node, data))

    def _data(self, node: onnx.NodeProto) -> str | None:
        """Return the value whose elements a node moves or changes; None if it does something else."""
        outputs = [name for name in node.output if name]
        if not self._taken_apart(node) and (len(outputs) != 1 or outputs[0] != node.output[0]):
            return None
        if any(name in self._taken for name in outputs):
            return None
        if any(attribute.ref_attr_name for attribute in node.attribute):
            return None
        inputs = [name for name in node.input if name]
        if node.op_type in _BROADCASTING:
            inputs.sort(key=lambda name: name in self._numbers)
            if not set(inputs[1:]) <= self._numbers:
                return self._join(node, [name for name in inputs if name not in self._numbers])
        elif node.op_type not in self._moving | _UNARY:
            return None
        data, *parameters = inputs or [""]
        if node.op_type in ("Gather", "Slice") and not set(parameters) <= self._numbers:
            return None  # a part of one axis only
        return None if data in self._fixed or data in parameters else data

    def _join(self, node: onnx.NodeProto, inputs: Sequence[str]) -> str | None:
        """Return the nearest value that all inputs of a node are functions of; None if there is none."""
        rows = [self._function_of(name) for name in dict.fromkeys(inputs)]
        common = next((name for name in rows[0] if all(name in row for row in rows[1:])), None)
        if common is None or common in self._fixed:
            return None
        inner = dict[int, onnx.NodeProto]()
        for row in rows:
            for name in reversed(row[: row.index(common)]):
                last = self._steps[name][0]
                inner |= {id(each): each for each in self._joined.get(id(last), (last,))}
        self._joined[id(node)] = [*inner.values(), node]
        return common

    def _function_of(self, name: str) -> list[str]:
        """Return a value, the value that it is a function of, and so on."""
        row = [name]
        while len(row) < MAX_STEPS and (step := self._steps.get(row[-1])) is not None:
            if step[0].op_type in self._moving:
                break
            row.append(step[1])
        return row

    def _taken_apart(self, node: onnx.NodeProto) -> bool:
        return node.op_type == "Split" and node.op_type in self._moving

    def paths(self) -> list[MovementPath]:
        """Return the longest chains, the last value of each is read by other nodes."""
        found: dict[str, MovementPath] = {}
        for end in self._steps:
            if self._is_read(end):
                path = self._path(end)
                if path is not None:
                    found.setdefault(path.values[-1], path)
        return list(found.values())

    def _is_read(self, name: str) -> bool:
        readers = self._readers.get(name, [])
        return name in self._outputs or any(not self._continues(n, name) for n in readers)

    def _continues(self, node: onnx.NodeProto, name: str) -> bool:
        """Return whether a node is a step of a chain from a value on, or reads only its sizes."""
        if node.op_type in _SIZES and op_traits.is_standard(node):
            return True
        step = self._steps.get(next(filter(None, node.output), ""))
        if step is None or step[0] is not node:
            return False
        inner = (output for each in self._joined.get(id(node), ()) for output in each.output)
        return step[1] == name or name in inner

    def _path(self, end: str) -> MovementPath | None:
        values, nodes = [end], list[onnx.NodeProto]()
        while (step := self._steps.get(values[0])) is not None and len(nodes) < MAX_STEPS:
            nodes.insert(0, step[0])
            values.insert(0, step[1])
        return self.trimmed(MovementPath(values, nodes, self._joined))

    @staticmethod
    def trimmed(path: MovementPath) -> MovementPath | None:
        """Return a path without the functions at its ends; None if nothing is left."""
        kinds = [node.op_type for node in path.nodes]
        firsts = [i for i, kind in enumerate(kinds) if kind in MOVING - _SELECTING]
        lasts = [i for i, kind in enumerate(kinds) if kind in MOVING and kind != "Split"]
        if not firsts:
            return None
        first, last = firsts[0], lasts[-1]
        return path.part(first, last + 1)

    def forks(self, path: MovementPath) -> list[int]:
        """Return the positions of the inner values of a path that stay for other readers."""
        own = {id(node) for node in path.every_node}
        return [
            place
            for place, name in enumerate(path.values[:-1])
            if place and self._is_needed(name, own)
        ]

    def freed(self, path: MovementPath) -> list[onnx.NodeProto]:
        """Return the nodes that become unused when the path is replaced."""
        return self.dead([path.values[-1]], [path.values[0]])

    def dead(self, replaced: Collection[str], kept: Collection[str]) -> list[onnx.NodeProto]:
        """Return the nodes that become unused when some values are computed otherwise.

        Args:
            replaced: these values, each the only output of its node.
            kept: values that the new nodes read.
        """
        gone = {id(node): node for node in map(self._producers.__getitem__, replaced)}
        todo = list(gone.values())
        while todo:
            node = todo.pop()
            for name in traversal.needs(node):
                maker = self._producers.get(name)
                if maker is None or id(maker) in gone or name in kept:
                    continue
                if not any(self._is_needed(output, gone) for output in maker.output if output):
                    gone[id(maker)] = maker
                    todo.append(maker)
        return list(gone.values())

    def computes(self, name: str) -> onnx.NodeProto:
        """Return the node that computes a value."""
        return self._producers[name]

    def _is_needed(self, name: str, gone: Collection[int]) -> bool:
        readers = self._readers.get(name, ())
        return name in self._outputs or any(id(reader) not in gone for reader in readers)


def _is_number(node: onnx.NodeProto) -> bool:
    """Return whether a Constant holds a single number."""
    return any(
        a.name in ("value_float", "value_int")
        or (a.name == "value" and len(a.t.dims) < 2 and set(a.t.dims) <= {1})
        for a in node.attribute
    )
