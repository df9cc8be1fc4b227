"""Files that a campaign of damaged files found to be badly answered, each cut down to what it takes."""

from __future__ import annotations

import os
import sys
import warnings

import numpy as np
import onnx
import pytest
from adapter import run
from building import TF, one_node
from onnx import TensorProto, helper

import onnx_spatial
from onnx_spatial import SpatialError

BLOCK, NONE = np.array([2, 2]), np.zeros((2, 2), np.int64)


def site(shape: tuple[int | str, ...] = (1, 4, 4, 2), **options: object) -> onnx.ModelProto:
    data = np.zeros([d if isinstance(d, int) else 1 for d in shape][:8], np.float32)
    return one_node("SpaceToBatchND", [data, BLOCK, NONE], shape=list(shape), **options)


def dims(model: onnx.ModelProto, *sizes: int) -> None:
    """Change what is declared of x."""
    shape = model.graph.input[0].type.tensor_type.shape
    del shape.dim[:]
    shape.dim.extend(onnx.TensorShapeProto.Dimension(dim_value=size) for size in sizes)


def message(model: onnx.ModelProto | bytes) -> str:
    with pytest.raises(SpatialError) as caught:
        onnx_spatial.convert(model, verify=onnx_spatial.VerifyOptions(strict=True))
    text = str(caught.value)
    assert text.isprintable() and len(text) < 2000
    return text


def test_names_are_told_without_their_line_breaks_and_not_at_any_length():
    made = site()
    made.graph.node[0].name = "red \x1b[31m\nnode" + "é" * 10**5
    made.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array([0, 2]), "p1"))
    text = message(made)
    assert "\\x1b[31m\\nnode" in text and "[...]" in text


@pytest.mark.parametrize("what", ["dim", "location", "operator"])
def test_text_that_is_not_utf_8_is_refused(what, tmp_path, capsys):
    made = site(("MARK", 4, 4, 2))
    if what == "location":
        made.graph.initializer[0].data_location = TensorProto.EXTERNAL
        made.graph.initializer[0].external_data.add(key="location", value="MARK")
    if what == "operator":
        made.graph.node.append(helper.make_node("MARK", ["x"], ["other"]))
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString().replace(b"MARK", b"\xff\xfe\xfd\xfc"))
    assert run(["convert", str(path), "--dry-run"]) == 2
    assert "is not UTF-8 text" in capsys.readouterr().err


@pytest.mark.parametrize("size", [-(2**62), 2**62])
def test_external_data_of_a_size_that_cannot_be_is_not_read(size, tmp_path):
    made = site()
    tensor = made.graph.initializer[0]
    (tmp_path / "w.bin").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.dims[0] = size
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    with pytest.raises(SpatialError):
        onnx_spatial.convert(path)


def many_entries() -> onnx.ModelProto:
    made = site(run_time=[1, 2])
    for parameter in made.graph.input[1:]:
        parameter.type.tensor_type.shape.dim[0].dim_value = 2**62
    return made


TEXTS = np.array(["a", "b"] * 16, object).reshape(1, 4, 4, 2)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (site(tuple(["N", "H", "W"] * 85)), "numpy"),
        (
            one_node("SpaceToBatchND", [TEXTS, BLOCK, np.array([[2**21, 0], [0, 0]])]),
            "too large to be compared",
        ),
        (
            one_node(
                "SpaceToBatch",
                [np.zeros((1, 1, 1, 2), np.float32), np.zeros((2, 2), np.int32)],
                run_time=[1],
                block_size=2**31,
            ),
            "is not divisible by its block, 2147483648",
        ),
        (many_entries(), "no tensor has so many dims"),
    ],
)
def test_what_is_too_much_is_not_made_for_a_comparison(made, told):
    assert told in message(made)


def test_what_libraries_remark_is_not_printed_by_the_command(tmp_path, capsys, monkeypatch):
    made = site()
    tensor = made.graph.initializer[0]
    (tmp_path / "w.bin").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    tensor.external_data.add(key="lefgth", value="16")
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    monkeypatch.setattr(sys, "warnoptions", [])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert run(["convert", str(path), "-o", os.fspath(tmp_path / "o.onnx")]) == 0
    assert capsys.readouterr().err == "" and not told
    written = onnx.load(tmp_path / "o.onnx", load_external_data=False)
    assert TF not in [o.domain for o in written.opset_import]


def test_onnxruntime_prints_nothing_of_its_own(tmp_path, capsys):
    """A name in its message that it cannot decode is a failed provider to it, it says on stdout."""
    made = site()
    made.graph.node.append(helper.make_node("Neg", ["y"], ["z"], MARK=1))
    made.graph.output[0].name = "z"
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString().replace(b"MARK", b"\xff\xfe\xfd\xfc"))
    assert run(["convert", str(path), "--dry-run", "--json", "--strict"]) != 0
    assert "Falling back" not in capsys.readouterr().out
