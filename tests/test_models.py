"""`validate` passes on the models that runtimes refuse: the nets in models/, and the grid."""

from __future__ import annotations

import json
from pathlib import Path

import grid
import pytest
from adapter import run
from validating import ZOO

#: A quarter of the cells and all nets are validated in one of these ways by default, all in all ways by
#: the slow tests: golden tests convert every cell.
WAYS = ("--mode lower", "--mode function", "--mode custom-op", "--optimize")


@pytest.fixture(params=WAYS)
def way(request) -> str:
    if request.param == "--mode custom-op":
        pytest.importorskip("onnxruntime_extensions", reason="needs onnxruntime-extensions")
    return request.param


def validate(paths: list[Path], way: str, capsys: pytest.CaptureFixture[str]) -> None:
    """All of them pass, and are compared with what was recorded."""
    words = ["validate", *map(str, paths), "-j", "2", "--strict", "--json", *way.split()]
    code = run(words)
    models = json.loads(capsys.readouterr().out)["models"]
    assert [(m["model"], m["message"]) for m in models if m["status"] != "passed"] == []
    assert all(m["recorded"] for m in models)
    assert (len(models), code) == (len(paths), 0)


def dealt(cell: grid.Cell, shift: int) -> str:
    """A way for each cell, so that every row and every form meets all of them."""
    row, form = grid.ROWS.index(cell.row), list(grid.FORMS).index(cell.form)
    return WAYS[(row + form + shift) % len(WAYS)]


SHIFTS = pytest.mark.parametrize(
    ("shift", "slow"),
    [(0, False), *(pytest.param(n, True, marks=pytest.mark.slow) for n in range(len(WAYS)))],
)


@SHIFTS
def test_the_grid_passes(shift, slow, way, tmp_path, capsys):
    cells = [cell for cell in grid.CELLS if dealt(cell, shift) == way]
    cells = cells if slow else cells[::4]
    validate([grid.write(cell, tmp_path) for cell in cells], way, capsys)


@SHIFTS
def test_nets_pass(shift, slow, way, capsys):
    paths = sorted([*ZOO.glob("*/model.onnx"), *ZOO.glob("chains/*/model.onnx")])
    validate(paths[(WAYS.index(way) + shift) % len(WAYS) :: len(WAYS)], way, capsys)
