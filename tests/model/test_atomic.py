"""A file holds what it held before, or all of the new content, and nothing lies beside it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from onnx_spatial.model.io import atomic


def test_content_takes_the_place_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for content in (b"first", b"second", b""):
        atomic.atomic_write(path, content)
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("step", ["write", "check", "sync", "move"])
def test_what_fails_leaves_what_was_there(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"before")
    seen: list[list[str]] = []

    def fail(*_: object) -> None:
        seen.append(sorted(os.listdir(tmp_path)))
        raise KeyboardInterrupt

    if step in ("sync", "move"):
        monkeypatch.setattr(*{"sync": (os, "fsync"), "move": (Path, "replace")}[step], fail)
    with pytest.raises(KeyboardInterrupt):
        atomic.atomic_write(
            path,
            fail if step == "write" else b"after",
            check=fail if step == "check" else None,
        )
    assert len(seen[0]) == 2 and seen[0][0].endswith(".tmp")
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["a"]


def test_permissions_are_those_asked_for(tmp_path: Path) -> None:
    atomic.atomic_write(tmp_path / "a", b"", mode=0o640)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        atomic.atomic_write(tmp_path / "none" / "a", b"")
