"""`--max-rank`: what is printed of nodes that do not fit, and the exit code."""

from __future__ import annotations

import json

import onnx
import pytest
from adapter import run
from onnx import parser

import onnx_spatial

#: Its ends have rank 6, so that nothing can be rewritten.
SIX = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,3,4,5,6] x) => (float[1,2,3,4,5,6] y) {
    [first] a = Relu(x)
    [second] b = Relu(a)
    [third] c = Relu(b)
    [fourth] d = Relu(c)
    [last] y = Neg(d)
}"""
FOUR = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,2,3,4] x) => (float[1,2,3,4] y) {
    y = Relu(x)
}"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in (("six", SIX), ("four", FOUR)):
        onnx.save(parser.parse_model(text), f"{name}.onnx")
    return tmp_path


def test_what_does_not_fit_is_grouped_and_the_result_is_written(capsys, folder):
    assert run(["optimize", "six.onnx", "-o", "out.onnx", "--max-rank", "5"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "six.onnx: no spatial operators, nothing was changed"
    start = lines.index("5 nodes do not fit rank 5:")
    assert lines[start + 1 : start + 3] == [
        "  Relu: rank 6, the limit is 5: first, second, third and 1 more",
        "  Neg: rank 6, the limit is 5: last",
    ]
    assert lines[-2] == "copied byte for byte to out.onnx"
    assert (folder / "out.onnx").read_bytes() == (folder / "six.onnx").read_bytes()


def test_verbose_names_each_node(capsys):
    assert run(["optimize", "six.onnx", "--dry-run", "--max-rank", "5", "-v"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert "  Relu: rank 6, the limit is 5: first, second, third, fourth" in lines


def test_unknown_ranks_are_only_shown_with_verbose(capsys):
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,3] x, int64[r] s) => (float y) {
        [open] a = Reshape(x, s)
        [sum] y = ReduceSum <keepdims = 0> (a)
    }"""
    onnx.save(parser.parse_model(text), "open.onnx")
    words = ["optimize", "open.onnx", "--dry-run", "--max-rank", "4"]
    assert run(words) == 0
    line = "every other node fits rank 4; of 2 nodes a rank is unknown (-v shows them)"
    assert capsys.readouterr().out.splitlines()[1:-1] == [line]
    assert run([*words, "-v"]) == 0
    assert "not compared: Reshape: the rank of 'a' is unknown: open" in capsys.readouterr().out
    assert run([*words, "--json"]) == 0
    limits = json.loads(capsys.readouterr().out)["limits"]
    assert limits["nodes"] == []
    assert [each["node"] for each in limits["unknown"]] == ["open", "sum"]


def test_many_reasons_are_cut(capsys):
    types = ["Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "Neg", "Relu", "Sin"]
    body = "\n".join(f"v{i + 1} = {name}(v{i})" for i, name in enumerate(types))
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,1,1,1,1] v0) => (float[1,1,1,1,1] v10) {{ {body} }}"""
    onnx.save(parser.parse_model(text), "many.onnx")
    assert run(["optimize", "many.onnx", "--dry-run", "--max-rank", "4"]) == 3
    out = capsys.readouterr().out
    assert "10 nodes do not fit rank 4:" in out
    assert "and 2 other reasons (-v shows all)" in out
    assert "  Sin:" not in out
    assert run(["optimize", "many.onnx", "--dry-run", "--max-rank", "4", "-v"]) == 3
    assert "Sin" in capsys.readouterr().out


def test_it_says_that_all_nodes_fit(capsys):
    assert run(["optimize", "four.onnx", "--dry-run", "--max-rank", "4"]) == 0
    assert "every node fits rank 4" in capsys.readouterr().out.splitlines()
    assert run(["inspect", "four.onnx", "--max-rank", "4"]) == 0
    assert "after optimize, every node fits rank 4" in capsys.readouterr().out.splitlines()


def test_quiet_says_it_in_one_line_on_stderr(capsys):
    assert run(["optimize", "six.onnx", "-o", "out.onnx", "--max-rank", "5", "-q"]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: six.onnx: 5 nodes do not fit rank 5\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["four.onnx", "--max-rank", "4"], 0),
        (["four.onnx", "--max-rank", "3"], 3),
        (["six.onnx", "--max-rank", "6"], 0),
        (["six.onnx"], 0),
        (["six.onnx", "four.onnx", "--max-rank", "5"], 3),
        (["six.onnx", "--max-rank", "5", "--check"], 3),
    ],
)
def test_exit_codes(words, code):
    assert run(["optimize", *words, "--dry-run"]) == code


def test_the_document(capsys):
    assert run(["optimize", "six.onnx", "--dry-run", "--json", "--max-rank", "5"]) == 3
    limits = json.loads(capsys.readouterr().out)["limits"]
    assert limits["max_rank"] == 5
    assert [each["node"] for each in limits["nodes"]][-2:] == ["fourth", "last"]
    assert limits["nodes"][0]["shape"] == [1, 2, 3, 4, 5, 6]


def test_without_a_limit_nothing_is_said(capsys):
    assert run(["optimize", "six.onnx", "--dry-run"]) == 0
    first, _ = capsys.readouterr().out.splitlines()
    assert first == "six.onnx: no spatial operators, nothing to do"
    assert run(["optimize", "six.onnx", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["limits"] is None


def test_inspect_lists_what_optimize_would_leave(capsys):
    assert run(["inspect", "six.onnx", "--max-rank", "5"]) == 0
    assert "after optimize, 5 nodes do not fit rank 5:" in capsys.readouterr().out


def test_from_python(folder):
    result = onnx_spatial.optimize("six.onnx", "out.onnx", max_rank=5)
    limits = result.inspection.limits
    assert limits.max_rank == 5
    assert [node.op_type for node in limits.nodes] == ["Relu"] * 4 + ["Neg"]
    assert (folder / "out.onnx").exists()
    assert onnx_spatial.optimize("four.onnx", max_rank=4).inspection.limits.nodes == ()
    assert onnx_spatial.optimize("six.onnx").inspection.limits is None
    assert onnx_spatial.convert("six.onnx", max_rank=4).inspection.limits is None


def test_chains_above_the_limit_are_named_as_such(capsys):
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,2,3,4,5,6] x) => (float[1,4,2,5,3,6] y) {
        [turn] y = Transpose <perm = [0, 3, 1, 4, 2, 5]> (x)
    }"""
    onnx.save(parser.parse_model(text), "turn.onnx")
    assert run(["inspect", "turn.onnx", "--max-rank", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "chains of standard nodes that only move data:" in lines
    assert "optimize: 1 chain above the limit left" in lines
    assert run(["optimize", "turn.onnx", "--max-rank", "5", "--dry-run"]) == 3
    out = capsys.readouterr().out
    assert "nothing to gain" not in out
    assert "turn; the chain stays: its input 'x' has rank 6" in out
