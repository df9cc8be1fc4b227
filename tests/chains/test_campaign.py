"""Chains that are changed at random are never rewritten to something else."""

from __future__ import annotations

from collections import Counter

import campaign_of_movements
import pytest
from campaign_of_chains import case


def _outcomes(cases: int, seed: int) -> Counter[str]:
    return Counter(case(number, seed) for number in range(cases))


def test_some_cases():
    outcomes = _outcomes(60, seed=3)
    assert outcomes["wrong"] == 0
    assert outcomes["right"] >= 15


@pytest.mark.slow
def test_many_cases():
    outcomes = _outcomes(5000, seed=4)
    assert outcomes["wrong"] == 0
    assert outcomes["right"] >= 1200


def test_some_movements():
    outcomes = Counter(campaign_of_movements.case(number, 5) for number in range(60))
    assert outcomes.keys() == {"right", "left"}
    assert outcomes["right"] >= 15


@pytest.mark.slow
def test_many_movements():
    outcomes = Counter(campaign_of_movements.case(number, 6) for number in range(5000))
    assert outcomes.keys() == {"right", "left"}
