"""Bound the memory of onnx's data propagation, and keep negative dims from operators that crash on them.

With `data_prop` onnx follows the values of shapes, one message per element, through Shape, Gather,
Concat, Cast and so on, for every vector of known length, even of 10^9 elements. So each vector that
another operator computes gets a Bound node, which passes its type on without a length above a limit:

    Range -> Slice                       Range -> Bound -> Slice

A Conv whose window is larger than its input gets a negative dim from onnx, and a Slice behind it ends
the process: an assertion in C++ fails (onnx 1.23). So Bound nodes make such dims unknown, too.

`insert_bounds` inserts the nodes before inference, `remove_bounds` removes them from the inferred model.
"""

from __future__ import annotations

import math
from copy import deepcopy
from functools import cache

import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.repeated_fields import remove_named, remove_where
from onnx_spatial.model.op_traits import Trait

#: Operator type, in the domain of the probes.
BOUND = "Bound"
#: INT attribute: the longest vector that keeps its length.
MOST_ATTRIBUTE = "most"
#: Most elements of a vector of sizes; shapes have a few, index tables some more.
MAX_SIZES = 4096

#: STRING attribute: the name of the value.
VALUE = "value"
#: Operators that end the process at a negative dim, beside Slice, which propagates data.
_CRASH = frozenset({"GatherND"})
#: Larger dims become unknown: sums of them could exceed 64 bits and be negative.
_LARGEST_DIM = 2**48
#: Operators whose output may be a vector although the input is not.
_LOSE_DIMS = frozenset({"Gather", "Squeeze"})
_SIZES = op_traits.having(Trait.SIZES)

_SUFFIX = "\n(bounded)"  # exporters write no line breaks in names


def output_type(known: onnx.TypeProto, most: int) -> onnx.TypeProto:
    """Return the output type of a Bound node."""
    result = deepcopy(known)
    dims = result.tensor_type.shape.dim
    if len(dims) == 1 and dims[0].dim_value > most:
        dims[0].Clear()
    for dim in dims:
        if not 0 <= dim.dim_value <= _LARGEST_DIM:
            dim.Clear()
    return result


def insert_bounds(model: onnx.ModelProto, domain: str) -> bool:
    """Insert Bound nodes in place; return whether there are any."""
    lengths: dict[str, int] = {}
    inserted = False
    for _, graph in traversal.graphs(model):  # lazily: inner graphs are those of the edited nodes
        if isinstance(graph, onnx.FunctionProto):
            lengths = {}  # its names are its own
        inserted |= _insert_in_graph(graph, domain, lengths)
    return inserted


def remove_bounds(model: onnx.ModelProto, domain: str) -> None:
    """Remove Bound nodes and the value_info of their outputs, in place."""
    for _, graph in traversal.graphs(model):
        bounds = remove_where(graph.node, lambda n: n.op_type == BOUND and n.domain == domain)
        sources = {node.output[0]: node.input[0] for node in bounds}
        for node in graph.node if sources else ():
            for index, name in enumerate(node.input):
                if name in sources:
                    node.input[index] = sources[name]
        remove_named(graph.value_info, sources)


@cache
def _propagates_values(op_type: str) -> bool:
    """Tell whether onnx propagates values through an operator."""
    return onnx.defs.has(op_type) and bool(
        onnx.defs.get_schema(op_type).has_data_propagation_function
    )


def _insert_in_graph(graph: traversal.GraphLike, domain: str, lengths: dict[str, int]) -> bool:
    """Insert Bound nodes in one graph; `lengths` has the vectors of sizes up to here."""
    if isinstance(graph, onnx.GraphProto):
        for value in graph.input:  # a sibling of the graph may have used the name
            lengths.pop(value.name, None)
        lengths.update((t.name, _tensor_length(t)) for t in graph.initializer)
    bounded: dict[tuple[str, int], str] = {}
    nodes = []
    for node in graph.node:
        op_type = node.op_type
        propagates = _propagates_values(op_type)
        if not (propagates or op_type in _CRASH) or not op_traits.is_standard(node):
            nodes.append(node)
            for name in node.output:
                lengths.pop(name, None)
            if op_type == "Constant" and op_traits.is_standard(node) and node.output:
                lengths[node.output[0]] = _constant_length(node)
            continue
        length, most = _output_length(node, lengths)
        unknown = any(lengths.get(name, MAX_SIZES + 1) > MAX_SIZES for name in node.input)
        for index, name in enumerate(node.input if op_type not in _SIZES else ()):
            if name and (most == 0 or lengths.get(name, MAX_SIZES + 1) > MAX_SIZES):
                if (name, most) not in bounded:
                    bounded[name, most] = f"{name}{_SUFFIX}{most}"
                    bound = onnx.helper.make_node(
                        BOUND, [name], [bounded[name, most]], domain=domain
                    )
                    bound.attribute.append(onnx.helper.make_attribute(MOST_ATTRIBUTE, most))
                    bound.attribute.append(onnx.helper.make_attribute(VALUE, name))
                    nodes.append(bound)
                node.input[index] = bounded[name, most]
        nodes.append(node)
        # The second may make a long vector of a bounded table.
        if not propagates or (op_type in _LOSE_DIMS and unknown):
            for name in node.output:
                lengths.pop(name, None)
        else:
            lengths.update(dict.fromkeys(node.output, length))
    if bounded:
        del graph.node[:]
        graph.node.extend(nodes)
    return bool(bounded)


def _output_length(node: onnx.NodeProto, lengths: dict[str, int]) -> tuple[int, int]:
    """Return the most elements of a node's output, and the limit for its inputs."""
    known = [min(lengths.get(name, MAX_SIZES), MAX_SIZES) for name in node.input if name]
    if node.op_type in _SIZES:
        return 64, MAX_SIZES
    if node.op_type == "Concat":
        length = sum(known)
        return (length, MAX_SIZES) if length <= MAX_SIZES else (MAX_SIZES, 0)
    return max(known, default=1), MAX_SIZES


def _tensor_length(tensor: onnx.TensorProto) -> int:
    """Return the number of elements; more than LONGEST if a dim is negative."""
    return math.prod(tensor.dims) if min(tensor.dims, default=0) >= 0 else MAX_SIZES + 1


def _constant_length(node: onnx.NodeProto) -> int:
    return max(
        (
            _tensor_length(a.t) if a.HasField("t") else len(a.ints) + len(a.floats) + 1
            for a in node.attribute
        ),
        default=1,
    )
