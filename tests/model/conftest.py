"""Model files that the tests of reading and of writing share."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser


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
