"""The command line as a person or a script meets it: output, exit codes, files."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from adapter import run
from onnx import parser
from rich.console import Console
from signals import heard

import onnx_spatial
from onnx_spatial import Verification
from onnx_spatial.cli import render
from onnx_spatial.fusion import transposes
from onnx_spatial.report.outcome import describe

ZOO = Path(__file__).parents[2] / "models"

PLAIN = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,2] x) => (float[2,N] y) { y = Transpose<perm = [1, 0]>(x) }
"""
S2B = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
g (float[N,4,6,3] x) => (y) <int32[2] block = {2, 3}, int32[2,2] pads = {1, 1, 0, 0}> {
    [s2b] y = ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, pads)
}
"""


@pytest.fixture
def save(tmp_path: Path):
    """Write a model given as ONNX text."""

    def write(text: str, name: str = "model.onnx") -> str:
        path = tmp_path / name
        path.write_bytes(parser.parse_model(text).SerializeToString())
        return str(path)

    return write


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr."""
    err = capsys.readouterr().err
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if line]
    assert len(lines) == 1, err
    assert lines[0].startswith("error: ")
    return lines[0]


def test_convert_writes_a_model_that_runs_and_says_so(save, tmp_path, capsys):
    out = tmp_path / "out.onnx"
    assert run(["convert", save(S2B), "-o", str(out)]) == 0
    text = capsys.readouterr().out
    assert "1 operator became 4 standard nodes" in text
    assert "PASSED  proven: 1 operator for every size; outputs are equal in every bit" in text
    assert f"wrote {out}" in text
    x = np.arange(2 * 4 * 6 * 3, dtype=np.float32).reshape(2, 4, 6, 3)
    (y,) = onnxruntime.InferenceSession(out).run(None, {"x": x})
    assert y.shape == (12, 3, 2, 3)
    assert (y[0, 1, 0] == x[0, 1, 0]).all()


def test_convert_for_python_operators_prints_the_lines_that_run_it(save, tmp_path, capsys):
    pytest.importorskip("onnxruntime_extensions")
    out = tmp_path / "out.onnx"
    assert run(["convert", save(S2B), "-o", str(out), "--mode", "custom-op"]) == 0
    text = capsys.readouterr().out
    assert "1 operator became 2 nodes" in text
    assert "PASSED  " in text
    _, _, lines = text.partition("run it in Python with:\n")
    program = [line.strip() for line in lines.splitlines() if line.startswith("    ")]
    assert len(program) == 3
    names: dict[str, onnxruntime.InferenceSession] = {}
    exec("\n".join(program), names)
    x = np.arange(2 * 4 * 6 * 3, dtype=np.float32).reshape(2, 4, 6, 3)
    (y,) = names["session"].run(None, {"x": x})
    assert (y[0, 1, 0] == x[0, 1, 0]).all()


def test_inspect_shows_operator_shapes_and_action(save, capsys):
    assert run(["inspect", save(S2B)]) == 0
    out = capsys.readouterr().out
    domain = "'ai.onnx.converters.tensorflow'"
    assert f"1 spatial operator in domain {domain}, opset 17, IR 8" in out
    assert "SpaceToBatchND" in out
    assert "[N, 4, 6, 3]" in out
    assert "[?, 3, 2, 3]" in out
    assert "lower: transpose" in out


