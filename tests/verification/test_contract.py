"""The verdicts, row by row of the table in docs/verification.md: what makes each, and what it says."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from adapter import verify
from parsing import model
from verification.hand_lowered import (
    space_to_batch,
    space_to_batch_lowered,
    with_wrong_transpose,
)

import onnx_spatial
from onnx_spatial.python_ops import registration
from onnx_spatial.verification import process
from onnx_spatial.verification.prove import prover
from onnx_spatial.verification.run import sessions

CONSTANTS = "<int32[2] block = {2, 2}, int32[2,2] pads = {0, 0, 0, 0}, float[1] limit = {2}>"
NET = f"""g (float[N,H,W,3] x) => (float[P,Q,R,S] y) {CONSTANTS}
    {{ u = Neg(x) [site] s = tf.SpaceToBatchND(u, block, pads) [act] y = Relu(s) }}"""
FOREIGN = NET.replace("Neg(x)", "loc.Strange(x)").replace("<int32", "<float[N,H,W,3] u, int32")
#: Ordinary data of (-1.5, 1.5) never reaches the limit.
CLIPPED = """g (float[N,4] x) => (float[N,4] y) <float zero = {0}, float six = {6}>
    { a = Neg(x) [act] r = Clip(a, zero, six) y = Exp(r) }"""
RELU = CLIPPED.replace("Clip(a, zero, six)", "Relu(a)")
CLIP_REASON = "computes Clip(a, 0, 6), the original Relu(a)"


def converted(text: str, **options: Any) -> onnx.ModelProto:
    return onnx_spatial.convert(model(text), verify=False, **options).model


def with_op(made: onnx.ModelProto, node: str, op_type: str) -> onnx.ModelProto:
    """The model with another operator in the place of a node."""
    (each,) = (n for n in made.graph.node if n.name == node)
    each.op_type = op_type
    return made


# PASSED, proven


@pytest.mark.parametrize("mode", ["lower", "function"])
def test_proven_for_all_sizes(mode: str) -> None:
    result = onnx_spatial.convert(model(NET), mode=mode).verification
    assert result is not None and result
    assert (result.status, result.evidence, result.unproven) == ("passed", "proven", [])
    assert result.message == (
        "passed: proven: 1 operator for every size; outputs are equal in every bit"
    )
    (operator,) = result.operators
    assert (operator.proven, operator.ran, operator.unproven) == ("all sizes", True, None)
    assert len(result.runs) == 1 and result.notes == result.problems == []
    assert {(o.name, o.optimised) for o in result.outputs} == {("y", False), ("y", True)}


def test_runs_of_the_same_python_operators_add_nothing() -> None:
    result = onnx_spatial.convert(model(NET), mode="custom-op").verification
    assert result.evidence == "proven" and result.operators[0].ran
    assert result.message.endswith(
        "both models run the same Python operators, so no run of the whole adds to it"
    )


@pytest.fixture
def optimised(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let onnxruntime's optimisations change the outputs of some models."""
    run_session = sessions.Session.run

    def change(*models: str) -> None:
        def changed(self: Any, *arguments: Any) -> dict[str, Any]:
            outputs = run_session(self, *arguments)
            if self._of in models and self._level == "optimisations on":
                outputs = {n: a * np.float32(1.001) for n, a in outputs.items()}
            return outputs

        monkeypatch.setattr(sessions.Session, "run", changed)

    return change


def test_only_optimisations_differ_of_a_proven_model(optimised) -> None:
    optimised(sessions.CONVERTED)
    part = model("g (float[N,4] x) => (float[N,4] y) { a = Tanh(x) y = Abs(a) }")
    same = model("g (float[N,4] x) => (float[N,4] y) { b = Tanh(x) y = Abs(b) }")
    result = verify(part, same)
    assert (result.status, result.evidence) == ("passed", "proven")
    (note,) = result.notes
    assert note.startswith("output 'y' with onnxruntime's optimisations on: ")
    assert "by at most 0.001 of the largest value" in note
    assert note.endswith("all parts are proven, and without them it agrees")
    other = model("g (float[N,4] x) => (float[N,4] y) <float six = {6}> { b = Tanh(x) c = Abs(b) "
                  "y = Min(c, six) }")  # fmt: skip
    failed = verify(part, other)
    assert failed.status == "failed"  # of a model that is sampled they count
    assert "nothing differs with onnxruntime's optimisations off" in str(failed.advice)
    optimised(sessions.CONVERTED, sessions.ORIGINAL)
    agreed = verify(part, other)
    assert (agreed.status, agreed.evidence) == ("passed", "sampled")
    remark = "accepted: the original computes the same with optimisations on"
    assert all((remark in str(output.reason)) == output.optimised for output in agreed.outputs)


