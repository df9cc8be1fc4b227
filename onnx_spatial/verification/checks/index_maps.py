"""Prove each operator for all sizes, by index maps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.index_map import operators
from onnx_spatial.index_map.cases import Case, Index, UndecidedError
from onnx_spatial.index_map.compare import Comparison, compare
from onnx_spatial.index_map.constants import constant
from onnx_spatial.index_map.graph import GraphMaps, NodeRule
from onnx_spatial.index_map.node import MAX_OPSET, assume_equal
from onnx_spatial.index_map.rules_movement import transposed
from onnx_spatial.index_map.tensor import ELEMENT, Tensor, given, product
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.io.source import Source
from onnx_spatial.model.symbolic.polynomial import OperationKey, Polynomial
from onnx_spatial.operators.spellings import Vector
from onnx_spatial.verification.arrays import constant_value
from onnx_spatial.verification.checks.model_pair import ModelPair
from onnx_spatial.verification.subgraphs.matching_region import MatchingRegion, Upstream
from onnx_spatial.verification.subgraphs.transpose_chain import Transpose, TransposeChain
from onnx_spatial.verification.subgraphs.value_graph import Part

_INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)

#: Ranks tried where the rank is unknown: numpy and onnxruntime have little use for more.
MAX_RANK = 8


def prove(
    chain: TransposeChain,
    part: Part,
    functions: Sequence[onnx.FunctionProto],
    folder: object,
    overridable: Collection[str] = (),
) -> Comparison:
    """Prove that a part of the converted model computes a chain of the original, for all sizes.

    Args:
        chain: nodes of the original.
        part: nodes of the converted model.
        functions: local functions of the converted model.
        folder: of external data.
        overridable: initializers of the converted model that a caller may replace.
    """
    if fed := [t.name for t in part.stored if t.name in overridable]:
        return Comparison(False, f"the caller of the model may replace {fed[0]!r}")
    data = chain.head.facts.inputs[0]
    shape = data.shape if data is not None else None
    call = chain.head.call
    assert call is not None
    if shape is None or (data is not None and not data.ranked):
        if call.rank:
            ranks = [call.rank]
        else:
            ranks = list(range(call.axes, MAX_RANK + 1))
        shapes = [(None,) * rank for rank in ranks]
    else:
        shapes = [shape]
    result = None
    for each in shapes:
        result = _prove(chain, part, functions, folder, each)
        if not result.equal:
            break
    assert result is not None
    if len(shapes) > 1:
        rank = f"the rank is at most {MAX_RANK}"
        result = replace(result, assumptions=(*result.assumptions, rank))
    return result


def _prove(chain, part, functions, folder, shape) -> Comparison:
    case = Case()
    table = {(f.domain, f.name): f for f in functions}
    constants = {t.name: (lambda t=t: constant_value(t, folder)) for t in part.stored}

    def maps(case: Case) -> tuple[Tensor, Tensor]:
        source, inputs = _inputs(case, chain, shape)
        expected = _expected(case, chain, source, inputs)
        case.counts = [product(source.dims), product(expected.dims)]
        graph = GraphMaps(
            case,
            part.nodes,
            {n: t for n, t in {**inputs, chain.source: source}.items() if n in part.read},
            constants,
            table,
            _no_rule,
        )
        return expected, graph.value(chain.sink)

    return compare(case, maps)


def _no_rule(case, node, inputs):
    return None


def _inputs(case: Case, chain: TransposeChain, shape) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the maps of the data and of the unknown parameters."""
    dims = []
    for dim in chain.source_shape(range(len(shape))):
        size = shape[dim]
        if isinstance(size, int):
            dims.append(Polynomial.of(size))
        else:
            kind = "size" if isinstance(size, str) else "dim"
            dims.append(case.symbol(size if isinstance(size, str) else f"D{dim}", kind=kind))
    (element_type,) = chain.head.element_types if len(chain.head.element_types) == 1 else (0,)
    source = given(case, chain.source, dims, type=element_type)
    inputs = {}
    for step in (chain.head, *chain.rest):
        if not isinstance(step, OperatorInfo):
            continue
        for name, fact in list(zip(step.node.input, step.facts.inputs, strict=False))[1:]:
            if not name or fact is None:
                continue
            if fact.value is not None:
                inputs[name] = constant(case, fact.value)
            else:
                inputs[name] = _parameter(case, step, name, fact)
    return source, inputs


