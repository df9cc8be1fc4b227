"""Read a Rearrange off an access form, and say which index map it has.

    y[h, w, (r, s, c)] = x[2*h + r, 2*w + s, c]        sizes [h, 2, w, 2, c], order [0, 2, 1, 3, 4]

Along each axis of both sides the digits count one after another. A constant rest is a part of an axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from onnx_spatial.chains.access import IN, OUT, Access, Digit, stack_digits
from onnx_spatial.chains.chain_map import ChainMap
from onnx_spatial.chains.reading import Division
from onnx_spatial.errors import OperatorError
from onnx_spatial.maps import operators
from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.polynomial import ZERO, Index, Polynomial, product
from onnx_spatial.maps.tensor import Tensor, moved
from onnx_spatial.operators import Rearrange


@dataclass(frozen=True)
class Selection:
    """A part of an axis: `size` elements from `start` on."""

    axis: int
    start: int
    size: int


@dataclass(frozen=True)
class Movements:
    """A Rearrange of parts of axes."""

    operator: Rearrange
    selections: tuple[Selection, ...] = ()


def read(access: Access) -> Iterator[Movements]:
    """Yield the Rearrange that a form may be."""
    inputs, selections = list[list[Digit]](), list[Selection]()
    if any(rest != ZERO for rest in access.rests[OUT]) or not access.dims[IN]:
        return
    for axis, (dim, rest) in enumerate(zip(access.dims[IN], access.rests[IN], strict=True)):
        row = stack_digits(access.digits_along(IN, axis), IN)
        if row is None:
            return
        count = product([d.extent for d in row])
        if count != dim or rest != ZERO:
            start, size = rest.constant, count.constant
            if start is None or size is None or dim.constant is None:
                return
            selections.append(Selection(axis, start, size))
        inputs.append(row[::-1])
    outputs = [access.digits_along(OUT, axis) for axis in range(len(access.dims[OUT]))]
    operator = _assemble_rearrange(inputs, outputs)
    if operator is not None:
        yield Movements(operator, tuple(selections))


def _assemble_rearrange(inputs: list[list[Digit]], outputs: list[list[Digit]]) -> Rearrange | None:
    """Return the operator with neighbouring factors merged; None if a size does not follow."""
    follower = {a: b for axis in outputs for a, b in pairwise(axis)}
    sizes, splits, number = list[int](), list[int](), dict[Digit, int]()
    for axis in inputs:
        merged: list[list[Digit]] = []
        for digit in axis:
            if merged and follower.get(merged[-1][-1]) == digit:
                merged[-1].append(digit)
            else:
                merged.append([digit])
        for group in merged:
            size = 1
            for digit in group:
                known = digit.extent.constant
                size = -1 if known is None or size < 0 else size * known
                number[digit] = len(sizes)
            sizes.append(size)
        splits.append(len(merged))
    rows = [list(dict.fromkeys(number[digit] for digit in axis)) for axis in outputs]
    order, joins = tuple(f for row in rows for f in row), tuple(map(len, rows))
    try:
        return Rearrange(tuple(sizes), tuple(splits), order, joins)
    except OperatorError:
        return None


def expected(movements: Movements, case: Case, chain: ChainMap) -> Tensor:
    """Return the map of the operator on the data of a chain."""
    x = _select_parts(case, chain.x, movements.selections)
    return operators.apply(case, Rearrange, movements.operator, x)


def _select_parts(case: Case, x: Tensor, selections: Sequence[Selection]) -> Tensor:
    starts, dims = dict[int, int](), list(x.dims)
    for each in selections:
        if not (each.start >= 0 and each.size >= 1):
            raise UndecidedError("a part begins in front of its axis")
        case.require(dims[each.axis] - each.start - each.size, "a part exceeds its axis")
        starts[each.axis], dims[each.axis] = each.start, Polynomial.of(each.size)

    def at(index: Index) -> Polynomial:
        return x.at(tuple(place + starts.get(axis, 0) for axis, place in enumerate(index)))

    return moved(x, case, dims, at) if selections else x


def divisions(movements: Movements, case: Case, chain: ChainMap) -> list[Division]:
    """Return the sizes that a Rearrange splits by known factors, and these."""
    del case
    pairs = [(dim, movements.operator.multiple(axis)) for axis, dim in enumerate(chain.x.dims)]
    return [(dim, factor) for dim, factor in pairs if dim.constant is None and factor > 1]