def test_outputs_that_are_equal_without_optimisations_are_told_only_if_all_are() -> None:
    text = "g (float[N,4] x) => (float[N,4] y, float[N,4] z) { y = Neg(x) z = Mul(x, $0.3) }"
    close = text.replace("$0.3", "$0.3000003")
    message = verify(model(text), model(close)).message
    assert "outputs agree to " in message and "optimisations off" not in message


def test_rounding_that_grows_behind_proven_parts_is_a_warning(monkeypatch) -> None:
    """A net of 150 convolutions is proven, and each agrees on its own; yet its outputs are far apart."""
    run_session = sessions.Session.run

    def changed(self: Any, *arguments: Any) -> dict[str, Any]:
        outputs = run_session(self, *arguments)
        grown = np.float32(1.001 if self._of == sessions.CONVERTED else 1)
        return {name: array * grown if name == "y" else array for name, array in outputs.items()}

    monkeypatch.setattr(sessions.Session, "run", changed)
    turned = RELU.replace("r = Relu(a)", "t = Transpose(a) s = Relu(t) r = Transpose(s)")
    result = verify(model(RELU), model(turned))
    assert (result.status, result.evidence) == ("passed", "proven"), result.message
    assert any(note.endswith(": rounding that grew") for note in result.notes)
    assert "1.0e-03 of the largest value" in result.message
    assert "(1e-05 is allowed; more is accepted as rounding)" in result.message
    assert verify(model(RELU), model(CLIPPED)).status == "failed"  # what is sampled may be wrong


QUANTISED = """g (int8[6,9,3] x) => (int8[2,24,3] y)
    <float scale = {0.5}, int8 zero = {3}, int32[1] block = {3}, int32[1,2] crops = {1, 2}>
    { r = DequantizeLinear(x, scale, zero) m = tf.BatchToSpaceND(r, block, crops)
      y = QuantizeLinear(m, scale, zero) }"""


def test_what_the_optimiser_breaks_in_both_models_is_a_warning() -> None:
    """onnxruntime puts a QuantizeLinear of another type behind the Gather."""
    before = model(QUANTISED, 21, 10)
    after = onnx_spatial.convert(before, prefer="row-gather", verify=False).model
    result = verify(before, after)
    assert (result.status, result.evidence) == ("passed", "proven"), result.message
    if result.notes:  # this onnxruntime does
        assert "does not load with optimisations on" in result.notes[0]
        assert "nor does the original" in result.notes[0]


# PASSED, sampled


def test_sampled_names_the_part_and_the_other_formula() -> None:
    result = verify(model(RELU), model(CLIPPED))
    assert (result.status, result.evidence) == ("passed", "sampled")
    (part,) = result.unproven
    assert (part.node, part.kind) == ("Relu node 'act' (main graph)", "other formula")
    assert part.reason == CLIP_REASON
    assert result.message.startswith("passed: sampled: 0 of 1 changed part proven, 1 only run; ")
    assert f"{part.node} is not proven: {CLIP_REASON}" in result.message
    sizes = [run.shapes["x"] for run in result.runs]
    assert len(sizes) == 2 and sizes[0] != sizes[1]