def _element_type(name):
    from onnx_spatial.analysis import element_type_named

    return 0 if name is None else element_type_named(name) or 0


def _parameter(case, step, name, fact):
    """Return the map of a run-time parameter; its entry for the batch does nothing."""
    dims = _parameter_dims(step, name, fact.shape)
    known = given(case, name, dims, whole=True, type=_element_type(fact.dtype))
    of_input = [
        p
        for p in step.call.parameters
        if p.vector.input is not None and step.node.input[p.vector.input] == name
    ]
    read = {p.vector.start + p.vector.step * i for p in of_input for i in range(p.vector.length)}
    neutral = Polynomial.of(of_input[0].least)
    columns = dims[-1].constant if len(dims) == 2 else 1

    def at(index):
        place = index[0] if len(index) == 1 else index[0] * columns + index[1]
        if place.constant is None:
            raise UndecidedError(f"parameter {name!r} is read at an unknown place")
        return known.at(index) if place.constant in read else neutral

    return Tensor(case, dims, at, whole=True, type=known.type)


def _parameter_dims(step, name, shape):
    """Return the dims of a run-time parameter: declared, or those that the operator requires."""
    vector = next(
        p.vector
        for p in step.call.parameters
        if p.vector.input is not None and step.node.input[p.vector.input] == name
    )
    if shape is not None and all(isinstance(d, int) for d in shape):
        dims = shape
    else:
        dims = (vector.rows,) if vector.step == 1 else (vector.rows, vector.step)
    return [Polynomial.of(d) for d in dims]


def prove_region(
    region: MatchingRegion,
    upstream: Upstream,
    infos: Sequence[OperatorInfo],
    models: ModelPair,
) -> Comparison:
    """Prove that both parts of a region move the same elements, and sum the same products.

    Args:
        region: the region.
        upstream: how the original computes some of the values that it reads.
        infos: the operators of the original.
        models: the models that it was cut from.
    """
    opset = region.before.imports.opsets.get("", MAX_OPSET)
    sites = {(info.node.op_type, info.node.output[0]): info for info in infos}

    def spatial(case: Case, node: onnx.NodeProto, values: Sequence[Tensor | None]) -> Tensor | None:
        info = sites.get((node.op_type, node.output[0]))
        return None if info is None else _operator(case, info, values)

    def original(case: Case, part: Part | Upstream, inputs: dict[str, Tensor]) -> GraphMaps:
        return _maps(case, part, models.original, inputs, spatial, opset, legal=True)

    def maps(case: Case) -> tuple[Tensor, Tensor]:
        given_ahead = {n: _given(case, n, known) for n, known in upstream.inputs.items()}
        ahead = original(case, upstream, given_ahead)
        inputs = {}
        for name, known in region.inputs.items():
            value = _computed(ahead, name) if name in upstream.names else None
            inputs[name] = value or _given(case, name, known)
        expected = original(case, region.before, inputs).value(region.output)
        actual = _maps(case, region.after, models.converted, inputs, _no_rule, opset)
        return expected, actual.value(region.output)

    return compare(Case(), maps)


def _computed(graph: GraphMaps, name: str) -> Tensor | None:
    """Return the map of a value; None if it is not followed."""
    try:
        return graph.value(name)
    except UndecidedError:
        return None


def _maps(
    case: Case,
    part: Part | Upstream,
    source: Source,
    inputs: dict[str, Tensor],
    rule: NodeRule,
    opset: int,
    *,
    legal: bool = False,
) -> GraphMaps:
    functions = {(f.domain, f.name): f for f in source.proto.functions}
    constants = {t.name: partial(constant_value, t, source.folder) for t in part.stored}
    return GraphMaps(case, part.nodes, inputs, constants, functions, rule, opset=opset, legal=legal)


