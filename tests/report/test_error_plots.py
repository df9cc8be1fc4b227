"""Plots of errors: a bar for each decade, the worst comparison, the place of what is allowed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onnx_spatial.report.error_plots import HEIGHT, STEP, output_plots
from onnx_spatial.verification.evidence import OutputResult, plain

RESULT = OutputResult(
    "y",
    0,
    False,
    "float32",
    (16,),
    16,
    max_relative_error=4e-6,
    tolerance=1e-5,
    error_decades={"0": 1, "1e-08": 10, "1e-06": 5},
)


def plots(*results: OutputResult):
    return output_plots([plain(result) for result in results])


def test_each_decade_between_the_ends_has_a_bar():
    (plot,) = plots(RESULT)
    assert [bar.label for bar in plot.bars] == ["0", "1e-8", "1e-7", "1e-6", "1e-5", "1e-4"]
    assert [bar.number for bar in plot.bars] == [1, 10, 0, 5, 0, 0]
    assert plot.bars[1].height == HEIGHT and plot.bars[2].height == 0
    assert plot.width == STEP * len(plot.bars)
    # The line stands where the bar of its decade begins.
    assert plot.tolerance == pytest.approx(plot.bars[4].x)


def test_the_worst_comparison_of_an_output_is_plotted():
    worse = replace(RESULT, run=1, max_relative_error=float("inf"), error_decades={"inf": 16})
    (plot,) = plots(RESULT, worse, replace(RESULT, run=2))
    assert plot.worst["run"] == 1 and len(plot.comparisons) == 3
    assert plot.bars[-1].label == "NaN, inf" and plot.bars[-1].number == 16


def test_equal_bits_need_no_plot():
    (plot,) = plots(replace(RESULT, equal_bits=True, tolerance=0.0, error_decades={}))
    assert plot.bars == [] and plot.worst is None and plot.level == "passed"


def test_outputs_that_differ_come_first():
    found = plots(RESULT, replace(RESULT, name="z", passed=False))
    assert [(plot.name, plot.level) for plot in found] == [("z", "failed"), ("y", "passed")]