def test_sampled_says_why_the_prover_gave_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work of the prover is counted in steps; no run makes up for them."""
    monkeypatch.setattr(prover, "PART_STEPS", 3)
    result = verify(space_to_batch(), space_to_batch_lowered())
    assert (result.status, result.evidence) == ("passed", "sampled")
    (part,) = result.unproven
    assert part.kind == "gave up" and part.reason.startswith("gave up: ")
    (operator,) = result.operators
    assert (operator.proven, operator.unproven, operator.ran) == (None, part, True)


def test_an_input_that_takes_fewer_sizes_is_sampled() -> None:
    fixed = model(RELU.replace("float[N,4] x", "float[2,4] x"))
    result = verify(model(RELU), fixed, shapes={"x": (2, 4)})
    assert result.evidence == "sampled"
    assert result.unproven[0].reason == "input 'x' is declared as [2, 4], not [N, 4]"
    assert verify(model(RELU), fixed).status == "failed"  # of two runs one has another size


# FAILED


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (" y) <", " z) <", "output 'y' is missing in the converted model"),
        ("(float[N,H,W,3] x)", "(float[N,H,W,3] image)", "input 'x' is missing"),
        ("(float[N,H,W,3] x)", "(float[N,H,W,4] x)", "declared as [N, H, W, 4], not [N, H, W, 3]"),
        ("float[P,Q,R,S] y", "double[P,Q,R,S] y", "output 'y' is declared as double, not float"),
        ("float[P,Q,R,S] y", "float[P,Q,R,99] y", "declared as [P, Q, R, 99], but has shape ["),
    ],
)  # fmt: skip
def test_another_interface_fails(old: str, new: str, message: str) -> None:
    after = converted(NET)
    declared = model(NET.replace(old, new)).graph
    for kind in ("input", "output"):
        del getattr(after.graph, kind)[:]
        getattr(after.graph, kind).extend(getattr(declared, kind))
    for node in after.graph.node:
        node.input[:] = ["image" if "image" in new and name == "x" else name for name in node.input]
        node.output[:] = ["z" if " z)" in new and name == "y" else name for name in node.output]
    result = verify(model(NET), after)
    assert result.status == "failed" and message in result.message, result.message


def test_the_order_of_outputs_and_defaults_are_part_of_the_interface() -> None:
    text = """g (float[2] x, float[2] w) => (float[2] y, float[2] z) <float[2] w = {1, 2}>
        { y = Neg(x) z = Mul(x, w) }"""
    after = model(text)
    after.graph.output.reverse()
    found = verify(model(text), after)
    assert "the outputs are in another order: z, y, not y, z" in found.message
    fixed = verify(model(text), model(text.replace(", float[2] w)", ")")))
    assert "initializer 'w' can no longer be overridden" in fixed.message


def test_what_does_not_load_fails() -> None:
    after = converted(NET)
    after.opset_import[0].version = 999
    result = verify(model(NET), after)
    assert result.status == "failed"
    assert "the converted model does not load: " in result.message
    assert result.first_difference is not None and result.first_difference.kind == "model"
    assert "an opset and an IR version that it knows" in str(result.advice)


def test_a_wrong_operator_fails_with_the_element() -> None:
    result = verify(space_to_batch(), space_to_batch_lowered(perm="4, 2, 0, 1, 3, 5"))
    assert result.status == "failed"
    (operator,) = result.operators
    assert (operator.proven, operator.unproven, operator.ran) == (None, None, False)
    shown = operator.counterexample
    assert shown is not None and shown.element is not None
    assert result.problems[0] == f"{operator.label}: {shown.message}"
    assert f", element {list(shown.element)} of the output is x[" in shown.message
    assert "] instead of x[" in shown.message
    assert result.first_difference is not None
    assert (result.first_difference.kind, result.first_difference.value) == ("operator", "y")


def far(front: str, site: str = "s = tf.SpaceToBatchND(u, block, pads)") -> tuple[Any, Any]:
    """A model, and its conversion, which loses what is behind 2,000 rows."""
    text = NET.replace("u = Neg(x)", front).replace(
        "[site] s = tf.SpaceToBatchND(u, block, pads)", site
    )
    after = converted(text)
    reader = next(n for n in after.graph.node if "s" in n.input)
    for node in after.graph.node:
        node.output[:] = ["all" if name == "s" else name for name in node.output]
    cut = model("""g (float[A,B,C,D] all) => (float[P,Q,R,S] s) <int64[1] zero = {0},
        int64[1] end = {2000}, int64[1] one = {1}> { s = Slice(all, zero, end, one) }""").graph
    after.graph.node.insert(list(after.graph.node).index(reader), cut.node[0])
    after.graph.initializer.extend(cut.initializer)
    return model(text), after


@pytest.mark.parametrize(
    ("front", "site"),
    [("u = Neg(x)", "s = tf.SpaceToBatchND(u, block, pads)"), ("u = Neg(x)", "s = Exp(u)")],
)
def test_a_part_that_differs_at_the_sizes_of_the_prover_fails(front: str, site: str) -> None:
    """Both models agree at ordinary sizes."""
    before, after = far(front, site)
    result = verify(before, after)
    assert result.status == "failed", result.message
    assert all(output.passed for output in result.outputs)
    assert "its shape is [" in result.message
    difference = result.first_difference
    assert difference is not None and max(difference.inputs["x"].shape) > 2000


# UNVERIFIED


def test_an_unproven_model_that_no_runtime_has_is_unverified() -> None:
    result = verify(model(FOREIGN), with_op(converted(FOREIGN), "act", "Abs"))
    assert (result.status, result.evidence) == ("unverified", None)
    assert "loc:Strange" in result.problems[0]
    assert result.problems[1] == (
        "Relu node 'act' (main graph) is not proven: computes Abs(s), the original Relu(s)"
    )
    assert result.problems[1] in result.message


def test_a_wrong_part_fails_where_the_whole_cannot_run() -> None:
    assert verify(model(FOREIGN), with_wrong_transpose(converted(FOREIGN))).status == "failed"


def test_a_body_of_a_function_that_was_edited_is_found() -> None:
    """A node means what its name says, not what its body does."""
    before = space_to_batch()
    after = onnx_spatial.convert(before, mode="function", verify=False).model
    assert verify(before, after).evidence == "proven"
    permuted = next(node for node in after.functions[0].node if node.op_type == "Transpose")
    permuted.attribute[0].ints.reverse()
    result = verify(before, after)
    assert result.status == "failed" and "'site'" in result.message


def test_what_was_found_in_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[bool] = []
    monkeypatch.setattr(process.Stopwatch, "seconds", property(lambda self: 1e9 if late else 0.0))

    def told(line: str) -> None:
        if "optimisations on" in line:
            late.append(True)

    options = {"progress": told, "time_limit": 1e-6}
    result = verify(model(RELU), model(RELU.replace("Relu(a)", "Abs(a)")), **options)
    assert late and result.status == "failed"
    assert "output 'y'" in result.problems[0]
    late.clear()
    assert verify(model(RELU), model(RELU), **options).status == "unverified"


def test_out_of_memory_is_unverified() -> None:
    text = NET.replace("y)", "y, float[J] z)", 1).replace(
        "y = Relu(s)", "y = Relu(s) z = ConstantOfShape(k)"
    )
    text = text.replace("<int32", "<int64[2] k = {16777216, 16777216}, int32")
    made = model(text)
    made.graph.output[1].type.tensor_type.ClearField("shape")
    result = onnx_spatial.convert(made).verification
    assert result.status == "unverified"
    assert "use smaller sizes (--shape) or allow more memory (--memory)" in result.message


def in_loop() -> onnx.ModelProto:
    return model(f"""g (float[2,4,6,3] x) => (float[T,A,B,C,D] y)
        {CONSTANTS.replace("<", "<int64 turns = {3}, bool go = {1}, ")} {{
            y = Loop <body = b (int64 i, bool c) => (bool d, float[A,B,C,D] s) {{
                d = Identity(c) s = tf.SpaceToBatchND(x, block, pads) }}> (turns, go)
        }}""")


def test_a_difference_from_the_evaluator_is_unverified_if_all_is_proven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without onnxruntime-extensions onnx's evaluator runs the original; it does not stack."""
    after = onnx_spatial.convert(in_loop(), verify=False).model
    assert verify(in_loop(), after).evidence == "proven"
    monkeypatch.setattr(registration, "available", lambda: False)
    assert verify(space_to_batch(), space_to_batch_lowered()).evidence == "proven"
    result = verify(in_loop(), after)
    assert result.status == "unverified"
    assert "it is proven, and onnx's evaluator ran the original" in result.message
    (transpose,) = (n for n in after.graph.node[0].attribute[0].g.node if n.op_type == "Transpose")
    transpose.attribute[0].ints[:2] = list(transpose.attribute[0].ints)[1::-1]
    assert verify(in_loop(), after).status == "failed"


# Strict, and the report


def test_the_report_has_the_evidence() -> None:
    def document(before: str, after: onnx.ModelProto) -> dict[str, Any]:
        return json.loads(json.dumps(verify(model(before), after).to_dict()))

    proven = document(NET, converted(NET))
    assert (proven["version"], proven["status"]) == (2, "passed")
    assert (proven["evidence"], proven["unproven"], proven["code"]) == ("proven", [], None)
    (operator,) = proven["operators"]
    assert operator["proven"] == "all sizes" and operator["ran"] and operator["unproven"] is None
    assert any("every size" in assumption for assumption in operator["assumptions"])
    sampled = document(RELU, model(CLIPPED))
    assert sampled["evidence"] == "sampled"
    assert sampled["unproven"] == [
        {"node": "Relu node 'act' (main graph)", "kind": "other formula", "reason": CLIP_REASON}
    ]
    failed = document(NET, with_op(converted(NET), "act", "Abs"))
    assert (failed["evidence"], failed["code"]) == (None, "different")
    assert failed["first_difference"]["inputs"]["x"]["dtype"] == "float32"
    assert document(FOREIGN, with_op(converted(FOREIGN), "act", "Abs"))["code"] == "unverified"
