"""Whether two models are what they were given as: an original, and what was made of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.model import traversal
from onnx_spatial.model.graph import replace_nodes
from onnx_spatial.model.io import reader
from onnx_spatial.verification.checks import unchanged
from onnx_spatial.verification.report import Verification
from onnx_spatial.verification.runtime.sessions import EXTENSIONS
from onnx_spatial.verification.sizes.model_inputs import graph_inputs, named_dims


@dataclass(frozen=True)
class Roles:
    """The two models of a verification.

    Attributes:
        before, after: as they were given.
        domains: operator domains of the user's own that hold spatial operators.
    """

    before: reader.Source
    after: reader.Source
    domains: Collection[str]

    def explain(self, result: Verification) -> None:
        """Say of a failed verification that the models seem to be others than they should be."""
        left = self._left(self.after)
        if left and self._same():
            said = f"both are the same model, which does not load: {_operators(left)} still in it"
            advice = "give what `onnx-spatial convert` made of the model as the second one"
        elif left and not self._left(self.before):
            said = f"{_operators(left)} in the second model, and none in the first"
            advice = (
                "they seem to be swapped: give the original first, and then what was made of it"
            )
            if _interface(self.before.proto) != _interface(self.after.proto):
                advice = "give the original first, and then what `onnx-spatial convert` made of it"
        elif left:
            said = f"the second model is not converted: {_operators(left)} still in it"
            advice = "give what `onnx-spatial convert` made of the first model as the second one"
        else:
            found = result.first_difference
            stranger = self._stranger() if found is not None and found.kind != "value" else None
            if stranger is not None:
                result.advice = (
                    f"see whether the second model was made from the first: it has {stranger}, which "
                    "is not in the first, and which no conversion added"
                )
            return
        result.problems.insert(0, said)
        more = len(result.problems) - 1
        result.message = f"failed: {said}" + (f" (and {more} more)" if more else "")
        result.advice = advice

    def _same(self) -> bool:
        """Whether one model was given twice."""
        if _nodes(self.before.proto) != _nodes(self.after.proto):
            return False
        return next(unchanged.differences(self.before, self.after, ()), None) is None

    def _left(self, source: reader.Source) -> list[OperatorInfo]:
        """Operators that stock onnxruntime lacks, and that neither functions nor Python stand for."""
        named = named_dims(source.proto, graph_inputs(source.proto))
        found = analysis.find(named, self.domains, source.folder)
        return [f for f in found if f.known_domain and f.node.domain not in EXTENSIONS]

    def _stranger(self) -> str | None:
        """A node that no conversion of ours added, where one has added others."""
        known = {tuple(node.output) for node in self.before.proto.graph.node}
        added = [
            any(p.key == replace_nodes.ORIGIN for p in node.metadata_props)
            for node in self.after.proto.graph.node
        ]
        for node, ours in zip(self.after.proto.graph.node, added, strict=True):
            if any(added) and not ours and tuple(node.output) not in known:
                return f"{node.op_type} node {traversal.label(node)!r}"
        return None


def _nodes(model: onnx.ModelProto) -> list[tuple[str, str]]:
    return [(node.domain, node.op_type) for _, _, node in traversal.nodes(model)]


def _interface(model: onnx.ModelProto) -> tuple[set[str], set[str]]:
    return {v.name for v in model.graph.input}, {v.name for v in model.graph.output}


def _operators(found: Collection[OperatorInfo]) -> str:
    return f"{len(found)} spatial operator{' is' if len(found) == 1 else 's are'}"
