"""Infer types and shapes of every value, with a callback for operators that onnx does not know.

    in the model      SpaceToBatch -> Conv      Range -> Slice
    inferred          Probe -> Conv             Range -> Bound -> Slice

The caller replaces unknown operators by probes: operator `PROBE` in the domain `DOMAIN`, which is
registered with onnx once. onnx's C++ inference calls back for each probe, so that shapes flow through
standard operators, subgraphs and probes in one pass.

With `data_prop` onnx follows the values of shapes, one message per element, for every vector of known
length, even of 10^9 elements. So each vector that another operator than Shape, Gather, Concat, Cast and
so on computes gets a Bound node, which passes its type on without a length above a limit. A Conv whose
window is larger than its input gets a negative dim from onnx, and a Slice behind it ends the process: an
assertion in C++ fails (onnx 1.23). So Bound nodes make such dims unknown, too.
"""

from __future__ import annotations

import atexit
import logging
import math
import threading
from collections.abc import Callable, Collection
from copy import deepcopy
from functools import cache
from typing import Any

import onnx
import onnx.defs
import onnx.shape_inference

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.imports import import_everywhere
from onnx_spatial.model.graph.remove_unused import remove_named, remove_where
from onnx_spatial.model.graph.strip import MAX_KEPT_ELEMENTS
from onnx_spatial.model.op_traits import Trait

DOMAIN = "onnx_spatial.probe"
PROBE = "Probe"
#: Domains whose types onnx infers.
_INFERRED = frozenset({"", "ai.onnx", "ai.onnx.ml", DOMAIN})
#: INT attribute: the number of a probe.
NUMBER = "onnx_spatial_probe"
#: Operator type of the nodes that bound what inference follows, in the same domain.
BOUND = "Bound"
#: INT attribute of a Bound: the longest vector that keeps its length.
MAX_ATTRIBUTE = "most"
#: STRING attribute of a Bound: the name of the value.
VALUE = "value"

#: Operators that end the process at a negative dim, beside Slice, which propagates data.
_CRASH = frozenset({"GatherND"})
#: Larger dims become unknown: sums of them could exceed 64 bits and be negative.
_LARGEST_DIM = 2**48
#: Operators whose output may be a vector although the input is not.
_LOSE_DIMS = frozenset({"Gather", "Squeeze"})
_SIZES = op_traits.having(Trait.SIZES)
#: More than any rank, which is the length of a shape.
_MAX_RANK = 64
_SUFFIX = "\n(bounded)"  # exporters write no line breaks in names
#: Limit of graphs times nodes of a model, with which the time of onnx's inference grows.
_MAX_WORK = 5 * 10**7

logger = logging.getLogger(__name__)

#: (probe number, type of each input or None) -> type of its output, or None if unknown.
TypeRule = Callable[[int, list[onnx.TypeProto | None]], onnx.TypeProto | None]

_current = threading.local()
_registration = threading.Lock()


def _infer_probe(context: onnx.shape_inference.InferenceContext) -> None:
    rule: TypeRule | None = getattr(_current, "rule", None)
    if rule is None:
        return
    input_types = [
        context.get_input_type(i) if context.has_input(i) else None
        for i in range(context.get_num_inputs())
    ]
    output = rule(context.get_attribute(NUMBER).i, input_types)
    if output is not None:
        context.set_output_type(0, output)


def _infer_bound(context: onnx.shape_inference.InferenceContext) -> None:
    input_type = context.get_input_type(0)
    if input_type is None:
        return
    if any(dim.dim_value < 0 for dim in input_type.tensor_type.shape.dim):
        _current.negative = context.get_attribute(VALUE).s.decode()
    context.set_output_type(0, output_type(input_type, context.get_attribute(MAX_ATTRIBUTE).i))


def _register_probe(
    op_type: str, inference: Callable[[onnx.shape_inference.InferenceContext], None]
) -> None:
    if onnx.defs.has(op_type, DOMAIN):
        return
    parameter = onnx.defs.OpSchema.FormalParameter
    option = onnx.defs.OpSchema.FormalParameterOption
    identity = onnx.defs.get_schema("Identity").type_constraints[0].allowed_type_strs
    types = sorted(t for t in identity if t.startswith("tensor("))
    schema = onnx.defs.OpSchema(
        op_type,
        DOMAIN,
        1,
        inputs=[parameter("inputs", "T", param_option=option.Variadic, is_homogeneous=False)],
        outputs=[parameter("output", "T")],
        type_constraints=[("T", types, "any tensor")],
    )
    schema.set_type_and_shape_inference_function(inference)
    onnx.defs.register_schema(schema)
    # onnx 1.19 deadlocks at exit if a Python function outlives the interpreter.
    atexit.register(onnx.defs.deregister_schema, op_type, 1, DOMAIN)


