"""The maps of operators that return sizes, or tensors of computed sizes."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from onnx_spatial.maps.broadcasting import broadcast, broadcast_at
from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.constants import constant
from onnx_spatial.maps.expressions import ONE, ZERO, Index, product
from onnx_spatial.maps.grids import MAX_PLACES
from onnx_spatial.maps.integers import fitting
from onnx_spatial.maps.node import WHOLE, NodeView, Rule
from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.maps.tensor import Tensor, filled, moved, vector

_INT64 = int(TensorProto.INT64)


def _shape(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    start, end = node.get("start", 0), node.get("end", None)
    return [vector(case, x.dims[start:end])]


def _size(case: Case, node: NodeView) -> list[Tensor]:
    return [filled(case, [], product(node.input(0).dims), whole=True, type=_INT64)]


def _constant_of_shape(case: Case, node: NodeView) -> list[Tensor]:
    dims = node.input(0).elements()
    value, element_type = node.fill_value()
    return [filled(case, dims, value, whole=element_type in WHOLE, type=element_type)]


def _range(case: Case, node: NodeView) -> list[Tensor]:
    numbers = node.inputs()
    if not all(n.whole and product(n.dims) == ONE for n in numbers):
        raise UndecidedError("Range: start, limit and delta must be single integers")
    # onnxruntime computes the length in double precision.
    start, limit, delta = (fitting(case, n.at((ZERO,) * n.rank), n.type, 53) for n in numbers)
    if not case.decide(delta - 1):
        raise UndecidedError("Range: delta may be 0 or negative")
    count = ZERO
    if case.decide(limit - start):
        count = case.floor_div(limit - start + delta - 1, delta)
    return [
        Tensor(
            case, [count], lambda index: start + index[0] * delta, whole=True, type=numbers[0].type
        )
    ]


def _non_zero(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    if x.rank != 1 or not x.whole:
        raise UndecidedError("NonZero of anything but a list of ones has no index map")

    def check(index: Index) -> None:
        if not x.at(index).constant:
            raise UndecidedError("NonZero of anything but a list of ones has no index map")

    node.for_all(case, x.dims, check)
    return [Tensor(case, [ONE, x.dims[0]], lambda index: index[1], whole=True, type=_INT64)]


def _expand(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    dims = broadcast(case, [x.dims, tuple(node.sizes("shape", 1))])
    return [moved(x, case, dims, lambda index: broadcast_at(x, index))]


def _tile(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    repeats = node.sizes("repeats", 1)
    for count in repeats:
        case.require(count, "Tile: repeats may be negative")
    dims = [d * r for d, r in zip(x.dims, repeats, strict=True)]

    def at(index: Index) -> Polynomial:
        return x.at(tuple(case.mod(i, d) for i, d in zip(index, x.dims, strict=True)))

    return [moved(x, case, dims, at)]


def _eye_like(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    rows, columns = (d.constant for d in x.dims)
    if rows is None or columns is None or rows * columns > MAX_PLACES:
        raise UndecidedError("EyeLike of an unknown or large size has no index map")
    element_type = node.get("dtype", 0) or x.type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(element_type)
    return [constant(case, np.eye(rows, columns, node.get("k", 0), dtype))]


RULES: dict[str, Rule] = {
    "EyeLike": _eye_like,
    "Shape": _shape,
    "Size": _size,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "NonZero": _non_zero,
    "Expand": _expand,
    "Tile": _tile,
}
