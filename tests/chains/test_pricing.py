"""A rewriting has to be better by a margin, and by more if it has more nodes."""

from __future__ import annotations

import pytest
from vocabulary import Rearrange

from onnx_spatial.chains.pricing import (
    LEAST_GAIN,
    LEAST_GAIN_OF_MORE,
    MARGIN,
    MARGIN_OF_MORE,
    MOST_MORE,
    SMALL,
    TYPICAL,
    Prices,
    estimated,
    pays,
)


@pytest.mark.parametrize(
    ("before", "after", "nodes", "expected"),
    [
        (100, 100 * MARGIN, 3, True),
        (100, 100 * MARGIN + 1, 3, False),
        (LEAST_GAIN, 0.1, 3, False),
        (100, 100 * MARGIN, 4, False),
        (100, 100 * MARGIN_OF_MORE, 4, True),
        (LEAST_GAIN_OF_MORE, 0.1, 4, False),
        (1000, 1, 3 + MOST_MORE, True),
        (1000, 1, 4 + MOST_MORE, False),
    ],
)
def test_margins(before, after, nodes, expected):
    assert pays(before, after, 3, nodes) == expected


def test_sizes_that_are_unknown():
    assert estimated(None, TYPICAL) is None
    assert estimated(("n", 3, None), SMALL) == (SMALL[0], 3, SMALL[1])
    windows = Rearrange((-1, 12, -1, 7), (2, 2), (0, 1, 2, 3), (2, 2))
    assert estimated(("n", "h"), SMALL, windows) == (12, 14)  # multiples of the known factors


def test_many_unknown_sizes_are_no_huge_tensor():
    dims = estimated((1, *[None] * 5), TYPICAL)
    assert dims is not None and dims[1] < 16


def test_a_price_for_smaller_sizes():
    prices = Prices(1, 17, None)
    operator = Rearrange((-1, -1, 4), (1, 1, 1), (1, 0, 2), (1, 1, 1))
    done = prices.lowered(operator, (None, None, 4))
    assert not isinstance(done, str)
    assert prices.resized(operator, done, (2, 64, 4), (1, 16, 4)) < done.cost
