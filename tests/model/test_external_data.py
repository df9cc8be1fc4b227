"""External data: where it lies, and whether two tensors hold the same bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

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
