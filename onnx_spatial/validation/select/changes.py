"""Which models changed since a revision, by git: their files, their weights or their recorded data."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from onnx_spatial.errors import SpatialError, UsageError
from onnx_spatial.model.io import external_data, reader
from onnx_spatial.validation import data_sets


def since(models: Sequence[str], revision: str) -> list[str]:
    """The models of which the working tree differs from a revision; new and untracked ones count.

    Raises:
        UsageError: git does not know the revision, or the models are in no repository.
    """
    repositories = _Repositories(revision)
    return [model for model in models if _is_changed(Path(model), repositories)]


class _Repositories:
    """What changed in the repositories that hold models, and in those that these are submodules of."""

    def __init__(self, revision: str) -> None:
        self._revision = revision
        self._around: dict[Path, Path | None] = {}
        self._changed: dict[Path, set[Path] | UsageError] = {}

    def changed(self, folder: Path) -> set[Path]:
        """Files, links and submodules that git sees changed, around a folder.

        A revision need not mean the same in a submodule and around it: it is one that either knows.

        Raises:
            UsageError: the folder is in no repository, or none knows the revision.
        """
        top: Path | None = _top(folder, "--show-toplevel")
        found, errors, understood = set[Path](), [], False
        while top is not None:
            if top not in self._changed:
                try:
                    self._changed[top] = _changed(top, self._revision)
                except UsageError as error:
                    self._changed[top] = error
                self._around[top] = _top(top, "--show-superproject-working-tree")
            seen = self._changed[top]
            if isinstance(seen, UsageError):
                errors.append(seen)
            else:
                found |= seen
                understood = True
            top = self._around[top]
        if not understood:
            raise errors[0]
        return found


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
        return True  # one of its files, or one that was there
    for data in data_sets.find(path):
        target = data.resolve()
        if _is_among(data, changed) or any(c.is_relative_to(target) for c in changed):
            return True
    try:
        locations = external_data.locations(reader.read(path))
    except SpatialError:  # it may be this that changed, where anything did
        return any(c.is_relative_to(folder) for c in changed)
    return any(_is_among(folder / location, changed) for location in locations)


def _is_among(path: Path, changed: set[Path]) -> bool:
    """Whether a file changed, a link to it, or a submodule that holds it."""
    return any(not changed.isdisjoint((p, *p.parents)) for p in (path, path.resolve()))


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
        reason = "git says: " + "".join(detail[:1])
        if what is not None:
            reason = f"git knows no revision {what!r}"
        raise UsageError(f"{folder}: {reason}")
    return os.fsdecode(done.stdout)
