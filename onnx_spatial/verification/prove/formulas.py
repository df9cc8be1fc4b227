"""Write both sides of a changed part as formulas: each element as a function of the values read.

    original    x -> [SpaceToBatchND, block b] -> y     y[(r*N + n), o] = x[n, o*b + r - p] or 0
    converted   x -> [Pad] -> [Reshape] -> ... -> y     the same, from the rules of these nodes
    either      x, g -> [GridSample] -> y               y[i] = f(x[a] for all a, g[b] for all b, i)

Of the values that a part reads, data is known by its elements, integers by a symbol for each. The
original is legal: what its operators demand of sizes and parameters are facts. The converted model has
to prove that its nodes succeed wherever the original does.

An operator without rules is an unknown function of all elements of its inputs. Equal functions of equal
tensors are equal, and have equal dims: those that shape inference does not know are symbols of the
operator and its inputs. Such a node may fail where the original does not, unless the original has it,
too, with inputs of the same dims and the same integers.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.maps import operators
from onnx_spatial.maps.cases import Case, IllegalError, UndecidedError
from onnx_spatial.maps.elements import element, indices_of
from onnx_spatial.maps.graph import GraphMaps
from onnx_spatial.maps.node import MAX_OPSET, WHOLE, NodeView, assume_equal
from onnx_spatial.maps.polynomial import (
    ELEMENT,
    INTEGER,
    PARAMETER,
    Index,
    OperationKey,
    Polynomial,
    Symbol,
    unknown,
)
from onnx_spatial.maps.tensor import Tensor
from onnx_spatial.maps.tensor import input_map as data_map
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.io.source import Source
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.operators import Dim
from onnx_spatial.operators.spellings import Vector, recognize
from onnx_spatial.operators.spellings.call import Parameter
from onnx_spatial.verification.match.definitions import Key, named_output
from onnx_spatial.verification.match.graphs import Computation, is_dense_constant
from onnx_spatial.verification.values import constant_value

_INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)


@dataclass
class Formulas:
    """The formulas of the values of one model.

    Attributes:
        source: the model.
        domains: further domains that hold spatial operators.
        legal: whether its nodes are known to succeed, as those of the original.
        infos: its spatial operators; found if they are omitted.
        holders: what identifies the graphs inside of its nodes, see `Numbering.holders`.
    """

    source: Source
    domains: frozenset[str]
    legal: bool
    infos: Sequence[OperatorInfo] | None = None
    holders: Mapping[Key, int] = field(default_factory=dict)
    _functions: dict[tuple[str, str, str], onnx.FunctionProto] = field(init=False)

    def __post_init__(self) -> None:
        functions = self.source.proto.functions
        self._functions = {(f.domain, f.name, f.overload): f for f in functions}

    def of(
        self,
        case: Case,
        part: Computation,
        inputs: Mapping[str, Tensor],
        place: traversal.Place,
    ) -> GraphMaps:
        """Return the formulas of the values of a part of the graph at `place`.

        Args:
            case: the case to compute them in.
            part: nodes of the model.
            inputs: formulas of the values that they read.
            place: graph of the nodes.
        """
        held = {node.output[0]: node.attribute[0] for node in part.nodes if is_dense_constant(node)}
        tensors = {name: a.t for name, a in held.items() if a.t.external_data}
        tensors |= {tensor.name: tensor for tensor in part.stored}
        constants = {n: partial(constant_value, t, self.source.folder) for n, t in tensors.items()}
        opsets = part.imports.opsets

        def spatial(
            case: Case,
            node: onnx.NodeProto,
            values: Sequence[Tensor | None],
            function: tuple[str, str, str] | None,
        ) -> Tensor | None:
            # Of a graph inside of this one nothing but the function is known.
            graph = place if function == place.function else traversal.Place(function)
            info = self.operator(node, graph)
            return None if info is None else operator_map(case, info, values, legal=self.legal)

        def unknown(
            case: Case, view: NodeView, node: onnx.NodeProto, inside: bool
        ) -> Sequence[Tensor]:
            graphs = None if inside else self.holders.get((place, named_output(node)))
            return unknown_function(case, view, node, graphs)

        return GraphMaps(
            *(case, part.nodes, inputs, constants, self._functions, spatial),
            opset=opsets.get("", opsets.get("ai.onnx", MAX_OPSET)),
            legal=self.legal,
            function=place.function,
            unknown=unknown,
        )

    def operator(self, node: onnx.NodeProto, place: traversal.Place) -> OperatorInfo | None:
        """Return the spatial operator that a node is, in the graph at `place` or in one inside of it.

        Names tell the nodes of a graph and of those inside of it apart, but not those of functions,
        nor those of two branches.
        """
        if not recognize(node.op_type, node.domain, len(node.input)):
            return None
        candidates = [
            info
            for info in self._operators_by_node.get(_node_signature(node), ())
            if info.place.function == place.function
        ]
        here = [info for info in candidates if info.place == place]
        return next(iter(here or candidates)) if len(here or candidates) == 1 else None

    def parameters(
        self, nodes: Iterable[onnx.NodeProto], place: traversal.Place
    ) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the parameters that spatial operators read, by name."""
        shapes = {}
        for node in nodes:
            info = self.operator(node, place)
            for parameter in () if info is None or info.call is None else info.call.parameters:
                if parameter.vector.input is not None:
                    shapes[node.input[parameter.vector.input]] = _parameter_shape(parameter.vector)
        return shapes

    @cached_property
    def _operators_by_node(self) -> dict[tuple[object, ...], list[OperatorInfo]]:
        infos, source = self.infos, self.source
        if infos is None:
            infos = analysis.find(source.proto, self.domains, source.folder)
        table: dict[tuple[object, ...], list[OperatorInfo]] = {}
        for info in infos:
            table.setdefault(_node_signature(info.node), []).append(info)
        return table


