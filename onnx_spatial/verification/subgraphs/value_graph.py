"""The graphs of a model by value name, and the part of one that leads to a value.

    stops -> [ nodes with their constants ] -> output

Values of the graphs around one are followed too, so a part is the same whether it stands in the main
graph or reaches into it from a branch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx

from onnx_spatial.model import traversal
from onnx_spatial.verification import extract

#: What gives a value: a node, an initializer, a sparse one.
Producer = onnx.NodeProto | onnx.TensorProto | onnx.SparseTensorProto

_MAIN = traversal.Place()


@dataclass(frozen=True)
class Part:
    """Nodes that lead to a value.

    Attributes:
        nodes: in the order of the model.
        read: names that they read and that lie outside.
        stored: the initializers they read.
        sparse: the sparse ones.
        imports: opsets where they stand.
    """

    nodes: list[onnx.NodeProto]
    read: set[str]
    stored: list[onnx.TensorProto]
    sparse: list[onnx.SparseTensorProto]
    imports: extract.Imports


class Graphs:
    """The graphs of a model, by place and value name."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self._graphs: dict[traversal.Place, traversal.GraphLike] = dict(traversal.graphs(model))
        self._producers = {
            place: {name: node for node in graph.node for name in node.output if name}
            for place, graph in self._graphs.items()
        }
        # By id: the messages stay the same objects as long as something holds them.
        self._order = {
            id(node): (len(place.steps), position)
            for place, graph in self._graphs.items()
            for position, node in enumerate(graph.node)
        }
        self._stored = {place: _stored(graph) for place, graph in self._graphs.items()}
        self._fed = {place: _fed(graph) for place, graph in self._graphs.items()}

    def has(self, place: traversal.Place) -> bool:
        """Whether there is such a graph."""
        return place in self._graphs

    def computes(self, name: str, place: traversal.Place = _MAIN) -> bool:
        """Whether a node of the graph at `place` gives the value of that name."""
        return name in self._producers.get(place, ())

    def holds(self, name: str) -> bool:
        """Whether the main graph has a value of that name: computed, stored or fed."""
        return self.computes(name) or name in self._stored[_MAIN] or name in self._fed[_MAIN]

    def is_fed(self, name: str, place: traversal.Place) -> bool:
        """Whether a name is an input of the graph at `place` itself."""
        return name in self._fed.get(place, ())

    @property
    def overridable(self) -> set[str]:
        """Names of the inputs that have an initializer for a default."""
        if self.model.ir_version < 4:  # every initializer was listed as an input; none could be fed
            return set()
        return {t.name for t in self.model.graph.initializer if t.name in self._fed[_MAIN]}

    def find(self, name: str, place: traversal.Place) -> Producer | None:
        """What gives the value that a graph reads; None for inputs and for what is not there."""
        for scope in scopes(place):
            if scope not in self._graphs:
                continue
            found = self._producers[scope].get(name) or self._stored[scope].get(name)
            if found is not None:
                return found
            if name in self._fed[scope]:
                return None
        return None

    def part(
        self, place: traversal.Place, output: str, stops: Callable[[str, Producer | None], bool]
    ) -> Part | str:
        """What leads to a value of the graph at `place`, or why it cannot be cut out.

        Args:
            place: a graph.
            output: name of a value that it computes.
            stops: whether to go no further, by name and by what gives it; what nothing gives
                is read from outside in any case.
        """
        chosen: list[onnx.NodeProto] = []
        taken: set[int] = set()
        read: set[str] = set()
        stored: dict[str, onnx.TensorProto] = {}
        sparse: dict[str, onnx.SparseTensorProto] = {}
        seen, todo = {output}, [output]
        while todo:
            name = todo.pop()
            found = self.find(name, place)
            if name != output and (found is None or stops(name, found)):
                read.add(name)
            elif isinstance(found, onnx.TensorProto):
                stored[name] = found
            elif isinstance(found, onnx.SparseTensorProto):
                sparse[name] = found
            elif found is not None:
                if any(a.ref_attr_name for a in found.attribute):
                    return "it takes attributes of the function that holds it"
                if id(found) not in taken:
                    taken.add(id(found))
                    chosen.append(found)
                new = traversal.needs(found) - seen
                seen |= new
                todo.extend(new)
            else:
                return f"nothing computes {name!r}"
        chosen.sort(key=lambda node: self._order[id(node)])
        imports = extract.Imports.of(self.model, self._graphs[scopes(place)[-1]])
        return Part(chosen, read, list(stored.values()), list(sparse.values()), imports)


def scopes(place: traversal.Place) -> list[traversal.Place]:
    """The place and those around it, inner before outer."""
    count = len(place.steps)
    return [traversal.Place(place.function, place.steps[: count - i]) for i in range(count + 1)]


def _fed(graph: traversal.GraphLike) -> set[str]:
    return {v if isinstance(v, str) else v.name for v in graph.input}


def _stored(graph: traversal.GraphLike) -> dict[str, onnx.TensorProto | onnx.SparseTensorProto]:
    if not isinstance(graph, onnx.GraphProto):
        return {}
    return {
        **{t.name: t for t in graph.initializer},
        **{s.values.name: s for s in graph.sparse_initializer},
    }
