"""Prove that a region that both models compute is the same, by index maps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from time import thread_time

import numpy as np
import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.index_map import operators
from onnx_spatial.index_map.cases import MAX_SECONDS, Case, UndecidedError
from onnx_spatial.index_map.compare import Comparison, compare
from onnx_spatial.index_map.expressions import ELEMENT, Index, atoms_of, product
from onnx_spatial.index_map.graph import GraphMaps, NodeRule
from onnx_spatial.index_map.integers import INTEGER
from onnx_spatial.index_map.node import assume_equal
from onnx_spatial.index_map.tensor import Tensor, given
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.io.source import Source
from onnx_spatial.model.symbolic.polynomial import OperationKey, Polynomial
from onnx_spatial.operators.spellings import Vector
from onnx_spatial.verification.arrays import constant_value
from onnx_spatial.verification.checks.index_maps import no_rule, opset_of
from onnx_spatial.verification.checks.model_pair import ModelPair
from onnx_spatial.verification.subgraphs.matching_region import MatchingRegion, Upstream
from onnx_spatial.verification.subgraphs.value_graph import Part

_INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)


def prove_region(
    region: MatchingRegion,
    upstream: Upstream,
    infos: Sequence[OperatorInfo],
    models: ModelPair,
    seconds: float = MAX_SECONDS,
) -> Comparison:
    """Prove that both parts of a region move the same elements, and sum the same products.

    Args:
        region: the region.
        upstream: how the original computes some of the values that it reads.
        infos: the operators of the original.
        models: the models that it was cut from.
        seconds: that the proof may take.
    """
    sites = {
        (info.node.op_type, info.node.output[0]): info
        for info in infos
        if info.place == region.place
    }

    def spatial(case: Case, node: onnx.NodeProto, values: Sequence[Tensor | None]) -> Tensor | None:
        info = sites.get((node.op_type, node.output[0]))
        if info is None or list(info.node.input) != list(node.input):
            return None  # of another graph
        return _operator(case, info, values)

    def original(case: Case, part: Part | Upstream, inputs: dict[str, Tensor]) -> GraphMaps:
        opset = opset_of(region.before)
        return _maps(case, part, models.original, inputs, spatial, opset, legal=True)

    def maps(followed: Collection[str], case: Case) -> tuple[Tensor, Tensor]:
        given_ahead = {n: _given(case, n, known) for n, known in upstream.inputs.items()}
        ahead = original(case, upstream, given_ahead)
        inputs = {}
        for name, known in region.inputs.items():
            value = _computed(ahead, name) if name in followed else None
            inputs[name] = value or _given(case, name, known)
        expected = original(case, region.before, inputs).value(region.output)
        case.counts = [product(t.dims) for t in (*inputs.values(), expected) if not t.whole]
        actual = _maps(
            case, region.after, models.converted, inputs, no_rule, opset_of(region.after)
        )
        return expected, actual.value(region.output)

    end = thread_time() + seconds
    comparison = compare(Case(seconds), partial(maps, upstream.names - upstream.ties))
    if upstream.ties and not comparison.equal:
        left = Case(end - thread_time())
        comparison = compare(left, partial(maps, upstream.names))
    return comparison


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
    functions = {(f.domain, f.name, f.overload): f for f in source.proto.functions}
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
        Polynomial.of(d) if isinstance(d, int) else _size(case, name, axis, d)
        for axis, d in enumerate(sizes)
    ]
    element_type = shape_inference.element_type(known) or 0
    if element_type not in _INTEGERS or len(sizes) > 2:
        return given(case, name, dims, type=element_type)

    def at(index: Index) -> Polynomial:
        if case.context[1] or any(i.constant is None for i in index):
            return Polynomial.atom(OperationKey(ELEMENT, (name,), index))
        return case.symbol(f"{name}{[i.constant for i in index]}", None, kind=INTEGER)

    return Tensor(case, dims, at, whole=True, type=element_type)


def _size(case: Case, name: str, axis: int, dim: str | None) -> Polynomial:
    """Return the symbol of an unknown dim, which the model may have named."""
    return case.symbol(dim) if dim else case.symbol(f"{name}.{axis}", kind="dim")


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
            case.bounded |= atoms_of(number)
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
