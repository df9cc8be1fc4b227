"""Reading models from whatever they are given as, and what a model must fulfil."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
from google.protobuf.message import DecodeError
from onnx import helper, parser

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


def test_an_object_without_a_graph_is_refused():
    with pytest.raises(ModelFileError, match="model: is not an ONNX model: it holds no graph"):
        reader.read(onnx.ModelProto(ir_version=8))


def _message(target: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        reader.read(target)
    return str(caught.value)


def test_a_truncated_file_is_refused(path):
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - 5])
    assert re.search("is not an ONNX model, or was cut off", _message(path))


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


def test_functions_that_call_each_other_in_a_ring_are_refused():
    ring = parser.parse_model("""<ir_version: 9, opset_import: ["" : 17, "l" : 1]>
        g (float[2] x) => (float[2] y) { y = l.A(x) }
        <domain: "l", opset_import: ["" : 17, "l" : 1]> A (x) => (y) { y = l.B(x) }
        <domain: "l", opset_import: ["" : 17, "l" : 1]> B (x) => (y) { y = l.A(x) }""")
    with pytest.raises(ModelFileError, match="functions call each other in a cycle: l:A, l:B"):
        reader.read(ring)


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


def test_functions_given_twice_are_refused():
    twice = parser.parse_model("""<ir_version: 9, opset_import: ["" : 17, "l" : 1]>
        g (float[2] x) => (float[2] y) { y = l.A(x) }
        <domain: "l", opset_import: ["" : 17]> A (x) => (y) { y = Neg(x) }""")
    twice.functions.append(twice.functions[0])
    with pytest.raises(ModelFileError, match="function l:A is defined twice"):
        reader.read(twice)


@pytest.mark.parametrize(
    "body",
    [
        "[a] y = Add(x, w)  [b] w = Neg(y)",
        "[a] y = Add(x, y)",
        "[a] y = If (c) <then_branch = t () => (v) {v = Neg(w)}, else_branch = e () => (u) "
        "{u = Neg(x)}>  [b] w = Neg(y)",
    ],
)
def test_cycles_are_refused(body):
    model = parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 17]>
        g (float[2] x, bool c) => (float[2] y) {{ {body} }}""")
    with pytest.raises(ModelFileError, match="'a' in main graph is part of a cycle"):
        reader.read(model)


def test_nodes_may_stand_in_any_order():
    model = parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
        g (float[2] x, bool c) => (float[2] y) {
            y = If (c) <then_branch = t () => (v) {v = Neg(w)}, else_branch = e () => (u) {u = Neg(x)}>
            w = Abs(z)
            z = Relu(x) }""")
    assert reader.read(model).proto is model


def nested(depth: int) -> onnx.ModelProto:
    """If in If in If."""
    value = helper.make_tensor_value_info
    model = parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
        g (float[2] x, bool c) => (float[2] y) { y = Neg(x) }""")
    graph = model.graph
    for _ in range(depth):
        node = graph.node[0]
        node.op_type, node.input[0] = "If", "c"
        for name in ("then_branch", "else_branch"):
            inner = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], name, [], [])
            inner.output.append(value("y", 1, [2]))
            node.attribute.append(helper.make_attribute(name, inner))
        graph = node.attribute[0].g
    return model


@pytest.mark.parametrize("depth", [34, 5000])
def test_graphs_that_no_file_could_hold_are_refused(depth):
    with pytest.raises(ModelFileError, match="nested more than 33 deep"):
        reader.read(nested(depth))


def test_the_deepest_graph_that_a_file_can_hold_is_read():
    assert reader.read(nested(30).SerializeToString()).proto.graph.node[0].op_type == "If"


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
