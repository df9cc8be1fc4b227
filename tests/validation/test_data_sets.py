"""Recorded data is read as onnxruntime's runners read it, and what does not fit is said."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from validating import PLAIN, SEQUENCE, image, record, save

from onnx_spatial.errors import ModelFileError, UsageError
from onnx_spatial.validation import data_sets

TWO = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
g (float[2] a, float[2] b, float[2] c) => (float[2] d, float[2] e)
<float[2] c = {1, 2}> { d = Sub(a, b) e = Mul(a, c) }
""")
ONE, OTHER = np.array([1, 2], np.float32), np.array([3, 4], np.float32)


def named(array: np.ndarray, name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(array, name)


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


def test_files_without_names_go_by_their_number(tmp_path):
    found = data_sets.read(record(tmp_path, [ONE, OTHER], [ONE, OTHER]), TWO)
    assert found.inputs.keys() == {"a", "b"}
    assert (found.inputs["b"] == OTHER).all()
    assert (found.outputs["e"] == OTHER).all()


def test_an_input_with_a_default_may_be_fed_by_name_only(tmp_path):
    path = record(tmp_path, [ONE, OTHER, named(OTHER, "c")], [])
    assert (data_sets.read(path, TWO).inputs["c"] == OTHER).all()
    path = record(tmp_path, [ONE, OTHER, ONE], [], 1)
    with pytest.raises(UsageError, match="the model has only 2 inputs"):
        data_sets.read(path, TWO)


def test_archives_go_by_name_with_and_without_the_zero_of_tensorflow(tmp_path):
    model = parser.parse_model(PLAIN)
    model.graph.input[0].name = model.graph.node[0].input[0] = "x:0"
    path = tmp_path / "net.npz"
    np.savez(path, x=np.ones((2, 4), np.float32), y=np.ones((2, 4), np.float32), z=ONE)
    found = data_sets.read(path, model)
    assert found.inputs.keys() == {"x:0"}
    assert found.outputs.keys() == {"y"}
    assert found.unknown == ("z",)


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


def test_two_files_for_one_input_are_an_error(tmp_path):
    path = record(tmp_path, [named(ONE, "b"), ONE], [])
    with pytest.raises(UsageError, match="input 'b' is in another file too"):
        data_sets.read(path, TWO)


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
