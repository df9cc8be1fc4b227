"""The map of each operator is what onnxruntime computes, at random sizes and with random attributes."""

from __future__ import annotations

from random import Random

import maps
import onnx
import pytest
import random_nodes
from random_nodes import MOVES, NUMBERS

from onnx_spatial.maps import rules_numbers, rules_reshape, rules_select
from onnx_spatial.maps.cases import UndecidedError

KINDS = [*MOVES, *NUMBERS]

#: How many of the random nodes of an operator have a map at least; most where nothing may fail.
LEAST = {"Reshape": 0.2, "GatherND": 0.3, "Gather": 0.4, "Pad": 0.3, "Split": 0.2, "Expand": 0.2}


def check(kind: str, seeds: range) -> int:
    """Number of random nodes that have a map, each of which is right."""
    decided = 0
    for seed in seeds:
        rng = Random(f"{kind} {seed}")
        sketch = random_nodes.at_random(rng, kind)
        model = sketch.model()
        sizes = random_nodes.sizes_of(sketch, rng, 3)
        try:
            difference = maps.disagreement(model, sizes)
        except UndecidedError:
            continue
        decided += 1
        assert difference is None, f"{difference}\n{onnx.printer.to_text(model.graph)}"
    return decided


def test_every_rule_has_random_nodes():
    without_kernels = {"BitCast", "CastLike"}
    movement = (*rules_reshape.RULES, *rules_select.RULES)
    assert {*movement, *rules_numbers.RULES} <= set(KINDS) | without_kernels


@pytest.mark.parametrize("kind", KINDS)
def test_map_is_what_onnxruntime_computes(kind):
    decided = check(kind, range(10))
    assert decided >= 10 * LEAST.get(kind, 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_map_is_what_onnxruntime_computes_many_times(kind):
    check(kind, range(10, 600))
