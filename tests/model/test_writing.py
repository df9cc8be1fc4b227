"""Writing: an output holds what it held before or all of the new model, and nobody else's file goes."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

import onnx_spatial
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


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a method of paths fail, for targets of a name."""

    def fail(method: str, error: BaseException, name: str = "") -> None:
        real = getattr(Path, method)

        def failed(self: Path, target: Path) -> None:
            if name in ("", target.name):
                raise error
            real(self, target)

        monkeypatch.setattr(Path, method, failed)

    return fail


DENIED = PermissionError(13, "Permission denied")


def test_a_new_file_is_like_any_other_and_a_failure_leaves_what_was_there(path, folder, failing):
    (folder / "any").touch()
    writer.write(edited(path), folder / "out.onnx")
    assert (folder / "out.onnx").stat().st_mode == (folder / "any").stat().st_mode
    (folder / "out.onnx").write_bytes(b"old")
    failing("replace", DENIED)
    with pytest.raises(ModelFileError, match="cannot be written: Permission denied"):
        writer.write(edited(path), folder / "out.onnx")
    assert (folder / "out.onnx").read_bytes() == b"old"
    assert names(folder) == ["any", "out.onnx"]


# External data


def moved(external: Path, location: str) -> None:
    """Put the weights of the model elsewhere."""
    weights = external.parent / "weights.bin"
    model = onnx.load(external, load_external_data=False)
    model.graph.initializer[0].external_data[0].value = location
    target = external.parent / location
    target.parent.mkdir(parents=True, exist_ok=True)
    weights.rename(target)
    external.write_bytes(model.SerializeToString())


@pytest.mark.parametrize("location", ["weights.bin", "a/b/weights.bin"])
def test_external_data_goes_along_to_another_folder_and_keeps_its_place(external, folder, location):
    moved(external, location)
    before = (external.parent / location).stat()
    for target in (folder, external.parent):
        writer.write(edited(external), target / "new.onnx")
    assert onnx.load(folder / "new.onnx").graph.initializer[0].raw_data  # it is found there
    theirs, ours = external.parent / location, folder / location
    assert ours.read_bytes() == theirs.read_bytes() and not ours.is_symlink()
    assert not ours.samefile(theirs), "a link would let a tool that edits one change both"
    assert theirs.stat().st_mtime_ns == before.st_mtime_ns, "beside the model it is shared"
    folders = [str(p) for p in Path(location).parents[::-1][1:]]
    assert {*names(folder)} == {*folders, location, "new.onnx"}


def test_another_file_of_that_name_is_never_overwritten_and_an_equal_one_is_used(
    external, folder, failing
):
    (folder / "weights.bin").write_bytes(b"somebody else's")
    with pytest.raises(ModelFileError, match="exists and differs from the model's external data"):
        writer.write(edited(external), folder / "new.onnx")
    assert (folder / "weights.bin").read_bytes() == b"somebody else's"
    shutil.copy(external.parent / "weights.bin", folder)
    failing("replace", OSError(28, "No space left on device"))
    with pytest.raises(ModelFileError, match="No space left on device"):
        writer.write(edited(external), folder / "new.onnx")
    assert names(folder) == ["weights.bin"], "it is not of our making"


def test_what_was_copied_goes_again_if_the_model_cannot_be_written(external, folder, failing):
    moved(external, "a/b/weights.bin")
    failing("replace", KeyboardInterrupt(), "new.onnx")
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


def test_in_place_works_where_files_have_no_second_names(path, failing):
    failing("hardlink_to", OSError(95, "Operation not supported"))
    before = path.read_bytes()
    assert writer.replace(edited(path), path, keep=True).read_bytes() == before


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
    monkeypatch.setattr(atomic, "CHUNK_BYTES", 7)
    (tmp_path / "from").write_bytes(bytes(range(100)))
    atomic.atomic_write(tmp_path / "to", atomic.copy_of(tmp_path / "from"))
    assert (tmp_path / "to").read_bytes() == bytes(range(100))


WEIGHED = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[1,4,4,1] x) => (float[?,?,?,?] y) <int64[2] block = {2, 2}, int64[2,2] none = {0, 0, 0, 0}> {
    b = com.microsoft.SpaceToBatchND(x, block, none)
    c = Add(b, small)
    d = Mul(c, large)
    y = Mul(d, medium)
}"""


# Weights beside the model


def saved(folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """A model with weights of several sizes, of which the large one stays in its file when read."""
    rng = np.random.default_rng(0)
    shapes = {"small": (1,), "medium": (4, 2, 2, 300), "large": (100, 1, 1, 1, 300)}
    weights = {n: rng.random(s, dtype=np.float32) for n, s in shapes.items()}
    model = parser.parse_model(WEIGHED)
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in weights.items())
    path = folder / "m.onnx"
    onnx.save(model, path)
    return path, weights


@pytest.mark.parametrize("given", ["path", "message"])
def test_the_converted_model_has_its_weights_beside_it(given, tmp_path):
    path, weights = saved(tmp_path)
    out = tmp_path / "out" / "o.onnx"
    out.parent.mkdir()
    model = path if given == "path" else onnx.load(path)
    result = onnx_spatial.convert(model, out, external_data=True)
    assert result.verification and result.output == out
    assert sorted(p.name for p in out.parent.iterdir()) == ["o.onnx", "o.onnx.data"]
    proto = onnx.load(out, load_external_data=False)
    external = {t.name for t in proto.graph.initializer if t.data_location}
    assert external == {"medium", "large"}
    offsets = [
        int(e.value) for t in proto.graph.initializer for e in t.external_data if e.key == "offset"
    ]
    assert all(offset % 64 == 0 for offset in offsets)
    for tensor in onnx.load(out).graph.initializer:
        if tensor.name in weights:
            assert (numpy_helper.to_array(tensor) == weights[tensor.name]).all()
    x = np.ones((1, 4, 4, 1), np.float32)
    (there,) = onnxruntime.InferenceSession(out).run(None, {"x": x})
    (here,) = onnxruntime.InferenceSession(result.model.SerializeToString()).run(None, {"x": x})
    assert (there == here).all()


def test_other_files_are_never_overwritten_and_a_failure_leaves_none(tmp_path, monkeypatch):
    path, _ = saved(tmp_path)
    (tmp_path / "o.onnx.data").write_text("mine")
    with monkeypatch.context() as patched:
        patched.setattr(writer, "_write_files", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            writer.write(reader.read(path), tmp_path / "o.onnx", external=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "o.onnx.data"]
    onnx_spatial.convert(path, tmp_path / "o.onnx", verify=False, external_data=True)
    assert (tmp_path / "o.onnx.data").read_text() == "mine"
    assert (tmp_path / "o.onnx.data_1").stat().st_size > 100_000
