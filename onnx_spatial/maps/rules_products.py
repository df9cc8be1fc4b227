"""The maps of products of matrices, as sums of products."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from onnx_spatial.maps.broadcasting import broadcast
from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.elements import (
    broadcast_element,
    digits,
    element,
    flat,
    sum_of_products,
)
from onnx_spatial.maps.expressions import ONE, ZERO, Index
from onnx_spatial.maps.node import NodeView, Rule
from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.maps.rules_reshape import transposed
from onnx_spatial.maps.tensor import Axis, Tensor


def _matmul(case: Case, node: NodeView) -> list[Tensor]:
    a, b = node.input(0), node.input(1)
    if a.rank < 2 or b.rank < 2:
        raise UndecidedError(f"{node.op_type} of a vector has no index map")
    batch = broadcast(case, [a.dims[:-2], b.dims[:-2]], legal=node.legal)
    return [_product(case, node, a, b, batch, None)]


def _gemm(case: Case, node: NodeView) -> list[Tensor]:
    a, b = node.input(0), node.input(1)
    if a.rank != 2 or b.rank != 2 or node.get("alpha", 1.0) != 1.0:
        raise UndecidedError("Gemm with alpha has no index map")
    a = transposed(case, a, [1, 0]) if node.get("transA", 0) else a
    b = transposed(case, b, [1, 0]) if node.get("transB", 0) else b
    added = node.optional(2)
    if added is not None and node.get("beta", 1.0) != 1.0:
        raise UndecidedError("Gemm with beta has no index map")
    return [_product(case, node, a, b, (), added)]


def _product(
    case: Case,
    node: NodeView,
    a: Tensor,
    b: Tensor,
    batch: Sequence[Polynomial],
    added: Tensor | None,
) -> Tensor:
    node.need_equal(case, a.dims[-1], b.dims[-2], f"{node.op_type}: the inner dims may differ")
    first, second = digits(case, a, a.rank - 1), digits(case, b, b.rank - 2)
    extents = first if len(first) >= len(second) else second
    dims = [*batch, a.dims[-2], b.dims[-1]]
    if added is not None:
        whole = broadcast(case, [tuple(dims), added.dims])
        if list(whole) != dims:
            raise UndecidedError(f"{node.op_type}: the summand is larger than the product")

    def at(index: Index) -> Polynomial:
        def left(indices: Sequence[Polynomial]) -> Polynomial:
            return _broadcast_outer(case, a, (*index[:-1], flat(indices, extents)))

        def right(indices: Sequence[Polynomial]) -> Polynomial:
            return _broadcast_outer(case, b, (*index[:-2], flat(indices, extents), index[-1]))

        more = None if added is None else broadcast_element(added, case, index)
        return sum_of_products(case, extents, right, left, more)

    axes = [*(Axis([d]) for d in batch), a.axes[-2], b.axes[-1]]
    if a.rank == len(dims) and a.dims[:-1] == tuple(dims[:-1]):
        axes = [*a.axes[:-1], b.axes[-1]]
    return Tensor(case, dims, at, whole=False, type=a.type, axes=axes)


def _einsum(case: Case, node: NodeView) -> list[Tensor]:
    """Return the map of an Einsum of two operands, each of which has a letter at most once."""
    left, arrow, result = node.get("equation", b"").decode().replace(" ", "").partition("->")
    terms = left.split(",")
    letters = left.replace(",", "")
    if not arrow:
        result = "".join(sorted(letter for letter in letters if letters.count(letter) == 1))
    inputs = node.inputs()
    if len(inputs) != 2 or len(terms) != 2 or "." in left:
        raise UndecidedError("only an Einsum of two operands without ellipsis has an index map")
    sizes: dict[str, Polynomial] = {}
    for term, tensor in zip(terms, inputs, strict=True):
        if len(set(term)) != len(term) or len(term) != tensor.rank:
            raise UndecidedError("Einsum: a letter occurs twice, or the ranks do not fit")
        for letter, dim in zip(term, tensor.dims, strict=True):
            known = sizes.setdefault(letter, dim)
            node.need_equal(case, known, dim, "Einsum: two sizes of a letter may differ")
    if not set(result) <= sizes.keys() or len(set(result)) != len(result):
        raise UndecidedError("Einsum: the letters of the result do not fit")
    summed = [letter for letter in sizes if letter not in result]
    extents = [sizes[letter] for letter in summed]

    def at(index: Index) -> Polynomial:
        def factor(number: int, indices: Sequence[Polynomial]) -> Polynomial:
            place = dict(zip(result, index, strict=True)) | dict(zip(summed, indices, strict=True))
            return element(inputs[number], case, tuple(place[letter] for letter in terms[number]))

        return sum_of_products(case, extents, partial(factor, 1), partial(factor, 0), None)

    dims = [sizes[letter] for letter in result]
    axis_of = {
        letter: axis
        for term, tensor in zip(terms, inputs, strict=True)
        for letter, axis in zip(term, tensor.axes, strict=True)
    }
    axes = [axis_of[letter] for letter in result]
    return [Tensor(case, dims, at, whole=False, type=inputs[0].type, axes=axes)]


def _broadcast_outer(case: Case, x: Tensor, index: Index) -> Polynomial:
    """Return an element of a factor, whose last two axes are not broadcast."""
    tail = index[len(index) - x.rank :]
    outer = [ZERO if d == ONE else i for i, d in zip(tail[:-2], x.dims, strict=False)]
    return element(x, case, (*outer, *tail[-2:]))


RULES: dict[str, Rule] = {
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": _matmul,
}
