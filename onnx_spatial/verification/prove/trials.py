"""Find sizes and parameters at which the formulas of both sides differ: a run there decides.

A difference is a case: facts about sizes, parameters and indices, and two elements that are not provably
the same. Small values of its symbols are tried, and those near the constants in its facts:

    1001 <= H, 1000 <= i < H        H = 1001, i = 1000: an image of 1001 rows
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx

from onnx_spatial.maps.compare import Difference
from onnx_spatial.maps.expressions import FLOOR, IndexKind, Symbol, bases_of
from onnx_spatial.maps.grids import Values, evaluate
from onnx_spatial.maps.integers import INTEGER
from onnx_spatial.maps.polynomial import Atom, OperationKey, Polynomial
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators.shapes import is_countable
from onnx_spatial.verification.arrays import dtype_of
from onnx_spatial.verification.match.changed_part import ChangedPart
from onnx_spatial.verification.prove.formulas import integer_symbol, size_symbol
from onnx_spatial.verification.prove.proof import Trial
from onnx_spatial.verification.prove.words import innermost

#: Small trials, and elements of the data of the large one (64 MiB of float32).
_SMALL_TRIALS, _MOST_ELEMENTS = 3, 2**24

#: All values of a symbol below this are tried, and the most with those near constants.
_SMALL, _MOST_VALUES = 7, 96
#: The largest value of a symbol, and the most combinations of values that are kept.
_LARGEST, _MOST_ROWS = 1 << 25, 1 << 13


def of(part: ChangedPart, differences: Sequence[Difference]) -> tuple[Trial, ...]:
    """Return some sizes and parameters at which both sides of a part may differ, the smallest first.

    A few small ones, by turns for each difference, and a large one: where a limit is only exceeded far
    behind it, the small ones show nothing.
    """
    rows = [sorted(_trials(part, each), key=_size) for each in differences]
    chosen: dict[object, Trial] = {}
    for number in range(_SMALL_TRIALS):
        for trials in rows:
            if number < len(trials) and len(chosen) < _SMALL_TRIALS:
                chosen.setdefault(_key(trials[number]), trials[number])
    large = [t for trials in rows for t in trials if _elements(t) <= _MOST_ELEMENTS]
    if large:
        largest = max(large, key=_elements)
        chosen.setdefault(_key(largest), largest)
    return tuple(sorted(chosen.values(), key=_size))


def _trials(part: ChangedPart, difference: Difference) -> Iterator[Trial]:
    """Yield the shapes and parameters for each solution of a difference, each once."""
    seen = set[object]()
    for symbols in _solutions(difference):
        shapes, values = {}, {}
        for name, known in part.inputs.items():
            shapes[name] = tuple(
                dim if isinstance(dim, int) else symbols.get(size_symbol(name, axis, dim), 1)
                for axis, dim in enumerate(shape_inference.dims(known) or ())
            )
            elements = _elements_of(name, shapes[name], symbols)
            if elements is not None:
                element_type = shape_inference.element_type(known) or onnx.TensorProto.INT64
                values[name] = np.array(elements, dtype_of(element_type)).reshape(shapes[name])
        trial = Trial(shapes, values)
        legal = all(is_countable(shape) and min(shape, default=1) > 0 for shape in shapes.values())
        if legal and _key(trial) not in seen:
            seen.add(_key(trial))
            yield trial


def _elements_of(
    name: str, shape: Sequence[int], symbols: Mapping[Hashable, int]
) -> list[int] | None:
    """Return the integers that a part reads from a value; None if they are no part of its formulas."""
    if len(shape) > 2 or math.prod(shape) > _MOST_VALUES:
        return None
    places = [(INTEGER, integer_symbol(name, place)) for place in np.ndindex(*shape)]
    return [symbols.get(p, 0) for p in places] if any(p in symbols for p in places) else None


def _elements(trial: Trial) -> int:
    return sum(math.prod(shape) for shape in trial.shapes.values())


def _size(trial: Trial) -> tuple[int, int]:
    return _elements(trial), sum(int(a.sum()) for a in trial.values.values())


def _key(trial: Trial) -> object:
    return tuple(trial.shapes.items()), tuple((n, a.tobytes()) for n, a in trial.values.items())


def _solutions(difference: Difference) -> Iterator[dict[Hashable, int]]:
    """Yield values of the symbols of a difference, by kind and name, for which its sides may differ.

    The search is not exhaustive: it combines small values and those near constants.
    """
    try:
        rows, count = _rows(difference, difference.symbols.values())
        columns = {
            name: np.broadcast_to(evaluate(p, rows), count)
            for name, p in difference.symbols.items()
        }
    except OverflowError:  # the facts hold numbers too large to search
        return
    for row in range(count):
        yield {name: int(column[row]) for name, column in columns.items()}


def _rows(difference: Difference, sizes: Iterable[Polynomial]) -> tuple[dict[Atom, Values], int]:
    """Return values of the symbols for which a case holds and its sides differ: columns, and rows."""
    facts = [f for f in difference.case if _is_computable(f)]
    sides = [_coordinates(p) for p in innermost(difference.left, difference.right)]
    parts = [*facts, *sides[0], *sides[1], *sizes]
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
    differs = _differ(sides[0], sides[1], rows, count)
    if differs.any():
        rows, count = {a: values[differs] for a, values in rows.items()}, int(differs.sum())
    return rows, count


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
    left: Sequence[Polynomial], right: Sequence[Polynomial], rows: Mapping[Atom, Values], count: int
) -> npt.NDArray[np.bool_]:
    """Tell for each row of values whether some coordinates are different there."""
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
