"""Read which Rearrange an index map is, and prove it.

    y[h, w, (r, s, c)] = x[2*h + r, 2*w + s, c]        sizes [h, 2, w, 2, c], order [0, 2, 1, 3, 4]

The index of the output is written in digits. Each coordinate of the input must be digits written one
after another: the last has the factor 1, each other one the product of the extents behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from onnx_spatial.chains.chain_map import ChainMap
from onnx_spatial.chains.exact_division import Division, runs_only_divided
from onnx_spatial.chains.reading import IndexMap
from onnx_spatial.errors import OperatorError
from onnx_spatial.maps import operators
from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.compare import compare
from onnx_spatial.maps.expressions import ONE, ZERO, Index
from onnx_spatial.maps.polynomial import Atom, Polynomial
from onnx_spatial.maps.tensor import Tensor, moved
from onnx_spatial.operators import Rearrange

_Factor = tuple[Atom, Polynomial]


@dataclass(frozen=True)
class Selection:
    """A part of an axis: `size` elements from `start` on."""

    axis: int
    start: int
    size: int


#: What is taken of an input, and rearranged.
Movements = tuple[Rearrange, tuple[Selection, ...]]


def read_rearrange(case: Case, source: str, x: Tensor, y: Tensor) -> Movements | None:
    """Return the Rearrange that the map of `y` may be, in this case; None if it is none.

    Args:
        case: the case.
        source: name of the input.
        x: the input.
        y: the output.
    """
    parts = IndexMap.of(case, source, x, y)
    if parts is None or not x.rank:
        return None
    extents = {d.atom: d.extent for digits in parts.digits for d in digits}
    inputs, selections = list[list[_Factor]](), list[Selection]()
    for place, (coordinate, factors) in enumerate(
        zip(parts.coordinates, parts.factors, strict=True)
    ):
        axis, left, count = list[_Factor](), dict(factors), ONE
        while left:
            atom = next((a for a, factor in left.items() if factor == count), None)
            if atom is None:
                return None
            axis.insert(0, (atom, extents[atom]))
            count = count * extents[atom]
            del left[atom]
        rest = coordinate - sum((Polynomial({(a,): 1}) * f for a, f in factors.items()), ZERO)
        if count != x.dims[place] or rest != ZERO:
            start, size = rest.constant, count.constant
            if start is None or size is None or x.dims[place].constant is None:
                return None
            selections.append(Selection(place, start, size))
        inputs.append(axis)
    operator = _assembled(inputs, [[d.atom for d in digits] for digits in parts.digits])
    return None if operator is None else (operator, tuple(selections))


def _assembled(inputs: list[list[_Factor]], outputs: list[list[Atom]]) -> Rearrange | None:
    """Return the operator with neighbouring factors merged; None if a size does not follow."""
    follower = {a: b for axis in outputs for a, b in pairwise(axis)}
    sizes, splits, number = list[int](), list[int](), dict[Atom, int]()
    for axis in inputs:
        merged: list[list[_Factor]] = []
        for factor in axis:
            if merged and follower.get(merged[-1][-1][0]) == factor[0]:
                merged[-1].append(factor)
            else:
                merged.append([factor])
        for group in merged:
            size = 1
            for atom, extent in group:
                known = extent.constant
                size = -1 if known is None or size < 0 else size * known
                number[atom] = len(sizes)
            sizes.append(size)
        splits.append(len(merged))
    if sum(map(len, outputs)) != len(number):
        return None
    rows = [list(dict.fromkeys(number[atom] for atom in axis)) for axis in outputs]
    try:
        return Rearrange(
            tuple(sizes),
            tuple(splits),
            tuple(f for row in rows for f in row),
            tuple(map(len, rows)),
        )
    except OperatorError:
        return None


def is_rearrange(
    movements: Movements, chain: Callable[[Case], ChainMap], case: Callable[[], Case]
) -> bool:
    """Return whether a chain is provably a Rearrange, for all sizes that it runs with.

    Args:
        movements: the operator, and what it is of.
        chain: returns the map of the chain in a case.
        case: returns an empty case for a comparison.
    """

    operator, selections = movements

    def maps(now: Case) -> tuple[Tensor, Tensor]:
        mapped = chain(now)
        x = _selected(now, mapped.x, selections)
        return operators.apply(now, Rearrange, operator, x), mapped.y

    comparison = compare(case(), maps)
    if comparison.equal and comparison.assumptions:
        return runs_only_divided(chain, partial(_split, operator), case())
    return comparison.equal


def _selected(case: Case, x: Tensor, selections: Sequence[Selection]) -> Tensor:
    starts, dims = dict[int, int](), list(x.dims)
    for each in selections:
        if not (each.start >= 0 and each.size >= 1):
            raise UndecidedError("a part begins in front of its axis")
        case.require(dims[each.axis] - each.start - each.size, "a part exceeds its axis")
        starts[each.axis], dims[each.axis] = each.start, Polynomial.of(each.size)

    def at(index: Index) -> Polynomial:
        return x.at(tuple(place + starts.get(axis, 0) for axis, place in enumerate(index)))

    return moved(x, case, dims, at) if selections else x


def _split(operator: Rearrange, case: Case, chain: ChainMap) -> list[Division]:
    """Return the sizes that a Rearrange splits by known factors, and these."""
    pairs = [(dim, operator.multiple(axis)) for axis, dim in enumerate(chain.x.dims)]
    return [(dim, factor) for dim, factor in pairs if dim.constant is None and factor > 1]
