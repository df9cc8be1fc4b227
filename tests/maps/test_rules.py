"""Maps of nodes and of random chains are what runs compute.

Those of the spatial operators are held by tests/operators: their lowerings are right, and proven.
"""

from random import Random

import onnx
import pytest
from maps import maps, snippets

from onnx_spatial.maps import rules_numbers, rules_reshape, rules_select
from onnx_spatial.maps.cases import UndecidedError


def check(model: onnx.ModelProto, rng: Random) -> bool:
    """Whether a model has a map, which is right."""
    sizes = [*snippets.assignments(model, rng, 4)]
    try:
        difference = maps.disagreement(model, sizes)
    except UndecidedError:
        return False
    assert difference is None, f"{difference}\n{onnx.printer.to_text(model.graph)}"
    return True


def test_every_rule_has_a_snippet():
    without_kernels = {"BitCast", "CastLike"}
    rules = {*rules_reshape.RULES, *rules_select.RULES, *rules_numbers.RULES}
    used = {node.op_type for snippet in snippets.SNIPPETS for node in snippet.model.graph.node}
    assert rules <= used | without_kernels


@pytest.mark.parametrize("snippet", snippets.SNIPPETS, ids=str)
def test_the_map_is_what_onnxruntime_computes(snippet):
    assert check(snippet.model, Random(str(snippet)))


@pytest.mark.parametrize("snippet", snippets.FAILING, ids=str)
def test_what_fails_at_some_sizes_has_no_map(snippet):
    assert not check(snippet.model, Random(str(snippet)))


def test_maps_of_random_chains():
    drawn = (Random(f"chain {seed}") for seed in range(60))
    assert sum(check(snippets.chain(rng, 8), rng) for rng in drawn) >= 25
