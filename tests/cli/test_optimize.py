"""What `optimize` prints and writes: as `convert`, for chains of standard nodes."""

from __future__ import annotations

import json
import logging
import os

import chain_models
import numpy as np
import onnx
import pytest
from adapter import run

import onnx_spatial


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(chain_models.six_dims(), "a.onnx")
    onnx.save(chain_models.stacked(rates=(2, 3)), "b.onnx")
    return tmp_path


def test_the_headline_and_figures(capsys):
    nodes = len(onnx.load("b.onnx").graph.node)
    assert run(["optimize", "b.onnx", "--dry-run", "--no-verify"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("b.onnx: 4 chains became 2 dilated convolutions; ")
    assert f"; {nodes} -> 4 nodes, " in first
    rows = [line.split() for line in lines]
    assert ["chains", "to", "rewrite", "4", "0"] in rows
    assert ["nodes", str(nodes), "4"] in rows
    assert ["DepthToSpace", "2", "0"] in rows
    assert not any("operators to convert" in line for line in lines)
    (row,) = [line for line in lines if "dilation 3" in line]
    assert "Conv 3x3, dilation 3, 4 channels" in row


def test_a_region_counts_the_nodes_of_both_chains():
    result = onnx_spatial.optimize(chain_models.six_dims(), verify=False)
    (row,) = result.summary.replacements
    chains = result.inspection.chains
    # Of a chain its own nodes, and the Conv and Transposes between the two.
    assert row.nodes_before == sum(site.nodes_before for site in chains)
    assert (row.nodes_after, result.summary.after.chains) == (chains[1].nodes_after, 0)
    assert result.summary.before.chains == len(chains) == 2


def test_operators_and_chains_are_counted_by_themselves():
    domain = "ai.onnx.converters.tensorflow"
    net = chain_models.Net()
    x = net("SpaceToBatchND", "x", [2, 2], [[2, 2], [2, 2]], domain=domain)
    x = chain_models.to_space(net, chain_models.conv(net, x), 2, None)
    model = net.model((2, 8, 12, 3), x)
    model.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    found = onnx_spatial.optimize(model, verify=False).summary
    assert found.text == "1 operator and 1 chain became 1 dilated convolution"
    assert (found.before.operators, found.before.chains) == (1, 1)
    assert (found.after.operators, found.after.chains) == (0, 0)
    (row,) = found.replacements
    assert row.nodes_before > row.nodes_after


def test_external_data_requires_an_output():
    with pytest.raises(onnx_spatial.UsageError, match="requires output"):
        onnx_spatial.optimize(chain_models.six_dims(), external_data=True)


def test_several_models_go_into_a_folder(capsys):
    assert run(["optimize", "a.onnx", "b.onnx", "-o", "out", "--no-verify", "--json"]) == 0
    assert sorted(os.listdir("out")) == ["a.onnx", "b.onnx"]
    a, b = json.loads(capsys.readouterr().out)["models"]
    assert a["summary"]["before"]["chains"] == 2 and b["summary"]["before"]["chains"] == 4
    assert a["remaining"] == []
    read = {name for node in onnx.load("out/a.onnx").graph.node for name in node.input}
    assert a["touched"]["initializers_removed"]
    assert not read.intersection(a["touched"]["initializers_removed"])


def test_check_fails_until_the_models_are_optimized(capsys):
    before = sorted(os.listdir())
    assert run(["optimize", "a.onnx", "b.onnx", "--check"]) == 1
    assert capsys.readouterr().out.count("would change; nothing was written") == 2
    assert sorted(os.listdir()) == before
    assert run(["optimize", "a.onnx", "b.onnx", "--in-place", "--no-verify", "-q"]) == 0
    assert run(["-q", "optimize", "a.onnx", "b.onnx", "--check"]) == 0
    assert run(["optimize", "a.onnx", "--check", "--rtol", "1"]) == 2


def test_the_weights_beside_the_model(capsys):
    words = ["--save-as-external-data", "--no-verify"]
    model = chain_models.depth_to_space()
    large = np.ones(1000, np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(large, "k"))
    onnx.save(model, "c.onnx")
    assert run(["optimize", "c.onnx", "-o", "out/", *words]) == 0
    made = onnx.load("out/c.onnx")
    assert "DepthToSpace" not in {node.op_type for node in made.graph.node}
    assert sorted(os.listdir("out")) == ["c.onnx", "c.onnx.data"]


def test_a_step_summary_log_and_time_of_each_step(folder, capsys, monkeypatch, caplog):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "summary.md"))
    caplog.set_level(logging.INFO, "onnx_spatial")
    assert run(["optimize", "a.onnx", "-o", "out.onnx", "--no-verify", "-v"]) == 0
    text = (folder / "summary.md").read_text("utf-8")
    assert text.startswith(
        "**onnx-spatial optimize** a.onnx: 2 chains became 1 dilated convolution; "
    )
    assert "a.onnx: 2 chains became 1 dilated convolution" in caplog.text
    shown = capsys.readouterr()
    assert "converting" in shown.err and " s in all" in shown.err
    assert "chains of standard nodes that are spatial operators:" in shown.out


def test_chains_left(capsys):
    net = chain_models.Net()
    x = net("Relu", chain_models.to_batch(net, "x", (2, 8, 12, 3), 0, 2))
    onnx.save(net.model((2, 8, 12, 3), x), "left.onnx")
    assert run(["optimize", "left.onnx", "--check"]) == 0
    text = capsys.readouterr().out
    assert "left.onnx: no spatial operators, nothing to do" in text
    assert "1 chain of standard nodes left" in text


def test_pyproject_sets_defaults(folder, capsys):
    table = "[tool.onnx-spatial.optimize]\nno-verify = true\n"
    (folder / "pyproject.toml").write_text(table)
    assert run(["optimize", "a.onnx", "--dry-run"]) == 0
    assert "not verified" in capsys.readouterr().out
