"""Check that the converted model holds the rest of the original unchanged, message by message.

This takes the place of a run where the whole cannot be run: if every other node, initializer and
function is the same message and every operator was compared on its own, nothing else can differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.io import external_data
from onnx_spatial.verification.checks.context import Context
from onnx_spatial.verification.checks.model_pair import ModelPair

_Graphs = dict[traversal.Place, traversal.GraphLike]


def check(context: Context) -> None:
    """List the parts of the original that the converted model lacks or changes."""
    context.findings.rest = list(differences(context.models, context.findings.compared))


def differences(models: ModelPair, compared: Collection[int]) -> Iterator[str]:
    """Yield one line for each part of the original that the converted model lacks or changes.

    Nodes that were `compared` are left out: spatial operators, the Transposes and regions with them.
    """
    same = Equality(models)
    original, converted = models.original.proto, models.converted.proto
    after: _Graphs = dict(traversal.graphs(converted))
    for place, graph in traversal.graphs(original):
        if place not in after:
            yield f"{place} is missing in the converted model"
        elif isinstance(graph, onnx.GraphProto):
            yield from _initializers(place, graph, after[place], same)
    yield from _lost(original, after)
    yield from _opsets_and_functions(original, after, converted)
    nodes = {
        (place, tuple(node.output)): node
        for place, _, node in traversal.nodes(converted)
        if node.output
    }
    for index, (place, _, node) in enumerate(traversal.nodes(original)):
        if index in compared:
            continue
        counterpart = nodes.get((place, tuple(node.output)))
        if counterpart is None or not same.nodes(node, counterpart):
            yield f"{node.op_type} {traversal.label(node)!r} in {place} differs from the original's"


class Equality:
    """Equality of messages of the two models; tensors by their bytes, in files of any name."""

    def __init__(self, models: ModelPair) -> None:
        self._before = models.original.folder
        self._after = models.converted.folder

    def tensors(self, a: onnx.TensorProto, b: onnx.TensorProto) -> bool:
        """Return whether type, shape and bytes are the same."""
        return external_data.same(a, self._before, b, self._after)

    def nodes(self, a: onnx.NodeProto, b: onnx.NodeProto) -> bool:
        """Return whether two nodes are the same; graphs inside are compared on their own."""
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


def _read(graph: traversal.GraphLike) -> set[str]:
    """Return the names that the nodes and outputs of a graph read."""
    return set[str]().union(*map(traversal.needs, graph.node), _interface(graph)[1])


def _lost(original: onnx.ModelProto, after: _Graphs) -> Iterator[str]:
    """Find values that are still read, and that no node computes any more."""
    for place, graph in traversal.graphs(original):
        if place not in after:
            continue
        computed = {name for node in after[place].node for name in node.output}
        missing = _read(after[place]) - computed
        for node in graph.node:
            for name in node.output:
                if name and name in missing:
                    yield f"{name!r} in {place} is read, but no node, input or initializer produces it"


def _interface(graph: traversal.GraphLike) -> tuple[list[str], list[str]]:
    """Return the names of a graph's inputs and outputs, in order."""
    ends = (graph.input, graph.output)
    inputs, outputs = ([v if isinstance(v, str) else v.name for v in values] for values in ends)
    return inputs, outputs


def _opset_differs(
    a: onnx.ModelProto | onnx.FunctionProto, b: onnx.ModelProto | onnx.FunctionProto
) -> bool:
    """Return whether an opset has another version; one that only replaced operators used may be gone."""
    was, now = (op_traits.opsets_of(holder.opset_import) for holder in (a, b))
    return any(now.get(domain, version) != version for domain, version in was.items())


def _opsets_and_functions(
    original: onnx.ModelProto, after: _Graphs, converted: onnx.ModelProto
) -> Iterator[str]:
    if _opset_differs(original, converted):
        yield "the opset imports differ from the original's"
    for place, graph in traversal.graphs(original):
        now = after.get(place)
        if isinstance(graph, onnx.FunctionProto) and isinstance(now, onnx.FunctionProto):
            if _interface(graph) != _interface(now) or _opset_differs(graph, now):
                yield f"{place} has other inputs, outputs or opset imports than in the original"
            elif (list(graph.attribute), list(graph.attribute_proto)) != (
                list(now.attribute),
                list(now.attribute_proto),
            ):
                yield f"{place} has other attributes than in the original"


def _initializers(
    place: traversal.Place, graph: onnx.GraphProto, after: traversal.GraphLike, same: Equality
) -> Iterator[str]:
    stored = {t.name: t for t in getattr(after, "initializer", ())}
    read = _read(after)
    for tensor in graph.initializer:
        if tensor.name not in stored:
            changed = tensor.name in read  # else only replaced nodes needed it
        else:
            changed = not same.tensors(tensor, stored[tensor.name])
        if changed:
            yield f"initializer {tensor.name!r} in {place} differs from the original's"
    sparse = {s.values.name: s for s in getattr(after, "sparse_initializer", ())}
    for values in graph.sparse_initializer:
        name = values.values.name
        if name in read and sparse.get(name) != values:
            yield f"sparse initializer {name!r} in {place} differs from the original's"


def _tensors(attribute: onnx.AttributeProto) -> list[onnx.TensorProto]:
    return [attribute.t, *attribute.tensors] if attribute.HasField("t") else [*attribute.tensors]


def _without_parts(node: onnx.NodeProto) -> onnx.NodeProto:
    """Copy a node without the graphs and tensors in it."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for attribute in copy.attribute:
        for part in ("g", "graphs", "t", "tensors"):
            attribute.ClearField(part)
    return copy
