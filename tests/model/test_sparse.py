"""Sparse tensors are read as the dense arrays that they stand for."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_spatial
from onnx_spatial.model.io import sparse

DOMAIN = "ai.onnx.converters.tensorflow"


def sparse_tensor(name: str, array: np.ndarray, *, columns: bool = False) -> onnx.SparseTensorProto:
    positions = np.argwhere(array) if columns else np.flatnonzero(array)
    return helper.make_sparse_tensor(
        numpy_helper.from_array(array[array != 0], name),
        numpy_helper.from_array(positions.astype(np.int64), f"{name}_indices"),
        array.shape,
    )


@pytest.mark.parametrize("position", [-1, 6])
def test_a_position_outside_is_an_error(position):
    tensor = sparse_tensor("t", np.array([[0, 7, 0], [5, 0, 3]], np.int32))
    wrong = np.array([1, 3, position], np.int64)
    tensor.indices.CopyFrom(numpy_helper.from_array(wrong, "t_indices"))
    with pytest.raises(ValueError, match="do not fit"):
        sparse.dense_array(tensor, numpy_helper.to_array)


def space_to_batch(stored: str, *, constant: bool) -> onnx.ModelProto:
    """A SpaceToBatchND whose inputs in `stored` are sparse initializers or Constant nodes."""
    arrays = {
        "b": np.array([2, 3], np.int64),
        "p": np.array([[0, 2], [3, 3]], np.int64),
    }
    tensors = {name: sparse_tensor(name, arrays[name]) for name in stored}
    nodes = [
        helper.make_node("Constant", [], [name], sparse_value=tensor)
        for name, tensor in tensors.items()
        if constant
    ]
    nodes.append(helper.make_node("SpaceToBatchND", ["x", "b", "p"], ["y"], domain=DOMAIN))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6, 6, 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(arrays[name], name) for name in "bp" if name not in stored],
        sparse_initializer=[] if constant else tensors.values(),
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("stored", ["b", "p", "bp"])
def test_parameters_may_be_sparse(stored, constant):
    converted = onnx_spatial.convert(space_to_batch(stored, constant=constant))
    assert converted.verification.status == "passed", converted.verification.message
    plain = onnx_spatial.convert(space_to_batch("", constant=False), verify=False).model
    x = np.arange(72, dtype=np.float32).reshape(2, 6, 6, 1)
    results = [
        ort.InferenceSession(m.SerializeToString()).run(None, {"x": x})[0]
        for m in (converted.model, plain)
    ]
    np.testing.assert_array_equal(*results)
