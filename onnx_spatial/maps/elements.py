"""Represent elements that nodes compute: as unknown functions of others, or sums of products.

An element that a node computes is an atom: an unknown function of the elements that it depends on. A sum
over channels and a kernel is an atom of the two factors of one product, at indices that take all values:

    y[n, m, o] = sum of w[m, c, k] * x[n, g*C/G + c, o*s + k*d - p]  over c and k, x is 0 outside

Two sums are equal if the factors are equal for all values of these indices. Both sides must use the same
indices, so these are named by the number of sums around them and by their extents.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.constants import digit_of, formula_of, places_of, read, stored_in
from onnx_spatial.maps.expressions import (
    ELEMENT,
    ONE,
    UNKNOWN,
    ZERO,
    Index,
    atoms_of,
    bases_of,
    unknown,
)
from onnx_spatial.maps.node import NodeView, broadcast_at
from onnx_spatial.maps.polynomial import Atom, OperationKey, Polynomial
from onnx_spatial.maps.tensor import Tensor
from onnx_spatial.maps.values import MAX_PLACES
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

Table = npt.NDArray[np.integer[Any]]

#: The operator of the atoms for sums of products; the first two operands are the factors.
PRODUCTS = "Products"

#: Operators of the atoms whose operands may be swapped.
COMMUTATIVE = frozenset({f"{UNKNOWN}Add", f"{UNKNOWN}Mul"})

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


def lengths(extents: Sequence[Polynomial]) -> list[Polynomial]:
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
    """Return a sum of products along indices of some extents, plus a summand.

    A sum of one element times 1 and of others times 0 may be taken for that element, see `Case.copies`.
    """
    indices = indices_of(case, extents)
    with case.within(sums=1):
        factor = factor_at(indices)
    if case.copies and added in (None, ZERO):
        places = _selected(case, factor, indices)
        if places is not None:
            case.assumptions[FINITE_DATA] = None
            return data_at(places)
    with case.within(sums=1):
        data = data_at(indices)
    if stored_in(data) is not None and stored_in(factor) is None:
        data, factor = factor, data
    key = OperationKey(PRODUCTS, (), (factor, data, *lengths(extents)))
    total = Polynomial.atom(key)
    return total if added is None else unknown("Add", (False, False), (total, added))


def copied_digits(
    case: Case,
    outputs: Polynomial,
    extents: Sequence[Polynomial],
    factor_at: Callable[[Polynomial, Sequence[Polynomial]], Polynomial],
) -> list[Polynomial]:
    """Return the extents of the digits of an output channel, whose sum of products is one element.

    They say which one: channel (i*3 + j)*c + k of a kernel of 3 by 3 copies x[.. + i, .. + j, k].
    Other channels have their number for the only extent.
    """
    if not case.copies or outputs.constant is None:
        return [outputs]
    indices = indices_of(case, extents)
    channel = case.index("o", outputs)
    with case.within(sums=1):
        factor = factor_at(channel, indices)
    selection = _selection(case, factor, indices)
    if selection is None or selection[0] != [channel.lone_atom]:
        return [outputs]
    digits = [digit_of(table) for table in selection[1].values()]
    ordered = sorted((digit for digit in digits if digit is not None), reverse=True)
    counts = [count for _, count in ordered]
    strides = [math.prod(counts[place + 1 :]) for place in range(len(counts))]
    fits = strides == [stride for stride, _ in ordered] and math.prod(counts) == outputs.constant
    return list(map(Polynomial.of, counts)) if fits else [outputs]


def _selected(
    case: Case, factor: Polynomial, indices: Sequence[Polynomial]
) -> list[Polynomial] | None:
    """Return the indices of a sum at which a constant factor is 1; None if it is not 0 at all others."""
    selection = _selection(case, factor, indices)
    if selection is None:
        return None
    outer, tables = selection
    atoms = [index.lone_atom for index in indices]
    return [ZERO if a is None else formula_of(case, tables[a], outer) for a in atoms]


def _selection(
    case: Case, factor: Polynomial, indices: Sequence[Polynomial]
) -> tuple[list[Atom], dict[Atom, Table]] | None:
    """Return where a constant factor is 1, if it is 0 at all other indices of a sum.

    Returns:
        The other indices that it depends on, and for each index of the sum a table over those.
    """
    stored = stored_in(factor)
    if stored is None or stored.array.dtype.kind != "f":
        return None
    summed = [atom for index in indices if (atom := index.lone_atom) is not None]
    bases = {atom for place in places_of(factor) for atom in bases_of(place)}
    outer = sorted(bases - set(summed), key=lambda atom: atom.serial)
    atoms = [*outer, *summed]
    if not all(atom in case.extents for atom in atoms):
        return None
    counts = [case.extents[atom] for atom in atoms]
    if math.prod(counts) > MAX_PLACES:
        return None
    axes = np.meshgrid(*map(np.arange, counts), indexing="ij")
    grid = {atom: axis.reshape(-1) for atom, axis in zip(atoms, axes, strict=True)}
    weights = read(stored.array, places_of(factor), grid)
    if weights is None:
        return None
    rows = np.broadcast_to(weights, math.prod(counts)).reshape(*counts[: len(outer)], -1)
    if not (((rows != 0).sum(-1) == 1) & ((rows == 1).sum(-1) == 1)).all():
        return None
    tables = np.unravel_index(np.argmax(rows != 0, axis=-1), counts[len(outer) :] or (1,))
    return outer, dict(zip(summed, tables, strict=False))


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
    key = weight.lone_atom.key if weight.lone_atom is not None else None
    if isinstance(key, OperationKey) and key.operator == ELEMENT and key.details[0] in case.finite:
        return True
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
    if isinstance(key, OperationKey) and key.operator == f"{UNKNOWN}QuantizeLinear":
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
    op_type = key.operator.removeprefix(UNKNOWN)
    if op_type == "Cast":
        source, target, *_ = key.details
        return TensorProto.STRING not in (source, target) and vanishes(case, key.operands[0])
    if op_type == "DequantizeLinear":
        data, factor, point = key.operands
        return is_scale(factor) and settled(case, data) == point
    keeps = op_type in KEEP_ZERO and op_type != key.operator
    return keeps and all(vanishes(case, q) for q in key.operands)
