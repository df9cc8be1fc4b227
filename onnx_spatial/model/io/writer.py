"""Write models atomically, with copies of their external data.

Every file is written to a temporary file beside its target and then moved there. External data that
an output in another folder needs is copied, not linked: a tool that changes weights in place would
change both. Where the file system can share blocks, the copy is free. onnxruntime does not follow a
link out of the output's folder: such data is copied under another name.
"""

from __future__ import annotations

import filecmp
import itertools
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from onnx_spatial.errors import Code, ModelFileError, UsageError
from onnx_spatial.model.io import external_data, reader
from onnx_spatial.model.io.atomic import atomic_write, copy_of
from onnx_spatial.model.io.source import Source

#: (file, path of its copy).
_Pairs = list[tuple[Path, Path]]
#: Fewer bytes of external data are copied in less than a second.
_QUICK_BYTES = 10**7
#: Called with lines of text.
Progress = Callable[[str], None]


def check(path: Path, source: Source, *, in_place: bool = False) -> None:
    """Check that an output can be written, before any work is done.

    Raises:
        UsageError: the output is the input (unless `in_place`), or the model's external data.
        ModelFileError: its folder does not exist or is read-only, or it is no regular file.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # a name that is too long or invalid
        raise _write_failure(path, error) from None
    if path.exists() and not path.is_file():  # never replace a device or a pipe
        raise _unwritable_file(path, f"it is {'a folder' if path.is_dir() else 'no regular file'}")
    if in_place and path.is_symlink():
        raise UsageError(
            f"{path}: is a link to {path.resolve()}; convert that in place, or write -o",
            code=Code.SAME_FILE,
        )
    if not in_place and source.path is not None and path.exists() and path.samefile(source.path):
        raise UsageError(
            f"{path}: the output must not be the input (unless --in-place says so)",
            code=Code.SAME_FILE,
        )
    for location in external_data.locations(source):
        assert source.folder is not None
        if path.resolve() in ((p / location).resolve() for p in (source.folder, path.parent)):
            raise UsageError(
                f"{path}: is the path of the model's external data or of its copy",
                code=Code.SAME_FILE,
            )
    if not path.parent.is_dir():
        raise _unwritable_file(path, f"there is no folder {str(path.parent)!r}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise _unwritable_file(path, "its folder is read-only")


def write(
    source: Source,
    output: str | os.PathLike[str],
    *,
    external: bool = False,
    progress: Progress = lambda text: None,
) -> None:
    """Write a model: the bytes it was read from if they are in memory, else serialized anew.

    External data is copied beside an output in another folder; a file there with other content is
    never overwritten. Where a link of the data's name leads out of the output's folder, the copy gets
    another name, also in the tensors: OUT_data, OUT_data_1, ...

    Args:
        source: the model.
        output: path of the output; a link there is replaced, not followed.
        external: write initializers of 1 KiB and more to a file OUT.data; OUT.data_1, ... if there is
            a file of that name.
        progress: called with a line of text while external data is copied.

    Raises:
        UsageError: the output is the input.
        ModelFileError: the output cannot be written.
    """
    path = Path(output)
    check(path, source)
    source, copies = _place_data(source, path)
    with _external_data(source, path) if external else nullcontext(source) as placed:
        _write_files(path, _content_of(placed, str(path)), copies, progress)


@contextmanager
def _external_data(source: Source, path: Path) -> Iterator[Source]:
    """Write the data file of a model, and yield the rest; remove the file if the block fails."""
    targets = _numbered_paths(path, ".data")
    target = next(p for p in targets if not p.exists() and not p.is_symlink())
    moved, data = external_data.externalize_weights(source.proto, target.name)
    if not data:
        yield source
        return
    try:
        atomic_write(target, data)
    except OSError as error:
        raise _write_failure(target, error) from None
    try:
        yield source.holding(moved)
    except BaseException:  # Ctrl-C too
        target.unlink(missing_ok=True)
        raise


def copy_model(
    source: Source, output: str | os.PathLike[str], progress: Progress = lambda text: None
) -> None:
    """Write the file that a model was read from, byte for byte, and its external data.

    Raises:
        UsageError: the output is the input.
        ModelFileError: the output cannot be written.
    """
    path = Path(output)
    check(path, source)
    copies = _to_copy(source, external_data.locations(source), path.parent)
    _write_files(path, _content_of(source, str(path)), copies, progress)


def _write_files(path: Path, content: bytes, copies: _Pairs, progress: Progress) -> None:
    try:
        with _copied_data(path, copies, progress):
            atomic_write(path, content)
    except OSError as error:
        raise _write_failure(path, error) from None


def replace(source: Source, path: Path, *, keep: bool) -> Path | None:
    """Replace a model's own file by the converted model.

    First the file gets a backup name, model.onnx.orig or the next free one. The new file is read
    back before it replaces the old one.

    Args:
        source: the converted model.
        path: the file that it was converted from.
        keep: keep the backup.

    Returns:
        The backup, if it is kept or the system does not delete it; else None.

    Raises:
        ModelFileError: the model cannot be written, or differs when read back; the file at `path`
            is then unchanged.
    """
    placed, copies = _place_data(source, path)
    content = _content_of(placed, str(path))

    def check_written(temporary: Path) -> None:
        if temporary.read_bytes() != content:
            raise ModelFileError(
                f"{path}: reads back differently; the original was left there", code=Code.UNWRITABLE
            )

    original = _file_identity(path)
    backup = _back_up(path)
    try:
        mode = path.stat().st_mode
        with _copied_data(path, copies):
            atomic_write(path, content, mode=mode, check=check_written)
    except BaseException as error:  # Ctrl-C too
        if _file_identity(path) != original:
            backup.replace(path)
        backup.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _write_failure(path, error) from None
        raise
    if not keep:
        with suppress(OSError):
            backup.unlink(missing_ok=True)
            return None
    return backup


def _file_identity(path: Path) -> tuple[int, ...] | None:
    """Return values that tell the file at a path from another one moved there; None if missing.

    Size and time are among them because not all file systems number their files.
    """
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def _back_up(path: Path) -> Path:
    """Give a file a backup name, the first that is free."""
    for number in itertools.count():
        backup = path.with_name(f"{path.name}.orig{number or ''}")
        try:
            _link_backup(path, backup)
        except FileExistsError:
            continue
        except OSError as error:
            raise _write_failure(backup, error) from None
        return backup
    raise AssertionError


def _link_backup(path: Path, backup: Path) -> None:
    """Make a hard link, which takes no time, or a copy on a system without links."""
    try:
        backup.hardlink_to(path)
    except FileExistsError:
        raise
    except (OSError, NotImplementedError):
        if backup.exists():
            raise FileExistsError from None
        atomic_write(backup, copy_of(path))


def _write_failure(path: Path, error: OSError | ValueError) -> ModelFileError:
    return _unwritable_file(path, getattr(error, "strerror", None) or error)


def _unwritable_file(path: Path, reason: object) -> ModelFileError:
    return ModelFileError(f"{path}: cannot be written: {reason}", code=Code.UNWRITABLE)


def _content_of(source: Source, name: str) -> bytes:
    """Return the content of a model's file: the bytes it was read from, else serialized anew.

    Raises:
        ModelFileError: the content exceeds protobuf's 2 GiB.
    """
    return reader.serialize(source.proto, name) if source.data is None else source.data


@contextmanager
def _copied_data(
    path: Path, pairs: _Pairs, progress: Progress = lambda text: None
) -> Iterator[None]:
    """Copy external data while the model at `path` is written; remove it if that fails."""
    done, total = 0, sum(origin.stat().st_size for origin, _ in pairs)

    def note(size: int) -> None:
        nonlocal done
        done += size
        if total > _QUICK_BYTES:
            progress(f"writing {done // 10**6}/{total // 10**6} MB of external data")

    created: list[Path] = []  # a path is added before it is created: an interrupt may come between
    before = _file_identity(path)
    try:
        for origin, target in pairs:
            missing = [p for p in (target.parent, *target.parent.parents) if not p.exists()]
            for folder in reversed(missing):
                created.append(folder)
                folder.mkdir()
            created.append(target)
            atomic_write(target, copy_of(origin, note))
        yield
    except BaseException:  # Ctrl-C too, which may come after the model was moved to `path`
        if _file_identity(path) == before:
            for item in reversed(created):
                with suppress(FileNotFoundError):
                    if item.is_dir():
                        item.rmdir()
                    else:
                        item.unlink()
        raise


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
                "write to another folder",
                code=Code.EXTERNAL_DATA,
            )
    return pairs


def _same_bytes(a: Path, b: Path) -> bool:
    return a.samefile(b) or filecmp.cmp(a, b, shallow=False)


def _place_data(source: Source, path: Path) -> tuple[Source, _Pairs]:
    """Return the model with locations that onnxruntime opens from `path`, and the files to copy.

    onnxruntime follows links to data that stay in the folder of a model, or of the target if the
    model itself is a link. An output is no link.
    """
    names = external_data.locations(source)
    folder = path.parent.resolve()
    outside = [n for n in names if not (path.parent / n).resolve().is_relative_to(folder)]
    copies = _to_copy(source, [n for n in names if n not in outside], path.parent)
    renamed: dict[str, str] = {}
    for location in outside:
        assert source.folder is not None
        origin = source.folder / location
        name = renamed[location] = _free_name(path, origin, renamed.values())
        if not path.with_name(name).exists():
            copies.append((origin, path.with_name(name)))
    if renamed:
        source = source.holding(external_data.with_locations(source.proto, renamed))
    return source, copies


def _free_name(path: Path, origin: Path, taken: Collection[str]) -> str:
    """Return a name beside `path` for a copy of `origin`: unused, or of a file with equal bytes."""
    return next(
        target.name
        for target in _numbered_paths(path, "_data")
        if target.name not in taken
        and not target.is_symlink()
        and (not target.exists() or _same_bytes(origin, target))
    )


def _numbered_paths(path: Path, suffix: str) -> Iterator[Path]:
    """Yield OUT and a suffix beside `path`, then the same with _1, _2, ... behind it."""
    yield path.with_name(f"{path.name}{suffix}")
    yield from (path.with_name(f"{path.name}{suffix}_{n}") for n in itertools.count(1))
