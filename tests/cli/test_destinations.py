"""Several models into a folder, --check, and weights beside the model."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from adapter import run
from onnx import numpy_helper, parser

PLAIN = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,2] x) => (float[2,N] y) { y = Transpose<perm = [1, 0]>(x) }
"""
S2B = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[1,4,6,3] x) => (float[?,?,?,?] y) <int32[2] block = {2, 3}, int32[2,2] pads = {0, 0, 0, 0}> {
    [s2b] y = com.microsoft.SpaceToBatchND(x, block, pads)
}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in {"a.onnx": S2B, "b.onnx": S2B, "plain.onnx": PLAIN}.items():
        (tmp_path / name).write_bytes(parser.parse_model(text).SerializeToString())
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    return tmp_path


@pytest.mark.parametrize("made", [True, False])
def test_several_models_go_into_a_folder(made, folder, capsys):
    if made:
        (folder / "out").mkdir()
    assert run(["convert", "a.onnx", "plain.onnx", "-o", "out"]) == 0
    assert sorted(os.listdir("out")) == ["a.onnx", "plain.onnx"]
    text = capsys.readouterr().out
    assert "a.onnx: 1 operator became" in text and "plain.onnx: no spatial operators" in text
    assert text.splitlines()[-1].startswith("2 written in ")


def test_all_are_converted_before_failing(folder, capsys):
    assert run(["convert", "bad.onnx", "a.onnx", "-o", "out/", "--json"]) == 2
    shown = capsys.readouterr()
    bad, good = json.loads(shown.out)["models"]
    assert bad["exit_code"] == 2 and good["changed"]
    assert os.listdir("out") == ["a.onnx"] and "bad.onnx" in shown.err


def test_the_last_line_counts_several_models(folder, capsys):
    def last_line(*words):
        run(list(words))
        last = capsys.readouterr().out.splitlines()[-1]
        return re.sub(r" in \S+ [mu]?s", "", last)

    models = ["bad.onnx", "a.onnx", "plain.onnx"]
    assert last_line("convert", *models, "-o", "out/") == "2 written, 1 failed: bad.onnx"
    assert (
        last_line("convert", *models, "--check")
        == "1 would change, 1 unchanged, 1 failed: bad.onnx"
    )
    assert last_line("optimize", *models[1:], "--dry-run") == "1 converted, 1 unchanged"
    assert last_line("inspect", *models) == "2 inspected, 1 failed: bad.onnx"
    assert last_line("convert", *models[1:], "--in-place") == "1 written, 1 unchanged"
    assert "written" not in last_line("convert", "b.onnx", "-o", "out/")


def test_models_keep_their_folders_inside_the_output(folder):
    models = ["models/net/one/model.onnx", "models/net/two/model.onnx", "models/./three.onnx"]
    for model in models:
        (folder / model).parent.mkdir(parents=True, exist_ok=True)
        (folder / model).write_bytes((folder / "a.onnx").read_bytes())
    absolute = str(folder / models[0])
    assert run(["convert", absolute, *models[1:], "-o", "out", "-q"]) == 0
    written = sorted(path.relative_to("out").as_posix() for path in Path("out").rglob("*.onnx"))
    assert written == ["net/one/model.onnx", "net/two/model.onnx", "three.onnx"]
    assert run(["convert", *models[:2], "-o", "pair/", "-q"]) == 0
    assert sorted(os.listdir("pair")) == ["one", "two"]


def test_one_model_goes_into_a_folder_too(folder):
    assert run(["convert", "a.onnx", "-o", "out/", "-q"]) == 0
    assert os.listdir("out") == ["a.onnx"]
    assert run(["convert", "b.onnx", "-o", "out", "-q"]) == 0
    assert sorted(os.listdir("out")) == ["a.onnx", "b.onnx"]


def test_one_model_goes_into_a_file_with_a_suffix_or_that_exists(folder, capsys):
    Path("made_before").touch()
    for name in ("new.onnx", "new.model", "made_before"):
        assert run(["convert", "a.onnx", "-o", name, "-q"]) == 0
        assert onnx.load(name).graph.node
    assert run(["convert", "a.onnx", "-o", "new", "-q"]) == 2
    assert "write new.onnx for a file, new/ for a folder" in capsys.readouterr().err
    assert not Path("new").exists()


def test_several_models_in_place(folder):
    assert run(["convert", "a.onnx", "b.onnx", "--in-place", "-q"]) == 0
    for name in ("a.onnx", "b.onnx"):
        assert all(node.domain == "" for node in onnx.load(name).graph.node)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.onnx", "b.onnx", "-o", "plain.onnx"], "-o plain.onnx is a file"),
        (["a.onnx", "b.onnx", "-o", "new.onnx"], "write -o new.onnx/ if that is its name"),
        (["a.onnx", "b.onnx", "-o", "."], "a.onnx is a model of this call"),
        (["a.onnx", "./a.onnx", "-o", "out"], "the model a.onnx is given twice"),
        (["a.onnx", "--check", "-o", "o.onnx"], "--check writes nothing"),
        (["a.onnx", "--check", "--rtol", "1"], "--rtol and --check cannot be combined"),
        (["a.onnx", "--in-place", "--save-as-external-data"], "requires -o OUT"),
        (["a.onnx", "-o", "."], "the output must not be the input"),
        (["a.onnx", "--dry-run", "-o", "out"], "-o out could be a file or a folder"),
    ],
)
def test_destinations_that_contradict_themselves(words, message, folder, capsys):
    before = sorted(os.listdir())
    assert run(["convert", *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert sorted(os.listdir()) == before


def test_check_writes_nothing_and_fails_if_a_model_would_change(folder, capsys):
    before = sorted(os.listdir())
    assert run(["convert", "plain.onnx", "--check"]) == 0
    assert run(["convert", "a.onnx", "plain.onnx", "--check"]) == 1
    text = capsys.readouterr().out
    assert "a.onnx: 1 operator became" in text and "PASSED" not in text
    assert text.count("would change; nothing was written") == 1
    assert sorted(os.listdir()) == before


def test_weights_beside_the_model(folder):
    model = parser.parse_model(
        S2B.replace("y = com", "z = com").replace("}\n", "y = Mul(z, w) }\n", 1)
    )
    weight = np.arange(1000, dtype=np.float32).reshape(-1, 1, 1, 1, 1)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    model.graph.ClearField("output")
    model.graph.output.add(name="y").type.tensor_type.elem_type = 1
    onnx.save(model, "w.onnx")
    assert run(["convert", "w.onnx", "-o", "out/", "--save-as-external-data", "-q"]) == 0
    assert sorted(os.listdir("out")) == ["w.onnx", "w.onnx.data"]
    stored = {t.name: numpy_helper.to_array(t) for t in onnx.load("out/w.onnx").graph.initializer}
    assert (stored["w"] == weight).all()
