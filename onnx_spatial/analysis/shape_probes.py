"""Replace spatial nodes by probes, which shape inference asks for their output types."""

from __future__ import annotations

import onnx

from onnx_spatial.model import traversal
from onnx_spatial.model.graph.repeated_fields import remove_named
from onnx_spatial.model.inference import shape_inference

#: Domains whose types onnx infers.
_INFERRED = frozenset({"", "ai.onnx", "ai.onnx.ml", shape_inference.DOMAIN})


def make_probe(node: onnx.NodeProto, number: int) -> None:
    """Turn a spatial node into the probe with this number."""
    node.domain, node.op_type = shape_inference.DOMAIN, shape_inference.PROBE
    del node.output[1:]
    remove_named(node.attribute, {shape_inference.NUMBER})  # of the file
    node.attribute.append(onnx.helper.make_attribute(shape_inference.NUMBER, number))


def probes(graph: traversal.GraphLike) -> list[onnx.NodeProto]:
    """Return the probes of a graph, without those of graphs inside it."""
    return [node for node in graph.node if node.domain == shape_inference.DOMAIN]


def number_of(node: onnx.NodeProto) -> onnx.AttributeProto:
    """Return the attribute that holds the number of a probe."""
    number: onnx.AttributeProto
    (number,) = (a for a in node.attribute if a.name == shape_inference.NUMBER)
    return number


def import_probes(model: onnx.ModelProto) -> None:
    """Import the domain of probes in every function."""
    for function in model.functions:
        function.opset_import.append(onnx.helper.make_opsetid(shape_inference.DOMAIN, 1))


def drop_doubtful_shapes(model: onnx.ModelProto) -> None:
    """Remove declared shapes behind spatial operators: exporters that do not know these guess.

    Shapes behind operators of unknown domains are kept: no inference could replace them.
    """
    nodes = [node for _, _, node in traversal.nodes(model)]
    probed = {n.output[0] for n in nodes if n.domain == shape_inference.DOMAIN and n.output}
    inferred = {name for node in nodes if node.domain in _INFERRED for name in node.output}
    behind = shape_inference.downstream(model.graph, probed)
    shape_inference.forget_shapes(model, behind & inferred)