TURNED = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
g (float[N,3,4,6] x) => (float[?,?,?,?] y) <int32[2] block = {2, 3}, int32[2,2] pads = {1, 1, 0, 0}> {
    [front] a = Transpose <perm = [0, 2, 3, 1]> (x)
    [s2b] b = ai.onnx.converters.tensorflow.SpaceToBatchND(a, block, pads)
    [behind] c = Transpose <perm = [0, 3, 1, 2]> (b)
    y = Relu(c)
}
"""


def test_absorbed_transposes_are_shown_and_can_be_left_alone(save, capsys, monkeypatch):
    monkeypatch.setattr(transposes, "transpose_cost", lambda dims, perm, itemsize: 1e9)
    model = save(TURNED)
    assert run(["inspect", model]) == 0
    assert "lower: transpose with 2 Transposes" in capsys.readouterr().out
    assert run(["convert", model, "--dry-run"]) == 0
    assert "SpaceToBatchND with 2 other nodes" in capsys.readouterr().out
    for options, absorbed in (([], ["front", "behind"]), (["--no-fuse"], [])):
        assert run(["convert", model, "--dry-run", "--json", *options]) == 0
        document = json.loads(capsys.readouterr().out)
        (site,) = document["operators"]
        assert site["absorbed"] == absorbed
        assert document["touched"]["nodes_replaced"] == ["s2b", *absorbed]
        assert document["verification"]["status"] == "passed"


SAME = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
g (float[N,1,H,W] x) => (float[N,1,P,Q] y) <float[1,1,2,2] w = {1, 2, 3, 4}> {
    [c] y = Conv <auto_pad = "SAME_UPPER", dilations = [2, 2]> (x, w)
}
"""


def test_a_convolution_that_onnxruntime_refuses_is_put_right(save, tmp_path, capsys):
    model, out = save(SAME), tmp_path / "out.onnx"
    assert run(["inspect", model]) == 0
    text = capsys.readouterr().out
    assert "1 convolution that onnxruntime refuses, opset 17, IR 8" in text
    assert "lower: explicit-pads" in text
    assert run(["convert", model, "-o", str(out), "--no-fuse", "-v"]) == 0
    text = capsys.readouterr().out
    assert "1 convolution got explicit pads" in text
    assert "PASSED  proven: 1 operator for every size; " in text
    onnxruntime.InferenceSession(out).run(None, {"x": np.ones((1, 1, 5, 4), np.float32)})
    assert run(["inspect", "--json", model]) == 0
    (site,) = json.loads(capsys.readouterr().out)["operators"]
    assert (site["dialect"], site["action"]) == ("onnx auto_pad", "lower")
    assert run(["convert", model, "--dry-run", "--json"]) == 0
    touched = json.loads(capsys.readouterr().out)["touched"]
    assert touched["nodes_changed"] == ["c"] and touched["nodes_added"] == []


def test_a_convolution_is_counted_beside_operators(save, capsys):
    text = SAME.replace("(x, w)", "(t, w)").replace("float[N,1,H,W] x", "float[N,4,4,1] x")
    patches = """[p] a = ai.onnx.converters.tensorflow.ExtractImagePatches <ksizes = [1, 1, 1, 1],
        strides = [1, 2, 2, 1], rates = [1, 1, 1, 1], padding = "VALID"> (x)
        t = Transpose <perm = [0, 3, 1, 2]> (a)
        [c]"""
    model = save(text.replace("[c]", patches))
    assert run(["inspect", model]) == 0
    domain = "'ai.onnx.converters.tensorflow'"
    found = capsys.readouterr().out
    assert f"1 spatial operator in domain {domain}, 1 convolution that onnxruntime refuses" in found
    assert run(["convert", model, "--dry-run"]) == 0
    found = capsys.readouterr().out
    assert "1 standard node, 1 convolution got explicit pads" in found
    assert "PASSED  proven: 2 operators for every size; " in found


