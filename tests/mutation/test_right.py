"""Right conversions that look like wrong ones pass, and the campaigns draw what they say."""

from __future__ import annotations

import deceptions
import equivalents
import numpy as np
import pytest
from adapter import verify
from judging import Judge, apart


@pytest.mark.parametrize("kind", equivalents.CLASSES)
def test_equivalents_pass(kind: str) -> None:
    made = equivalents.draw(kind, 1)
    assert made is not None and made.shown() is None
    result = verify(made.original, made.rewritten)
    assert result.status == "passed", f"{made.what}: {result.message}"


def test_draws_are_the_same_each_time() -> None:
    for kind in ("mistake in a net", "mistake in an odd net"):
        first, second = (deceptions.draw(kind, 3, seed=7) for _ in range(2))
        assert first.what == second.what
        assert first.wrong.SerializeToString() == second.wrong.SerializeToString()


def test_a_judge_sees_what_differs() -> None:
    made = deceptions.draw("nearly the same", 9)
    judge = Judge(made.original, made.right, made.feeds())
    assert judge.difference(made.right) is None
    assert judge.difference(made.wrong)[0] == "silent"
    made.wrong.graph.output[0].name = "other"
    assert judge.difference(made.wrong)[0] == "loud"


def test_errors_of_values_that_are_not_finite() -> None:
    whole, broken = np.array([1.0, np.nan]), np.array([1.0, 0.0])
    assert apart(whole, whole) == 0
    assert apart(whole, broken) == float("inf")
    assert apart(np.array([2.0, 1.0]), np.array([2.0, 1.5])) == 0.25
