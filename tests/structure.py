"""What converted models look like: which nodes they hold, and which of them do nothing."""

from collections import Counter
from collections.abc import Iterator

import onnx
from onnx import numpy_helper

SPATIAL = {
    "SpaceToBatch",
    "BatchToSpace",
    "SpaceToBatchND",
    "BatchToSpaceND",
    "ExtractImagePatches",
    "ExtractVolumePatches",
    "ReorgYolo",
    "Rearrange",
}


def nodes(held: onnx.ModelProto | onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """Every node, those in subgraphs and functions included."""
    if isinstance(held, onnx.ModelProto):
        for holder in (held.graph, *held.functions):
            yield from nodes(holder)
        return
    for node in held.node:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from nodes(graph)


def ops(model: onnx.ModelProto) -> list[str]:
    """Operator types of the main graph, in order; Constants left out."""
    return [n.op_type for n in model.graph.node if n.op_type != "Constant"]


def counts(model: onnx.ModelProto) -> Counter[str]:
    """How often each operator type stands in the model."""
    return Counter(n.op_type for n in nodes(model))


def spatial(model: onnx.ModelProto) -> list[str]:
    """The operators that should be gone."""
    return [
        n.op_type
        for n in nodes(model)
        if n.op_type in SPATIAL
        or (n.op_type in ("SpaceToDepth", "DepthToSpace") and len(n.input) == 3)
    ]


def dims(model: onnx.ModelProto, name: str) -> list[int | str | None] | None:
    """Declared dims of a value of the main graph; None if nothing is declared."""
    graph = model.graph
    for info in (*graph.value_info, *graph.output, *graph.input):
        if info.name == name and info.type.tensor_type.HasField("shape"):
            return [
                d.dim_value if d.HasField("dim_value") else d.dim_param or None
                for d in info.type.tensor_type.shape.dim
            ]
    return None


def initializer(model: onnx.ModelProto, name: str) -> object:
    """The value of an initializer of the main graph."""
    return numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == name))


def written(model: onnx.ModelProto) -> list[str]:
    """Operator types of the nodes that conversion wrote, Constants left out."""
    return [
        n.op_type
        for n in nodes(model)
        if n.op_type != "Constant" and any(p.key == "onnx_spatial.origin" for p in n.metadata_props)
    ]
