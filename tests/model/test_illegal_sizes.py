"""Sizes that no runtime runs: one line instead of the end of the process in onnx's own inference."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper, parser

import onnx_spatial
from onnx_spatial.model.inference import functions

NODES = (
    "[s2b] s = ai.onnx.converters.tensorflow.SpaceToBatchND(x, b, p)",
    "t = Transpose<perm = [0, 3, 1, 2]>(s)",
    "[conv] u = Conv<dilations = [RATE, RATE]>(t, w)",
    "v = Transpose<perm = [0, 2, 3, 1]>(u)",
    "[b2s] y = ai.onnx.converters.tensorflow.BatchToSpaceND(v, b, c)",
)


def blocked_conv(
    size: int, kernel: int, *, crop: int = 1, dilation: int = 1, nodes: str = " ".join(NODES)
) -> onnx.ModelProto:
    """SpaceToBatchND -> Conv -> BatchToSpaceND on an image of static size, with blocks of 2x2."""
    ones = ", ".join("1" * kernel**2)
    output = "out" if "out =" in nodes else "y"
    return parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>
        g (float[2,{size},{size},1] x, bool cond) => ({output})
        <int32[2] b = {{2, 2}}, int32[2,2] p = {{0, 0, 0, 0}},
         int32[2,2] c = {{{crop}, {crop}, {crop}, {crop}}}, float[1,1,{kernel},{kernel}] w = {{{ones}}}>
        {{ {nodes.replace("RATE", str(dilation))} }}""")


def run(code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, which a failed assertion of onnx would end."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


MAIN = "import sys; from onnx_spatial.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize("command", ["inspect", "convert", "optimize"])
def test_a_window_larger_than_its_blocked_input_is_one_line(command, tmp_path):
    onnx.save(blocked_conv(6, 5), tmp_path / "m.onnx")
    to = [] if command == "inspect" else ["-o", tmp_path / "out.onnx"]
    done = run(MAIN, command, tmp_path / "m.onnx", *to)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines() == [
        f"error: {tmp_path / 'm.onnx'}: Conv 'conv' in main graph cannot run: its window of 5x5 is "
        "larger than its input of 3x3; export the model for larger inputs"
    ]
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("crop", [0, 1])
def test_dilations_count(crop):
    with pytest.raises(onnx_spatial.SpatialError, match=r"window of 9x9 .* input of 4x4;") as error:
        onnx_spatial.convert(blocked_conv(8, 5, crop=crop, dilation=2))
    assert error.value.code == "invalid-graph"


def test_a_window_that_leaves_nothing_is_no_error():
    """TensorFlow gives an empty tensor."""
    onnx_spatial.convert(blocked_conv(6, 4, crop=0), verify=False)


def test_a_declared_size_behind_an_unknown_operator_is_not_trusted():
    model = blocked_conv(6, 3, crop=0)
    model.graph.node[2].input[0] = "other"
    model.graph.node.insert(2, helper.make_node("Twice", ["t"], ["other"], domain="users.own"))
    model.opset_import.append(helper.make_opsetid("users.own", 1))
    wrong = helper.make_tensor_value_info("other", TensorProto.FLOAT, [8, 1, 1, 1])
    model.graph.value_info.append(wrong)
    onnx_spatial.convert(model, verify=False)


@pytest.mark.parametrize("slices", [False, True])
def test_in_a_branch_only_what_would_end_the_process_is_refused(slices):
    """A branch may never run, but onnxruntime infers the shapes of both when it loads the model."""
    first, last = (1, 5) if slices else (2, 3)
    inside, (outer, inner) = " ".join(NODES[first:last]), ("sy" if slices else "tu")
    model = blocked_conv(
        6,
        5,
        crop=int(slices),
        nodes=f"""{" ".join(NODES[:first])}
        out = If (cond) <then_branch = a () => ({inner}) {{ {inside} }},
                         else_branch = e () => (z) {{ z = Identity({outer}) }}>""",
    )
    if not slices:
        onnx_spatial.convert(model, verify=False)
        return
    with pytest.raises(onnx_spatial.SpatialError, match=r"If out.then_branch cannot run: its win"):
        onnx_spatial.convert(model, verify=False)


def test_the_inliner_does_not_end_the_process():
    """It converts functions to the opset of the model."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
        g (float[1,1,3] x, float[1,1,5] w) => (float[a,b,c] y) { y = local.F(x, w) }
        <domain: "local", opset_import: ["" : 16]> F (x, w) => (y) {
            one = Constant<value_ints = [1]>() most = Constant<value_ints = [-1]>()
            two = Constant<value_ints = [2]>() a = Conv(x, w) y = Slice(a, one, most, two) }""")
    with pytest.raises(ValueError, match="value 'a' would have a negative size"):
        functions.inline(model)
