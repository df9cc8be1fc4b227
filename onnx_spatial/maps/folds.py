"""Compare a Conv or MatMul with the same one into which the scale and shift behind it were folded.

    ((sum of w*x + b) - m) * s / sqrt(v + e) + t          one model: steps behind the sum
      sum of w'*x + b'                                    the other: the sum and its bias alone

    w' = f*w,  b' = (b - m)*f + t   where   f = s / sqrt(v + e)

Both sides sum the same elements of x, so they are equal if the weights are. A tool that folds rounds:
its weights may differ by that, and the proof says so (`FOLDED`). This is the only place where constants
need not be equal in every bit, and only those of such a fold: one side has steps, the other has none.
If no step has a factor, the weights are equal in every bit, and only the bias is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from onnx_spatial.maps.cases import Case
from onnx_spatial.maps.constants import places_of, read, stored_in
from onnx_spatial.maps.elements import PRODUCTS
from onnx_spatial.maps.expressions import UNKNOWN_PREFIX, ZERO, bases_of
from onnx_spatial.maps.polynomial import OperationKey, Polynomial
from onnx_spatial.maps.values import Grid, grid_of

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
_MOST_ROUNDED = 2.0**-16
#: The most numbers that are compared.
_MOST_NUMBERS = 1 << 22

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
    while (atom := p.lone_atom) is not None and isinstance(key := atom.key, OperationKey):
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
    grid = grid_of(bases, case.extents, case.facts, _MOST_NUMBERS)
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
        and error * np.max(size, initial=0) <= _MOST_ROUNDED * largest
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
