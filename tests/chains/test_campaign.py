"""Chains that are drawn at random are never rewritten to something else."""

from __future__ import annotations

from collections import Counter

import pytest
from campaign_of_chains import GOOD, outcome


@pytest.mark.parametrize(
    ("cases", "seed", "rewritten"),
    [(60, 3, 15), pytest.param(5000, 4, 1200, marks=pytest.mark.slow)],
)
def test_random_chains(cases, seed, rewritten):
    found = {number: outcome(number, seed) for number in range(cases)}
    assert {number: each for number, each in found.items() if each not in GOOD} == {}
    assert Counter(found.values())["right"] >= rewritten
