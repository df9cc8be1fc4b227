"""The quick subset that docs/contributing.md names is there, each part of it."""

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
