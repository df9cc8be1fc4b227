"""The copies that kernels are made of: every element of a result is written, and only once."""

from __future__ import annotations

from dataclasses import replace

import definitions
import numpy as np
import pytest
import sampling
from vocabulary import BatchToSpace, ExtractPatches, InputFacts, NodeFacts, SpaceToBatch, read

from onnx_spatial.operators.rearrange import Rearrange
from onnx_spatial.operators.strided_copies import Plan, gaps, plan_of

OPERATORS = [
    (SpaceToBatch((2, 3), ((1, 0), (2, 2))), (2, 3, 5, 2)),
    (SpaceToBatch((2, 2), ((5, 1), (0, 0))), (1, 0, 2, 1)),  # nothing but padding
    (SpaceToBatch((4,), ((3, 4),)), (2, 1, 3)),  # blocks that hold no element
    (SpaceToBatch((), ()), (3,)),
    (BatchToSpace((2, 2), ((1, 0), (0, 3))), (8, 2, 3, 2)),
    (BatchToSpace((2,), ((4, 0),)), (2, 3, 1)),
    (ExtractPatches((3, 2), (2, 1), (1, 2), "same_upper"), (1, 5, 4, 2)),
    (ExtractPatches((3, 3), (1, 1), (3, 3), "same_lower", "channels_first"), (2, 1, 2, 3)),
    (ExtractPatches((1, 1, 2), (5, 4, 3), (1, 1, 1), "same_unclamped"), (1, 10, 9, 4, 1)),
]


@pytest.mark.parametrize(("operator", "shape"), OPERATORS, ids=lambda v: str(v)[:60])
def test_every_element_is_written_once(operator, shape):
    x = np.zeros(shape, np.int64)
    written = np.zeros_like(operator(x))
    counts: list[np.ndarray] = []

    class Counted(np.ndarray):
        """Adds up what is written in place of writing it."""

        def __setitem__(self, index, value):
            self.view(np.ndarray)[index] += 1

    def counting(shape, dtype):
        counts.append(written)
        return written.view(Counted)

    operator(x, None, counting)
    assert (counts[0] == 1).all()


@pytest.mark.parametrize("spelling", sampling.SPELLINGS)
def test_what_the_memory_held_before_does_not_show(spelling):
    from random import Random

    def used(shape, dtype):
        if dtype.hasobject:
            return np.full(shape, "old", object)
        return (
            np.full(int(np.prod(shape)) * dtype.itemsize, 0xA5, np.uint8).view(dtype).reshape(shape)
        )

    for number in range(40):
        sample = sampling.SPELLINGS[spelling](Random(f"{spelling} {number}"))
        facts = tuple(InputFacts.of(v) for v in sample.inputs)
        given = {k: tuple(v) if isinstance(v, list) else v for k, v in sample.attributes.items()}
        call = read(NodeFacts(sample.op_type, sample.domain, facts, given))
        result = call.bind(sample.inputs)(sample.inputs[0], None, used)
        expected = definitions.node(sample.op_type, sample.inputs, sample.attributes)
        if result.dtype == object:
            assert result.tolist() == expected.tolist()
        else:
            assert result.tobytes() == expected.tobytes()


def test_what_lies_around_a_window():
    assert gaps(1, [slice(1, 3)], [4]) == (
        (slice(None), slice(0, 1)),
        (slice(None), slice(3, 4)),
    )
    assert gaps(0, [slice(0, 2), slice(0, 2)], [2, 2]) == ()
    # An empty window leaves its whole axis, and nothing more along the axes behind it.
    assert gaps(0, [slice(2, 2), slice(1, 2)], [5, 3]) == ((slice(0, 2),), (slice(2, 5),))


def test_plans_are_kept_where_they_are_small():
    operator = SpaceToBatch((2, 2), ((0, 0), (0, 0)))
    assert plan_of(operator, (1, 4, 4, 1)) is plan_of(operator, (1, 4, 4, 1))
    for block, few in ((2, True), (64, False)):
        plan = SpaceToBatch((block, block), ((block, 0), (0, 0))).plan((1, 64, 64, 1))
        assert isinstance(plan, Plan) and plan.moves is not None
        assert (plan.moves() is plan.moves()) == few


JOINED = [
    (SpaceToBatch((2, 2), ((0, 0), (0, 0))), (2, 16, 12, 3)),
    (SpaceToBatch((2, 3), ((1, 0), (2, 2))), (2, 15, 11, 3, 2)),
    (BatchToSpace((2, 2), ((0, 0), (0, 0))), (8, 8, 9, 3)),
    (BatchToSpace((2, 2), ((1, 0), (0, 3))), (8, 8, 9, 5)),
    (ExtractPatches((3, 2), (2, 1), (1, 2), "same_upper"), (1, 15, 14, 4)),
    (Rearrange((-1, 2, -1, 2, 3), (2, 2, 1), (0, 2, 1, 3, 4), (1, 1, 3)), (16, 16, 3)),
]


@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "f8", "O"])
@pytest.mark.parametrize(("operator", "shape"), JOINED, ids=lambda v: str(v)[:60])
def test_neighbours_that_are_copied_as_one_end_where_elements_do(operator, shape, dtype):
    # The same elements with the channels apart: none of them has a neighbour.
    x = (np.arange(1, 1 + np.prod(shape)) % 251).reshape(shape)
    apart = operator.plan(shape)
    assert apart.tail and apart.run(x.astype(dtype)).size
    expected = replace(apart, tail=0).run(x, 7)
    for data in (x.astype(dtype), np.asfortranarray(x.astype(dtype))):
        result = operator(data, 7)
        assert result.dtype == data.dtype
        np.testing.assert_array_equal(result.astype(x.dtype), expected)
