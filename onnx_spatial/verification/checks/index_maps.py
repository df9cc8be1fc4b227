"""Prove each operator for all sizes, by index maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import thread_time

import numpy as np
import onnx

from onnx_spatial.analysis import OperatorInfo, element_type_named
from onnx_spatial.index_map import operators
from onnx_spatial.index_map.budget import Budget
from onnx_spatial.index_map.cases import Case, UndecidedError
from onnx_spatial.index_map.compare import Comparison, compare
from onnx_spatial.index_map.constants import constant
from onnx_spatial.index_map.expressions import Index, product
from onnx_spatial.index_map.graph import GraphMaps, NodeRule
from onnx_spatial.index_map.node import MAX_OPSET, assume_equal
from onnx_spatial.index_map.rules_reshape import transposed
from onnx_spatial.index_map.tensor import Tensor, given
from onnx_spatial.model.symbolic.polynomial import Polynomial
from onnx_spatial.operators import Dim
from onnx_spatial.operators.spellings import InputFacts, Vector
from onnx_spatial.operators.spellings.call import Parameter
from onnx_spatial.verification.arrays import constant_value
from onnx_spatial.verification.match.graphs import Part
from onnx_spatial.verification.subgraphs.matched_parts import Upstream
from onnx_spatial.verification.subgraphs.transpose_chain import Transpose, TransposeChain

#: The most seconds of one comparison.
MAX_SECONDS = 1.0

#: The largest rank that is tried where the rank is unknown.
MAX_RANK = 8


@dataclass(frozen=True)
class Attempt:
    """Outcome of comparing the maps of a chain and its part.

    Attributes:
        comparison: the outcome.
        dims: of the data of the operator at the head of the chain.
    """

    comparison: Comparison
    dims: tuple[Dim, ...]


def prove(
    chain: TransposeChain,
    part: Part,
    functions: Sequence[onnx.FunctionProto],
    folder: Path | None,
    seconds: float = MAX_SECONDS,
) -> Attempt:
    """Compare the maps of a chain and the part that replaces it, at every rank that it may have.

    Returns the first attempt that fails, else the last.
    """
    data = chain.head.facts.inputs[0]
    call = chain.head.call
    assert call is not None
    if data is not None and data.shape is not None and data.ranked:
        return _prove(chain, part, functions, folder, data.shape, seconds)
    if call.rank:
        return _prove(chain, part, functions, folder, (None,) * call.rank, seconds)
    end = thread_time() + seconds
    most = max(call.axes, MAX_RANK)
    for rank in range(call.axes, most + 1):
        left = end - thread_time()
        attempt = _prove(chain, part, functions, folder, (None,) * rank, left)
        if not attempt.comparison.equal:
            return attempt
    comparison = attempt.comparison
    assumptions = (*comparison.assumptions, f"the rank is at most {most}")
    return replace(attempt, comparison=replace(comparison, assumptions=assumptions))


def _prove(
    chain: TransposeChain,
    part: Part,
    functions: Sequence[onnx.FunctionProto],
    folder: Path | None,
    dims: tuple[Dim, ...],
    seconds: float,
) -> Attempt:
    """Compare the maps of a chain and its part for data of some dims."""

    def maps(case: Case) -> tuple[Tensor, Tensor]:
        source, parameters = _inputs(case, chain, dims)
        expected = _expected(case, chain, source, parameters)
        case.counts = [product(source.dims), product(expected.dims)]
        # A constant of the part may have the name of a parameter.
        inputs = {n: t for n, t in (parameters | {chain.source: source}).items() if n in part.read}
        return expected, graph_maps(case, part, functions, folder, inputs).value(chain.sink)

    return Attempt(compare(Case(Budget(seconds=seconds)), maps), dims)


def graph_maps(
    case: Case,
    part: Part | Upstream,
    functions: Sequence[onnx.FunctionProto],
    folder: Path | None,
    inputs: Mapping[str, Tensor],
    rule: NodeRule | None = None,
    *,
    opset: int | None = None,
    legal: bool = False,
) -> GraphMaps:
    """Return the maps of the values of a part of a model.

    Args:
        case: the case to compute them in.
        part: the part.
        functions: local functions of the model.
        folder: of the model's external data.
        inputs: maps of the values that the part reads.
        rule: see `GraphMaps`.
        opset: version of ONNX's own operators; that of the part if it is omitted.
        legal: see `GraphMaps`.
    """
    table = {(f.domain, f.name, f.overload): f for f in functions}
    constants = {t.name: partial(constant_value, t, folder) for t in part.stored}
    if opset is None:
        opset = opset_of(part) if isinstance(part, Part) else MAX_OPSET
    return GraphMaps(case, part.nodes, inputs, constants, table, rule, opset=opset, legal=legal)


def opset_of(part: Part) -> int:
    """Return the version of ONNX's own operators that a part imports."""
    opsets = part.imports.opsets
    return opsets.get("", opsets.get("ai.onnx", MAX_OPSET))


