"""The order of the house: each room imports only rooms of the rows below it."""

import ast
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
ROWS = (
    "cli",
    "validation",
    "custom_ops passes polygraphy",
    "api",
    "report",
    "verification",
    "conversion",
    "chains fusion python_ops",
    "lowering",
    "reference",
    "analysis",
    "maps",
    "model operators",
    "documents errors",
)
ROW_OF_ROOM = {room: number for number, row in enumerate(ROWS) for room in row.split()}


def imports(room: str) -> set[str]:
    """Return what the modules of a room import, also inside of functions and for type checkers."""
    folder = TOP / room if (TOP / room).is_dir() else TOP / "onnx_spatial" / room
    paths = folder.rglob("*.py") if folder.is_dir() else [folder.with_suffix(".py")]
    names = set()
    for node in [node for path in paths for node in ast.walk(ast.parse(path.read_text("utf-8")))]:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_every_room_has_a_row():
    folders = {path.parent.name for path in (TOP / "onnx_spatial").glob("*/__init__.py")}
    modules = {path.stem for path in (TOP / "onnx_spatial").glob("[!_]*.py")}
    assert folders | modules | {"cli", "custom_ops"} == {*ROW_OF_ROOM}


@pytest.mark.parametrize("room", ROW_OF_ROOM)
def test_a_room_imports_only_rows_below_it(room):
    rooms = {name.split(".")[1] for name in imports(room) if name.startswith("onnx_spatial.")}
    above = {r for r in rooms - {room} if ROW_OF_ROOM.get(r, len(ROWS)) <= ROW_OF_ROOM[room]}
    assert above == set()


def test_operators_know_no_onnx_files():
    foreign = {name.split(".")[0] for name in imports("operators")}
    assert foreign & {"onnx", "onnx_ir", "onnxruntime"} == set()
