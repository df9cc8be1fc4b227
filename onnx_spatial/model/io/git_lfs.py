"""Files that only stand for others: what git checks out where Git LFS did not fetch the content.

version https://git-lfs.github.com/spec/v1
oid sha256:4d7a2146...
size 12345
"""

from __future__ import annotations

from pathlib import Path

_HEAD = b"version https://git-lfs.github.com/spec/"

REASON = "is only a pointer of Git LFS to the file; fetch the file itself with: git lfs pull"


def is_pointer(data: bytes) -> bool:
    """Whether that is the content of a pointer."""
    return data.startswith(_HEAD)


def is_pointer_file(path: Path) -> bool:
    """The same of a file; False if it cannot be read."""
    try:
        with path.open("rb") as file:
            return is_pointer(file.read(len(_HEAD)))
    except OSError:
        return False
