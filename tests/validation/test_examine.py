"""What becomes of one model: passed, failed or unverified, and why."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from validating import (
    FOREIGN,
    PLAIN,
    REFUSED,
    S2B,
    SCALED,
    STRANGE_DOMAIN,
    image,
    record,
    save,
    space_to_batch,
)
from verification.hand_lowered import with_wrong_transpose

from onnx_spatial.validation import ModelResult, Options, Report, reports
from onnx_spatial.validation import examine as examination
from onnx_spatial.verification import Unproven

THIRD = np.float32(0.333)


def look(path: Path, **options: object) -> ModelResult:
    return examination.examine(str(path), Options(**options))  # type: ignore[arg-type]


def test_a_model_with_spatial_operators_is_converted_and_verified(tmp_path):
    result = look(save(tmp_path / "m.onnx"))
    assert (result.status, result.kind, result.entries) == ("passed", None, [])
    assert [site["node"] for site in result.operators] == ["s2b"]
    (mode,) = result.modes
    assert (mode["mode"], mode["changed"], mode["status"]) == ("lower", True, "passed")
    assert mode["verification"]["status"] == "passed"
    words = "passed: proven: 1 operator for every size; outputs are equal in every bit"
    assert result.message.startswith(words)


def test_python_operators_that_cannot_run_here_leave_a_model_unverified(tmp_path, monkeypatch):
    monkeypatch.setattr(examination, "available", lambda: False)
    path = save(tmp_path / "m.onnx")
    result = look(path, modes=("lower", "custom-op"))
    assert (result.status, result.kind) == ("unverified", "unverified")
    assert "onnxruntime-extensions" in result.message
    assert look(path, modes=("custom-op",), strict_proof=True).status == "failed"


def test_a_wrong_conversion_is_a_difference_and_names_the_node(tmp_path, monkeypatch):
    real = examination.edit_model

    def wrong(*arguments, **named):
        done = real(*arguments, **named)
        done.inspection.result = done.result.holding(with_wrong_transpose(done.result.proto))
        return done

    monkeypatch.setattr(examination, "edit_model", wrong)
    result = look(save(tmp_path / "m.onnx"), prefer="transpose")
    assert (result.status, result.kind) == ("failed", "difference")
    assert result.entries[0].source == "verify:lower"
    assert result.entries[0].nodes == ("s2b",)


def test_advice_is_what_can_be_done_here(tmp_path):
    text = S2B.replace("y = ai", "z = ai").replace("pads)\n", "pads)\n y = Reshape(z, to)\n")
    text = text.replace("float[N,4,6,3] x", "float[2,4,6,3] x, int64[2] to")
    result = look(save(tmp_path / "m.onnx", text.replace("float[M,2,2,3]", "float[A,B]")))
    assert result.status == "unverified"
    assert "record data that it runs on as test_data_set_0/input_0.pb" in result.message
    assert "--inputs" not in result.message  # no option of `validate`


NORMALIZER = """<ir_version: 8, opset_import: ["" : 17]> g (string[3] x) => (string[3] y)
    { y = StringNormalizer<case_change_action = "LOWER", locale = "xx_NOWHERE">(x) }"""
#: A weight that does not fit.
DENSE = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x) => (float[2,3] y)
    <float[2,3] w = {1, 2, 3, 4, 5, 6}> { [dense] y = MatMul(x, w) }"""


