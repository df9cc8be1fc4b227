"""The prover agrees with runs at all small sizes, about equal chains and about wrong ones."""

from __future__ import annotations

import brute_force
import maps
import pairs
import pytest

_OVERFLOW = "sums and products are bounded term by term"
_SPLIT = "the parts of a Split are not checked"
_SCALAR = "a list of sizes may be a scalar"

#: Wrong pairs that the prover takes for equal, and why.
OPEN: dict[str, str] = {
    "int32 overflows in a sum": _OVERFLOW,
    "int64 overflows in a sum": _OVERFLOW,
    "int64 overflows in a sum of a choice": _OVERFLOW,
    "int64 overflows in a power": _OVERFLOW,
    "int32 overflows in a square": _OVERFLOW,
    "a square is cast to int32": _OVERFLOW,
    "Range of large numbers": _OVERFLOW,
    "Slice to the start by the largest end": "onnxruntime reads it as no end at all",
    "Split of 4 into 3": _SPLIT,
    "Split into nothing said": _SPLIT,
    "Reshape by a scalar": _SCALAR,
    "ConstantOfShape of a scalar": _SCALAR,
}


def difference(pair: pairs.Pair) -> brute_force.Sizes | None:
    original, converted = pair.models()
    sizes = [*brute_force.up_to(6, brute_force.names_of(original)), *pair.sizes]
    return brute_force.first_difference(original, converted, sizes)


@pytest.mark.parametrize("name", pairs.EQUAL)
def test_equal_chains_are_proven(name):
    pair = pairs.EQUAL[name]
    assert difference(pair) is None
    comparison = maps.compare(*pair.models())
    assert comparison.equal, comparison.reason


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.xfail(strict=True, reason=OPEN[n])] if n in OPEN else [])
        for n in pairs.DIFFERENT
    ],
)
def test_wrong_chains_are_not_proven(name):
    pair = pairs.DIFFERENT[name]
    if difference(pair) is None:
        raise RuntimeError("the pair does not differ at these sizes")
    assert not maps.compare(*pair.models()).equal