def _node_signature(node: onnx.NodeProto) -> tuple[object, ...]:
    return node.domain, node.op_type, *node.input, "->", *node.output


# What a part reads


def value_read(
    case: Case, name: str, known: onnx.TypeProto, parameter: tuple[int, ...] | None = None
) -> Tensor:
    """Return the formula of a value that a part reads.

    Lists and tables of integers may be sizes: each element is a symbol.

    Args:
        case: the case.
        name: of the value.
        known: its type.
        parameter: the shape of a parameter of a spatial operator, which may have any type of integers.

    Raises:
        UndecidedError: its rank is unknown, or it is empty.
    """
    dims = shape_inference.dims(known)
    dims = parameter if dims is None else dims
    if dims is None:
        raise UndecidedError(f"the rank of {name!r} is unknown")
    if 0 in dims:
        raise UndecidedError(f"{name!r} is empty")
    sizes = []
    for axis, dim in enumerate(dims):
        kind, label = size_symbol(name, axis, dim)
        known_size = isinstance(dim, int)
        sizes.append(Polynomial.of(dim) if known_size else case.symbol(label, kind=kind))
    element_type = shape_inference.element_type(known) or 0
    if parameter is None and not may_be_sizes(known):
        return data_map(case, name, sizes, type=element_type)

    def at(index: Index) -> Polynomial:
        if case.use.opaque or any(i.constant is None for i in index):
            return Polynomial.atom(OperationKey(ELEMENT, (name,), index))
        return case.symbol(
            integer_symbol(name, [i.constant or 0 for i in index]), None, kind=INTEGER
        )

    return Tensor(case, sizes, at, whole=True, type=element_type)


def may_be_sizes(known: onnx.TypeProto) -> bool:
    """Return whether a value is a list or table of integers, by its type."""
    dims = shape_inference.dims(known)
    integers = shape_inference.element_type(known) in _INTEGERS
    return integers and dims is not None and len(dims) <= 2


def size_symbol(name: str, axis: int, dim: Dim) -> tuple[str, str]:
    """Return kind and name of the symbol of an unknown dim, which the model may have named."""
    return ("size", dim) if isinstance(dim, str) and dim else ("dim", f"{name}.{axis}")


def integer_symbol(name: str, index: Sequence[int]) -> str:
    """Return the name of the symbol of an integer that a part reads."""
    return f"{name}{list(index)}"


# Spatial operators


