"""Whether a converted model holds the rest of the original unchanged: all but the spatial operators.

Where the whole cannot be run this takes the place of the run: if every other node, initializer and
function is the same message and every operator was proven on its own, nothing else can differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import onnx

from onnx_spatial.graph import walk


def differences(
    original: onnx.ModelProto, converted: onnx.ModelProto, sites: Collection[int]
) -> Iterator[str]:
    """One line for each part of the original that the converted model lacks or holds otherwise.

    Args:
        original: the original.
        converted: what was made of it.
        sites: positions of the spatial operators, in the order of `walk.nodes`.
    """
    after = dict(walk.graphs(converted))
    for place, graph in walk.graphs(original):
        if place not in after:
            yield f"{place} is missing in the converted model"
        elif isinstance(graph, onnx.GraphProto):
            yield from _initializers(place, graph, after[place])
    nodes = {
        (place, tuple(node.output)): node for place, _, node in walk.nodes(converted) if node.output
    }
    for index, (place, _, node) in enumerate(walk.nodes(original)):
        if index in sites:
            continue
        found = nodes.get((place, tuple(node.output)))
        if found is None or not _same(node, found):
            yield f"{node.op_type} {walk.label(node)!r} in {place} is not the original's"


def _initializers(
    place: walk.Place, graph: onnx.GraphProto, after: walk.GraphLike
) -> Iterator[str]:
    found = {t.name: t for t in getattr(after, "initializer", ())}
    for tensor in graph.initializer:
        if found.get(tensor.name) != tensor:
            yield f"initializer {tensor.name!r} in {place} is not the original's"


def _same(a: onnx.NodeProto, b: onnx.NodeProto) -> bool:
    """Equal messages; the graphs inside are compared node by node on their own."""
    return _without_graphs(a) == _without_graphs(b)


def _without_graphs(node: onnx.NodeProto) -> onnx.NodeProto:
    if not any(True for _ in walk.subgraphs(node)):
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for attribute in copy.attribute:
        attribute.ClearField("g")
        attribute.ClearField("graphs")
    return copy