@pytest.mark.parametrize(
    ("text", "kind", "words", "sources"),
    [
        (PLAIN, None, "no operators to convert", []),
        # What is missing on the machine, and operators of somebody else.
        (NORMALIZER, "unverified", "xx_NOWHERE", None),
        (FOREIGN, "unverified", "somebody.else", []),
        (STRANGE_DOMAIN, "unverified", "somebody.else", [("s2b",)]),
        (DENSE, "does-not-run", "onnxruntime does not load it: ", []),
        (PLAIN.replace("17", "99"), "does-not-run", "Opset 99", []),
    ],
)
def test_a_model_of_which_nothing_is_converted_has_to_run(tmp_path, text, kind, words, sources):
    result = look(save(tmp_path / "m.onnx", text), modes=("lower", "function"))
    status = {None: "passed", "does-not-run": "failed"}.get(kind, kind)
    assert (result.status, result.kind) == (status, kind) and words in result.message
    assert kind or [(m["mode"], m["changed"]) for m in result.modes] == [(None, False)]
    if sources is not None:
        assert [e.nodes for e in result.entries if e.source == "inspect"] == sources
    assert result.fails(Options(strict=True)) == bool(kind)


def test_what_is_refused_or_stays_where_all_is_wanted_and_what_cannot_be_read(tmp_path):
    for text, strict in ((REFUSED, False), (STRANGE_DOMAIN, True)):
        result = look(save(tmp_path / "m.onnx", text), strict=strict)
        assert (result.status, result.kind) == ("failed", "conversion") and "s2b" in result.message
    (tmp_path / "m.onnx").write_bytes(b"")
    result = look(tmp_path / "m.onnx")
    assert (result.status, result.kind) == ("failed", "unreadable")


@pytest.mark.parametrize("strict", [False, True])
def test_what_is_only_sampled_is_named_and_fails_if_a_proof_is_required(
    strict, tmp_path, monkeypatch
):
    words = "SpaceToBatchND node 's2b' (main graph) is not proven: gave up: no rule for Einsum"
    part = Unproven(words.partition(" is not")[0], "gave up", "gave up: no rule for Einsum")
    real = examination.verify_conversion

    def verifying(*arguments):
        result = real(*arguments)
        (operator,) = result.operators
        operators = [replace(operator, proven=None, unproven=part)]
        return replace(result, evidence="sampled", unproven=[part], operators=operators)

    monkeypatch.setattr(examination, "verify_conversion", verifying)
    result = look(save(tmp_path / "m.onnx"), strict_proof=strict)
    (entry,) = result.entries
    assert result.modes[0]["verification"]["evidence"] == "sampled"
    assert entry.nodes == ("s2b",)
    assert "is not proven: gave up: no rule for Einsum" in entry.message
    if not strict:
        assert (result.status, entry.level) == ("passed", "info")
        return
    report = Report([result], Options(strict_proof=True))
    (case,) = ElementTree.fromstring(reports.junit_xml(report)).iter("testcase")
    assert (result.status, result.kind, report.exit_code) == ("failed", "unverified", 1)
    assert (result.message, entry.level) == (f"failed: {entry.message}", "error")
    assert case.find("failure") is not None


def test_a_seed_a_dim_and_a_shape_reach_the_verification(tmp_path):
    path = save(tmp_path / "m.onnx")
    (mode,) = look(path, seed=7, static=(("N", 5),)).modes
    runs = mode["verification"]["runs"]
    assert {(run["seed"], *run["inputs"]["x"]["shape"]) for run in runs} == {(7, 5, 4, 6, 3)}
    (mode,) = look(path, shapes=(("x", (9, 4, 6, 3)),)).modes
    assert mode["verification"]["runs"][0]["inputs"]["x"]["shape"] == [9, 4, 6, 3]


# Recorded data

