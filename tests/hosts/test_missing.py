"""Extensions without their program: the message says what installs it."""

from __future__ import annotations

import importlib
import sys

import pytest


@pytest.mark.parametrize(
    ("extension", "program", "package"),
    [
        ("olive", "olive", "olive-ai"),
        ("onnx_doctor", "onnx_doctor", "onnx-doctor"),
        ("onnx_shape_inference", "onnx_shape_inference", "onnx-shape-inference"),
        ("model_explorer.main", "model_explorer", "ai-edge-model-explorer"),
    ],
)
def test_a_program_that_is_not_installed(extension, program, package, monkeypatch):
    monkeypatch.delitem(sys.modules, f"onnx_spatial.hosts.{extension}", raising=False)
    for name in [each for each in sys.modules if each.startswith(f"{program}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, program, None)
    with pytest.raises(ModuleNotFoundError, match=f"{program}.*pip install {package}$"):
        importlib.import_module(f"onnx_spatial.hosts.{extension}")
