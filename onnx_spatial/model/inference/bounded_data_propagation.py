"""Keep onnx's data propagation from counting to a billion.

With `data_prop` onnx follows the values of shapes, one message per element, through Shape, Gather,
Concat, Cast and their like; it does so for every vector of known length, be it of 10^9 elements.
Before inference each vector that comes from elsewhere goes through a node of type `BOUND`, which
passes its type on but for a length that no shape can have:

    Range -> Slice                       Range -> Bound -> Slice

`insert` puts the nodes in, `remove` takes them out of what inference made of the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait

#: Operator type, in the domain of the probes.
BOUND = "Bound"
#: INT attribute: vectors longer than this lose their length.
MOST = "most"
#: Elements that a vector of sizes may have; shapes have a few, tables of indices some more.
LONGEST = 4096

#: Operators whose output may be a vector although the input is not.
_LOSE_DIMS = frozenset({"Gather", "Squeeze"})
_SIZES = op_traits.having(Trait.SIZES)

_SUFFIX = "\n(bounded)"  # no exporter's names hold a line break, and collisions are looked for


def output_type(known: onnx.TypeProto, most: int) -> onnx.TypeProto:
    """The type that a Bound node gives for its input."""
    result = onnx.TypeProto()
    result.CopyFrom(known)
    dims = result.tensor_type.shape.dim
    if len(dims) == 1 and dims[0].dim_value > most:
        dims[0].Clear()
    return result


def insert(model: onnx.ModelProto, domain: str) -> bool:
    """Put Bound nodes in, in place; whether there were any to put in."""
    lengths: dict[str, int] = {}
    found = False
    for graph in _graphs(model):
        found |= _insert(graph, domain, lengths)
    return found


def remove(model: onnx.ModelProto, domain: str) -> None:
    """Take Bound nodes out again, in place, with what is declared of their outputs."""
    for graph in _graphs(model):
        sources = {n.output[0]: n.input[0] for n in graph.node if _is_bound(n, domain)}
        if not sources:
            continue
        for node in graph.node:
            for index, name in enumerate(node.input):
                if name in sources:
                    node.input[index] = sources[name]
        kept = [node for node in graph.node if not _is_bound(node, domain)]
        del graph.node[:]
        graph.node.extend(kept)
        infos = [v for v in graph.value_info if v.name not in sources]
        del graph.value_info[:]
        graph.value_info.extend(infos)


def _is_bound(node: onnx.NodeProto, domain: str) -> bool:
    return bool(node.op_type == BOUND and node.domain == domain)


def _graphs(model: onnx.ModelProto) -> Iterator[traversal.GraphLike]:
    """Outer graphs first, and the inner ones of what has become of their nodes until then."""
    return (graph for _, graph in traversal.graphs(model))


@cache
def _propagates(op_type: str) -> bool:
    """Whether onnx follows values through an operator."""
    return onnx.defs.has(op_type) and bool(
        onnx.defs.get_schema(op_type).has_data_propagation_function
    )


def _insert(graph: traversal.GraphLike, domain: str, lengths: dict[str, int]) -> bool:
    """Bounds in one graph; `lengths` says how long the vectors of sizes are that were seen."""
    if isinstance(graph, onnx.GraphProto):
        lengths.update((t.name, math.prod(t.dims)) for t in graph.initializer)
    bounded: dict[tuple[str, int], str] = {}
    nodes = []
    for node in graph.node:
        if not op_traits.is_standard(node) or not _propagates(node.op_type):
            nodes.append(node)
            for name in node.output:
                lengths.pop(name, None)
            if node.op_type == "Constant" and op_traits.is_standard(node) and node.output:
                lengths[node.output[0]] = _constant_length(node)
            continue
        length, most = _length(node, lengths)
        unknown = any(lengths.get(name, LONGEST + 1) > LONGEST for name in node.input)
        for index, name in enumerate(node.input if node.op_type not in _SIZES else ()):
            if name and (most == 0 or lengths.get(name, LONGEST + 1) > LONGEST):
                if (name, most) not in bounded:
                    bounded[name, most] = f"{name}{_SUFFIX}{most}"
                    bound = onnx.helper.make_node(
                        BOUND, [name], [bounded[name, most]], domain=domain
                    )
                    bound.attribute.append(onnx.helper.make_attribute(MOST, most))
                    nodes.append(bound)
                node.input[index] = bounded[name, most]
        nodes.append(node)
        lengths.update(dict.fromkeys(node.output, length))
        if node.op_type in _LOSE_DIMS and unknown:  # a long vector may come of a bounded table
            for name in node.output:
                lengths.pop(name)
    if bounded:
        del graph.node[:]
        graph.node.extend(nodes)
    return bool(bounded)


def _length(node: onnx.NodeProto, lengths: dict[str, int]) -> tuple[int, int]:
    """(elements that a node gives at most, bound for its inputs)."""
    known = [min(lengths.get(name, LONGEST), LONGEST) for name in node.input if name]
    if node.op_type in _SIZES:
        return 64, LONGEST
    if node.op_type == "Concat":
        length = sum(known)
        return (length, LONGEST) if length <= LONGEST else (LONGEST, 0)
    return max(known, default=1), LONGEST


def _constant_length(node: onnx.NodeProto) -> int:
    return max(
        (
            math.prod(a.t.dims) if a.HasField("t") else len(a.ints) + len(a.floats) + 1
            for a in node.attribute
        ),
        default=1,
    )
