"""Give values of the converted model names of the original, where tools have changed them.

    original    x -> [If] -> a -> [Identity] -> y        converted    x -> [If] -> y
                                                         read as      x -> [If] -> a -> [Identity] -> y

    original    x -> [Conv] -> b -> [Relu] -> c -> [Conv] ->        the second Conv of both reads c
    converted   x -> [FusedConv] -> v -> [FusedConv] ->             read as  v -> [Identity]

Values are matched by name, and those of a branch by the name of the first output of its If. Names are
hints: a value that is not the same is not proven, and is taken for another one then.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher

import onnx
from onnx import helper

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait

_LANDMARKS = op_traits.having(Trait.PRODUCTS, Trait.WINDOWS) | {"GlobalAveragePool"}
_JOINS, _SIZES = frozenset({"Add", "Sum"}), op_traits.having(Trait.SIZES)


def with_names_of(original: onnx.ModelProto, converted: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of the converted model with such names; the model itself if there are none."""
    result = onnx.ModelProto()
    result.CopyFrom(converted)
    names = {name for _, _, node in traversal.nodes(converted) for name in _names(node)}
    for _, graph in traversal.graphs(converted):
        if isinstance(graph, onnx.GraphProto):
            names.update(v.name for v in (*graph.input, *graph.output, *graph.initializer))
    known = len(names)
    _name(original.graph, result.graph, names)
    return result if len(names) > known else converted


def _name(original: onnx.GraphProto, converted: onnx.GraphProto, names: set[str]) -> None:
    """Name values of a graph and of the graphs inside of it; `names` are in use."""
    producers = {name: node for node in original.node for name in node.output if name}
    found = dict(_read_alike(original, converted))
    nodes = []
    for node in converted.node:
        nodes.append(node)
        for place, name in enumerate(node.output):
            source = _behind_identities(name, node, producers) or found.get(name, name)
            if source in names or source not in producers:
                continue
            names.add(source)
            node.output[place] = source
            nodes.append(helper.make_node("Identity", [source], [name]))
        inner = dict(traversal.subgraphs(producers.get(node.output[0], onnx.NodeProto())))
        for attribute, graph in traversal.subgraphs(node):
            if attribute in inner:
                _name(inner[attribute], graph, names)
    if len(nodes) > len(converted.node):
        del converted.node[:]
        converted.node.extend(nodes)


def _names(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    yield from node.output


def _behind_identities(
    name: str, node: onnx.NodeProto, producers: Mapping[str, onnx.NodeProto]
) -> str | None:
    """Return the value that the original copies to `name`, if it computes it by the same operator."""
    if node.op_type == "Identity":  # of a long row of them, none is looked through
        return None
    source, found = name, producers.get(name)
    while found is not None and found.op_type == "Identity" and op_traits.is_standard(found):
        source = found.input[0]
        found = producers.get(source)
    same = found is not None and (found.domain, found.op_type) == (node.domain, node.op_type)
    return source if same and source != name else None


def _read_alike(original: onnx.GraphProto, converted: onnx.GraphProto) -> Iterator[tuple[str, str]]:
    """Yield the data of landmarks in the converted graph, with that in the original."""
    before, after = (list(_landmarks(graph)) for graph in (original, converted))
    own = {value.name for value in original.input}.union(*(node.output for node in original.node))
    if all(own.issuperset(_data(node)) for node, _ in after):
        return  # the comparison below takes quadratic time
    pairs = SequenceMatcher(None, [k for _, k in before], [k for _, k in after], autojunk=False)
    for first, second, count in pairs.get_matching_blocks():
        for place in range(count):
            (node, _), (other, _) = before[first + place], after[second + place]
            for name, known in zip(_data(other), _data(node), strict=False):
                if name not in own:
                    yield name, known


def _landmarks(graph: onnx.GraphProto) -> Iterator[tuple[onnx.NodeProto, Hashable]]:
    """Yield products, windows, and what joins two values behind these; with what tells them apart."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    constants = ((n, a.t) for n in graph.node if n.op_type == "Constant" for a in n.attribute)
    shapes |= {node.output[0]: tuple(tensor.dims) for node, tensor in constants}
    behind: set[str] = set()
    for node in graph.node:
        joins = node.op_type in _JOINS and behind.issuperset(node.input)
        if node.input and (joins or node.op_type.removeprefix("Fused") in _LANDMARKS):
            yield node, _landmark(node, shapes)
            behind.update(node.output)
        elif node.op_type not in _SIZES and not behind.isdisjoint(node.input):
            behind.update(node.output)


def _data(landmark: onnx.NodeProto) -> Sequence[str]:
    return list(landmark.input[: 2 if landmark.op_type in _JOINS else 1])


def _landmark(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> Hashable:
    """Return what two such nodes have in common if they read the same data."""
    sizes = {a.name: [*a.ints, a.i] for a in node.attribute}
    plain = {"group": 1, "pads": 0, "strides": 1}  # as they are if they are omitted
    stated = [(n, *sizes[n]) for n, v in plain.items() if {*sizes.get(n, ())} - {0, v}]
    weights = [shapes[name] for name in node.input[1:2] if name in shapes]
    return node.op_type.removeprefix("Fused"), tuple(stated), tuple(weights)
