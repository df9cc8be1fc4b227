"""Write pads and crops that are computed at run time as one vector, in few nodes.

    amounts   [0, 0, 0, 0, 0, 0, e, f]          Concat(zeros, [e, f])
              [0, 0, 2, 2, 0, 0, 2 - e, 2 - f]  Sub(constant, the vector above)

Models hold the pads of SpaceToBatch in a table [[0, e], [0, f]], which several nodes make of e and f.
The amounts are read from the value with the fewest nodes in front of it, so that the nodes behind it
that only made the table can go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile

import onnx
import onnx_ir as ir

from onnx_spatial.fusion.dilated_conv.graph_view import GraphView
from onnx_spatial.fusion.dilated_conv.pad_amounts import PadAmount
from onnx_spatial.lowering import Emitter
from onnx_spatial.lowering.core.builder import Size
from onnx_spatial.model.symbolic.symbolic_values import Polynomial

#: Most nodes in front of a parameter that are searched for the same numbers.
_FAR = 64

#: An element of a value: the value, and the place in it.
_Place = tuple[ir.Value, int]


@dataclass(frozen=True)
class _Candidate:
    """A value that amounts may be read from.

    Attributes:
        source: the value.
        entries: its elements.
        rank: smaller for values with fewer nodes in front, none of them in a region.
    """

    source: ir.Value
    entries: tuple[Polynomial, ...]
    rank: tuple[bool, int, str]


@dataclass(frozen=True)
class _Layer:
    """A part of several amounts that is read from few values.

    Attributes:
        places: the element of each amount; None for one that has no part here.
        factors: what each element is multiplied by.
    """

    places: tuple[_Place | None, ...]
    factors: tuple[int, ...]

    @property
    def different_factors(self) -> set[int]:
        """The factors of all elements."""
        pairs = zip(self.places, self.factors, strict=True)
        return {factor for place, factor in pairs if place is not None}


class AmountVectors:
    """Writer of the vectors of one graph.

    Attributes:
        elements: names of the values that were read.

    Args:
        view: the graph.
        parameters: run-time pads and crops, by name.
        inside: names of values that are computed in regions.
        zeros: names of parameters whose first element is 0 in every legal run.
    """

    def __init__(
        self,
        view: GraphView,
        parameters: Mapping[str, ir.Value],
        inside: Collection[str],
        zeros: Collection[str] = (),
    ) -> None:
        self._view, self._parameters, self._inside = view, parameters, inside
        self._zeros = zeros
        self._candidates_of: dict[str, list[_Candidate]] = {}
        self._written: dict[tuple[object, ...], ir.Value] = {}
        self._flats: dict[ir.Value, ir.Value] = {}
        self.elements: set[str] = set()

    @property
    def opset(self) -> int:
        """Version of the default domain."""
        return self._view.opset

    def write(self, emit: Emitter, amounts: Sequence[PadAmount]) -> ir.Value:
        """Write amounts, at least one of which is computed at run time, as a vector of int64."""
        ways = [way for way in (self._from_one(amounts), self._from_several(amounts)) if way]
        layers, plus = min(ways, key=self._effort, default=None) or self._from_elements(amounts)
        places = [place for layer in layers for place in layer.places if place is not None]
        self.elements.update(source.name or "" for source, _ in places)
        return self._sum(emit, layers, plus)

    def _from_one(
        self, amounts: Sequence[PadAmount]
    ) -> tuple[Sequence[_Layer], Sequence[int]] | None:
        """Read all amounts from the value with the fewest nodes in front; None if no value has all."""
        names = {element.name for amount in amounts for element, _ in amount.elements}
        candidates = {c.source: c for name in sorted(names) for c in self._candidates(name)}
        for candidate in sorted(candidates.values(), key=lambda c: c.rank):
            matches = takewhile(bool, (_entry(amount, candidate.entries) for amount in amounts))
            pairs = [pair for pair in matches if pair is not None]
            if len(pairs) == len(amounts):
                terms = [term for term, _ in pairs]
                places = tuple(None if t is None else (candidate.source, t[0]) for t in terms)
                factors = tuple(0 if t is None else t[1] for t in terms)
                return [_Layer(places, factors)], [plus for _, plus in pairs]
        return None

    def _from_several(
        self, amounts: Sequence[PadAmount]
    ) -> tuple[Sequence[_Layer], Sequence[int]] | None:
        """Read each amount from the value with the fewest nodes in front; None if one is no element."""
        rows, plus = [], []
        for amount in amounts:
            candidates = [
                c for element, _ in amount.elements for c in self._candidates(element.name)
            ]
            matches = (
                (candidate, pair)
                for candidate in sorted(candidates, key=lambda c: c.rank)
                if (pair := _entry(amount, candidate.entries)) is not None
            )
            match = next(matches, None)
            if match is None and amount.constant is None:
                return None
            term, number = (None, amount.constant or 0) if match is None else match[1]
            plus.append(number)
            rows.append([] if match is None or term is None else [(match[0].source, *term)])
        return _layers(rows), plus

    def _effort(self, way: tuple[Sequence[_Layer], Sequence[int]]) -> int:
        """Estimate the number of nodes that give amounts, those in front of them included."""
        sources = dict.fromkeys(place[0] for layer in way[0] for place in layer.places if place)
        nodes = {value.producer() for source in sources for value in _ancestors(source)}
        count = len(nodes - {None}) + len(way[0])
        for source in sources:
            name = source.name or ""
            count += self._view.element_types(name) != {onnx.TensorProto.INT64}
            count += len(self._view.sizes.shape_of_entries(name) or ()) != 1
            used = {
                place[1]
                for layer in way[0]
                for place in layer.places
                if place and place[0] is source
            }
            count += not self._is_whole(source, sorted(used))
        return count

    def _from_elements(
        self, amounts: Sequence[PadAmount]
    ) -> tuple[Sequence[_Layer], Sequence[int]]:
        """Read the amounts from the parameters themselves."""
        rows = [
            [
                (self._parameters[name], place, factor)
                for (name, place, _), factor in amount.elements
            ]
            for amount in amounts
        ]
        return _layers(rows), [amount.plus for amount in amounts]

    def _candidates(self, parameter: str) -> Sequence[_Candidate]:
        """List the values that a parameter is computed from, and itself, whose elements are known."""
        if parameter not in self._candidates_of:
            self._candidates_of[parameter] = []
            for source in _ancestors(self._parameters[parameter]):
                name = source.name or ""
                entries = self._view.sizes.entries(name) if name else None
                if entries is None or name in self._inside or not self._is_integer(name):
                    continue
                ancestors = _ancestors(source)
                of_region = any(value.name in self._inside for value in ancestors)
                rank = (of_region, len(ancestors), name)
                self._candidates_of[parameter].append(_Candidate(source, entries, rank))
        return self._candidates_of[parameter]

    def _is_integer(self, name: str) -> bool:
        return self._view.element_types(name) <= {onnx.TensorProto.INT32, onnx.TensorProto.INT64}

    def _sum(self, emit: Emitter, layers: Sequence[_Layer], plus: Sequence[int]) -> ir.Value:
        """Write the sum of layers and numbers."""
        result: ir.Value | None = None
        if len(layers) == 1 and layers[0].different_factors == {1}:
            (layer,) = layers
            if not any(n for place, n in zip(layer.places, plus, strict=True) if place is not None):
                return self._read(emit, layer, plus)
        if any(plus):
            result = emit.ints(plus, "amounts")
        # What is subtracted comes last: there is something to subtract it from.
        for layer in sorted(layers, key=lambda layer: layer.different_factors == {-1}):
            value = self._read(emit, layer, [0] * len(plus))
            if layer.different_factors == {-1}:
                value = value if result is not None else emit.op("Neg", value)
                result = value if result is None else emit.op("Sub", result, value)
                continue
            if layer.different_factors != {1}:
                value = emit.op("Mul", value, emit.ints(layer.factors, "factors"))
            result = value if result is None else emit.op("Add", result, value)
        assert result is not None
        return result

    def _read(self, emit: Emitter, layer: _Layer, instead: Sequence[int]) -> ir.Value:
        """Write the elements of a layer as a vector, with other numbers where it has none."""
        key = (layer.places, tuple(instead))
        if key not in self._written:
            rows: list[_Place | int] = [
                number if place is None else place
                for place, number in zip(layer.places, instead, strict=True)
            ]
            for at in range(len(rows) - 1):  # a vector that is read as a whole needs no Gather
                behind = rows[at + 1]
                if rows[at] == 0 and isinstance(behind, tuple) and behind[1] == 1:
                    rows[at] = (behind[0], 0) if behind[0].name in self._zeros else 0
            self._written[key] = self._gathered_rows(emit, rows) or self._joined(emit, rows)
        return self._written[key]

    def _runs(self, rows: Sequence[_Place | int]) -> list[tuple[ir.Value | None, list[int]]]:
        """Group rows that follow each other: the source and its places, or None and numbers."""
        grouped = groupby(rows, key=lambda row: row[0] if isinstance(row, tuple) else None)
        return [
            (source, [row[1] if isinstance(row, tuple) else row for row in group])
            for source, group in grouped
        ]

    def _is_whole(self, source: ir.Value, places: Sequence[int]) -> bool:
        entries = self._view.sizes.entries(source.name or "")
        return entries is not None and list(places) == list(range(len(entries)))

    def _joined(self, emit: Emitter, rows: Sequence[_Place | int]) -> ir.Value:
        """Write rows as a Concat of numbers, values and Gathers from values."""
        pieces: list[Size] = []
        for source, places in self._runs(rows):
            if source is None:
                pieces += places
                continue
            flat = self._flat(emit, source)
            whole = self._is_whole(source, places)
            pieces.append(flat if whole else self._gathered(emit, flat, places))
        return emit.vector(pieces, "amounts")

    def _gathered_rows(self, emit: Emitter, rows: Sequence[_Place | int]) -> ir.Value | None:
        """Write rows as one Gather from all values; None if `_joined` needs no more nodes."""
        runs = self._runs(rows)
        sources = list(dict.fromkeys(source for source, _ in runs if source is not None))
        cut = [(s, places) for s, places in runs if s is not None and not self._is_whole(s, places)]
        new = {
            (s, *places) for s, places in cut if (self._flats.get(s), *places) not in self._written
        }
        lengths = [self._view.sizes.entries(source.name or "") for source in sources[:-1]]
        if len(new) < 2 or None in lengths:
            return None
        firsts = {}
        numbers = sorted({row for row in rows if isinstance(row, int)})
        zero = next((s for s in sources if s.name in self._zeros), None)
        if zero is not None and 0 in numbers:
            numbers.remove(0)
        end = len(numbers)
        for source, entries in zip(sources, (*lengths, ()), strict=True):
            firsts[source] = end
            end += len(entries or ())
        index = [
            (firsts[zero] if zero is not None and row == 0 else numbers.index(row))
            if isinstance(row, int)
            else firsts[row[0]] + row[1]
            for row in rows
        ]
        flats = [self._flat(emit, source) for source in sources]
        key = (*numbers, *flats)
        if key not in self._written:
            self._written[key] = emit.vector([*numbers, *flats], "amounts")
        return self._gathered(emit, self._written[key], index)

    def _flat(self, emit: Emitter, source: ir.Value) -> ir.Value:
        """Write a value as a vector of int64."""
        if source not in self._flats:
            name, flat = source.name or "", source
            shape = self._view.sizes.shape_of_entries(name)
            if shape is None or len(shape) != 1:
                flat = emit.op("Reshape", flat, emit.ints([-1], "flat"))
            if self._view.element_types(name) != {onnx.TensorProto.INT64}:
                flat = emit.op("Cast", flat, to=int(onnx.TensorProto.INT64))
            self._flats[source] = flat
        return self._flats[source]

    def _gathered(self, emit: Emitter, vector: ir.Value, places: Sequence[int]) -> ir.Value:
        key = (vector, *places)
        if key not in self._written:
            index = emit.ints(places, "index")
            self._written[key] = emit.op("Gather", vector, index, axis=0)
        return self._written[key]


def _layers(rows: Sequence[Sequence[tuple[ir.Value, int, int]]]) -> list[_Layer]:
    """Sort the (source, place, factor) that each amount is the sum of into layers of one factor."""
    layers: list[tuple[int, list[_Place | None]]] = []
    for row, terms in enumerate(rows):
        for source, place, factor in terms:
            free = (places for f, places in layers if f == factor and places[row] is None)
            places = next(free, None)
            if places is None:
                places = [None] * len(rows)
                layers.append((factor, places))
            places[row] = (source, place)
    return [_Layer(tuple(places), (factor,) * len(rows)) for factor, places in layers]


def _entry(
    amount: PadAmount, entries: Sequence[Polynomial]
) -> tuple[tuple[int, int] | None, int] | None:
    """Write an amount as an entry of a tensor, or its opposite, plus a number; None if it is none.

    The entry is given as (place, factor), and None for an amount that is a number.
    """
    if amount.constant is not None:
        return None, amount.constant
    for place, entry in enumerate(entries):
        for factor in (1, -1):
            plus = (amount.expression - entry * factor).constant
            if plus is not None:
                return (place, factor), plus
    return None


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
