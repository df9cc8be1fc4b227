"""Thousands of random nodes, each in a random model, against their definition and other runtimes.

    pytest -m slow tests/campaign                 2,000 per operator and spelling
    pytest -m "slow and oracle" tests/campaign    the same against TensorFlow and OpenVINO

Every case is made from its spelling and number alone; a failure names both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import oracles
import pytest
import running
import sampling
from adapter import convert
from building import ELEMENT_TYPES

#: Numbers of the cases: a few by default, all in the weekly run.
NUMBERS = pytest.mark.parametrize(
    "numbers", [range(10), pytest.param(range(2000), marks=pytest.mark.slow)], ids=len
)


def types_of(spelling: str) -> Sequence[str]:
    """The element types for which TensorFlow has kernels."""
    patches = spelling in ("image-tf", "volume")
    return oracles.PATCH_TYPES if patches else oracles.BLOCK_TYPES


TENSORFLOW = [s for s in sampling.SPELLINGS if "openvino" not in s]
OPENVINO = [s for s in sampling.SPELLINGS if "openvino" in s]


def failures(
    spelling: str,
    numbers: Sequence[int],
    expected: Callable[[sampling.Sample], np.ndarray | None],
    types: Sequence[str] = tuple(ELEMENT_TYPES),
    fewest: float = 1.0,
) -> list[str]:
    """The cases that do not come out as expected.

    Args:
        spelling: which nodes to draw.
        numbers: of the cases.
        expected: what is right; None if that cannot be told.
        types: element types of the data.
        fewest: the share of cases for which it must be told.
    """
    found: list[str] = []
    told = 0
    for number in numbers:
        rng = Random(f"{spelling} {number}")
        sample = sampling.retyped(rng, sampling.SPELLINGS[spelling](rng), types)
        form = sampling.form(rng, sample)
        case = f"case {number} of {spelling!r}\n  {sample}\n  {form}\n  "
        wanted = expected(sample)
        if wanted is None:
            continue
        told += 1
        try:
            converted = convert(form.model(sample), prefer=form.strategy)
            feeds = form.feeds(sample)
            for level in running.LEVELS:
                (result,) = running.run(converted, feeds, level)
                if not running.same_bits(result, wanted):
                    found.append(f"{case}differs at {level}: {result.shape} {wanted.shape}")
                    break
        except Exception as error:
            found.append(f"{case}{type(error).__name__}: {error}")
    assert told >= fewest * len(numbers), f"only {told} of {len(numbers)} cases could be told"
    return found


def fewest(numbers: Sequence[int]) -> float:
    return 0.5 if len(numbers) > 100 else 0.4


def report(found: list[str]) -> str:
    return f"{len(found)} failed\n" + "\n".join(found[:5])


def by_definition(sample: sampling.Sample) -> np.ndarray:
    return sample.expected


@NUMBERS
@pytest.mark.parametrize("spelling", sampling.SPELLINGS)
def test_by_definition(spelling, numbers):
    found = failures(spelling, numbers, by_definition)
    assert not found, report(found)


@pytest.mark.oracle
@NUMBERS
@pytest.mark.parametrize("spelling", TENSORFLOW)
def test_against_tensorflow(spelling, numbers):
    pytest.importorskip("tensorflow", reason="tensorflow is not installed")
    found = failures(
        spelling, numbers, oracles.tensorflow, types_of(spelling), fewest=fewest(numbers)
    )
    assert not found, report(found)


@pytest.mark.oracle
@NUMBERS
@pytest.mark.parametrize("spelling", OPENVINO)
def test_against_openvino(spelling, numbers):
    pytest.importorskip("openvino", reason="openvino is not installed")
    found = failures(
        spelling, numbers, oracles.openvino, oracles.OPENVINO_TYPES, fewest=fewest(numbers)
    )
    assert not found, report(found)
