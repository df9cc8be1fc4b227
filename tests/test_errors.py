"""Errors: each is one sentence, has a short code for programs, and a class that says what is wrong."""

import ast
import json
import pickle
import re
from pathlib import Path

import pytest
from adapter import run

import onnx_spatial
from onnx_spatial import errors
from onnx_spatial.cli.main import commands
from onnx_spatial.errors import Code

TOP = Path(__file__).parents[1]
SOURCES = [p for part in ("onnx_spatial", "cli", "custom_ops") for p in (TOP / part).rglob("*.py")]
TREES = {path: ast.parse(path.read_text("utf-8")) for path in SOURCES}


def test_every_code_is_in_use():
    used = {
        node.attr
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "Code"
    }
    assert used == {*Code.__members__}


def test_a_code_survives_a_process_boundary():
    error = errors.ModelFileError("m.onnx: is a pointer", code=Code.GIT_LFS_POINTER)
    assert pickle.loads(pickle.dumps(error)).code == "git-lfs-pointer"
    assert errors.ModelFileError("m.onnx: cannot be read").code == "unreadable"


def test_an_error_has_its_code_in_json_and_in_python(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"")
    assert run(["inspect", str(path)]) == 2
    assert capsys.readouterr().err.endswith(" is not an ONNX model: it is empty\n")
    assert run(["inspect", str(path), "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["code"] == "not-onnx"
    with pytest.raises(onnx_spatial.ModelFileError) as caught:
        onnx_spatial.inspect(path)
    assert caught.value.code == "not-onnx"


def test_guides_name_options_that_exist():
    own = {
        name
        for command in commands.commands.values()
        for parameter in command.params
        for name in parameter.opts
    }
    of_tf2onnx = {"--custom-ops", "--graphdef", "--inputs", "--keras", "--output", "--outputs"}
    of_tf2onnx |= {"--opset", "--saved-model", "--tflite"}
    of_polygraphy = {"--gen-script", "--onnxrt", "--spatial", "--spatial-converted", "--trt"}
    pages = [TOP / "docs" / f"{name}.md" for name in ("commands", "errors", "modes", "python")]
    for page in pages:
        named = {*re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text("utf-8"))}
        assert named - own - of_tf2onnx - of_polygraphy == {"--help"} & named, page.name
