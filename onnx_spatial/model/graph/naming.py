"""Make names for new values and nodes that are unique in the whole model."""

from __future__ import annotations

import onnx

from onnx_spatial.model import traversal


class Names:
    """Names in use in a model, in all its graphs and functions."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._used: set[str] = set()
        for _, graph in traversal.graphs(model):
            if isinstance(graph, onnx.GraphProto):
                self._used.update(t.name for t in graph.initializer)
                self._used.update(t.values.name for t in graph.sparse_initializer)
                for infos in (graph.input, graph.output, graph.value_info):
                    self._used.update(v.name for v in infos)
            else:
                self._used.update(graph.input, graph.output)
            for node in graph.node:
                self._used.add(node.name)
                self._used.update(node.input, node.output)

    def fresh(self, base: str) -> str:
        """Return `base`, or `base_1`, `base_2`, ... if it is in use, and add it to the names."""
        name, count = base, 0
        while name in self._used:
            count += 1
            name = f"{base}_{count}"
        self._used.add(name)
        return name
