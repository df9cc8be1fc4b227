"""Write an edited onnx_ir model as a patch of the message that it was read from.

A round trip through onnx_ir is close to lossless but not quite: sparse initializers, training info,
quantization annotations, unknown fields and more come back changed. So every message that the edit
left alone is kept as it was, and only new nodes and initializers are serialized.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
import onnx_ir as ir

from onnx_spatial.model import op_traits, traversal

IrGraph = ir.Graph | ir.Function


class Patch:
    """Pairs a model's nodes with its messages; `apply` carries later edits over.

    Make it before the first edit. Nodes that stay are taken over as they were: an edit replaces
    nodes, it never changes one.
    """

    def __init__(self, proto: onnx.ModelProto, model: ir.Model) -> None:
        self._proto = proto
        self._model = model
        self._index: dict[ir.Node, int] = {}
        self._remember(model.graph)
        for function in model.functions.values():
            self._remember(function)

    def _remember(self, graph: IrGraph) -> None:
        for index, node in enumerate(graph):
            self._index[node] = index
            for _, inner in traversal.ir_subgraphs(node):
                self._remember(inner)

    def apply(self) -> onnx.ModelProto:
        """A copy of the message with the edits in it."""
        copy = onnx.ModelProto()
        copy.CopyFrom(self._proto)
        self._graph(copy.graph, self._model.graph)
        for message, function in zip(copy.functions, self._model.functions.values(), strict=True):
            self._graph(message, function)
        return copy

    def _graph(self, message: traversal.GraphLike, graph: IrGraph) -> None:
        nodes, edited = [], len(message.node) != len(graph)
        for node in graph:
            index = self._index.get(node)
            if index is None:
                nodes.append(ir.serde.serialize_node(node))
                edited = True
                continue
            kept = message.node[index]
            for (_, inner_message), (_, inner) in zip(
                traversal.subgraphs(kept), traversal.ir_subgraphs(node), strict=True
            ):
                self._graph(inner_message, inner)
            nodes.append(kept)
        if edited:
            del message.node[:]
            message.node.extend(nodes)
        if isinstance(message, onnx.GraphProto) and isinstance(graph, ir.Graph):
            known = {t.name for t in message.initializer}
            for name, value in graph.initializers.items():
                if name not in known and value.const_value is not None:
                    tensor = ir.serde.serialize_tensor(value.const_value)
                    tensor.name = name
                    message.initializer.append(tensor)


def adjust_imports(
    proto: onnx.ModelProto, converted: Iterable[tuple[traversal.Place, str]], opset: int | None
) -> list[str]:
    """Drop imports that no node needs any more; import "" where it is needed now.

    Args:
        proto: the converted model, changed in place.
        converted: places and domains of the nodes that were replaced.
        opset: version of "" where it was not imported; None leaves it missing.

    Returns:
        The domains that the model no longer imports.
    """
    replaced = set(converted)
    candidates = {d for _, d in replaced if not op_traits.is_standard_domain(d)}
    everywhere: set[str] = set()
    for function in proto.functions:
        place = traversal.Place((function.domain, function.name, function.overload))
        used = {n.domain for _, _, n in traversal.graph_nodes(place, function)}
        here = {d for p, d in replaced if p.function == place.function} & candidates
        _adjust(function.opset_import, here - used, "" in used, opset)
        used |= {o.domain for o in function.opset_import}
        everywhere |= used | {function.domain}
    everywhere |= {n.domain for _, _, n in traversal.graph_nodes(traversal.Place(), proto.graph)}
    return _adjust(proto.opset_import, candidates - everywhere, "" in everywhere, opset)


def _adjust(imports: object, dead: set[str], needs_default: bool, opset: int | None) -> list[str]:
    dropped = []
    for index in reversed(range(len(imports))):  # type: ignore[arg-type]
        domain = imports[index].domain  # type: ignore[index]
        if domain in dead:
            dropped.append(domain)
            del imports[index]  # type: ignore[attr-defined]
    domains = {o.domain for o in imports}  # type: ignore[attr-defined]
    if needs_default and opset is not None and not any(map(op_traits.is_standard_domain, domains)):
        imports.append(onnx.helper.make_opsetid("", opset))  # type: ignore[attr-defined]
    return dropped[::-1]


def add_import(imports: object, domain: str) -> None:
    """Import version 1 of a domain where it is not imported yet."""
    if all(o.domain != domain for o in imports):  # type: ignore[attr-defined]
        imports.append(onnx.helper.make_opsetid(domain, 1))  # type: ignore[attr-defined]


def import_where_used(model: onnx.ModelProto, domain: str) -> None:
    """Import version 1 of a domain wherever nodes are of it, and for the model as a whole."""
    used = any(
        n.domain == domain for _, _, n in traversal.graph_nodes(traversal.Place(), model.graph)
    )
    for function in model.functions:
        if any(
            n.domain == domain for _, _, n in traversal.graph_nodes(traversal.Place(), function)
        ):
            add_import(function.opset_import, domain)
            used = True
    if used:
        add_import(model.opset_import, domain)


def freeze(proto: onnx.ModelProto, sizes: dict[str, int]) -> tuple[onnx.ModelProto, set[str]]:
    """A copy with symbolic dims replaced by sizes, and the names that were nowhere to be found."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    found: set[str] = set()
    for _, graph in traversal.graphs(copy):
        infos = list(graph.value_info)
        if isinstance(graph, onnx.GraphProto):
            infos += [*graph.input, *graph.output]
        for info in infos:
            for dim in _dims(info.type):
                if dim.dim_param in sizes:
                    found.add(dim.dim_param)
                    dim.dim_value = sizes[dim.dim_param]
    return copy, sizes.keys() - found


def _dims(known: onnx.TypeProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    """The dims of a tensor type, or of those inside a sequence, optional or map type."""
    kind = known.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        yield from getattr(known, kind).shape.dim
    elif kind in ("sequence_type", "optional_type"):
        yield from _dims(getattr(known, kind).elem_type)
    elif kind == "map_type":
        yield from _dims(known.map_type.value_type)
