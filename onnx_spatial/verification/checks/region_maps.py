"""Prove by index maps that both models compute a region alike."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import partial
from time import thread_time

import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.index_map.budget import Budget
from onnx_spatial.index_map.cases import Case, UndecidedError
from onnx_spatial.index_map.compare import Comparison, compare
from onnx_spatial.index_map.expressions import ELEMENT, Index, product
from onnx_spatial.index_map.graph import GraphMaps
from onnx_spatial.index_map.integers import INTEGER
from onnx_spatial.index_map.tensor import Tensor, given
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.symbolic.polynomial import OperationKey, Polynomial
from onnx_spatial.verification.checks import case_values
from onnx_spatial.verification.checks.index_maps import (
    MAX_SECONDS,
    graph_maps,
    operator_map,
    opset_of,
)
from onnx_spatial.verification.match.graphs import Part
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.subgraphs.matched_parts import MatchingRegion, Upstream

#: Differences that are looked for: where two functions have different names, they may be the same.
_DIFFERENCES = 6
#: Sizes that are returned for a difference, and elements of the data of the largest one.
_SIZES, _MOST_ELEMENTS = 3, 2**24
_INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)


def prove_region(
    region: MatchingRegion,
    upstream: Upstream,
    infos: Sequence[OperatorInfo],
    models: ModelPair,
    seconds: float = MAX_SECONDS,
    weights: Mapping[str, onnx.TypeProto] | None = None,
) -> Comparison:
    """Prove that both parts of a region move the same elements, and sum the same products.

    Args:
        region: the region.
        upstream: how the original computes some of the values that it reads.
        infos: the operators of the original.
        models: the models that it was cut from.
        seconds: that the proof may take.
        weights: types of constants of both parts that may have any finite numbers, by name.
    """
    weights = weights or {}
    sites = {
        (info.node.op_type, info.node.output[0]): info
        for info in infos
        if info.place == region.place
    }

    def spatial(case: Case, node: onnx.NodeProto, values: Sequence[Tensor | None]) -> Tensor | None:
        info = sites.get((node.op_type, node.output[0]))
        if info is None or list(info.node.input) != list(node.input):
            return None  # of another graph
        return operator_map(case, info, values)

    def original(case: Case, part: Part | Upstream, inputs: dict[str, Tensor]) -> GraphMaps:
        source, opset = models.original, opset_of(region.before)
        functions, folder = source.proto.functions, source.folder
        return graph_maps(case, part, functions, folder, inputs, spatial, opset=opset, legal=True)

    def maps(followed: Collection[str], case: Case) -> tuple[Tensor, Tensor]:
        read = {name: _given(case, name, known) for name, known in upstream.inputs.items()}
        ahead = original(case, upstream, read)
        inputs = {}
        for name, known in region.inputs.items():
            value = _computed(ahead, name) if name in followed else None
            inputs[name] = value or _given(case, name, known)
        stored = {name: _given(case, name, known) for name, known in weights.items()}
        case.finite.update(stored)
        expected = original(case, region.before, inputs | stored).value(region.output)
        case.counts = [product(t.dims) for t in (*inputs.values(), expected) if not t.whole]
        inputs |= stored
        source = models.converted
        actual = graph_maps(case, region.after, source.proto.functions, source.folder, inputs)
        return expected, actual.value(region.output)

    end = thread_time() + seconds
    comparison = compare(
        Case(Budget(seconds=seconds)), partial(maps, upstream.names - upstream.ties), _DIFFERENCES
    )
    if upstream.ties and not comparison.equal:
        left = Case(Budget(seconds=end - thread_time()))
        comparison = compare(left, partial(maps, upstream.names), _DIFFERENCES)
    return comparison


def differing_sizes(
    region: MatchingRegion, comparison: Comparison
) -> tuple[Mapping[str, tuple[int, ...]], ...]:
    """Return shapes of inputs at which both parts may differ: for each difference a few.

    The smallest ones, and a large one: a difference behind a limit, and one somewhere below it.
    """
    if region.is_static:
        return ()
    sizes: dict[tuple[tuple[int, ...], ...], int] = {}
    for difference in comparison.differences:
        found: dict[tuple[tuple[int, ...], ...], int] = {}
        for symbols in case_values.solutions(difference):
            shapes = tuple(_shape(name, t, symbols) for name, t in region.inputs.items())
            if all(min(shape, default=1) > 0 for shape in shapes):
                found[shapes] = max(map(math.prod, shapes), default=1)
        ordered = sorted(found, key=lambda shapes: found[shapes])
        large = [shapes for shapes in ordered[_SIZES - 1 :] if found[shapes] <= _MOST_ELEMENTS]
        sizes |= {shapes: found[shapes] for shapes in [*ordered[: _SIZES - 1], *large[-1:]]}
    chosen = sorted(sizes, key=lambda shapes: sizes[shapes])
    return tuple(dict(zip(region.inputs, shapes, strict=True)) for shapes in chosen)


def _shape(name: str, known: onnx.TypeProto, symbols: Mapping[Hashable, int]) -> tuple[int, ...]:
    return tuple(
        dim if isinstance(dim, int) else symbols.get(_symbol_of(name, axis, dim), 1)
        for axis, dim in enumerate(shape_inference.dims(known) or ())
    )


def _computed(graph: GraphMaps, name: str) -> Tensor | None:
    """Return the map of a value; None if it has none."""
    try:
        return graph.value(name)
    except UndecidedError:
        return None


def _given(case: Case, name: str, known: onnx.TypeProto) -> Tensor:
    """Return the map of a value that a region reads; integers of rank 2 at most may be sizes."""
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
        if case.use.opaque or any(i.constant is None for i in index):
            return Polynomial.atom(OperationKey(ELEMENT, (name,), index))
        return case.symbol(f"{name}{[i.constant for i in index]}", None, kind=INTEGER)

    return Tensor(case, dims, at, whole=True, type=element_type)


def _size(case: Case, name: str, axis: int, dim: str | None) -> Polynomial:
    """Return the symbol of an unknown dim, which the model may have named."""
    kind, label = _symbol_of(name, axis, dim)
    return case.symbol(label, kind=kind)


def _symbol_of(name: str, axis: int, dim: str | None) -> tuple[str, str]:
    """Return the kind and the name of the symbol of an unknown dim."""
    return ("size", dim) if dim else ("dim", f"{name}.{axis}")
