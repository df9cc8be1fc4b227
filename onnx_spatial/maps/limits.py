"""Limits of sizes, parameters and indices, which every proof assumes."""

from __future__ import annotations

from onnx_spatial.maps.expressions import FLOOR, IndexKind, Symbol
from onnx_spatial.maps.polynomial import Atom, OperationKey, Polynomial

#: Sizes and parameters of operators are below: their sums fit 32 bits.
LIMIT = 2**27

#: Tensors have fewer elements.
MOST_ELEMENTS = 2**31


def is_far(p: Polynomial) -> bool:
    """Tell whether the constant outweighs all other terms, as their atoms have limits."""
    left = p.terms.get((), 0)
    if left < LIMIT:
        return False
    for product, factor in p.terms.items():
        if not product:
            continue
        limit = limit_of(product[0]) if len(product) == 1 else None
        if limit is None:
            return False
        left += min(factor, 0) * (limit - 1)
    return left >= 0


def limit_of(atom: Atom) -> int | None:
    """Return a number that a size, an index or a parameter is below; None for any other atom.

    The extent of an index may be a product of sizes, where axes are merged. A quotient of a number that
    is a sum of such atoms is below it.
    """
    key = atom.key
    if isinstance(key, OperationKey) and key.operator == FLOOR and atom.nonnegative:
        return _limit_of_sum(next(iter(key.operands)))
    if not isinstance(key, Symbol) or not atom.nonnegative:
        return None
    merged = isinstance(key.kind, IndexKind) and not _is_linear(key.kind.extent)
    return MOST_ELEMENTS if merged else LIMIT


def _limit_of_sum(p: Polynomial) -> int | None:
    """Return a number that a sum of atoms with limits is below."""
    total = p.terms.get((), 0) + 1
    for product, factor in p.terms.items():
        if not product:
            continue
        limit = limit_of(product[0]) if len(product) == 1 else None
        if limit is None:
            return None
        total += max(factor, 0) * (limit - 1)
    return total


def _is_linear(p: Polynomial) -> bool:
    """Tell whether a polynomial, or what it is a quotient of, holds no product of symbols."""
    return all(len(product) <= 1 and all(map(_is_linear_atom, product)) for product in p.terms)


def _is_linear_atom(atom: Atom) -> bool:
    key = atom.key
    if isinstance(key, OperationKey):
        return key.operator == FLOOR and _is_linear(next(iter(key.operands)))
    return limit_of(atom) == LIMIT
