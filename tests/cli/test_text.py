"""Sentences wrap at spaces in a terminal, and stay in one line elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from onnx_spatial.cli import output
from onnx_spatial.cli.output import PIPE_WIDTH, say, wrapped
from onnx_spatial.report.outcome import describe_verification
from onnx_spatial.verification import Unproven, Verification

LONG = "  output 'logits': 5610 of 5610 elements differ, by at most 1.2 of the largest value"


def printed(width: int, show, *arguments: object) -> str:
    console = Console(file=io.StringIO(), width=width)
    show(console, *arguments)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [20, 40, 80])
def test_no_word_is_broken(width):
    text = printed(width, say, LONG)
    assert text.split() == LONG.split()
    lines = text.splitlines()
    assert len(lines) > 1 and max(map(len, lines)) <= width
    assert lines[0].startswith("  output") and all(line.startswith("    ") for line in lines[1:])


@pytest.mark.parametrize("width", range(20, 60))
def test_numbers_stay_with_their_units_and_arrows_between_their_sides(width):
    text = "m.onnx: 10 operators became others; 226 -> 68 nodes, 7.2 -> 12 kB, in 0.69 s in all"
    lines = wrapped(text, width).splitlines()
    assert " ".join(line.strip() for line in lines) == text and len(lines) > 1
    for whole in ("226 -> 68 nodes", "7.2 -> 12 kB", "0.69 s"):
        assert any(whole in line for line in lines)


def test_equal_reasons_are_one_line():
    parts = [Unproven(f"n{i}", "gave up", "gave up: a loop") for i in range(6)]
    parts.append(Unproven("other", "other formula", "computes Clip(x, 0, 6), the original Relu(x)"))
    message = f"passed: sampled; {parts[0]} (and 6 more); outputs are equal in every bit"
    result = Verification("passed", message, "sampled", unproven=parts)
    shown = printed(PIPE_WIDTH, output.print_outcome, describe_verification(result, verbose=False))
    assert shown.splitlines() == [
        f"PASSED  {message.removeprefix('passed: ').replace(' (and 6 more)', '')}",
        "  n1, n2, n3 and 2 more are not proven: gave up: a loop",
        "  other is not proven: computes Clip(x, 0, 6), the original Relu(x)",
    ]
