"""Index the graphs of a model by value name, and extract the part that computes a value.

    stops -> [ nodes with their constants ] -> output

Values of outer graphs are followed, too: a part may reach from a branch into the main graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx

from onnx_spatial.model import traversal
from onnx_spatial.verification import extract

#: Produces a value: a node, an initializer, a sparse initializer.
Producer = onnx.NodeProto | onnx.TensorProto | onnx.SparseTensorProto

_MAIN = traversal.Place()


@dataclass(frozen=True)
class Part:
    """Nodes that compute a value.

    Attributes:
        nodes: in the order of the model.
        read: names that they read from outside.
        stored: initializers that they read.
        sparse: sparse initializers that they read.
        imports: of the model or function that holds them.
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
        # Ids are valid as long as the messages are kept.
        self._order = {
            id(node): (len(place.steps), position)
            for place, graph in self._graphs.items()
            for position, node in enumerate(graph.node)
        }
        self._stored = {place: _stored(graph) for place, graph in self._graphs.items()}
        self._fed = {place: _fed(graph) for place, graph in self._graphs.items()}

    def has(self, place: traversal.Place) -> bool:
        """Whether the model has a graph at `place`."""
        return place in self._graphs

    def computes(self, name: str, place: traversal.Place = _MAIN) -> bool:
        """Whether a node of the graph at `place` computes a value."""
        return name in self._producers.get(place, ())

    def holds(self, name: str) -> bool:
        """Whether the main graph computes or stores a value, or has it as an input."""
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
        """The producer of a value that a graph reads; None for inputs and unknown names."""
        for scope in scopes(place):
            if scope not in self._graphs:
                continue
            producer = self._producers[scope].get(name) or self._stored[scope].get(name)
            if producer is not None:
                return producer
            if name in self._fed[scope]:
                return None
        return None

    def part(
        self, place: traversal.Place, output: str, stops: Callable[[str, Producer | None], bool]
    ) -> Part | str:
        """Extract the part that computes a value, or say why that is impossible.

        Args:
            place: of the graph.
            output: name of a value that it computes.
            stops: whether a part reads a value from outside, by its name and producer; values without a
                producer are read from outside in any case.
        """
        nodes: dict[int, onnx.NodeProto] = {}
        read: set[str] = set()
        stored: dict[str, onnx.TensorProto] = {}
        sparse: dict[str, onnx.SparseTensorProto] = {}
        seen, todo = {output}, [output]
        while todo:
            name = todo.pop()
            producer = self.find(name, place)
            if name != output and (producer is None or stops(name, producer)):
                read.add(name)
            elif isinstance(producer, onnx.TensorProto):
                stored[name] = producer
            elif isinstance(producer, onnx.SparseTensorProto):
                sparse[name] = producer
            elif producer is not None:
                if any(a.ref_attr_name for a in producer.attribute):
                    return "it uses attributes of its function"
                nodes[id(producer)] = producer
                new = traversal.needs(producer) - seen
                seen |= new
                todo.extend(new)
            else:
                return f"no node, input or initializer produces {name!r}"
        ordered = sorted(nodes.values(), key=lambda node: self._order[id(node)])
        imports = extract.Imports.of(self.model, self._graphs[scopes(place)[-1]])
        return Part(ordered, read, list(stored.values()), list(sparse.values()), imports)


def scopes(place: traversal.Place) -> list[traversal.Place]:
    """The place of a graph and of its outer graphs, inner before outer."""
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
