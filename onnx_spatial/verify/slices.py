"""Find in the converted model what stands for a site, and cut it out.

Converted models keep the names of the original's values, in the same graph. So what stands for a node,
or for several (`stretch`), is all that leads from what goes in to what comes out, both found by name:

    x, block_shape, paddings -> [ Reshape, Transpose, ... with their constants ] -> y
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import onnx

from onnx_spatial.graph import walk
from onnx_spatial.verify import cut

_MAIN = walk.Place()


@dataclass(frozen=True)
class Slice:
    """The nodes that stand for a site.

    Attributes:
        nodes: in the order of the model.
        read: which of the site's inputs they read.
        stored: the initializers they read.
        sparse: the sparse ones.
        imports: opsets where they stand.
    """

    nodes: list[onnx.NodeProto]
    read: set[str]
    stored: list[onnx.TensorProto]
    sparse: list[onnx.SparseTensorProto]
    imports: cut.Imports

    def model(
        self,
        inputs: Mapping[str, onnx.TypeProto],
        known: Mapping[str, onnx.TensorProto],
        output: str,
    ) -> onnx.ModelProto:
        """A model of its own: `inputs` are fed, `known` are constant."""
        used = [tensor for name, tensor in known.items() if name in self.read]
        return cut.model_of(
            self.imports, self.nodes, inputs, [output], [*used, *self.stored], self.sparse
        )


class Converted:
    """The converted model, by graph and value name."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self._graphs: dict[walk.Place, walk.GraphLike] = dict(walk.graphs(model))
        self._producers = {
            place: {name: node for node in graph.node for name in node.output if name}
            for place, graph in self._graphs.items()
        }
        self._stored = {place: _stored(graph) for place, graph in self._graphs.items()}

    def computes(self, name: str, place: walk.Place = _MAIN) -> bool:
        """Whether a node of the graph at `place` gives the value of that name."""
        return name in self._producers.get(place, ())

    def holds(self, name: str) -> bool:
        """Whether the main graph has a value of that name: computed, stored or fed."""
        given = (v.name for v in self.model.graph.input)
        return self.computes(name) or name in self._stored[_MAIN] or name in given

    def slice(
        self, place: walk.Place, output: str, stops: Collection[str], known: Collection[str] = ()
    ) -> Slice | str:
        """What leads from some values to `output` in the graph at `place`, or why there is none.

        Values of the graphs around it are followed too.

        Args:
            place: of the site.
            output: name of the value that the site gives.
            stops: names of the site's inputs.
            known: those of them whose value is known; where the converted model stores them as
                constants, its own constants are part of the slice.
        """
        if place not in self._graphs:
            return f"the converted model has no {place}"
        if output not in self._producers[place]:
            return "its output is not a value of the converted model: it was merged with others"
        scopes = list(self._scopes(place))
        chosen: set[int] = set()
        read: set[str] = set()
        stored: dict[str, onnx.TensorProto] = {}
        sparse: dict[str, onnx.SparseTensorProto] = {}
        seen = {output}
        todo = [output]
        while todo:
            name = todo.pop()
            found = self._find(name, scopes)
            own = name in known and (not isinstance(found, onnx.NodeProto) or not found.input)
            if name in stops and name != output and not (own and found is not None):
                read.add(name)
            elif isinstance(found, onnx.TensorProto):
                stored[name] = found
            elif isinstance(found, onnx.SparseTensorProto):
                sparse[name] = found
            elif isinstance(found, onnx.NodeProto):
                if any(a.ref_attr_name for a in found.attribute):
                    return "it takes attributes of the function that holds it"
                chosen.add(id(found))
                new = cut.needs(found) - seen
                seen |= new
                todo.extend(new)
            else:
                return f"it also reads {name!r}: it was merged with others"
        nodes = [n for s in reversed(scopes) for n in self._graphs[s].node if id(n) in chosen]
        imports = cut.Imports.of(self.model, self._graphs[scopes[-1]])
        return Slice(nodes, read, list(stored.values()), list(sparse.values()), imports)

    def _scopes(self, place: walk.Place) -> list[walk.Place]:
        """The place and those around it, inner before outer."""
        count = len(place.steps)
        return [walk.Place(place.function, place.steps[: count - i]) for i in range(count + 1)]

    def _find(
        self, name: str, scopes: list[walk.Place]
    ) -> onnx.NodeProto | onnx.TensorProto | onnx.SparseTensorProto | None:
        for scope in scopes:
            found = self._producers[scope].get(name) or self._stored[scope].get(name)
            if found is not None:
                return found
            inputs = self._graphs[scope].input
            if name in {v if isinstance(v, str) else v.name for v in inputs}:
                return None
        return None


def _stored(graph: walk.GraphLike) -> dict[str, onnx.TensorProto | onnx.SparseTensorProto]:
    if not isinstance(graph, onnx.GraphProto):
        return {}
    return {
        **{t.name: t for t in graph.initializer},
        **{s.values.name: s for s in graph.sparse_initializer},
    }