def _given(case: Case, name: str, known: onnx.TypeProto) -> Tensor:
    """Return the map of a value that a region reads; small integers are parameters."""
    sizes = shape_inference.dims(known)
    if sizes is None:
        raise UndecidedError(f"the rank of {name!r} is unknown")
    if 0 in sizes:
        raise UndecidedError(f"{name!r} is empty")
    dims = [
        Polynomial.of(d) if isinstance(d, int) else case.symbol(d or f"{name}.{axis}")
        for axis, d in enumerate(sizes)
    ]
    if shape_inference.element_type(known) not in _INTEGERS or len(sizes) > 2:
        return given(case, name, dims)

    def at(index: Index) -> Polynomial:
        if case.context[1] or any(i.constant is None for i in index):
            return Polynomial.atom(OperationKey(ELEMENT, (name,), index))
        return case.symbol(f"{name}{[i.constant for i in index]}", None)

    return Tensor(case, dims, at, whole=True)


def _operator(case: Case, info: OperatorInfo, values: Sequence[Tensor | None]) -> Tensor:
    """Return the map behind a spatial operator of the original."""
    call, x = info.call, values[0]
    if call is None or x is None:
        raise UndecidedError(f"{info.node.op_type}: its parameters are not known")
    parameters = []
    for parameter in call.parameters:
        vector = parameter.vector
        if vector.values is not None:
            numbers = [Polynomial.of(v) for v in vector.values]
        else:
            tensor = values[vector.input] if vector.input is not None else None
            if tensor is None:
                raise UndecidedError(f"{info.node.op_type}: a parameter is missing")
            numbers = _entries(case, tensor, vector)
        for number in numbers:
            case.assume(number - parameter.least)
        parameters.append(numbers)
    return operators.apply(case, call.kind, call.operator, x, *parameters)


def _entries(case: Case, tensor: Tensor, vector: Vector) -> list[Polynomial]:
    """Return the numbers of a parameter in a tensor of the size that the operator requires."""
    if not tensor.whole:
        raise UndecidedError("a parameter is not followed")
    sizes = [vector.rows] if vector.step == 1 else [vector.rows, vector.step]
    if tensor.rank != len(sizes):
        sizes = [vector.rows * vector.step] if tensor.rank == 1 else [vector.length]
    for dim, size in zip(tensor.dims, sizes, strict=False):
        assume_equal(case, dim, Polynomial.of(size))
    if tensor.rank == 0:
        places: list[tuple[int, ...]] = [()]
    else:
        places = list(np.ndindex(*(d.constant or 0 for d in tensor.dims)))
    table = [tensor.at(tuple(Polynomial.of(i) for i in place)) for place in places]
    return table[vector.start :: vector.step][: vector.length]


def _expected(case: Case, chain: TransposeChain, x: Tensor, inputs: dict[str, Tensor]) -> Tensor:
    for transpose in chain.turns:
        x = transposed(case, x, transpose.axes(x.rank))
    for step in (chain.head, *chain.rest):
        if isinstance(step, Transpose):
            x = transposed(case, x, step.axes(x.rank))
            continue
        call = step.call
        parameters = [_read(case, step, p.vector, p.least, inputs) for p in call.parameters]
        x = operators.apply(case, call.kind, call.operator, x, *parameters)
    return x


def _read(
    case: Case, step: OperatorInfo, vector: Vector, least: int, inputs: dict[str, Tensor]
) -> list[Polynomial]:
    if vector.values is not None:
        return [Polynomial.of(v) for v in vector.values]
    tensor = inputs[step.node.input[vector.input]]
    if tensor.rank == 1:
        table = tensor.elements()
    else:
        rows, columns = (d.constant for d in tensor.dims)
        table = [
            tensor.at((Polynomial.of(i), Polynomial.of(j)))
            for i in range(rows)
            for j in range(columns)
        ]
    values = table[vector.start :: vector.step][: vector.length]
    for value in values:
        case.assume(value - least)
    return values
