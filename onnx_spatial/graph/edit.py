"""Put nodes in the place of another node, in any graph or function of an onnx_ir model."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_spatial.graph.names import Names

#: Metadata key on every new node: operator type and name of the node that it stands for.
ORIGIN = "onnx_spatial.origin"


def splice(
    node: ir.Node,
    new_nodes: Sequence[ir.Node],
    output: ir.Value,
    constants: Sequence[tuple[ir.Value, str]],
    names: Names,
    *,
    initializers: bool,
) -> None:
    """Replace `node` by `new_nodes`; `output` takes the name of its first output.

    Args:
        node: has one output that is used; the others must have no uses.
        new_nodes: in topological order, not yet in any graph.
        output: one of their outputs.
        constants: (value, hint for its name), not yet in any graph.
        names: names in use in the model.
        initializers: whether constants may be initializers; they are Constant nodes otherwise, as
            functions and files older than IR 4 demand.
    """
    graph = node.graph
    assert graph is not None
    base = node.name or next((v.name for v in node.outputs if v.name), None) or node.op_type
    origin = f"{node.op_type} {node.name or ''}".strip()
    made: list[ir.Node] = []
    for value, hint in constants:
        if initializers and isinstance(graph, ir.Graph):
            value.name = names.fresh(f"{base}/{hint}")
            graph.initializers.add(value)
        else:
            made.append(_constant_node(value, f"{base}/{hint}", names))
    for new in (*made, *new_nodes):
        if new.name is None:
            new.name = names.fresh(f"{base}/{new.op_type}")
        new.metadata_props[ORIGIN] = origin
        for value in new.outputs:
            if value is not output and value.name is None:
                value.name = names.fresh(f"{new.name}:0")
    old = node.outputs[0]
    final = output.producer()
    assert final is not None
    final.doc_string = node.doc_string
    final.metadata_props.update(node.metadata_props)
    output.type, output.shape = old.type, old.shape
    graph.insert_before(node, (*made, *new_nodes))
    ir.convenience.replace_all_uses_with(old, output, replace_graph_outputs=True)
    output.name, old.name = old.name, None
    graph.remove(node, safe=True)


def _constant_node(value: ir.Value, base: str, names: Names) -> ir.Node:
    """A Constant node whose output takes over all uses of `value`."""
    node = ir.node(
        "Constant", [], {"value": ir.Attr("value", ir.AttributeType.TENSOR, value.const_value)}
    )
    node.name = names.fresh(base)
    node.outputs[0].name = names.fresh(f"{node.name}:0")
    ir.convenience.replace_all_uses_with(value, node.outputs[0])
    return node
