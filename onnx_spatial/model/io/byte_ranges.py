"""Copy ranges of files in chunks: weights may be larger than memory."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

_CHUNK_BYTES = 2**22


class Range(NamedTuple):
    """Range of bytes in a file."""

    offset: int
    length: int


@dataclass(frozen=True)
class Content:
    """Content of a file to write: bytes, and ranges of one other file, in order."""

    parts: Sequence[bytes | Range]
    file: BinaryIO | None = None

    @property
    def size(self) -> int:
        """Size in bytes."""
        return sum(map(size_of, self.parts))

    def write(self, target: int) -> None:
        """Write the content to a file descriptor.

        Raises:
            OSError: also where the other file became shorter.
        """
        for part in self.parts:
            if isinstance(part, bytes):
                write_all(target, part)
            else:
                assert self.file is not None
                copy_range(self.file, target, part.offset, part.length)

    def is_in(self, path: Path) -> bool:
        """Tell whether a file has exactly this content."""
        with path.open("rb") as file:
            same = all(file.read(len(chunk)) == chunk for chunk in self.chunks())
            return same and not file.read(1)

    def chunks(self) -> Iterator[bytes]:
        """Yield the content in chunks."""
        for part in self.parts:
            if isinstance(part, bytes):
                yield part
                continue
            assert self.file is not None
            for done in range(0, part.length, _CHUNK_BYTES):
                self.file.seek(part.offset + done)
                yield self.file.read(min(part.length - done, _CHUNK_BYTES))


def size_of(part: bytes | Range) -> int:
    """Return the size of a part in bytes."""
    return part.length if isinstance(part, Range) else len(part)


def write_all(target: int, data: bytes | memoryview) -> None:
    """Write all of `data` to a file descriptor; one system call may write only a part."""
    left = memoryview(data)
    while left:
        left = left[os.write(target, left[: 2**30]) :]


def copy_range(file: BinaryIO, target: int, offset: int, length: int) -> None:
    """Append a range of a file to a file descriptor, in the kernel if possible.

    On file systems that share blocks between files (btrfs, XFS) the copy then costs nothing.

    Raises:
        OSError: also where the file is shorter than the range.
    """
    done = 0
    try:
        while done < length:
            copied = os.copy_file_range(file.fileno(), target, length - done, offset + done)
            if not copied:
                break
            done += copied
    except (AttributeError, OSError):  # not on this system, or not between these file systems
        pass
    file.seek(offset + done)
    while done < length:
        chunk = file.read(min(length - done, _CHUNK_BYTES))
        if not chunk:
            raise OSError(errno.EIO, f"{file.name} became shorter while it was copied")
        write_all(target, chunk)
        done += len(chunk)
