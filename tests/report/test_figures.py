"""Figures in words: the same on the screen and in the HTML report."""

from __future__ import annotations

import pytest

from onnx_spatial.report.figures import file_size


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (7_100, "7.1 kB"),
        (80_321, "80 kB"),
        (2_500_000_000, "2.5 GB"),
    ],
)
def test_sizes(size, text):
    assert file_size(size) == text
