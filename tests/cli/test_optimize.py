"""What `optimize` prints and writes: as `convert`, for chains of standard nodes."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import chain_models
import onnx
import pytest


@pytest.fixture(autouse=True)
def models(cli):
    onnx.save(chain_models.six_dims(), "a.onnx")
    onnx.save(chain_models.stacked(rates=(2, 3)), "b.onnx")


def test_the_headline_and_figures(cli):
    nodes = len(onnx.load("b.onnx").graph.node)
    first, *lines = cli("optimize b.onnx --dry-run --no-verify -v").lines
    assert first.startswith("b.onnx: 4 chains became 2 dilated convolutions; ")
    assert f"; {nodes} -> 4 nodes, " in first
    rows = [line.split() for line in lines]
    for row in (["chains", "to", "rewrite", "4", "0"], ["nodes", str(nodes), "4"]):
        assert row in rows
    assert ["DepthToSpace", "2", "0"] in rows
    assert not any("operators to convert" in line for line in lines)
    (row,) = [line for line in lines if "dilation 3" in line]
    assert "Conv 3x3, dilation 3, 4 channels" in row


def test_several_models_go_into_a_folder_and_need_no_second_time(cli):
    a, b = cli("optimize a.onnx b.onnx -o out --no-verify --json").document["models"]
    assert sorted(os.listdir("out")) == ["a.onnx", "b.onnx"]
    assert a["summary"]["before"]["chains"] == 2 and b["summary"]["before"]["chains"] == 4
    removed = a["touched"]["initializers_removed"]
    read = {name for node in onnx.load("out/a.onnx").graph.node for name in node.input}
    assert removed and not read.intersection(removed) and a["remaining"] == []
    assert cli("optimize a.onnx b.onnx --check").out.count("would change; nothing was written") == 2
    assert cli("optimize out/a.onnx out/b.onnx --check").code == 0


def test_a_step_summary_log_and_time_of_each_step(cli, monkeypatch, caplog):
    Path("pyproject.toml").write_text("[tool.onnx-spatial.optimize]\nno-verify = true\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    caplog.set_level(logging.INFO, "onnx_spatial")
    shown = cli("optimize a.onnx -o out.onnx -v")
    text = Path("summary.md").read_text("utf-8")
    became = "a.onnx: 2 chains became 1 dilated convolution"
    assert text.startswith(f"**onnx-spatial optimize** {became}; ") and became in caplog.text
    assert "converting" in shown.err and " s in all" in shown.err
    assert "chains of standard nodes that are spatial operators:" in shown.lines
    assert "not verified" in shown.lines


def test_chains_left(cli):
    net = chain_models.Net()
    x = net("Relu", chain_models.to_batch(net, "x", (2, 8, 12, 3), 0, 2))
    onnx.save(net.model((2, 8, 12, 3), x), "left.onnx")
    done = cli("optimize left.onnx --check")
    assert done.code == 0
    assert done.lines[:2] == [
        "left.onnx: no spatial operators, nothing to do",
        "1 chain of standard nodes left, with nothing to gain by a rewrite",
    ]
