"""Reading models from whatever they are given as, and what a model must fulfil."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
from google.protobuf.message import DecodeError
from onnx import helper

from onnx_spatial import ModelFileError, UsageError
from onnx_spatial.model.io import reader


def test_a_model_is_read_from_a_path_bytes_or_an_object(model, path):
    data = path.read_bytes()
    for given in (path, str(path), data, model, ir.from_proto(model)):
        source = reader.read(given)
        assert [n.op_type for n in source.proto.graph.node] == ["Add"]
        assert [t.name for t in source.proto.graph.initializer] == ["w"]
        assert source.name == (str(path) if given in (path, str(path)) else "model")


def test_an_object_is_not_copied_nor_changed(model):
    before = model.SerializeToString()
    assert reader.read(model).proto is model
    assert model.SerializeToString() == before


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git lfs pull"),
        (b"no model at all", "is not an ONNX model"),
        (b"\x08\x09", "holds no graph"),
        (b"\x3a\x00", "holds no graph or no ir_version"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path, data, reason):
    target = tmp_path / "bad.onnx"
    target.write_bytes(data)
    for given in (target, data):
        with pytest.raises(ModelFileError, match=reason) as caught:
            reader.read(given)
        assert "\n" not in str(caught.value)
    assert str(target) in _message(target)


def test_memory_that_runs_out_is_no_damage_of_the_file(path, monkeypatch):
    class Full:
        def ParseFromString(self, data):
            raise DecodeError(
                "Error parsing message with type 'onnx.ModelProto': Arena alloc failed"
            )

    monkeypatch.setattr(onnx, "ModelProto", Full)
    with pytest.raises(MemoryError):
        reader.read(path)


def _message(target: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        reader.read(target)
    return str(caught.value)


def test_missing_files_and_folders_are_refused(tmp_path):
    assert "cannot be read: No such file" in _message(tmp_path / "none.onnx")
    assert "is a folder, not a model file" in _message(tmp_path)


def test_of_a_folder_the_message_says_what_to_name(tmp_path):
    what = f"{tmp_path}: is a folder, not a model file; name"
    (tmp_path / "a.onnx").mkdir()
    (tmp_path / "weights.bin").touch()
    assert _message(tmp_path) == f"{what} a file, as no .onnx file is in it"
    for name in ("c.onnx", "b.onnx"):
        (tmp_path / name).touch()
    assert _message(tmp_path) == f"{what} a file in it, such as {tmp_path / 'b.onnx'}"


def test_anything_else_is_a_wrong_call():
    with pytest.raises(UsageError, match="not int"):
        reader.read(7)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"location": "gone.bin"}, "external data file 'gone.bin' is missing .tensor 'w'."),
        ({"length": "17"}, "tensor 'w' needs 17 bytes of 'weights.bin', which has only 16"),
        ({"offset": "8"}, "needs 24 bytes"),
        ({"offset": "x"}, "offset and length of its external data must be integers"),
        ({"offset": "-4"}, "must be integers, 0 or more"),
        ({"location": "model.onnx"}, "is the model itself"),
        ({"location": "."}, "is no regular file"),
        ({"location": "../weights.bin"}, "leaves the model's folder"),
        ({"location": "/etc/passwd"}, "leaves the model's folder"),
    ],
)
def test_external_data_must_be_there(external, entry, reason):
    made = onnx.load(external, load_external_data=False)
    for held in made.graph.initializer[0].external_data:
        held.value = entry.get(held.key, held.value)
    external.write_bytes(made.SerializeToString())
    assert re.search(reason, _message(external))


def test_a_model_without_a_path_cannot_have_external_data(external):
    with pytest.raises(ModelFileError, match="give the model as a path"):
        reader.read(external.read_bytes())


def test_external_data_of_constants_is_checked_too(external):
    made = onnx.load(external, load_external_data=False)
    tensor = made.graph.initializer.pop()
    made.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    made.graph.node[0].attribute[0].t.external_data[0].value = "gone.bin"
    external.write_bytes(made.SerializeToString())
    assert "'gone.bin' is missing" in _message(external)


def test_pipes_are_read_too(path):
    import os
    import threading

    pipe = path.parent / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()))
    writer.start()
    assert reader.read(pipe).proto == onnx.load(path)
    writer.join()


def test_paths_that_no_system_takes_are_refused():
    with pytest.raises(ModelFileError, match="cannot be read: embedded null byte"):
        reader.read("a\0b")
