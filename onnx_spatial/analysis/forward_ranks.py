"""Infer ranks that onnx's shape inference does not find.

    n = Shape(x), Split(n), Concat(..): 4 elements        Reshape(x, n)        has rank 4

onnx needs the elements of a shape, or at least a length that it can follow; the index maps follow more.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from onnx_spatial.maps.sizes import SymbolicValues
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import constant_folding, shape_inference


def declare(model: onnx.ModelProto, inferred: Sequence[constant_folding.GraphInScope]) -> bool:
    """Declare ranks in `model`, in place, apart from those of values in functions.

    Args:
        model: the model.
        inferred: the graphs of the result of shape inference for it.

    Returns:
        Whether any rank is new.
    """
    changed = False
    for (_, graph), (scope, known) in zip(traversal.graphs(model), inferred, strict=True):
        if isinstance(graph, onnx.GraphProto):
            ranks = _missing_ranks(scope, known)
            _declare_ranks(graph, ranks)
            changed |= bool(ranks)
    return changed


def _missing_ranks(
    scope: constant_folding.ConstantScope, graph: traversal.GraphLike
) -> dict[str, int]:
    """Return the ranks above 0 that a graph does not declare for its values."""
    ranks, sizes = {}, SymbolicValues(scope)
    for node in graph.node:
        for name in node.output if op_traits.is_standard(node) else ():
            known = scope.types.get(name)
            if not name or shape_inference.rank(known):
                continue
            if known is not None and known.WhichOneof("value") not in (None, "tensor_type"):
                continue
            dims = sizes.dims(name) if shape_inference.dims(known) is None else None
            if dims:
                ranks[name] = len(dims)
    return ranks


def _declare_ranks(graph: onnx.GraphProto, ranks: dict[str, int]) -> None:
    infos = {v.name: v for v in (*graph.value_info, *graph.output, *graph.input)} if ranks else {}
    for name, rank in ranks.items():
        info = infos[name] if name in infos else graph.value_info.add(name=name)
        shape = info.type.tensor_type.shape
        for _ in range(rank - len(shape.dim)):
            shape.dim.add()
