"""Check that a report can be made and written to a file, and write it in one step."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from onnx_spatial.errors import Code, ModelFileError, UsageError
from onnx_spatial.model.io.atomic import atomic_write


def check_file(path: Path) -> None:
    """Check, before any work is done, that a report can be written to a file.

    Raises:
        ModelFileError: its folder does not exist or is read-only, or it is a folder itself.
    """
    if path.is_dir():
        raise ModelFileError(f"{path}: cannot be written: it is a folder", code=Code.UNWRITABLE)
    if not path.parent.is_dir():
        raise ModelFileError(
            f"{path}: cannot be written: there is no folder {str(path.parent)!r}",
            code=Code.UNWRITABLE,
        )
    if not path.exists() and not os.access(path.parent, os.W_OK | os.X_OK):
        raise ModelFileError(
            f"{path}: cannot be written: its folder is read-only", code=Code.UNWRITABLE
        )


def require(package: str) -> None:
    """Check that a package is installed that a report needs.

    Raises:
        UsageError: it is missing.
    """
    if importlib.util.find_spec(package) is None:
        raise UsageError(
            f"an HTML report needs the package {package}: python -m pip install {package}",
            code=Code.PACKAGE_MISSING,
        )


def write(path: Path, content: bytes) -> None:
    """Write a report in one step: the file has all of it or does not change.

    Raises:
        ModelFileError: it cannot be written.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe, or /dev/stdout
            path.write_bytes(content)
            return
        atomic_write(path, content)
    except OSError as error:
        raise ModelFileError(
            f"{path}: cannot be written: {error.strerror or error}", code=Code.UNWRITABLE
        ) from None
