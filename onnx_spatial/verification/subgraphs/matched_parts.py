"""Hold the parts of the original and the converted model that must compute the same value."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from onnx_spatial.model import traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.verification.match.graphs import Part

#: Graph and name of the value that a region computes.
RegionKey = tuple[traversal.Place, str]


@dataclass(frozen=True)
class MatchingRegion:
    """Two parts that must compute the same value.

    Attributes:
        place: of the graph that holds the output, in both models.
        output: name of the value.
        before: part of the original.
        after: part of the converted model; it reads no other values than `before`.
        inputs: types of the values that the parts read, as far as they are known, by name.
        sites: positions of the sites in it in `traversal.nodes`.
        replaced: positions of the nodes of the original that the conversion replaced.
        fed: whether its inputs are those of the model, and may have any values.
    """

    place: traversal.Place
    output: str
    before: Part
    after: Part
    inputs: dict[str, onnx.TypeProto]
    sites: frozenset[int]
    replaced: frozenset[int]
    fed: bool

    @property
    def key(self) -> RegionKey:
        """The value that it computes."""
        return self.place, self.output

    @property
    def settled(self) -> bool:
        """Whether any legal sizes of its inputs occur in the whole model."""
        return self.fed or self.is_static

    @property
    def is_static(self) -> bool:
        """Whether all sizes of the values that it reads are fixed."""
        dims = [shape_inference.dims(known) for known in self.inputs.values()]
        return all(d is not None and all(isinstance(size, int) for size in d) for d in dims)

    def original(self) -> onnx.ModelProto:
        """Make the part of the original a model."""
        return self.before.model(self.inputs, self.output)

    def converted(self) -> onnx.ModelProto:
        """Make the part of the converted model a model, with the inputs that it reads."""
        inputs = {n: self.inputs[n] for n in sorted(self.after.read)}
        return self.after.model(inputs, self.output)


@dataclass(frozen=True)
class Upstream:
    """How the original computes some of the values that a region reads.

    Attributes:
        names: names of these values.
        ties: those that both parts read: they are only needed where one depends on another.
        nodes: the nodes that compute them.
        stored: the constants of these nodes.
        inputs: types of the values that it reads, by name.
    """

    names: set[str]
    ties: set[str]
    nodes: list[onnx.NodeProto]
    stored: list[onnx.TensorProto]
    inputs: dict[str, onnx.TypeProto]
