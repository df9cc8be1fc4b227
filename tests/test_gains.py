"""docs/performance.md says what the results say."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]


@pytest.fixture
def gains(monkeypatch):
    pytest.importorskip("click")
    monkeypatch.syspath_prepend(str(TOP))
    return importlib.import_module("benchmarks.gains")


def test_the_page_has_the_figures_of_the_results(gains):
    text = gains.PAGE.read_text("utf-8")
    between = text.partition(gains.BEGIN)[2].partition(gains.END)[0].strip()
    assert between == gains.render(), "python -m benchmarks.gains"


def test_the_page_has_three_plots(gains):
    plots = re.findall(r"\]\((performance/[\w-]+\.svg)\)", gains.PAGE.read_text("utf-8"))
    assert len(plots) == 3
    for plot in plots:
        assert "<svg" in (gains.PAGE.parent / plot).read_text("utf-8")