def size_symbol(axis: int, dim: Dim) -> tuple[str, str]:
    """Return kind and name of the symbol of an unknown dim, which the model may have named."""
    return ("size", dim) if isinstance(dim, str) else ("dim", f"D{axis}")


def _inputs(
    case: Case, chain: TransposeChain, shape: Sequence[Dim]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the maps of the data and of the parameters."""
    dims = []
    for axis in chain.source_shape(range(len(shape))):
        size = shape[axis]
        if isinstance(size, int):
            dims.append(Polynomial.of(size))
        else:
            kind, name = size_symbol(axis, size)
            dims.append(case.symbol(name, kind=kind))
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


def _parameter(case: Case, step: OperatorInfo, name: str, fact: InputFacts) -> Tensor:
    """Return the map of a run-time parameter; entries for the batch have their only legal value."""
    dims = parameter_dims(step, name, fact.shape)
    element_type = element_type_named(fact.dtype) if fact.dtype is not None else None
    sizes = [Polynomial.of(d) for d in dims]
    known = given(case, name, sizes, whole=True, type=element_type or 0)
    of_input = _parameters_in(step, name)
    read = {p.vector.start + p.vector.step * i for p in of_input for i in range(p.vector.length)}
    neutral = Polynomial.of(of_input[0].least)
    columns = dims[-1] if len(dims) == 2 else 1

    def at(index: Index) -> Polynomial:
        place = index[0] if len(index) == 1 else index[0] * columns + index[1]
        if place.constant is None:
            raise UndecidedError(f"parameter {name!r} is read at an unknown index")
        return known.at(index) if place.constant in read else neutral

    return Tensor(case, sizes, at, whole=True, type=known.type)


def _parameters_in(step: OperatorInfo, name: str) -> list[Parameter]:
    """Return the parameters of an operator that it reads from an input."""
    assert step.call is not None
    return [
        p
        for p in step.call.parameters
        if p.vector.input is not None and step.node.input[p.vector.input] == name
    ]


def parameter_dims(step: OperatorInfo, name: str, shape: Sequence[Dim] | None) -> tuple[int, ...]:
    """Return the dims of a run-time parameter: declared, or those that the operator requires."""
    parameters = _parameters_in(step, name)
    if not parameters:
        raise UndecidedError(f"input {name!r} is not a parameter of the operator")
    vector = parameters[0].vector
    known = tuple(d for d in shape or () if isinstance(d, int))
    if shape is not None and len(known) == len(shape):
        return known
    return (vector.rows,) if vector.step == 1 else (vector.rows, vector.step)


def _expected(
    case: Case, chain: TransposeChain, x: Tensor, parameters: Mapping[str, Tensor]
) -> Tensor:
    """Return the map of the result of a chain."""
    for transpose in chain.turns:
        x = transposed(case, x, transpose.axes(x.rank))
    for step in (chain.head, *chain.rest):
        if isinstance(step, Transpose):
            x = transposed(case, x, step.axes(x.rank))
        else:
            x = operator_map(case, step, [x, *map(parameters.get, step.node.input[1:])])
    return x


def operator_map(case: Case, info: OperatorInfo, inputs: Sequence[Tensor | None]) -> Tensor:
    """Return the map of the output of a spatial operator.

    Raises:
        UndecidedError: its parameters are unknown.
    """
    call, x = info.call, inputs[0]
    if call is None or x is None:
        raise UndecidedError(f"{info.node.op_type}: its parameters are unknown")
    parameters = []
    for parameter in call.parameters:
        entries = _entries(case, info, parameter.vector, inputs)
        for entry in entries:
            if entry.lone_atom is not None:
                case.bounded.add(entry.lone_atom)
            case.assume(entry - parameter.least)
        parameters.append(entries)
    return operators.apply(case, call.kind, call.operator, x, *parameters)


def _entries(
    case: Case, info: OperatorInfo, vector: Vector, inputs: Sequence[Tensor | None]
) -> list[Polynomial]:
    """Return the integers of a parameter; an input that holds it has the size that this requires."""
    if vector.values is not None:
        return [Polynomial.of(v) for v in vector.values]
    tensor = inputs[vector.input] if vector.input is not None else None
    if tensor is None or not tensor.whole:
        raise UndecidedError(f"{info.node.op_type}: a parameter is unknown")
    sizes = [vector.rows] if vector.step == 1 else [vector.rows, vector.step]
    if tensor.rank != len(sizes):
        sizes = [vector.rows * vector.step] if tensor.rank == 1 else [vector.length]
    for dim, size in zip(tensor.dims, sizes, strict=False):
        assume_equal(case, dim, Polynomial.of(size))
    indices = np.ndindex(*(d.constant or 0 for d in tensor.dims))
    table = [tensor.at(tuple(map(Polynomial.of, index))) for index in indices]
    return table[vector.start :: vector.step][: vector.length]
