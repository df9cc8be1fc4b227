"""Where results go: files, folders, the model itself, weights beside it, nowhere with --check."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
import structure
from commands import PLAIN, S2B, write
from onnx import numpy_helper, parser

from onnx_spatial import Verification


@pytest.fixture(autouse=True)
def models(cli):
    for name, text in {"a.onnx": S2B, "b.onnx": S2B, "plain.onnx": PLAIN}.items():
        write(text, name)
    Path("bad.onnx").write_bytes(b"no model")


@pytest.mark.parametrize("made", [True, False])
def test_several_models_go_into_a_folder(made, cli):
    if made:
        Path("out").mkdir()
    done = cli("convert a.onnx plain.onnx -o out")
    assert done.code == 0 and sorted(os.listdir("out")) == ["a.onnx", "plain.onnx"]
    assert "a.onnx: 1 operator became" in done.out
    assert "plain.onnx: no spatial operators" in done.out
    assert done.lines[-1].startswith("2 written in ")


@pytest.mark.parametrize(
    ("words", "last"),
    [
        ("convert bad.onnx a.onnx plain.onnx -o out/", "2 written, 1 failed: bad.onnx"),
        (
            "convert bad.onnx a.onnx plain.onnx --check",
            "1 would change, 1 unchanged, 1 failed: bad.onnx",
        ),
        ("convert a.onnx plain.onnx --in-place", "1 written, 1 unchanged"),
    ],
)
def test_the_last_line_counts_several_models(words, last, cli):
    assert re.sub(r" in \S+ [mu]?s", "", cli(words).lines[-1]) == last


def test_all_are_done_before_failing(cli):
    done = cli("convert bad.onnx a.onnx -o out/ --json")
    bad, good = done.document["models"]
    assert (done.code, bad["exit_code"], good["changed"]) == (2, 2, True)
    assert os.listdir("out") == ["a.onnx"] and "bad.onnx" in done.error
    done = cli("inspect bad.onnx a.onnx")
    assert done.code == 2 and "not an ONNX model" in done.error
    assert "1 spatial operator in domain" in done.out


def test_models_keep_their_folders_inside_the_output(cli):
    models = ["models/net/one/model.onnx", "models/net/two/model.onnx", "models/./three.onnx"]
    for model in models:
        write(S2B, model)
    assert cli(f"convert {Path(models[0]).absolute()} {' '.join(models[1:])} -o out -q").code == 0
    written = sorted(path.relative_to("out").as_posix() for path in Path("out").rglob("*.onnx"))
    assert written == ["net/one/model.onnx", "net/two/model.onnx", "three.onnx"]
    cli(f"convert {' '.join(models[:2])} -o pair/ -q")
    assert sorted(os.listdir("pair")) == ["one", "two"]


def test_one_model_goes_into_a_folder_or_a_file_with_a_suffix_or_that_exists(cli):
    cli("convert a.onnx -o out/ -q")
    cli("convert b.onnx -o out -q")
    assert sorted(os.listdir("out")) == ["a.onnx", "b.onnx"]
    Path("made_before").touch()
    for name in ("new.onnx", "new.model", "made_before"):
        assert cli(f"convert a.onnx -o {name} -q").code == 0
        assert onnx.load(name).graph.node


def test_check_writes_nothing_and_fails_if_a_model_would_change(cli):
    before = sorted(os.listdir())
    assert cli("convert plain.onnx --check").code == 0
    done = cli("convert a.onnx plain.onnx --check")
    assert done.code == 1 and "a.onnx: 1 operator became" in done.out and "PASSED" not in done.out
    assert done.out.count("would change; nothing was written") == 1
    assert sorted(os.listdir()) == before


def test_weights_beside_the_model(cli):
    text = S2B.replace("y = ai", "z = ai").replace("}\n", "y = Mul(z, w) }\n", 1)
    model = parser.parse_model(text)
    weight = np.arange(1000, dtype=np.float32).reshape(-1, 1, 1, 1, 1)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    model.graph.output[0].type.tensor_type.elem_type = 1
    onnx.save(model, "w.onnx")
    for command in ("convert", "optimize"):
        cli(f"{command} w.onnx -o {command}/ --save-as-external-data --no-verify -q")
        assert sorted(os.listdir(command)) == ["w.onnx", "w.onnx.data"]
        assert (structure.initializer(onnx.load(f"{command}/w.onnx"), "w") == weight).all()


def test_in_place_converts_the_files_themselves_unless_it_fails(cli, monkeypatch):
    files = [Path(name).stat() for name in ("plain.onnx", "a.onnx")]
    before = [(each.st_mtime_ns, each.st_ino) for each in files]
    assert "nothing to do" in cli("convert plain.onnx --in-place").out
    failed = Verification("failed", "failed: on purpose")
    with monkeypatch.context() as patch:
        patch.setattr("onnx_spatial.api.verify_conversion", lambda *a, **k: failed)
        assert cli("convert a.onnx --in-place").code == 1
    files = [Path(name).stat() for name in ("plain.onnx", "a.onnx")]
    assert [(each.st_mtime_ns, each.st_ino) for each in files] == before
    assert "wrote a.onnx" in cli("convert a.onnx b.onnx --in-place").lines
    for name in ("a.onnx", "b.onnx"):
        assert all(node.domain == "" for node in onnx.load(name).graph.node)
    assert sorted(os.listdir()) == ["a.onnx", "b.onnx", "bad.onnx", "plain.onnx"]


def test_in_place_without_verification_keeps_the_original_and_says_where(cli):
    before = Path("a.onnx").read_bytes()
    document = cli("convert a.onnx --in-place --no-verify --json").document
    assert document["backup"] == "a.onnx.orig" and Path("a.onnx.orig").read_bytes() == before
    write(S2B, "a.onnx")
    done = cli("convert a.onnx --in-place --no-verify")
    assert "the original is kept as a.onnx.orig1" in done.lines
