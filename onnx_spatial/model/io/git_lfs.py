"""Recognise Git LFS pointers: files that git checks out where Git LFS did not fetch the content.

version https://git-lfs.github.com/spec/v1
oid sha256:4d7a2146...
size 12345
"""

from __future__ import annotations

from pathlib import Path

_HEAD = b"version https://git-lfs.github.com/spec/"

REASON = "is a pointer of Git LFS, not the file itself; fetch the file with: git lfs pull"


def is_pointer(data: bytes) -> bool:
    """Tell whether the content of a file is a Git LFS pointer."""
    return data.startswith(_HEAD)


def is_pointer_file(path: Path) -> bool:
    """Tell whether a file is a Git LFS pointer; False if it cannot be read."""
    try:
        with path.open("rb") as file:
            return is_pointer(file.read(len(_HEAD)))
    except OSError:
        return False
