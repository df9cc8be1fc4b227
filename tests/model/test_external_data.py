"""External data: where it lies, and whether two tensors hold the same bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from onnx_spatial import ModelFileError
from onnx_spatial.model.io import external_data, reader

VALUES = np.arange(1000, dtype=np.float32)


def outside(folder: Path, data: bytes, name: str = "w.bin", *, length: bool = True) -> TensorProto:
    """The tensor `VALUES` with these bytes in a file, 5 bytes into it."""
    (folder / name).write_bytes(b"12345" + data)
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1000])
    tensor.data_location = TensorProto.EXTERNAL
    places = {"location": name, "offset": "5", "length": str(len(data))}
    for key, value in places.items():
        if key != "length" or length:
            tensor.external_data.add(key=key, value=value)
    return tensor


@pytest.mark.parametrize("length", [True, False])
def test_the_same_bytes_are_the_same_wherever_they_lie(tmp_path, monkeypatch, length):
    monkeypatch.setattr(external_data, "_COMPARE_BYTES", 64)
    (tmp_path / "other").mkdir()
    inside = numpy_helper.from_array(VALUES, "w")
    here = outside(tmp_path, VALUES.tobytes(), length=length)
    there = outside(tmp_path / "other", VALUES.tobytes(), "v.bin")
    typed = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1000], float_data=VALUES)
    assert external_data.same(here, tmp_path, there, tmp_path / "other")
    assert external_data.same(here, tmp_path, inside, None)
    assert external_data.same(typed, None, here, tmp_path)


def test_other_bytes_or_names_are_not(tmp_path):
    here = outside(tmp_path, VALUES.tobytes())
    changed = VALUES.copy()
    changed[-1] += 1
    for data in (changed.tobytes(), VALUES.tobytes()[:-4], VALUES.tobytes() + b"1234"):
        assert not external_data.same(here, tmp_path, outside(tmp_path, data, "v.bin"), tmp_path)
    assert not external_data.same(here, tmp_path, numpy_helper.from_array(changed, "w"), None)
    for field, value in (("name", "v"), ("doc_string", "more"), ("data_type", TensorProto.INT32)):
        other = outside(tmp_path, VALUES.tobytes())
        setattr(other, field, value)
        assert not external_data.same(here, tmp_path, other, tmp_path)
    (tmp_path / "w.bin").unlink()
    assert not external_data.same(here, tmp_path, numpy_helper.from_array(VALUES, "w"), None)


def test_a_pointer_that_git_left_in_their_place_is_told_from_a_file_that_is_too_short(tmp_path):
    model = onnx.ModelProto(ir_version=10, graph=onnx.GraphProto(name="g"))
    model.graph.initializer.append(outside(tmp_path, VALUES.tobytes()))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    for left, reason in (
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4005\n", "git lfs pull"),
        (b"version 1", "needs 4005 bytes of 'w.bin', which has only 9"),
    ):
        (tmp_path / "w.bin").write_bytes(left)
        with pytest.raises(ModelFileError, match=reason):
            reader.read(tmp_path / "model.onnx")


def test_tensors_are_found_wherever_a_model_may_hold_them(tmp_path):
    def named(location: str) -> TensorProto:
        return outside(tmp_path, VALUES.tobytes(), location)

    def node(name: str, attribute: str, **parts: object) -> onnx.NodeProto:
        made = onnx.NodeProto(op_type="Any", name=name)
        made.attribute.add(name=attribute, **parts)
        return made

    model = onnx.ModelProto(ir_version=10)
    model.graph.initializer.append(named("initializer"))
    model.graph.sparse_initializer.add(values=named("sparse values"), indices=named("indices"))
    model.graph.node.append(node("a", "value", t=named("attribute")))
    model.graph.node.append(node("b", "values", tensors=[named("one"), named("other")]))
    inner = onnx.GraphProto(initializer=[named("inner")])
    model.graph.node.append(node("c", "body", g=inner, type=onnx.AttributeProto.GRAPH))
    model.graph.node.append(
        node("d", "bodies", graphs=[onnx.GraphProto(node=[node("e", "v", t=named("deep"))])])
    )
    sparse = onnx.SparseTensorProto(values=named("sparse attribute"))
    model.graph.node.append(node("f", "sparse", sparse_tensor=sparse, sparse_tensors=[sparse]))
    model.functions.add(name="F", node=[node("g", "value", t=named("function"))])
    model.training_info.add().algorithm.initializer.append(named("training"))
    assert set(external_data.locations(reader.Source(model, tmp_path / "model.onnx"))) == {
        *("initializer", "sparse values", "indices", "sparse attribute", "training", "function"),
        *("attribute", "one", "other", "inner", "deep"),
    }
