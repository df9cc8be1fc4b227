"""Maps of each operator, and of random chains of them, are what onnxruntime computes at random sizes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import maps
import onnx
import pytest
import random_nodes
from random_nodes import MOVES, NUMBERS, Sketch

from onnx_spatial.maps import rules_numbers, rules_reshape, rules_select
from onnx_spatial.maps.cases import UndecidedError

KINDS = [*MOVES, *NUMBERS]

#: How many of the random nodes of an operator have a map at least; most where nothing may fail.
LEAST = {"Reshape": 0.2, "GatherND": 0.3, "Gather": 0.4, "Pad": 0.3, "Split": 0.2, "Expand": 0.2}


def check(kind: str, seeds: range, make: Callable[[Random], Sketch]) -> int:
    """Number of random models that have a map, each of which is right."""
    decided = 0
    for seed in seeds:
        rng = Random(f"{kind} {seed}")
        sketch = make(rng)
        model = sketch.model()
        sizes = random_nodes.sizes_of(sketch, rng, 3)
        try:
            difference = maps.disagreement(model, sizes)
        except UndecidedError:
            continue
        decided += 1
        assert difference is None, f"{seed}: {difference}\n{onnx.printer.to_text(model.graph)}"
    return decided


def chain(rng: Random) -> Sketch:
    return random_nodes.chain(rng, rng.randint(2, 6))


def test_every_rule_has_random_nodes():
    without_kernels = {"BitCast", "CastLike"}
    movement = (*rules_reshape.RULES, *rules_select.RULES)
    assert {*movement, *rules_numbers.RULES} <= set(KINDS) | without_kernels


@pytest.mark.parametrize("count", [10, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_map_is_what_onnxruntime_computes(kind, count):
    decided = check(kind, range(count), lambda rng: random_nodes.at_random(rng, kind))
    assert decided >= 0.9 * count * LEAST.get(kind, 0.5)


def test_map_of_random_chains():
    assert check("chain", range(60), chain) >= 25


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 6000, 500))
def test_map_of_thousands_of_random_chains(start):
    assert check("chain", range(start, start + 500), chain) >= 220
