"""The programs of docs/deploy.md, in the real tools, with the model of that page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import running

import onnx_spatial

TOP = Path(__file__).parents[1]
IMAGE = np.random.default_rng(0).random((1, 32, 32, 3), np.float32)


def block(section: str, language: str) -> str:
    """The only block of a language in a section of the page."""
    page = (TOP / "docs" / "deploy.md").read_text("utf-8")
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)
    return str(found)


def convert(path: Path) -> onnxruntime.InferenceSession:
    """Write the model where the page has it, and open it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx_spatial.convert(TOP / "models" / "deeplab" / "model.onnx", path, verify=False)
    return onnxruntime.InferenceSession(path)


def outputs(section: str) -> Mapping[str, np.ndarray]:
    names = {"image": IMAGE}
    exec(block(section, "python"), names)
    found: Mapping[str, np.ndarray] = names["outputs"]
    return found


def test_mlflow(tmp_path, monkeypatch):
    pytest.importorskip("pandas", reason="needs pandas, for mlflow")
    pytest.importorskip("mlflow.onnx", reason="needs mlflow (pip install mlflow-skinny pandas)")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.chdir(tmp_path)
    session = convert(tmp_path / "converted.onnx")
    (expected,) = session.run(["logits"], {"image": IMAGE})
    assert running.same_bits(outputs("MLflow")["logits"], expected)
    required = (tmp_path / "deeplab" / "requirements.txt").read_text("utf-8")
    assert "onnxruntime" in required and "spatial" not in required


def test_hugging_face(tmp_path, monkeypatch):
    reason = "needs optimum-onnx, with torch (pip install optimum-onnx)"
    pytest.importorskip("optimum.onnxruntime", reason=reason)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    session = convert(tmp_path / "deeplab" / "model.onnx")
    (expected,) = session.run(["logits"], {"image": IMAGE})
    assert running.same_bits(np.asarray(outputs("Hugging Face")["logits"]), expected)


def test_triton(tmp_path):
    pytest.importorskip(
        "grpc", reason="needs tritonclient with grpc (pip install 'tritonclient[grpc]')"
    )
    triton = pytest.importorskip("tritonclient.grpc.model_config_pb2", reason="needs tritonclient")
    from google.protobuf import text_format

    config = text_format.Parse(block("Triton", "protobuf"), triton.ModelConfig())
    session = convert(tmp_path / "models" / config.name / "1" / "model.onnx")
    types = {triton.TYPE_FP32: "tensor(float)"}
    for declared, real in (
        (config.input, session.get_inputs()),
        (config.output, session.get_outputs()),
    ):
        assert [each.name for each in declared] == [each.name for each in real]
        for ours, theirs in zip(declared, real, strict=True):
            assert types[ours.data_type] == theirs.type
            fixed = [dim if isinstance(dim, int) else -1 for dim in theirs.shape]
            assert [*ours.dims] == fixed
