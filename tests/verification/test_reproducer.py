"""A reproducer reproduces: its script, run by itself, shows the difference and exits with 1."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from adapter import verify
from fused_by_hand import CASES, filled
from hand_lowered import model, space_to_batch, space_to_batch_lowered

from onnx_spatial import Verification
from onnx_spatial.verification import evaluate
from onnx_spatial.verification.diagnosis import script

WRONG = "4, 2, 0, 1, 3, 5"


#: Runs a script where neither this package nor ml_dtypes is installed.
ALONE = """
import runpy, sys
sys.modules["onnx_spatial"] = sys.modules["ml_dtypes"] = None
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def reproduce(result: Verification) -> subprocess.CompletedProcess[str]:
    assert result.reproducer is not None, result.problems
    command = [sys.executable, "-c", ALONE, str(result.reproducer)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def lowered(element_type: str) -> onnx.ModelProto:
    """Without Pad, which onnxruntime has not for every type."""
    return model(
        f"""
        g ({element_type}[N,4,6,3] x) => ({element_type}[P,Q,R,S] y)
          <int64[6] split = {{-1, 2, 2, 2, 3, 3}}, int64[4] merged = {{-1, 2, 2, 3}}>
        {{
            cells = Reshape(x, split)
            moved = Transpose<perm = [4, 2, 0, 1, 3, 5]>(cells)
            y = Reshape(moved, merged)
        }}
    """,
        *versions(element_type),
    )


def original(element_type: str) -> onnx.ModelProto:
    return model(
        f"""
        g ({element_type}[N,4,6,3] x) => ({element_type}[P,Q,R,S] y)
          <int32[2] block = {{2, 3}}, int32[2,2] pads = {{0, 0, 0, 0}}>
        {{ [site] y = tf.SpaceToBatchND(x, block, pads) }}
    """,
        *versions(element_type),
    )


def versions(element_type: str) -> tuple[int, int]:
    """Opset and IR version of a type."""
    return (21, 10) if element_type == "float8e4m3fn" else (17, 8)


@pytest.mark.parametrize(
    "element_type",
    ["float", "float16", "bfloat16", "float8e4m3fn", "double", "int8", "bool", "string"],
)
def test_a_site(tmp_path: Path, element_type: str) -> None:
    result = verify(original(element_type), lowered(element_type), reproducer=tmp_path / "r")
    assert result.status == "failed"
    done = reproduce(result)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "differ" in done.stderr
    assert re.search(r"y\[[\d, ]+\] is .+ instead of ", done.stderr)
    assert {p.name for p in (tmp_path / "r").iterdir()} == {
        "original.onnx",
        "converted.onnx",
        "inputs.npz",
        "expected.npz",
        "reproduce.py",
    }


def test_it_ends_well_once_the_model_is_right(tmp_path: Path) -> None:
    wrong = space_to_batch_lowered(perm=WRONG)
    result = verify(space_to_batch(), wrong, reproducer=tmp_path)
    assert reproduce(result).returncode == 1
    onnx.save(space_to_batch_lowered(), tmp_path / "converted.onnx")
    done = reproduce(result)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "the same"


def test_the_rest_of_the_model_is_left_out(tmp_path: Path) -> None:
    """Of a net of many nodes only what is wrong is saved."""
    site = "u = Relu(x) s = tf.SpaceToBatchND(u, block, pads) y = Neg(s)"
    right = "u = Relu(x) c = Reshape(u, split) m = TRANSPOSE s = Reshape(m, merged) y = Neg(s)"
    text = """
        g (float[N,4,6,3] x) => (float[P,Q,R,S] y)
          <int32[2] block = {2, 3}, int32[2,2] pads = {0, 0, 0, 0},
           int64[6] split = {-1, 2, 2, 2, 3, 3}, int64[4] merged = {-1, 2, 2, 3}> { BODY }
    """
    wrong = right.replace("TRANSPOSE", "Transpose<perm = [4, 2, 0, 1, 3, 5]>(c)")
    before, after = (model(text.replace("BODY", body)) for body in (site, wrong))
    result = verify(before, after, reproducer=tmp_path)
    assert reproduce(result).returncode == 1
    saved = onnx.load(tmp_path / "original.onnx")
    assert [n.op_type for n in saved.graph.node] == ["SpaceToBatchND"]
    assert [n.op_type for n in onnx.load(tmp_path / "converted.onnx").graph.node] == [
        "Reshape",
        "Transpose",
        "Reshape",
    ]
    assert result.first_value is not None
    assert (result.first_value.name, result.first_value.op_type) == ("s", "SpaceToBatchND")


def test_a_weight_of_a_fused_convolution(tmp_path: Path) -> None:
    case = CASES["gate"]
    wrong = filled(case.converted)
    for tensor in wrong.graph.initializer:
        if tensor.name == "filter":
            values = onnx.numpy_helper.to_array(tensor).copy()
            values[4, 1, 1] *= 1.5
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    result = verify(filled(case.original), wrong, reproducer=tmp_path)
    done = reproduce(result)
    assert done.returncode == 1
    assert "of the largest value" in done.stderr
    onnx.save(filled(case.converted), tmp_path / "converted.onnx")


def test_a_model_that_does_not_run(tmp_path: Path) -> None:
    wrong = space_to_batch_lowered(split="-1, 4, 2, 3, 3, 1009")
    result = verify(space_to_batch(), wrong, reproducer=tmp_path)
    done = reproduce(result)
    assert done.returncode == 1
    assert "does not run" in done.stderr
    assert "Traceback" not in done.stderr


def test_where_nothing_can_be_run_the_problems_say_so(tmp_path: Path) -> None:
    renamed = space_to_batch_lowered(output="z")
    result = verify(space_to_batch(), renamed, reproducer=tmp_path / "r")
    assert result.status == "failed"
    assert result.reproducer is None
    assert not (tmp_path / "r").exists()
    assert "same names, order, types and shapes" in str(result.advice)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    wrong = space_to_batch_lowered(perm=WRONG)
    result = verify(space_to_batch(), wrong, reproducer=tmp_path / "file" / "r")
    assert result.reproducer is None
    assert any(p.startswith("no reproducer") for p in result.problems)


def test_nothing_is_saved_where_nothing_differs(tmp_path: Path) -> None:
    result = verify(space_to_batch(), space_to_batch_lowered(), reproducer=tmp_path / "r")
    assert result
    assert (result.reproducer, result.advice, result.first_value) == (None, None, None)
    assert not (tmp_path / "r").exists()


def test_evaluate_runs_a_model_by_definition() -> None:
    x = np.arange(2 * 5 * 6 * 3, dtype=np.float32).reshape(2, 5, 6, 3)
    y = evaluate(space_to_batch(), {"x": x})["y"]
    assert y.shape == (12, 4, 3, 3)
    # Offset (1, 0) in the block is the fourth; with one row of padding that is row 0 of the image.
    np.testing.assert_array_equal(y[3 * 2 + 1, 0, 0], x[1, 0, 0])
    assert set(x.reshape(-1)) == set(y.reshape(-1))  # 0 is the padding as well


def test_short_integers_are_saved_as_in_onnx() -> None:
    """Two in a byte: onnxruntime has hardly a kernel for them, but inputs may have the type."""
    array = np.array([1, 2, -1], ml_dtypes.int4)
    assert script.plain(array).tolist() == [0x21, 0x0F]
