"""Compare two index maps in all cases.

for each case:   ranks, types and dims are equal;  expected[i] == actual[i] for an index i of symbols
then, for each case and node:   what a run needs of elements that the output does not depend on

One thing need not be equal in every bit, a Conv or MatMul with the same one into which the scale and
shift behind it were folded:

    ((sum of w*x + b) - m) * s / sqrt(v + e) + t          one model: steps behind the sum
      sum of w'*x + b'                                    the other: the sum and its bias alone

    w' = f*w,  b' = (b - m)*f + t   where   f = s / sqrt(v + e)

Both sides sum the same elements of x, so they are equal if the weights are. A tool that folds rounds:
its weights may differ by that, and the proof says so (`FOLDED`). One side has steps, the other has none.
If no step has a factor, the weights are equal in every bit, and only the bias is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.elements import (
    COMMUTATIVE,
    MAX_COMPARED,
    PRODUCTS,
    places_of,
    read,
    same_values,
    settled,
    stored_in,
)
from onnx_spatial.maps.facts import follows_from
from onnx_spatial.maps.polynomial import (
    COMPUTED,
    NO_OPERATION,
    UNKNOWN_PREFIX,
    ZERO,
    Atom,
    Index,
    OperationKey,
    Polynomial,
    Symbol,
    bases_of,
    show,
    show_place,
    top_atoms,
)
from onnx_spatial.maps.tensor import Tensor
from onnx_spatial.maps.values import Grid, grid_of

#: Reason why nothing is compared.
NEVER_RUNS = "the original fails in every run"

#: The most values of an index that are tried to find a contradiction.
_MAX_TRIED = 4


@dataclass(frozen=True)
class Difference:
    """A case in which two maps are not provably equal.

    Attributes:
        message: which element, dim or rank differs.
        case: the facts of the case.
        left: the expected element or dim.
        right: the actual element or dim.
        symbols: values of the symbols in this case, by kind and name.
        index: of the element; None if a dim or the rank differs.
    """

    message: str
    case: tuple[Polynomial, ...]
    left: Polynomial
    right: Polynomial
    symbols: Mapping[tuple[Hashable, str], Polynomial]
    index: Index | None = None


@dataclass(frozen=True)
class Comparison:
    """The outcome of comparing two maps.

    Attributes:
        equal: whether they are equal in every case.
        reason: why that is not known, if it is not.
        assumptions: what is assumed of the sizes.
        cases: how many there are.
        differences: the first cases in which they are not provably equal.
        failures: cases in which a node may fail, if the comparison ended there.
    """

    equal: bool
    reason: str | None = None
    assumptions: tuple[str, ...] = ()
    cases: int = 0
    differences: tuple[Difference, ...] = ()
    failures: tuple[Difference, ...] = ()


#: Return the expected and the actual map in a case; None if the expected one fails in all its runs. The
#: expected one names the digits of the index.
Maps = Callable[[Case], tuple[Tensor, Tensor] | None]


def compare(case: Case, maps: Maps, most_differences: int = 1) -> Comparison:
    """Compare two maps for all sizes and indices.

    Args:
        case: an empty case.
        maps: returns the maps.
        most_differences: number of differences at which to stop.
    """
    count = compared = 0
    differences: list[Difference] = []
    obligations: set[str] = set()
    try:
        for difference in case.all(lambda: _find_difference(case, maps)):
            count += 1
            compared += _maps_in_case(case, maps) is not None
            if difference is not None:
                differences.append(difference)
                if len(differences) == most_differences:
                    return _differing_entries(case, count, differences)
            obligations |= case.obligations.keys()
        if differences:
            return _differing_entries(case, count, differences)
        for node in sorted(obligations):
            for _ in case.all(partial(_check_elements, case, maps, node)):
                count += 1
    except (UndecidedError, RecursionError) as error:
        if differences:
            return _differing_entries(case, count, differences)
        long = isinstance(error, RecursionError)
        reason = "the chain of nodes is too long" if long else str(error)
        failures = tuple(_make_failure(case, reason, p) for p in getattr(error, "unmet", ()))
        return Comparison(False, reason, tuple(case.assumptions), count, (), failures)
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        # A node that breaks its operator's rules: the model is wrong, or fails when it is run.
        reason = f"a node has no index map ({type(error).__name__}: {error})"
        return Comparison(False, reason, tuple(case.assumptions), count)
    if not compared:
        return Comparison(False, NEVER_RUNS, tuple(case.assumptions), count)
    return Comparison(True, None, tuple(case.assumptions), count)


def _differing_entries(case: Case, count: int, differences: Sequence[Difference]) -> Comparison:
    reason = differences[0].message
    return Comparison(False, reason, tuple(case.assumptions), count, tuple(differences))


def _maps_in_case(case: Case, maps: Maps) -> tuple[Tensor, Tensor] | None:
    def make() -> tuple[Tensor, Tensor] | None:
        case.obligations.clear()
        case.calls.clear()
        return maps(case)

    return case.once("maps", make)


def _check_elements(case: Case, maps: Maps, node: str) -> None:
    """Check all elements of the output of a node in one case."""
    made = _maps_in_case(case, maps)
    if made is None:
        return
    expected, _ = made
    if expected.order is not None and all(case.decide(d - 1) for d in expected.dims):
        expected.at(expected.index())  # adds facts of the operator's definition
    check = case.obligations.get(node)
    if check is not None:
        check()


def _find_difference(case: Case, maps: Maps) -> Difference | None:
    made = _maps_in_case(case, maps)
    if made is None:
        return None
    expected, actual = made
    if expected.rank != actual.rank:
        message = f"the rank of the output is {actual.rank}, not {expected.rank}"
        return _difference(case, message, ZERO, ZERO)
    if expected.type and actual.type and expected.type != actual.type:
        names = [TensorProto.DataType.Name(tensor.type) for tensor in (actual, expected)]
        message = f"the elements are of type {names[0]}, not {names[1]}"
        return _difference(case, message, ZERO, ZERO)
    for axis, (a, b) in enumerate(zip(expected.dims, actual.dims, strict=True)):
        if not case.are_equal(a, b):
            message = f"dim {axis} of the output is {show(b)}, not {show(a)}"
            return _difference(case, message, a, b)
    if not all(case.decide(d - 1) for d in expected.dims):
        return None  # no element
    index = expected.index()
    left, right = expected.at(index), actual.at(index)
    if not equal(case, left, right) and not _is_impossible(case):
        case.check_budget()
        message = f"the element at {show_place(index)} is {show(right)}, not {show(left)}"
        return _difference(case, message, left, right, index)
    return None


def _difference(
    case: Case, message: str, left: Polynomial, right: Polynomial, index: Index | None = None
) -> Difference:
    symbols = {
        (atom.key.kind, atom.key.name): case.replaced(Polynomial({(atom,): 1}))
        for atom in case.symbols
        if isinstance(atom.key, Symbol)
    }
    return Difference(message, tuple(case.facts), left, right, symbols, index)


def _make_failure(case: Case, message: str, unmet: Polynomial) -> Difference:
    """Return the case in which a number is negative, and a node fails."""
    found = _difference(case, message, ZERO, ZERO)
    return replace(found, case=(*found.case, -unmet - 1))


def _is_impossible(case: Case) -> bool:
    """Tell whether the facts of a case contradict each other: splits only search briefly."""
    facts = tuple(case.facts)
    for fact in facts:
        case.check_budget()
        if case.surely(-fact - 1):
            return True
    inside = {atom for fact in facts for product in fact.terms for atom in product}
    small = [atom for atom in inside if case.extents.get(atom, _MAX_TRIED + 1) <= _MAX_TRIED]
    return _has_no_point(case, facts, sorted(small, key=lambda atom: atom.serial))


def _has_no_point(case: Case, facts: Sequence[Polynomial], atoms: Sequence[Atom]) -> bool:
    """Tell whether the facts exclude all values of some indices."""
    case.check_budget()
    if follows_from(Polynomial.of(-1), facts):
        return True
    if not atoms:
        return False
    index = Polynomial({(atoms[0],): 1})
    values = range(case.extents[atoms[0]])
    return all(_has_no_point(case, [*facts, index - v, v - index], atoms[1:]) for v in values)


def equal(case: Case, a: Polynomial, b: Polynomial) -> bool:
    """Tell whether two elements are provably the same; folds are equal within their rounding."""
    return _equal_in_bits(case, a, b) or case.once(
        ("fold", a, b), lambda: same_fold(case, a, b, equal)
    )


def _equal_in_bits(case: Case, a: Polynomial, b: Polynomial) -> bool:
    if a != b:
        a, b = settled(case, a), settled(case, b)
    if a == b or same_values(case, a, b):
        return True
    one, other = a.operation, b.operation
    if NO_OPERATION not in (one, other) and not {one.operator, other.operator} <= COMPUTED:
        if one.operator != other.operator or one.details != other.details:
            return False
        return _all_equal(case, tuple(one.operands), _in_order(one, other))
    if any(_holds_element(p) for p in (a, b)):
        return False
    return case.are_equal(a, b)


def _all_equal(case: Case, a: Sequence[Polynomial], b: Sequence[Polynomial]) -> bool:
    return len(a) == len(b) and all(equal(case, x, y) for x, y in zip(a, b, strict=True))


def _in_order(one: OperationKey, other: OperationKey) -> Sequence[Polynomial]:
    """Return the operands of `other`; those of sums and products in the order of `one`."""
    operands = tuple(other.operands)
    if one.operator not in COMMUTATIVE or len(operands) != 2:
        return operands
    first = next(iter(one.operands))
    alike = [_kind_of(p) == _kind_of(first) for p in operands]
    return operands[::-1] if alike == [False, True] else operands


def _kind_of(p: Polynomial) -> object:
    return p.operation.operator or type(p.lone_atom and p.lone_atom.key)


def _holds_element(p: Polynomial) -> bool:
    return any(atom.operation.operator not in {"", *COMPUTED} for atom in top_atoms(p))


#: What is assumed where constants differ by rounding.
FOLDED = (
    "weights into which factors and summands behind them were folded are equal within the rounding of "
    "the fold, and no sum overflows"
)

#: Half a unit in the last place of a float, relative; and the least number that is not 0.
_ROUNDING, _LEAST = 2.0**-24, 2.0**-149
#: Roundings of the fold of a step, in any order of its operations, and constants that it has.
_STEPS = {"BatchNormalization": (8, 4), "Add": (1, 1), "Sub": (1, 1), "Mul": (2, 1), "Div": (2, 1)}
#: The most that rounding may add to a bias, relative to the largest one: what cancels is not known.
_MAX_ROUNDED = 2.0**-16

Numbers = npt.NDArray[np.float64]


class _Step(NamedTuple):
    """An operator behind a sum, its details, and its constants."""

    name: str
    details: tuple[Hashable, ...]
    constants: tuple[Polynomial, ...]


def same_fold(
    case: Case, a: Polynomial, b: Polynomial, equal: Callable[[Case, Polynomial, Polynomial], bool]
) -> bool:
    """Tell whether two elements are the same sum, where one side folded the steps of the other.

    Args:
        case: the case.
        a: an element.
        b: another one.
        equal: compares elements in every bit.
    """
    one, other = _behind_sum(a), _behind_sum(b)
    if one is None or other is None:
        return False
    if _is_folded(one[1]):
        one, other = other, one
    (key, steps), (folded_key, bias) = one, other
    if _is_folded(steps) or not _is_folded(bias):
        return False
    weight, data, *extents = key.operands
    folded, folded_data, *folded_extents = folded_key.operands
    if extents != folded_extents or not _is_real(weight) or not _is_real(folded):
        return False
    scales = any(step.name not in ("Add", "Sub") for step in steps)
    if not equal(case, data, folded_data) or (not scales and not equal(case, weight, folded)):
        return False
    if not _is_close(case, steps, weight, folded, bias):
        return False
    case.assumptions[FOLDED] = None
    return True


def _behind_sum(p: Polynomial) -> tuple[OperationKey, list[_Step]] | None:
    """Return the sum of products in an element, and the steps behind it; None for another element."""
    steps: list[_Step] = []
    while (key := p.operation) != NO_OPERATION:
        if key.operator == PRODUCTS:
            return key, steps[::-1]
        name, row = key.operator.removeprefix(UNKNOWN_PREFIX), tuple(key.operands)
        if name not in _STEPS or name == key.operator or len(row) != _STEPS[name][1] + 1:
            return None
        if name in ("Add", "Mul") and _is_real(row[0]):
            row = row[::-1]
        if not all(map(_is_real, row[1:])):
            return None
        steps.append(_Step(name, key.details, row[1:]))
        p = row[0]
    return None


def _is_folded(steps: Sequence[_Step]) -> bool:
    """Tell whether nothing is behind a sum but a bias."""
    return [step.name for step in steps] in ([], ["Add"])


def _is_real(p: Polynomial) -> bool:
    """Tell whether an element is one of a constant of floats."""
    stored = stored_in(p)
    return p == ZERO or (stored is not None and stored.array.dtype == np.float32)


def _is_close(
    case: Case,
    steps: Sequence[_Step],
    weight: Polynomial,
    folded: Polynomial,
    bias: Sequence[_Step],
) -> bool:
    """Tell whether a weight and a bias are those of a fold, for all values of the indices."""
    read_at = [weight, folded, *(p for step in (*steps, *bias) for p in step.constants)]
    bases = {base for p in read_at for place in places_of(p) for base in bases_of(place)}
    grid = grid_of(bases, case.extents, case.facts, MAX_COMPARED)
    if grid is None:
        return False
    constants = [[_numbers_on_grid(p, grid) for p in step.constants] for step in (*steps, *bias)]
    weights = [_numbers_on_grid(p, grid) for p in (weight, folded)]
    if any(n is None or not np.isfinite(n).all() for row in (*constants, weights) for n in row):
        return False
    factor, summand, size = np.ones(1), np.zeros(1), np.zeros(1)
    with np.errstate(all="ignore"):
        for step, row in zip(steps, constants, strict=False):
            times, plus = _step_as_line(step, [n for n in row if n is not None])
            factor, summand = factor * times, summand * times + plus[0]
            size = size * np.abs(times) + plus[1]
    error = _ROUNDING * (1 + sum(_STEPS[step.name][0] for step in steps))
    before, after = (n for n in weights if n is not None)
    added = constants[-1][0] if bias else np.zeros(1)
    assert added is not None
    largest = np.abs(added).max(initial=0)
    return bool(
        _is_within(after, factor * before, error * np.abs(factor * before))
        and _is_within(added, summand, error * size)
        and error * np.max(size, initial=0) <= _MAX_ROUNDED * largest
    )


def _is_within(found: Numbers, wanted: Numbers, error: Numbers) -> bool:
    return bool((np.abs(found - wanted) <= error + _LEAST * (error > 0)).all())


def _step_as_line(step: _Step, row: Sequence[Numbers]) -> tuple[Numbers, tuple[Numbers, Numbers]]:
    """Return a step as a factor and a summand, with a bound of the terms that the summand is made of."""
    if step.name == "BatchNormalization":
        scale, shift, mean, variance = row
        stated = [d[1] for d in step.details if isinstance(d, tuple) and d[0] == "epsilon"]
        epsilon = float(np.float32(stated[0] if stated else 1e-5))
        factor = scale / np.sqrt(variance + epsilon)
        return factor, (shift - mean * factor, np.abs(shift) + np.abs(mean * factor))
    (number,) = row
    if step.name in ("Add", "Sub"):
        return np.ones(1), (number if step.name == "Add" else -number, np.abs(number))
    nothing = np.zeros(1)
    return (number if step.name == "Mul" else 1 / number), (nothing, nothing)


def _numbers_on_grid(p: Polynomial, grid: Grid) -> Numbers | None:
    """Return the values of an element of a constant at all indices of a grid."""
    stored = stored_in(p)
    assert stored is not None
    found = read(stored.array, places_of(p), grid)
    with np.errstate(invalid="ignore"):  # a NaN that signals
        return None if found is None else found.astype(np.float64)
