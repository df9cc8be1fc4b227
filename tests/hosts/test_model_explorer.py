"""The adapter, as Model Explorer's server loads and runs it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from building import one_node

from onnx_spatial import schemas

PACKAGES = "pip install ai-edge-model-explorer model-explorer-onnx"
manager = pytest.importorskip("model_explorer.extension_manager", reason=f"needs {PACKAGES}")
pytest.importorskip("model_explorer_onnx", reason=f"needs {PACKAGES}")

MODELS = Path(__file__).parents[2] / "models"


@pytest.fixture
def extensions() -> Iterator[Any]:
    found = manager.ExtensionManager(["onnx_spatial.hosts.model_explorer"])
    found.load_extensions()
    yield found
    schemas.deregister()  # the adapter registers them for the server's process


def convert(extensions: Any, path: Path) -> dict[str, Any]:
    command = {
        "cmdId": "convert",
        "extensionId": "onnx_spatial",
        "modelPath": str(path),
        "settings": {},
        "deleteAfterConversion": False,
    }
    answer: dict[str, Any] = extensions.run_cmd(command)
    return answer


def attributes(node: dict[str, Any]) -> dict[str, str]:
    return {each["key"]: each["value"] for each in node["attrs"]}


def test_the_original_is_opened_beside_its_conversion(extensions, tmp_path):
    (adapter,) = [e for e in extensions.get_extensions_metadata() if "onnx" in e["fileExts"]]
    assert adapter["id"] == "onnx_spatial"
    shutil.copy(MODELS / "raft" / "model.onnx", tmp_path)
    before, after = convert(extensions, tmp_path / "model.onnx")["graphCollections"]
    assert (before["label"], after["label"]) == ("original", "converted")
    ids = [graph["id"] for graph in before["graphs"]]
    assert ids == [graph["id"] for graph in after["graphs"]] and "while_loop/body" in ids
    nodes = {node["id"]: node for graph in before["graphs"] for node in graph["nodes"]}
    node = nodes["while/ExtractImagePatches"]
    told = attributes(node)
    assert told["onnx-spatial: strategy"] and float(told["onnx-spatial: price in us"]) > 0
    assert told["onnx-spatial: changes"].startswith("removed") and node["style"]["backgroundColor"]
    added = [n for graph in after["graphs"] for n in graph["nodes"] if n.get("style")]
    assert added and all("onnx-spatial: changes" in attributes(n) for n in added)


def test_inputs_have_names_and_shapes_are_inferred(extensions, tmp_path):
    x = np.zeros((2, 4, 6, 3), np.float32)
    model = one_node("SpaceToBatchND", (x, np.array([2, 2]), np.zeros((2, 2), int)))
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, tmp_path / "m.onnx")
    before, _ = convert(extensions, tmp_path / "m.onnx")["graphCollections"]
    (site,) = [n for n in before["graphs"][0]["nodes"] if n["id"] == "site"]
    names = [attributes(each).get("param_name") for each in site["inputsMetadata"]]
    assert names == ["x", "block_shape", "paddings"]
    assert attributes(site["outputsMetadata"][0])["tensor_shape"] == "FLOAT[8,2,3,3]"


def test_a_model_that_is_not_converted_says_why(extensions, tmp_path):
    x = np.zeros((2, 4, 6, 3), np.float32)
    onnx.save(
        one_node("SpaceToBatchND", (x, np.array([2, 5]), np.zeros((2, 2), int))),
        tmp_path / "m.onnx",
    )
    (graph,) = convert(extensions, tmp_path / "m.onnx")["graphs"]
    assert "not divisible by its block, 5" in graph["groupNodeAttributes"][""]["onnx-spatial"]
    onnx.save(one_node("Identity", (x,), domain=""), tmp_path / "m.onnx")
    (graph,) = convert(extensions, tmp_path / "m.onnx")["graphs"]
    assert "onnx-spatial" not in graph["groupNodeAttributes"][""]
