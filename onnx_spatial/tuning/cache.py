"""Keep measured times in a JSON file.

    {"onnx_spatial_tune_cache": 1, "entries": {KEY: {"request": {...}, "measured_us": {...}}}}

KEY is a digest of `request`, which holds everything that the times depend on. Processes may share a
file: it is replaced in one step, entries in it stay, and the first entry for a key counts.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from onnx_spatial.errors import Code, ModelFileError, UsageError
from onnx_spatial.model.io.atomic import atomic_write

_MARK = "onnx_spatial_tune_cache"
_VERSION = 1

#: Microseconds by strategy; None if onnxruntime did not run it.
Times = dict[str, float | None]


def default_path() -> Path | None:
    """Return tune.json in this package's cache folder of the user; None without a home folder."""
    folder = own_folder()
    return None if folder is None else folder / "tune.json"


def own_folder() -> Path | None:
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


def key_of(request: Mapping[str, object]) -> str:
    """Return the digest of a request."""
    text = json.dumps(request, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Cache:
    """Times by request, in memory and in a file.

    A damaged file counts as empty and is written anew.

    Args:
        path: the file; None: times are kept in memory only.
        required: whether the user named the file. Problems with it are then errors; otherwise the
            times are not kept.

    Raises:
        UsageError: the file that the user named is no tune cache; it is not changed.
        ModelFileError: it cannot be read or written.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, required: bool = True
    ) -> None:
        self._path = None if path is None else Path(path)
        self._required = required
        self._entries: dict[str, dict[str, object]] = {}
        if self._path is not None:
            if required and not self._path.parent.is_dir():
                raise ModelFileError(
                    f"{self._path}: cannot be written: there is no folder {str(self._path.parent)!r}",
                    code=Code.UNWRITABLE,
                )
            self._entries = self._read()

    def get(self, request: Mapping[str, object]) -> Times | None:
        """Return the times of a request; None if there are none."""
        return _times(self._entries.get(key_of(request)))

    def put(self, request: Mapping[str, object], measured: Times) -> Times:
        """Keep times.

        Returns:
            The times that count: another process may have kept its own in the meantime.

        Raises:
            ModelFileError: the file that the user named cannot be written.
        """
        key = key_of(request)
        if self._path is not None:
            self._entries = {**self._entries, **self._read()}
        first = _times(self._entries.get(key))
        if first is not None and set(first) == set(measured):
            return first
        self._entries[key] = {"request": dict(request), "measured_us": measured}
        if self._path is not None:
            self._write(self._path)
        return measured

    def _read(self) -> dict[str, dict[str, object]]:
        assert self._path is not None
        try:
            text = self._path.read_text("utf-8", "replace")
        except FileNotFoundError:
            return {}
        except OSError as error:
            if self._required:
                reason = error.strerror or error
                raise ModelFileError(f"{self._path}: cannot be read: {reason}") from None
            return {}
        if self._required and not _is_cache(text):
            raise UsageError(
                f"{self._path}: is not a tune cache and is not overwritten; use another file",
                code=Code.SAME_FILE,
            )
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return {}
        if not isinstance(document, dict) or document.get(_MARK) != _VERSION:
            return {}
        entries = document.get("entries")
        if not isinstance(entries, dict):
            return {}
        return {k: e for k, e in entries.items() if _times(e) is not None}

    def _write(self, path: Path) -> None:
        document = {_MARK: _VERSION, "entries": dict(sorted(self._entries.items()))}
        try:
            if not self._required:
                path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, (json.dumps(document, indent=1) + "\n").encode())
        except OSError as error:
            if self._required:
                reason = error.strerror or error
                raise ModelFileError(
                    f"{path}: cannot be written: {reason}", code=Code.UNWRITABLE
                ) from None


def _is_cache(text: str) -> bool:
    """Return whether this is a cache, perhaps a damaged one, or an empty file."""
    return _MARK in text[:100] or not text.strip("\0 \r\n\t")


def _times(entry: object) -> Times | None:
    """Return the times in an entry; None if it is damaged."""
    measured = entry.get("measured_us") if isinstance(entry, dict) else None
    if not isinstance(measured, dict) or not all(map(_is_time, measured.values())):
        return None
    return {str(k): None if v is None else float(v) for k, v in measured.items()}


def _is_time(value: object) -> bool:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return math.isfinite(value) and value >= 0
    return value is None
