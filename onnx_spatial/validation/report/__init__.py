"""What CI systems read: JUnit XML, SARIF, GitHub annotations; and the schema of our own JSON.

The JSON itself is `Report.to_dict()`.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from onnx_spatial.errors import ModelFileError
from onnx_spatial.model.io.atomic import atomic_write
from onnx_spatial.validation.report import github, junit, sarif

__all__ = ["check_target", "github", "junit", "sarif", "schema", "write"]

SCHEMA = "validation-report-1.schema.json"


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `Report.to_dict()`."""
    found: dict[str, Any] = json.loads(
        resources.files(__name__).joinpath(SCHEMA).read_text("utf-8")
    )
    return found


def check_target(path: Path) -> None:
    """Refuse a file that cannot be written before any work is done.

    Raises:
        ModelFileError: its folder does not exist, or it is none to write to.
    """
    if str(path) == "-":  # standard output has the table, or with --json the document
        raise ModelFileError("-: reports are written to files (./- names one)")
    if path.is_dir():
        raise ModelFileError(f"{path}: cannot be written: it is a folder")
    if not path.parent.is_dir():
        raise ModelFileError(f"{path}: cannot be written: there is no folder {str(path.parent)!r}")


def write(path: Path, content: bytes) -> None:
    """Write a report in one step; nobody sees half of it.

    Raises:
        ModelFileError: it cannot be written.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe, or /dev/stdout
            path.write_bytes(content)
            return
        atomic_write(path, content)
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be written: {error.strerror or error}") from None
