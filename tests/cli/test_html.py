"""--html: written in one step also if a model fails; what cannot be written is one line and exit 2."""

from __future__ import annotations

import json
from dataclasses import replace

import broken_models
import numpy as np
import onnx
import pytest
from adapter import run
from onnx import numpy_helper
from report_models import net

import onnx_spatial
from onnx_spatial import api
from onnx_spatial.verification import Unproven


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(net(20, 1), "net.onnx")
    return "net.onnx"


@pytest.mark.parametrize(
    "words",
    [
        ["convert", "net.onnx", "--dry-run"],
        ["convert", "net.onnx", "--check"],
        ["optimize", "net.onnx", "-o", "out.onnx"],
        ["verify", "net.onnx", "net.onnx"],
        ["validate", "net.onnx"],
    ],
    ids=lambda words: " ".join(words),
)
def test_every_command_writes_a_report(words, model, tmp_path, capsys):
    run([*words, "--html", "report.html", "--json"])
    page = (tmp_path / "report.html").read_text("utf-8")
    assert page.startswith("<!DOCTYPE html>") and page.endswith("</html>\n")
    assert f"<title>onnx-spatial {words[0]}: net.onnx</title>" in page
    json.loads(capsys.readouterr().out)  # stdout holds the document alone
    assert not list(tmp_path.glob(".onnx-spatial-*"))


def test_a_failed_verification_is_in_the_report(model, tmp_path, capsys):
    wrong = onnx_spatial.convert(model).model
    (weight,) = [t for t in wrong.graph.initializer if t.name == "w"]
    array = numpy_helper.to_array(weight) + np.float32(1)
    weight.CopyFrom(numpy_helper.from_array(array, "w"))
    onnx.save(wrong, "wrong.onnx")
    assert run(["verify", model, "wrong.onnx", "--html", "report.html", "-q"]) == 1
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "DIFFERS" in page and 'class="graphs"' in page


def test_a_conversion_that_fails_its_proof_has_graphs_and_summary(model, tmp_path, monkeypatch):
    real, part = api.verify_conversion, Unproven("Conv node 'c'", "gave up", "a gap in the proof")

    def verifying(*arguments):
        return replace(real(*arguments), evidence="sampled", unproven=[part])

    monkeypatch.setattr(api, "verify_conversion", verifying)
    words = ["convert", model, "-o", "out.onnx", "--strict-proof", "--html", "report.html", "-q"]
    assert run(words) == 1
    assert not (tmp_path / "out.onnx").exists()
    page = (tmp_path / "report.html").read_text("utf-8")
    assert '<span class="badge failed">failed</span>' in page
    assert "2 operators became 1 dilated convolution" in page and "a gap in the proof" in page
    assert 'class="graphs"' in page


def test_several_models_have_an_index_and_those_that_failed_come_first(model, tmp_path):
    words = ["convert", model, "missing.onnx", "--dry-run", "--html", "report.html", "-q"]
    assert run(words) == 2
    page = (tmp_path / "report.html").read_text("utf-8")
    index = page.partition("</table>")[0]
    assert index.index('href="#m2"') < index.index('href="#m1"')
    assert "missing.onnx: cannot be read" in page
    assert page.count('<details class="model"') == 2


def test_a_refused_operator_is_in_the_report(tmp_path):
    bad = str(broken_models.write("batch_not_divisible", tmp_path))
    report = tmp_path / "report.html"
    assert run(["convert", bad, "--dry-run", "-q", "--html", str(report)]) == 3
    assert "batch 8 is not divisible by 6" in report.read_text("utf-8")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (".", "it is a folder"),
        ("no/report.html", "there is no folder"),
        ("net.onnx", "would replace the model net.onnx"),
        ("out.onnx", "would replace the model out.onnx"),
    ],
)
def test_what_cannot_be_written_is_refused_before_any_work(path, reason, model, tmp_path, capsys):
    before = (tmp_path / "net.onnx").read_bytes()
    assert run(["convert", model, "-o", "out.onnx", "--html", path]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert reason in lines[-1] and not any("Traceback" in line for line in lines)
    assert (tmp_path / "net.onnx").read_bytes() == before
    assert not (tmp_path / "out.onnx").exists()


def test_a_folder_that_is_read_only_is_refused_before_any_work(
    model, tmp_path, capsys, monkeypatch
):
    from onnx_spatial.report import report_file

    monkeypatch.setattr(report_file.os, "access", lambda path, mode: not mode & report_file.os.W_OK)
    assert run(["convert", model, "--dry-run", "--html", "report.html"]) == 2
    assert capsys.readouterr().err.strip() == (
        "error: report.html: cannot be written: its folder is read-only"
    )


def test_a_report_that_cannot_be_written_in_the_end_is_one_line(
    model, tmp_path, capsys, monkeypatch
):
    from onnx_spatial.report import report_file

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report_file, "atomic_write", full)
    assert run(["convert", model, "-o", "out.onnx", "--html", "report.html", "-q"]) == 2
    assert capsys.readouterr().err.strip() == (
        "error: report.html: cannot be written: No space left on device"
    )


def test_without_the_option_jinja2_is_not_imported(model):
    import subprocess
    import sys

    script = "import sys; from onnx_spatial.cli.main import run; run(sys.argv[1:]); "
    script += "sys.exit('jinja2' in sys.modules)"
    subprocess.run([sys.executable, "-c", script, "convert", model, "--check", "-q"], check=True)


def test_validation_has_a_section_for_each_model(model, tmp_path):
    onnx.save(net(30, 1), "other.onnx")
    assert run(["validate", "net.onnx", "other.onnx", "--html", "report.html", "-q"]) == 0
    page = (tmp_path / "report.html").read_text("utf-8")
    assert page.count('<details class="model"') == 2
    badge = '<span class="badge passed">passed</span>'
    assert f'<p class="headline">{badge} 2 models: 2 passed in ' in page
    assert "<dt>command</dt><dd>onnx-spatial validate net.onnx other.onnx --seed 0</dd>" in page
    assert page.count(">Outputs<") == 2
    assert "onnx-spatial validate" in page and "--seed 0" in page
    assert page.count('<div class="graphs"') == 2


def test_the_graphs_of_validate_stay_within_the_page(model, tmp_path, monkeypatch, capsys):
    from onnx_spatial.report import graphs

    onnx.save(net(300, 2), "large.onnx")
    onnx.save(net(20, 1), "small.onnx")
    monkeypatch.setattr(graphs, "ROOM", 30_000)
    words = ["large.onnx", "net.onnx", "small.onnx", "--html", "report.html", "--json"]
    assert run(["validate", *words]) == 0
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "nodes, are not drawn: they take" in page  # of the large one
    assert page.count('<div class="graphs"') == 2
    document = json.loads(capsys.readouterr().out)
    assert not any("graphs" in each for each in document["models"])


def test_a_model_that_validate_refuses_is_drawn_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = net(20, 1)
    for tensor in refused.graph.initializer:
        if tensor.name == "block":
            tensor.CopyFrom(numpy_helper.from_array(np.array([3, 3]), "block"))
    onnx.save(refused, "refused.onnx")
    assert run(["validate", "refused.onnx", "--html", "report.html", "-q"]) == 1
    page = (tmp_path / "report.html").read_text("utf-8")
    assert '<div class="graphs" data-sides="1" data-opened="0">' in page
    assert 'data-region="0"' in page  # a link from the operator to its node
    assert "is not divisible by its block" in page
    assert run(["convert", "refused.onnx", "--dry-run", "--html", "report.html", "-q"]) == 3
    assert "is not divisible by its block" in (tmp_path / "report.html").read_text("utf-8")
