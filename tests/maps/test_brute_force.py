"""The prover agrees with runs at all small sizes, about equal chains and about wrong ones."""

from __future__ import annotations

import brute_force
import maps
import onnxruntime
import pairs
import pytest

#: Chains that fail or lose digits before onnxruntime 1.32 only. The prover assumes the worst.
MENDED = {"Split into more parts than elements", "Split of 4 into 3", "Range of large numbers"}
NEW = tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 32)


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


@pytest.mark.parametrize("name", pairs.DIFFERENT)
def test_wrong_chains_are_not_proven(name):
    pair = pairs.DIFFERENT[name]
    mended = NEW and name in MENDED
    if difference(pair) is None and not mended:
        raise RuntimeError("the pair does not differ at these sizes")
    assert not maps.compare(*pair.models()).equal


def test_a_list_of_all_elements_is_longer_than_a_size():
    # Fails in a run only from 2^27 elements on.
    assert difference(pairs.FLAT) is None
    comparison = maps.compare(*pairs.FLAT.models())
    assert comparison.reason is not None and comparison.reason.startswith("Gather")
