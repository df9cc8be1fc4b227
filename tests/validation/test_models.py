"""Files, folders and globs become a list of models, and recorded data what models are fed."""

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from validating import PLAIN, SEQUENCE, image, record, save

from onnx_spatial.errors import ModelFileError, UsageError
from onnx_spatial.validation import data_sets
from onnx_spatial.validation.run import find


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with models, as the current one."""
    for name in (
        "b.onnx", "a.onnx", "a10.onnx", "notes.txt", "deep/er/c.ONNX", "deep/model.onnx",
        "deep/model.npz", ".git/hidden.onnx", ".hidden.onnx",
    ):  # fmt: skip
        path = tmp_path / "models" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


ALL = "a.onnx a10.onnx b.onnx deep/er/c.ONNX deep/model.onnx"


@pytest.mark.parametrize(
    ("paths", "excluded", "found"),
    [
        (["models"], [], ALL),
        (["mod*"], [], ALL),
        (["models/a*.onnx"], [], "a.onnx a10.onnx"),
        (["models/**/model.*"], [], "deep/model.onnx"),
        (
            ["models/b.onnx", "models", "./models/a.onnx"],
            [],
            "b.onnx " + ALL.replace(" b.onnx", ""),
        ),
        # What is excluded is left out of folders and globs only.
        (["models"], ["a*", "models/deep/*"], "b.onnx"),
        (["./models"], ["a*", "./models/deep/*"], "b.onnx"),
        (["models/a.onnx"], ["a*"], "a.onnx"),
    ],
)
def test_folders_and_globs_stand_for_models_each_once_in_order(paths, excluded, found, tree):
    names = [Path(p).relative_to("models").as_posix() for p in find(paths, excluded)]
    assert names == found.split()
    assert find([str(tree / "models" / "b*")]) == [str(tree / "models" / "b.onnx")]


def test_a_link_is_a_model_of_its_own(tree):
    """As a store of large files makes them: equal models are links to one file."""
    (tree / "models" / "deep" / "same.onnx").symlink_to("../b.onnx")
    (tree / "models" / "z-link.onnx").symlink_to("b.onnx")
    (tree / "models" / "z-link.npz").write_bytes(b"")
    found = find(["models"])
    assert {"models/b.onnx", "models/deep/same.onnx", "models/z-link.onnx"} <= set(found)
    assert len(found) == 7


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("nowhere", "there is no such file or folder"),
        ("models/*.tflite", "matches no file"),
        ("models/.git/empty", "contains no .onnx file"),
        ("models", "er: cannot be listed: Permission denied"),
    ],
)
def test_a_path_without_a_model_is_an_error(tree, path, reason, monkeypatch):
    (tree / "models/.git/empty").mkdir()
    scandir = os.scandir

    def refusing(path):
        if Path(path).name == "er":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(UsageError, match=reason):
        find(["models/a.onnx", path])


# Recorded data

TWO = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
g (float[2] a, float[2] b, float[2] c) => (float[2] d, float[2] e)
<float[2] c = {1, 2}> { d = Sub(a, b) e = Mul(a, c) }
""")
ONE, OTHER = np.array([1, 2], np.float32), np.array([3, 4], np.float32)


def test_sets_are_found_by_number_and_the_archive_comes_last(tmp_path):
    model = save(tmp_path / "net.onnx")
    for number in (10, 2, 0):
        record(tmp_path, [image()], [], number)
    (tmp_path / "test_data_set_x").mkdir()
    (tmp_path / "test_data_set_3").write_text("a file")
    np.savez(tmp_path / "net.npz", x=image())
    np.savez(tmp_path / "other.npz", x=image())
    assert [p.name for p in data_sets.find(model)] == [
        "test_data_set_0",
        "test_data_set_2",
        "test_data_set_10",
        "net.npz",
    ]


def named(array: np.ndarray, name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(array, name)


def test_files_go_by_name_or_number_and_each_input_is_fed_once(tmp_path):
    found = data_sets.read(record(tmp_path, [ONE, OTHER], [ONE, OTHER]), TWO)
    assert found.inputs.keys() == {"a", "b"}
    assert (found.inputs["b"] == OTHER).all() and (found.outputs["e"] == OTHER).all()
    path = record(tmp_path, [ONE, OTHER, named(OTHER, "c")], [], 1)  # which has a default
    assert (data_sets.read(path, TWO).inputs["c"] == OTHER).all()
    for number, inputs, reason in (
        (2, [ONE, OTHER, ONE], "the model has only 2 inputs"),
        (3, [named(ONE, "b"), ONE], "input 'b' is in another file too"),
    ):
        with pytest.raises(UsageError, match=reason):
            data_sets.read(record(tmp_path, inputs, [], number), TWO)


def test_archives_go_by_name_with_and_without_the_zero_of_tensorflow(tmp_path):
    model = parser.parse_model(PLAIN)
    model.graph.input[0].name = model.graph.node[0].input[0] = "x:0"
    path = tmp_path / "net.npz"
    np.savez(path, x=np.ones((2, 4), np.float32), y=np.ones((2, 4), np.float32), z=ONE)
    found = data_sets.read(path, model)
    assert found.inputs.keys() == {"x:0"}
    assert found.outputs.keys() == {"y"}
    assert found.unknown == ("z",)
    np.savez(path, picture=ONE, z=ONE)
    with pytest.raises(UsageError, match="has no array for x:0; it has picture, z"):
        data_sets.read(path, model)


def test_sequences_and_optionals_are_what_the_model_declares(tmp_path):
    arrays = [np.full((2, 4), i, np.float32) for i in range(3)]
    sequence = numpy_helper.from_list(arrays, "x")
    found = data_sets.read(
        record(tmp_path, [sequence, np.array(1)], [arrays[1]]), parser.parse_model(SEQUENCE)
    )
    assert [a[0, 0] for a in found.inputs["x"]] == [0, 1, 2]
    assert not found.dense
    optional = parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
    g (optional(float[2]) x) => (bool y) { y = OptionalHasElement(x) }""")
    path = record(tmp_path / "o", [numpy_helper.from_optional(ONE, "x")], [np.array(True)])
    assert (data_sets.read(path, optional).inputs["x"] == ONE).all()


@pytest.mark.parametrize(
    "value",
    [
        np.array([1.5, -0.0, np.nan], np.float32),
        np.array([1, 2], ml_dtypes.bfloat16),
        np.array(["", "é", "a b"], object),
    ],
)
def test_values_are_read_bit_for_bit(tmp_path: Path, value):
    element_type = onnx.TensorProto.STRING
    if value.dtype != object:
        element_type = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
    infos = [onnx.helper.make_tensor_value_info(n, element_type, value.shape) for n in "xy"]
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", infos[:1], infos[1:]))
    found = data_sets.read(record(tmp_path, [value], [value]), model)
    for array in (found.inputs["x"], found.outputs["y"]):
        assert array.dtype == value.dtype and array.shape == value.shape
        assert array.tolist() == value.tolist() or array.tobytes() == value.tobytes()


@pytest.mark.parametrize("name", ["test_data_set_0", "m.npz"])
def test_a_link_that_leads_nowhere_is_not_passed_over(tmp_path, name):
    path = save(tmp_path / "m.onnx")
    (tmp_path / name).symlink_to("nowhere")
    assert data_sets.find(path) == [tmp_path / name]
    with pytest.raises(ModelFileError, match=f"{name}: is a link to a missing file"):
        data_sets.read(tmp_path / name, onnx.load(str(path)))
