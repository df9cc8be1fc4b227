"""What is wrong with a command line is one line, and an option of another command is known."""

from __future__ import annotations

import pytest
from adapter import run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["verify", "a.onnx", "b.onnx", "--max-rank", "4"],
            "error: --max-rank is an option of inspect, convert, optimize, validate; "
            "onnx-spatial verify --help lists the options",
        ),
        (
            ["convert", "a.onnx", "-j", "2"],
            "error: -j is an option of validate; onnx-spatial convert ",
        ),
        (["inspect", "a.onnx", "--statik", "N=1"], "error: No such option"),
        (["validte", "a.onnx"], "error: No such command 'validte'"),
    ],
)
def test_an_option_of_another_command(words, message, capsys):
    assert run(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(message) and "--help" in line
