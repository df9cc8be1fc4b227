"""Prove that the integers of a run do not overflow their 32 or 64 bits."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.expressions import FLOOR, LOOKUP, ZERO, show, top_atoms
from onnx_spatial.maps.limits import LIMIT, MOST_ELEMENTS, limit_of
from onnx_spatial.maps.polynomial import Atom, OperationKey, Polynomial, computed

#: Bits of the integer types in which nodes compute, without the sign; int32 where the type is unknown.
_BITS = {int(TensorProto.INT64): 63, int(TensorProto.INT32): 31, 0: 31}


def fitting(case: Case, p: Polynomial, element_type: int, bits: int = 63) -> Polynomial:
    """Return a number that provably fits an integer type.

    Sizes, parameters and indices have limits (`limits`), so have numbers of elements of tensors.

    Args:
        case: the case.
        p: the number.
        element_type: ONNX integer type.
        bits: that the number may have at most.

    Raises:
        UndecidedError: it may overflow, or nothing is known of the type.
    """
    if element_type not in _BITS:
        raise UndecidedError("arithmetic on integers other than int32 and int64 has no index map")
    bits = min(bits, _BITS[element_type])
    if not case.splits:  # sizes fit; a number that is larger than they are is none
        if all(abs(factor) < 1 << bits for factor in p.terms.values()):
            return p
        raise UndecidedError("an integer may overflow")
    # The first bound is fast, the second one knows numbers of elements.
    if any(_magnitude(case, p, counted) < 1 << bits for counted in (False, True)):
        return p
    apart = _with_remainders(p)
    if apart != p and _magnitude(case, apart, True) < 1 << bits:
        return p
    if any(case.surely(count - p) and case.surely(count + p) for count in case.counts):
        return p
    raise UndecidedError(f"an integer may overflow ({show(p)})")


def _magnitude(case: Case, p: Polynomial, counted: bool) -> int:
    """Return a bound of the absolute value of a polynomial.

    Products of sizes are at most as large as sizes are; `counted`, if they are part of a number of
    elements, as that.
    """
    total = 0
    for product, factor in p.terms.items():
        bound = 1
        for atom in product:
            bound *= _bound(case, atom, counted)
        below = {a: limit for a in product if (limit := _known_limit(case, a)) is not None}
        term = Polynomial({tuple(a for a in product if a not in below): 1})
        large = counted and bound > MOST_ELEMENTS and term.nonnegative
        if large and any(case.surely(count - term) for count in case.counts):
            bound = MOST_ELEMENTS * math.prod(below[a] for a in product if a in below)
        total += abs(factor) * bound
    return total


def _known_limit(case: Case, atom: Atom) -> int | None:
    """Return the extent of an index, the divisor of a remainder; None if it is unknown."""
    if atom in case.extents:
        return case.extents[atom]
    if not isinstance(atom.key, OperationKey) or atom.key.operator != "Mod" or not atom.nonnegative:
        return None
    return atom.key.operands[1].constant or None  # type: ignore[index]


def _with_remainders(p: Polynomial) -> Polynomial:
    """Return the same number with remainders: x - b * floor(x / b) is small, though neither part is."""
    for atom in top_atoms(p):
        if not isinstance(atom.key, OperationKey) or atom.key.operator != FLOOR:
            continue
        dividend, divisor = atom.key.operands
        for term in top_atoms(dividend) & top_atoms(p) if divisor.constant else ():
            rest = dividend - Polynomial({(term,): 1})
            if term not in top_atoms(rest):
                left = computed("Mod", (dividend, divisor), nonnegative=divisor.nonnegative)
                whole = Polynomial({(atom,): 1}) * divisor + left
                p = _replaced(p, term, whole - rest)
                break
    return p


def _replaced(p: Polynomial, atom: Atom, value: Polynomial) -> Polynomial:
    """Return a polynomial with an atom replaced, but not inside other atoms."""
    total = ZERO
    for product, factor in p.terms.items():
        term = Polynomial.of(factor)
        for each in product:
            term = term * (value if each is atom else Polynomial({(each,): 1}))
        total = total + term
    return total


#: Kind of the symbols for integers of any value.
INTEGER = "integer"


def _bound(case: Case, atom: Atom, counted: bool) -> int:
    limit = LIMIT if atom in case.bounded else limit_of(atom)
    if limit is not None:
        return limit
    if isinstance(atom.key, OperationKey) and atom.key.operator == FLOOR:
        return _magnitude(case, atom.key.operands[0], counted)  # type: ignore[index]
    if isinstance(atom.key, OperationKey) and atom.key.operator == LOOKUP:
        (stored,) = atom.key.details
        return int(np.abs(stored.array).max()) + 1  # type: ignore[attr-defined]
    if (below := _known_limit(case, atom)) is not None:
        return below
    raise UndecidedError("an integer may overflow: its range is unknown")
