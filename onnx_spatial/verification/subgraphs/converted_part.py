"""Find in the converted model what stands for a site, and cut it out.

Converted models keep the names of the original's values, in the same graph. So the nodes that replace
one node, or several (`transpose_chain`, `matching_region`), are all those that lead from its inputs to
its outputs, both found by name:

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
    """The nodes that stand for a site; of its inputs they read `read`."""

    def model(
        self,
        inputs: Mapping[str, onnx.TypeProto],
        known: Mapping[str, onnx.TensorProto],
        output: str,
    ) -> onnx.ModelProto:
        """A model of its own: `inputs` are fed, `known` are constant."""
        used = [tensor for name, tensor in known.items() if name in self.read]
        return extract.model_of(
            self.imports, self.nodes, inputs, [output], [*used, *self.stored], self.sparse
        )


class Converted(Graphs):
    """The converted model, by graph and value name."""

    def slice(
        self,
        place: traversal.Place,
        output: str,
        stops: Collection[str],
        known: Collection[str] = (),
    ) -> ConvertedPart | str:
        """What leads from some values to `output` in the graph at `place`, or why there is none.

        Values of the graphs around it are followed too.

        Args:
            place: of the site.
            output: name of the value that the site gives.
            stops: names of the site's inputs.
            known: those of them whose value is known; where the converted model stores them as
                constants, its own constants are part of the slice.
        """
        if not self.has(place):
            return f"the converted model has no {place}"
        if not self.computes(output, place):
            return "its output is not a value of the converted model: it was merged with others"

        def stop(name: str, found: Producer | None) -> bool:
            own = name in known and not (isinstance(found, onnx.NodeProto) and found.input)
            return name in stops and not own

        part = self.part(place, output, stop)
        if isinstance(part, str):
            return part
        if other := sorted(part.read - set(stops)):
            return f"it also reads {other[0]!r}: it was merged with others"
        return ConvertedPart(part.nodes, part.read, part.stored, part.sparse, part.imports)