def infer(model: onnx.ModelProto, rule: TypeRule) -> onnx.ModelProto:
    """Infer the value_info of a model; return `model` itself if onnx's inference fails.

    Args:
        model: a model without weights (`strip_weights`); the probes' domain is imported.
        rule: gives the output types of probes.
    """
    import_everywhere(model, DOMAIN)
    with _registration:
        _register_probe(PROBE, _infer_probe)
        _register_probe(BOUND, _infer_bound)
    bounded = deepcopy(model)
    graphs = [graph for _, graph in traversal.graphs(bounded)]
    count = sum(len(graph.node) for graph in graphs)
    if len(graphs) * count > _MAX_WORK:
        logger.info("shapes are not inferred: %d graphs, %d nodes", len(graphs), count)
        return model
    local = {(function.domain, function.name) for function in model.functions}
    for graph in graphs:
        _spell_standard_domain(graph, local)
    forget_negative_dims(bounded)
    has_bounds = _insert_bounds(bounded)
    _current.rule = rule
    try:
        inferred = onnx.shape_inference.infer_shapes(bounded, data_prop=True)
    except Exception as error:  # of many types; none may stop a conversion
        logger.info("onnx shape inference gave up: %s", error)
        return model
    finally:
        _current.rule = None
    if has_bounds:
        _remove_bounds(inferred)
    return inferred


def _spell_standard_domain(graph: traversal.GraphLike, local: set[tuple[str, str]]) -> None:
    """Write the domain of ONNX's own operators as "", in place: onnx infers nothing of "ai.onnx".

    `local` has domain and name of the functions of the model.
    """
    for node in graph.node:
        if node.domain and op_traits.is_standard(node) and (node.domain, node.op_type) not in local:
            node.ClearField("domain")


def check_negative_dims(model: onnx.ModelProto) -> None:
    """Check a model that onnx's version converter is to read, whose inference a negative dim may end.

    Raises:
        ValueError: a node reads a value with a negative dim.
    """
    _current.negative = None
    infer(deepcopy(model), lambda number, types: None)
    if _current.negative is not None:
        raise ValueError(f"value {_current.negative!r} would have a negative size")


def forget_negative_dims(model: onnx.ModelProto) -> None:
    """Remove the dims that exporters declare as -1 because they are unknown, in place."""
    for _, graph in traversal.graphs(model):
        for value in traversal.declared_values(graph):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_value < 0:
                    dim.ClearField("dim_value")


def element_type(known: onnx.TypeProto | None) -> int | None:
    """Return the ONNX element type of a dense tensor type; None if it is unknown."""
    if known is None or not known.HasField("tensor_type"):
        return None
    return known.tensor_type.elem_type or None


def type_name(element_type: int) -> str:
    """Return the name of an ONNX element type, as "float"; its number if there is none."""
    if element_type not in onnx.TensorProto.DataType.values():
        return f"element type {element_type}"
    return str(onnx.TensorProto.DataType.Name(element_type)).lower()


def rank(known: onnx.TypeProto | None) -> int | None:
    """Return the rank of a dense tensor type; None if it is unknown."""
    if known is None or not known.tensor_type.HasField("shape"):
        return None
    return len(known.tensor_type.shape.dim)


#: Names that exporters write for an unknown dim; two dims with such a name may differ.
_NO_NAMES = frozenset({"", "?", "-1", "None"})


def dims(known: onnx.TypeProto | None) -> tuple[int | str | None, ...] | None:
    """Return the dims of a dense tensor type; None if its rank is unknown."""
    if known is None or not known.tensor_type.HasField("shape"):
        return None
    return tuple(map(_dim_value, known.tensor_type.shape.dim))


