"""Which models changed since a revision, by git: their files, their weights or their recorded data."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from onnx_spatial.errors import SpatialError, UsageError
from onnx_spatial.graph import external, files
from onnx_spatial.validation import recorded


def since(models: Sequence[str], revision: str) -> list[str]:
    """The models of which the working tree differs from a revision; new and untracked ones count.

    Raises:
        UsageError: git does not know the revision, or the models are in no repository.
    """
    changed: dict[Path, set[Path]] = {}  # by top of the repository
    return [model for model in models if _is_changed(model, revision, changed)]


def _is_changed(model: str, revision: str, known: dict[Path, set[Path]]) -> bool:
    path = Path(model)
    folder = path.parent.resolve()
    top = Path(_git(folder, "rev-parse", "--show-toplevel").removesuffix("\n")).resolve()
    if top not in known:
        known[top] = _changed(top, revision)
    changed = known[top]
    if folder / path.name in changed or path.resolve() in changed:
        return True
    if any(c == recorded.archive_of(folder / path.name) for c in changed):
        return True
    if any(recorded.is_set(part) for c in changed for part in _parts_below(c, folder)[:1]):
        return True
    if not any(c.is_relative_to(folder) for c in changed):
        return False  # external data lies there or below
    try:
        locations = external.locations(files.read(path))
    except SpatialError:  # it may be this that changed
        return True
    return any((folder / location).resolve() in changed for location in locations)


def _parts_below(path: Path, folder: Path) -> tuple[str, ...]:
    return path.relative_to(folder).parts if path.is_relative_to(folder) else ()


def _changed(top: Path, revision: str) -> set[Path]:
    if revision.startswith("-"):
        raise UsageError(f"{revision!r} is no revision")
    _git(top, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", what=revision)
    names = _git(top, "diff", "--name-only", "--no-renames", "-z", revision, "--")
    names += _git(top, "ls-files", "--others", "--exclude-standard", "-z")
    return {top / name for name in names.split("\0") if name}


def _git(folder: Path, *arguments: str, what: str | None = None) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, check=False
        )
    except OSError as error:
        raise UsageError(f"what changed is found by git, which does not run: {error}") from None
    if done.returncode:
        detail = os.fsdecode(done.stderr).strip().splitlines()
        reason = f"git knows no revision {what!r}" if what else "git says: " + "".join(detail[:1])
        raise UsageError(f"{folder}: {reason}")
    return os.fsdecode(done.stdout)
