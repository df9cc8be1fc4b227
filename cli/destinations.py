"""Define where the results of a command go: a file, a folder, the model itself, nowhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click


@dataclass(frozen=True)
class Destinations:
    """Where the results of the models of a command line go, and in which form.

    Attributes:
        path: file or folder of -o OUT.
        in_place: replace each model.
        dry_run: write nothing.
        check: write nothing, and fail if a model would change.
        external: write the weights to a file beside the model.

    Raises:
        click.UsageError: the options contradict each other, or name no place.
    """

    path: str | None
    in_place: bool
    dry_run: bool
    check: bool
    external: bool

    def __post_init__(self) -> None:
        if self.check and (self.path or self.in_place):
            raise click.UsageError("--check writes nothing: it takes no -o OUT and no --in-place")
        if self.external and self.in_place:
            raise click.UsageError("--save-as-external-data requires -o OUT, a file or a folder")
        if not (self.path or self.in_place or self.dry_run or self.check):
            raise click.UsageError(
                "missing output: use -o OUT, --in-place, or --dry-run to write nothing"
            )
        if self.in_place and self.path:
            raise click.UsageError("-o OUT and --in-place cannot be combined")

    def of(self, models: Sequence[str]) -> dict[str, str | None]:
        """Return the file of -o OUT for each model, None if there is none; make missing folders.

        Raises:
            click.UsageError: it is open whether the path is a file or a folder, or a model has no
                place of its own in the folder.
        """
        path = self.path
        if path is None:
            return dict.fromkeys(models)
        if not _is_folder(path, len(models)):
            return {models[0]: None if self.dry_run else path}
        targets = [Path(path) / place for place in _places_in_folder(models, path)]
        sources = {_absolute_path(model) for model in models}
        if overwritten := [target for target in targets if _absolute_path(target) in sources]:
            raise click.UsageError(
                f"-o {path}: {overwritten[0]} is a model of this call, and the output must not be "
                "the input"
            )
        if self.dry_run:
            return dict.fromkeys(models)
        _make_folders(path, targets)
        return dict(zip(models, map(str, targets), strict=True))


def _is_folder(path: str, models: int) -> bool:
    """Return whether -o PATH means a folder, for this number of models.

    A folder is what exists as one or ends in a slash; for several models also a path that does not
    exist and is not called .onnx. One model goes to a file that exists or has a suffix.

    Raises:
        click.UsageError: the path is a file, and there are several models; or it could be either.
    """
    # os.path, because Path raises for names that are too long.
    if path.endswith(("/", os.sep)) or os.path.isdir(path):  # noqa: PTH112
        return True
    exists, suffix = os.path.exists(path), Path(path).suffix  # noqa: PTH110
    if models > 1:
        if exists:
            raise click.UsageError(f"several models need a folder, and -o {path} is a file")
        if suffix == ".onnx":
            raise click.UsageError(
                f"several models need a folder: write -o {path}/ if that is its name"
            )
        return True
    if not exists and not suffix:
        raise click.UsageError(
            f"-o {path} could be a file or a folder: write {path}.onnx for a file, {path}/ for a folder"
        )
    return False


def _places_in_folder(models: Sequence[str], path: str) -> list[Path]:
    """Return where models go within the folder -o PATH: as they lie in the folder that holds all.

    Raises:
        click.UsageError: a model has no name, is given twice, or lies on another drive.
    """
    sources = [_absolute_path(model) for model in models]
    if twice := [model for model, s in zip(models, sources, strict=True) if sources.count(s) > 1]:
        raise click.UsageError(f"the model {twice[0]} is given twice")
    try:
        root = os.path.commonpath([source.parent for source in sources])
    except ValueError:
        raise click.UsageError("models on several drives have no folder in common") from None
    return [source.relative_to(root) for source in sources]


def _absolute_path(path: str | Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100  without "..", but with links


def _make_folders(path: str, targets: Sequence[Path]) -> None:
    """Make the folders of these files, which lie in the folder -o PATH.

    Raises:
        click.UsageError: one cannot be made.
    """
    try:
        for target in targets:
            target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"the folder cannot be made: {error.strerror or error}"
        raise click.UsageError(f"-o {path}: {reason}") from None
