"""Represent elements that nodes compute: as unknown functions of others, or sums of products.

An element that a node computes is an atom: an unknown function of the elements that it depends on. A sum
over channels and a kernel is an atom of the two factors of one product, at indices that take all values:

    y[n, m, o] = sum of w[m, c, k] * x[n, g*C/G + c, o*s + k*d - p]  over c and k, x is 0 outside

Two sums are equal if the factors are equal for all values of these indices. Both sides must use the same
indices, so these are named by the number of sums around them and by their extents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.constants import stored_in
from onnx_spatial.maps.expressions import (
    ONE,
    UNKNOWN_PREFIX,
    ZERO,
    Index,
    atoms_of,
    unknown,
)
from onnx_spatial.maps.node import NodeView, broadcast_at
from onnx_spatial.maps.polynomial import OperationKey, Polynomial
from onnx_spatial.maps.tensor import Tensor
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

Table = npt.NDArray[np.integer[Any]]

#: The operator of the atoms for sums of products; the first two operands are the factors.
PRODUCTS = "Products"

#: Operators of the atoms whose operands may be swapped.
COMMUTATIVE = frozenset({f"{UNKNOWN_PREFIX}Add", f"{UNKNOWN_PREFIX}Mul"})

#: What is assumed of the data where a sum of products is one of its elements: it makes NaN of an
#: infinity and 0, and 0.0 of -0.0.
FINITE_DATA = "the data holds no NaN, no infinity and no -0.0"

#: Operators that return 0 if all inputs are 0.
KEEP_ZERO = op_traits.having(Trait.KEEPS_ZERO)


def element(x: Tensor, case: Case, index: Index) -> Polynomial:
    """Return an element to be compared only."""
    with case.within(opaque=x.whole):
        return x.at(index)


def broadcast_element(x: Tensor, case: Case, index: Index) -> Polynomial:
    """Return the element at an index of the broadcast result, to be compared only."""
    with case.within(opaque=x.whole):
        return broadcast_at(x, index)


def indices_of(case: Case, extents: Sequence[Polynomial]) -> list[Polynomial]:
    """Return indices of a sum, one for each extent; equal extents give equal indices."""
    seen: Counter[Polynomial] = Counter()
    indices = []
    for extent in extents:
        text = extent.constant if extent.constant is not None else repr(extent)
        indices.append(case.index(f"k{case.use.sums}.{text}.{seen[extent]}", extent))
        seen[extent] += 1
    return indices


def canonical_extents(extents: Sequence[Polynomial]) -> list[Polynomial]:
    """Return the extents of a sum in a canonical order."""
    return sorted((e for e in extents if e != ONE), key=lambda e: (e.constant or 0, repr(e)))


def digits(case: Case, x: Tensor, axis: int) -> list[Polynomial]:
    """Return the extents of the digits of an axis; its dim if they do not cover it."""
    if x.axes[axis].covers(x.dims[axis]):
        return [e for e in x.axes[axis].extents if e != ONE]
    return [x.dims[axis]]


def flat(indices: Sequence[Polynomial], extents: Sequence[Polynomial]) -> Polynomial:
    """Return the index along an axis whose digits have these indices and extents."""
    place = ZERO
    for index, extent in zip(indices, extents, strict=True):
        place = place * extent + index
    return place


def sum_of_products(
    case: Case,
    extents: Sequence[Polynomial],
    factor_at: Callable[[Sequence[Polynomial]], Polynomial],
    data_at: Callable[[Sequence[Polynomial]], Polynomial],
    added: Polynomial | None,
) -> Polynomial:
    """Return a sum of products along indices of some extents, plus a summand."""
    indices = indices_of(case, extents)
    with case.within(sums=1):
        factor, data = factor_at(indices), data_at(indices)
    if stored_in(data) is not None and stored_in(factor) is None:
        data, factor = factor, data
    key = OperationKey(PRODUCTS, (), (factor, data, *canonical_extents(extents)))
    total = Polynomial.atom(key)
    return total if added is None else unknown("Add", (False, False), (total, added))


def need_list(case: Case, node: NodeView, x: Tensor, length: Polynomial) -> None:
    """Require that a parameter is a list of a length; of a legal node this is assumed.

    Raises:
        UndecidedError: it may not be.
    """
    if x.rank != 1:
        raise UndecidedError(f"{node.op_type}: a parameter has rank {x.rank} instead of 1")
    node.need_equal(
        case,
        x.dims[0],
        length,
        f"{node.op_type}: the length of a parameter may be wrong",
    )


def finite(case: Case, weight: Polynomial) -> bool:
    """Tell whether a weight is finite, so that 0 times it is 0; assume it if it is not constant."""
    stored = stored_in(weight)
    if stored is not None:
        return stored.finite
    case.assumptions["weights are finite"] = None
    return True


def is_scale(factor: Polynomial) -> bool:
    """Tell whether a factor is provably a positive finite number."""
    stored = stored_in(factor)
    return stored is not None and stored.nonnegative and bool(stored.array.all())


def settled(case: Case, p: Polynomial) -> Polynomial:
    """Return the value of an element if its operands are 0, else the element itself."""
    if vanishes(case, p):
        return ZERO
    atom = p.lone_atom
    key = atom.key if atom is not None else None
    if isinstance(key, OperationKey) and key.operator == f"{UNKNOWN_PREFIX}QuantizeLinear":
        data, factor, point = key.operands
        if is_scale(factor) and vanishes(case, data):
            return point
    return p


def holds_sum(p: Polynomial) -> bool:
    """Tell whether a sum of products is part of an element."""
    keys = (atom.key for atom in atoms_of(p))
    return any(isinstance(key, OperationKey) and key.operator == PRODUCTS for key in keys)


def vanishes(case: Case, p: Polynomial) -> bool:
    """Tell whether an element is provably 0.

    Of a sum of products one product is examined; the others are those of other cases. The product of two
    sums is not: one may vanish in some cases, the other one in the other cases, and neither as a whole.
    """
    if p == ZERO:
        return True
    atom = p.lone_atom
    key = atom.key if atom is not None else None
    if not isinstance(key, OperationKey) or not isinstance(key.operands, tuple):
        return False
    if key.operator == PRODUCTS:
        factor, data, *_ = key.operands
        if holds_sum(factor) and holds_sum(data):
            return False
        return any(
            vanishes(case, one) and finite(case, other)
            for one, other in ((data, factor), (factor, data))
        )
    op_type = key.operator.removeprefix(UNKNOWN_PREFIX)
    if op_type == "Cast":
        source, target, *_ = key.details
        return TensorProto.STRING not in (source, target) and vanishes(case, key.operands[0])
    if op_type == "DequantizeLinear":
        data, factor, point = key.operands
        return is_scale(factor) and settled(case, data) == point
    keeps = op_type in KEEP_ZERO and op_type != key.operator
    return keeps and all(vanishes(case, q) for q in key.operands)
