"""Plans of stages lead from one order to the other, and more work is never cheaper."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_spatial.lowering import cost_model
from onnx_spatial.lowering.permutation import Problem, are_merged, cheapest_plan


@st.composite
def problems(draw):
    sizes = tuple(draw(st.lists(st.integers(2, 9), min_size=2, max_size=5)))
    order = tuple(range(len(sizes)))
    after = tuple(draw(st.permutations(order)))
    unknown = frozenset(draw(st.sets(st.sampled_from(order), max_size=2)))
    itemsize = draw(st.sampled_from([1, 2, 4, 8]))
    limit = draw(st.sampled_from([2, 3, 64]))
    return Problem((sizes,), order, after, itemsize, unknown, draw(st.booleans()), limit)


@settings(max_examples=200)
@given(problems())
def test_stages_lead_from_one_order_to_the_other_within_what_is_asked(problem):
    stages = cheapest_plan(problem)
    if stages is None:
        assert problem.rank_limit < 64 or (problem.gathers and problem.before == problem.after)
        return
    order = problem.before
    for stage in stages:
        assert stage.before == order and sorted(stage.after) == sorted(order)
        order = stage.after
        perm = tuple(stage.before.index(f) for f in stage.after)
        dims, _ = cost_model.merged(tuple(problem.cases[0][f] for f in stage.before), perm)
        assert stage.kind == "gather" or len(dims) <= problem.rank_limit
    assert order == problem.after and len(stages) <= 3
    assert [stage.kind for stage in stages].count("gather") == problem.gathers
    # onnxruntime makes one slow Transpose of two where the Reshape between only splits.
    assert not any(are_merged(a, b) for a, b in pairwise(stages))
    plain = cheapest_plan(replace(problem, gathers=False, rank_limit=64))
    assert bool(plain) == (problem.before != problem.after)


def test_a_plan_is_chosen_for_all_cases_of_estimates():
    """Rows of 512 elements compete for the lines of a cache, in the plan that is best for others."""
    small, large = (2, 2, 80, 160), (2, 2, 256, 512)

    def planned(*cases):
        order, after = (0, 1, 2, 3), (2, 0, 3, 1)
        return cheapest_plan(Problem(cases, order, after, 4, frozenset({2, 3}), False, 64))

    assert planned(small) != planned(large)
    assert planned(small, small) == planned(small)
    assert planned(small, *[large] * 9) == planned(large)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_merging_axes_keeps_the_movement_which_has_a_price(sizes, data):
    perm = data.draw(st.permutations(range(len(sizes))))
    x = np.arange(math.prod(sizes)).reshape(sizes)
    small, order = cost_model.merged(sizes, perm)
    assert np.array_equal(x.transpose(perm).ravel(), x.reshape(small).transpose(order).ravel())
    assert 1 not in small and all(b != a + 1 for a, b in pairwise(order))
    assert cost_model.transpose(tuple(sizes), tuple(perm), 4).nanoseconds > 0
