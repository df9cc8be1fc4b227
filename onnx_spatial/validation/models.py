"""Find the models of a run: files, folders and globs, in a reproducible order."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from onnx_spatial.errors import Code, ModelFileError, UsageError
from onnx_spatial.model.io import other_formats
from onnx_spatial.validation import data_sets

_SUFFIX = ".onnx"


def find(paths: Sequence[str], exclude: Sequence[str] = ()) -> list[str]:
    """Return the models in paths, each once, in the order of the paths and sorted within each.

    A file is a model whatever its name. A folder stands for every *.onnx below it, except in folders
    whose name begins with a dot; links to folders are not followed. A glob stands for the files and
    folders that it matches; `**` matches any number of folders.

    Args:
        paths: files, folders, globs.
        exclude: globs of paths or names to leave out of folders and globs.

    Raises:
        UsageError: a path does not exist or holds no model.
        ModelFileError: a folder holds a model of another framework.
    """
    models: dict[tuple[str, ...], str] = {}
    for path in paths:
        expanded = list(_expand_path(path, exclude))
        if not expanded and (advice := other_formats.advise_export(Path(path))) is not None:
            raise ModelFileError(f"{path}: {advice}", code=Code.EXPORT_FIRST)
        if not expanded:
            left = " (after --exclude)" if exclude else ""
            raise UsageError(f"{path}: contains no {_SUFFIX} file{left}", code=Code.NO_MODELS)
        for model in expanded:
            models.setdefault(_file_identity(model), model)
    return list(models.values())


def matches(path: str, patterns: Sequence[str]) -> bool:
    """Return whether a path or its file name matches one of the globs; `*` also spans folders."""
    names = (Path(path).as_posix(), Path(path).name)
    globs = [Path(pattern).as_posix() for pattern in patterns]  # ./a becomes a, as in the path
    return any(fnmatch.fnmatch(name, pattern) for pattern in globs for name in names)


def _expand_path(path: str, exclude: Sequence[str]) -> Iterator[str]:
    """Yield the models in a file, folder or glob."""
    if os.path.lexists(path):
        yield from _in_folder(path, exclude) if Path(path).is_dir() else [path]
        return
    if not glob.has_magic(path):
        raise UsageError(f"{path}: there is no such file or folder", code=Code.NO_MODELS)
    names = sorted(glob.glob(path, recursive=True))  # noqa: PTH207  the pattern may be absolute
    if not names:
        raise UsageError(f"{path}: matches no file", code=Code.NO_MODELS)
    for name in names:
        if Path(name).is_dir():
            yield from _in_folder(name, exclude)
        elif not matches(name, exclude) and _is_model(name):
            yield name


def _in_folder(folder: str, exclude: Sequence[str]) -> list[str]:
    """Return the models below a folder, sorted so that those of one folder stand together."""
    models = []
    for parent, folders, names in os.walk(folder, onerror=_refuse_folder):
        folders[:] = [f for f in folders if not f.startswith(".")]
        models += [str(Path(parent) / n) for n in names if _is_model(n) and not n.startswith(".")]
    return sorted((m for m in models if not matches(m, exclude)), key=lambda m: Path(m).parts)


def _file_identity(model: str) -> tuple[str, ...]:
    """Return equal tuples for paths to the same model with the same weights and recorded data."""
    archive = data_sets.archive_of(Path(model))
    return (
        os.path.realpath(Path(model).parent),
        os.path.realpath(model),
        os.path.realpath(archive) if archive.is_file() else "",
    )


def _refuse_folder(error: OSError) -> None:
    """Refuse a folder that cannot be listed, as its models would be missed."""
    raise UsageError(f"{error.filename}: cannot be listed: {error.strerror or error}")


def _is_model(name: str) -> bool:
    return name.lower().endswith(_SUFFIX)
