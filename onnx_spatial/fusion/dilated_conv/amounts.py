"""Calculate with pads and crops, which are numbers or elements of run-time parameters.

    pads = [[2, 3 + e], [2, 2 + f]]     e, f: what the graph computes of the sizes, 4 - Mod(h, 4) say
    crops = [[0, e], [0, f]]
    pads - crops = [[2, 3], [2, 2]]     numbers: e and f are the same polynomials in both

An `Amount` is known twice: `value`, of which the graph says what it is, decides whether it is a number,
or how small it may be; `elements`, the same as a sum of elements of parameters, is what can be written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from typing import NamedTuple

import onnx
import onnx_ir as ir

from onnx_spatial.fusion.views import GraphView, MatchedOp
from onnx_spatial.lowering import Emitter
from onnx_spatial.lowering.emitter import Size
from onnx_spatial.maps.facts import Facts
from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.operators.spellings import BlockCall


class Element(NamedTuple):
    """Element of a run-time parameter: the key of its atom."""

    source: ir.Value
    place: int


@dataclass(frozen=True)
class Amount:
    """The pad or crop at one end of an axis; amounts of the same value are equal.

    Attributes:
        value: the amount as the graph computes it.
        elements: the amount as a sum of elements of parameters.
    """

    value: Polynomial
    elements: Polynomial = field(compare=False)

    @classmethod
    def of(cls, value: Polynomial, elements: Polynomial) -> Amount:
        """Make an amount; one that is a number reads no elements."""
        return cls(value, elements if value.constant is None else value)

    @property
    def constant(self) -> int | None:
        """The number; None if only the run knows it."""
        return self.value.constant

    def __add__(self, other: Amount | int) -> Amount:
        if isinstance(other, int):
            return Amount.of(self.value + other, self.elements + other)
        return Amount.of(self.value + other.value, self.elements + other.elements)

    def __sub__(self, other: Amount | int) -> Amount:
        return self + other * -1

    def __mul__(self, factor: int) -> Amount:
        return Amount.of(self.value * factor, self.elements * factor)


def number(value: int) -> Amount:
    """Return the amount that is a number."""
    return Amount(Polynomial.of(value), Polynomial.of(value))


ZERO = number(0)

#: (begin, end) of one axis.
Pair = tuple[Amount, Amount]
#: The pairs of the axes of a layout.
Pairs = tuple[Pair, ...]


def nothing(axes: int) -> Pairs:
    """Return pairs of zeros."""
    return ((ZERO, ZERO),) * axes


def flat(pairs: Pairs) -> tuple[Amount, ...]:
    """List the amounts at all ends."""
    return tuple(chain.from_iterable(pairs))


def add_pairs(a: Pairs, b: Pairs, factor: int = 1) -> Pairs:
    """Return a + factor * b at each end."""
    return tuple((x[0] + y[0] * factor, x[1] + y[1] * factor) for x, y in zip(a, b, strict=True))


def minus(a: Pairs, b: Pairs) -> Pairs:
    """Return a - b at each end."""
    return add_pairs(a, b, -1)


def is_nothing(pairs: Pairs) -> bool:
    """Return whether all amounts are known to be 0."""
    return all(amount.constant == 0 for amount in flat(pairs))


def reordered(pairs: Pairs, axes: Sequence[int], others: Sequence[int]) -> Pairs:
    """List the pairs of some axes for others; there is nothing at axes that have none."""
    pair_of = dict(zip(axes, pairs, strict=True))
    return tuple(pair_of.get(axis, (ZERO, ZERO)) for axis in others)


class Bounds:
    """What is known of amounts in every legal run: pads and crops are never negative."""

    def __init__(self) -> None:
        self._facts = Facts()

    def note_legal(self, amount: Amount) -> None:
        """Note that an amount is a pad or crop."""
        self._facts.add(amount.value)

    def is_at_least(self, amount: Amount, value: int = 0) -> bool:
        """Return whether an amount is provably no less than a number."""
        known = (amount.value, amount.elements) if amount.constant is None else (amount.value,)
        return any(self._facts.nonnegative(each - value) for each in known)

    def is_below(self, amount: Amount, value: int) -> bool:
        """Return whether an amount is provably less than a number."""
        return self.is_at_least(amount * -1, 1 - value)

    def covers(self, large: Pairs, small: Pairs) -> bool:
        """Return whether all of `large` are provably no less than those of `small`."""
        return all(map(self.is_at_least, flat(minus(large, small))))

    def common_crop(self, crops: Sequence[Pairs]) -> Pairs:
        """Find the largest crop that provably keeps what each of `crops` keeps."""

        def smaller(a: Amount, b: Amount) -> Amount:
            if self.is_at_least(b - a):
                return a
            return b if self.is_at_least(a - b) else ZERO

        return tuple(
            (reduce(smaller, begins), reduce(smaller, ends))
            for begins, ends in (zip(*pairs, strict=True) for pairs in zip(*crops, strict=True))
        )

    def split_amount(self, amount: Amount) -> Pair:
        """Return what to pad by and what to crop by then; neither is negative in a legal run."""
        plus = amount.value.terms.get((), 0)
        if self.is_at_least(amount, min(plus, 0)):
            crop = number(max(-plus, 0))
            return amount + crop, crop
        if self.is_below(amount, max(plus, 0) + 1):
            pad = number(max(plus, 0))
            return pad, pad - amount
        terms = {product: f for product, f in amount.elements.terms.items() if f > 0}
        pad = Amount(Polynomial(terms), Polynomial(terms))
        rest = pad.elements - amount.elements
        return pad, Amount(rest, rest)


def read_amounts(subject: MatchedOp, view: GraphView, bounds: Bounds) -> Pairs:
    """Read the pads or crops of all axes of an operator."""
    call = subject.request.call
    assert isinstance(call, BlockCall)
    sides = []
    for vector in (call.begins, call.ends):
        if vector.values is not None:
            sides.append([number(value) for value in vector.values])
            continue
        assert vector.input is not None
        source = subject.node.inputs[vector.input]
        assert source is not None
        entries = view.sizes.entries(source.name or "") or ()
        places = range(vector.start, vector.start + vector.length * vector.step, vector.step)
        elements = [Polynomial.atom(Element(source, p), nonnegative=True) for p in places]
        values = [
            entries[p] if p < len(entries) else e for p, e in zip(places, elements, strict=True)
        ]
        sides.append(list(map(Amount.of, values, elements)))
    for amount in chain.from_iterable(sides):
        bounds.note_legal(amount)
    return tuple(zip(*sides, strict=True))


class AmountWriter:
    """Writes amounts as sizes that are computed of elements of run-time parameters.

    Attributes:
        read: names of the parameters that were read.
    """

    def __init__(self, view: GraphView) -> None:
        self._view = view
        self._flat: dict[ir.Value, ir.Value] = {}
        self.read: set[str] = set()

    def size(self, emit: Emitter, amount: Amount) -> Size:
        """Return an amount as a size."""
        total: Size = 0
        for product, factor in amount.elements.terms.items():
            if not product:
                total = emit.add(total, factor)
                continue
            element = product[0].key
            assert isinstance(element, Element)
            (size,) = emit.elements(self._parameter_vector(emit, element.source), [element.place])
            total = emit.add(total, emit.mul(size, factor))
        return total

    def _parameter_vector(self, emit: Emitter, source: ir.Value) -> ir.Value:
        """Return a parameter as a vector of int64."""
        if source not in self._flat:
            name, value = source.name or "", source
            self.read.add(name)
            if len(self._view.sizes.shape_of_entries(name) or (0, 0)) != 1:
                value = emit.op("Reshape", value, emit.ints([-1], "flat"))
            if self._view.element_types(name) != {onnx.TensorProto.INT64}:
                value = emit.op("Cast", value, to=int(onnx.TensorProto.INT64))
            self._flat[source] = value
        return self._flat[source]
