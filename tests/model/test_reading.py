"""Reading models from whatever they are given as, what a model must fulfil, and how it is refused."""

import os
import re
import threading
import zipfile
from pathlib import Path

import every_field
import numpy as np
import onnx
import pytest
import running
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper, parser

import onnx_spatial
from onnx_spatial import ModelFileError, UsageError
from onnx_spatial.model import traversal
from onnx_spatial.model.io import reader, sparse, validate


def test_memory_that_runs_out_is_no_damage_of_the_file(path, monkeypatch):
    class Full:
        def ParseFromString(self, data):
            raise DecodeError(
                "Error parsing message with type 'onnx.ModelProto': Arena alloc failed"
            )

    monkeypatch.setattr(onnx, "ModelProto", Full)
    with pytest.raises(MemoryError):
        reader.read(path)


def refusal(target: Path | str) -> str:
    with pytest.raises(ModelFileError) as caught:
        reader.read(target)
    return str(caught.value)


def test_a_pipe_is_read_and_paths_that_cannot_be_read_are_told(path, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(path.read_bytes()))
    writer.start()
    assert reader.read(tmp_path / "pipe").proto == onnx.load(path)
    writer.join()
    folder = tmp_path / "folder"
    (folder / "a.onnx").mkdir(parents=True)
    what = f"{folder}: is a folder, not a model file; name"
    assert refusal(folder) == f"{what} a file, as no .onnx file is in it"
    (folder / "c.onnx").touch()
    (folder / "b.onnx").touch()
    first = f"{what} a file in it, such as {folder / 'b.onnx'}"
    assert refusal(folder) == f"{first}, or give it to `onnx-spatial validate`"
    assert "cannot be read: No such file" in refusal(folder / "none.onnx")
    assert "cannot be read: embedded null byte" in refusal("a\0b")
    with pytest.raises(UsageError, match="not int"):
        reader.read(7)


@pytest.mark.parametrize("constant", [False, True], ids=["initializer", "Constant"])
@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"location": "gone.bin"}, "external data file 'gone.bin' is missing .tensor 'w'."),
        ({"length": "17"}, "tensor 'w' needs 17 bytes of 'weights.bin', which has only 16"),
        ({"offset": "x"}, "offset and length of its external data must be integers"),
        ({"location": "model.onnx"}, "is the model itself"),
        ({"location": "."}, "is no regular file"),
        *[
            ({"location": at}, "leaves the model's folder")
            for at in ("../w", "/w", "a/../../w", "")
        ],
        ({"location": "pointer"}, "git lfs pull"),
    ],
)
def test_external_data_must_be_there(external, entry, reason, constant):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4005\n"
    (external.parent / "pointer").write_bytes(pointer)
    made = onnx.load(external, load_external_data=False)
    for held in made.graph.initializer[0].external_data:
        held.value = entry.get(held.key, "999" if "lfs" in reason else held.value)
    if constant:
        tensor = made.graph.initializer.pop()
        made.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    external.write_bytes(made.SerializeToString())
    assert re.search(reason, refusal(external))


def test_a_model_without_a_path_cannot_have_external_data(external):
    with pytest.raises(ModelFileError, match="give the model as a path"):
        reader.read(external.read_bytes())


def test_tensors_are_found_wherever_a_model_may_hold_them():
    model = every_field.build()
    for each in [*every_field.messages(model)]:
        if isinstance(each, onnx.GraphProto):
            each.initializer.add()
        elif isinstance(each, onnx.SparseTensorProto):
            each.values.name = each.indices.name = "sparse"
    tensors = [each for each in every_field.messages(model) if isinstance(each, TensorProto)]
    assert len(tensors) > 12
    assert sorted(map(str, traversal.tensors(model))) == sorted(map(str, tensors))


HEAD = '<ir_version: 10, opset_import: ["" : 17, "loc" : 1]>\n'
FUNCTION = '<opset_import: ["" : 17, "loc" : 1], domain: "loc">'


def parsed(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEAD + text)


