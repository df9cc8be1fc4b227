"""Read the data that commands are given, and keep the inputs of a difference."""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onnx_spatial.cli.output import Output
from onnx_spatial.cli.text import say
from onnx_spatial.model.io import reader
from onnx_spatial.validation import data_sets
from onnx_spatial.verification import Verification, VerifyOptions, limits


def verify_options(model: str, given: Mapping[str, Any]) -> VerifyOptions:
    """Return how models are compared: in a child process, on data that is read from a file or folder.

    Args:
        model: the original.
        given: the options of the command.

    Raises:
        UsageError: `inputs` holds no data, or data that fits no input; or options cannot be combined.
        ModelFileError: it cannot be read.
    """
    path = given["inputs"]
    arrays = None if path is None else data_sets.inputs(Path(path), reader.read(model).proto)
    memory = given["memory"] or limits.default_memory()
    return VerifyOptions(**{**given, "inputs": arrays, "memory": memory})


#: Differences whose inputs are kept; older ones go.
_KEPT = 10


def keep(output: Output, verification: object) -> None:
    """Save the inputs of the first difference as an .npz in the user's folder for caches."""
    if not isinstance(verification, Verification) or verification.first_difference is None:
        return
    folder = _cache_folder()
    if folder is None:
        return
    folder /= "differences"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _forget(folder)
        handle, name = tempfile.mkstemp(".npz", "difference-", folder)
    except OSError:  # read-only
        return
    os.close(handle)
    arrays = {
        # numpy has no bfloat16 on disk: its bits are kept.
        key: value.view(np.uint16) if value.dtype.name == "bfloat16" else value
        for key, value in verification.first_difference.inputs.items()
    }
    plain = {k: v.astype(np.str_) if v.dtype == object else v for k, v in arrays.items()}
    try:
        np.savez(name, allow_pickle=False, **plain)
    except (OSError, ValueError, TypeError, struct.error):  # no room; a name that no archive takes
        Path(name).unlink()
        return
    if not output.quiet:
        say(output.err, f"the inputs that show the first difference are saved in {name}")


def _cache_folder() -> Path | None:
    """Return this package's folder among the user's caches; None without a home folder."""
    variable, folder = {
        "win32": ("LOCALAPPDATA", "AppData/Local"),
        "darwin": ("", "Library/Caches"),
    }.get(sys.platform, ("XDG_CACHE_HOME", ".cache"))
    caches = Path(os.environ.get(variable, "") if variable else "")
    if caches.is_absolute():
        return caches / "onnx-spatial"
    try:
        return Path.home() / folder / "onnx-spatial"
    except RuntimeError:
        return None


def _forget(folder: Path) -> None:
    """Delete the oldest files, so that one more can be kept."""
    ages = {}
    for path in folder.glob("difference-*.npz"):
        with contextlib.suppress(OSError):  # another process does the same
            ages[path] = path.stat().st_mtime_ns
    for path in sorted(ages, key=ages.__getitem__)[: 1 - _KEPT]:
        with contextlib.suppress(OSError):
            path.unlink()
