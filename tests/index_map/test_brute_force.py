"""The prover agrees with runs at all small sizes, about equal chains and about wrong ones."""

from __future__ import annotations

import brute_force
import maps
import pairs
import pytest

#: Wrong pairs that the prover takes for equal, and why.
OPEN: dict[str, str] = {
    "Split into nothing said": "no rule knows that opset 18 wants the sizes or the number of parts",
    "PRelu of a constant": "0 as a slope is taken for 0 as data",
    "BatchNormalization of other channels": "the sizes of parameters are not required",
    "Conv with a bias of other channels": "the sizes of parameters are not required",
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
