"""Prove by index maps that both models compute a region alike."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from time import thread_time

import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.index_map.cases import MAX_SECONDS, Case, UndecidedError
from onnx_spatial.index_map.compare import Comparison, compare
from onnx_spatial.index_map.expressions import ELEMENT, Index, product
from onnx_spatial.index_map.graph import GraphMaps
from onnx_spatial.index_map.integers import INTEGER
from onnx_spatial.index_map.tensor import Tensor, given
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.symbolic.polynomial import OperationKey, Polynomial
from onnx_spatial.verification.checks.index_maps import graph_maps, operator_map, opset_of
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
        expected = original(case, region.before, inputs).value(region.output)
        case.counts = [product(t.dims) for t in (*inputs.values(), expected) if not t.whole]
        source = models.converted
        actual = graph_maps(case, region.after, source.proto.functions, source.folder, inputs)
        return expected, actual.value(region.output)

    end = thread_time() + seconds
    comparison = compare(Case(seconds), partial(maps, upstream.names - upstream.ties))
    if upstream.ties and not comparison.equal:
        left = Case(end - thread_time())
        comparison = compare(left, partial(maps, upstream.names))
    return comparison


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
    return case.symbol(dim) if dim else case.symbol(f"{name}.{axis}", kind="dim")