def _dim_value(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None  # some exporters write -1
    return None if dim.dim_param in _NO_NAMES else dim.dim_param


def declared_types(graph: traversal.GraphLike) -> dict[str, onnx.TypeProto]:
    """Return the types that a graph declares, by value."""
    return {value.name: value.type for value in traversal.declared_values(graph)}


def symbols(model: traversal.Index) -> set[str]:
    """Return the names of the symbolic dims that a model declares."""
    return {
        dim.dim_param
        for place, graph in model.graphs
        if place.function is None
        for value in traversal.declared_values(graph)
        for dim in value.type.tensor_type.shape.dim
        if dim.dim_param
    }


def opaque_values(model: traversal.Index) -> set[str]:
    """Return the outputs of operators whose types onnx cannot infer, but of those in functions."""
    local = {(function.domain, function.name) for function in model.model.functions}
    return {
        name
        for operator, positions in model.kinds.items()
        if operator not in local and operator[0] not in _INFERRED
        for position in positions
        if model.place(position).function is None
        for name in model.nodes[position].output
    }


def forget_shapes(model: onnx.ModelProto, names: Collection[str]) -> None:
    """Remove the value_info of values, and their shapes where they are outputs, in place."""
    for _, graph in traversal.graphs(model):
        remove_named(graph.value_info, names)
        for output in graph.output if isinstance(graph, onnx.GraphProto) else ():
            if output.name in names and output.type.HasField("tensor_type"):
                output.type.tensor_type.ClearField("shape")


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


def _insert_bounds(model: onnx.ModelProto) -> bool:
    """Insert Bound nodes in place; return whether there are any."""
    op_types = {node.op_type for _, _, node in traversal.nodes(model)}
    if op_types.isdisjoint(_CRASH) and not any(map(_propagates_values, op_types)):
        return False
    inserted = False
    lengths: dict[str, int] = {}
    for _, graph in traversal.graphs(model):  # lazily: inner graphs are those of the edited nodes
        if isinstance(graph, onnx.FunctionProto):
            lengths = {}  # its names are its own
        inserted |= _insert_in_graph(graph, lengths)
    return inserted


def _remove_bounds(model: onnx.ModelProto) -> None:
    """Remove Bound nodes and the value_info of their outputs, in place."""
    for _, graph in traversal.graphs(model):
        bounds = remove_where(graph.node, lambda n: n.op_type == BOUND and n.domain == DOMAIN)
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


def _insert_in_graph(graph: traversal.GraphLike, lengths: dict[str, int]) -> bool:
    """Insert Bound nodes in one graph; `lengths` has the vectors of sizes up to here."""
    if isinstance(graph, onnx.GraphProto):
        for value in graph.input:  # a sibling of the graph may have used the name
            lengths.pop(value.name, None)
        lengths.update((t.name, _tensor_length(t)) for t in graph.initializer)
    bounds: dict[str, onnx.NodeProto] = {}
    nodes = []
    for node in graph.node:
        is_standard, propagates = op_traits.is_standard(node), _propagates_values(node.op_type)
        length = None
        if is_standard and (propagates or node.op_type in _CRASH):
            # These may make a long vector of a table whose dims are bounded.
            of_table = node.op_type in _LOSE_DIMS and any(_is_long(n, lengths) for n in node.input)
            most_elements, most = _output_length(node, lengths)
            length = most_elements if propagates and not of_table else None
            if node.op_type not in _SIZES:
                nodes += _bound_inputs(node, most, lengths, bounds)
        elif is_standard and node.op_type == "Constant":
            length = _constant_length(node)
        nodes.append(node)
        for name in node.output:
            lengths.pop(name, None)
            if length is not None:
                lengths[name] = length
    if bounds:
        del graph.node[:]
        graph.node.extend(nodes)
    return bool(bounds)


def _bound_inputs(
    node: onnx.NodeProto, most: int, lengths: dict[str, int], bounds: dict[str, onnx.NodeProto]
) -> list[onnx.NodeProto]:
    """Let a node read bounded inputs, in place; add the new Bound nodes to `bounds` and return them."""
    new = []
    for index, name in enumerate(node.input):
        if name and (most == 0 or _is_long(name, lengths)):
            output = f"{name}{_SUFFIX}{most}"
            if output not in bounds:
                attributes: dict[str, Any] = {MAX_ATTRIBUTE: most, VALUE: name}
                bounds[output] = onnx.helper.make_node(
                    BOUND, [name], [output], domain=DOMAIN, **attributes
                )
                new.append(bounds[output])
            node.input[index] = output
    return new


def _is_long(name: str, lengths: dict[str, int]) -> bool:
    """Tell whether a value may be a vector of more elements than are followed."""
    return lengths.get(name, MAX_KEPT_ELEMENTS + 1) > MAX_KEPT_ELEMENTS


def _output_length(node: onnx.NodeProto, lengths: dict[str, int]) -> tuple[int, int]:
    """Return the most elements of a node's output, and the limit for its inputs."""
    if node.op_type in _SIZES:
        return _MAX_RANK, MAX_KEPT_ELEMENTS
    bounded = [
        min(lengths.get(name, MAX_KEPT_ELEMENTS), MAX_KEPT_ELEMENTS) for name in node.input if name
    ]
    length = sum(bounded) if node.op_type == "Concat" else max(bounded, default=1)
    # Inputs that are too long together lose their lengths, one by one.
    return (length, MAX_KEPT_ELEMENTS) if length <= MAX_KEPT_ELEMENTS else (MAX_KEPT_ELEMENTS, 0)


def _tensor_length(tensor: onnx.TensorProto) -> int:
    """Return the number of elements; more than MAX_KEPT_ELEMENTS if a dim is negative."""
    return math.prod(tensor.dims) if min(tensor.dims, default=0) >= 0 else MAX_KEPT_ELEMENTS + 1


def _constant_length(node: onnx.NodeProto) -> int:
    lengths = [
        _tensor_length(a.t) if a.HasField("t") else len(a.ints) + len(a.floats) + 1
        for a in node.attribute
    ]
    return max(lengths, default=1)
