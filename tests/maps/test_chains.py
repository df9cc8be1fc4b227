"""The map of random chains, and of every lowering, is what onnxruntime computes at random sizes."""

from __future__ import annotations

from random import Random

import maps
import onnx
import pytest
import random_nodes

from onnx_spatial.maps.cases import UndecidedError


def check(seeds: range) -> int:
    """Number of random chains that have a map, each of which is right."""
    decided = 0
    for seed in seeds:
        rng = Random(f"chain {seed}")
        sketch = random_nodes.chain(rng, rng.randint(2, 6))
        model = sketch.model()
        sizes = random_nodes.sizes_of(sketch, rng, 3)
        try:
            difference = maps.disagreement(model, sizes)
        except UndecidedError:
            continue
        decided += 1
        assert difference is None, f"{seed}: {difference}\n{onnx.printer.to_text(model.graph)}"
    return decided


def test_map_of_random_chains():
    assert check(range(60)) >= 30


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 6000, 500))
def test_map_of_thousands_of_random_chains(start):
    assert check(range(start, start + 500)) >= 250
