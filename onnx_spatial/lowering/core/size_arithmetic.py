"""Compute with sizes: integers where they are known, nodes where only the run knows them.

A `Size` is one dim: an int, or a 1-D int64 value of one element. What is known is folded at once, so
that no node stands for it, and no operation that changes nothing is emitted. A size that is unknown has
a guess, by which lowerings are priced.

Older opsets lack operators:

    Range             since opset 11      before that NonZero of ones, opset 9
    Where             since opset 9       before that by arithmetic
    Less of integers  since opset 9       before that of doubles
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import onnx_ir as ir

from onnx_spatial.lowering.core import cost_model
from onnx_spatial.lowering.core.nodes import INT64_MAX, NewerOpsetError, NodeList

Size = int | ir.Value

#: Ranges up to this many elements are constants; longer ones are made at run time.
LARGEST_RANGE = 1 << 14

#: Opsets that brought Range, NonZero, Where and Less of integers.
_RANGE, _NON_ZERO, _WHERE, _INTEGER_LESS = 11, 9, 9, 9

#: The opset since which Shape gives a part of the shape.
_SHAPE_PART = 15

#: Size of an unknown dim in estimates.
TYPICAL_DIM = 64

#: The same for a side of an image with one axis, with two, ..: of small images, and of large ones whose
#: rows compete for the lines of a cache, as powers of two do.
_SIDES = ((25600, 65536), (160, 512), (40, 64), (16, 16))


def typical_sides(dims: Sequence[object]) -> tuple[int, ...]:
    """Return estimates of an unknown side of images: the more sides, the shorter.

    Args:
        dims: of the images; a batch, which does not count, is the first.
    """
    unknown = sum(not isinstance(dim, int) for dim in dims[1:])
    return _SIDES[min(max(1, unknown, len(dims) - 2), len(_SIDES)) - 1]


def typical_side(dims: Sequence[object]) -> int:
    """Return the first of `typical_sides`."""
    return typical_sides(dims)[0]


def same(a: Size, b: Size) -> bool:
    """Tell whether two sizes are known to be equal."""
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


@dataclass(frozen=True)
class _Sum:
    """A sum of multiples of values, and a number."""

    terms: Mapping[ir.Value, int]
    number: int

    def plus(self, other: _Sum, sign: int, factor: int = 1) -> _Sum:
        """Return factor * (self + sign * other)."""
        terms = dict(self.terms)
        for value, count in other.terms.items():
            terms[value] = terms.get(value, 0) + sign * count
        kept = {value: factor * count for value, count in terms.items() if count}
        return _Sum(kept, factor * (self.number + sign * other.number))


class SizeArithmetic(NodeList):
    """Arithmetic on sizes, as nodes where they are computed at run time."""

    def __init__(self, opset: int) -> None:
        super().__init__(opset)
        self._guesses_of: dict[ir.Value, tuple[int, ...]] = {}
        #: Computed sums, and the values that hold them: by terms, with their numbers.
        self._sum_of: dict[ir.Value, _Sum] = {}
        self._values_of: dict[frozenset[tuple[ir.Value, int]], dict[int, ir.Value]] = {}
        #: Computed products as a number and values in canonical order.
        self._product_of: dict[ir.Value, tuple[int, tuple[ir.Value, ...]]] = {}
        self._number_of: dict[ir.Value, int] = {}

    def guess(self, size: Size) -> int:
        """Return a size, or an estimate of one that is unknown."""
        if isinstance(size, int):
            return size
        guesses = self._guesses_of.get(size, (TYPICAL_DIM,))
        return guesses[min(self._case, len(guesses) - 1)]

    def guessed(self, value: ir.Value, guesses: tuple[int, ...]) -> ir.Value:
        """Record estimates of a value that is computed at run time, and return the value."""
        self._guesses_of.setdefault(value, guesses)
        return value

    def weigh(self, dims: Sequence[Size]) -> None:
        """Price nodes for each estimate of the unknown sizes of an operator's data.

        Times count for each element: large images are not more important than small ones.
        """
        cases = max(len(self._guesses_of.get(d, ())) for d in dims if not isinstance(d, int))
        totals = self.in_each_case(lambda: max(1, self.elements_in(dims)), cases)
        self.weights = tuple(totals[0] / total / cases for total in totals)

    def elements_in(self, dims: Iterable[Size]) -> int:
        """Return the number of elements of a tensor with these dims, or an estimate."""
        return min(cost_model.MOST, math.prod(max(0, self.guess(d)) for d in dims))

    def shape_of(self, x: ir.Value) -> ir.Value:
        """Return the run-time shape of a value."""
        return self.op("Shape", x)

    def lengths(self, x: ir.Value, axes: Sequence[int]) -> ir.Value:
        """Return the run-time lengths of some axes."""
        first, behind = axes[0], axes[0] + len(axes)
        if self.opset >= _SHAPE_PART and list(axes) == list(range(first, behind)):
            return self.op("Shape", x, start=first, end=behind)
        return self.op("Gather", self.shape_of(x), self.ints(axes, "axes"), axis=0)

    def elements(self, vector: ir.Value, indices: Sequence[int]) -> list[ir.Value]:
        """Return single elements of a 1-D int64 value."""
        return [self.op("Gather", vector, self.ints([i], "index"), axis=0) for i in indices]

    def _binary(self, op_type: str, a: Size, b: Size, guess: Callable[[int, int], int]) -> ir.Value:
        value = self.op(op_type, self.size(a), self.size(b))
        guesses = self.in_each_case(lambda: guess(self.guess(a), self.guess(b)))
        return self.guessed(value, tuple(guesses))

    def add(self, a: Size, b: Size) -> Size:
        """Return a + b; what cancels is not computed, and an equal sum is computed once."""
        return self._added(a, b, 1)

    def sub(self, a: Size, b: Size) -> Size:
        """Return a - b, see `add`."""
        return self._added(a, b, -1)

    def _added(self, a: Size, b: Size, sign: int) -> Size:
        if isinstance(a, int) and isinstance(b, int):
            return a + sign * b
        one, other = self._sum(a), self._sum(b)
        total = one.plus(other, sign)
        if abs(total.number) > INT64_MAX:
            return self._plus(a, b, sign)
        if not total.terms:
            return total.number
        terms = sorted(total.terms.items(), key=lambda term: -term[1])
        key = frozenset(terms)
        equal = self._values_of.setdefault(key, {})
        if len(terms) == 1 and terms[0][1] == 1:
            equal[0] = terms[0][0]
        if total.number in equal:
            return equal[total.number]
        if equal:
            number = 0 if 0 in equal else next(iter(equal))
            result = self._plus(equal[number], total.number - number, 1)
        elif len(terms) == 2 < len(one.terms) + len(other.terms) and total.number == 0:
            (first, _), (second, factor) = terms
            units = (terms[0][1], abs(factor)) == (1, 1)
            result = self._plus(first, second, factor) if units else self._plus(a, b, sign)
        else:
            result = self._plus(a, b, sign)
        self._sum_of[result] = total
        equal[total.number] = result
        return result

    def _plus(self, a: Size, b: Size, sign: int) -> ir.Value:
        if sign < 0 and not isinstance(b, int):
            return self._binary("Sub", a, b, operator.sub)
        a, b = (b, a) if isinstance(a, int) else (a, b)
        return self._binary("Add", a, sign * b if isinstance(b, int) else b, operator.add)

    def _sum(self, a: Size) -> _Sum:
        if isinstance(a, int):
            return _Sum({}, a)
        return self._sum_of.get(a) or _Sum({a: 1}, 0)

    def mul(self, a: Size, b: Size) -> Size:
        """Return a * b; equal products become equal nodes, in whatever order they are computed."""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if same(a, 1) or same(b, 1):
            return b if same(a, 1) else a
        if same(a, 0) or same(b, 0):
            return self._binary("Mul", a, b, operator.mul)
        (one, some), (other, more) = map(self._factors, (a, b))
        # Sizes of inner axes, which are the last ones, first: strides are products of these.
        factors = sorted((*some, *more), key=lambda v: -self._number_of[v])
        result = factors[0]
        for place, factor in enumerate(factors[1:], start=2):
            result = self._multiplied(result, factor, (1, (*factors[:place],)))
        known = one * other
        if known == 1:
            return result
        total = self._sum(result).plus(_Sum({}, 0), 1, known)
        equal = self._values_of.setdefault(frozenset(total.terms.items()), {})
        if total.number not in equal:
            equal[total.number] = self._multiplied(result, known, (known, (*factors,)))
            self._sum_of[equal[total.number]] = total
        return equal[total.number]

    def _factors(self, a: Size) -> tuple[int, tuple[ir.Value, ...]]:
        if isinstance(a, int):
            return a, ()
        if a not in self._product_of:
            self._number_of.setdefault(a, len(self._number_of))
        return self._product_of.get(a, (1, (a,)))

    def multiples(self, a: Size, b: Size) -> tuple[ir.Value, tuple[int, int]] | None:
        """Return an unknown size of which both are multiples, with these; None if there is none."""
        (one, some), (other, more) = map(self._factors, (a, b))
        if some != more or not some:
            return None
        size = self.product(some)
        assert not isinstance(size, int)
        return size, (one, other)

    def _multiplied(
        self, a: ir.Value, b: Size, factors: tuple[int, tuple[ir.Value, ...]]
    ) -> ir.Value:
        result = self._binary("Mul", a, b, operator.mul)
        self._product_of[result] = factors
        return result

    def div(self, a: Size, b: Size) -> Size:
        """Return a / b truncated like C; b is never 0."""
        if isinstance(a, int) and isinstance(b, int):
            return a // b if (a >= 0) == (b > 0) else -(-a // b)
        if same(b, 1):
            return a
        return self._binary("Div", a, b, lambda one, other: one // max(1, other))

    def quotient(self, a: Size, b: Size) -> Size:
        """Return a / b where b >= 1 divides a >= 0; otherwise a size that makes Reshape fail.

        Before allowzero a Reshape copies a dim for a 0, so there it is the next larger quotient.
        """
        if self.opset < 14 and not (isinstance(a, int) and isinstance(b, int)):
            a = self.add(a, self.sub(b, 1))
        return self.div(a, b)

    def max(self, a: Size, b: Size) -> Size:
        """Return the larger of two sizes; before opset 12 Max has no int64."""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        if self.opset >= 12:
            return self._binary("Max", a, b, max)
        # max(a, b) = (a + b + |a - b|) / 2
        distance = self.op("Abs", self.size(self.sub(a, b)))
        return self.div(self.add(self.add(a, b), distance), 2)

    def less(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Return a < b for int64 values; before opset 9 Less has floats only.

        Doubles round integers beyond 2**53, which changes no comparison with a smaller one.
        """
        if self.opset < _INTEGER_LESS:
            a, b = (self.op("Cast", value, to=int(ir.DataType.DOUBLE)) for value in (a, b))
        return self.op("Less", a, b)

    def where(self, condition: ir.Value, yes: ir.Value, no: ir.Value) -> ir.Value:
        """Return `yes` where the condition holds, else `no`; both are int64."""
        if self.opset >= _WHERE:
            return self.op("Where", condition, yes, no)
        chosen = self.op("Cast", condition, to=int(ir.DataType.INT64))
        return self.op("Add", no, self.op("Mul", chosen, self.op("Sub", yes, no)))

    def product(self, sizes: Sequence[Size]) -> Size:
        """Return the product of sizes, the known ones folded together."""
        known = math.prod(size for size in sizes if isinstance(size, int))
        result: Size = 1
        for size in sizes:
            if not isinstance(size, int):
                result = self.mul(result, size)
        return self.mul(result, known) if known != 1 else result

    def sum(self, values: Iterable[ir.Value]) -> ir.Value:
        """Return the sum of values that broadcast, of which there is at least one."""
        return reduce(lambda total, value: self.op("Add", total, value), values)

    def size(self, a: Size, hint: str = "size") -> ir.Value:
        """Return a size as a value."""
        return self.ints([a], hint) if isinstance(a, int) else a

    def vector(self, sizes: Sequence[Size], hint: str) -> ir.Value:
        """Join sizes or 1-D values to one 1-D tensor; known neighbours become one constant."""
        parts: list[ir.Value] = []
        known: list[int] = []
        for size in (*sizes, None):
            if isinstance(size, int):
                known.append(size)
                continue
            if known:
                parts.append(self.ints(known, hint))
                known = []
            if size is not None:
                parts.append(size)
        if not parts:
            return self.ints([], hint)
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)

    def range(self, count: Size, step: int = 1) -> ir.Value:
        """Return 0, step, 2 * step, .. (count elements) as a 1-D int64 value."""
        if isinstance(count, int) and count <= LARGEST_RANGE:
            return self.ints([i * step for i in range(count)], "index")
        if self.opset < _RANGE:
            if self.opset < _NON_ZERO:
                raise NewerOpsetError("indices that are computed at run time", _NON_ZERO)
            one = ir.Attr("value", ir.AttributeType.TENSOR, ir.tensor(np.ones(1, np.int64)))
            ones = self.op("ConstantOfShape", self.size(count), value=one)
            places = self.op("Squeeze", self.op("NonZero", ones), axes=[0])
            return places if step == 1 else self.op("Mul", places, self.ints([step], "step"))
        scalar = self.ints([], "scalar_shape")
        limit = self.op("Reshape", self.size(self.mul(count, step)), scalar)
        zero = self.constant(np.array(0, np.int64), "start")
        return self.op("Range", zero, limit, self.constant(np.array(step, np.int64), "delta"))
