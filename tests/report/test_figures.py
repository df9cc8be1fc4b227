"""Figures in words: the same on the screen and in the HTML report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onnx_spatial.conversion.summary import Estimate, Figures, Summary
from onnx_spatial.report.figures import figure_rows, file_size, headline

PLAIN = Summary(
    "3 chains became 3 standard nodes", Figures({}, 80, 4, 0, 3), Figures({}, 41, 4, 0), ()
)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (999, "999 bytes"),
        (80_321, "80 kB"),
        (2_500_000_000, "2.5 GB"),
    ],
)
def test_sizes(size, text):
    assert file_size(size) == text


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(3, 120.0, 40.0), "3 chains 3.0x faster by estimate"),
        (Estimate(3, 120.0, 240.0), "3 chains 2.0x slower by estimate"),
        (Estimate(3, 120.0, 119.0), "3 chains as fast as before by estimate"),
        (Estimate(3, 1200.0, 0.0), "3 chains 1.20 ms faster by estimate"),
    ],
)
def test_the_headline_says_of_which_chains_the_times_are(estimate, text):
    assert headline(replace(PLAIN, estimate=estimate)).endswith(f", {text}")


def test_without_two_times_nothing_is_said_of_them():
    assert "estimate" not in headline(PLAIN)
    assert not any(row[0].startswith("time") for row in figure_rows(PLAIN, verbose=True))


def test_the_table_has_both_times():
    *_, row = figure_rows(replace(PLAIN, estimate=Estimate(2, 120.0, 40.0)))
    assert row == ("estimated time of 2 of 3 chains", "120 us", "40.0 us")
