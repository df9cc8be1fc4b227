"""The copies that kernels are made of: every element of a result is written, and only once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from vocabulary import BatchToSpace, ExtractPatches, Rearrange, SpaceToBatch

from onnx_spatial.operators import strided_copies

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
def test_every_element_is_written_once(operator, shape, monkeypatch):
    x = np.zeros(shape, np.int64)
    written = np.zeros_like(operator(x))

    class Counted(np.ndarray):
        """Adds up what is written in place of writing it."""

        def __setitem__(self, index, value):
            self.view(np.ndarray)[index] += 1

    with monkeypatch.context() as patched:
        patched.setattr(strided_copies.np, "empty", lambda shape, dtype: written.view(Counted))
        operator(x)
    assert (written == 1).all()


JOINED = [
    (SpaceToBatch((2, 2), ((0, 0), (0, 0))), (2, 16, 12, 3)),
    (SpaceToBatch((2, 3), ((1, 0), (2, 2))), (2, 15, 11, 3, 2)),
    (BatchToSpace((2, 2), ((0, 0), (0, 0))), (8, 8, 9, 3)),
    (BatchToSpace((2, 2), ((1, 0), (0, 3))), (8, 8, 9, 5)),
    (ExtractPatches((3, 2), (2, 1), (1, 2), "same_upper"), (1, 15, 14, 4)),
    (Rearrange((-1, 2, -1, 2, 3), (2, 2, 1), (0, 2, 1, 3, 4), (1, 1, 3)), (16, 16, 3)),
]


@pytest.mark.parametrize("dtype", ["u1", "f4", "O"])
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
