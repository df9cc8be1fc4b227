"""Write files atomically: a path holds the old content or all of the new one, never a part."""

from __future__ import annotations

import gc
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from onnx_spatial.model.io.byte_ranges import write_all

#: Writes content to a file descriptor.
Fill = Callable[[int], None]


def atomic_write(
    path: Path,
    content: bytes | Fill,
    *,
    mode: int | None = None,
    check: Callable[[Path], None] | None = None,
) -> None:
    """Write a temporary file in the folder of `path`, sync it to disk and move it there.

    The temporary file is removed if that fails or is interrupted.

    Args:
        path: the file to write; an existing file is replaced.
        content: the bytes, or a function that writes them.
        mode: permissions, if they differ from those of any new file.
        check: called with the temporary file; if it raises, `path` is not replaced.

    Raises:
        OSError: the file cannot be written.
    """
    temporary = path.with_name(f".onnx-spatial-{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb", buffering=0) as file:
            if callable(content):
                content(file.fileno())
            else:
                write_all(file.fileno(), content)
            if mode is not None:
                temporary.chmod(mode)
            os.fsync(file.fileno())
        if check is not None:
            check(temporary)
        _move(temporary, path)
    except BaseException:  # Ctrl-C too
        temporary.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _move(temporary: Path, path: Path) -> None:
    try:
        temporary.replace(path)
    except PermissionError:  # Windows, while an unreferenced session still maps the file
        gc.collect()
        temporary.replace(path)


def _sync(folder: Path) -> None:
    """Make the new name survive a loss of power, where folders can be synced."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
