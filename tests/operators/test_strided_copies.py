"""The copies that kernels are made of: every element of a result is written, and only once."""

from __future__ import annotations

import definitions
import numpy as np
import pytest
import sampling

from onnx_spatial.operators import BatchToSpace, ExtractPatches, SpaceToBatch
from onnx_spatial.operators.spellings import InputFacts, NodeFacts, read
from onnx_spatial.operators.strided_copies import gaps, moves_of

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
    assert moves_of(operator, (1, 4, 4, 1)) is moves_of(operator, (1, 4, 4, 1))
    large = SpaceToBatch((64, 64), ((0, 0), (0, 0)))
    assert not isinstance(moves_of(large, (1, 64, 64, 1)), tuple)
