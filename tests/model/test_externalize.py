"""Weights go to a file beside the model, from memory or from the file that they are in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

import onnx_spatial
from onnx_spatial.model.io import reader, writer

TEXT = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[1,4,4,1] x) => (float[?,?,?,?] y) <int64[2] block = {2, 2}, int64[2,2] none = {0, 0, 0, 0}> {
    b = com.microsoft.SpaceToBatchND(x, block, none)
    c = Add(b, small)
    d = Mul(c, large)
    y = Mul(d, medium)
}"""


def saved(folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """A model with weights of several sizes, of which the large one stays in its file when read."""
    rng = np.random.default_rng(0)
    shapes = {"small": (1,), "medium": (4, 2, 2, 300), "large": (100, 1, 1, 1, 300)}
    weights = {n: rng.random(s, dtype=np.float32) for n, s in shapes.items()}
    model = parser.parse_model(TEXT)
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in weights.items())
    path = folder / "m.onnx"
    onnx.save(model, path)
    return path, weights


@pytest.mark.parametrize("given", ["path", "message"])
def test_the_converted_model_has_its_weights_beside_it(given, tmp_path):
    path, weights = saved(tmp_path)
    out = tmp_path / "out" / "o.onnx"
    out.parent.mkdir()
    model = path if given == "path" else onnx.load(path)
    result = onnx_spatial.convert(model, out, external_data=True)
    assert result.verification and result.output == out
    assert sorted(p.name for p in out.parent.iterdir()) == ["o.onnx", "o.onnx.data"]
    proto = onnx.load(out, load_external_data=False)
    external = {t.name for t in proto.graph.initializer if t.data_location}
    assert external == {"medium", "large"}
    offsets = [
        int(e.value) for t in proto.graph.initializer for e in t.external_data if e.key == "offset"
    ]
    assert all(offset % 64 == 0 for offset in offsets)
    for tensor in onnx.load(out).graph.initializer:
        if tensor.name in weights:
            assert (numpy_helper.to_array(tensor) == weights[tensor.name]).all()
    x = np.ones((1, 4, 4, 1), np.float32)
    (there,) = onnxruntime.InferenceSession(out).run(None, {"x": x})
    (here,) = onnxruntime.InferenceSession(result.model.SerializeToString()).run(None, {"x": x})
    assert (there == here).all()


def test_other_files_are_never_overwritten_and_a_failure_leaves_none(tmp_path, monkeypatch):
    path, _ = saved(tmp_path)
    (tmp_path / "o.onnx.data").write_text("mine")
    with monkeypatch.context() as patched:
        patched.setattr(writer, "_write_files", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            writer.write(reader.read(path), tmp_path / "o.onnx", external=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "o.onnx.data"]
    onnx_spatial.convert(path, tmp_path / "o.onnx", verify=False, external_data=True)
    assert (tmp_path / "o.onnx.data").read_text() == "mine"
    assert (tmp_path / "o.onnx.data_1").stat().st_size > 100_000
