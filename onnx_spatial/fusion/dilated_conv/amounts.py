"""Calculate with pads and crops, which are numbers or elements of run-time parameters.

    pads = [[2, 3 + e], [2, 2 + f]]     e, f: what the graph computes of the sizes, 4 - Mod(h, 4) say
    crops = [[0, e], [0, f]]
    pads - crops = [[2, 3], [2, 2]]     numbers: e and f are the same polynomials in both

An `Amount` is known twice: `value`, of which the graph says what it is, decides whether it is a number,
or how small it may be; `elements`, the same as a sum of elements of parameters, is what can be written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain, groupby
from typing import NamedTuple

import onnx
import onnx_ir as ir

from onnx_spatial.fusion.dilated_conv.graph_view import GraphView, lower_bound
from onnx_spatial.fusion.matcher import MatchedOp
from onnx_spatial.lowering import Emitter
from onnx_spatial.lowering.core.builder import Size
from onnx_spatial.maps.polynomial import Atom, Polynomial
from onnx_spatial.operators.spellings import BlockCall

_INTEGERS = frozenset({onnx.TensorProto.INT32, onnx.TensorProto.INT64})
#: Most values in front of a parameter that are searched for the same numbers.
_FAR = 64


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


def plus(a: Pairs, b: Pairs, factor: int = 1) -> Pairs:
    """Return a + factor * b at each end."""
    return tuple((x[0] + y[0] * factor, x[1] + y[1] * factor) for x, y in zip(a, b, strict=True))


def minus(a: Pairs, b: Pairs) -> Pairs:
    """Return a - b at each end."""
    return plus(a, b, -1)


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
        self._least: dict[Polynomial, int] = {}

    def note_legal(self, amount: Amount) -> None:
        """Note that an amount is a pad or crop."""
        plus = amount.value.terms.get((), 0)
        self._least[amount.value - plus] = max(-plus, self._least.get(amount.value - plus, -plus))

    def least(self, amount: Amount) -> int | None:
        """Return a number that the amount is never below; None if none is known."""
        if amount.constant is not None:
            return amount.constant
        plus = amount.value.terms.get((), 0)
        noted = self._least.get(amount.value - plus)
        bounds = [lower_bound(amount.value), lower_bound(amount.elements)]
        bounds.append(None if noted is None else noted + plus)
        return max((bound for bound in bounds if bound is not None), default=None)

    def is_at_least(self, amount: Amount, value: int = 0) -> bool:
        """Return whether an amount is provably no less than a number."""
        bound = self.least(amount)
        return bound is not None and bound >= value

    def is_below(self, amount: Amount, value: int) -> bool:
        """Return whether an amount is provably less than a number."""
        return self.is_at_least(amount * -1, 1 - value)

    def covers(self, large: Pairs, small: Pairs) -> bool:
        """Return whether all of `large` are provably no less than those of `small`."""
        return all(map(self.is_at_least, flat(minus(large, small))))

    def common(self, crops: Sequence[Pairs]) -> Pairs:
        """Find the largest crop that provably keeps what each of `crops` keeps."""

        def smaller(a: Amount, b: Amount) -> Amount:
            if self.is_at_least(b - a):
                return a
            return b if self.is_at_least(a - b) else ZERO

        return tuple(
            (reduce(smaller, begins), reduce(smaller, ends))
            for begins, ends in (zip(*pairs, strict=True) for pairs in zip(*crops, strict=True))
        )

    def split(self, amount: Amount) -> Pair:
        """Return what to pad by and what to crop by then; neither is negative in a legal run."""
        lower, upper = self.least(amount), self.least(amount * -1)
        if lower is not None:
            crop = number(max(-lower, 0)) if upper is None or upper < 0 else amount * -1
            return amount + crop, crop
        if upper is not None:
            pad = number(max(-upper, 0))
            return pad, pad - amount
        terms = {product: f for product, f in amount.elements.terms.items() if f > 0}
        pad = Amount(Polynomial(terms), Polynomial(terms))
        rest = pad.elements - amount.elements
        return pad, Amount(rest, rest)


def read_amounts(
    subject: MatchedOp, message: onnx.NodeProto, view: GraphView, bounds: Bounds
) -> Pairs:
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
        entries = view.sizes.entries(message.input[vector.input]) or ()
        places = range(vector.start, vector.start + vector.length * vector.step, vector.step)
        elements = [Polynomial.atom(Element(source, p), nonnegative=True) for p in places]
        values = [
            entries[p] if p < len(entries) else e for p, e in zip(places, elements, strict=True)
        ]
        sides.append(list(map(Amount.of, values, elements)))
    for amount in chain.from_iterable(sides):
        bounds.note_legal(amount)
    return tuple(zip(*sides, strict=True))


@dataclass(frozen=True)
class _Source:
    """A value that amounts may be read from.

    Attributes:
        value: the value.
        entries: its elements.
        rank: smaller for values with fewer ancestors, none of them in a region.
    """

    value: ir.Value
    entries: tuple[Polynomial, ...]
    rank: tuple[bool, int, int]

    def read(self, amount: Amount) -> Polynomial | None:
        """Write an amount as an element, or its opposite, plus a number; None if it is none."""
        for place, entry in enumerate(self.entries):
            for factor in (1, -1):
                rest = (amount.value - entry * factor).constant
                if rest is not None:
                    element = Polynomial.atom(Element(self.value, place), nonnegative=True)
                    return element * factor + rest
        return None


class AmountWriter:
    """Writer of amounts that are computed at run time, as vectors.

        [2 - e, 0, f]       Sub([2, 0, 0], Gather(Concat([0], flat), ..))

    Models hold the pads in a table [[0, e], [0, f]], which several nodes make of e and f. The amounts
    are read from the values with the fewest nodes in front of them, so that the nodes behind that only
    made the table can go.

    Attributes:
        read: names of the values that were read.
    """

    def __init__(self, view: GraphView, inside: Collection[str]) -> None:
        """Prepare to write amounts of one graph; `inside` are names of values in regions."""
        self._view, self._inside = view, inside
        self._written: dict[object, ir.Value] = {}
        self._sources_of: dict[ir.Value, list[_Source]] = {}
        self.read: set[str] = set()

    def write(self, emit: Emitter, amounts: Sequence[Amount]) -> ir.Value:
        """Write amounts, at least one of which is computed at run time, as a vector of int64."""
        # A layer has at most one element for each amount, all of them times the same factor.
        layers: dict[tuple[int, int], dict[int, Element]] = {}
        sums = [self._read(amount) for amount in amounts]
        for row, amount in enumerate(sums):
            count = Counter[int]()
            for product, factor in amount.terms.items():
                if product:
                    layers.setdefault((factor, count[factor]), {})[row] = _element(product)
                    count[factor] += 1
        numbers = [amount.terms.get((), 0) for amount in sums]
        layer = layers.get((1, 0), {})
        if len(layers) == 1 and layer and not any(numbers[row] for row in layer):
            return self._vector(emit, [layer.get(row, n) for row, n in enumerate(numbers)])
        result = emit.ints(numbers, "amounts") if any(numbers) else None
        # What is subtracted comes last: there is something to subtract it from.
        for (factor, _), layer in sorted(layers.items(), key=lambda each: -each[0][0]):
            value = self._vector(emit, [layer.get(row, 0) for row in range(len(numbers))])
            if abs(factor) != 1:
                value = emit.op("Mul", value, emit.ints([abs(factor)], "factor"))
            if result is None:
                result = value if factor > 0 else emit.op("Neg", value)
            else:
                result = emit.op("Add" if factor > 0 else "Sub", result, value)
        assert result is not None
        return result

    def _read(self, amount: Amount) -> Polynomial:
        """Write an amount by an element of another value, if one with fewer nodes in front has it."""
        elements = [_element(product) for product in amount.elements.terms if product]
        sources = {s.value: s for element in elements for s in self._sources(element.source)}
        for source in sorted(sources.values(), key=lambda source: source.rank):
            read = source.read(amount)
            if read is not None:
                return read
        return amount.elements

    def _sources(self, parameter: ir.Value) -> list[_Source]:
        """List the values that a parameter is computed from, and itself, whose elements are known."""
        if parameter not in self._sources_of:
            self._sources_of[parameter] = []
            for place, value in enumerate(_ancestors(parameter)):
                name, ancestors = value.name or "", _ancestors(value)
                entries = self._view.sizes.entries(name) if name else None
                types = self._view.element_types(name)
                if entries is None or name in self._inside or not types <= _INTEGERS:
                    continue
                is_of_region = any(each.name in self._inside for each in ancestors)
                rank = (is_of_region, len(ancestors), -place)
                source = _Source(value, entries, rank)
                self._sources_of[parameter].append(source)
        return self._sources_of[parameter]

    def _vector(self, emit: Emitter, rows: Sequence[Element | int]) -> ir.Value:
        """Write elements and numbers: a Concat of whole values, or a Gather from one."""
        key = tuple(rows)
        if key not in self._written:
            runs = [
                (source, list(run))
                for source, run in groupby(
                    rows, key=lambda row: row.source if isinstance(row, Element) else None
                )
            ]
            if all(source is None or run == self._all(source) for source, run in runs):
                pieces: list[Size | ir.Value] = []
                for source, run in runs:
                    numbers = [row for row in run if isinstance(row, int)]
                    pieces += numbers if source is None else [self._flat(emit, source)]
                self._written[key] = emit.vector(pieces, "amounts")
            else:
                self._written[key] = self._gathered(emit, rows)
        return self._written[key]

    def _gathered(self, emit: Emitter, rows: Sequence[Element | int]) -> ir.Value:
        """Write elements and numbers as one Gather from all values and numbers."""
        numbers = sorted({row for row in rows if isinstance(row, int)})
        pieces: list[Size | ir.Value] = [*numbers]
        entries: list[Element | int] = [*numbers]
        for source in dict.fromkeys(row.source for row in rows if isinstance(row, Element)):
            value, whole = self._flat(emit, source), self._all(source)
            if not whole:  # its length is unknown
                whole = [
                    r for r in dict.fromkeys(rows) if isinstance(r, Element) and r.source is source
                ]
                places = emit.ints([element.place for element in whole], "index")
                value = emit.op("Gather", value, places, axis=0)
            pieces.append(value)
            entries += whole
        key = tuple(pieces)
        if key not in self._written:
            self._written[key] = emit.vector(pieces, "amounts")
        index = emit.ints([entries.index(row) for row in rows], "index")
        return emit.op("Gather", self._written[key], index, axis=0)

    def _all(self, source: ir.Value) -> list[Element]:
        """List the elements of a value; none if their number is unknown."""
        entries = self._view.sizes.entries(source.name or "")
        return [Element(source, place) for place in range(len(entries or ()))]

    def _flat(self, emit: Emitter, source: ir.Value) -> ir.Value:
        """Write a value as a vector of int64."""
        if source not in self._written:
            name, value = source.name or "", source
            self.read.add(name)
            if len(self._view.sizes.shape_of_entries(name) or (0, 0)) != 1:
                value = emit.op("Reshape", value, emit.ints([-1], "flat"))
            if self._view.element_types(name) != {onnx.TensorProto.INT64}:
                value = emit.op("Cast", value, to=int(onnx.TensorProto.INT64))
            self._written[source] = value
        return self._written[source]


def _element(product: tuple[Atom, ...]) -> Element:
    key = product[0].key
    assert isinstance(key, Element)
    return key


def _ancestors(value: ir.Value) -> list[ir.Value]:
    """List a value and those that it is computed from."""
    seen = {value: None}
    todo = [value]
    while todo and len(seen) <= _FAR:
        node = todo.pop().producer()
        for source in node.inputs if node is not None else ():
            if source is not None and source not in seen:
                seen[source] = None
                todo.append(source)
    return list(seen)
