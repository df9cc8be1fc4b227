"""The verdicts of docs/verification.md: their exit codes, and what becomes of the file."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from adapter import run
from onnx import parser
from rich.console import Console

import onnx_spatial
from onnx_spatial import Verification, api, verification
from onnx_spatial.cli import render
from onnx_spatial.report.outcome import describe_verification
from onnx_spatial.verification import Counterexample, OperatorResult, Unproven

#: Nobody knows what `shape` may be.
MODEL = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
net (float[2,4,6,3] x, int64[2] shape) => (float[?,?] z)
<int32[2] block = {2, 3}, int32[2,2] pads = {0, 0, 0, 0}> {
    [s2b] y = ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, pads)
    [cut] z = Reshape(y, shape)
}"""
WARNING = "warning: the result is not verified"

PART = Unproven("Relu node 'r' (main graph)", "other formula", "computes Clip(x, 0, 6)")
VERDICTS = {
    "proven": Verification("passed", "passed: proven: 1 operator for every size", "proven"),
    "sampled": Verification("passed", f"passed: sampled; {PART}", "sampled", unproven=[PART]),
    "unverified": Verification("unverified", "unverified: out of time", problems=["out of time"]),
    "failed": Verification("failed", "failed: output 'z' differs", problems=["output 'z' differs"]),
}


