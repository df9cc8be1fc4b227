"""What the commands say, write and return for models that work."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from commands import PLAIN, S2B, write
from onnx import numpy_helper
from rich.console import Console
from running import LEVELS, session
from validating import SCALED

import onnx_spatial
from onnx_spatial.cli import output

ZOO = Path(__file__).parents[2] / "models"
TF = "ai.onnx.converters.tensorflow"
X = np.arange(2 * 4 * 6 * 3, dtype=np.float32).reshape(2, 4, 6, 3)


def test_convert_writes_a_model_that_runs_and_says_so(cli):
    write(S2B, "m.onnx")
    done = cli("convert m.onnx -o out.onnx")
    assert done.code == 0 and done.err == ""
    assert "1 operator became 4 standard nodes" in done.lines[0]
    assert done.lines[1:3] == ["  inputs: x float32 [N, 4, 6, 3]", "  outputs: y ?"]
    assert "PASSED  proven: 1 operator for every size; outputs are equal in every bit" in done.lines
    assert done.lines[-2] == "wrote out.onnx" and re.fullmatch(r"took \S+ [mu]?s", done.lines[-1])
    (y,) = onnxruntime.InferenceSession("out.onnx").run(None, {"x": X})
    assert y.shape == (12, 3, 2, 3) and (y[0, 1, 0] == X[0, 1, 0]).all()


def test_convert_for_python_operators_prints_the_lines_that_run_it(cli):
    pytest.importorskip("onnxruntime_extensions")
    write(S2B, "m.onnx")
    out = cli("convert m.onnx -o out.onnx --mode custom-op").out
    assert "1 operator became 2 nodes" in out and "PASSED  " in out
    _, _, lines = out.partition("run it in Python with:\n")
    program = [line.strip() for line in lines.splitlines() if line.startswith("    ")]
    assert len(program) == 3
    names: dict[str, onnxruntime.InferenceSession] = {}
    exec("\n".join(program), names)
    (y,) = names["session"].run(None, {"x": X})
    assert (y[0, 1, 0] == X[0, 1, 0]).all()


def test_inspect_shows_operator_shapes_action_and_what_optimize_adds(cli):
    write(S2B, "m.onnx")
    done = cli("inspect m.onnx -v")
    assert f"1 spatial operator in domain '{TF}', opset 17, IR 8" in done.out
    assert "SpaceToBatchND  float32 [N, 4, 6, 3] -> [?, 3, 2, 3]  lower: transpose" in done.out
    assert "lowerings of 's2b', with estimated times: transpose (" in done.out
    assert any(line.startswith("after convert: 1 operator became") for line in done.lines)


SAME = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
g (float[N,1,H,W] x) => (float[N,1,P,Q] y) <float[1,1,2,2] w = {1, 2, 3, 4}> {
    [c] y = Conv <auto_pad = "SAME_UPPER", dilations = [2, 2]> (x, w)
}
"""
BOTH = SAME.replace("(x, w)", "(t, w)").replace("float[N,1,H,W] x", "float[N,4,4,1] x")
BOTH = BOTH.replace(
    "[c]",
    """[p] a = ai.onnx.converters.tensorflow.ExtractImagePatches <ksizes = [1, 1, 1, 1],
        strides = [1, 2, 2, 1], rates = [1, 1, 1, 1], padding = "VALID"> (x)
        t = Transpose <perm = [0, 3, 1, 2]> (a)
        [c]""",
)
PATCHES = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
g (float[1,32,32,1] x) => (float[1,2,P,Q] y)
<float[2,9,1,1] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 8, 7, 6, 5, 4, 3, 2, 1}> {
    [p] a = ai.onnx.converters.tensorflow.ExtractImagePatches <ksizes = [1, 3, 3, 1],
        strides = [1, 1, 1, 1], rates = [1, 1, 1, 1], padding = "SAME"> (x)
    [t] b = Transpose <perm = [0, 3, 1, 2]> (a)
    [c] y = Conv (b, w) }"""
IR_7 = S2B.replace("ir_version: 8", "ir_version: 7")


@pytest.mark.parametrize(
    ("text", "options", "inspected", "converted"),
    [
        (
            SAME,
            "--no-fuse",
            "1 convolution that onnxruntime refuses, opset 17, IR 8",
            "1 convolution got explicit pads",
        ),
        (
            BOTH,
            "",
            f"1 spatial operator in domain '{TF}', 1 convolution that onnxruntime refuses",
            "1 standard node, 1 convolution got explicit pads",
        ),
        (
            PATCHES,
            "",
            "fuse: strided convolution with 2 other nodes",
            "1 operator became 1 strided convolution",
        ),
        (IR_7, "--mode function", "IR 7", "raised the IR version: 7 -> 8"),
    ],
    ids=["auto_pad", "auto_pad beside an operator", "strided convolution", "IR version"],
)
def test_what_is_found_is_what_is_converted(text, options, inspected, converted, cli):
    write(text, "m.onnx")
    assert inspected in cli("inspect m.onnx").out
    done = cli(f"convert m.onnx -o out.onnx {options}")
    assert done.code == 0 and converted in done.out and "PASSED  proven: " in done.out
    session(onnx.load("out.onnx"), LEVELS[0])


def test_calls_of_local_functions(cli):
    wavenet = ZOO / "wavenet" / "model.onnx"
    out = cli(f"convert {wavenet} -o form.onnx --mode function").out
    assert re.search(r"6 operators became calls of 2 local functions \(\d+ standard nodes\)", out)
    assert "PASSED  proven: 6 operators for every size; " in out
    sites = cli("inspect form.onnx --json").document["operators"]
    names = [f"{TF}:SpaceToBatchND", f"{TF}:BatchToSpaceND"]
    assert [site["function"] for site in sites] == names * 3
    assert cli("inspect form.onnx").out.count(names[0]) == 3
    again = cli("convert form.onnx -o again.onnx --mode function").out
    assert "its operators call local functions already, nothing to do" in again
    assert Path("again.onnx").read_bytes() == Path("form.onnx").read_bytes()


def test_the_documents_of_all_commands_agree(cli):
    write(S2B, "m.onnx")
    inspected = cli("inspect m.onnx --json").document
    converted = cli("convert m.onnx -o out.onnx --json").document
    verified = cli("verify m.onnx out.onnx --json").document
    assert {each["version"] for each in (inspected, converted, verified)} == {2}
    (found,), (site,) = inspected["operators"], converted["operators"]
    (result,) = verified["operators"]
    assert (site["proven"], found["proven"]) == (result["proven"], None) == ("all sizes", None)
    assert site["assumptions"] == result["assumptions"] and found["assumptions"] == []
    assert site == {**found, "proven": "all sizes", "assumptions": site["assumptions"]}
    assert (site["node"], site["graph"], site["dialect"]) == ("s2b", "main graph", "tensorflow-nd")
    assert (site["action"], site["reason"]) == ("lower", None)
    assert (site["nodes_before"], site["nodes_after"]) == (1, 4)
    assert site["input_shape"] == ["N", 4, 6, 3]
    assert converted["output"] == "out.onnx"
    assert converted["touched"]["nodes_replaced"] == ["s2b"]
    assert converted["touched"]["opset_imports_removed"] == [TF]
    assert converted["verification"]["status"] == verified["status"] == "passed"


def test_nothing_to_do_is_a_copy_byte_for_byte(cli):
    data = Path(write(PLAIN, "m.onnx")).read_bytes() + b"\xfa\x7f\x02hi"  # an unknown field
    Path("m.onnx").write_bytes(data)
    done = cli("convert m.onnx -o out.onnx")
    assert done.lines[:2] == [
        "m.onnx: no spatial operators, nothing to do",
        "copied byte for byte to out.onnx",
    ]
    assert Path("out.onnx").read_bytes() == data


def test_options_of_a_conversion(cli):
    write(S2B, "m.onnx")
    assert "PASSED" in cli("convert m.onnx --dry-run").out
    cli("convert m.onnx --dry-run -o out.onnx")
    assert os.listdir() == ["m.onnx"]
    assert "not verified" in cli("convert m.onnx -o out.onnx --no-verify").lines
    for words in ("convert m.onnx -o out.onnx", "inspect m.onnx", "verify m.onnx out.onnx"):
        for quiet in (f"{words} -q", f"-q {words}"):
            done = cli(quiet)
            assert (done.code, done.out, done.err) == (0, "", "")
    cli("convert m.onnx -o out.onnx --static N=5 --prefer slices")
    made = onnx.load("out.onnx").graph
    assert made.input[0].type.tensor_type.shape.dim[0].dim_value == 5
    types = {node.op_type for node in made.node}
    assert "Slice" in types and "Transpose" not in types
    (site,) = cli("inspect m.onnx --prefer slices --json").document["operators"]
    assert site["lowering"] == "slices"


def test_an_unknown_domain_is_left_and_reported(cli):
    model = Path(write(S2B.replace(TF, "my.own"), "m.onnx"))
    done = cli("convert m.onnx -o out.onnx")
    assert done.code == 0 and "'s2b' is not converted: " in done.out
    assert "--domain my.own" in done.out
    assert Path("out.onnx").read_bytes() == model.read_bytes()
    Path("out.onnx").unlink()
    done = cli("convert m.onnx -o out.onnx --strict")
    assert done.code == 3 and "--domain my.own" in done.error and not Path("out.onnx").exists()
    assert cli("convert m.onnx -o out.onnx --domain my.own").code == 0
    assert {node.domain for node in onnx.load("out.onnx").graph.node} == {""}


def test_other_peoples_operators_are_said_not_to_have_run(cli):
    text = S2B.replace("=> (y)", "=> (z)").replace('" : 1]', '" : 1, "my.own" : 1]')
    write(text.replace("block, pads)", "block, pads)\n    z = my.own.Magic(y)"), "m.onnx")
    done = cli("convert m.onnx -o out.onnx")
    assert "PASSED  proven: 1 operator for every size; not run: " in done.out
    assert "onnxruntime has no operator my.own:Magic" in done.out
    assert cli("convert m.onnx -o out.onnx --strict-proof").code == 0


@pytest.mark.parametrize("name", ["deeplab", "leftover"])  # tests/golden has all
def test_a_net_converts_and_equals_its_recorded_outputs(name, cli):
    model, data = ZOO / name / "model.onnx", ZOO / name / "test_data_set_0"
    with pytest.raises(Exception, match=r"."):  # the reason why this project exists
        onnxruntime.InferenceSession(model)
    assert "PASSED" in cli(f"convert {model} -o out.onnx").out
    assert cli(f"verify {model} out.onnx --inputs {data}").code == 0
    opened = onnxruntime.InferenceSession("out.onnx")
    feeds = {
        v.name: numpy_helper.to_array(onnx.load_tensor(data / f"input_{i}.pb"))
        for i, v in enumerate(opened.get_inputs())
    }
    for index, result in enumerate(opened.run(None, feeds)):
        expected = numpy_helper.to_array(onnx.load_tensor(data / f"output_{index}.pb"))
        assert result.shape == expected.shape
        assert np.abs(result - expected).max() <= 1e-5 * np.abs(expected).max()


def test_operators_are_listed_where_a_table_would_not_fit():
    narrow = Console(file=io.StringIO(), width=60)
    output.print_outcome(narrow, onnx_spatial.inspect(ZOO / "raft" / "model.onnx").describe())
    shown = narrow.file.getvalue()
    found = " ".join(shown.split())
    place = "operator: ExtractImagePatches, in: main graph > Loop while_loop:0.body"
    data = "data: float32 [?, ?, ?, 2] -> [?, ?, ?, 18], action: lower: "
    assert f"while/ExtractImagePatches_1 {place}, {data}" in found
    assert re.search(r", nodes: \d+ -> \d+, estimated time: \d", found)
    assert max(map(len, shown.splitlines())) <= 60


# Where models differ


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


def test_a_difference_has_a_first_value_figures_and_advice(cli):
    write(S2B, "m.onnx")
    write(WRONG, "wrong.onnx")
    done = cli("verify m.onnx wrong.onnx")
    assert done.code == 1 and "FAILED" in done.out and "s2b" in done.error
    assert "the first value that differs is 'y'" in done.out and "--no-fuse" in done.out
    done = cli("verify m.onnx wrong.onnx --json --reproducer folder")
    found = done.document["verification"]
    assert (found["first_value"]["node"], found["first_value"]["graph"]) == ("s2b", "main graph")
    assert Path(found["reproducer"]) == Path("folder/reproduce.py") and found["advice"]
    errors = [found["outputs"][0][f"{kind}_relative_error"] for kind in ("p50", "p99", "max")]
    assert errors == sorted(errors) and errors[-1] > 0
    assert (
        "reproduce it with: python again" in cli("verify m.onnx wrong.onnx --reproducer again").out
    )


CROPPED = """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
g (float[4,H,W,1] x) => (y) <int32[2] block = {2, 2}, int32[2,2] crops = {1, 2, 0, 0}> {
    [b2s] y = ai.onnx.converters.tensorflow.BatchToSpaceND(x, block, crops)
}
"""


@pytest.mark.parametrize("mode", ["lower", "function"])
def test_checked_models_fail_where_the_operator_does(mode, cli):
    write(CROPPED, "m.onnx")
    for name, option in (("plain", ""), ("checked", "--checked")):
        assert cli(f"convert m.onnx -o {name}.onnx --mode {mode} {option}").code == 0
    legal, small = (np.ones((4, height, 3, 1), np.float32) for height in (2, 1))
    plain, checked = (onnxruntime.InferenceSession(f"{n}.onnx") for n in ("plain", "checked"))
    for opened in (plain, checked):
        assert opened.run(None, {"x": legal})[0].shape == (1, 1, 6, 1)
    assert plain.run(None, {"x": small})[0].size == 0
    with pytest.raises(Exception, match="out of data bounds"):
        checked.run(None, {"x": small})


# Tolerances


@pytest.fixture
def off_by_a_thousandth(cli):
    """A model and its conversion with another weight."""
    write(SCALED, "m.onnx")
    made = onnx_spatial.convert("m.onnx", verify=False).model
    tensor = next(t for t in made.graph.initializer if t.name == "third")
    tensor.CopyFrom(numpy_helper.from_array(np.array([0.3333], np.float32), "third"))
    onnx.save(made, "c.onnx")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("", 1),
        ("--rtol 1e-2", 0),  # another constant: PASSED sampled
        ("--outputs-only", 1),
        ("--rtol 1e-9 --rtol y=1e-2 --outputs-only", 0),
        ("--atol 100 --outputs-only", 0),
    ],
)
def test_tolerances_of_verify(options, code, off_by_a_thousandth, cli):
    assert cli(f"verify m.onnx c.onnx {options}").code == code


def test_json_and_text_say_that_only_outputs_were_compared(off_by_a_thousandth, cli):
    words = "verify m.onnx c.onnx --rtol 1e-2 --outputs-only"
    document = cli(f"{words} --json").document
    note = "only outputs were compared, no single operators and no other nodes"
    assert document["outputs_only"] is True and document["notes"] == [note]
    assert {output["tolerance"] for output in document["outputs"]} == {1e-2}
    out = cli(words).out
    assert out.startswith("PASSED  outputs agree to 9.0e-04 of the largest value")
    assert out.count("only outputs were compared") == 1 and "proven" not in out
