"""Write files atomically: a path holds the old content or all of the new one, never a part."""

from __future__ import annotations

import gc
import os
import secrets
from collections.abc import Callable
from pathlib import Path

#: Writes content to a file descriptor.
Fill = Callable[[int], None]

#: Bytes of a file that are read at a time.
CHUNK_BYTES = 2**22
#: Bytes that the kernel copies at a time; a disk takes a second or less for them.
_PART_BYTES = 2**28


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
                _write_all(file.fileno(), content)
            if mode is not None:
                temporary.chmod(mode)
            os.fsync(file.fileno())
        if check is not None:
            check(temporary)
        _move_file(temporary, path)
    except BaseException:  # Ctrl-C too
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def copy_of(path: Path, copied: Callable[[int], None] = lambda size: None) -> Fill:
    """Return what writes the content of a file, in the kernel if possible.

    `copied` is called with the number of bytes of each part. On file systems that share blocks between
    files (btrfs, XFS) the copy costs nothing.
    """

    def fill(target: int) -> None:
        with path.open("rb") as file:
            done = 0
            try:
                while size := os.copy_file_range(file.fileno(), target, _PART_BYTES, done):
                    done += size
                    copied(size)
            except (AttributeError, OSError):  # not on this system, or between these file systems
                pass
            file.seek(done)
            while chunk := file.read(CHUNK_BYTES):
                _write_all(target, chunk)
                copied(len(chunk))

    return fill


def _write_all(target: int, data: bytes) -> None:
    """Write all of `data` to a file descriptor; one system call may write only a part."""
    left = memoryview(data)
    while left:
        left = left[os.write(target, left[: 2**30]) :]


def _move_file(temporary: Path, path: Path) -> None:
    try:
        temporary.replace(path)
    except PermissionError:  # Windows, while an unreferenced session still maps the file
        gc.collect()
        temporary.replace(path)


def _sync_folder(folder: Path) -> None:
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