def operator_map(
    case: Case, info: OperatorInfo, inputs: Sequence[Tensor | None], *, legal: bool = True
) -> Tensor:
    """Return the formula of the output of a spatial operator, by its definition.

    Args:
        case: the case.
        info: the operator.
        inputs: formulas of its inputs.
        legal: whether it is known to succeed: what it demands is a fact then.

    Raises:
        UndecidedError: its parameters are unknown, or it may fail.
    """
    call, x, op_type = info.call, inputs[0], info.node.op_type
    if call is None or x is None:
        raise UndecidedError(f"the parameters of {op_type} are unknown")
    parameters = [
        [Polynomial.of(v) for v in parameter.vector.values]
        if parameter.vector.values is not None
        else _parameter_entries(case, info, parameter, inputs, legal)
        for parameter in call.parameters
    ]
    if legal:
        return operators.apply(case, call.kind, call.operator, x, *parameters)
    arithmetic = operators.CaseArithmetic(case)
    for rest in call.constraints(arithmetic, list(x.dims), *parameters):
        case.require(arithmetic.polynomial(rest), f"{op_type} may fail")
    known = len(case.assumptions)
    result = operators.apply(case, call.kind, call.operator, x, *parameters)
    if len(case.assumptions) > known:
        raise UndecidedError(f"{op_type} may fail")
    return result


def _parameter_shape(vector: Vector) -> tuple[int, ...]:
    """Return the shape of the input that holds a vector."""
    return (vector.rows,) if vector.step == 1 else (vector.rows, vector.step)


def _parameter_entries(
    case: Case,
    info: OperatorInfo,
    parameter: Parameter,
    inputs: Sequence[Tensor | None],
    legal: bool,
) -> list[Polynomial]:
    """Return the integers of a parameter that an input holds.

    The entries in front of them are those of the batch axis, which have one legal value.
    """
    vector = parameter.vector
    least = Polynomial.of(parameter.least)
    may_fail = f"{info.node.op_type} may fail"
    tensor = inputs[vector.input] if vector.input is not None else None
    if tensor is None or not tensor.whole:
        raise UndecidedError(f"a parameter of {info.node.op_type} is unknown")
    sizes = list(_parameter_shape(vector))
    if tensor.rank != len(sizes):
        sizes = [vector.rows * vector.step] if tensor.rank == 1 else [vector.length]
    for dim, size in zip(tensor.dims, sizes, strict=False):
        if legal:
            assume_equal(case, dim, Polynomial.of(size))
        else:
            case.require_equal(dim, Polynomial.of(size), may_fail)
    indices = itertools.product(*(range(d.constant or 0) for d in tensor.dims))
    table = [tensor.at(tuple(map(Polynomial.of, index))) for index in indices]
    entries = table[vector.start :: vector.step][: vector.length]
    batch = table[vector.start % vector.step : vector.start : vector.step]
    if not legal:
        for entry in (*batch, *entries):
            case.require(entry - least, may_fail)
        for entry in batch:
            case.require(least - entry, may_fail)
        return entries
    for entry in batch:
        assume_equal(case, entry, least)
    for entry in entries:
        atom = entry.lone_atom
        if atom is not None and isinstance(atom.key, Symbol) and atom.key.kind == INTEGER:
            case.replace(atom, case.symbol(atom.key.name, parameter.least, kind=PARAMETER))
        if atom is not None:
            case.bounded.add(atom)
        case.assume(entry - least)
    return entries


# Operators without rules

_RANDOM = op_traits.having(Trait.RANDOM)
#: Operators over steps of time, and the rank of their data: they fail if it is another one.
_RECURRENT, _RECURRENT_RANK = ("GRU", "LSTM", "RNN"), 3
#: What nodes inside of graphs may be, beside ONNX's own operators.
_DOMAINS = ("com.microsoft", "com.microsoft.nchwc")


