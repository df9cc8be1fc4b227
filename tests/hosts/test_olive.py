"""The pass and the surgeon for Olive, in `olive run` on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import running
from building import one_node
from definitions import space_to_batch
from onnx import helper, numpy_helper

pytest.importorskip("olive.passes", reason="needs olive-ai, with torch (pip install olive-ai)")

TOP = Path(__file__).parents[2]
X = np.arange(2 * 4 * 6 * 3, dtype=np.float32).reshape(2, 4, 6, 3)


def olive(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(TOP), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "OLIVE_DISABLE_TELEMETRY": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )


def original(folder: Path) -> Path:
    """y = SpaceToBatchND(x) + weight, with the weight in a file of external data."""
    model = one_node("SpaceToBatchND", (X, np.array([2, 2]), np.zeros((2, 2), int)))
    model.graph.node[0].output[0] = "moved"
    model.graph.node.append(helper.make_node("Add", ["moved", "weight"], ["y"]))
    weight = np.ones((8, 2, 3, 3), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "weight"))
    folder.mkdir()
    onnx.save(
        model, folder / "model.onnx", save_as_external_data=True, location="w", size_threshold=64
    )
    return folder / "model.onnx"


@pytest.mark.parametrize(
    "spatial",
    [
        {"type": "SpatialOperators", "strategy": "slices"},
        {"type": "GraphSurgeries", "surgeries": [{"surgeon": "LowerSpatialOperators"}]},
    ],
    ids=["pass", "surgeon"],
)
def test_a_workflow_converts_the_model(spatial: dict[str, Any], tmp_path: Path) -> None:
    package = olive(tmp_path, "onnx_spatial.hosts.olive")
    assert package.returncode == 0, package.stderr
    (tmp_path / "package.json").write_text(package.stdout)
    providers = {"device": "cpu", "execution_providers": ["CPUExecutionProvider"]}
    workflow = {
        "input_model": {"type": "OnnxModel", "model_path": str(original(tmp_path / "model"))},
        "systems": {"here": {"type": "LocalSystem", "accelerators": [providers]}},
        "passes": {"spatial": spatial},
        "host": "here",
        "target": "here",
        "evaluate_input_model": False,
        "output_dir": "out",
        "cache_dir": "cache",
    }
    (tmp_path / "workflow.json").write_text(json.dumps(workflow))
    words = ["olive", "run", "--config", "workflow.json", "--package-config", "package.json"]
    done = olive(tmp_path, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    (output,) = (tmp_path / "out").glob("*.onnx")
    (y,) = running.run(onnx.load(output), {"x": X})
    assert running.same_bits(y, space_to_batch(X, [2, 2], [(0, 0), (0, 0)]) + 1)
