"""Strip a model to nodes and names, the part that an edit with onnx_ir needs.

onnx_ir cannot read map types, sparse tensors in attributes, or element types newer than itself, which
a model may hold far from the spatial operators. `model.graph.patch_proto` takes everything that is
stripped here from the original message when it writes the edit back.
"""

from __future__ import annotations

import onnx

from onnx_spatial.model import traversal
from onnx_spatial.model.graph.strip_weights import copy_node


def strip_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copy the nodes of a model in the same order, with values that have no types.

    Nodes keep names, documentation and graphs, and lose other attributes. Initializers become inputs
    of their graphs.
    """
    copy = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    _copy_graph(model.graph, copy.graph)
    for function in model.functions:
        target = copy.functions.add(
            domain=function.domain,
            name=function.name,
            overload=function.overload,
            opset_import=function.opset_import,
            input=function.input,
            output=function.output,
        )
        _copy_nodes(function, target)
    return copy


def _copy_graph(graph: onnx.GraphProto, copy: onnx.GraphProto) -> None:
    copy.name = graph.name
    names = [v.name for v in graph.input]
    names += [t.name for t in graph.initializer]
    names += [t.values.name for t in graph.sparse_initializer]
    for name in dict.fromkeys(names):
        copy.input.add(name=name)
    for value in graph.output:
        copy.output.add(name=value.name)
    _copy_nodes(graph, copy)


def _copy_nodes(graph: traversal.GraphLike, copy: traversal.GraphLike) -> None:
    for node in graph.node:
        target = copy_node(node, copy, _copy_graph, lambda attribute, node: None)
        if node.HasField("doc_string"):
            target.doc_string = node.doc_string
        target.metadata_props.extend(node.metadata_props)
