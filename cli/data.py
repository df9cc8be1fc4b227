"""Read the models and data that commands are given, and keep the inputs of a difference."""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnx_spatial.cli.options import DASH
from onnx_spatial.cli.output import Output
from onnx_spatial.cli.text import say
from onnx_spatial.errors import UsageError
from onnx_spatial.model.io import external_data, reader
from onnx_spatial.model.io import writer as writing
from onnx_spatial.validation import data_sets
from onnx_spatial.verification import Verification

if TYPE_CHECKING:
    from onnx_spatial.report.results import Conversion


def models(*names: str) -> list[str | bytes]:
    """Return the names of models, with - replaced by the bytes of standard input.

    Raises:
        UsageError: standard input is named twice, or is a terminal.
    """
    if names.count(DASH) > 1:
        raise UsageError("only one model can be -, standard input")
    return [_standard_input() if name == DASH else name for name in names]


def _standard_input() -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(
            "MODEL is -, but standard input is a terminal; use a pipe (or ./- for a file called -)"
        )
    return sys.stdin.buffer.read()


def check_standard_output(model: str | bytes, *, json: bool) -> None:
    """Check that a model can be written to standard output.

    Raises:
        UsageError: it is a terminal, or takes the JSON document, or the model has external data.
        ModelFileError: the model cannot be read.
    """
    if json:
        raise UsageError(
            "-o - and --json cannot be combined; write to a file (./- for a file called -)"
        )
    if sys.stdout.isatty():
        raise UsageError("OUT is -, but standard output is a terminal; name a file or use a pipe")
    if external_data.locations(reader.read(model)):
        raise UsageError("OUT is -, but the model has external data; write to a file")


def to_standard_output(conversion: Conversion, *, frozen: bool) -> None:
    """Write a converted model to standard output, or the bytes that were read if nothing changed."""
    content = writing.content_of if conversion.changed or frozen else writing.as_read
    sys.stdout.flush()
    for chunk in content(conversion.result).chunks():
        sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


def frozen(model: str | bytes, sizes: dict[str, int]) -> str | bytes | reader.Source:
    """Fix the named symbolic dims of a model, if there are any.

    Raises:
        UsageError: it has no dim of that name.
    """
    if not sizes:
        return model
    from onnx_spatial.conversion.pipeline import freeze

    source = reader.read(model)
    return source.holding(freeze(source.proto, sizes))


def read_inputs(model: str | bytes, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data options with `inputs`, a file or folder or None, replaced by its arrays.

    Raises:
        UsageError: it holds no data, or data that fits no input.
        ModelFileError: it cannot be read.
    """
    path = options["inputs"]
    arrays = None if path is None else data_sets.inputs(Path(path), reader.read(model).proto)
    return {**options, "inputs": arrays}


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
