"""Overlays for Model Explorer: its format, the names of its ONNX adapter, all that is known."""

from __future__ import annotations

import json

import onnx
from report_models import net

import onnx_spatial
from onnx_spatial.cli.main import run

SCALES = {"gradient", "name", "results"}


def overlays(model: object) -> dict:
    return onnx_spatial.convert(model).model_explorer()


def test_an_overlay_has_what_model_explorer_reads():
    found = overlays("models/raft/model.onnx")
    sides = {"original", "converted"}
    kinds = {"changes", "strategy", "price", "proof"}
    assert {*found} == {f"{side}.{kind}" for side in sides for kind in kinds}
    for name, overlay in found.items():
        for data in overlay.values():
            assert data["results"] and {*data} <= SCALES
            assert ("gradient" in data) == name.endswith(".price")
            for result in data["results"].values():
                assert "value" in result and {*result} <= {"value", "bgColor"}
    assert json.loads(json.dumps(found)) == found


def test_graphs_and_nodes_have_the_ids_of_the_adapter():
    model = net(30, 2)
    for node in model.graph.node:
        node.name = ""
    found = overlays(model)
    (results,) = (data["results"] for data in found["original.strategy"].values())
    blocks = [f"<node_{i}>" for i, n in enumerate(model.graph.node) if "Batch" in n.op_type]
    assert [*results] == blocks
    assert {*found["original.changes"]} == {"net"}
    # The adapter names the graph inside a node after the node.
    assert {*overlays("models/raft/model.onnx")["original.strategy"]} == {"while_loop/body"}
    called = onnx_spatial.convert("models/deeplab/model.onnx", mode="function", verify=False)
    assert any(
        name.startswith("[function]") for name in called.model_explorer()["converted.changes"]
    )


def test_every_operator_has_its_strategy_price_and_proof():
    result = onnx_spatial.convert("models/raft/model.onnx")
    found = {
        name: next(iter(each.values()))["results"] for name, each in result.model_explorer().items()
    }
    for site in result.inspection.sites:
        assert found["original.strategy"][site.node]["value"] == site.strategy
        assert found["original.price"][site.node]["value"] == round(site.estimated_us, 3)
        assert found["original.proof"][site.node]["value"] == "proven for all sizes"
        assert found["original.changes"][site.node]["value"].startswith(("removed", "changed"))
    # Each price once, on the first of the nodes that took the operator's place.
    prices = sorted(each["value"] for each in found["converted.price"].values())
    assert prices == sorted(round(site.estimated_us, 3) for site in result.inspection.sites)


def test_the_command_writes_a_file_for_each_overlay(tmp_path, capsys):
    model = tmp_path / "net.onnx"
    onnx.save(net(30, 2), model)
    folder = tmp_path / "new" / "folder"
    words = ["convert", str(model), "--dry-run", "--no-verify", "-q", "--model-explorer"]
    assert run([*words, str(folder)]) == 0
    names = sorted(path.name for path in folder.iterdir())
    kinds = ("converted.changes", "converted.strategy", "original.changes", "original.strategy")
    assert names == [f"net.{kind}.json" for kind in kinds]
    expected = onnx_spatial.convert(str(model), verify=False).model_explorer()
    assert (
        json.loads((folder / "net.original.changes.json").read_text())
        == expected["original.changes"]
    )
    assert run([*words, str(model)]) == 2
    assert "--model-explorer" in capsys.readouterr().err
