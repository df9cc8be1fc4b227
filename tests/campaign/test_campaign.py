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

SHORT, LONG = range(10), range(2000)


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


def report(found: list[str]) -> str:
    return f"{len(found)} failed\n" + "\n".join(found[:5])


def by_definition(sample: sampling.Sample) -> np.ndarray:
    return sample.expected


@pytest.mark.parametrize("spelling", sampling.SPELLINGS)
def test_by_definition(spelling):
    found = failures(spelling, SHORT, by_definition)
    assert not found, report(found)


@pytest.mark.slow
@pytest.mark.parametrize("spelling", sampling.SPELLINGS)
def test_by_definition_at_length(spelling):
    found = failures(spelling, LONG, by_definition)
    assert not found, report(found)


@pytest.fixture
def tensorflow() -> Callable[[sampling.Sample], np.ndarray | None]:
    pytest.importorskip("tensorflow", reason="tensorflow is not installed")
    return oracles.tensorflow


@pytest.fixture
def openvino() -> Callable[[sampling.Sample], np.ndarray | None]:
    pytest.importorskip("openvino", reason="openvino is not installed")
    return oracles.openvino


@pytest.mark.oracle
@pytest.mark.parametrize("spelling", TENSORFLOW)
def test_against_tensorflow(spelling, tensorflow):
    found = failures(spelling, SHORT, tensorflow, types_of(spelling), fewest=0.4)
    assert not found, report(found)


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("spelling", TENSORFLOW)
def test_against_tensorflow_at_length(spelling, tensorflow):
    found = failures(spelling, LONG, tensorflow, types_of(spelling), fewest=0.5)
    assert not found, report(found)


@pytest.mark.oracle
@pytest.mark.parametrize("spelling", OPENVINO)
def test_against_openvino(spelling, openvino):
    found = failures(spelling, SHORT, openvino, oracles.OPENVINO_TYPES, fewest=0.4)
    assert not found, report(found)


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("spelling", OPENVINO)
def test_against_openvino_at_length(spelling, openvino):
    found = failures(spelling, LONG, openvino, oracles.OPENVINO_TYPES, fewest=0.5)
    assert not found, report(found)
