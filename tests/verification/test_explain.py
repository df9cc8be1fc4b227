"""What a failed verification says: where the models part, what causes it, what to do."""

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from adapter import verify
from onnx import numpy_helper
from parsing import model
from verification.hand_lowered import dilated, space_to_batch, space_to_batch_lowered

from onnx_spatial import Verification, convert

CHAIN = """
    g (float[N,4] x) => (float[N,4] y, float[N,4] z) <float[4] w = {1, 2, 3, 4}>
    { a = Neg(x)  [second] b = Sin(a)  c = Mul(b, w)  [leak] d = LeakyRelu<alpha = 0.5>(c)
      e = Sub(d, a)  y = Neg(e)  z = Exp(x) }
"""


# The first value, and what was edited


@pytest.mark.parametrize(
    ("old", "new", "first", "change"),
    [
        (
            "3, 4}",
            "3, 9}",
            "c",
            "Mul node '<c>' (main graph) was changed: it reads another constant 'w': "
            "1 of 4 elements differ, by at most 1.2 of the largest value; [3] is 9.0 instead of 4.0",
        ),
        ("<float[4] w = {1, 2, 3, 4}>", "<float[1] w = {3}>", "c", "computes 3 at [i0, i1]"),
        (
            "alpha = 0.5",
            "alpha = 0.25",
            "d",
            "(c, alpha=0.25), the original LeakyRelu(c, alpha=0.5)",
        ),
        ("LeakyRelu<alpha = 0.5>", "LeakyRelu", "d", "computes LeakyRelu(c), the original"),
        ("Sub(d, a)", "Sub(a, d)", "e", "computes Sub(a, "),
        (
            "Sin(a)",
            "Cos(a)",
            "b",
            "Sin node 'second' (main graph) was changed: it computes Cos(a), the original Sin(a)",
        ),
    ],
)
def test_the_first_value_and_the_change_of_its_node_are_named(
    old: str, new: str, first: str, change: str
) -> None:
    result = verify(model(CHAIN), model(CHAIN.replace(old, new)))
    assert result.status == "failed"
    assert change in result.problems[0] and result.message.startswith(
        f"failed: {result.problems[0]} (and "
    )
    assert "the conversion does not change this" in str(result.advice)
    found = result.first_value
    assert found is not None
    assert (found.name, found.graph, found.dtype) == (first, "main graph", "float32")
    assert re.match(r"\d+ of \d+ elements differ, by at most ", found.reason)


def test_a_weight_that_was_edited_in_a_fused_part_is_named_with_advice_for_that() -> None:
    original = model(
        """g (float[1,8,8,2] x) => (float[1,8,8,2] y) {
            b = tf.SpaceToBatchND(x, block, pads)  t = Transpose<perm = [0, 3, 1, 2]>(b)
            c = Conv(t, w)  u = Transpose<perm = [0, 2, 3, 1]>(c)
            y = tf.BatchToSpaceND(u, block, crops) }""",
        block=[2, 2],
        pads=[[2, 2], [2, 2]],
        crops=[[0, 0], [0, 0]],
        w=np.arange(36, dtype=np.float32).reshape(2, 2, 3, 3),
    )
    converted = convert(original, verify=False).model
    (weight,) = (t for t in converted.graph.initializer if t.name == "w")
    array = numpy_helper.to_array(weight).copy()
    array[0, 1, 2, 0] = 3
    weight.CopyFrom(numpy_helper.from_array(array, "w"))
    result = verify(original, converted)
    assert "was changed: it reads another constant 'w': 1 of 36 elements differ" in result.message
    assert "the conversion does not change this" in str(result.advice)


def test_without_operators_of_ours_no_lowering_is_advised() -> None:
    original, other = model(CHAIN), model(CHAIN.replace("y = Neg(e)", "f = Exp(e) y = Neg(f)"))
    result = verify(original, other)
    assert result.status == "failed" and "no conversion by onnx-spatial" in str(result.advice)


def test_a_model_with_other_weights_everywhere_is_another_model() -> None:
    names = ["x", *(f"v{i}" for i in range(9)), "y"]
    body = " ".join(f"{names[i + 1]} = Add({names[i]}, w{i})" for i in range(10))
    original, other = (
        model(f"g (float[N] x) => (float[N] y) <{weights}> {{ {body} }}")
        for weights in (", ".join(f"float w{i} = {{{i + k}.0}}" for i in range(10)) for k in (1, 2))
    )
    assert "the conversion does not change this" not in str(verify(original, other).advice)


def test_a_node_that_amplifies_rounding_is_said_to() -> None:
    text = """g (float[N,4] x) => (float[N,4] y) <float k = {0.3}, float l = {0.7}, float r = {3e5}>
        { BODY b = Mul(a, r) y = Sin(b) }"""
    original = model(text.replace("BODY", "s = Mul(x, k) a = Mul(s, l)"))
    result = verify(original, model(text.replace("BODY", "t = Mul(x, l) a = Mul(t, k)")))
    assert result.first_value is not None and result.first_value.name == "y"
    assert "both models compute 'y' by the same Sin node" in str(result.advice)
    assert "--rtol" in str(result.advice)


