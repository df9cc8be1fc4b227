"""Tell a failed conversion from two models that were given in the wrong places."""

from __future__ import annotations

import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.model import traversal
from onnx_spatial.model.graph import replace_nodes
from onnx_spatial.model.io import reader
from onnx_spatial.verification.checks import unchanged
from onnx_spatial.verification.diagnosis.advice import NOT_LOADED
from onnx_spatial.verification.evaluate import ReferenceModel
from onnx_spatial.verification.match.definitions import Definitions
from onnx_spatial.verification.match.graphs import Graphs
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.report import Verification
from onnx_spatial.verification.runtime.sessions import EXTENSIONS


def explain(result: Verification, models: ModelPair) -> None:
    """Say in a failed verification that the models, as given, are not an original and its conversion."""
    left = _not_converted(models.converted, models)
    if not left:
        difference = result.first_difference
        if difference is None or difference.kind == "value" or NOT_LOADED in difference.message:
            return
        if added := _added(models):
            result.advice = (
                f"check that the second model was converted from the first: only the second has "
                f"{added}, which the conversion did not add"
            )
        return
    count = f"{len(left)} spatial operator{'' if len(left) == 1 else 's'}"
    advice = "pass the result of `onnx-spatial convert` on the first model as the second model"
    if _same(models):
        problem = f"both are the same model, which is not converted: it still holds {count}"
        advice = "pass the result of `onnx-spatial convert` as the second model"
    elif _not_converted(models.original, models):
        problem = f"the second model is not converted: it still holds {count}"
    else:
        problem = f"the second model still holds {count}, the first none"
        advice = "pass the original first, then the result of `onnx-spatial convert`"
        if _interface(models.original.proto) == _interface(models.converted.proto):
            problem += ": are the arguments swapped?"
            advice = "swap the arguments: the original comes first, then its conversion"
    result.problems = [problem]  # all others follow from it
    result.message = f"failed: {problem}"
    result.advice = advice


def _same(models: ModelPair) -> bool:
    """Return whether one model was given twice."""
    if _nodes(models.original.proto) != _nodes(models.converted.proto):
        return False
    before, after = (Graphs(source.proto) for source in (models.original, models.converted))
    return not any(unchanged.differences(Definitions(before, after, models.folders), ()))


def _not_converted(source: reader.Source, models: ModelPair) -> list[OperatorInfo]:
    """Return the operators of a model that onnxruntime lacks, without function or Python operator."""
    infos = ReferenceModel(source, models.domains).known_infos
    return [info for info in infos if info.node.domain not in EXTENSIONS]


def _added(models: ModelPair) -> str | None:
    """Find a new node without the mark of a conversion, where other nodes have it."""
    known = {tuple(node.output) for node in models.original.proto.graph.node}
    nodes = models.converted.proto.graph.node
    marked = [any(p.key == replace_nodes.ORIGIN for p in n.metadata_props) for n in nodes]
    for node, is_marked in zip(nodes, marked, strict=True):
        if any(marked) and not is_marked and tuple(node.output) not in known:
            return f"{node.op_type} node {traversal.label(node)!r}"
    return None


def _nodes(model: onnx.ModelProto) -> list[tuple[str, str]]:
    return [(node.domain, node.op_type) for _, _, node in traversal.nodes(model)]


def _interface(model: onnx.ModelProto) -> tuple[set[str], set[str]]:
    return {v.name for v in model.graph.input}, {v.name for v in model.graph.output}
