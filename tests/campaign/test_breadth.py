"""Every opset, IR version, element type, strategy, place, and degree of knowledge together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random

import breadth
import pytest
import structure
from adapter import convert, plan
from breadth import Corner


def product(opset: int) -> Iterator[Corner]:
    """All corners of an opset; the IR versions take turns."""
    versions = itertools.cycle(breadth.IR_VERSIONS)
    functions = itertools.cycle(v for v in breadth.IR_VERSIONS if v >= 8)
    for operator, dtype, known, place in itertools.product(
        breadth.OPERATORS, breadth.DTYPES, breadth.KNOWN, breadth.PLACES
    ):
        version = next(functions if place == "function" else versions)
        corner = Corner(operator, dtype, opset, version, known, place)
        if breadth.legal(corner):
            yield corner


def try_out(corner: Corner) -> int:
    """Convert a corner with every strategy, run what comes out; the number of different models."""
    model = corner.model()
    if corner.dtype == "bfloat16" and corner.opset < 13:
        needs = (
            f"the model's opset is {corner.opset}; bfloat16 needs 13 or newer (export the model "
            "again with a newer opset)"
        )
        assert {site.reason for site in plan(model).refused} == {needs}
        return 0
    seen: set[bytes] = set()
    for strategy in breadth.FORCED:
        converted = convert(model, prefer=strategy)
        assert structure.spatial(converted) == []
        data = converted.SerializeToString(deterministic=True)
        if data in seen:  # a strategy that does not apply leaves the choice to the others
            continue
        seen.add(data)
        if corner.is_run:
            breadth.check(corner, converted)
    return len(seen)


@pytest.mark.parametrize("opset", breadth.OPSETS)
def test_a_sample_of_every_opset(opset):
    rng = Random(opset)
    for corner in rng.sample(list(product(opset)), 3):
        try_out(corner)


@pytest.mark.slow
@pytest.mark.parametrize("opset", breadth.OPSETS)
def test_the_whole_product(opset):
    corners = list(product(opset))
    models = sum(map(try_out, corners))
    print(f"opset {opset}: {len(corners)} corners, {models} different models")
    assert models > len(corners)
