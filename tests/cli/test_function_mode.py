"""`convert --mode function`, and what `inspect` and `verify` say of the result."""

from __future__ import annotations

import json
import re
from pathlib import Path

import onnx
import pytest
from adapter import run

WAVENET = str(Path(__file__).parents[2] / "models" / "wavenet" / "model.onnx")
S2B = "ai.onnx.converters.tensorflow:SpaceToBatchND"
B2S = "ai.onnx.converters.tensorflow:BatchToSpaceND"


@pytest.fixture
def form(tmp_path: Path) -> str:
    target = tmp_path / "form.onnx"
    assert run(["convert", WAVENET, "-o", str(target), "--mode", "function", "-q"]) == 0
    return str(target)


def test_convert_says_what_the_operators_became(tmp_path, capsys):
    target = tmp_path / "form.onnx"
    assert run(["convert", WAVENET, "-o", str(target), "--mode", "function"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"6 operators became calls of 2 local functions \(\d+ standard nodes\)", out)
    assert "PASSED  proven: 6 operators for every size; " in out
    assert len(onnx.load(target).functions) == 2


def test_inspect_names_the_functions(form, capsys):
    assert run(["inspect", form]) == 0
    out = capsys.readouterr().out
    assert out.count(S2B) == out.count(B2S) == 3
    assert run(["inspect", form, "--json"]) == 0
    sites = json.loads(capsys.readouterr().out)["operators"]
    assert [s["function"] for s in sites] == [S2B, B2S] * 3
    assert {s["action"] for s in sites} == {"fuse"}


def test_a_second_time_there_is_nothing_to_do(form, tmp_path, capsys):
    again = tmp_path / "again.onnx"
    assert run(["convert", form, "-o", str(again), "--mode", "function"]) == 0
    assert "its operators call local functions already, nothing to do" in capsys.readouterr().out
    assert again.read_bytes() == Path(form).read_bytes()


def test_verify_finds_a_broken_body(form, tmp_path, capsys):
    model = onnx.load(form)
    transpose = next(n for n in model.functions[0].node if n.op_type == "Transpose")
    transpose.attribute[0].ints.reverse()
    broken = tmp_path / "broken.onnx"
    onnx.save(model, broken)
    assert run(["verify", WAVENET, str(broken), "-q"]) == 1
    assert "SpaceToBatchND" in capsys.readouterr().err


def test_an_old_ir_version_is_raised_and_said(tmp_path, capsys):
    made = onnx.parser.parse_model("""<ir_version: 7, opset_import: ["" : 13, "com.microsoft" : 1]>
        g (float[2,4,4,3] x) => (float[8,2,2,3] y)
        <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}> {
            [site] y = com.microsoft.SpaceToBatchND(x, block, none)
        }""")
    onnx.save(made, tmp_path / "old.onnx")
    command = ["convert", str(tmp_path / "old.onnx"), "-o", str(tmp_path / "new.onnx")]
    assert run([*command, "--mode", "function"]) == 0
    assert "raised the IR version: 7 -> 8" in capsys.readouterr().out
    assert onnx.load(tmp_path / "new.onnx").ir_version == 8
