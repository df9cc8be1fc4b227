"""Check that a report can be made and written to a file, write it in one step, and say what made it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from onnx_spatial.errors import Code, ModelFileError, UsageError
from onnx_spatial.model.io.atomic import atomic_write

_DEPENDENCIES = ("ml_dtypes", "numpy", "onnx", "onnx-ir", "onnxruntime", "onnxruntime-extensions")


def versions() -> dict[str, str]:
    """Return the versions of this package, its dependencies and Python, and the platform."""
    import onnx_spatial

    found = {"version": onnx_spatial.__version__, "python": platform.python_version()}
    found["platform"] = f"{platform.system()} {platform.machine()}"
    for name in _DEPENDENCIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def run_facts(command: str, started: datetime, tools: Mapping[str, str]) -> dict[str, str]:
    """Return what a page says of the run that made it: the command line, the date, the versions."""
    named = {"onnx-spatial" if name == "version" else name: tools[name] for name in tools}
    return {
        "command": command,
        "date": f"{started.astimezone():%Y-%m-%d %H:%M %Z}",
        "versions": ", ".join(f"{name} {version}" for name, version in named.items()),
    }


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
