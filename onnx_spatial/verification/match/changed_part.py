"""Hold two parts, one of each model, that must compute the same value.

    original    x -> [SpaceToBatchND] -> s -> [Conv] -> c -> [BatchToSpaceND] -> y
    converted   x -> [Conv, dilated] ------------------------------------------> y

Both read x and compute y. If every such pair of parts computes the same, and the rest of both models is
identical, then both models compute the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from onnx_spatial.model import traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.verification.match.graphs import Part


@dataclass(frozen=True)
class ChangedPart:
    """A part of the original, and what computes the same value in the converted model.

    Attributes:
        place: of the graph that holds the value, in both models.
        output: name of the value.
        before: nodes of the original.
        after: nodes of the converted model; they read no other values than `before` does.
        inputs: types of the values that `before` reads, by name, as far as they are known.
        nodes: positions of the nodes of `before`, in `traversal.nodes` of the original.
        fed: whether its inputs are those of the whole model, which may have any legal sizes.
    """

    place: traversal.Place
    output: str
    before: Part
    after: Part
    inputs: dict[str, onnx.TypeProto]
    nodes: frozenset[int]
    fed: bool

    @property
    def is_static(self) -> bool:
        """Whether all sizes of the values that it reads are fixed."""
        dims = [shape_inference.dims(known) for known in self.inputs.values()]
        return all(d is not None and all(isinstance(size, int) for size in d) for d in dims)

    @property
    def sizes_occur(self) -> bool:
        """Whether any legal sizes of its inputs occur in the whole model."""
        return self.fed or self.is_static

    def original(self) -> onnx.ModelProto:
        """Make the part of the original a model."""
        return self.before.model(self.inputs, self.output)

    def converted(self) -> onnx.ModelProto:
        """Make the part of the converted model a model, with the inputs that it reads."""
        inputs = {name: self.inputs[name] for name in sorted(self.after.read)}
        return self.after.model(inputs, self.output)


@dataclass(frozen=True)
class Unmatched:
    """A value of the original that the converted model changes, and for which there are no two parts.

    Attributes:
        place, output: graph and name of the value.
        nodes: positions of the nodes of the original that it is about, in `traversal.nodes`.
        reason: why there are none, as the rest of a sentence.
    """

    place: traversal.Place
    output: str
    nodes: frozenset[int]
    reason: str


@dataclass(frozen=True)
class Upstream:
    """How the original computes some of the values that a part reads.

    Attributes:
        names: names of these values.
        ties: those that are no sizes: they are only needed where one depends on another.
        nodes: the nodes that compute them.
        stored: the constants of these nodes.
        inputs: types of the values that it reads, by name.
    """

    names: set[str]
    ties: set[str]
    nodes: list[onnx.NodeProto]
    stored: list[onnx.TensorProto]
    inputs: dict[str, onnx.TypeProto]
