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

#: (place in a vector, factor) of the part of an amount that only the run knows; None if it has none.
_Term = tuple[int, int] | None


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
    """A part of several amounts that is read from one value.

    Attributes:
        source: the value.
        terms: one term for each amount.
    """

    source: ir.Value
    terms: tuple[_Term, ...]

    @property
    def factors(self) -> set[int]:
        """The factors of all terms."""
        return {term[1] for term in self.terms if term is not None}


class AmountVectors:
    """Writer of the vectors of one graph.

    Attributes:
        elements: names of the values that were read.

    Args:
        view: the graph.
        parameters: run-time pads and crops, by name.
        inside: names of values that are computed in regions.
    """

    def __init__(
        self, view: GraphView, parameters: Mapping[str, ir.Value], inside: Collection[str]
    ) -> None:
        self._view, self._parameters, self._inside = view, parameters, inside
        self._candidates_of: dict[str, list[_Candidate]] = {}
        self._written: dict[tuple[object, ...], ir.Value] = {}
        self.elements: set[str] = set()

    @property
    def opset(self) -> int:
        """Version of the default domain."""
        return self._view.opset

    def write(self, emit: Emitter, amounts: Sequence[PadAmount]) -> ir.Value:
        """Write amounts, at least one of which is computed at run time, as a vector of int64."""
        layers, plus = self._from_one(amounts) or self._from_elements(amounts)
        self.elements.update(layer.source.name or "" for layer in layers)
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
                layer = _Layer(candidate.source, tuple(term for term, _ in pairs))
                return [layer], [plus for _, plus in pairs]
        return None

    def _from_elements(
        self, amounts: Sequence[PadAmount]
    ) -> tuple[Sequence[_Layer], Sequence[int]]:
        """Read the amounts from the parameters themselves."""
        columns: dict[tuple[str, int], list[_Term]] = {}
        for row, amount in enumerate(amounts):
            seen: dict[str, int] = {}
            for (name, place, _), factor in amount.elements:
                number = seen[name] = seen.get(name, 0) + 1
                column = columns.setdefault((name, number), [None] * len(amounts))
                column[row] = (place, factor)
        layers = [_Layer(self._parameters[n], tuple(c)) for (n, _), c in columns.items()]
        return layers, [amount.plus for amount in amounts]

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
        if len(layers) == 1 and layers[0].factors == {1}:
            (layer,) = layers
            if not any(n for term, n in zip(layer.terms, plus, strict=True) if term is not None):
                return self._read(emit, layer, plus)
        if any(plus):
            result = emit.ints(plus, "amounts")
        # What is subtracted comes last: there is something to subtract it from.
        for layer in sorted(layers, key=lambda layer: layer.factors == {-1}):
            value = self._read(emit, layer, [0] * len(plus))
            if layer.factors == {-1}:
                zero = emit.ints([0], "zero")
                result = emit.op("Sub", zero if result is None else result, value)
                continue
            if layer.factors != {1}:
                factors = [0 if term is None else term[1] for term in layer.terms]
                value = emit.op("Mul", value, emit.ints(factors, "factors"))
            result = value if result is None else emit.op("Add", result, value)
        assert result is not None
        return result

    def _read(self, emit: Emitter, layer: _Layer, instead: Sequence[int]) -> ir.Value:
        """Write the elements of a layer as a vector, with other numbers where it has no term."""
        key = (layer.source, layer.terms, tuple(instead))
        if key not in self._written:
            self._written[key] = self._joined(emit, layer, instead)
        return self._written[key]

    def _joined(self, emit: Emitter, layer: _Layer, instead: Sequence[int]) -> ir.Value:
        """Write the vector of `_read` as a Concat, a Gather or both."""
        flat = self._flat(emit, layer.source)
        entries = self._view.sizes.entries(layer.source.name or "")
        whole = None if entries is None else list(range(len(entries)))
        rows = list(zip(layer.terms, instead, strict=True))
        runs = [
            [term[0] for term, _ in group if term is not None]
            for is_read, group in groupby(rows, key=lambda row: row[0] is not None)
            if is_read
        ]
        if sum(places != whole for places in runs) > 1:  # one Gather from one table is less
            numbers = sorted({number for term, number in rows if term is None})
            table = emit.vector([*numbers, flat], "amounts")
            index = [
                numbers.index(number) if term is None else len(numbers) + term[0]
                for term, number in rows
            ]
            return self._gathered(emit, table, index)
        pieces: list[Size] = []
        for is_read, group in groupby(rows, key=lambda row: row[0] is not None):
            if not is_read:
                pieces += [number for _, number in group]
                continue
            places = runs.pop(0)
            pieces.append(flat if places == whole else self._gathered(emit, flat, places))
        return emit.vector(pieces, "amounts")

    def _flat(self, emit: Emitter, source: ir.Value) -> ir.Value:
        """Write a value as a vector of int64."""
        if (source,) not in self._written:
            name, flat = source.name or "", source
            shape = self._view.sizes.shape_of_entries(name)
            if shape is None or len(shape) != 1:
                flat = emit.op("Reshape", flat, emit.ints([-1], "flat"))
            if self._view.element_types(name) != {onnx.TensorProto.INT64}:
                flat = emit.op("Cast", flat, to=int(onnx.TensorProto.INT64))
            self._written[source,] = flat
        return self._written[source,]

    def _gathered(self, emit: Emitter, vector: ir.Value, places: Sequence[int]) -> ir.Value:
        key = (vector, *places)
        if key not in self._written:
            index = emit.ints(places, "index")
            self._written[key] = emit.op("Gather", vector, index, axis=0)
        return self._written[key]


def _entry(amount: PadAmount, entries: Sequence[Polynomial]) -> tuple[_Term, int] | None:
    """Write an amount as an entry of a tensor, or its opposite, plus a number; None if it is none."""
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
