"""Regroup the elements of a tensor into other dims, in the same order in memory.

Axes of the same number of elements are paired first, so that few indices are divided:

    [n, h*w, c] -> [n, h, w, c]      n and c stay; the index i of h*w becomes i / w and i % w
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx_spatial.maps.cases import Case
from onnx_spatial.maps.division import exact
from onnx_spatial.maps.expressions import ONE, ZERO, Index, product
from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.maps.tensor import Axis, Dims, Tensor


def reshaped(case: Case, x: Tensor, dims: Sequence[Polynomial]) -> Tensor:
    """Return the tensor with other dims.

    Raises:
        UndecidedError: the number of elements may differ.
    """
    if tuple(dims) == x.dims:
        return x
    groups = _groups(case, x.dims, tuple(dims))

    def at(index: Index) -> Polynomial:
        return x.at(_regrouped(case, groups, x.dims, tuple(dims), index))

    axes = _regrouped_axes(case, x, groups, tuple(dims))
    return Tensor(case, dims, at, whole=x.whole, type=x.type, axes=axes)


_Groups = list[tuple[range, range]]


def _groups(case: Case, before: Dims, after: Dims) -> _Groups:
    """Pair groups of axes of as many elements: [a, b*c] -> [a, b, c] gives (a, a), (b*c, b c)."""
    groups: _Groups = []
    i = j = 0
    while i < len(before) and j < len(after):
        start_i, start_j = i, j
        a, b = before[i], after[j]
        i, j = i + 1, j + 1
        while a != b:
            more_a = i < len(before) and (j >= len(after) or exact(b, a) is not None)
            more_b = j < len(after) and exact(a, b) is not None
            if more_a:
                a, i = a * before[i], i + 1
            elif more_b:
                b, j = b * after[j], j + 1
            elif i < len(before) or j < len(after):
                a, b = product(before[start_i:]), product(after[start_j:])
                i, j = len(before), len(after)
            else:
                break
        if a != b:
            case.require_equal(a, b, "Reshape: the numbers of elements may differ")
        groups.append((range(start_i, i), range(start_j, j)))
    for dims, at in ((before, i), (after, j)):
        for size in dims[at:]:
            case.require_equal(size, ONE, "Reshape: the numbers of elements may differ")
    return groups


def _regrouped(case: Case, groups: _Groups, before: Dims, after: Dims, index: Index) -> Index:
    """Return the index in the input of a Reshape for an index in its output."""
    result = [ZERO] * len(before)
    for inside, outside in groups:
        digits = [(index[axis], after[axis]) for axis in outside]
        sizes = [before[axis] for axis in inside]
        places = _redistributed(case, digits, sizes) or _divided(case, digits, sizes)
        for axis, place in zip(inside, places, strict=True):
            result[axis] = place
    return tuple(result)


_Digit = tuple[Polynomial, Polynomial]


def _redistributed(
    case: Case, digits: list[_Digit], sizes: Sequence[Polynomial]
) -> list[Polynomial] | None:
    """Return the digits of a number for other sizes; None if the sizes do not divide each other.

    Only a digit that is cut is divided: (a, b*c) from (a*b, c) cuts a*b by b.
    """
    rest = [digit for digit in digits if digit[1] != ONE]
    places: list[Polynomial] = []
    for size in reversed(sizes):
        place, weight, left = ZERO, ONE, size
        while left != ONE:
            if not rest:
                return None
            value, extent = rest.pop()
            part = exact(left, extent)
            if part is not None:
                place, weight, left = place + value * weight, weight * extent, part
                continue
            part = exact(extent, left)
            if part is None:
                return None
            high = case.floor_div(value, left)
            place, left = place + (value - high * left) * weight, ONE
            rest.append((high, part))
        places.append(place)
    return places[::-1] if not rest else None


def _divided(case: Case, digits: list[_Digit], sizes: Sequence[Polynomial]) -> list[Polynomial]:
    """Return the digits of a number for other sizes, by division."""
    flat = ZERO
    for value, extent in digits:
        flat = flat * extent + value
    places = []
    for number, size in reversed(list(enumerate(sizes))):
        if all(s == ONE for s in sizes[:number]):
            places.append(flat)
            flat = ZERO
            continue
        quotient = case.floor_div(flat, size)
        places.append(flat - quotient * size)
        flat = quotient
    return places[::-1]


def _regrouped_axes(case: Case, x: Tensor, groups: _Groups, after: Dims) -> list[Axis]:
    """Return the digits of the new axes: those of the old ones where they fit."""
    axes = [Axis([d]) for d in after]
    for inside, outside in groups:
        large = [a for a in inside if x.dims[a] != ONE]
        if len(outside) == 1:
            axes[outside[0]] = Axis.joined([x.axes[a] for a in large or inside])
            continue
        extents = [e for a in inside for e in x.axes[a].extents]
        for axis in reversed(outside):
            digits = _taken(case, extents, after[axis])
            if digits is None:
                break
            axes[axis] = Axis(digits)
    return axes


def _taken(case: Case, extents: list[Polynomial], size: Polynomial) -> list[Polynomial] | None:
    """Remove the last extents whose product is a size, and return them; None if none fit.

    The first of them may be split: its other factor stays in the list.
    """
    digits: list[Polynomial] = []
    while size != ONE:
        extent = extents.pop() if extents else ONE
        if extent == ONE and not extents:
            return None
        rest = exact(size, extent)
        if rest is not None:
            digits.insert(0, extent)
            size = rest
            continue
        rest = exact(extent, size)
        if rest is None:
            return None
        digits.insert(0, size)
        extents.append(rest)
        size = ONE
    return digits or [ONE]
