"""Factoring a permutation into stages: they lead from one order to the other, within what is asked."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnx_spatial.lowering import stages as module
from onnx_spatial.lowering.core import cost_model
from onnx_spatial.lowering.stages import Problem, Stage, cheapest_plan


@st.composite
def problems(draw):
    sizes = tuple(draw(st.lists(st.integers(2, 9), min_size=2, max_size=5)))
    order = tuple(range(len(sizes)))
    after = tuple(draw(st.permutations(order)))
    unknown = frozenset(draw(st.sets(st.sampled_from(order), max_size=2)))
    itemsize = draw(st.sampled_from([1, 2, 4, 8]))
    limit = draw(st.sampled_from([2, 3, 64]))
    gathers = draw(st.booleans())
    return Problem((sizes,), order, after, itemsize, unknown, gathers, limit)


@settings(max_examples=200)
@given(problems())
def test_stages_lead_from_one_order_to_the_other(problem):
    stages = cheapest_plan(problem)
    if stages is None:
        assert problem.rank_limit < 64 or (problem.gathers and problem.before == problem.after)
        return
    order = problem.before
    for stage in stages:
        assert stage.before == order and sorted(stage.after) == sorted(order)
        order = stage.after
    assert order == problem.after
    assert len(stages) <= 3


@settings(max_examples=100)
@given(problems())
def test_no_stage_breaks_the_rank_limit(problem):
    for stage in cheapest_plan(problem) or ():
        perm = tuple(stage.before.index(f) for f in stage.after)
        dims, _ = cost_model.merged(tuple(problem.cases[0][f] for f in stage.before), perm)
        if stage.kind == "transpose":
            assert len(dims) <= problem.rank_limit


@settings(max_examples=100)
@given(problems())
def test_only_transposes_where_only_they_are_allowed(problem):
    plain = replace(problem, gathers=False, rank_limit=64)
    stages = cheapest_plan(plain)
    assert stages is not None
    assert {stage.kind for stage in stages} <= {"transpose"}
    assert bool(stages) == (plain.before != plain.after)


@settings(max_examples=100)
@given(problems())
def test_one_stage_is_a_gather_where_one_is_needed(problem):
    stages = cheapest_plan(replace(problem, gathers=True))
    assert stages is None or [stage.kind for stage in stages].count("gather") == 1


def test_a_slow_permutation_is_cut_in_two():
    """NCHW, 2x2 blocks: [rows, 2, columns, 2] with the offsets to the front."""
    sizes, after = (64 * 128, 2, 128, 2), (1, 3, 0, 2)
    problem = Problem((sizes,), (0, 1, 2, 3), after, 4, frozenset(), False, 64)
    stages = cheapest_plan(problem)
    assert stages is not None and len(stages) == 2


def test_a_plan_is_chosen_for_all_cases_of_estimates():
    """Rows of 512 elements compete for the lines of a cache, in the plan that is best for others."""
    after = (2, 0, 3, 1)
    small, large = (2, 2, 80, 160), (2, 2, 256, 512)

    def planned(*cases):
        order = (0, 1, 2, 3)
        problem = Problem(cases, order, after, 4, frozenset({2, 3}), False, 64)
        return cheapest_plan(problem)

    assert planned(small) != planned(large)
    assert planned(small, small) == planned(small)
    assert planned(small, *[large] * 9) == planned(large)


@pytest.mark.parametrize(
    ("first", "second", "one"),
    [
        # [X, b*C] -> [b*C, X], then [b, C, X] -> [b, X, C]: the Reshape only splits
        (((0, 1, 2), (1, 2, 0)), ((1, 2, 0), (1, 0, 2)), True),
        # [A, b, W] -> [b, A, W], then [b*A*Wb, c] -> [c, b*A*Wb]: it joins b and A
        (((0, 1, 2, 3), (1, 0, 2, 3)), ((1, 0, 2, 3), (3, 1, 0, 2)), False),
    ],
)
def test_two_transposes_are_one_for_onnxruntime_where_the_reshape_between_only_splits(
    first, second, one
):
    stages = [Stage("transpose", *orders) for orders in (first, second)]
    assert module.merged(*stages) == one
    gather = Stage("gather", *second)
    assert not module.merged(stages[0], gather)


def test_no_plan_holds_two_transposes_that_would_be_merged():
    for after in itertools.permutations(range(4)):
        problem = Problem(((64, 2, 56, 3),), (0, 1, 2, 3), after, 4, frozenset(), False, 64)
        stages = cheapest_plan(problem) or ()
        assert not any(module.merged(a, b) for a, b in itertools.pairwise(stages))