#: Dropout in training mode where `train` says so; a seed makes onnxruntime repeat itself.
DROPOUT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[64] x, bool train) => (float[64] y) <float ratio = {0.5}>
{ [drop] y = Dropout<seed = 0>(x, ratio, train) }
"""
#: onnxruntime has no kernel for a zero point of each channel.
NO_KERNEL = """<ir_version: 8, opset_import: ["" : 17]>
g (uint8[1,1,3,3] x, uint8[2,1,1,1] w, uint8 a, uint8[2] b) => (int32[1,2,3,3] y)
{ y = ConvInteger(x, w, a, b) }"""
SAME = PLAIN.replace("Relu", "Identity")
ODD = np.array([[np.nan, 0.0, 1.0, 2.0]], np.float32)
OTHER_NAN = np.array([[np.nan, -0.0, 1.0, 2.0]], np.float32)
OTHER_NAN.view(np.uint32)[0, 0] ^= 5
MOVED, SUMS = space_to_batch(image()), space_to_batch(image() * THIRD)
SENTENCE = "the recorded data belongs to another model"


def changed(array: np.ndarray, value: float) -> np.ndarray:
    """A copy with another first element."""
    copy = array.copy()
    copy.flat[0] = value
    return copy


@pytest.mark.parametrize(
    ("text", "inputs", "output", "kind", "words"),
    [
        (S2B, [image()], MOVED, None, "matches the recorded data in test_data_set_0"),
        # Movement has to agree in every bit; which NaN and the sign of zero are no difference.
        (SAME, [ODD], OTHER_NAN, None, ""),
        (S2B, [image()], changed(MOVED, np.nextafter(np.float32(1), 2)), "recorded-data", SENTENCE),
        # Arithmetic has a tolerance of the largest value.
        (SCALED, [image()], changed(SUMS, SUMS.flat[0] + 3e-4 * SUMS.max()), "recorded-data", "1 of"),
        (NO_KERNEL, [np.full(s, 1, np.uint8) for s in ((1, 1, 3, 3), (2, 1, 1, 1), (), (2,))],
         np.zeros((1, 2, 3, 3), np.int32), "unverified", "not supported"),
        (DROPOUT, [np.arange(1, 65, dtype=np.float32), np.array(True)], np.zeros(64, np.float32),
         "unverified", "is random, so it cannot be compared with recorded data: Dropout node 'drop'"),
        (SCALED, [image()], changed(SUMS, np.nan), "recorded-data", "NaN or infinity"),
        (S2B, [image()[:, :, :5]], MOVED, "recorded-data", "not [2, 4, 5, 3]"),
        (S2B, [], MOVED, "recorded-data", "input_0.pb: is missing; input 'x' has no data"),
    ],
)  # fmt: skip
def test_what_is_recorded_is_what_comes_out(tmp_path, text, inputs, output, kind, words):
    record(tmp_path, inputs, [output])
    result = look(save(tmp_path / "m.onnx", text))
    status = {None: "passed", "unverified": "unverified"}.get(kind, "failed")
    assert (result.status, result.kind) == (status, kind), result.message
    assert words in result.message


def test_each_set_is_run_in_each_mode_and_level(tmp_path):
    for batch in (1, 2):
        record(tmp_path, [image(batch)], [space_to_batch(image(batch))], batch)
    result = look(save(tmp_path / "m.onnx"), modes=("lower", "function"))
    assert "matches the recorded data in test_data_set_1, test_data_set_2" in result.message
    seen = {(r["set"], r["mode"], r["optimised"]) for r in result.recorded}
    assert len(seen) == len(result.recorded) == 8
    assert all(r["passed"] and r["equal_bits"] for r in result.recorded)


def test_recorded_inputs_verify_a_model_whose_sizes_nobody_guesses(tmp_path):
    # The rank of x is unknown: made-up data has no shape.
    text = S2B.replace("float[N,4,6,3] x", "float[] x").replace("float[M,2,2,3] y", "float[] y")
    text = text.replace(" y = ai.onnx", " z = ai.onnx")
    text = text.replace("(x, block, pads)\n", "(w, block, pads)\n y = Abs(z)\n")
    text = text.replace("[s2b]", "w = Neg(x)\n [s2b]")
    path = save(tmp_path / "m.onnx", text)
    assert look(path).status == "unverified"
    record(tmp_path, [-image()], [space_to_batch(image())])
    result = look(path)
    assert result.status == "passed", result.message
    assert "verified on recorded data" in result.message
    (entry,) = result.entries
    assert (entry.level, entry.source) == ("info", "verify:lower")
