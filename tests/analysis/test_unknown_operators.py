"""Operators that onnxruntime lacks are named, with what helps."""

from __future__ import annotations

import json

import onnx
from adapter import run
from onnx import parser

from onnx_spatial.analysis.unknown_operators import unknown_operators

TEXT = """<ir_version: 8, opset_import: ["" : 17, "my" : 1, "com.microsoft" : 1, "f" : 1,
    "ai.onnx.converters.tensorflow" : 1]>
g (float[1,4,6,3] x) => (float[?,?,?,?] y) <int32[2] block = {2, 3}, int32[2,2] none = {0, 0, 0, 0}> {
    [s2b] a = my.SpaceToBatchND(x, block, none)
    [crop] b = ai.onnx.converters.tensorflow.CropAndResize(a)
    [one] c = my.Own(b)
    [two] d = my.Own(c)
    e = com.microsoft.Gelu(d)
    i = f.Twice(e)
    y = Neg(i)
}
<domain: "f", opset_import: ["" : 17]> Twice (u) => (v) { v = Add(u, u) }
"""


def test_unknown_operators_are_listed_once():
    model = parser.parse_model(TEXT)
    found = unknown_operators(model, {("my", "SpaceToBatchND")})
    assert [(o.domain, o.op_type, o.node, o.nodes) for o in found] == [
        ("my", "SpaceToBatchND", "s2b", 1),
        ("ai.onnx.converters.tensorflow", "CropAndResize", "crop", 1),
        ("my", "Own", "one", 2),
    ]
    assert found[0].advice.startswith("--domain my converts it")
    assert "tf2onnx" in found[1].advice
    assert found[2].message.startswith("onnxruntime has no operator my:Own (2 nodes): register")


def test_a_misspelt_standard_operator_is_unknown():
    model = parser.parse_model(TEXT)
    model.graph.node[-1].op_type = "Negg"
    assert unknown_operators(model)[-1].message.startswith(
        "onnxruntime has no operator ai.onnx:Negg (node '<y>'): correct its name"
    )


def test_nothing_to_do_says_what_remains_and_what_helps(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    onnx.save(parser.parse_model(TEXT), path)
    assert run(["convert", str(path), "-o", str(tmp_path / "o.onnx")]) == 0
    text = capsys.readouterr().out
    assert "nothing to do" in text and "--domain my" in text
    assert "onnxruntime has no operator my:Own (2 nodes)" in text
    assert run(["inspect", str(path), "--json"]) == 0
    remaining = json.loads(capsys.readouterr().out)["remaining"]
    assert [each["op_type"] for each in remaining] == ["SpaceToBatchND", "CropAndResize", "Own"]
