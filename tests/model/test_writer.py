"""Writing: an output holds what it held before or all of the new model, and nobody else's file goes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from onnx_spatial import ModelFileError, UsageError
from onnx_spatial.model.io import atomic, reader, writer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "out"
    made.mkdir()
    return made


def edited(path: Path) -> reader.Source:
    """The model with a change, not yet written."""
    source = reader.read(path)
    proto = onnx.ModelProto()
    proto.CopyFrom(source.proto)
    proto.doc_string = "changed"
    return source.holding(proto)


def names(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def test_new_files_have_the_permissions_of_any_new_file(path, folder):
    (folder / "any").touch()
    writer.write(edited(path), folder / "out.onnx")
    assert (folder / "out.onnx").stat().st_mode == (folder / "any").stat().st_mode


def test_the_input_is_never_written_to(path):
    before = path.read_bytes()
    link = path.parent / "link.onnx"
    link.symlink_to(path)
    for target in (path, link):
        with pytest.raises(UsageError, match="the output must not be the input"):
            writer.write(edited(path), target)
    assert path.read_bytes() == before


def test_outputs_that_cannot_be_written_are_refused_before_any_work(path, tmp_path, monkeypatch):
    source = reader.read(path)
    with pytest.raises(ModelFileError, match="there is no folder"):
        writer.check(tmp_path / "none" / "out.onnx", source)
    with pytest.raises(ModelFileError, match="it is a folder"):
        writer.check(tmp_path, source)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="it is no regular file"):
        writer.check(tmp_path / "pipe", source)
    monkeypatch.setattr(os, "access", lambda *_: False)  # the superuser may write anywhere
    with pytest.raises(
        ModelFileError, match=r"out.onnx: cannot be written: its folder is read-only"
    ):
        writer.check(tmp_path / "out.onnx", source)


def test_what_goes_wrong_leaves_what_was_there(path, folder, monkeypatch):
    (folder / "out.onnx").write_bytes(b"old")

    def fail(self: Path, target: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(ModelFileError, match="cannot be written: Permission denied"):
        writer.write(edited(path), folder / "out.onnx")
    assert (folder / "out.onnx").read_bytes() == b"old"
    assert names(folder) == ["out.onnx"]


FULL = """
import resource, sys
from onnx_spatial import ModelFileError
from onnx_spatial.model.io import reader, writer
source = reader.read(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
try:
    writer.write(source, sys.argv[2])
except ModelFileError as error:
    print(error)
"""


@pytest.mark.parametrize("room", [10, 200])
def test_a_full_disk_leaves_no_file(external, folder, room):
    """The first limit stops the copy of the weights, the second the model after them."""
    assert (external.parent / "weights.bin").stat().st_size < 200 < external.stat().st_size + 100
    model = onnx.load(external, load_external_data=False)
    model.doc_string = "long" * 100
    external.write_bytes(model.SerializeToString())
    command = [sys.executable, "-c", FULL, external, folder / "out.onnx", str(room)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "out.onnx: cannot be written: File too large" in done.stdout
    assert names(folder) == []


# External data


def test_external_data_goes_along_to_another_folder(external, folder):
    writer.write(edited(external), folder / "new.onnx")
    theirs, ours = external.parent / "weights.bin", folder / "weights.bin"
    assert ours.read_bytes() == theirs.read_bytes()
    assert not ours.samefile(theirs), "a link would let a tool that edits one change both"
    assert onnx.load(folder / "new.onnx").graph.initializer[0].raw_data  # it is found there
    assert names(folder) == ["new.onnx", "weights.bin"]


def test_external_data_beside_the_output_is_shared(external):
    before = (external.parent / "weights.bin").stat()
    writer.write(edited(external), external.parent / "new.onnx")
    assert names(external.parent) == ["model.onnx", "new.onnx", "weights.bin"]
    assert (external.parent / "weights.bin").stat().st_mtime_ns == before.st_mtime_ns


def moved(external: Path, location: str) -> None:
    """Put the weights of the model elsewhere."""
    model = onnx.load(external, load_external_data=False)
    model.graph.initializer[0].external_data[0].value = location
    target = external.parent / location
    target.parent.mkdir(parents=True, exist_ok=True)
    (external.parent / "weights.bin").rename(target)
    external.write_bytes(model.SerializeToString())


def test_links_to_external_data_are_followed(external, folder, tmp_path):
    """Model hubs keep files as links to blobs elsewhere; the copy must not depend on them."""
    (external.parent / "weights.bin").rename(tmp_path / "blob")
    (external.parent / "weights.bin").symlink_to(tmp_path / "blob")
    writer.write(edited(external), folder / "new.onnx")
    assert not (folder / "weights.bin").is_symlink()
    assert (folder / "weights.bin").read_bytes() == (tmp_path / "blob").read_bytes()


def test_another_file_of_that_name_is_never_overwritten(external, folder):
    (folder / "weights.bin").write_bytes(b"somebody else's")
    with pytest.raises(ModelFileError, match="exists and differs from the model's external data"):
        writer.write(edited(external), folder / "new.onnx")
    assert names(folder) == ["weights.bin"]
    assert (folder / "weights.bin").read_bytes() == b"somebody else's"


def test_the_same_file_is_used_and_left_there(external, folder, monkeypatch):
    shutil.copy(external.parent / "weights.bin", folder)

    def fail(self: Path, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(ModelFileError, match="No space left on device"):
        writer.write(edited(external), folder / "new.onnx")
    assert names(folder) == ["weights.bin"], "it is not of our making"


def test_what_was_copied_goes_again_if_the_model_cannot_be_written(external, folder, monkeypatch):
    moved(external, "a/b/weights.bin")
    replace = Path.replace

    def interrupted(self: Path, target: Path) -> None:
        if target.name == "new.onnx":
            raise KeyboardInterrupt
        replace(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        writer.write(edited(external), folder / "new.onnx")
    assert names(folder) == []


@pytest.mark.parametrize("name", ["weights.bin", "sub/../weights.bin"])
def test_an_output_never_takes_the_place_of_external_data(external, folder, name):
    (external.parent / "sub").mkdir()
    with pytest.raises(UsageError, match="is the path of the model's external data"):
        writer.write(edited(external), external.parent / name)
    with pytest.raises(UsageError, match="or of its copy"):
        writer.write(edited(external), folder / "weights.bin")


# In place


def test_in_place_the_input_becomes_the_result(path):
    path.chmod(0o640)
    source = edited(path)
    writer.check(path, source, in_place=True)
    assert writer.replace(source, path, keep=False) is None
    assert path.read_bytes() == source.proto.SerializeToString()
    assert names(path.parent) == ["model.onnx"]
    assert path.stat().st_mode & 0o777 == 0o640


def test_in_place_works_where_files_have_no_second_names(path, monkeypatch):
    def unsupported(self: Path, target: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(Path, "hardlink_to", unsupported)
    before = path.read_bytes()
    backup = writer.replace(edited(path), path, keep=True)
    assert backup is not None
    assert backup.read_bytes() == before


def test_in_place_what_reads_back_differently_is_undone(path, monkeypatch):
    before = path.read_bytes()
    monkeypatch.setattr(atomic, "_write_all", lambda target, data: os.write(target, data[:-1]))
    with pytest.raises(ModelFileError, match="reads back differently; the original was left there"):
        writer.replace(edited(path), path, keep=False)
    assert path.read_bytes() == before
    assert names(path.parent) == ["model.onnx"]


@pytest.mark.parametrize(
    "place", [(os, "fsync"), (atomic, "_move_file"), (atomic, "_sync_folder")], ids=str
)
@pytest.mark.parametrize("keep", [False, True])
def test_in_place_an_interrupt_leaves_the_original_or_puts_it_back(path, monkeypatch, keep, place):
    before = path.read_bytes()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(*place, interrupted)
    with pytest.raises(KeyboardInterrupt):
        writer.replace(edited(path), path, keep=keep)
    assert path.read_bytes() == before
    assert names(path.parent) == ["model.onnx"]


def test_an_interrupt_after_the_move_leaves_the_model_its_external_data(
    external, folder, monkeypatch
):
    calls = []

    def interrupt(place: Path) -> None:
        calls.append(place)
        if len(calls) == 2:  # the first is for the weights
            raise KeyboardInterrupt

    monkeypatch.setattr(atomic, "_sync_folder", interrupt)
    with pytest.raises(KeyboardInterrupt):
        writer.write(edited(external), folder / "out.onnx")
    assert names(folder) == ["out.onnx", "weights.bin"]


def test_in_place_a_link_is_refused(path, folder):
    (folder / "link.onnx").symlink_to(path)
    source = edited(folder / "link.onnx")
    with pytest.raises(UsageError, match=r"link.onnx: is a link to .*model.onnx; convert that"):
        writer.check(folder / "link.onnx", source, in_place=True)


# Copies


@pytest.mark.parametrize("in_kernel", [True, False])
def test_a_copy_of_a_file_has_its_bytes(tmp_path, monkeypatch, in_kernel):
    if not in_kernel:
        monkeypatch.delattr(os, "copy_file_range", raising=False)
    monkeypatch.setattr(atomic, "_CHUNK_BYTES", 7)
    (tmp_path / "from").write_bytes(bytes(range(100)))
    atomic.atomic_write(tmp_path / "to", atomic.copy_of(tmp_path / "from"))
    assert (tmp_path / "to").read_bytes() == bytes(range(100))


def test_external_data_in_subfolders_keeps_its_place(external, folder):
    moved(external, "a/b/weights.bin")
    writer.write(edited(external), folder / "new.onnx")
    assert names(folder) == ["a", "a/b", "a/b/weights.bin", "new.onnx"]
