"""A model's nodes and names, and nothing else: what an edit with onnx_ir needs to see.

onnx_ir has no map types, no sparse tensors in attributes and none of the types that come after it;
a model that holds such things far from our operators is none the worse for it. What is left out
here is taken from the original message when the edit is written back (`model.graph.patch_proto`).
"""

from __future__ import annotations

import onnx

from onnx_spatial.model import traversal


def outline(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of `model` with the same nodes in the same order, and values without types.

    Nodes keep names, documentation and graphs; other attributes are left out. Initializers become
    inputs of their graphs.
    """
    copy = onnx.ModelProto(ir_version=model.ir_version)
    copy.opset_import.extend(model.opset_import)
    _copy_graph(model.graph, copy.graph)
    for function in model.functions:
        target = copy.functions.add(
            domain=function.domain, name=function.name, overload=function.overload
        )
        target.opset_import.extend(function.opset_import)
        target.input.extend(function.input)
        target.output.extend(function.output)
        _copy_nodes(function, target)
    return copy


def _copy_graph(graph: onnx.GraphProto, copy: onnx.GraphProto) -> None:
    copy.name = graph.name
    given = [v.name for v in graph.input]
    given += [t.name for t in graph.initializer]
    given += [t.values.name for t in graph.sparse_initializer]
    for name in dict.fromkeys(given):
        copy.input.add(name=name)
    for value in graph.output:
        copy.output.add(name=value.name)
    _copy_nodes(graph, copy)


def _copy_nodes(graph: traversal.GraphLike, copy: traversal.GraphLike) -> None:
    for node in graph.node:
        target = copy.node.add(
            op_type=node.op_type, domain=node.domain, name=node.name, overload=node.overload
        )
        target.input.extend(node.input)
        target.output.extend(node.output)
        if node.HasField("doc_string"):
            target.doc_string = node.doc_string
        target.metadata_props.extend(node.metadata_props)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                added = target.attribute.add(name=attribute.name, type=attribute.type)
                _copy_graph(attribute.g, added.g)
            elif attribute.type == onnx.AttributeProto.GRAPHS:
                added = target.attribute.add(name=attribute.name, type=attribute.type)
                for inner in attribute.graphs:
                    _copy_graph(inner, added.graphs.add())
