"""Put nodes in the place of other nodes, in any graph or function of an onnx_ir model."""

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
    absorbed: Sequence[ir.Node] = (),
    gives: Sequence[ir.Value] = (),
) -> list[ir.Node]:
    """Replace `node` by `new_nodes`, and what they compute by `output`.

    Args:
        node: its outputs but the first must have no uses.
        new_nodes: in topological order, not yet in any graph.
        output: one of their outputs.
        constants: (value, hint for its name), not yet in any graph.
        names: names in use in the model.
        initializers: whether constants may be initializers; they are Constant nodes otherwise, as
            functions and files older than IR 4 demand.
        absorbed: further nodes of the same graph that go with `node`.
        gives: values of the nodes that go which are all equal to `output`; the default is the first
            output of `node`. `output` takes the name of the first, and the others become copies:
            readers are never edited.

    Returns:
        The nodes that stand there now, Constant nodes included.
    """
    graph = node.graph
    assert graph is not None
    old, *copies = gives or node.outputs[:1]
    base = node.name or next((v.name for v in node.outputs if v.name), None) or node.op_type
    origin = f"{node.op_type} {node.name or ''}".strip()
    made: list[ir.Node] = []
    for value, hint in constants:
        if initializers and isinstance(graph, ir.Graph):
            value.name = names.fresh(f"{base}/{hint}")
            graph.initializers.add(value)
        else:
            made.append(_constant_node(value, f"{base}/{hint}", names))
    made += new_nodes
    made += (ir.node("Identity", [output]) for _ in copies)
    results = (output, *(copy.outputs[0] for copy in made[len(made) - len(copies) :]))
    for new in made:
        if new.name is None:
            new.name = names.fresh(f"{base}/{new.op_type}")
        new.metadata_props[ORIGIN] = origin
        for value in new.outputs:
            if value not in results and value.name is None:
                value.name = names.fresh(f"{new.name}:0")
    final = output.producer()
    assert final is not None
    final.doc_string = node.doc_string
    final.metadata_props.update(node.metadata_props)
    graph.insert_before(node, made)
    for value, result in zip((old, *copies), results, strict=True):
        result.type, result.shape = value.type, value.shape
        ir.convenience.replace_all_uses_with(value, result, replace_graph_outputs=True)
        result.name, value.name = value.name, None
    gone = (node, *absorbed)
    _forget_drafts(gone)
    graph.remove(gone, safe=True)
    return made


def _forget_drafts(gone: Sequence[ir.Node]) -> None:
    """Take away readers that are in no graph: forms of a node that were compared and not taken."""
    for value in (value for node in gone for value in node.outputs):
        for reader, index in tuple(value.uses()):
            if reader.graph is None:
                reader.replace_input_with(index, None)


def _constant_node(value: ir.Value, base: str, names: Names) -> ir.Node:
    """A Constant node whose output takes over all uses of `value`."""
    node = ir.node(
        "Constant", [], {"value": ir.Attr("value", ir.AttributeType.TENSOR, value.const_value)}
    )
    node.name = names.fresh(base)
    node.outputs[0].name = names.fresh(f"{node.name}:0")
    ir.convenience.replace_all_uses_with(value, node.outputs[0])
    return node
