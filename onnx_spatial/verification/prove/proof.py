"""Say what is proven of a changed part, or how the formulas differ: in words, and at which sizes.

Add(Clip(x[i0, i1], 0, 6), b[i1])  and  Add(Relu(x[i0, i1]), b[i1])

"computes Clip(x, 0, 6), the original Relu(x)", by the innermost expressions that differ

A difference is a case: facts about sizes, parameters and indices, and two elements that are not provably
the same. Small values of its symbols are tried, and those near the constants in its facts; a run there
decides:

    1001 <= H, 1000 <= i < H        H = 1001, i = 1000: an image of 1001 rows
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from onnx_spatial.maps.compare import Difference
from onnx_spatial.maps.constants import CONSTANT, stored_in
from onnx_spatial.maps.elements import PRODUCTS
from onnx_spatial.maps.expressions import (
    ELEMENT,
    FLOOR,
    INTEGER,
    UNKNOWN_PREFIX,
    IndexKind,
    LiteralKey,
    Symbol,
    bases_of,
    show,
    show_place,
)
from onnx_spatial.maps.polynomial import Atom, OperationKey, Polynomial
from onnx_spatial.maps.values import Values, evaluate
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators.shapes import is_countable
from onnx_spatial.verification.evidence import Found, Scope
from onnx_spatial.verification.match.matches import ChangedPart
from onnx_spatial.verification.prove.formulas import integer_symbol, size_symbol
from onnx_spatial.verification.values import Array, Kind, describe_element, dtype_of, find_mismatch


@dataclass(frozen=True)
class Trial:
    """Sizes and whole numbers at which the formulas of two parts differ.

    Attributes:
        shapes: of the inputs of the part, by name.
        values: of those inputs that are parameters, by name.
    """

    shapes: Mapping[str, tuple[int, ...]]
    values: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Proof:
    """What the prover found out of one changed part.

    Attributes:
        scope: sizes for which it is proven; None if it is not.
        assumptions: what the proof assumes, one sentence each.
        found: what was found instead of a proof; None if it is proven.
        reason: why it is not proven: "gave up: ...", or which formula differs.
        find_trials: finds `trials`.
        wider: the part that the trials are of, up to the inputs of the graph; None: the part itself.
        digest: equal for parts that differ in names and in the numbers of weights; None if unknown.
    """

    scope: Scope | None
    assumptions: tuple[str, ...] = ()
    found: Found | None = None
    reason: str = ""
    find_trials: Callable[[], tuple[Trial, ...]] = field(default=tuple, compare=False)
    wider: ChangedPart | None = None
    digest: bytes | None = None

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """Where the formulas differ, the smallest first; a run there decides."""
        return self.find_trials()


# Sizes to try

#: Small trials, and elements of the data of the large one (64 MiB of float32).
_SMALL_TRIALS, _MOST_ELEMENTS = 3, 2**24

#: All values of a symbol below this are tried, and the most with those near constants.
_SMALL, _MOST_VALUES = 7, 96
#: The largest value of a symbol, and the most combinations of values that are kept.
_MAX_VALUE, _MOST_ROWS = 1 << 25, 1 << 13


def trials_of(part: ChangedPart, differences: Sequence[Difference]) -> tuple[Trial, ...]:
    """Return some sizes and parameters at which both sides of a part may differ, the smallest first.

    A few small ones, by turns for each difference, and a large one: where a limit is only exceeded far
    behind it, the small ones show nothing.
    """
    rows = [sorted(_trials_of(part, each), key=_trial_size) for each in differences]
    chosen: dict[object, Trial] = {}
    for number in range(_SMALL_TRIALS):
        for trials in rows:
            if number < len(trials) and len(chosen) < _SMALL_TRIALS:
                chosen.setdefault(_key(trials[number]), trials[number])
    large = [t for trials in rows for t in trials if _count_elements(t) <= _MOST_ELEMENTS]
    if large:
        largest = max(large, key=_count_elements)
        chosen.setdefault(_key(largest), largest)
    return tuple(sorted(chosen.values(), key=_trial_size))


def _trials_of(part: ChangedPart, difference: Difference) -> Iterator[Trial]:
    """Yield the shapes and parameters for each solution of a difference, each once."""
    seen = set[object]()
    for symbols in _solve_difference(difference):
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
    keys = [(INTEGER, integer_symbol(name, index)) for index in np.ndindex(*shape)]
    return [symbols.get(key, 0) for key in keys] if any(key in symbols for key in keys) else None


def _count_elements(trial: Trial) -> int:
    return sum(math.prod(shape) for shape in trial.shapes.values())


def _trial_size(trial: Trial) -> tuple[int, int]:
    return _count_elements(trial), sum(int(a.sum()) for a in trial.values.values())


def _key(trial: Trial) -> object:
    return tuple(trial.shapes.items()), tuple((n, a.tobytes()) for n, a in trial.values.items())


def _solve_difference(difference: Difference) -> Iterator[dict[Hashable, int]]:
    """Yield values of the symbols of a difference, by kind and name, for which its sides may differ.

    The search is not exhaustive: it combines small values and those near constants.
    """
    try:
        rows, count = _solution_rows(difference, difference.symbols.values())
        columns = {
            name: np.broadcast_to(evaluate(p, rows), count)
            for name, p in difference.symbols.items()
        }
    except OverflowError:  # the facts hold numbers too large to search
        return
    for row in range(count):
        yield {name: int(column[row]) for name, column in columns.items()}


def _solution_rows(
    difference: Difference, sizes: Iterable[Polynomial]
) -> tuple[dict[Atom, Values], int]:
    """Return values of the symbols for which a case holds and its sides differ: columns, and rows."""
    facts = [f for f in difference.case if _is_computable(f)]
    sides = [_coordinates_of(p) for p in _innermost_difference(difference.left, difference.right)]
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
                keep &= np.broadcast_to(_evaluate_rows(fact, rows) >= 0, keep.shape)
        chosen = np.flatnonzero(keep)
        if len(chosen) > _MOST_ROWS:
            chosen = np.sort(rng.choice(chosen, _MOST_ROWS, replace=False))
        rows = {a: values[chosen] for a, values in rows.items()}
        count = len(chosen)
    differs = _rows_that_differ(sides[0], sides[1], rows, count)
    if differs.any():
        rows, count = {a: values[differs] for a, values in rows.items()}, int(differs.sum())
    return rows, count


def _values_near(atom: Atom, facts: Sequence[Polynomial]) -> Values:
    """Return the values to try for a symbol: small ones, and those at which a fact begins to hold."""
    values = dict.fromkeys(range(_SMALL))
    # A size exceeds an index, and a fact about the index has the constant: 33 <= H from 32 <= i < H.
    bases = [bases_of(fact) for fact in facts]
    linked = {atom, *(a for each in bases if atom in each for a in each if _is_index_symbol(a))}
    for fact in facts:
        constant = abs(fact.terms.get((), 0))
        if constant < _SMALL or linked.isdisjoint(bases_of(fact)):
            continue
        factors = {1, *(abs(f) for product, f in fact.terms.items() if atom in product)}
        for factor in factors:
            values.update(dict.fromkeys(constant // factor + d for d in (0, 1, -1, 2)))
    return np.array([v for v in values if v <= _MAX_VALUE][:_MOST_VALUES], np.int64)


def _rows_that_differ(
    left: Sequence[Polynomial], right: Sequence[Polynomial], rows: Mapping[Atom, Values], count: int
) -> npt.NDArray[np.bool_]:
    """Tell for each row of values whether some coordinates are different there."""
    if len(left) != len(right) or not all(map(_is_computable, (*left, *right))):
        return np.ones(count, np.bool_)
    differs = np.zeros(count, np.bool_)
    for a, b in zip(left, right, strict=True):
        differs |= _evaluate_rows(a, rows) != _evaluate_rows(b, rows)
    return differs


def _coordinates_of(p: Polynomial) -> tuple[Polynomial, ...]:
    """Return the coordinates of an element of the data, or a number itself."""
    atom = p.lone_atom
    if atom is not None and isinstance(atom.key, OperationKey) and atom.key.operator != FLOOR:
        return tuple(q for q in atom.key.operands if isinstance(q, Polynomial))
    return (p,)


def _is_index_symbol(atom: Atom) -> bool:
    return isinstance(atom.key, Symbol) and isinstance(atom.key.kind, IndexKind)


def _is_computable(p: Polynomial) -> bool:
    return all(isinstance(atom.key, Symbol) for atom in bases_of(p))


def _evaluate_rows(p: Polynomial, rows: Mapping[Atom, Values]) -> Values:
    with np.errstate(divide="ignore"):
        return evaluate(p, rows)


# The difference in words

#: Characters of an expression, at most.
_MAX_EXPRESSION_LETTERS = 80


def difference_in_words(found: Difference) -> str:
    """Return how both sides differ, as the rest of a sentence about the converted one."""
    if found.index is None:
        return found.message
    left, right = _innermost_difference(found.left, found.right)
    was, now = (stored_in(p) for p in (left, right))
    if was is not None and now is not None and min(was.array.size, now.array.size) > 1:
        return _other_constant(was.array, now.array)
    for indices in (False, True):
        ours, theirs = _Text(indices).of(right), _Text(indices).of(left)
        plain = not indices and all(_is_function(p) for p in (left, right))
        if ours != theirs and (indices or plain):
            where = f" at {show_place(found.index)}" if indices else ""
            return f"computes {_shorten_text(ours)}{where}, the original {_shorten_text(theirs)}"
    at = f"at {show_place(found.index)}"
    return f"computes {_shorten_text(ours)} of other values than the original, {at}"


def _other_constant(expected: Array, actual: Array) -> str:
    mismatch = find_mismatch(expected, actual, Kind())
    if mismatch is None:
        return "reads other elements of a constant than the original"
    reason, element = (
        f"reads another constant than the original: {mismatch.reason}",
        mismatch.element,
    )
    if element is None:
        return reason
    place = show_place([*map(Polynomial.of, element)])
    return f"{reason}; {place} {describe_element(expected, actual, element, {})}"


def _innermost_difference(left: Polynomial, right: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Return the innermost expressions that differ, if there is one such pair."""
    while True:
        one, other = _operation_of(left), _operation_of(right)
        if one is None or other is None or one.operator in (ELEMENT, CONSTANT):
            return left, right
        if (one.operator, one.details) != (other.operator, other.details):
            return left, right
        pairs = list(zip(one.operands, other.operands, strict=False))
        pairs = [(a, b) for a, b in pairs if a != b]
        if len(one.operands) != len(other.operands) or len(pairs) != 1:
            return left, right
        ((left, right),) = pairs


