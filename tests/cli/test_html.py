"""--html: written in one step also if a model fails; what cannot be written is one line and exit 2."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import broken_models
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from report_models import net

import onnx_spatial
from onnx_spatial import api
from onnx_spatial.report import graphs, report_file
from onnx_spatial.verification import Unproven

GRAPHS = '<div class="graphs"'


@pytest.fixture
def page(cli):
    """Run a command that writes a page, and return the page."""
    onnx.save(net(20, 1), "net.onnx")

    def written(words: str, code: int = 0) -> str:
        done = cli(f"{words} --html report.html --json")
        assert done.code == code
        json.loads(done.out)  # stdout holds the document alone
        assert not [*Path().glob(".onnx-spatial-*")]
        text = Path("report.html").read_text("utf-8")
        assert text.startswith("<!DOCTYPE html>") and text.endswith("</html>\n")
        return text

    return written


def test_every_command_writes_a_report(page):
    for words, code in (
        ("convert net.onnx --check", 1),
        ("verify net.onnx net.onnx", 1),
        ("validate net.onnx", 0),
    ):
        text, name = page(words, code), words.split()[0]
        assert f"<title>onnx-spatial {name}: net.onnx</title>" in text and GRAPHS in text


def test_failures_are_in_the_report(page, tmp_path, monkeypatch):
    wrong = onnx_spatial.convert("net.onnx").model
    (weight,) = [t for t in wrong.graph.initializer if t.name == "w"]
    array = numpy_helper.to_array(weight) + np.float32(1)
    weight.CopyFrom(numpy_helper.from_array(array, "w"))
    onnx.save(wrong, "wrong.onnx")
    text = page("verify net.onnx wrong.onnx", 1)
    assert "DIFFERS" in text and GRAPHS in text
    text = page("convert net.onnx missing.onnx --dry-run", 2)  # several: those that failed first
    index = text.partition("</table>")[0]
    assert index.index('href="#m2"') < index.index('href="#m1"')
    assert "missing.onnx: cannot be read" in text and text.count('<details class="model"') == 2
    bad = broken_models.write("batch_not_divisible", tmp_path)
    assert "batch 8 is not divisible by 6" in page(f"convert {bad} --dry-run", 3)
    refused = net(20, 1)
    (block,) = [tensor for tensor in refused.graph.initializer if tensor.name == "block"]
    block.CopyFrom(numpy_helper.from_array(np.array([3, 3]), "block"))
    onnx.save(refused, "refused.onnx")
    text = page(
        "validate refused.onnx", 1
    )  # drawn alone, with a link from the operator to its node
    assert f'{GRAPHS} data-sides="1" data-opened="0">' in text and 'data-region="0"' in text
    for found in (text, page("convert refused.onnx --dry-run", 3)):
        assert "is not divisible by its block" in found
    real, part = api.verify_conversion, Unproven("Conv node 'c'", "gave up", "a gap in the proof")

    def verifying(*arguments):
        return replace(real(*arguments), evidence="sampled", unproven=[part])

    monkeypatch.setattr(api, "verify_conversion", verifying)
    text = page("convert net.onnx -o out.onnx --strict-proof", 1)
    assert not Path("out.onnx").exists()
    assert '<span class="badge failed">failed</span>' in text and GRAPHS in text
    assert "2 operators became 1 dilated convolution" in text and "a gap in the proof" in text


def test_what_cannot_be_written_is_one_line(page, cli, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(report_file.os, "access", lambda path, mode: not mode & report_file.os.W_OK)
        done = cli("convert net.onnx --dry-run --html r.html")
        reason = "error: r.html: cannot be written: its folder is read-only"
        assert (done.code, done.out, done.error) == (2, "", reason)  # before any work
    error = OSError(28, "No space left on device")
    monkeypatch.setattr(report_file, "atomic_write", Mock(side_effect=error))
    done = cli("convert net.onnx -o out.onnx --html r.html -q")
    reason = "error: r.html: cannot be written: No space left on device"
    assert (done.code, done.error) == (2, reason)


def test_validation_has_a_section_for_each_model_and_graphs_within_its_room(page, monkeypatch):
    onnx.save(net(300, 2), "large.onnx")
    onnx.save(net(30, 1), "other.onnx")
    words = "validate large.onnx net.onnx other.onnx"
    text = page(words)
    assert text.count('<details class="model"') == text.count(GRAPHS) == 3
    assert text.count(">Outputs<") == text.count(">Operators and regions<") == 3
    badge = '<span class="badge passed">passed</span>'
    assert f'<p class="headline">{badge} 3 models: 3 passed in ' in text
    assert f"<dt>command</dt><dd>onnx-spatial {words} --seed 0</dd>" in text
    monkeypatch.setattr(graphs, "ROOM", 30_000)
    text = page(words)
    assert text.count(GRAPHS) == 2 and "nodes, are not drawn: they take" in text
