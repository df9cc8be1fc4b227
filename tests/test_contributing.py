"""What docs/contributing.md names is there: the quick subset of the tests, and every file and folder."""

from __future__ import annotations

import re
from pathlib import Path

TOP = Path(__file__).parents[1]


def test_the_quick_subset_names_what_there_is():
    text = (TOP / "docs" / "contributing.md").read_text("utf-8")
    command = re.search(r"^python -m pytest (tests/(?:[^\n\\]|\\\n)*)$", text, re.MULTILINE)
    assert command is not None
    parts = command[1].replace("\\\n", " ").split()
    assert len(parts) > 5
    assert [part for part in parts if not (TOP / part).exists()] == []


def test_files_and_folders_exist():
    text = (TOP / "docs" / "contributing.md").read_text("utf-8")
    named = set(re.findall(r"`((?:[a-z_.]+/)+(?:[a-z_]+\.py)?)`", text))
    assert len(named) > 20
    here = (TOP, TOP / "onnx_spatial")
    assert [path for path in named if not any((top / path).exists() for top in here)] == []
