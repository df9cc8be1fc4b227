"""Infer types and shapes of the values of the original before it runs."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.model import traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.verification.subgraphs.value_graph import scopes


class KnownTypes:
    """Types by graph and value name, in a model with names for unknown dims of its inputs."""

    def __init__(self, model: onnx.ModelProto, infos: Sequence[OperatorInfo]) -> None:
        self._types: dict[traversal.Place, dict[str, onnx.TypeProto]] = {}
        for place, graph in traversal.graphs(analysis.inferred(model, infos)):
            known = self._types.setdefault(place, {})
            declared = list(graph.value_info)
            if isinstance(graph, onnx.GraphProto):
                declared += [*graph.input, *graph.output]
                for tensor in graph.initializer:
                    known[tensor.name] = onnx.helper.make_tensor_type_proto(
                        tensor.data_type, tensor.dims
                    )
            known.update((value.name, value.type) for value in declared)
        for info in infos:
            self._add_data(info)

    def _add_data(self, info: OperatorInfo) -> None:
        """Add the type of a site's data; in a function it is that of the calls."""
        data = info.facts.inputs[0] if info.facts.inputs else None
        if data is None or len(info.element_types) != 1:
            return
        (element_type,) = info.element_types
        name = info.node.input[0]
        if shape_inference.dims(self.find(name, info.place)) is None:
            known = onnx.helper.make_tensor_type_proto(element_type, data.shape)
            self._types.setdefault(info.place, {})[name] = known

    def find(self, name: str, place: traversal.Place) -> onnx.TypeProto | None:
        """The type of a value that the graph at `place` can read, as far as it is known."""
        for scope in scopes(place):
            known = self._types.get(scope, {}).get(name)
            if known is not None:
                return known
        return None
