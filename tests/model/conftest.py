"""Model files that the tests of reading and of writing share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import external_data_helper, parser

TEXT = """<ir_version: 9, opset_import: ["" : 17]>
    g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"""


@pytest.fixture
def model() -> onnx.ModelProto:
    return parser.parse_model(TEXT)


@pytest.fixture
def path(tmp_path: Path, model: onnx.ModelProto) -> Path:
    target = tmp_path / "in" / "model.onnx"
    target.parent.mkdir()
    target.write_bytes(model.SerializeToString())
    return target


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """A model whose weight lies in weights.bin beside it."""
    target = tmp_path / "external" / "model.onnx"
    target.parent.mkdir()
    (target.parent / "weights.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    made = parser.parse_model(TEXT.replace("[2]", "[4]").replace("{1, 2}", "{1, 2, 3, 4}"))
    external_data_helper.set_external_data(made.graph.initializer[0], "weights.bin", 0, 16)
    made.graph.initializer[0].ClearField("float_data")
    made.graph.initializer[0].ClearField("raw_data")
    target.write_bytes(made.SerializeToString())
    return target
