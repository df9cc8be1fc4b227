"""Emit vectors of sizes that are products of lengths of axes, by few nodes.

Shape -> Add, Div, Max                               the lengths of neighbouring axes
Mul by numbers -> Concat with numbers                a vector that holds them in order
ReduceProd                                           their product
Concat [.., 1] -> Gather, Gather -> Mul -> Split     other vectors, all of them at once
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, groupby, product

import onnx_ir as ir

from onnx_spatial.lowering.core.nodes import NodeList

#: The opset since which Shape gives a part of a shape.
_SHAPE_PART = 15

#: Max with it changes nothing.
LEAST = -(2**62)

#: Vectors up to which each division into joined ones and others is compared.
_MOST_COMPARED = 8


@dataclass(frozen=True)
class Length:
    """Length of an axis, with a number added, divided and not less than another one.

    Attributes:
        source: the value whose axis it is.
        axis: the axis.
        plus, divisor, least: max((length + plus) / divisor, least).
    """

    source: ir.Value
    axis: int
    plus: int = 0
    divisor: int = 1
    least: int = LEAST

    @property
    def bound(self) -> int:
        """The smallest value that it may have; 0 for a length that cannot be smaller anyway."""
        return 0 if self.least == LEAST and self.plus >= 0 else self.least

    @property
    def plain(self) -> Length:
        """The length itself."""
        return Length(self.source, self.axis)


@dataclass(frozen=True)
class Product:
    """A number times lengths."""

    number: int
    lengths: tuple[Length, ...] = ()

    def times(self, other: Product) -> Product:
        """Return the product of both."""
        return Product(self.number * other.number, (*self.lengths, *other.lengths))

    @property
    def length(self) -> Length | None:
        """The only factor, None if it is not alone."""
        return self.lengths[0] if self.number == 1 and len(self.lengths) == 1 else None


@dataclass(frozen=True)
class Vector:
    """A vector of sizes.

    Attributes:
        entries: its entries.
        scalar: whether it is a scalar, with one entry.
    """

    entries: tuple[Product, ...]
    scalar: bool = False


def emit_vectors(emit: NodeList, vectors: Sequence[Vector]) -> list[ir.Value]:
    """Emit the nodes that compute vectors, and return these."""
    rows = _rows(emit, _lengths(vectors))
    ways = [_way(emit, vector, rows) for vector in vectors]
    both = len(vectors) - ways.count(None) <= _MOST_COMPARED

    def cost(choice: Sequence[_Way | None]) -> int:
        alone = sum(way.nodes for way in choice if way is not None)
        return alone + _Joined.of(_others(vectors, choice), rows).nodes

    options = [(way, None) if way is not None and both else (way,) for way in ways]
    choice = min(product(*options), key=cost)
    joined = iter(_Joined.of(_others(vectors, choice), rows).emit(emit))
    return [next(joined) if way is None else way.emit() for way in choice]


def _lengths(vectors: Iterable[Vector]) -> list[Length]:
    """Return the lengths in vectors, once each."""
    entries = chain.from_iterable(vector.entries for vector in vectors)
    return list(dict.fromkeys(chain.from_iterable(entry.lengths for entry in entries)))


def _others(vectors: Sequence[Vector], choice: Sequence[_Way | None]) -> list[Vector]:
    return [vector for vector, way in zip(vectors, choice, strict=True) if way is None]


@dataclass(frozen=True)
class _Row:
    """Lengths that are computed at once."""

    lengths: tuple[Length, ...]

    def emit(self, emit: NodeList) -> ir.Value:
        """Emit the nodes and return the vector."""
        shapes = []
        for source, some in groupby(self.lengths, lambda length: length.source):
            axes = [length.axis for length in some]
            if _is_part(emit, axes):
                shapes.append(emit.op("Shape", source, start=axes[0], end=axes[-1] + 1))
            else:
                shape = emit.op("Shape", source)
                shapes.append(emit.op("Gather", shape, emit.ints(axes, "axes"), axis=0))
        row = shapes[0] if len(shapes) == 1 else emit.op("Concat", *shapes, axis=0)
        plus, divisors = ([n.plus for n in self.lengths], [n.divisor for n in self.lengths])
        if any(plus):
            row = emit.op("Add", row, emit.ints(plus, "numbers"))
        if any(divisor != 1 for divisor in divisors):
            row = emit.op("Div", row, emit.ints(divisors, "divisors"))
        if any(length.least != LEAST for length in self.lengths):
            row = emit.op("Max", row, emit.ints([n.bound for n in self.lengths], "bounds"))
        return row


def _is_part(emit: NodeList, axes: Sequence[int]) -> bool:
    """Tell whether one Shape gives the lengths of these axes."""
    return emit.opset >= _SHAPE_PART and [*axes] == [*range(axes[0], axes[0] + len(axes))]


def _rows(emit: NodeList, lengths: Sequence[Length]) -> list[_Row]:
    """Return rows that hold all of some lengths."""
    sources = list(dict.fromkeys(length.source for length in lengths))
    variants: dict[Length, list[Length]] = {}
    for source in sources:
        axes = [length.axis for length in lengths if length.source is source]
        for axis in range(min(axes), max(axes) + 1):
            plain = Length(source, axis)
            variants[plain] = [n for n in lengths if n.plain == plain and n != plain]
    if emit.opset < _SHAPE_PART or any(len(changed) > 1 for changed in variants.values()):
        order = sorted(lengths, key=lambda n: (sources.index(n.source), n.axis))
        return [_Row(tuple(order))]
    row = _Row(tuple(chain.from_iterable(v or [plain] for plain, v in variants.items())))
    if set(lengths) <= set(row.lengths):
        return [row]
    return [row, _Row(tuple(variants))]


@dataclass(frozen=True)
class _Way:
    """A way to compute a vector by itself.

    Attributes:
        nodes: number of its nodes, without those of rows.
        emit: emits them and returns the vector.
    """

    nodes: int
    emit: Callable[[], ir.Value]


def _way(emit: NodeList, vector: Vector, rows: Sequence[_Row]) -> _Way | None:
    """Return how to compute a vector from lengths in order; None if they are in another order."""
    (first, *more) = vector.entries
    if not more and first.number == 1 and len(first.lengths) > 1:
        return _product_of(emit, vector, rows)
    held = [place for place, entry in enumerate(vector.entries) if entry.lengths]
    inner = vector.entries[held[0] : held[-1] + 1] if held else ()
    if not inner or vector.scalar or any(len(entry.lengths) != 1 for entry in inner):
        return None
    part = _part(emit, [entry.lengths[0] for entry in inner], rows)
    if part is None:
        return None
    numbers = [entry.number for entry in inner]
    ends = [vector.entries[: held[0]], vector.entries[held[-1] + 1 :]]

    def emitted() -> ir.Value:
        value = part.emit()
        if any(number != 1 for number in numbers):
            value = emit.op("Mul", value, emit.ints(numbers, "numbers"))
        before, behind = (
            [emit.ints([entry.number for entry in end], "sizes")] if end else [] for end in ends
        )
        if not before and not behind:
            return value
        return emit.op("Concat", *before, value, *behind, axis=0)

    return _Way(part.nodes + any(n != 1 for n in numbers) + any(ends), emitted)


def _product_of(emit: NodeList, vector: Vector, rows: Sequence[_Row]) -> _Way | None:
    """Return how to multiply neighbouring lengths; None if they are no neighbours."""
    lengths = sorted(vector.entries[0].lengths, key=lambda length: length.axis)
    part = _part(emit, lengths, rows)
    if part is None:
        return None
    emit_part, keep = part.emit, int(not vector.scalar)
    return _Way(part.nodes + 1, lambda: emit.op("ReduceProd", emit_part(), keepdims=keep))


def _part(emit: NodeList, lengths: Sequence[Length], rows: Sequence[_Row]) -> _Way | None:
    """Return how to compute a vector of just these lengths: a row, or a part of a shape."""
    row = _Row(tuple(lengths))
    if row in rows:
        return _Way(0, lambda: row.emit(emit))
    source, axes = lengths[0].source, [length.axis for length in lengths]
    if not _is_part(emit, axes) or any(n != Length(source, n.axis) for n in lengths):
        return None
    shared = any(
        [n.plain for n in each.lengths if n.source is source] == [*lengths] for each in rows
    )
    return _Way(int(not shared), lambda: row.emit(emit))


@dataclass(frozen=True)
class _Joined:
    """Vectors that are computed at once.

    Attributes:
        vectors: the vectors.
        rows: rows that hold their lengths.
        places: for each factor, the places of all entries in these rows, or behind them for none.
        size: number of the lengths in `rows`.
    """

    vectors: Sequence[Vector]
    rows: tuple[_Row, ...]
    places: tuple[tuple[int, ...], ...]
    size: int

    @classmethod
    def of(cls, vectors: Sequence[Vector], rows: Sequence[_Row]) -> _Joined:
        """Return the vectors with the rows that they need."""
        entries = [entry for vector in vectors for entry in vector.entries]
        home = {length: row for row in reversed(rows) for length in row.lengths}
        used = tuple(row for row in rows if row in {home[n] for n in _lengths(vectors)})
        base = [length for row in used for length in row.lengths]
        count = max((len(entry.lengths) for entry in entries), default=0)
        places = (
            tuple(base.index(e.lengths[i]) if i < len(e.lengths) else len(base) for e in entries)
            for i in range(count)
        )
        return cls(vectors, used, tuple(places), len(base))

    @property
    def _numbers(self) -> list[int]:
        return [entry.number for vector in self.vectors for entry in vector.entries]

    @property
    def _has_one(self) -> bool:
        return any(self.size in places for places in self.places)

    @property
    def nodes(self) -> int:
        """Number of the nodes that compute them, without those of rows."""
        if not self.vectors:
            return 0
        return (
            int(len(self.rows) + self._has_one > 1)
            + sum(places != tuple(range(self.size + self._has_one)) for places in self.places)
            + len(self.places)
            - 1
            + any(number != 1 for number in self._numbers)
            + int(len(self.vectors) > 1)
            + sum(vector.scalar for vector in self.vectors)
        )

    def emit(self, emit: NodeList) -> list[ir.Value]:
        """Emit the nodes and return the vectors."""
        if not self.vectors:
            return []
        pieces = [row.emit(emit) for row in self.rows]
        if self._has_one:
            pieces.append(emit.ints([1], "one"))
        base = pieces[0] if len(pieces) == 1 else emit.op("Concat", *pieces, axis=0)
        order = tuple(range(self.size + self._has_one))
        factors = [
            base
            if places == order
            else emit.op("Gather", base, emit.ints(places, "places"), axis=0)
            for places in self.places
        ]
        total = reduce(lambda one, other: emit.op("Mul", one, other), factors)
        if any(number != 1 for number in self._numbers):
            total = emit.op("Mul", total, emit.ints(self._numbers, "numbers"))
        parts = [total]
        if len(self.vectors) > 1:
            sizes = emit.ints([len(vector.entries) for vector in self.vectors], "parts")
            parts = [*emit.add_node("Split", [total, sizes], len(self.vectors), None, {"axis": 0})]
        return [
            emit.op("Reshape", part, emit.ints([], "scalar_shape")) if vector.scalar else part
            for part, vector in zip(parts, self.vectors, strict=True)
        ]
