"""Prove each operator for all sizes, by index maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.index_map import operators
from onnx_spatial.index_map.cases import Case, UndecidedError
from onnx_spatial.index_map.compare import Comparison, compare
from onnx_spatial.index_map.graph import GraphMaps
from onnx_spatial.index_map.rules_movement import product, transposed
from onnx_spatial.index_map.tensor import Tensor, given
from onnx_spatial.model.symbolic.polynomial import Polynomial
from onnx_spatial.operators.spellings import Vector
from onnx_spatial.verification.arrays import Array, constant_value
from onnx_spatial.verification.subgraphs.transpose_chain import Transpose, TransposeChain
from onnx_spatial.verification.subgraphs.value_graph import Part

#: Ranks tried where the rank is unknown: numpy and onnxruntime have little use for more.
MAX_RANK = 8


def prove(
    chain: TransposeChain, part: Part, functions: Sequence[onnx.FunctionProto], folder: object
) -> Comparison:
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
            case, part.nodes, {chain.source: source, **inputs}, constants, table, _no_rule
        )
        return expected, graph.value(chain.sink)

    return compare(case, maps)


def _no_rule(case, node, inputs):
    return None


def _inputs(case: Case, chain: TransposeChain, shape) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the maps of the data and of the unknown parameters."""
    dims = []
    for axis, dim in enumerate(chain.source_shape(range(len(shape)))):
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
                from onnx_spatial.index_map.constants import constant

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
