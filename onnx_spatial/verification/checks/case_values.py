"""Find values of the symbols of a case for which two index maps differ.

The prover compares maps case by case. Where it cannot show that they are equal in a case, small values
of the case's symbols are tried, and those near the constants in its facts:

    1001 <= H, 1000 <= i < H        H = 1001, i = 1000: an image of 1001 rows
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from onnx_spatial.index_map.compare import Difference
from onnx_spatial.index_map.expressions import FLOOR, IndexKind, Symbol, bases_of
from onnx_spatial.index_map.grids import Values, evaluate
from onnx_spatial.model.symbolic.polynomial import Atom, OperationKey, Polynomial

#: All values of a symbol below this are tried, and the most with those near constants.
_SMALL, _MOST_VALUES = 7, 96
#: The largest value of a symbol, and the most combinations of values that are kept.
_LARGEST, _MOST_ROWS = 1 << 25, 1 << 13


def solutions(difference: Difference) -> Iterator[dict[Hashable, int]]:
    """Yield values of the symbols of a difference, by kind and name, for which its sides may differ.

    The search is not exhaustive: it combines small values and those near constants.
    """
    try:
        rows = _solutions(difference, difference.symbols.values())
        count = max((len(values) for values in rows.values()), default=0)
        columns = {
            name: np.broadcast_to(evaluate(p, rows), count)
            for name, p in difference.symbols.items()
        }
    except OverflowError:  # the facts hold numbers too large to search
        return
    for row in range(count):
        yield {name: int(column[row]) for name, column in columns.items()}


def _solutions(difference: Difference, sizes: Iterable[Polynomial]) -> dict[Atom, Values]:
    """Return values of the symbols, a column for each, for which a case holds and its sides differ."""
    facts = [f for f in difference.case if _is_computable(f)]
    parts = [*facts, *_coordinates(difference.left), *_coordinates(difference.right), *sizes]
    atoms = sorted({a for p in parts for a in bases_of(p)}, key=lambda atom: atom.serial)
    atoms = [a for a in atoms if isinstance(a.key, Symbol)]
    rng = np.random.default_rng(len(atoms))
    rows: dict[Atom, Values] = {}
    count = 1
    for atom in atoms:
        column = _values_near(atom, facts)
        rows = {a: np.repeat(values, len(column)) for a, values in rows.items()}
        rows[atom] = np.tile(column, count)
        keep = np.ones(count * len(column), bool)
        for fact in facts:
            bases = bases_of(fact)
            if atom in bases and bases <= rows.keys():
                keep &= np.broadcast_to(_evaluated(fact, rows) >= 0, keep.shape)
        chosen = np.flatnonzero(keep)
        if len(chosen) > _MOST_ROWS:
            chosen = np.sort(rng.choice(chosen, _MOST_ROWS, replace=False))
        rows = {a: values[chosen] for a, values in rows.items()}
        count = len(chosen)
    if not rows:
        return rows
    differs = _differ(difference, rows, count)
    return {a: values[differs] for a, values in rows.items()} if differs.any() else rows


def _values_near(atom: Atom, facts: Sequence[Polynomial]) -> Values:
    """Return the values to try for a symbol: small ones, and those at which a fact begins to hold."""
    values = dict.fromkeys(range(_SMALL))
    # A size exceeds an index, and a fact about the index has the constant: 33 <= H from 32 <= i < H.
    bases = [bases_of(fact) for fact in facts]
    linked = {atom, *(a for each in bases if atom in each for a in each if _is_index(a))}
    for fact in facts:
        constant = abs(fact.terms.get((), 0))
        if constant < _SMALL or linked.isdisjoint(bases_of(fact)):
            continue
        factors = {1, *(abs(f) for product, f in fact.terms.items() if atom in product)}
        for factor in factors:
            values.update(dict.fromkeys(constant // factor + d for d in (0, 1, -1, 2)))
    return np.array([v for v in values if v <= _LARGEST][:_MOST_VALUES], np.int64)


def _differ(
    difference: Difference, rows: Mapping[Atom, Values], count: int
) -> npt.NDArray[np.bool_]:
    """Tell for each row of values whether the two sides of a difference are different there."""
    left, right = _coordinates(difference.left), _coordinates(difference.right)
    if len(left) != len(right) or not all(map(_is_computable, (*left, *right))):
        return np.ones(count, np.bool_)
    differs = np.zeros(count, np.bool_)
    for a, b in zip(left, right, strict=True):
        differs |= _evaluated(a, rows) != _evaluated(b, rows)
    return differs


def _coordinates(p: Polynomial) -> tuple[Polynomial, ...]:
    """Return the coordinates of an element of the data, or a number itself."""
    atom = p.lone_atom
    if atom is not None and isinstance(atom.key, OperationKey) and atom.key.operator != FLOOR:
        return tuple(q for q in atom.key.operands if isinstance(q, Polynomial))
    return (p,)


def _is_index(atom: Atom) -> bool:
    return isinstance(atom.key, Symbol) and isinstance(atom.key.kind, IndexKind)


def _is_computable(p: Polynomial) -> bool:
    return all(isinstance(atom.key, Symbol) for atom in bases_of(p))


def _evaluated(p: Polynomial, rows: Mapping[Atom, Values]) -> Values:
    with np.errstate(divide="ignore"):
        return evaluate(p, rows)
