"""Reading models from whatever they are given as, and writing them so that nothing half done is left."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, parser

from onnx_spatial.errors import ModelFileError, UsageError
from onnx_spatial.graph import files


@pytest.fixture
def model() -> onnx.ModelProto:
    return parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }""")


@pytest.fixture
def path(tmp_path: Path, model: onnx.ModelProto) -> Path:
    target = tmp_path / "in" / "model.onnx"
    target.parent.mkdir()
    target.write_bytes(model.SerializeToString())
    return target


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """A model whose weight lies in weights.bin beside it."""
    folder = tmp_path / "external"
    folder.mkdir()
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", "0"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    (folder / "weights.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    value = helper.make_tensor_value_info
    node = helper.make_node("Add", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [value("x", 1, [4])], [value("y", 1, [4])], [tensor])
    made = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
    (folder / "model.onnx").write_bytes(made.SerializeToString())
    return folder / "model.onnx"


# Reading


def test_a_model_is_read_from_a_path_bytes_or_an_object(model, path):
    data = path.read_bytes()
    for given in (path, str(path), data, model, ir.from_proto(model)):
        source = files.read(given)
        assert [n.op_type for n in source.proto.graph.node] == ["Add"]
        assert [t.name for t in source.proto.graph.initializer] == ["w"]
        assert source.name == (str(path) if given in (path, str(path)) else "model")


def test_an_object_is_not_copied_nor_changed(model):
    before = model.SerializeToString()
    assert files.read(model).proto is model
    assert model.SerializeToString() == before


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "holds no graph or no ir_version"),
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
            files.read(given)
        assert "\n" not in str(caught.value)
    assert str(target) in _message(target)


def _message(target: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        files.read(target)
    return str(caught.value)


def test_a_truncated_file_is_refused(path):
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - 5])
    assert re.search("is not an ONNX model, or was cut off", _message(path))


def test_missing_files_and_folders_are_refused(tmp_path):
    assert "cannot be read: No such file" in _message(tmp_path / "none.onnx")
    assert "is a folder, not a model file" in _message(tmp_path)


def test_anything_else_is_a_wrong_call():
    with pytest.raises(UsageError, match="not int"):
        files.read(7)


def test_functions_that_call_each_other_in_a_ring_are_refused():
    ring = parser.parse_model("""<ir_version: 9, opset_import: ["" : 17, "l" : 1]>
        g (float[2] x) => (float[2] y) { y = l.A(x) }
        <domain: "l", opset_import: ["" : 17, "l" : 1]> A (x) => (y) { y = l.B(x) }
        <domain: "l", opset_import: ["" : 17, "l" : 1]> B (x) => (y) { y = l.A(x) }""")
    with pytest.raises(ModelFileError, match="functions call each other in a ring: l:A, l:B"):
        files.read(ring)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"location": "gone.bin"}, "external data file 'gone.bin' is missing .tensor 'w'."),
        ({"length": "17"}, "tensor 'w' needs 17 bytes of 'weights.bin', which has only 16"),
        ({"offset": "8"}, "needs 24 bytes"),
        ({"offset": "x"}, "offset and length of its external data must be integers"),
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
        files.read(external.read_bytes())


def test_external_data_of_constants_is_checked_too(external):
    made = onnx.load(external, load_external_data=False)
    tensor = made.graph.initializer.pop()
    made.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    made.graph.node[0].attribute[0].t.external_data[0].value = "gone.bin"
    external.write_bytes(made.SerializeToString())
    assert "'gone.bin' is missing" in _message(external)


# Writing


def test_a_written_model_is_what_was_given(path, tmp_path, model):
    target = tmp_path / "out.onnx"
    files.write(model, target, files.read(path))
    assert target.read_bytes() == path.read_bytes()
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["out.onnx"]


def test_bytes_are_written_as_they_are(path, tmp_path):
    files.write(b"anything", tmp_path / "out.onnx", files.read(path))
    assert (tmp_path / "out.onnx").read_bytes() == b"anything"


def test_the_input_is_never_written_to(path, model):
    before = path.read_bytes()
    with pytest.raises(UsageError, match="the output must not be the input"):
        files.write(model, path, files.read(path))
    link = path.parent / "link.onnx"
    link.symlink_to(path)
    with pytest.raises(UsageError, match="the output must not be the input"):
        files.write(model, link, files.read(path))
    assert path.read_bytes() == before


def test_outputs_that_cannot_be_written_are_refused_before_any_work(path, model, tmp_path):
    source = files.read(path)
    with pytest.raises(ModelFileError, match="there is no folder"):
        files.check_output(tmp_path / "none" / "out.onnx", source)
    with pytest.raises(ModelFileError, match="it is a folder"):
        files.check_output(tmp_path, source)


def test_what_goes_wrong_leaves_no_file_and_what_was_there(path, model, tmp_path, monkeypatch):
    target = tmp_path / "out.onnx"
    target.write_bytes(b"old")

    def full(self: Path, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ModelFileError, match="cannot be written: No space left on device"):
        files.write(model, target, files.read(path))
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["out.onnx"]


def test_external_data_goes_along_to_another_folder(external, tmp_path):
    source = files.read(external)
    folder = tmp_path / "out"
    folder.mkdir()
    files.write(source.proto, folder / "new.onnx", source)
    assert (folder / "weights.bin").read_bytes() == (external.parent / "weights.bin").read_bytes()
    assert onnx.load(folder / "new.onnx").graph.initializer[0].raw_data  # it is found there
    assert sorted(p.name for p in folder.iterdir()) == ["new.onnx", "weights.bin"]


def test_external_data_beside_the_output_is_shared(external):
    source = files.read(external)
    files.write(source.proto, external.parent / "new.onnx", source)
    names = sorted(p.name for p in external.parent.iterdir())
    assert names == ["model.onnx", "new.onnx", "weights.bin"]


def test_another_file_of_that_name_is_never_overwritten(external, tmp_path):
    source = files.read(external)
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "weights.bin").write_bytes(b"somebody else's")
    with pytest.raises(ModelFileError, match="exists and differs from the model's external data"):
        files.write(source.proto, folder / "new.onnx", source)
    assert [p.name for p in folder.iterdir()] == ["weights.bin"]
    assert (folder / "weights.bin").read_bytes() == b"somebody else's"
