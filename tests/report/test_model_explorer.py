"""Overlays for Model Explorer: its format, the names of its ONNX adapter, all that is known."""

from __future__ import annotations

import json

import onnx
from report_models import net

import onnx_spatial
from onnx_spatial.cli.main import run

#: Keys that Model Explorer knows, beside the gradient of numbers.
WORDS = {"name", "results", "hideInAggregatedStatsTable", "showExpandedSummaryOnGroupNode"}


def overlays(model: object) -> dict:
    return onnx_spatial.convert(model).model_explorer()


def test_an_overlay_has_what_model_explorer_reads():
    found = overlays("models/raft/model.onnx")
    sides = {"original", "converted"}
    kinds = {"changes", "strategy", "price", "proof"}
    assert {*found} == {f"{side}.{kind}" for side in sides for kind in kinds}
    for name, overlay in found.items():
        for data in overlay.values():
            numbers = name.endswith(".price")
            assert {*data} == ({"name", "results", "gradient"} if numbers else WORDS)
            assert data["results"]
            for result in data["results"].values():
                assert {*result} == ({"value"} if numbers else {"value", "bgColor"})
    assert json.loads(json.dumps(found)) == found


NESTED = """<ir_version: 9, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
main (float[2,4,6,3] x, bool c, int64 n) => (float[P,Q,R,S] y, float[P2,Q2,R2,S2] z)
<int64[2] block = {2, 2}, int64[2,2] none = {0, 0, 0, 0}> {
    a = Relu(x)
    y = If (c) <
        then_branch = t () => (float[a1,a2,a3,a4] u) {
            u = ai.onnx.converters.tensorflow.SpaceToBatchND(a, block, none) },
        else_branch = e () => (float[b1,b2,b3,b4] v) { v = Relu(a) }>
    [again] z = Loop (n, c, x) <
        body = b (int64 i, bool go, float[l1,l2,l3,l4] s) => (bool on, float[k1,k2,k3,k4] r) {
        on = Identity(go)
        m = ai.onnx.converters.tensorflow.SpaceToBatchND(s, block, none)
        w = Relu(m)
        [again] r = ai.onnx.converters.tensorflow.BatchToSpaceND(w, block, none) }>
}
"""


def test_graphs_and_nodes_have_the_ids_of_the_adapter():
    """The adapter names nodes without a name "node", "node_1", ..., and draws an If in its graph."""
    found = overlays(onnx.parser.parse_model(NESTED))["original.strategy"]
    assert {graph: [*data["results"]] for graph, data in found.items()} == {
        "main": ["node_1/then_branch/node"],
        "again/body": ["node_2", "again"],
    }
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