@pytest.mark.parametrize("mode", ["lower", "function", "custom-op"])
def test_models_that_are_swapped_are_said_to_be(mode: str) -> None:
    converted = convert(space_to_batch(), mode=mode, verify=False).model
    assert verify(converted, converted).evidence == "proven"
    found = verify(converted, space_to_batch())
    assert found.status == "failed"
    (problem,) = found.problems
    # A local function of ours is the operator that it was made of.
    assert problem.endswith("are the arguments swapped?") or mode == "function"
    assert problem.startswith("the second model ") and "still holds 1 spatial operator" in problem
    assert "pass the original first" in str(found.advice)


# Reproducers


def reproduce(result: Verification, capsys: pytest.CaptureFixture[str]) -> tuple[bool, str]:
    """Run the script; return whether it says that the models differ, and what it prints."""
    assert result.reproducer is not None, result.problems
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(result.reproducer), run_name="__main__")
    return bool(ended.value.code), capsys.readouterr().out


def test_the_part_with_the_first_value_is_saved_and_reproduces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = model(CHAIN.replace("Sin(a)", "Cos(a)"))
    result = verify(model(CHAIN), wrong, reproducer=tmp_path / "r")
    names = {path.name for path in (tmp_path / "r").iterdir()}
    assert names == {"original.onnx", "converted.onnx", "inputs.npz", "reproduce.py"}
    saved = [onnx.load(tmp_path / "r" / f"{name}.onnx") for name in ("original", "converted")]
    assert [[n.op_type for n in each.graph.node] for each in saved] == [
        ["Neg", "Sin"],
        ["Neg", "Cos"],
    ]
    differs, text = reproduce(result, capsys)
    assert differs and re.search(r"^b\[\d+, \d\] is .+ instead of .+", text, re.MULTILINE)
    onnx.save(saved[0], tmp_path / "r" / "converted.onnx")
    assert not reproduce(result, capsys)[0]


def wrong_weight_of_a_region() -> tuple[onnx.ModelProto, onnx.ModelProto]:
    wrong = convert(dilated(), verify=False).model
    (tensor,) = (t for t in wrong.graph.initializer if list(t.dims) == [4, 3, 3, 3])
    values = numpy_helper.to_array(tensor).copy()
    values[1, 1, 1, 1] *= 1.5
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return dilated(), wrong


def moved(element_type: str) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    text = f"""g ({element_type}[N,4] x) => ({element_type}[A,B] y)
        {{ a = Transpose(x) y = LAST(a) }}"""
    return model(text.replace("LAST", "Transpose")), model(text.replace("LAST", "Identity"))


WRONG = {
    "an operator": (space_to_batch(), space_to_batch_lowered(perm="4, 2, 0, 1, 3, 5")),
    "a weight of a region": wrong_weight_of_a_region(),
    "does not run": (space_to_batch(), space_to_batch_lowered(split="-1, 4, 2, 3, 3, 1009")),
    "bfloat16": moved("bfloat16"),
    "string": moved("string"),
    "int8": moved("int8"),
}


@pytest.mark.parametrize("name", [*WRONG, "without parts"])
def test_verify_saves_what_reproduces(tmp_path: Path, capsys: Any, name: str) -> None:
    whole = name == "without parts"
    original, wrong = WRONG["does not run" if whole else name]
    result = verify(original, wrong, reproducer=tmp_path, outputs_only=whole)
    assert result.status == "failed" and result.first_difference is not None
    assert not whole or result.first_difference.kind == "model"
    assert reproduce(result, capsys)[0]


def test_nothing_is_saved_where_nothing_differs_or_nothing_can_be_written(tmp_path: Path) -> None:
    result = verify(space_to_batch(), space_to_batch_lowered(), reproducer=tmp_path / "r")
    assert (result.status, result.reproducer, result.advice) == ("passed", None, None)
    assert not (tmp_path / "r").exists()
    (tmp_path / "file").write_text("")
    wrong = model(CHAIN.replace("Sin(a)", "Cos(a)"))
    result = verify(model(CHAIN), wrong, reproducer=tmp_path / "file" / "r")
    assert result.reproducer is None
    assert result.problems[-1].startswith("no reproducer: ")


def test_of_another_interface_nothing_is_saved(tmp_path: Path) -> None:
    text = "g (float[N,4] x) => (float[N,4] y) { y = Neg(x) }"
    other = model(text.replace("float[N,4] x", "int32[N,4] x"))
    result = verify(model(text), other, reproducer=tmp_path / "r")
    assert result.status == "failed" and result.reproducer is None
    assert "same names, order, types and shapes" in str(result.advice)
    assert not (tmp_path / "r").exists()
