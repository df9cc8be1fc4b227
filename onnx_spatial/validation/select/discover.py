"""Which models a run looks at: files, folders and globs, in an order that is always the same."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from onnx_spatial.errors import UsageError
from onnx_spatial.validation import data_sets

_SUFFIX = ".onnx"

T = TypeVar("T")


def find(paths: Sequence[str], exclude: Sequence[str] = ()) -> list[str]:
    """The models that paths stand for, each once, in the order of the paths and sorted within.

    A file is a model whatever it is called. A folder stands for every *.onnx below it, except in
    folders whose name begins with a dot; links to folders are not followed. A glob stands for the
    files and folders that it matches; `**` matches any number of folders.

    Args:
        paths: files, folders, globs.
        exclude: globs of paths or names that are left out of folders and globs.

    Raises:
        UsageError: a path does not exist, or there is no model at all behind it.
    """
    found: dict[tuple[str, ...], str] = {}
    for path in paths:
        models = list(_behind(path, exclude))
        if not models:
            left = " that --exclude does not leave out" if exclude else ""
            raise UsageError(f"{path}: there is no model: no {_SUFFIX} file is there{left}")
        for model in models:
            found.setdefault(_identity(model), model)
    return list(found.values())


def shard(models: Sequence[T], number: int, of: int) -> list[T]:
    """Part `number` (from 1) of `of` parts of about equal size; together the parts are all.

    Raises:
        UsageError: there is no such part.
    """
    if not 1 <= number <= of:
        raise UsageError(f"there is no part {number} of {of}; parts are 1/{of} to {of}/{of}")
    return list(models[number - 1 :: of])


def matches(path: str, patterns: Sequence[str]) -> bool:
    """Whether a path, or its last part, is what one of the globs stands for; `*` also spans folders."""
    names = (Path(path).as_posix(), Path(path).name)
    globs = [Path(pattern).as_posix() for pattern in patterns]  # ./a is a, as in the path
    return any(fnmatch.fnmatch(name, pattern) for pattern in globs for name in names)


def _behind(path: str, exclude: Sequence[str]) -> Iterator[str]:
    if os.path.lexists(path):
        yield from _in_folder(path, exclude) if Path(path).is_dir() else [path]
        return
    if not glob.has_magic(path):
        raise UsageError(f"{path}: there is no such file or folder")
    found = sorted(glob.glob(path, recursive=True))  # noqa: PTH207  the pattern may be absolute
    if not found:
        raise UsageError(f"{path}: nothing matches")
    for match in found:
        if Path(match).is_dir():
            yield from _in_folder(match, exclude)
        elif not matches(match, exclude) and _is_model(match):
            yield match


def _in_folder(folder: str, exclude: Sequence[str]) -> Iterator[str]:
    found = []
    for place, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = [f for f in folders if not f.startswith(".")]
        found += [str(Path(place) / n) for n in names if _is_model(n) and not n.startswith(".")]
    yield from sorted((f for f in found if not matches(f, exclude)), key=_order)


def _identity(model: str) -> tuple[str, ...]:
    """The same for paths to one model: a link beside other weights or recorded data is another."""
    archive = data_sets.archive_of(Path(model))
    return (
        os.path.realpath(Path(model).parent),
        os.path.realpath(model),
        os.path.realpath(archive) if archive.is_file() else "",
    )


def _refuse(error: OSError) -> None:
    """What cannot be listed may hold models, which would pass unseen.

    Raises:
        UsageError: always.
    """
    raise UsageError(f"{error.filename}: cannot be listed: {error.strerror or error}")


def _is_model(name: str) -> bool:
    return name.lower().endswith(_SUFFIX)


def _order(path: str) -> tuple[str, ...]:
    """By folder, so that what lies together is reported together."""
    return Path(path).parts
