"""What the commands say, write and return for models that work, and where models differ."""

import io
import os
import re
from pathlib import Path

import chain_models
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
from onnx_spatial.cli.output import PIPE_WIDTH, say, wrapped
from onnx_spatial.report.outcome import describe_verification
from onnx_spatial.verification import Unproven, Verification

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


HEAD = '<ir_version: {}, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>'
CONV = '[c] y = Conv <auto_pad = "SAME_UPPER", dilations = [2, 2]> ({}, w) }}'
TILES = """[p] a = ai.onnx.converters.tensorflow.ExtractImagePatches <ksizes = [1, {0}, {0}, 1],
    strides = [1, {1}, {1}, 1], rates = [1, 1, 1, 1], padding = "{2}"> (x)
    t = Transpose <perm = [0, 3, 1, 2]> (a)"""
W4 = "=> (float[N,1,P,Q] y) <float[1,1,2,2] w = {1, 2, 3, 4}> {"
SCREENS = {
    "auto_pad": (
        f"g (float[N,1,H,W] x) {W4} {CONV.format('x')}",
        "--no-fuse",
        "1 convolution that onnxruntime refuses, opset 17, IR 8",
        "1 convolution got explicit pads",
    ),
    "auto_pad beside an operator": (
        f"g (float[N,4,4,1] x) {W4} {TILES.format(1, 2, 'VALID')} {CONV.format('t')}",
        "",
        f"1 spatial operator in domain '{TF}', 1 convolution that onnxruntime refuses",
        "1 standard node, 1 convolution got explicit pads",
    ),
    "strided convolution": (
        f"""g (float[1,32,32,1] x) => (float[1,2,P,Q] y)
            <float[2,9,1,1] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 8, 7, 6, 5, 4, 3, 2, 1}}>
            {{ {TILES.format(3, 1, 'SAME')} y = Conv (t, w) }}""",
        "",
        "fuse: strided convolution with 2 other nodes",
        "1 operator became 1 strided convolution",
    ),
    "IR version": (
        S2B.partition(">\n")[2], "--mode function", "IR 7", "raised the IR version: 7 -> 8",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCREENS)
def test_what_is_found_is_what_is_converted(name, cli):
    text, options, inspected, converted = SCREENS[name]
    write(HEAD.format(7 if name == "IR version" else 8) + text, "m.onnx")
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
    write(S2B.replace("4,6,3]", "H,6,3]"), "m.onnx")
    for option, mode in (("", "lower"), ("--checked", "lower"), ("--checked", "function")):
        cli(f"convert m.onnx -o out.onnx --mode {mode} {option}")
        opened = onnxruntime.InferenceSession("out.onnx")
        assert opened.run(None, {"x": X})[0].shape == (12, 3, 2, 3)
        if option:  # it fails where the operator does
            with pytest.raises(Exception, match="node"):
                opened.run(None, {"x": X[:, :3]})


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


# Tolerances


@pytest.mark.parametrize(
    ("options", "code", "tolerance"),
    [
        ("", 1, None),
        ("--rtol 1e-9 --rtol y=1e-2 --outputs-only", 0, 1e-2),
        ("--atol 100 --outputs-only", 0, None),
    ],
)
def test_tolerances_of_verify_and_what_is_said_if_only_outputs_are_compared(
    options, code, tolerance, cli
):
    write(SCALED, "m.onnx")
    made = onnx_spatial.convert("m.onnx", verify=False).model
    tensor = next(t for t in made.graph.initializer if t.name == "third")
    tensor.CopyFrom(numpy_helper.from_array(np.array([0.3333], np.float32), "third"))
    onnx.save(made, "c.onnx")
    done = cli(f"verify m.onnx c.onnx {options}")
    document = cli(f"verify m.onnx c.onnx {options} --json").document
    assert done.code == code
    if tolerance:
        assert document["outputs_only"] == ("-only" in options)
        assert {output["tolerance"] for output in document["outputs"]} == {tolerance}
    if "y=1e-2" in options:
        note = "only outputs were compared, no single operators and no other nodes"
        assert document["notes"] == [note] and "proven" not in done.out
        assert done.out.startswith("PASSED  outputs agree to 9.0e-04 of the largest value")
        assert done.out.count("only outputs were compared") == 1


# Sentences wrap at spaces in a terminal, and stay in one line elsewhere


def printed(width: int, show, *arguments: object) -> str:
    console = Console(file=io.StringIO(), width=width)
    show(console, *arguments)
    return console.file.getvalue()


@pytest.mark.parametrize("width", range(20, 60))
def test_no_word_is_broken_and_numbers_stay_with_their_units_and_arrows(width):
    text = "m.onnx: 10 operators became others; 226 -> 68 nodes, 7.2 -> 12 kB, in 0.69 s in all"
    lines = wrapped(text, width).splitlines()
    assert " ".join(line.strip() for line in lines) == text and len(lines) > 1
    for whole in ("226 -> 68 nodes", "7.2 -> 12 kB", "0.69 s"):
        assert any(whole in line for line in lines)
    shown = printed(width, say, f"  {text}")
    assert shown.split() == text.split()
    first, *others = shown.splitlines()
    assert max(map(len, (first, *others))) <= width and first.startswith("  m.onnx")
    assert all(line.startswith("    ") for line in others)


def test_equal_reasons_are_one_line_and_operators_are_listed_where_a_table_would_not_fit():
    parts = [Unproven(f"n{i}", "gave up", "gave up: a loop") for i in range(6)]
    parts.append(Unproven("other", "other formula", "computes Clip(x, 0, 6), the original Relu(x)"))
    message = f"passed: sampled: {parts[0]} (and 6 more); outputs are equal in every bit"
    result = Verification("passed", message, "sampled", unproven=parts)
    shown = printed(PIPE_WIDTH, output.print_outcome, describe_verification(result, verbose=False))
    assert shown.splitlines() == [
        f"PASSED  {message.removeprefix('passed: ').replace(' (and 6 more)', '')}",
        "  n1, n2, n3 and 2 more are not proven: gave up: a loop",
        "  other is not proven: computes Clip(x, 0, 6), the original Relu(x)",
    ]
    found = onnx_spatial.inspect(ZOO / "raft" / "model.onnx")
    shown = printed(60, output.print_outcome, found.describe())
    place = "operator: ExtractImagePatches, in: main graph > Loop while_loop:0.body"
    data = "data: float32 [?, ?, ?, 2] -> [?, ?, ?, 18], action: lower: "
    text = " ".join(shown.split())
    assert f"while/ExtractImagePatches_1 {place}, {data}" in text
    assert re.search(r", nodes: \d+ -> \d+, estimated time: \d", text)
    assert max(map(len, shown.splitlines())) <= 60


# optimize


@pytest.fixture
def chains(cli):
    onnx.save(chain_models.six_dims(), "a.onnx")
    onnx.save(chain_models.stacked(rates=(2, 3)), "b.onnx")


@pytest.mark.usefixtures("chains")
def test_the_headline_and_figures_of_optimize_and_no_need_of_a_second_time(cli):
    nodes = len(onnx.load("b.onnx").graph.node)
    first, *lines = cli("optimize b.onnx --dry-run --no-verify -v").lines
    assert first.startswith("b.onnx: 4 chains became 2 dilated convolutions; ")
    assert f"; {nodes} -> 4 nodes, " in first
    assert {"chains of standard nodes that are spatial operators:", "not verified"} <= {*lines}
    rows = [line.split() for line in lines]
    for row in (["chains", "to", "rewrite", "4", "0"], ["nodes", str(nodes), "4"]):
        assert row in rows
    assert ["DepthToSpace", "2", "0"] in rows
    assert not any("operators to convert" in line for line in lines)
    (row,) = [line for line in lines if "dilation 3" in line]
    assert "Conv 3x3, dilation 3, 4 channels" in row
    a, b = cli("optimize a.onnx b.onnx -o out --no-verify --json").document["models"]
    assert sorted(os.listdir("out")) == ["a.onnx", "b.onnx"]
    assert a["summary"]["before"]["chains"] == 2 and b["summary"]["before"]["chains"] == 4
    removed = a["touched"]["initializers_removed"]
    read = {name for node in onnx.load("out/a.onnx").graph.node for name in node.input}
    assert removed and not read.intersection(removed) and a["remaining"] == []
    assert cli("optimize out/a.onnx out/b.onnx --check").code == 0
    net = chain_models.Net()
    x = net("Relu", chain_models.to_batch(net, "x", (2, 8, 12, 3), 0, 2))
    onnx.save(net.model((2, 8, 12, 3), x), "left.onnx")
    done = cli("optimize left.onnx --check")
    left = "1 chain of standard nodes left, with nothing to gain by a rewrite"
    assert done.code == 0 and done.lines[1] == left
