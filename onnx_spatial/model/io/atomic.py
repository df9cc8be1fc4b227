"""Write files in one step: a name holds what it held before, or all of the new content."""

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

    Nothing is left of it where that fails or is interrupted.

    Args:
        path: the file to be; what is there is replaced.
        content: what to write, or what writes it.
        mode: its permissions, if they are not those of any new file.
        check: is called with the temporary file before the move, which does not happen if it raises.

    Raises:
        OSError: it cannot be written.
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
    except PermissionError:  # Windows, as long as a session that nobody needs has the file mapped
        gc.collect()
        temporary.replace(path)


def _sync(folder: Path) -> None:
    """Make the new name last through a loss of power, where folders can be synced."""
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
