"""Write models so that a name holds either what it held before or all of the new model.

Everything is written to a temporary file beside its target first, and moved there in one step. Files
of external data that an output in another folder needs are copied, never linked: tools that change
weights in place would change both. Where the file system can share blocks, the copy is free. Beside
data that is a link out of the folder, which onnxruntime does not follow for the output, goes a copy
of another name.
"""

from __future__ import annotations

import filecmp
import itertools
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from onnx_spatial.errors import ModelFileError, UsageError
from onnx_spatial.model.io import external_data, reader
from onnx_spatial.model.io.atomic import Fill, atomic_write
from onnx_spatial.model.io.byte_ranges import Content, copy_range
from onnx_spatial.model.io.source import Source

#: protobuf's limit for one message.
MAX_BYTES = 2**31 - 1

#: Files, each with the place that a copy of it goes to.
_Pairs = list[tuple[Path, Path]]


def check(path: Path, source: Source, *, in_place: bool = False) -> None:
    """Refuse outputs that cannot be written, before any work is done.

    Raises:
        UsageError: output is the input (unless `in_place`), or the model's external data.
        ModelFileError: its folder does not exist or takes no files, or it is no regular file.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # a name that is too long, or that no file can have
        raise _failure(path, error) from None
    if path.exists() and not path.is_file():  # never put a file in the place of a device or pipe
        what = "a folder" if path.is_dir() else "no regular file"
        raise ModelFileError(f"{path}: cannot be written: it is {what}")
    if in_place and path.is_symlink():
        raise UsageError(
            f"{path}: is a link to {path.resolve()}; convert that in place, or write -o"
        )
    if not in_place and source.path is not None and path.exists() and path.samefile(source.path):
        raise UsageError(f"{path}: the output must not be the input (unless --in-place says so)")
    for location in external_data.locations(source):
        assert source.folder is not None
        if path.resolve() in ((source.folder / location).resolve(), _beside(path, location)):
            raise UsageError(f"{path}: is where the model's external data lies or would be copied")
    if not path.parent.is_dir():
        raise ModelFileError(f"{path}: cannot be written: there is no folder {str(path.parent)!r}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ModelFileError(f"{path}: cannot be written: its folder is read-only")


def _beside(path: Path, location: str) -> Path:
    return (path.parent / location).resolve()


def write(source: Source, output: str | os.PathLike[str]) -> None:
    """Write a model: as the bytes it was read from if these are at hand, else serialized.

    External data is copied beside an output in another folder; a file there that differs from
    the one to copy is never overwritten. Where a link of the data's name leads out of the output's
    folder, the copy and the tensors in it get another name: OUT_data, OUT_data_1, ...

    Args:
        source: the model.
        output: where to; a link there is replaced, not followed.

    Raises:
        UsageError: output is the input.
        ModelFileError: it cannot be written.
    """
    path = Path(output)
    check(path, source)
    source, copies = _settled(source, path)
    _write(source, path, content_of(source, str(path)), copies)


def copy(source: Source, output: str | os.PathLike[str]) -> None:
    """Write the file that a model was read from, byte for byte, and its external data.

    Raises:
        UsageError: output is the input.
        ModelFileError: it cannot be written.
    """
    path = Path(output)
    check(path, source)
    content = as_read(source)
    _write(source, path, content, _to_copy(source, external_data.locations(source), path.parent))


def as_read(source: Source) -> Content:
    """The file that a model was read from, byte for byte, or what else it came as."""
    return content_of(source) if source.weights is None else source.weights.whole_file()


def _write(source: Source, path: Path, content: Content, copies: _Pairs) -> None:
    try:
        with _Copies.made_for(path, copies):
            atomic_write(path, lambda target: _fill(source, content, target))
    except OSError as error:
        raise _failure(path, error) from None


def _fill(source: Source, content: Content, target: int) -> None:
    content.write(target)
    if source.weights is not None:
        source.weights.check()


def replace(source: Source, path: Path, *, keep: bool) -> Path | None:
    """Put a model in the place of the file that it was made from.

    The file gets a second name first, model.onnx.orig or the next that is free, and loses it when
    the new one, which is read back before, has taken its place. What the model has of its weights in
    the file can be had no longer: read the new one.

    Args:
        source: the model.
        path: the file it was made from.
        keep: leave the second name there.

    Returns:
        The second name, if it is left: also where the system does not let go of it.

    Raises:
        ModelFileError: the model cannot be written, or reads back differently; the file at `path`
            is then what it was.
    """
    settled, copies = _settled(source, path)
    content = content_of(settled, str(path))

    def check_written(temporary: Path) -> None:
        if not content.is_in(temporary):
            raise ModelFileError(f"{path}: reads back differently; the original was left there")
        if source.weights is not None:
            source.weights.close()

    original = _identity(path)
    backup = _set_aside(path)
    try:
        mode = path.stat().st_mode
        with _Copies.made_for(path, copies):
            atomic_write(
                path,
                lambda target: _fill(settled, content, target),
                mode=mode,
                check=check_written,
            )
    except BaseException as error:  # Ctrl-C too
        if _identity(path) != original:
            backup.replace(path)
        backup.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _failure(path, error) from None
        raise
    if not keep:
        with suppress(OSError):
            backup.unlink(missing_ok=True)
            return None
    return backup


def _identity(path: Path) -> tuple[int, ...] | None:
    """Which file lies at a path; another one lies there after a move, whatever came next.

    Not all file systems number their files.
    """
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def _set_aside(path: Path) -> Path:
    number = 0
    while True:
        backup = path.with_name(f"{path.name}.orig{number or ''}")
        number += 1
        try:
            _second_name(path, backup)
        except FileExistsError:
            continue
        except OSError as error:
            raise _failure(backup, error) from None
        return backup


def _second_name(path: Path, backup: Path) -> None:
    """A hard link, which takes no time; the name `path` is soon given to another file."""
    try:
        backup.hardlink_to(path)
    except FileExistsError:
        raise
    except (OSError, NotImplementedError):  # a system without links: a copy, and no half of one
        if backup.exists():
            raise FileExistsError from None
        atomic_write(backup, _copy_of(path))


def _failure(path: Path, error: OSError | ValueError) -> ModelFileError:
    reason = getattr(error, "strerror", None) or error
    return ModelFileError(f"{path}: cannot be written: {reason}")


def content_of(source: Source, name: str = "model") -> Content:
    """The bytes of a model: those it was read from if they are at hand, else serialized anew.

    Raises:
        ModelFileError: they exceed what one file can hold.
    """
    if source.data is not None:
        return Content([source.data])
    if source.weights is None:
        return Content([reader.serialize(source.proto, name)])
    content = source.weights.content(source.proto)
    if content.size > MAX_BYTES:
        raise reader.too_large(name, f"{content.size} bytes")
    return content


def _copy_of(path: Path) -> Fill:
    def fill(target: int) -> None:
        with path.open("rb") as file:
            copy_range(file, target, 0, os.fstat(file.fileno()).st_size)

    return fill


@dataclass
class _Copies:
    """Files of external data that go along with a model, gone again if that cannot be written."""

    made: list[Path] = field(default_factory=list)

    @classmethod
    @contextmanager
    def made_for(cls, path: Path, pairs: _Pairs) -> Iterator[None]:
        """Copies that the model at `path` reads, while and after that is written."""
        copies, before = cls(), _identity(path)
        try:
            for origin, target in pairs:
                copies._copy(origin, target)
            yield
        except BaseException:  # Ctrl-C too, be it after the model took its place
            if _identity(path) == before:
                copies._undo()
            raise

    def _copy(self, origin: Path, target: Path) -> None:
        missing = [p for p in (target.parent, *target.parent.parents) if not p.exists()]
        for folder in reversed(missing):
            self.made.append(folder)  # before it is: an interrupt may come in between
            folder.mkdir()
        self.made.append(target)
        atomic_write(target, _copy_of(origin))

    def _undo(self) -> None:
        for path in reversed(self.made):
            with suppress(FileNotFoundError):
                if path.is_dir():
                    path.rmdir()
                else:
                    path.unlink()


def _to_copy(source: Source, locations: Sequence[str], folder: Path) -> _Pairs:
    pairs = []
    for location in locations:
        assert source.folder is not None
        origin, target = source.folder / location, folder / location
        if not target.exists():
            pairs.append((origin, target))
        elif not _same_bytes(origin, target):
            raise ModelFileError(
                f"{target}: exists and differs from the model's external data; "
                "write to another folder"
            )
    return pairs


def _same_bytes(a: Path, b: Path) -> bool:
    return a.samefile(b) or filecmp.cmp(a, b, shallow=False)


def _settled(source: Source, path: Path) -> tuple[Source, _Pairs]:
    """A model with its external data where onnxruntime finds it from `path`, and what to copy there.

    onnxruntime follows links to data that stay in the folder of a model, or of what the model itself
    is a link to. An output is no link.
    """
    names = external_data.locations(source)
    folder = path.parent.resolve()
    astray = [n for n in names if not (path.parent / n).resolve().is_relative_to(folder)]
    copies = _to_copy(source, [n for n in names if n not in astray], path.parent)
    renamed: dict[str, str] = {}
    for location in astray:
        assert source.folder is not None
        origin = source.folder / location
        name = renamed[location] = _free_name(path, origin, renamed.values())
        if not path.with_name(name).exists():
            copies.append((origin, path.with_name(name)))
    if renamed:
        source = source.holding(external_data.renamed(source.proto, renamed))
    return source, copies


def _free_name(path: Path, origin: Path, taken: Collection[str]) -> str:
    """A name beside `path` for a copy of `origin`: of no file yet, or of one that is such a copy."""
    for number in itertools.count():
        name = f"{path.name}_data{f'_{number}' if number else ''}"
        target = path.with_name(name)
        free = not target.is_symlink() and (not target.exists() or _same_bytes(origin, target))
        if name not in taken and free:
            return name
    raise AssertionError