@pytest.fixture
def paths(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(parser.parse_model(MODEL).SerializeToString())
    return str(path), tmp_path / "out.onnx"


@pytest.mark.parametrize(
    ("verdict", "option", "of_verify", "of_convert"),
    [
        ("proven", "--strict-proof", 0, 0),
        ("sampled", "--strict", 0, 0),
        ("sampled", "--strict-proof", 1, 1),
        ("unverified", "-v", 1, 0),
        ("unverified", "--strict", 1, 1),
        ("unverified", "--strict-proof", 1, 1),
        ("failed", "-v", 1, 1),
    ],
)
def test_exit_codes(verdict, option, of_verify, of_convert, paths, monkeypatch):
    path, out = paths
    for room, name in ((verification, "verify"), (api, "compare")):
        monkeypatch.setattr(room, name, lambda *_, **__: replace(VERDICTS[verdict]))
    assert run(["verify", path, path, option]) == of_verify
    assert run(["convert", path, "-o", str(out), option]) == of_convert
    assert out.exists() == (of_convert == 0)


@pytest.mark.parametrize("verdict", VERDICTS)
def test_in_python_an_option_raises(verdict, paths, monkeypatch):
    monkeypatch.setattr("onnx_spatial.api.compare", lambda *_, **__: VERDICTS[verdict])
    path, _ = paths
    assert bool(onnx_spatial.verify(path, path)) == (verdict in ("proven", "sampled"))
    options = onnx_spatial.VerifyOptions(strict_proof=True)
    if verdict == "proven":
        assert onnx_spatial.verify(path, path, options)
        return
    with pytest.raises(onnx_spatial.VerificationError) as caught:
        onnx_spatial.verify(path, path, options)
    codes = {"sampled": "not-proven", "unverified": "unverified", "failed": "different"}
    assert caught.value.code == codes[verdict]
    assert str(PART if verdict == "sampled" else VERDICTS[verdict].message) in str(caught.value)


def test_verbose_has_a_row_for_each_operator():
    known = ("main graph", "SpaceToBatchND", "tf")
    shown = Counterexample({}, {}, None, "has another shape", "y")
    operators = [
        OperatorResult("a", *known, proven="all sizes", ran=True, assumptions=("H is even",)),
        OperatorResult("b", *known, unproven=Unproven("b", "gave up", "gave up: a loop"), ran=True),
        OperatorResult("c", *known, reason="it is left as it is"),
        OperatorResult("d", *known, reason="it differs", counterexample=shown),
    ]
    result = Verification("failed", "failed: it differs", operators=operators)
    stream = io.StringIO()
    render.outcome(Console(file=stream, width=100), describe_verification(result, verbose=True))
    lines = stream.getvalue().splitlines()
    assert [" ".join(line.split()[2:]) for line in lines[1:5]] == [
        "all sizes agrees",
        "gave up agrees",
        "it is left as it is",
        "DIFFERS",
    ]
    assert lines[5].startswith("FAILED  ") and lines[6] == "  assumed: H is even"


def test_the_result_is_written_with_a_warning(paths, capsys):
    path, out = paths
    assert run(["convert", path, "-o", str(out)]) == 0
    screen = capsys.readouterr()
    assert "UNVERIFIED  " in screen.out
    assert f"{WARNING}; --strict makes this an error" in screen.out.splitlines()
    assert out.exists()


def test_a_quiet_command_warns_on_stderr(paths, capsys):
    path, out = paths
    assert run(["convert", path, "-o", str(out), "-q"]) == 0
    screen = capsys.readouterr()
    assert screen.out == "" and "not verified" in screen.err
    assert screen.err.startswith(f"warning: {path}: ")


def test_the_document_has_the_verdict(paths, capsys):
    path, out = paths
    assert run(["convert", path, "-o", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["verification"]
    assert (found["status"], found["evidence"]) == ("unverified", None)


def test_a_lowering_that_differs_is_named_with_another_that_is_possible(paths, monkeypatch, capsys):
    path, out = paths
    (operator,) = onnx_spatial.inspect(path).operators
    shown = Counterexample({}, {}, None, "has another shape", "y")
    wrong = OperatorResult("s2b", "main graph", "SpaceToBatchND", "tf", counterexample=shown)
    found = replace(VERDICTS["failed"], operators=[wrong], advice="convert it again")
    monkeypatch.setattr(api, "compare", lambda *_, **__: replace(found))
    assert run(["convert", path, "-o", str(out)]) == 1
    lines = capsys.readouterr().err.splitlines()
    (line,) = [line for line in lines if "was converted by" in line]
    others = {candidate.lowering for candidate in operator.candidates} - {operator.lowering}
    assert line.startswith(f"  's2b' was converted by lower: {operator.lowering}; try --prefer ")
    assert line.split("--prefer ")[1].split(",")[0] in others
    assert sum("output 'z' differs" in line for line in lines) == 1
    assert not any("convert it again" in line for line in lines)


def test_strict_refuses_it_and_leaves_no_file(paths, capsys):
    path, out = paths
    assert run(["convert", path, "-o", str(out), "--strict"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: ")
    assert not out.exists()


def test_in_place_the_original_keeps_its_second_name(paths):
    path, _ = paths
    assert run(["convert", path, "--in-place"]) == 0
    kept = [p.name for p in Path(path).parent.iterdir()]
    assert sorted(kept) == ["model.onnx", "model.onnx.orig"]


@pytest.mark.parametrize("prefer", [None, "slices"])
def test_verify_names_the_lowering_of_the_file_and_another_one(prefer, tmp_path, paths, capsys):
    path, wrong = paths[0], str(tmp_path / "wrong.onnx")
    model = onnx_spatial.convert(path, prefer=prefer, verify=False).model
    kind = "Transpose" if prefer is None else "Concat"
    node = next(node for node in model.graph.node if node.op_type == kind)
    if prefer is None:
        node.attribute[0].ints[:2] = node.attribute[0].ints[1::-1]
    else:
        node.input[0], node.input[1] = node.input[1], node.input[0]
    onnx.save(model, wrong)
    assert run(["verify", path, wrong]) == 1
    out = capsys.readouterr().out
    used = onnx_spatial.convert(path, prefer=prefer, verify=False).operators[0].lowering
    (line,) = [line for line in out.splitlines() if f"'s2b' was converted by lower: {used}" in line]
    assert re.search(r"; try --prefer (\w+), and report it$", line)[1] != used
