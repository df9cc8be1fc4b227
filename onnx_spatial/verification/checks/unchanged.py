"""Whether a converted model holds the rest of the original unchanged: all but the spatial operators.

Where the whole cannot be run this takes the place of the run: if every other node, initializer and
function is the same message and every operator was proven on its own, nothing else can differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.io import external_data, reader


def differences(
    original: reader.Source, converted: reader.Source, sites: Collection[int]
) -> Iterator[str]:
    """One line for each part of the original that the converted model lacks or holds otherwise.

    Args:
        original: the original.
        converted: what was made of it.
        sites: positions of the nodes that something else stands for, in the order of `traversal.nodes`:
            the spatial operators, and the Transposes and regions that were proven with them.
    """
    same = Comparison(original.folder, converted.folder or original.folder)
    after = dict(traversal.graphs(converted.proto))
    for place, graph in traversal.graphs(original.proto):
        if place not in after:
            yield f"{place} is missing in the converted model"
        elif isinstance(graph, onnx.GraphProto):
            yield from _initializers(place, graph, after[place], same)
    yield from _lost(original.proto, after)
    yield from _holders(original.proto, after, converted.proto)
    nodes = {
        (place, tuple(node.output)): node
        for place, _, node in traversal.nodes(converted.proto)
        if node.output
    }
    for index, (place, _, node) in enumerate(traversal.nodes(original.proto)):
        if index in sites:
            continue
        found = nodes.get((place, tuple(node.output)))
        if found is None or not same.nodes(node, found):
            yield f"{node.op_type} {traversal.label(node)!r} in {place} is not the original's"


def _lost(
    original: onnx.ModelProto, after: dict[traversal.Place, traversal.GraphLike]
) -> Iterator[str]:
    """Values that nothing computes any more, and that something still reads."""
    for place, graph in traversal.graphs(original):
        if place not in after:
            continue
        now = after[place]
        computed = {name for node in now.node for name in node.output}
        read = set[str]().union(*map(traversal.needs, now.node))
        read |= {v if isinstance(v, str) else v.name for v in now.output}
        for node in graph.node:
            for name in node.output:
                if name and name in read and name not in computed:
                    yield f"{name!r} in {place} is read, and nothing computes it"


@dataclass(frozen=True)
class Comparison:
    """Equal messages; tensors by their bytes, which may lie in files of other names.

    Attributes:
        before, after: folders of the models' external data.
    """

    before: Path | None
    after: Path | None

    def tensors(self, a: onnx.TensorProto, b: onnx.TensorProto) -> bool:
        """The same type, shape and bytes."""
        return external_data.same(a, self.before, b, self.after)

    def nodes(self, a: onnx.NodeProto, b: onnx.NodeProto) -> bool:
        """The graphs inside are compared node by node on their own."""
        if len(a.attribute) != len(b.attribute):
            return False
        pairs = zip(map(_tensors, a.attribute), map(_tensors, b.attribute), strict=True)
        if [_interface(g) for _, g in traversal.subgraphs(a)] != [
            _interface(g) for _, g in traversal.subgraphs(b)
        ]:
            return False
        return _without_parts(a) == _without_parts(b) and all(
            len(x) == len(y) and all(map(self.tensors, x, y)) for x, y in pairs
        )


def _interface(graph: traversal.GraphLike) -> tuple[list[str], list[str]]:
    """Names of what goes into a graph and comes out, in order."""
    ends = (graph.input, graph.output)
    inputs, outputs = ([v if isinstance(v, str) else v.name for v in values] for values in ends)
    return inputs, outputs


def _opsets(holder: onnx.ModelProto | onnx.FunctionProto) -> dict[str, int]:
    return op_traits.opsets_of(holder.opset_import)


def _opset_differs(
    a: onnx.ModelProto | onnx.FunctionProto, b: onnx.ModelProto | onnx.FunctionProto
) -> bool:
    """Whether an opset is another version; one that was only of operators that are gone may be too."""
    now = _opsets(b)
    return any(now.get(domain, version) != version for domain, version in _opsets(a).items())


def _holders(
    original: onnx.ModelProto,
    after: dict[traversal.Place, traversal.GraphLike],
    converted: onnx.ModelProto,
) -> Iterator[str]:
    """Opsets, and how functions are called."""
    if _opset_differs(original, converted):
        yield "its opset imports are not the original's"
    for place, graph in traversal.graphs(original):
        now = after.get(place)
        if isinstance(graph, onnx.FunctionProto) and isinstance(now, onnx.FunctionProto):
            if _interface(graph) != _interface(now) or _opset_differs(graph, now):
                yield f"{place} is called otherwise than the original's"
            elif (list(graph.attribute), list(graph.attribute_proto)) != (
                list(now.attribute),
                list(now.attribute_proto),
            ):
                yield f"{place} has other attributes than the original's"


def _initializers(
    place: traversal.Place, graph: onnx.GraphProto, after: traversal.GraphLike, same: Comparison
) -> Iterator[str]:
    found = {t.name: t for t in getattr(after, "initializer", ())}
    read = set[str]().union(*map(traversal.needs, after.node))
    read |= {v if isinstance(v, str) else v.name for v in after.output}
    for tensor in graph.initializer:
        if tensor.name not in found:
            changed = tensor.name in read  # else only what something else stands for needed it
        else:
            changed = not same.tensors(tensor, found[tensor.name])
        if changed:
            yield f"initializer {tensor.name!r} in {place} is not the original's"
    sparse = {s.values.name: s for s in getattr(after, "sparse_initializer", ())}
    for stored in graph.sparse_initializer:
        name = stored.values.name
        if name in read and sparse.get(name) != stored:
            yield f"sparse initializer {name!r} in {place} is not the original's"


def _tensors(attribute: onnx.AttributeProto) -> list[onnx.TensorProto]:
    return [attribute.t, *attribute.tensors] if attribute.HasField("t") else [*attribute.tensors]


def _without_parts(node: onnx.NodeProto) -> onnx.NodeProto:
    """A node without the graphs and tensors in it."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for attribute in copy.attribute:
        for part in ("g", "graphs", "t", "tensors"):
            attribute.ClearField(part)
    return copy
