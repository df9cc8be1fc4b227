"""Write new nodes in the place of others, under names that nothing has.

    x -> [SpaceToBatch s] -> y      x -> [Pad s] -> [Reshape s_1] -> [Transpose s_2] -> y

Nodes are replaced in an onnx_ir model; `patch_proto` writes them to the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from onnx_spatial.model import traversal


class Names:
    """Names in use in a model, in all its graphs and functions."""

    def __init__(self, model: traversal.Index) -> None:
        self._used: set[str] = {node.name for node in model.nodes}
        for _, graph in model.graphs:
            flow = model.flow(graph)
            self._used.update(flow.producers, flow.readers, traversal.stored_names(graph))
            for values in (graph.input, graph.output, graph.value_info):
                self._used.update(traversal.value_names(values))

    def fresh(self, base: str) -> str:
        """Return `base`, or `base_1`, `base_2`, ... if it is in use, and add it to the names."""
        name, count = base, 0
        while name in self._used:
            count += 1
            name = f"{base}_{count}"
        self._used.add(name)
        return name


#: Metadata key on every new node: operator type and name of the node that it replaces.
ORIGIN = "onnx_spatial.origin"


@dataclass
class Draft:
    """New nodes for the place of one node, not yet in its graph.

    Attributes:
        node: the node of the graph.
        nodes: new nodes in topological order.
        constants: (value, hint for its name) that they read.
        results: the value that replaces each output of a removed node, of a draft or of the graph.
            It takes the name of the output; one that has a name already is copied, and readers are
            never edited. Missing outputs are removed.
        successor: the new node that takes over name, documentation and metadata of `node`.
        documented: the new node that takes over only documentation and metadata.
    """

    node: ir.Node
    nodes: list[ir.Node] = field(default_factory=list)
    constants: list[tuple[ir.Value, str]] = field(default_factory=list)
    results: dict[ir.Value, ir.Value] = field(default_factory=dict)
    successor: ir.Node | None = None
    documented: ir.Node | None = None

    def constant(self, array: npt.NDArray[np.generic], hint: str) -> ir.Value:
        """Add a constant for the nodes to read."""
        tensor = ir.Tensor(array)
        value = ir.Value(
            type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor
        )
        self.constants.append((value, hint))
        return value


@dataclass
class GraphEdit:
    """An edit of one graph.

    Attributes:
        drafts: nodes in the place of others; each draft reads only values computed in front of its node.
        removed: further nodes to remove; nobody else may need their outputs.
    """

    drafts: list[Draft] = field(default_factory=list)
    removed: list[ir.Node] = field(default_factory=list)


def copy_node(
    node: ir.Node, inputs: Sequence[ir.Value | None], message: onnx.NodeProto | None = None
) -> ir.Node:
    """Copy a node with all its fields but its name, for other inputs; the copy is in no graph.

    Args:
        node: the node; as a part of a stripped model (`strip_types`) it has no attributes.
        inputs: the values that the copy reads.
        message: the node in the file, which has its attributes; None for a node that is new.
    """
    attributes = list(node.attributes.values())
    if message is not None:
        attributes = [ir.serde.deserialize_attribute(each) for each in message.attribute]
    return ir.Node(
        node.domain,
        node.op_type,
        inputs,
        attributes,
        overload=node.overload,
        num_outputs=len(node.outputs),
        doc_string=node.doc_string,
        metadata_props=dict(node.metadata_props),
    )


def apply_edit(
    edit: GraphEdit, names: Names, *, initializers: bool
) -> dict[ir.Node, list[ir.Node]]:
    """Put drafts in the place of nodes, and remove other nodes.

    Constants become initializers, or Constant nodes without `initializers`: in functions and in
    files older than IR 4.

    Returns:
        The new nodes in the place of each draft's node, Constant nodes included.
    """
    drafts = edit.drafts
    # onnx_ir names every unnamed value that enters a graph; these take the names of others.
    unnamed = {result for draft in drafts for result in draft.results.values()}
    new_nodes = {draft.node: _insert_draft(draft, unnamed, names, initializers) for draft in drafts}
    nameless = {value for draft in drafts for node in draft.nodes for value in node.outputs}
    successors: dict[ir.Value, ir.Value] = {}
    for draft in drafts:
        for old, result in draft.results.items():
            graph = draft.node.graph
            assert graph is not None
            result = successors.get(result, result)
            if result not in nameless:
                copy = ir.node("Identity", [result])
                copy.name = names.fresh(f"{_name_prefix(draft.node)}/Identity")
                copy.metadata_props[ORIGIN] = origin_of(draft.node.op_type, draft.node.name)
                graph.insert_before(draft.node, copy)
                new_nodes[draft.node].append(copy)
                result = copy.outputs[0]
            nameless.discard(result)
            successors[old] = result
            result.type, result.shape = old.type, old.shape
            ir.convenience.replace_all_uses_with(old, result, replace_graph_outputs=True)
            result.name, old.name = old.name, None
    remove_nodes(*(draft.node for draft in drafts), *edit.removed)
    return new_nodes


def remove_nodes(*nodes: ir.Node) -> None:
    """Remove nodes whose outputs no other node reads."""
    _forget_drafts(nodes)
    for graph in {node.graph for node in nodes}:
        assert graph is not None
        graph.remove([node for node in nodes if node.graph is graph], safe=True)


def _insert_draft(
    draft: Draft, unnamed: set[ir.Value], names: Names, initializers: bool
) -> list[ir.Node]:
    """Insert the nodes of a draft in front of its node, with names but for the values `unnamed`.

    Returns:
        The nodes, Constant nodes included.
    """
    node, graph = draft.node, draft.node.graph
    assert graph is not None
    new_nodes: list[ir.Node] = []
    for value, hint in draft.constants:
        if initializers and isinstance(graph, ir.Graph):
            value.name = names.fresh(f"{_name_prefix(node)}/{hint}")
            graph.initializers.add(value)
        else:
            new_nodes.append(_constant_node(value, f"{_name_prefix(node)}/{hint}", names))
    new_nodes += draft.nodes
    for new in new_nodes:
        if new is draft.successor:
            new.name = node.name or None
        if new in (draft.successor, draft.documented):
            new.doc_string = node.doc_string
            for key, text in node.metadata_props.items():
                new.metadata_props.setdefault(key, text)
        if new.name is None:
            new.name = names.fresh(f"{_name_prefix(node)}/{new.op_type}")
        new.metadata_props[ORIGIN] = origin_of(node.op_type, node.name)
        for index, value in enumerate(new.outputs):
            if value not in unnamed and value.name is None:
                value.name = names.fresh(f"{new.name}:{index}")
    graph.insert_before(node, new_nodes)
    return new_nodes


def _name_prefix(node: ir.Node) -> str:
    """Return the prefix of the names of new nodes."""
    return node.name or next((v.name for v in node.outputs if v.name), None) or node.op_type


def origin_of(op_type: str, name: str | None) -> str:
    """Return the value of `ORIGIN` for what replaces a node, whose name may be missing or a label."""
    return op_type if not name or name.startswith("<") else f"{op_type} {name}"


def _forget_drafts(removed: Sequence[ir.Node]) -> None:
    """Detach readers that are in no graph: drafts that were compared and not taken."""
    for value in (value for node in removed for value in node.outputs):
        for reader, index in tuple(value.uses()):
            if reader.graph is None:
                reader.replace_input_with(index, None)


def _constant_node(value: ir.Value, base: str, names: Names) -> ir.Node:
    """Return a Constant node whose output takes over all uses of `value`."""
    node = ir.node("Constant", [], {"value": value.const_value})
    node.name = names.fresh(base)
    node.outputs[0].name = names.fresh(f"{node.name}:0")
    node.outputs[0].meta.update(value.meta)
    ir.convenience.replace_all_uses_with(value, node.outputs[0])
    return node
