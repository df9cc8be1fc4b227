"""Operators behind those of onnxruntime-extensions, whose types onnx does not know."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from definitions import space_to_batch
from onnx import TensorProto, helper, numpy_helper

from onnx_spatial import InferenceSession

extensions = pytest.importorskip("onnxruntime_extensions")

WORDS = np.array([chr(97 + i) for i in range(16)], object)


def behind(
    foreign: str,
    op_type: str,
    table: list[list[int]],
    declared: int,
    shape: list[int] | None,
    opset: int,
) -> onnx.ModelProto:
    """Words into a foreign operator, its output into one of ours."""
    graph = helper.make_graph(
        [
            helper.make_node(foreign, ["words"], ["x"], domain="ai.onnx.contrib"),
            helper.make_node(op_type, ["x", "block", "table"], ["moved"], name="site"),
            helper.make_node("Identity", ["moved"], ["y"]),
        ],
        "behind",
        [helper.make_tensor_value_info("words", TensorProto.STRING, shape)],
        [helper.make_tensor_value_info("y", declared, None)],
        [numpy_helper.from_array(np.array(v), n) for n, v in (("block", [2, 2]), ("table", table))],
    )  # fmt: skip
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.contrib", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    info = helper.make_tensor_value_info("moved", declared, None)
    if table != [[0, 0], [0, 0]]:
        model.graph.value_info.append(info)
    return model


@pytest.mark.parametrize("mode", ["lower", "function", "custom-op"])
@pytest.mark.parametrize(("opset", "shape"), [(11, None), (17, [1, 4, 4, 1]), (17, None)])
@pytest.mark.parametrize("pads", [[[0, 0], [0, 0]], [[1, 1], [0, 2]]], ids=["plain", "padded"])
def test_strings(mode, opset, shape, pads):
    model = behind("StringUpper", "SpaceToBatchND", pads, TensorProto.STRING, shape, opset)
    options = onnxruntime.SessionOptions()
    if mode != "custom-op":
        options.register_custom_ops_library(extensions.get_library_path())
    session = InferenceSession(model, options, mode=mode)
    words = WORDS.reshape(1, 4, 4, 1)
    (y,) = session.run(None, {"words": words})
    numbers = space_to_batch(np.arange(1, 17).reshape(1, 4, 4, 1), [2, 2], pads)
    assert y.tolist() == np.array(["", *"ABCDEFGHIJKLMNOP"], object)[numbers].tolist()
