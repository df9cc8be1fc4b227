"""Chains that are drawn at random are never rewritten to something else."""

from __future__ import annotations

from collections import Counter

import pytest
from campaign_of_chains import GOOD, case


def _outcomes(cases: int, seed: int) -> Counter[str]:
    return Counter(case(number, seed) for number in range(cases))


def test_some_cases():
    outcomes = _outcomes(120, seed=3)
    assert outcomes.keys() <= GOOD
    assert outcomes["right"] >= 30


@pytest.mark.slow
def test_many_cases():
    outcomes = _outcomes(5000, seed=4)
    assert outcomes.keys() <= GOOD
    assert outcomes["right"] >= 1200