def unknown_function(
    case: Case, node: NodeView, proto: onnx.NodeProto, graphs: Hashable
) -> list[Tensor]:
    """Return the maps of the outputs of a node.

    Args:
        case: the case.
        node: the node, with its inputs.
        proto: the same.
        graphs: what identifies the graphs inside of it with all that they read; None if nothing does.

    Raises:
        UndecidedError: its outputs have no known type or rank, it draws random numbers, or it may fail.
    """
    graph_names = {a.name for a in proto.attribute if a.type == onnx.AttributeProto.GRAPH}
    refers = any(a.ref_attr_name for a in proto.attribute)
    node.check(case.splits and node.op_type not in _RANDOM and not refers, "there is no index map")
    node.check(not graph_names or graphs is not None, "its graphs have no index map")
    inputs = [node.optional(i) for i in range(node.count)]
    if node.legal and node.op_type in _RECURRENT and node.input(0).rank != _RECURRENT_RANK:
        raise IllegalError(f"{node.op_type}: the rank of its data is {node.input(0).rank}")
    operands: list[Polynomial] = []
    integers: list[Polynomial] = []
    for x in inputs:
        if x is not None:
            node.check(x.type != 0, "an input of unknown type has no index map")
            index = tuple(indices_of(case, x.dims))
            with case.within(sums=1):
                any_element = element(x, case, index)
            operands += [any_element, *index, *x.dims]
            integers += [any_element] if x.type in WHOLE else []
    schema, types = _outputs(proto, node, inputs)
    stated = [
        name
        for name, a in schema.attributes.items()
        if node.get(name, None) == onnx.helper.get_attribute_value(a.default_value)
    ]
    kinds = tuple(None if x is None else (x.rank, x.type) for x in inputs)
    details = (*node.details(*graph_names, *stated), graphs, schema.since_version, kinds)
    dims_read = tuple(d for x in inputs if x is not None for d in x.dims)
    call = (node.op_type, details, dims_read, tuple(integers))
    if node.legal:
        case.calls.add(call)
    node.check(call in case.calls, "it may fail where the original does not")
    return [
        _output(case, node, (*details, place), operands, types.get(name))
        for place, name in enumerate(proto.output)
    ]


def _output(
    case: Case,
    node: NodeView,
    details: tuple[Hashable, ...],
    operands: Sequence[Polynomial],
    known: onnx.TypeProto | None,
) -> Tensor:
    """Return the map of an output of a known rank."""
    ranked = known is not None and known.tensor_type.HasField("shape")
    node.check(ranked, "an output of unknown rank has no index map")
    assert known is not None
    dims = []
    for axis, dim in enumerate(known.tensor_type.shape.dim):
        kind = ("dim", node.op_type, details, tuple(operands), axis)
        is_known = dim.dim_value > 0
        name = f"{node.op_type}.{axis}"
        dims.append(Polynomial.of(dim.dim_value) if is_known else case.symbol(name, kind=kind))

    def at(index: Index) -> Polynomial:
        return unknown(node.op_type, details, (*operands, *index))

    return Tensor(case, dims, at, whole=False, type=known.tensor_type.elem_type)


def _outputs(
    proto: onnx.NodeProto, node: NodeView, inputs: Sequence[Tensor | None]
) -> tuple[onnx.defs.OpSchema, Mapping[str, onnx.TypeProto]]:
    """Return the schema of a node, and the types of its outputs, as shape inference knows them.

    Raises:
        UndecidedError: the node does not fit its operator.
    """
    opset = min(node.opset, onnx.defs.onnx_opset_version())
    known = {
        name: onnx.helper.make_tensor_type_proto(x.type, [d.constant for d in x.dims])
        for name, x in zip(proto.input, inputs, strict=True)
        if x is not None
    }
    imports = [onnx.helper.make_opsetid(d, 1) for d in _DOMAINS]
    imports.append(onnx.helper.make_opsetid("", opset))
    try:
        schema = onnx.defs.get_schema(proto.op_type, opset)
        types = onnx.shape_inference.infer_node_outputs(schema, proto, known, opset_imports=imports)
    except (
        onnx.checker.ValidationError,  # a version of an operator that is deprecated
        onnx.defs.SchemaError,
        onnx.shape_inference.InferenceError,
        RuntimeError,
        TypeError,
    ) as error:
        raise UndecidedError(f"{node.op_type} has no index map ({error})") from error
    if proto.op_type == "Loop":  # of which the body declares ranks
        (body,) = (a.g for a in proto.attribute if a.name == "body")
        for place, (name, value) in enumerate(zip(proto.output, body.output[1:], strict=False)):
            declared = value.type.tensor_type
            if declared.HasField("shape"):
                dims = [None] * (len(declared.shape.dim) + (place >= len(proto.input) - 2))
                types[name] = onnx.helper.make_tensor_type_proto(declared.elem_type, dims)
    return schema, types
