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
    data, before = path.read_bytes(), model.SerializeToString()
    assert reader.read(model).proto is model
    for given in (path, str(path), data, model, ir.from_proto(model)):
        source = reader.read(given)
        assert [n.op_type for n in source.proto.graph.node] == ["Add"]
        assert [t.name for t in source.proto.graph.initializer] == ["w"]
        assert source.name == (str(path) if given in (path, str(path)) else "model")
    assert model.SerializeToString() == before


def test_memory_that_runs_out_is_no_damage_of_the_file(path, monkeypatch):
    class Full:
        def ParseFromString(self, data):
            raise DecodeError(
                "Error parsing message with type 'onnx.ModelProto': Arena alloc failed"
            )

    monkeypatch.setattr(onnx, "ModelProto", Full)
    with pytest.raises(MemoryError):
        reader.read(path)


def _message(target: Path | str) -> str:
    with pytest.raises(ModelFileError) as caught:
        reader.read(target)
    return str(caught.value)


def test_paths_that_cannot_be_read_are_told(tmp_path):
    what = f"{tmp_path}: is a folder, not a model file; name"
    (tmp_path / "a.onnx").mkdir()
    assert _message(tmp_path) == f"{what} a file, as no .onnx file is in it"
    (tmp_path / "c.onnx").touch()
    (tmp_path / "b.onnx").touch()
    first = f"{what} a file in it, such as {tmp_path / 'b.onnx'}"
    assert _message(tmp_path) == f"{first}, or give it to `onnx-spatial validate`"
    assert "cannot be read: No such file" in _message(tmp_path / "none.onnx")
    assert "cannot be read: embedded null byte" in _message("a\0b")
    with pytest.raises(UsageError, match="not int"):
        reader.read(7)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"location": "gone.bin"}, "external data file 'gone.bin' is missing .tensor 'w'."),
        ({"length": "17"}, "tensor 'w' needs 17 bytes of 'weights.bin', which has only 16"),
        ({"offset": "x"}, "offset and length of its external data must be integers"),
        ({"location": "model.onnx"}, "is the model itself"),
        ({"location": "."}, "is no regular file"),
        ({"location": "../weights.bin"}, "leaves the model's folder"),
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
