"""Say which values symbols have: their limits, all values of indices, and samples.

size h      1 <= h < 2^27, as every proof assumes
index i     0, 1, .., extent - 1: what holds for all of them is proven
samples     1,024 random points where facts hold: a polynomial that is negative at one of them does
            not follow from the facts. No proof depends on samples: they end searches early
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from onnx_spatial.maps.polynomial import (
    COMPUTED,
    FLOOR,
    LOOKUP,
    Atom,
    IndexKind,
    Polynomial,
    Symbol,
    bases_of,
)

#: Sizes and parameters of operators are below: their sums fit 32 bits.
SIZE_LIMIT = 2**27

#: Tensors have fewer elements.
MAX_ELEMENTS = 2**31

#: The most combinations of indices: of a grid, and of one for a single decision.
MAX_PLACES = 1 << 20
MAX_DECIDED = 1 << 14

#: Number of samples.
_SAMPLE_COUNT = 1024

#: Bounds of sizes in samples: mostly small ones, some that larger windows fit in.
_SMALL, _MEDIUM, _LARGE = 7, 40, 300

#: Polynomials with factors from here on have no samples.
_MAX_FACTOR = 1 << 62


def is_far(p: Polynomial) -> bool:
    """Tell whether the constant outweighs all other terms, as their atoms have limits."""
    limit = _limit_of_sum(-p) if p.terms.get((), 0) >= SIZE_LIMIT else None
    return limit is not None and limit <= 1


def limit_of(atom: Atom) -> int | None:
    """Return a number that a size, an index or a parameter is below; None for any other atom.

    The extent of an index may be a product of sizes, where axes are merged. A quotient of a number that
    is a sum of such atoms is below it.
    """
    key = atom.key
    if atom.operation.operator == FLOOR and atom.nonnegative:
        return _limit_of_sum(next(iter(atom.operation.operands)))
    if not isinstance(key, Symbol) or not atom.nonnegative:
        return None
    merged = isinstance(key.kind, IndexKind) and not _is_linear(key.kind.extent)
    return MAX_ELEMENTS if merged else SIZE_LIMIT


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
    key = atom.operation
    if key.operator:
        return key.operator == FLOOR and _is_linear(next(iter(key.operands)))
    return limit_of(atom) == SIZE_LIMIT


Values = npt.NDArray[np.int64]
Grid = dict[Atom, Values]


def holds_everywhere(
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
        factors = [_value_of(atom, values) for atom in product]
        largest = math.prod(int(np.abs(f).max(initial=0)) for f in factors)
        bound += abs(factor) * largest
        if bound >= 1 << 62:
            raise OverflowError("a value may exceed 64 bits")
        term: Values = np.asarray(factor, np.int64)
        for each in factors:
            term = term * each
        total = total + term
    return np.asarray(total)


def _value_of(atom: Atom, values: Mapping[Atom, Values]) -> Values:
    if atom in values:
        return values[atom]
    key = atom.operation
    if key.operator == FLOOR:
        a, b = key.operands
        return evaluate(a, values) // evaluate(b, values)
    if key.operator == LOOKUP:
        (stored,) = key.details
        return looked_up(stored.array, [evaluate(q, values) for q in key.operands])  # type: ignore[attr-defined]
    raise LookupError("an atom has no value")


def looked_up(array: npt.NDArray[np.generic], places: Sequence[Values]) -> Values:
    """Return the integers of an array at some places; those beyond its ends do not occur."""
    inside = [np.clip(p, 0, n - 1) for p, n in zip(places, array.shape, strict=True)]
    found: Values = array[tuple(np.broadcast_arrays(*inside))].astype(np.int64)
    return found


class Samples:
    """Random values of symbols; quotients are computed from them."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._values: dict[Atom, Values] = {}

    def define(self, atom: Atom, least: int, extent: Polynomial | None = None) -> None:
        """Draw values for a symbol: a size of at least `least`, or an index below `extent`."""
        if atom in self._values:
            return
        if extent is None:
            bound = self._rng.choice([_SMALL, _MEDIUM, _LARGE], _SAMPLE_COUNT, p=[0.8, 0.15, 0.05])
            values = least + self._rng.integers(0, bound)
        else:
            below = self.evaluate(extent)
            if below is None:
                return
            share = self._rng.random(_SAMPLE_COUNT)
            # The first and the last value refute most.
            share = np.where(self._rng.random(_SAMPLE_COUNT) < 0.2, np.round(share), share)
            values = np.clip((share * below).astype(np.int64), 0, np.maximum(below - 1, 0))
        self._values[atom] = values

    def set(self, atom: Atom, values: Values) -> None:
        """Set the values of an integer that follows from symbols."""
        self._values[atom] = values

    def evaluate(self, p: Polynomial) -> Values | None:
        """Return the value of a polynomial at every point; None if an atom has no samples."""
        total = np.zeros(_SAMPLE_COUNT, np.int64)
        for product, factor in p.terms.items():
            if abs(factor) >= _MAX_FACTOR:
                return None
            term: Values | None = None
            for atom in product:
                value = self._values_of(atom)
                if value is None:
                    return None
                term = value if term is None else term * value
            total += factor if term is None else term * factor
        return total

    def _values_of(self, atom: Atom) -> Values | None:
        known = self._values.get(atom)
        if known is not None:
            return known
        key = atom.operation
        if key.operator not in COMPUTED:
            return None
        operands = [p for q in key.operands if (p := self.evaluate(q)) is not None]
        if len(operands) < len(key.operands):
            return None
        if key.operator == LOOKUP:
            (stored,) = key.details
            result = looked_up(stored.array, operands)  # type: ignore[attr-defined]
        else:
            result = operands[0] // np.maximum(operands[1], 1)
        self._values[atom] = result
        return result
