"""Replace spatial nodes by probes, which shape inference asks for their output types."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.repeated_fields import remove_named
from onnx_spatial.model.inference import constant_folding, shape_inference


def make_probe(node: onnx.NodeProto, number: int) -> None:
    """Turn a spatial node into the probe with this number."""
    node.domain, node.op_type = shape_inference.DOMAIN, shape_inference.PROBE
    del node.output[1:]
    remove_named(node.attribute, {shape_inference.NUMBER})  # of the file
    node.attribute.append(onnx.helper.make_attribute(shape_inference.NUMBER, number))


def probes(
    model: onnx.ModelProto,
) -> Iterator[tuple[constant_folding.ConstantScope, onnx.NodeProto]]:
    """Yield the probes of a model with the scopes of their graphs."""
    for scope, graph in constant_folding.scopes(model):
        for node in graph.node:
            if node.domain == shape_inference.DOMAIN:
                yield scope, node


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
    standard = {
        name
        for node in nodes
        if op_traits.is_standard(node) or node.domain in ("ai.onnx.ml", shape_inference.DOMAIN)
        for name in node.output
    }
    doubtful = shape_inference.downstream(model.graph, probed) & standard
    shape_inference.forget_shapes(model, doubtful)
