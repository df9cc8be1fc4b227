"""Compare operators in place, bit for bit: the numpy kernel on an operator's inputs in a whole run.

In a run of the whole converted model the kernel is applied to the operator's own inputs there, and must
give the operator's own output. Where these values are gone, the nearest ones around them are compared
(`transpose_chain`; for an operator that was fused with others, `matching_region`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx

from onnx_spatial.errors import OperatorError
from onnx_spatial.model import traversal
from onnx_spatial.model.io import reader
from onnx_spatial.verification.arrays import (
    Array,
    constant_value,
    dtype_name,
)
from onnx_spatial.verification.checks.findings import OperatorCheck, Recorder
from onnx_spatial.verification.checks.region import RegionComparison
from onnx_spatial.verification.compare.bitwise import bitwise
from onnx_spatial.verification.compare.outputs import within_tolerance
from onnx_spatial.verification.match.graphs import Graphs
from onnx_spatial.verification.report import Check
from onnx_spatial.verification.runtime.sessions import CONVERTED, RunFailure, Session
from onnx_spatial.verification.subgraphs.transpose_chain import Original, TransposeChain

_MAIN = traversal.Place()


class InPlace:
    """Operators and regions of the main graph to compare in runs of the whole converted model.

    `watched` are the nodes that are to be compared by their regions.
    """

    def __init__(
        self,
        operators: Sequence[OperatorCheck],
        original: Original,
        converted: Graphs,
        watched: Sequence[tuple[Recorder, RegionComparison]] = (),
    ) -> None:
        self._converted = converted
        self._regions: dict[str, tuple[RegionComparison, list[Recorder]]] = {}
        for recorder, comparison in watched:
            if comparison.region.place == _MAIN:  # several nodes may share a region
                self._regions.setdefault(comparison.region.output, (comparison, []))[1].append(
                    recorder
                )
        self._chains = [
            (operator, next((c for c in chains if converted.holds(c.source)), chains[0]))
            for operator in operators
            if operator.info.call is not None and operator.info.place == _MAIN
            for chains in original.stretches(operator.info, converted.computes)
        ]

    def parts(self, size_of: Callable[[int], int], most: int) -> list[InPlace]:
        """Split into parts, each of which fetches at most `most` bytes in one run, or a single operator.

        `size_of` gives the bytes of an operator's data by its position in `traversal.nodes`.
        """
        parts: list[InPlace] = []
        left = 0

        def part_for(size: int) -> InPlace:
            nonlocal left
            if size > left or not parts:
                part = copy.copy(self)
                part._chains, part._regions = [], {}
                parts.append(part)
                left = most
            left -= size
            return parts[-1]

        for operator, chain in self._chains:
            part_for(2 * size_of(chain.head.index))._chains.append((operator, chain))
        for output, (comparison, recorders) in self._regions.items():
            largest = max(map(size_of, comparison.region.sites), default=0)
            part = part_for((len(comparison.region.inputs) + 1) * largest)
            part._regions[output] = (comparison, recorders)
        return parts or [self]

    def value_names(self) -> list[str]:
        """Return the names of the values to fetch, each computed by a node of the main graph."""
        names = [n for _, c in self._chains for n in (c.source, *c.head.node.input[1:], c.sink)]
        for comparison, _ in self._regions.values():
            names += [*comparison.region.inputs, comparison.region.output]
        return [n for n in dict.fromkeys(names) if self._converted.computes(n)]

    def compare(self, values: Mapping[str, Array], stored: Callable[[str], Array | None]) -> None:
        """Compare every operator and region by the values of one run, fetched, fed or stored."""

        def value_of(name: str) -> Array | None:
            value = values.get(name)
            return stored(name) if value is None else value

        for operator, chain in self._chains:
            _compare_chain(operator, chain, value_of, values.get(chain.sink))
        for output, (comparison, recorders) in self._regions.items():
            inputs = {n: value_of(n) for n in comparison.region.inputs}
            feeds = {n: a for n, a in inputs.items() if a is not None}
            if output not in values or len(feeds) < len(inputs):
                continue
            compared = comparison.in_place(feeds, values[output])
            if not isinstance(compared, str):
                for recorder in recorders:
                    recorder.record(compared.check, compared.feeds, output)


def _compare_chain(
    operator: OperatorCheck,
    chain: TransposeChain,
    value_of: Callable[[str], Array | None],
    actual: Array | None,
) -> None:
    names = [chain.source, *chain.head.node.input[1:]]
    facts = chain.head.facts.inputs
    arrays: list[Array | None] = []
    for index, name in enumerate(names):
        fact = facts[index] if index < len(facts) else None
        value = fact.value if fact is not None else None
        if name and value is None:
            value = value_of(name)
            if value is None:
                return
        arrays.append(value)
    x = arrays[0]
    if actual is None or x is None:
        return
    inputs = {n: a for n, a in zip(names, arrays, strict=True) if n and a is not None}
    try:
        expected = chain.run(arrays)
    except OperatorError as error:  # its inputs in the converted model are not the original's
        check = Check("in place", False, dtype_name(x), x.shape, 0, 0, str(error))
        operator.record(check, inputs, chain.sink)
        return
    check = bitwise("in place", False, x, expected, actual)
    if operator.merged and not check.passed:
        # A convolution that the operator was fused into computes the same reals in another order.
        close = within_tolerance(check, expected, actual)
        check = replace(close, reason=None if close.passed else check.reason)
    operator.record(check, inputs, chain.sink)


class WatchedSession:
    """A session of the converted model that, unless it optimises, fetches what `in_place` compares."""

    def __init__(self, source: reader.Source, in_place: InPlace, *, optimised: bool) -> None:
        self.optimised = optimised
        self._source = source
        self._in_place = in_place
        self._stored = {t.name: t for t in source.proto.graph.initializer}
        self._outputs = [v.name for v in source.proto.graph.output]
        self._extra = (
            [] if optimised else [n for n in in_place.value_names() if n not in self._outputs]
        )

    def load(self) -> None:
        """Make the session.

        Raises:
            RunFailure: the model does not load.
        """
        folder = self._source.folder
        data = self._source.data or reader.serialize(self._source.proto, self._source.name)
        more = onnx.ModelProto()
        more.graph.output.extend(onnx.ValueInfoProto(name=n) for n in self._extra)
        try:
            # Serialized messages that are put together merge: two more kilobytes, and no copy.
            extended = data + more.SerializeToString()
            self._session = Session(extended, optimise=self.optimised, folder=folder, of=CONVERTED)
        except RunFailure:
            if not self._extra:
                raise
            self._extra = []
            self._session = Session(data, folder=folder, of=CONVERTED)

    def run(self, feeds: Mapping[str, Array], *, compare: bool) -> dict[str, Any]:
        """Return the outputs; compare the operators in place if `compare`.

        Raises:
            RunFailure: it cannot run on this data.
        """
        if self.optimised or not compare:
            return self._session.run(feeds, self._outputs)
        try:
            values = self._session.run(feeds, [*self._outputs, *self._extra])
        except RunFailure:
            if not self._extra:
                raise
            # numpy cannot fetch every type from a session that it can also feed strings to.
            values = self._session.run(feeds, self._outputs)
        self._in_place.compare({**feeds, **values}, self._initializer)
        return values

    def _initializer(self, name: str) -> Array | None:
        tensor = self._stored.get(name)
        return None if tensor is None else constant_value(tensor, self._source.folder)
