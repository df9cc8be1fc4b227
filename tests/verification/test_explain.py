"""What a failed verification says: where the models part, what causes it, what to do."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from adapter import verify
from fused_by_hand import CASES, filled
from hand_lowered import model, space_to_batch, space_to_batch_lowered
from onnx import numpy_helper

from onnx_spatial import VerifyOptions, convert, verification
from onnx_spatial.verification import explain
from onnx_spatial.verification.evidence import Difference, OutputResult, Verification
from onnx_spatial.verification.pair import ModelPair

FEEDS = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)}
CHAIN = """
    g (float[N,4] x) => (float[N,4] y, float[N,4] z) <float[4] w = {1, 2, 3, 4}>
    { a = Neg(x)  [second] b = Abs(a)  c = Mul(b, w)  [leak] d = LeakyRelu<alpha = 0.5>(c)
      e = Sub(d, x)  y = Neg(e)  z = Exp(x) }
"""


def failed(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    difference: Difference | None = None,
    outputs: list[OutputResult] | None = None,
    **options: Any,
) -> Verification:
    """A failed verification of two models, explained."""
    models = ModelPair.read(before, after, ())
    shown = difference or Difference("output", "y", None, "output 'y': it differs", FEEDS)
    result = Verification(
        "failed",
        f"failed: {shown.message}",
        problems=[shown.message],
        outputs=outputs or [],
        first_difference=shown,
    )
    explain.add(result, models, VerifyOptions(**options), verification.verify)
    return result


def output(error: float, *, passed: bool = False, optimised: bool = False) -> OutputResult:
    return OutputResult(
        "y", 0, optimised, "float32", (2,), 2, max_relative_error=error, passed=passed
    )


# The first value


def test_the_first_value_that_differs_is_named() -> None:
    first = failed(model(CHAIN), model(CHAIN.replace("Abs(a)", "Sign(a)"))).first_value
    assert first is not None
    assert (first.name, first.node, first.op_type, first.graph) == (
        "b",
        "second",
        "Abs",
        "main graph",
    )
    assert (first.dtype, first.shape, first.optimised) == ("float32", (2, 4), False)
    assert re.match(r"\d of 8 elements differ, by at most ", first.reason)


def test_values_that_are_gone_are_passed_over() -> None:
    short = CHAIN.replace("[second] b = Abs(a)  c = Mul(b, w)", "c = Mul(a, w)")
    first = failed(model(CHAIN), model(short)).first_value
    assert first is not None and first.name == "c"


def test_a_tolerance_of_the_caller_holds_for_inner_values() -> None:
    text = "g (float[N,4] x) => (float[N,4] y) <float k = {1.0}> { a = Mul(x, k) y = Exp(a) }"
    original, other = model(text), model(text.replace("1.0", "1.001"))
    first = failed(original, other).first_value
    assert first is not None and first.name == "a"
    assert failed(original, other, rtol=0.01).first_value is None


def test_what_cannot_be_run_has_no_first_value() -> None:
    shown = Difference("output", "y", None, "it differs", {"x": np.ones((2, 5), np.float64)})
    assert (
        failed(model(CHAIN), model(CHAIN.replace("Abs(a)", "Sign(a)")), shown).first_value is None
    )


def test_a_node_that_amplifies_rounding_is_said_to() -> None:
    text = """g (float[N,4] x) => (float[N,4] y) <float k = {0.3}, float l = {0.7}, float r = {3e5}>
        { BODY b = Mul(a, r) y = Sin(b) }"""
    original = model(text.replace("BODY", "s = Mul(x, k) a = Mul(s, l)"))
    result = failed(original, model(text.replace("BODY", "t = Mul(x, l) a = Mul(t, k)")))
    assert result.first_value is not None and result.first_value.name == "y"
    assert "both models compute 'y' by the same Sin node" in str(result.advice)
    assert "--rtol" in str(result.advice)


# What was edited


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        (
            "3, 4}",
            "3, 9}",
            "Mul node '<c>' (main graph) was changed: it reads another constant 'w': 1 of 4 elements "
            "differ, by at most 1.2 of the largest value; [3] is 9.0 instead of 4.0",
        ),
        ("alpha = 0.5", "alpha = 0.25", "it has another 'alpha': 0.25, not 0.5"),
        ("LeakyRelu<alpha = 0.5>", "LeakyRelu", "it has no attribute 'alpha'"),
        ("Sub(d, x)", "Sub(x, d)", "it reads its inputs in another order: x, d"),
        ("Sub(d, x)", "Add(d, x)", "Sub node '<e>' (main graph) was changed: it is Add, not Sub"),
        ("<float[4] w = {1, 2, 3, 4}>", "<float[1] w = {1}>", "its shape is [1], not [4]"),
    ],
)
def test_the_change_of_a_node_comes_before_its_consequences(
    old: str, new: str, change: str
) -> None:
    result = failed(model(CHAIN), model(CHAIN.replace(old, new)))
    assert change in result.problems[0]
    assert result.message == f"failed: {result.problems[0]} (and 1 more)"
    assert result.problems[1:] == ["output 'y': it differs"]
    assert "the conversion does not change this" in str(result.advice)


def test_defaults_and_names_are_no_changes() -> None:
    same = CHAIN.replace("Neg(x)", "Neg(x)").replace("[second]", "[other]")
    text = same.replace("LeakyRelu<alpha = 0.5>", "LeakyRelu<alpha = 0.01>")
    result = failed(model(text), model(text.replace("LeakyRelu<alpha = 0.01>", "LeakyRelu")))
    assert result.problems == ["output 'y': it differs"]
    assert "--no-fuse" in str(result.advice)


def test_a_weight_in_a_fused_region_is_named() -> None:
    shown = Difference("operator", "s", "main graph", "it differs", {})
    result = failed(*wrong_weight_of_a_region(), shown)
    assert re.match(
        r"Conv node '.*' \(main graph\) was changed: its constant 'filter' differs: ",
        result.problems[0],
    )
    assert len(result.problems) == 2


def test_a_model_with_other_weights_everywhere_is_another_model() -> None:
    text = "g (float[N] x) => (float[N] y) <WEIGHTS> { BODY }"
    body = (
        " ".join(f"v{i + 1} = Add(v{i}, w{i})" for i in range(10))
        .replace("v0", "x", 1)
        .replace("v10", "y")
    )
    weights = [", ".join(f"float w{i} = {{{i + k}.0}}" for i in range(10)) for k in (1, 2)]
    original, other = (model(text.replace("WEIGHTS", w).replace("BODY", body)) for w in weights)
    shown = Difference("output", "y", None, "it differs", {"x": np.ones(3, np.float32)})
    assert failed(original, other, shown).problems == ["it differs"]


# Wrong models, what to do


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


def test_where_only_the_optimised_model_differs_that_is_said() -> None:
    shown = Difference("output", "y", None, "it differs", FEEDS, optimised=True)
    outputs = [output(0, passed=True), output(1, optimised=True)]
    result = failed(model(CHAIN), model(CHAIN), shown, outputs)
    assert "nothing differs with onnxruntime's optimisations off" in str(result.advice)


def test_other_inputs_and_outputs_need_another_conversion() -> None:
    models = ModelPair.read(model(CHAIN), model(CHAIN), ())
    result = Verification("failed", "", problems=["input 'x' is missing in the converted model"])
    explain.add(result, models, VerifyOptions(reproducer="nowhere"), verification.verify)
    assert "same names, order, types and shapes" in str(result.advice)
    assert result.reproducer is None and not Path("nowhere").exists()


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
    wrong = model(CHAIN.replace("Abs(a)", "Sign(a)"))
    result = failed(model(CHAIN), wrong, reproducer=tmp_path / "r")
    names = {path.name for path in (tmp_path / "r").iterdir()}
    assert names == {"original.onnx", "converted.onnx", "inputs.npz", "reproduce.py"}
    saved = [onnx.load(tmp_path / "r" / f"{name}.onnx") for name in ("original", "converted")]
    assert [[n.op_type for n in each.graph.node] for each in saved] == [["Abs"], ["Sign"]]
    differs, text = reproduce(result, capsys)
    assert differs and re.search(r"^b\[\d, \d\] is .+ instead of .+", text, re.MULTILINE)
    onnx.save(saved[0], tmp_path / "r" / "converted.onnx")
    assert not reproduce(result, capsys)[0]


def wrong_operator() -> tuple[onnx.ModelProto, onnx.ModelProto]:
    return space_to_batch(), space_to_batch_lowered(perm="4, 2, 0, 1, 3, 5")


def wrong_weight_of_a_region() -> tuple[onnx.ModelProto, onnx.ModelProto]:
    case = CASES["gate"]
    wrong = filled(case.converted)
    tensor = next(t for t in wrong.graph.initializer if t.name == "filter")
    values = numpy_helper.to_array(tensor).copy()
    values[4, 1, 1] *= 1.5
    tensor.CopyFrom(numpy_helper.from_array(values, "filter"))
    return filled(case.original), wrong


def does_not_run() -> tuple[onnx.ModelProto, onnx.ModelProto]:
    return space_to_batch(), space_to_batch_lowered(split="-1, 4, 2, 3, 3, 1009")


@pytest.mark.parametrize("pair", [wrong_operator, wrong_weight_of_a_region, does_not_run])
def test_verify_saves_what_reproduces(tmp_path: Path, capsys, pair: Any) -> None:
    original, wrong = pair()
    result = verify(original, wrong, reproducer=tmp_path)
    assert result.status == "failed"
    assert reproduce(result, capsys)[0]


def test_nothing_is_saved_where_nothing_differs(tmp_path: Path) -> None:
    result = verify(space_to_batch(), space_to_batch_lowered(), reproducer=tmp_path / "r")
    assert (result.status, result.reproducer, result.advice) == ("passed", None, None)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("element_type", ["bfloat16", "string", "int8"])
def test_data_of_every_type_is_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], element_type: str
) -> None:
    text = f"g ({element_type}[N,2] x) => ({element_type}[A,B] y) {{ a = Identity(x) y = Transpose(a) }}"
    x = np.array([[1, 2], [3, 4]]).astype(str).astype(object)
    if element_type != "string":
        x = x.astype(int).astype(
            onnx.helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, element_type.upper()))
        )
    shown = Difference("output", "y", None, "it differs", {"x": x})
    wrong = text.replace("Transpose(a)", "Identity(a)")
    result = failed(model(text), model(wrong), shown, reproducer=tmp_path)
    assert reproduce(result, capsys)[0]


def test_a_model_that_does_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "g (float[N,4] x) => (float[A,B] y) <int64[2] s = {-1, 4}> { y = Reshape(x, s) }"
    message = 'the converted model does not run: """Reshape""" \\ fails'
    shown = Difference("model", "", None, message, FEEDS)
    result = failed(model(text), model(text.replace("-1, 4", "-1, 7")), shown, reproducer=tmp_path)
    differs, text = reproduce(result, capsys)
    assert differs and "Reshape" in text


def test_what_cannot_be_saved_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    wrong = model(CHAIN.replace("Abs(a)", "Sign(a)"))
    result = failed(model(CHAIN), wrong, reproducer=tmp_path / "file" / "r")
    assert result.reproducer is None
    assert result.problems[-1].startswith("no reproducer: ")
    result = failed(model(CHAIN), model(CHAIN), reproducer=tmp_path / "r")
    assert result.problems[-1] == (
        "no reproducer: not saved: no part of the models shows the difference on its own"
    )
    assert not (tmp_path / "r").exists()
