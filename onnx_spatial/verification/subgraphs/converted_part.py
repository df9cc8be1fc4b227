"""Extract the part of the converted model that replaces a site.

Converted models keep the value names of the original, in the same graph. So the nodes that replace one
or more nodes (`transpose_chain`, `matching_region`) are those between its inputs and its outputs:

    x, block_shape, paddings -> [ Reshape, Transpose, ... with their constants ] -> y
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import onnx

from onnx_spatial.model import traversal
from onnx_spatial.verification import extract
from onnx_spatial.verification.subgraphs.value_graph import Graphs, Part, Producer


@dataclass(frozen=True)
class ConvertedPart(Part):
    """The nodes that replace a site; they read its inputs `read`."""

    def model(
        self,
        inputs: Mapping[str, onnx.TypeProto],
        known: Mapping[str, onnx.TensorProto],
        output: str,
    ) -> onnx.ModelProto:
        """Make the part a model with some inputs, and with `known` as constants."""
        used = [tensor for name, tensor in known.items() if name in self.read]
        return extract.model_of(
            self.imports, self.nodes, inputs, [output], [*used, *self.stored], self.sparse
        )


class Converted(Graphs):
    """The graphs of the converted model by place and value name."""

    def slice(
        self,
        place: traversal.Place,
        output: str,
        stops: Collection[str],
        known: Collection[str] = (),
    ) -> ConvertedPart | str:
        """Extract the part that computes `output` from some values, or say why there is none.

        Args:
            place: of the site.
            output: name of the output of the site.
            stops: names of its inputs.
            known: inputs with a known value; constants of the converted model for them are in the part.
        """
        if not self.has(place):
            return f"the converted model has no {place}"
        if not self.computes(output, place):
            return "its output is not in the converted model: it was merged with other nodes"

        def stop(name: str, producer: Producer | None) -> bool:
            computed = isinstance(producer, onnx.NodeProto) and producer.input
            return name in stops and (name not in known or bool(computed))

        part = self.part(place, output, stop)
        if isinstance(part, str):
            return part
        if other := sorted(part.read - set(stops)):
            return f"it also reads {other[0]!r}: it was merged with other nodes"
        return ConvertedPart(part.nodes, part.read, part.stored, part.sparse, part.imports)