def _operation_of(p: Polynomial) -> OperationKey | None:
    atom = p.lone_atom
    key = atom.key if atom is not None else None
    return key if isinstance(key, OperationKey) else None


def _is_function(p: Polynomial) -> bool:
    key = _operation_of(p)
    return key is not None and key.operator.startswith(UNKNOWN_PREFIX)


class _Text:
    """The text of expressions, with or without the indices of elements."""

    def __init__(self, indices: bool) -> None:
        self._indices = indices

    def of(self, p: Polynomial) -> str:
        """Return the text of an expression."""
        if p.lone_atom is not None:
            return self._atom(p.lone_atom)
        return show(p)

    def _atom(self, atom: Atom) -> str:
        key = atom.key
        if isinstance(key, LiteralKey):
            stored = stored_in(Polynomial({(atom,): 1}))
            return "?" if stored is None else _number_text(stored.array[0])
        if not isinstance(key, OperationKey):
            return show(Polynomial({(atom,): 1}))
        operands = list(key.operands)
        if key.operator in (ELEMENT, CONSTANT):
            name = str(key.details[0]) if key.operator == ELEMENT else "constant"
            return f"{name}{show_place(operands)}" if self._indices else name
        if key.operator == PRODUCTS:
            return f"sum of {self.of(operands[1])} * {self.of(operands[0])}"
        if not key.operator.startswith(UNKNOWN_PREFIX):
            return show(Polynomial({(atom,): 1}))
        kept = [q for q in operands if self._indices or not _is_index(q)]
        named = [d for d in key.details if isinstance(d, tuple) and len(d) == 2]
        attributes = [f"{name}={_attribute_text(value)}" for name, value in named]
        arguments = ", ".join([*map(self.of, kept), *attributes])
        return f"{key.operator.removeprefix(UNKNOWN_PREFIX)}({arguments})"


def _attribute_text(value: object) -> object:
    """Return the text of an attribute; its reals are float32."""
    return _number_text(np.float32(value)) if isinstance(value, float) else value


def _number_text(value: np.floating[Any]) -> str:
    """Return the digits that tell a number from others of its type."""
    short = f"{float(value):.6g}"
    return short if value.dtype.type(short) == value else str(value)


def _is_index(p: Polynomial) -> bool:
    atom = p.lone_atom
    key = atom.key if atom is not None else None
    return isinstance(key, Symbol) and isinstance(key.kind, IndexKind)


def _shorten_text(text: str) -> str:
    return (
        text
        if len(text) <= _MAX_EXPRESSION_LETTERS
        else f"{text[: _MAX_EXPRESSION_LETTERS - 4]} ..."
    )