def test_patches_that_become_a_convolution_are_shown(save, capsys):
    model = save("""<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
        g (float[1,32,32,1] x) => (float[1,2,P,Q] y) <float[2,9,1,1] w = {
            1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 8, 7, 6, 5, 4, 3, 2, 1}> {
        [p] a = ai.onnx.converters.tensorflow.ExtractImagePatches <ksizes = [1, 3, 3, 1],
            strides = [1, 1, 1, 1], rates = [1, 1, 1, 1], padding = "SAME"> (x)
        [t] b = Transpose <perm = [0, 3, 1, 2]> (a)
        [c] y = Conv (b, w) }""")
    assert run(["inspect", model]) == 0
    assert "fuse: strided convolution with 2 other nodes" in capsys.readouterr().out
    assert run(["convert", model, "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "1 operator became 1 strided convolution; 3 -> 4 nodes" in text
    assert "ExtractImagePatches with 2 other nodes, strided convolution" in text


def test_json_is_the_only_thing_on_stdout(save, tmp_path, capsys):
    model, out = save(S2B), str(tmp_path / "out.onnx")
    assert run(["inspect", model, "--json"]) == 0
    inspected = json.loads(capsys.readouterr().out)
    assert run(["convert", model, "-o", out, "--json"]) == 0
    converted = json.loads(capsys.readouterr().out)
    assert run(["verify", model, out, "--json"]) == 0
    verified = json.loads(capsys.readouterr().out)
    (proven,) = (each.pop("proven") for each in converted["operators"])
    assert proven == verified["operators"][0]["proven"] == "all sizes"
    assert inspected["operators"][0].pop("proven") is None
    assert converted["operators"][0].pop("assumptions") == verified["operators"][0]["assumptions"]
    assert inspected["operators"][0].pop("assumptions") == []
    assert converted["operators"] == inspected["operators"]
    (site,) = inspected["operators"]
    assert site["node"] == "s2b"
    assert site["graph"] == "main graph"
    assert site["dialect"] == "tensorflow-nd"
    assert site["action"] == "lower"
    assert site["reason"] is None
    assert (site["nodes_before"], site["nodes_after"]) == (1, 4)
    assert site["input_shape"] == ["N", 4, 6, 3]
    assert converted["output"] == out
    assert converted["touched"]["nodes_replaced"] == ["s2b"]
    assert converted["touched"]["opset_imports_removed"] == ["ai.onnx.converters.tensorflow"]
    assert converted["verification"]["status"] == verified["status"] == "passed"
    assert {d["version"] for d in (inspected, converted, verified)} == {2}


def test_json_of_several_models_lists_each(save, capsys):
    models = [save(S2B, "a.onnx"), save(PLAIN, "b.onnx")]
    assert run(["inspect", "--json", *models]) == 0
    found = json.loads(capsys.readouterr().out)["models"]
    assert [(m["model"], len(m["operators"])) for m in found] == list(
        zip(models, (1, 0), strict=True)
    )


def test_several_models_are_all_inspected_before_failing(save, tmp_path, capsys):
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"no model")
    assert run(["inspect", str(bad), save(S2B)]) == 2
    shown = capsys.readouterr()
    assert "not an ONNX model" in shown.err
    assert "1 spatial operator in domain" in shown.out


def test_nothing_to_do_is_a_copy_byte_for_byte(save, tmp_path, capsys):
    model, out = save(PLAIN), tmp_path / "out.onnx"
    data = Path(model).read_bytes() + b"\xfa\x7f\x02hi"  # an unknown field, which parsing may lose
    Path(model).write_bytes(data)
    assert run(["convert", model, "-o", str(out)]) == 0
    assert out.read_bytes() == data
    assert "nothing to do" in capsys.readouterr().out


def test_dry_run_writes_nothing(save, tmp_path, capsys):
    model = save(S2B)
    assert run(["convert", model, "--dry-run", "-o", str(tmp_path / "out.onnx")]) == 0
    assert run(["convert", model, "--dry-run"]) == 0
    assert "PASSED" in capsys.readouterr().out
    assert os.listdir(tmp_path) == ["model.onnx"]


def test_quiet_prints_nothing(save, tmp_path, capsys):
    model, out = save(S2B), str(tmp_path / "out.onnx")
    assert run(["convert", model, "-o", out, "-q"]) == 0
    assert run(["inspect", model, "-q"]) == 0
    assert run(["verify", model, out, "-q"]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")


def test_no_verify_says_so(save, tmp_path, capsys):
    assert run(["convert", save(S2B), "-o", str(tmp_path / "o.onnx"), "--no-verify"]) == 0
    assert "not verified" in capsys.readouterr().out


def test_static_fixes_a_dim(save, tmp_path):
    out = tmp_path / "out.onnx"
    assert run(["convert", save(S2B), "-o", str(out), "--static", "N=5", "-q"]) == 0
    assert onnx.load(out).graph.input[0].type.tensor_type.shape.dim[0].dim_value == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convert", "MODEL"], "missing output: use -o OUT"),
        (["convert", "MODEL", "-o", "MODEL"], "the output must not be the input"),
        (
            ["convert", "MODEL", "-o", "o.onnx", "--in-place"],
            "-o OUT and --in-place cannot be combined",
        ),
        (["convert", "MODEL", "-o", "no/such/folder/o.onnx"], "there is no folder"),
        (
            ["optimize", "MODEL", "--dry-run", "--strict-proof", "--outputs-only"],
            "strict_proof and outputs_only cannot be combined",
        ),
        (
            ["optimize", "MODEL", "--dry-run", "--no-verify", "--rtol", "0.1"],
            "--rtol and --no-verify cannot be combined",
        ),
        (["convert", "MODEL", "--dry-run", "--static", "H=4"], "no symbolic dim named H"),
        (["convert", "MODEL", "--dry-run", "--static", "four"], "must be NAME=DIM"),
        (["convert", "MODEL", "--dry-run", "--shape", "x=a,b"], "must be NAME=SIZES"),
        (["convert", "MODEL", "--dry-run", "--shape", "z=1,2"], "z"),
        (["convert", "MODEL", "--dry-run", "--mode", "magic"], "Invalid value"),
        (["convert", "MODEL", "--dry-run", "--max-rank", "0"], "Invalid value"),
        (["inspect"], "Missing argument"),
        (["inspect", "absent.onnx"], "cannot be read: No such file"),
        (["inspect", "."], "is a folder"),
        (
            ["convert", ".", "-o", "out.onnx"],
            "error: .: is a folder, not a model file; name a file in it, such as model.onnx\n",
        ),
        (["frobnicate", "MODEL"], "No such command"),
    ],
)
def test_bad_usage_is_exit_code_2(arguments, message, save, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    model = save(S2B)
    assert run([model if a == "MODEL" else a for a in arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
    assert os.listdir(tmp_path) == ["model.onnx"]


def broken_files() -> dict[str, bytes]:
    """Files that are no models."""
    good = parser.parse_model(S2B).SerializeToString()
    external = parser.parse_model(S2B)
    tensor = external.graph.initializer[1]
    tensor.ClearField("int32_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    escaping = onnx.ModelProto()
    escaping.CopyFrom(external)
    escaping.graph.initializer[1].external_data[0].value = "../weights.bin"
    return {
        "empty": b"",
        "text": b"this is not a protobuf\n",
        "truncated": good[:-7],
        "missing external data": external.SerializeToString(),
        "external data outside": escaping.SerializeToString(),
    }


@pytest.mark.parametrize("kind", broken_files())
def test_unreadable_models_are_exit_code_2(kind, tmp_path, capsys):
    path = tmp_path / "broken.onnx"
    path.write_bytes(broken_files()[kind])
    assert run(["convert", str(path), "-o", str(tmp_path / "out.onnx")]) == 2
    assert str(path) in error_line(capsys)
    assert os.listdir(tmp_path) == ["broken.onnx"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("block = {2, 3}", "block = {2, 0}", "block_shape[1] is 0; it must be at least 1"),
        ("pads = {1, 1", "pads = {-1, 1", "paddings[0][0] is -1; it must not be negative"),
        ("[N,4,6,3]", "[N,5,6,3]", "is not divisible by its block, 2"),
        ("[N,4,6,3]", "[N,4]", "need an input of rank 3 or more"),
        ("int32[2] block = {2, 3}", "float[2] block = {2, 3}", "must be int32 or int64"),
        ("float[N,4,6,3] x", "complex64[N,4,6,3] x", "onnxruntime has no complex tensors"),
    ],
)
def test_operators_that_break_their_rules_are_exit_code_3(
    old, new, message, save, tmp_path, capsys
):
    out = tmp_path / "out.onnx"
    assert run(["convert", save(S2B.replace(old, new)), "-o", str(out)]) == 3
    line = error_line(capsys)
    assert message in line
    assert "'s2b'" in line
    assert not out.exists()


def test_refusal_as_json_names_operator_and_reason(save, capsys):
    model = save(S2B.replace("block = {2, 3}", "block = {2, 0}"))
    assert run(["convert", model, "--dry-run", "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == 3
    (site,) = document["operators"]
    assert site["action"] == "refuse"
    assert "block_shape[1] is 0" in site["reason"]


def test_inspect_of_a_broken_operator_is_exit_code_3(save, capsys):
    assert run(["inspect", save(S2B.replace("block = {2, 3}", "block = {2, 0}"))]) == 3
    assert "'s2b' cannot be converted: SpaceToBatch: block_shape[1] is 0" in capsys.readouterr().out


def test_unknown_domain_is_left_and_reported(save, tmp_path, capsys):
    model = save(S2B.replace("ai.onnx.converters.tensorflow", "my.own"))
    out = tmp_path / "out.onnx"
    assert run(["convert", model, "-o", str(out)]) == 0
    assert "--domain my.own" in capsys.readouterr().out
    assert out.read_bytes() == Path(model).read_bytes()
    out.unlink()
    assert run(["convert", model, "-o", str(out), "--strict"]) == 3
    assert "--domain my.own" in error_line(capsys)
    assert not out.exists()
    assert run(["convert", model, "-o", str(out), "--domain", "my.own"]) == 0
    assert {n.domain for n in onnx.load(out).graph.node} == {""}


def test_other_peoples_operators_are_said_not_to_have_run(save, tmp_path, capsys):
    text = S2B.replace("=> (y)", "=> (z)").replace('" : 1]', '" : 1, "my.own" : 1]')
    text = text.replace("(x, block, pads)", "(x, block, pads)\n    z = my.own.Magic(y)")
    model, out = save(text), tmp_path / "out.onnx"
    assert run(["convert", model, "-o", str(out)]) == 0
    verdict = "PASSED  proven: 1 operator for every size; not run: "
    assert verdict in capsys.readouterr().out
    assert run(["convert", model, "-o", str(out), "--strict-proof"]) == 0


def test_a_wrong_conversion_is_exit_code_1(save, tmp_path, capsys):
    model, out = save(S2B), tmp_path / "out.onnx"
    assert run(["convert", model, "-o", str(out), "-q"]) == 0
    wrong = onnx.load(out)
    (transpose,) = (n for n in wrong.graph.node if n.op_type == "Transpose")
    perm = transpose.attribute[0].ints
    perm[0], perm[1] = perm[1], perm[0]
    onnx.save(wrong, out)
    assert run(["verify", model, str(out)]) == 1
    shown = capsys.readouterr()
    assert "FAILED" in shown.out
    assert "s2b" in shown.err


def test_inputs_of_the_user(save, tmp_path, capsys):
    model, out = save(S2B), str(tmp_path / "out.onnx")
    np.savez(tmp_path / "data.npz", x=np.ones((3, 4, 6, 3), np.float32))
    data = str(tmp_path / "data.npz")
    assert run(["convert", model, "-o", out, "--inputs", data, "--json"]) == 0
    (made,) = json.loads(capsys.readouterr().out)["verification"]["runs"]
    assert made["inputs"]["x"]["shape"] == [3, 4, 6, 3]
    np.savez(tmp_path / "other.npz", z=np.ones(3))
    assert run(["verify", model, out, "--inputs", str(tmp_path / "other.npz")]) == 2
    assert "no array for x" in error_line(capsys)


@pytest.mark.parametrize("name", sorted(p.parent.name for p in ZOO.glob("*/model.onnx")))
def test_every_model_of_the_zoo_converts_and_equals_its_recorded_outputs(name, tmp_path, capsys):
    folder, out = ZOO / name, tmp_path / "out.onnx"
    data = folder / "test_data_set_0"
    model = str(folder / "model.onnx")
    with pytest.raises(Exception, match=r"."):  # the reason why this project exists
        onnxruntime.InferenceSession(model)
    assert run(["convert", model, "-o", str(out)]) == 0
    assert "PASSED" in capsys.readouterr().out
    assert run(["verify", model, str(out), "--inputs", str(data)]) == 0
    session = onnxruntime.InferenceSession(out)
    feeds = {
        v.name: onnx.numpy_helper.to_array(onnx.load_tensor(data / f"input_{i}.pb"))
        for i, v in enumerate(session.get_inputs())
    }
    for index, result in enumerate(session.run(None, feeds)):
        expected = onnx.numpy_helper.to_array(onnx.load_tensor(data / f"output_{index}.pb"))
        assert result.shape == expected.shape
        assert np.abs(result - expected).max() <= 1e-5 * np.abs(expected).max()


def test_the_script_is_installed_and_a_closed_pipe_is_no_error(save):
    command = [sys.executable, "-m", "onnx_spatial.cli", "inspect", save(S2B)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


@pytest.mark.parametrize("where", ["api.convert_source", "api.verify_conversion"])
def test_what_nobody_thought_of_is_one_line_and_leaves_no_file(
    where, save, tmp_path, capsys, monkeypatch
):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(f"onnx_spatial.{where}", fail)
    assert run(["convert", save(S2B), "-o", str(tmp_path / "out.onnx")]) == 2
    assert "unexpected RuntimeError: first line (a bug" in error_line(capsys)
    assert os.listdir(tmp_path) == ["model.onnx"]


@pytest.mark.parametrize("where", ["api.verify_conversion", "model.io.atomic.os.fsync"])
def test_an_interrupt_is_exit_code_130_and_leaves_no_file(
    where, save, tmp_path, capsys, monkeypatch
):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"onnx_spatial.{where}", interrupt)
    assert run(["convert", save(S2B), "-o", str(tmp_path / "out.onnx")]) == 130
    assert error_line(capsys) == "error: interrupted"
    assert os.listdir(tmp_path) == ["model.onnx"]


def test_sites_are_listed_where_a_table_would_not_fit():
    narrow = Console(file=io.StringIO(), width=60)
    render.outcome(narrow, describe(onnx_spatial.inspect(ZOO / "raft" / "model.onnx")))
    shown = narrow.file.getvalue()
    found = " ".join(shown.split())
    place = "operator: ExtractImagePatches, in: main graph > Loop while_loop:0.body"
    data = "data: float32 [?, ?, ?, 2] -> [?, ?, ?, 18], action: lower: "
    assert f"while/ExtractImagePatches_1 {place}, {data}" in found
    assert re.search(r", nodes: \d+ -> \d+, time: ~", found)
    assert max(map(len, shown.splitlines())) <= 60


def test_the_inputs_and_outputs_and_the_time_are_shown(save, capsys):
    for command in ("inspect", "convert"):
        assert run([command, save(S2B), *(["--dry-run"] if command == "convert" else [])]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[1:3] == ["  inputs: x float32 [N, 4, 6, 3]", "  outputs: y ?"]
        assert re.fullmatch(r"took \S+ [mu]?s", lines[-1])


def test_the_rows_add_up_to_all_nodes(save, capsys):
    assert run(["convert", str(ZOO / "wavenet" / "model.onnx"), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("operator or region"))
    rows = [re.search(r"(\d+) -> (\d+)$", line) for line in lines[start + 1 :]]
    counts = [tuple(map(int, row.groups())) for row in rows if row]
    assert tuple(map(sum, zip(*counts, strict=True))) == (128, 41)
    assert re.match("around them +shape arithmetic and layout +66 -> 0", lines[start + 4])


# In place, and interrupted


def test_in_place_converts_the_file_itself(save, tmp_path, capsys):
    path = save(S2B)
    assert run(["convert", path, "--in-place"]) == 0
    assert f"wrote {path}\n" in capsys.readouterr().out
    assert all(n.domain == "" for n in onnx.load(path).graph.node)
    assert os.listdir(tmp_path) == ["model.onnx"]


def test_in_place_without_verification_keeps_the_original_and_says_where(save, tmp_path, capsys):
    path = save(S2B)
    before = Path(path).read_bytes()
    assert run(["convert", path, "--in-place", "--no-verify", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["backup"] == f"{path}.orig"
    assert Path(document["backup"]).read_bytes() == before
    assert run(["convert", save(S2B), "--in-place", "--no-verify"]) == 0
    assert f"the original is kept as {path}.orig1\n" in capsys.readouterr().out


def test_in_place_nothing_to_do_touches_nothing(save, tmp_path, capsys):
    path = save(PLAIN)
    before = Path(path).stat()
    assert run(["convert", path, "--in-place"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    after = Path(path).stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)
    assert os.listdir(tmp_path) == ["model.onnx"]


def test_in_place_a_failed_verification_leaves_the_original(save, tmp_path, monkeypatch):
    failed = Verification("failed", "failed: on purpose")
    monkeypatch.setattr("onnx_spatial.api.verify_conversion", lambda *a, **k: failed)
    path = save(S2B)
    before = Path(path).read_bytes()
    assert run(["convert", path, "--in-place"]) == 1
    assert Path(path).read_bytes() == before
    assert os.listdir(tmp_path) == ["model.onnx"]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signals_end_the_program_cleanly(name, save, tmp_path):
    waits = (
        "import onnx_spatial.api, time, sys; from onnx_spatial.cli import main\n"
        "def wait(*_, **__): print('ready', flush=True); time.sleep(60)\n"
        "onnx_spatial.api.verify_conversion = wait\n"
        "main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", waits, "convert", save(S2B), "-o", str(tmp_path / "out.onnx")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    number = getattr(signal, name)
    with heard():
        process = subprocess.Popen(command, **pipes)
    with process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.communicate(timeout=60)[1].strip() == "error: interrupted"
        assert process.returncode == 130
    assert os.listdir(tmp_path) == ["model.onnx"]


def test_names_never_reach_the_terminal_as_commands(save, capsys):
    path = Path(save(S2B))
    model = onnx.load(path)
    model.graph.node[0].name = "\x1b[2Jgone"
    path.write_bytes(model.SerializeToString())
    assert run(["inspect", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\\x1b[2Jgone" in shown


def test_one_strategy_can_be_preferred(save, tmp_path, capsys):
    model, target = save(S2B), tmp_path / "out.onnx"
    assert run(["convert", model, "-o", str(target), "--prefer", "slices"]) == 0
    ops = {n.op_type for n in onnx.load(target).graph.node}
    assert "Slice" in ops and "Transpose" not in ops
    capsys.readouterr()
    assert run(["inspect", model, "--prefer", "slices", "--json"]) == 0
    (site,) = json.loads(capsys.readouterr().out)["operators"]
    assert site["lowering"] == "slices"
    assert run(["inspect", model, "--prefer", "magic"]) == 2
    assert "magic" in capsys.readouterr().err


# What is added where models differ


WRONG = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4,6,3] x) => (y)
  <int64[8] pads = {0, 1, 0, 0, 0, 1, 0, 0}, int64[6] split = {-1, 3, 2, 2, 3, 3},
   int64[4] merged = {-1, 3, 2, 3}> {
    padded = Pad(x, pads)
    cells = Reshape(padded, split)
    moved = Transpose<perm = [4, 2, 0, 1, 3, 5]>(cells)
    y = Reshape(moved, merged)
}
"""


def test_reproducer_and_advice(save, tmp_path, capsys):
    original, wrong = save(S2B), save(WRONG, "wrong.onnx")
    folder = tmp_path / "reproducer"
    assert run(["verify", original, wrong, "--reproducer", str(folder)]) == 1
    out = capsys.readouterr().out
    assert "the first value that differs is 'y'" in out
    assert f"python {folder / 'reproduce.py'}" in out
    assert "--no-fuse" in out
    command = [sys.executable, str(folder / "reproduce.py")]
    assert subprocess.run(command, capture_output=True, timeout=120).returncode == 1


def test_failed_verification_as_json_has_figures_and_the_first_value(save, tmp_path, capsys):
    original, wrong = save(S2B), save(WRONG, "wrong.onnx")
    folder = str(tmp_path / "reproducer")
    assert run(["verify", original, wrong, "--json", "--reproducer", folder]) == 1
    found = json.loads(capsys.readouterr().out)["verification"]
    assert found["first_value"]["node"] == "s2b"
    assert found["first_value"]["graph"] == "main graph"
    assert found["reproducer"] == str(Path(folder) / "reproduce.py")
    assert found["advice"]
    output = found["outputs"][0]
    assert output["mean_relative_error"] > 0
    assert (
        output["p50_relative_error"] <= output["p99_relative_error"] <= output["max_relative_error"]
    )


UNCOUNTED = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
g (float[1,4,6,3] x, int64[K] given, int64[M,2] pads) => (y) {
    block = Identity(given)
    [s2b] y = ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, pads)
}
"""


def test_blocks_of_an_unknown_number_are_refused_in_the_same_words_everywhere(
    save, tmp_path, capsys
):
    model = save(UNCOUNTED)
    reason = (
        "block_shape is computed at run time and its length is unknown; the number of blocked "
        "axes must be known: declare its shape, with --static NAME=N where the dim has a name"
    )
    assert run(["inspect", model]) == 3
    assert f"'s2b' cannot be converted: {reason}" in " ".join(capsys.readouterr().out.split())
    for mode in ("lower", "function", "custom-op"):
        assert run(["convert", model, "-o", str(tmp_path / "out.onnx"), "--mode", mode]) == 3
        line = error_line(capsys)
        assert "SpaceToBatchND 's2b' in main graph" in line and reason in line
        with pytest.raises(onnx_spatial.ConversionError, match=r"'s2b' in main graph.*--static"):
            onnx_spatial.InferenceSession(model, mode=mode)
    out = str(tmp_path / "out.onnx")
    static = ["--static", "K=2"]
    assert run(["convert", model, "-o", out, *static, "--no-verify"]) == 0


CROPPED = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
g (float[4,H,W,1] x) => (y) <int32[2] block = {2, 2}, int32[2,2] crops = {1, 2, 0, 0}> {
    [b2s] y = ai.onnx.converters.tensorflow.BatchToSpaceND(x, block, crops)
}
"""


@pytest.mark.parametrize("mode", ["lower", "function"])
def test_checked_models_fail_where_the_operator_does(mode, save, tmp_path, capsys):
    model, outs = save(CROPPED), [str(tmp_path / name) for name in ("plain.onnx", "checked.onnx")]
    for out, options in zip(outs, ([], ["--checked"]), strict=True):
        assert run(["convert", model, "-o", out, "--mode", mode, *options]) == 0
    legal, small = (np.ones((4, height, 3, 1), np.float32) for height in (2, 1))
    plain, checked = map(onnxruntime.InferenceSession, outs)
    for session in (plain, checked):
        assert session.run(None, {"x": legal})[0].shape == (1, 1, 6, 1)
    assert plain.run(None, {"x": small})[0].size == 0
    with pytest.raises(Exception, match="out of data bounds"):
        checked.run(None, {"x": small})
