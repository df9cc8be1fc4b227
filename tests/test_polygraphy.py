"""The extension of `polygraphy run`, in the real program."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest
import structure
from building import one_node

pytest.importorskip("polygraphy", reason="needs polygraphy (pip install polygraphy)")

TOP = Path(__file__).parents[1]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    x = np.zeros((2, 4, 6, 3), np.float32)
    path = tmp_path / "original.onnx"
    onnx.save(one_node("SpaceToBatchND", (x, np.array([2, 2]), np.zeros((2, 2), int))), path)
    return path


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With the entry points of pyproject.toml, also if an older version is installed."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]
    lines = ["[polygraphy.run.plugins]"]
    lines += [f"{n} = {v}" for n, v in project["entry-points"]["polygraphy.run.plugins"].items()]
    installed = tmp_path / "site" / "onnx_spatial_entry-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: onnx-spatial-entry\nVersion: 1\n"
    )
    (installed / "entry_points.txt").write_text("\n".join(lines))
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(TOP), str(tmp_path / "site")])}


def polygraphy(environment: dict[str, str], *words: object) -> subprocess.CompletedProcess[str]:
    code = "import sys; from polygraphy.tools import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        cwd=TOP,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_the_original_is_compared_with_onnxruntime(model, environment):
    done = polygraphy(environment, "run", model, "--spatial", "--onnxrt")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "spatial-runner" in done.stdout and "onnxrt-runner" in done.stdout
    assert "All outputs matched | Outputs: ['y']" in done.stdout
    assert [*model.parent.glob("*.onnx")] == [model]


def test_a_script_keeps_the_converted_model(model, environment, tmp_path):
    script, converted = tmp_path / "compare.py", tmp_path / "converted.onnx"
    words = ["run", model, "--onnxrt", "--spatial", "--gen-script", script]
    done = polygraphy(environment, *words)
    assert done.returncode and "--spatial-converted FILE" in done.stdout + done.stderr
    done = polygraphy(environment, *words, "--spatial-converted", converted)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not structure.spatial(onnx.load(converted))
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0 and "PASSED" in done.stdout, done.stdout + done.stderr


def test_a_refused_model_is_one_line(model, environment):
    broken = onnx.load(model)
    block = next(t for t in broken.graph.initializer if list(t.dims) == [2])
    block.CopyFrom(onnx.numpy_helper.from_array(np.array([2, 5]), block.name))
    onnx.save(broken, model)
    done = polygraphy(environment, "run", model, "--spatial", "--onnxrt")
    assert done.returncode and "SpaceToBatchND 'site'" in done.stdout + done.stderr
