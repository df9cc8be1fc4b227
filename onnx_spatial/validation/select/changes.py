"""Select the models that changed since a git revision: in their file, weights or recorded data."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from onnx_spatial.errors import Code, SpatialError, UsageError
from onnx_spatial.model.io import external_data, reader
from onnx_spatial.validation import data_sets


def since(models: Sequence[str], revision: str) -> list[str]:
    """Return the models that differ in the working tree; new and untracked ones count.

    Raises:
        UsageError: git does not know the revision, or the models are in no repository.
    """
    repositories = _Repositories(revision)
    return [model for model in models if _is_changed(Path(model), repositories)]


class _Repositories:
    """Changes in the repositories that hold models, and in their superprojects."""

    def __init__(self, revision: str) -> None:
        self._revision = revision
        self._superprojects: dict[Path, Path | None] = {}
        self._changed: dict[Path, set[Path] | UsageError] = {}

    def changed(self, folder: Path) -> set[Path]:
        """Return the files, links and submodules that changed in the repositories around a folder.

        The revision must be known to the submodule or to a superproject, not to both.

        Raises:
            UsageError: the folder is in no repository, or none knows the revision.
        """
        top: Path | None = _top(folder, "--show-toplevel")
        results = []
        while top is not None:
            if top not in self._changed:
                try:
                    self._changed[top] = _changed(top, self._revision)
                except UsageError as error:
                    self._changed[top] = error
                self._superprojects[top] = _top(top, "--show-superproject-working-tree")
            results.append(self._changed[top])
            top = self._superprojects[top]
        known = [result for result in results if isinstance(result, set)]
        if not known and isinstance(results[0], UsageError):
            raise results[0]
        return set().union(*known)


def _top(folder: Path, which: str) -> Path | None:
    name = _git(folder, "rev-parse", which).removesuffix("\n")
    return Path(name).resolve() if name else None


def _is_changed(model: Path, repositories: _Repositories) -> bool:
    folder = model.parent.resolve()
    path = folder / model.name
    changed = repositories.changed(folder)
    if _is_among(path, changed) or data_sets.archive_of(path) in changed:
        return True
    if any(data_sets.is_set(part) for c in changed for part in _parts_below(c, folder)[:1]):
        return True  # a recorded file, or one that was deleted
    for data in data_sets.find(path):
        target = data.resolve()
        if _is_among(data, changed) or any(c.is_relative_to(target) for c in changed):
            return True
    try:
        locations = external_data.locations(reader.read(path))
    except SpatialError:  # unreadable, so any change in its folder may be its own
        return any(c.is_relative_to(folder) for c in changed)
    return any(_is_among(folder / location, changed) for location in locations)


def _is_among(path: Path, changed: set[Path]) -> bool:
    """Return whether a file, a link to it, or a submodule that holds it changed."""
    return any(not changed.isdisjoint((p, *p.parents)) for p in (path, path.resolve()))


def _parts_below(path: Path, folder: Path) -> tuple[str, ...]:
    return path.relative_to(folder).parts if path.is_relative_to(folder) else ()


def _changed(top: Path, revision: str) -> set[Path]:
    """Return the paths in a repository that git sees changed since a revision."""
    if revision.startswith("-"):
        raise UsageError(f"{revision!r} is not a git revision")
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
        raise UsageError(
            f"--changed-since requires git, which does not run: {error}", code=Code.PACKAGE_MISSING
        ) from None
    if done.returncode:
        detail = os.fsdecode(done.stderr).strip().splitlines()
        reason = "git reports: " + "".join(detail[:1])
        if what is not None:
            reason = f"git knows no revision {what!r}"
        raise UsageError(f"{folder}: {reason}")
    return os.fsdecode(done.stdout)