@pytest.mark.parametrize("constant", [False, True])
def test_parameters_may_be_sparse_and_positions_outside_are_an_error(constant):
    """The block is an initializer or a Constant, of which the values that are not 0 are stored."""
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[2,6,6,1] x) => (float[?,?,?,?] y) <int64[2] b = {2, 3}, int64[2,2] p = {0, 2, 3, 3}>
        { y = com.microsoft.SpaceToBatchND(x, b, p) }"""
    plain, made = parser.parse_model(text), parser.parse_model(text)
    for tensor in made.graph.initializer:
        array = numpy_helper.to_array(tensor)
        values = numpy_helper.from_array(array[array != 0], tensor.name)
        places = numpy_helper.from_array(np.flatnonzero(array), "")
        held = helper.make_sparse_tensor(values, places, array.shape)
        if constant:
            node = helper.make_node("Constant", [], [tensor.name], sparse_value=held)
            made.graph.node.insert(0, node)
        else:
            made.graph.sparse_initializer.append(held)
    del made.graph.initializer[:]
    converted = onnx_spatial.convert(made)
    assert converted.verification
    x = {"x": np.arange(72, dtype=np.float32).reshape(2, 6, 6, 1)}
    wanted = running.run(onnx_spatial.convert(plain, verify=False).model, x)
    assert running.same_bits(running.run(converted.model, x)[0], wanted[0])
    held.indices.CopyFrom(numpy_helper.from_array(np.array([1, 2, 4]), ""))
    with pytest.raises(ValueError, match="do not fit"):
        sparse.dense_array(held, numpy_helper.to_array)


# Other formats

OPS = "--custom-ops SpaceToBatchND,BatchToSpaceND,ExtractImagePatches,ExtractVolumePatches"
TF2ONNX, TO = "export it first with: python -m tf2onnx.convert --", f"--opset 17 {OPS}"
#: Name, what begins the file (a name in an archive), code of the error, end of the message.
FORMATS = [
    ("my net", None, "export-first", f"{TF2ONNX}saved-model 'my net' --output 'my net.onnx' {TO}"),
    ("net.tflite", b"\x1c\0\0\0TFL3\x14\0", "export-first",
     f"{TF2ONNX}tflite net.tflite --output net.onnx {TO}"),
    ("net.keras", "config.json", "export-first", f"{TF2ONNX}keras net.keras --output net.onnx {TO}"),
    ("frozen.pb", b"\x0a\x05\x0a\x03inp", "export-first",
     f"{TF2ONNX}graphdef frozen.pb --inputs INPUT:0 --outputs OUTPUT:0 --output frozen.onnx {TO}"),
    ("net.pt", "archive/data.pkl", "export-first", "torch.onnx.export"),
    ("pointer.onnx", b"version https://git-lfs.github.com/spec/v1\n", "git-lfs-pointer", "git lfs pull"),
    ("bad.onnx", b"\xff\xff", "not-onnx", "or was cut off"),
    ("other.zip", "readme.txt", "not-onnx", ""),
    ("cut.zip", b"PK\x03\x04", "not-onnx", ""),
    ("none.onnx", None, "unreadable", ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "code", "words"), FORMATS)
def test_models_of_other_frameworks_are_named_with_the_command_that_exports_them(
    name, content, code, words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    if name == "my net":
        Path(name).mkdir()
        Path(name, "saved_model.pb").write_bytes(b"\x08\x01\x12\x02\x0a\x00")
    elif isinstance(content, str):
        with zipfile.ZipFile(name, "w") as file:
            file.writestr(content, b"{}")
    elif content is not None:
        Path(name).write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        onnx_spatial.inspect(name)
    assert caught.value.code == code and words in str(caught.value)


# Models that contradict themselves

#: What no test of hostile files has: cycles, producers and names in inner graphs and in functions.
BRANCHES = """g (bool c, float[1] x) => (float[1] z) { z = If (c) <
    then_branch = t () => (float[1] u) { THEN },
    else_branch = e () => (float[1] v) { [other] v = Neg(OTHER) }> }"""


def branches(then: str, other: str = "x") -> str:
    return BRANCHES.replace("THEN", then).replace("OTHER", other)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            branches("[one] u = Neg(x) [two] u = Abs(x)"),
            "'u' in main graph > If z.then_branch has two producers: Neg 'one' and Abs 'two'",
        ),
        (
            f"g (float[1] x) => (float[1] y) {{ y = loc.f(x) }} {FUNCTION} f (x) => (z) "
            "{ [one] z = Neg(x) [two] z = Abs(x) }",
            "'z' in function loc:f has two producers: Neg 'one' and Abs 'two'",
        ),
        (
            "g (float[1] x) => (float[1] z) <float[1] w = {1}> { w = Abs(z) z = Neg(x) }",
            "'w' in main graph has two producers: an input or initializer and Abs '<w>'",
        ),
        (
            branches("[here] u = Neg(absent)"),
            "Neg 'here' in main graph > If z.then_branch reads 'absent', "
            "which no node, input or initializer produces",
        ),
        (
            "g (float[1] x) => (float[1] z) { }",
            "main graph returns 'z', which no node, input or initializer produces",
        ),
        (
            f"g (float[1] x) => (float[1] z) {{ z = loc.outside(x) }}"
            f"{FUNCTION} f (x) => (y) {{ y = loc.h(x) }} {FUNCTION} h (x) => (y) {{ y = loc.f(x) }}"
            f"{FUNCTION} outside (x) => (y) {{ y = loc.f(x) }}",
            "functions call each other in a cycle: loc:f, loc:h",
        ),
    ],
)
def test_a_model_that_contradicts_itself_is_told_where(text, message):
    with pytest.raises(ModelFileError, match=re.escape(f"m.onnx: {message}") + "$"):
        validate.check(parsed(text), "m.onnx")


def test_outputs_may_be_left_out_but_a_split_has_as_many_as_it_says():
    made = parsed("g (float[4] x) => (float[2] y) { y, z = Split<num_outputs = 2>(x) }")
    made.graph.node.add(op_type="Split", input=["x"], output=["", ""])
    validate.check(made, "m.onnx")
    made.graph.node[0].output.append("more")
    words = "m.onnx: Split '<y>' in main graph has 3 outputs, not 2 as it says itself"
    with pytest.raises(ModelFileError, match=words):  # else it ends the process
        validate.check(made, "m.onnx")


def test_overloads_are_functions_of_their_own():
    """One that calls the other is no ring."""
    made = parsed(f"""g (float[1] x) => (float[1] z) {{ z = loc.f(x) }}
        {FUNCTION} f (a) => (b) {{ b = loc.f(a) }} {FUNCTION} f (a) => (b) {{ b = Neg(a) }}""")
    with pytest.raises(ModelFileError, match="is defined twice"):
        validate.check(made, "m.onnx")
    made.functions[1].overload = "plain"
    made.functions[0].node[0].overload = "plain"
    validate.check(made, "m.onnx")
