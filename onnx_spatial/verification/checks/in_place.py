"""Prove sites in place, bit for bit: the numpy kernel on what goes into a site in the converted model.

In a run of the whole converted model the kernel is applied to the site's own inputs there, and must
give the site's own output. Where these values are gone, the nearest ones around them are compared
(`transpose_chain`; for a site that was merged with others, `matching_region`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from onnx_spatial.errors import OperatorError
from onnx_spatial.model import traversal
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.arrays import dtype_name as array_dtype_name
from onnx_spatial.verification.checks.isolated import OperatorCheck
from onnx_spatial.verification.checks.region import Compared, Proof
from onnx_spatial.verification.compare.bitwise import bitwise
from onnx_spatial.verification.compare.exactness import Exactness
from onnx_spatial.verification.compare.outputs import compare
from onnx_spatial.verification.report import Check
from onnx_spatial.verification.subgraphs.converted_part import Converted
from onnx_spatial.verification.subgraphs.transpose_chain import Original, TransposeChain


class Recorder(Protocol):
    """What takes note of comparisons: a site, or another node."""

    def record(self, check: Check, inputs: Mapping[str, Array], value: str) -> None:
        """Keep a comparison of a value."""


class InPlace:
    """Sites of the main graph whose inputs and output can be read off a run of the whole."""

    def __init__(
        self,
        sites: Sequence[OperatorCheck],
        original: Original,
        converted: Converted,
        merged: Sequence[tuple[Recorder, Proof]] = (),
    ) -> None:
        self._converted = converted
        self._merged = [(s, p) for s, p in merged if p.region.place == traversal.Place()]
        self._stretches = [
            (site, next((s for s in stretches if converted.holds(s.source)), stretches[0]))
            for site in sites
            if site.info.call is not None and site.info.place == traversal.Place()
            for stretches in original.stretches(site.info, converted.computes)
        ]

    def parts(self, size_of: Callable[[int], int], most: int) -> list[InPlace]:
        """Return the same in parts of which each reads off few bytes in one run.

        Args:
            size_of: bytes of a site's data, by its position in `traversal.nodes`.
            most: bytes of one part, if it holds more than one site or region.
        """
        parts: list[InPlace] = []
        left = 0
        for stretch in self._stretches:
            size = 2 * size_of(stretch[1].head.index)
            if size > left or not parts:
                parts.append(self._empty())
                left = most
            parts[-1]._stretches.append(stretch)
            left -= size
        regions: dict[tuple[traversal.Place, str], list[tuple[Recorder, Proof]]] = {}
        for merged in self._merged:
            regions.setdefault((merged[1].region.place, merged[1].region.output), []).append(merged)
        for group in regions.values():
            region = group[0][1].region
            largest = max(map(size_of, region.sites), default=0)
            size = (len(region.inputs) + 1) * largest
            if size > left or not parts:
                parts.append(self._empty())
                left = most
            parts[-1]._merged += group
            left -= size
        return parts or [self]

    def _empty(self) -> InPlace:
        part = copy.copy(self)
        part._stretches, part._merged = [], []
        return part

    def wanted(self) -> list[str]:
        """Names of the values to read off, each computed by a node of the main graph."""
        names = [n for _, s in self._stretches for n in (s.source, *s.head.node.input[1:], s.sink)]
        names += [n for _, p in self._merged for n in (*p.region.inputs, p.region.output)]
        return [n for n in dict.fromkeys(names) if self._converted.computes(n)]

    def compare(self, values: Mapping[str, Array], other: Callable[[str], Array | None]) -> None:
        """Compare each site by the values of one run.

        Args:
            values: what was read off, by name, and what was fed.
            other: value of an initializer by name, None if there is none.
        """
        for site, stretch in self._stretches:
            names = [stretch.source, *stretch.head.node.input[1:]]
            facts = stretch.head.facts
            arrays: list[Array | None] = []
            missing = stretch.sink not in values
            for index, name in enumerate(names):
                fact = facts.inputs[index] if index < len(facts.inputs) else None
                value = fact.value if fact is not None else None
                if name and value is None:
                    value = values.get(name)
                    value = other(name) if value is None else value
                    missing |= value is None
                arrays.append(value)
            if not missing and arrays[0] is not None:
                _compare_in_place(site, stretch, arrays, values[stretch.sink])
        outcomes: dict[
            tuple[traversal.Place, str], Compared | str
        ] = {}  # several sites may share one
        for recorder, proof in self._merged:
            region = proof.region
            key = (region.place, region.output)
            if key not in outcomes:
                found = {n: values.get(n) for n in region.inputs}
                found.update((n, other(n)) for n, value in found.items() if value is None)
                feeds = {n: a for n, a in found.items() if a is not None}
                if region.output not in values or len(feeds) < len(found):
                    outcomes[key] = "its values are not all at hand"
                else:
                    outcomes[key] = proof.in_place(feeds, values[region.output])
            compared = outcomes[key]
            if not isinstance(compared, str):
                recorder.record(compared.check, compared.feeds, region.output)


def _compare_in_place(
    site: OperatorCheck, stretch: TransposeChain, arrays: Sequence[Array | None], actual: Array
) -> None:
    x = arrays[0]
    assert x is not None
    names = [stretch.source, *stretch.head.node.input[1:]]
    inputs = {n: a for n, a in zip(names, arrays, strict=False) if n and a is not None}
    try:
        expected = stretch.run(arrays)
    except OperatorError as error:  # its inputs in the converted model are not the original's
        check = Check("in place", False, array_dtype_name(x), x.shape, 0, 0, str(error))
        site.record(check, inputs, stretch.sink)
        return
    check = bitwise("in place", False, x, expected, actual)
    if site.merged and not check.passed:
        # A convolution that took the site in computes the same reals in another order.
        (close,) = compare("", 0, False, expected, actual, Exactness(arithmetic=True))
        check = replace(
            check,
            mismatches=close.mismatches,
            reason=None if close.passed else check.reason,
            exact=False,
            max_relative_error=close.max_relative_error,
        )
    site.record(check, inputs, stretch.sink)
