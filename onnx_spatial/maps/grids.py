"""Evaluate polynomials at all values of indices of known extents: what holds for all is proven."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from onnx_spatial.maps.expressions import FLOOR, LOOKUP, bases_of
from onnx_spatial.maps.polynomial import Atom, OperationKey, Polynomial

#: The most combinations of indices: of a grid, and of one for a single decision.
MAX_PLACES = 1 << 20
MAX_DECIDED = 1 << 14

Values = npt.NDArray[np.int64]
Grid = dict[Atom, Values]


def everywhere(
    p: Polynomial,
    holds: Callable[[Values], npt.NDArray[np.bool_]],
    extents: Mapping[Atom, int],
    facts: Iterable[Polynomial],
) -> bool:
    """Tell whether a polynomial of indices of known extents has a property for all their values."""
    bases = bases_of(p)
    if not bases:
        return p.constant is not None and bool(holds(np.asarray(p.constant)))
    grid = grid_of(bases, extents, facts)
    return grid is not None and bool(holds(evaluate(p, grid)).all())


def grid_of(
    bases: set[Atom],
    extents: Mapping[Atom, int],
    facts: Iterable[Polynomial],
    most: int = MAX_PLACES,
) -> Grid | None:
    """Return all values of some indices that the facts about these indices alone admit.

    Returns:
        None if there are too many, or an extent is unknown.
    """
    if any(atom not in extents for atom in bases):
        return None
    ordered = sorted(bases, key=lambda atom: atom.serial)
    counts = [extents[atom] for atom in ordered]
    if math.prod(counts) > most:
        return None
    axes = np.meshgrid(*map(np.arange, counts), indexing="ij")
    grid = {a: axis.reshape(-1).astype(np.int64) for a, axis in zip(ordered, axes, strict=True)}
    keep = np.ones(math.prod(counts), bool)
    for fact in facts:
        inner = bases_of(fact)
        if inner and inner <= bases:
            keep &= evaluate(fact, grid) >= 0
    return {atom: values[keep] for atom, values in grid.items()}


def evaluate(p: Polynomial, values: Mapping[Atom, Values]) -> Values:
    """Return the value of a polynomial for values of its atoms; quotients are computed.

    Raises:
        OverflowError: it may not fit 64 bits.
        LookupError: an atom has no value.
    """
    total: Values = np.asarray(0, np.int64)
    bound = 0
    for product, factor in p.terms.items():
        factors = [_value(atom, values) for atom in product]
        largest = math.prod(int(np.abs(f).max(initial=0)) for f in factors)
        bound += abs(factor) * largest
        if bound >= 1 << 62:
            raise OverflowError("a value may exceed 64 bits")
        term: Values = np.asarray(factor, np.int64)
        for each in factors:
            term = term * each
        total = total + term
    return np.asarray(total)


def _value(atom: Atom, values: Mapping[Atom, Values]) -> Values:
    if atom in values:
        return values[atom]
    key = atom.key
    if isinstance(key, OperationKey) and key.operator == FLOOR:
        a, b = key.operands
        return evaluate(a, values) // evaluate(b, values)
    if isinstance(key, OperationKey) and key.operator == LOOKUP:
        (stored,) = key.details
        return looked_up(stored.array, [evaluate(q, values) for q in key.operands])  # type: ignore[attr-defined]
    raise LookupError("an atom has no value")


def looked_up(array: npt.NDArray[np.generic], places: Sequence[Values]) -> Values:
    """Return the integers of an array at some places; those beyond its ends do not occur."""
    inside = [np.clip(p, 0, n - 1) for p, n in zip(places, array.shape, strict=True)]
    found: Values = array[tuple(np.broadcast_arrays(*inside))].astype(np.int64)
    return found
