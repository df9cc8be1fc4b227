"""What becomes of one model: passed, failed or unverified, and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import chain_models
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from validating import (
    FOREIGN,
    MISFIT,
    PLAIN,
    RANDOM,
    REFUSED,
    S2B,
    SCALED,
    SEQUENCE,
    STRANGE_DOMAIN,
    image,
    record,
    save,
    space_to_batch,
)

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


def test_every_mode_is_verified(tmp_path):
    pytest.importorskip("onnxruntime_extensions")
    result = look(save(tmp_path / "m.onnx"), modes=("lower", "function", "custom-op"))
    assert result.status == "passed"
    assert [(m["mode"], m["status"]) for m in result.modes] == [
        ("lower", "passed"),
        ("function", "passed"),
        ("custom-op", "passed"),
    ]
    assert all(f"mode {m}: " in result.message for m in ("lower", "function", "custom-op"))


def test_python_operators_that_cannot_run_here_leave_a_model_unverified(tmp_path, monkeypatch):
    monkeypatch.setattr(examination, "available", lambda: False)
    result = look(save(tmp_path / "m.onnx"), modes=("lower", "custom-op"))
    assert (result.status, result.kind) == ("unverified", "unverified")
    assert "onnxruntime-extensions" in result.message


@pytest.fixture
def wrong_permutation(monkeypatch):
    """Conversions swap two entries of a permutation."""
    real = examination.edit_model

    def wrong(*arguments, **named):
        done = real(*arguments, **named)
        proto = onnx.ModelProto()
        proto.CopyFrom(done.result.proto)
        (transpose,) = (n for n in proto.graph.node if n.op_type == "Transpose")
        perm = transpose.attribute[0].ints
        perm[0], perm[1] = perm[1], perm[0]
        done.result = done.result.holding(proto)
        return done

    monkeypatch.setattr(examination, "edit_model", wrong)


@pytest.mark.usefixtures("wrong_permutation")
def test_a_wrong_conversion_is_a_difference_and_names_the_node(tmp_path):
    result = look(save(tmp_path / "m.onnx"), prefer="transpose")
    assert (result.status, result.kind) == ("failed", "difference")
    assert result.entries[0].source == "verify:lower"
    assert result.entries[0].nodes == ("s2b",)


def test_a_verification_has_the_options(tmp_path, monkeypatch):
    asked = []
    real = examination.verify_conversion

    def verifying(*arguments):
        asked.extend(arguments)
        return real(*arguments)

    monkeypatch.setattr(examination, "verify_conversion", verifying)
    shapes = (("x", (2, 4, 6, 3)), ("other", (1,)))
    look(save(tmp_path / "m.onnx"), seed=3, domains=("a.b",), shapes=shapes)
    _, options, domains, _ = asked
    assert (options.seed, options.shapes, domains) == (3, {"x": (2, 4, 6, 3)}, ("a.b",))


@pytest.mark.parametrize("text", [PLAIN, S2B])
def test_a_file_that_is_cut_off_or_missing_is_unreadable(tmp_path, text):
    path = save(tmp_path / "m.onnx", text)
    path.write_bytes(path.read_bytes()[:-5])
    result = look(path)
    assert (result.status, result.kind) == ("failed", "unreadable")
    assert not result.message.startswith(f"failed: {path}")
    path.unlink()
    assert look(path).kind == "unreadable"


def test_a_graph_that_contradicts_itself_is_unreadable(tmp_path):
    text = S2B.replace("(x, block, pads)\n", "(x, block, pads)\n [again] y = Neg(x)\n")
    assert look(save(tmp_path / "m.onnx", text)).kind == "unreadable"


def test_advice_is_what_can_be_done_here(tmp_path):
    text = S2B.replace("y = ai", "z = ai").replace("pads)\n", "pads)\n y = Reshape(z, to)\n")
    text = text.replace("float[N,4,6,3] x", "float[2,4,6,3] x, int64[2] to")
    result = look(save(tmp_path / "m.onnx", text.replace("float[M,2,2,3]", "float[A,B]")))
    assert result.status == "unverified"
    assert "record data that it runs on as test_data_set_0/input_0.pb" in result.message
    assert "--inputs" not in result.message  # no option of `validate`


def test_an_operator_that_breaks_its_rules_fails_the_model(tmp_path):
    result = look(save(tmp_path / "m.onnx", REFUSED))
    assert (result.status, result.kind) == ("failed", "conversion")
    (entry,) = result.entries
    assert entry.source == "convert:lower"
    assert entry.nodes == ("s2b",)
    assert [site["action"] for site in result.operators] == ["refuse"]


def test_a_model_without_spatial_operators_has_to_run(tmp_path):
    result = look(save(tmp_path / "m.onnx", PLAIN), modes=("lower", "function"))
    assert result.status == "passed"
    assert [(m["mode"], m["changed"]) for m in result.modes] == [(None, False)]
    assert "no operators to convert" in result.message
    result = look(save(tmp_path / "bad.onnx", MISFIT))
    assert (result.status, result.kind) == ("failed", "does-not-run")


def test_what_is_missing_on_the_machine_leaves_a_valid_model_unverified(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17]> g (string[3] x) => (string[3] y)
        { y = StringNormalizer<case_change_action = "LOWER", locale = "xx_NOWHERE">(x) }"""
    result = look(save(tmp_path / "m.onnx", text))
    assert (result.status, result.kind) == ("unverified", "unverified")
    assert "valid" in result.message and "xx_NOWHERE" in result.message
    assert result.fails(Options(strict=True))


class TestProof:
    @pytest.fixture
    def unproven(self, monkeypatch):
        """The prover gives up on the operator."""
        label = "SpaceToBatchND node 's2b' (main graph)"
        part = Unproven(label, "gave up", "gave up: no rule for Einsum")
        real = examination.verify_conversion

        def verifying(*arguments):
            result = real(*arguments)
            (operator,) = result.operators
            operators = [replace(operator, proven=None, unproven=part)]
            return replace(result, evidence="sampled", unproven=[part], operators=operators)

        monkeypatch.setattr(examination, "verify_conversion", verifying)

    def test_it_is_in_the_result(self, tmp_path):
        result = look(save(tmp_path / "m.onnx"), strict_proof=True)
        found = result.modes[0]["verification"]
        assert (result.status, found["evidence"], found["unproven"]) == ("passed", "proven", [])
        assert [operator["proven"] for operator in found["operators"]] == ["all sizes"]

    @pytest.mark.usefixtures("unproven")
    def test_what_is_only_sampled_is_named(self, tmp_path):
        result = look(save(tmp_path / "m.onnx"))
        assert (result.status, result.modes[0]["verification"]["evidence"]) == ("passed", "sampled")
        (entry,) = result.entries
        assert (entry.level, entry.nodes) == ("info", ("s2b",))
        assert "is not proven: gave up: no rule for Einsum" in entry.message

    @pytest.mark.usefixtures("unproven")
    def test_without_one_a_model_fails_if_it_is_required(self, tmp_path):
        result = look(save(tmp_path / "m.onnx"), strict_proof=True)
        report = Report([result], Options(strict_proof=True))
        (case,) = ElementTree.fromstring(reports.junit_xml(report)).iter("testcase")
        assert (result.status, result.kind, report.exit_code) == ("failed", "unverified", 1)
        assert result.message == (
            "failed: SpaceToBatchND node 's2b' (main graph) is not proven: gave up: no rule for Einsum"
        )
        assert [(entry.level, entry.nodes) for entry in result.entries] == [("error", ("s2b",))]
        assert case.find("failure") is not None

    def test_a_mode_that_is_not_verified_is_not_proven(self, tmp_path, monkeypatch):
        monkeypatch.setattr(examination, "available", lambda: False)
        path = save(tmp_path / "m.onnx")
        assert look(path, modes=("custom-op",)).status == "unverified"
        assert look(path, modes=("custom-op",), strict_proof=True).status == "failed"


def test_operators_of_somebody_else_leave_a_model_unverified(tmp_path):
    for text in (FOREIGN, STRANGE_DOMAIN):
        result = look(save(tmp_path / "m.onnx", text))
        assert (result.status, result.kind) == ("unverified", "unverified")
        assert "somebody.else" in result.message
    assert [e.nodes for e in result.entries if e.source == "inspect"] == [("s2b",)]


def test_a_domain_of_the_users_own_is_accepted(tmp_path):
    path = save(tmp_path / "m.onnx", STRANGE_DOMAIN)
    assert look(path, domains=("somebody.else",)).status == "passed"
    assert look(path, strict=True).status == "failed"


def test_random_numbers_are_not_compared(tmp_path):
    result = look(save(tmp_path / "m.onnx", RANDOM))
    (mode,) = result.modes
    assert (result.status, mode["verification"]["evidence"]) == ("passed", "proven")
    assert {output["passed"] for output in mode["verification"]["outputs"]} == {None}


def test_a_seed_a_dim_and_a_shape_reach_the_verification(tmp_path):
    path = save(tmp_path / "m.onnx")
    (mode,) = look(path, seed=7, static=(("N", 5),)).modes
    runs = mode["verification"]["runs"]
    assert {(run["seed"], *run["inputs"]["x"]["shape"]) for run in runs} == {(7, 5, 4, 6, 3)}
    (mode,) = look(path, shapes=(("x", (9, 4, 6, 3)),)).modes
    assert mode["verification"]["runs"][0]["inputs"]["x"]["shape"] == [9, 4, 6, 3]


def test_dims_and_inputs_that_a_model_does_not_have_are_only_remarked_on(tmp_path):
    result = look(save(tmp_path / "m.onnx"), static=(("K", 5),), shapes=(("z", (1,)),))
    assert result.status == "passed"
    assert [(e.level, e.source) for e in result.entries] == [("info", "load")] * 2


def test_a_shape_that_does_not_fit_leaves_the_model_unverified(tmp_path):
    result = look(save(tmp_path / "m.onnx"), shapes=(("x", (9, 4)),))
    assert result.status == "unverified"
    assert "must have shape" in result.message


#: Dropout in training mode where `train` says so; a seed makes onnxruntime repeat itself.
DROPOUT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[64] x, bool train) => (float[64] y) <float ratio = {0.5}>
{ [drop] y = Dropout<seed = 0>(x, ratio, train) }
"""


class TestRecordedData:
    @pytest.mark.parametrize("name", ["int4", "uint4", "bfloat16", "float8e4m3fn", "float8e5m2"])
    def test_types_that_numpy_lacks(self, tmp_path, name):
        text = f"""<ir_version: 10, opset_import: ["" : 21]>
            g ({name}[2,3] x) => ({name}[3,2] y) {{ y = Transpose(x) }}"""
        dtype = onnx.helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, name.upper()))
        x = np.array([[1, 2, 3], [4, 5, 6]]).astype(dtype)
        record(tmp_path, [x], [x.T])
        assert look(save(tmp_path / "m.onnx", text)).status == "passed"
        record(tmp_path, [x], [x.T[::-1]], 1)
        assert look(save(tmp_path / "m.onnx", text)).kind == "recorded-data"

    def test_which_nan_and_the_sign_of_zero_are_no_difference(self, tmp_path):
        x = np.array([[np.nan, 0.0, 1.0, 2.0]], np.float32)
        y = np.array([[np.nan, -0.0, 1.0, 2.0]], np.float32)
        y.view(np.uint32)[0, 0] ^= 5
        path = save(tmp_path / "m.onnx", PLAIN.replace("Relu", "Identity"))
        record(tmp_path, [x], [y])
        assert look(path).status == "passed"
        y[0, 2] = np.nextafter(np.float32(1), np.float32(2))
        record(tmp_path, [x], [y], 1)
        assert look(path).kind == "recorded-data"

    def test_a_kernel_that_is_missing_is_no_fault_of_the_data(self, tmp_path):
        text = """<ir_version: 8, opset_import: ["" : 17]>
            g (uint8[1,1,3,3] x, uint8[2,1,1,1] w, uint8 a, uint8[2] b) => (int32[1,2,3,3] y)
            { y = ConvInteger(x, w, a, b) }"""
        inputs = [np.full(shape, 1, np.uint8) for shape in ((1, 1, 3, 3), (2, 1, 1, 1), (), (2,))]
        record(tmp_path, inputs, [np.zeros((1, 2, 3, 3), np.int32)])
        result = look(save(tmp_path / "m.onnx", text))
        assert (result.status, result.kind) == ("unverified", "unverified")
        assert "not supported" in result.message

    def test_random_numbers_cannot_be_what_is_recorded(self, tmp_path):
        path = save(tmp_path / "m.onnx", DROPOUT)
        x = np.arange(1, 65, dtype=np.float32)
        record(tmp_path, [x, np.array(True)], [np.zeros(64, np.float32)])
        result = look(path)
        assert (result.status, result.kind) == ("unverified", "unverified")
        assert "random" in result.message and "Dropout node 'drop'" in result.message
        assert {line["passed"] for line in result.recorded} == {None}

    def test_a_dropout_that_is_told_not_to_train_is_not_random(self, tmp_path):
        x = np.arange(1, 65, dtype=np.float32)
        text = DROPOUT.replace(", bool train", "").replace("{0.5}>", "{0.5}, bool train = {0}>")
        record(tmp_path, [x], [x + 1])
        assert look(save(tmp_path / "m.onnx", text)).kind == "recorded-data"

    def test_what_is_recorded_is_what_comes_out(self, tmp_path):
        for batch in (1, 2):
            record(tmp_path, [image(batch)], [space_to_batch(image(batch))], batch)
        result = look(save(tmp_path / "m.onnx"), modes=("lower", "function"))
        assert result.status == "passed"
        assert "matches the recorded data in test_data_set_1, test_data_set_2" in result.message
        seen = {(r["set"], r["mode"], r["optimised"]) for r in result.recorded}
        assert len(seen) == len(result.recorded) == 8
        assert all(r["passed"] and r["equal_bits"] for r in result.recorded)

    def test_movement_has_to_agree_in_every_bit(self, tmp_path):
        y = space_to_batch(image())
        y.flat[5] = np.nextafter(y.flat[5], np.float32(np.inf))
        record(tmp_path, [image()], [y])
        result = look(save(tmp_path / "m.onnx"))
        assert (result.status, result.kind) == ("failed", "recorded-data")
        assert "1 of 144 elements differ" in result.message
        assert "the recorded data belongs to another model" in result.message
        assert {e.source for e in result.entries} == {"recorded:test_data_set_0"}

    @pytest.mark.parametrize(
        ("error", "status"),
        [(3e-5, "passed"), (3e-4, "failed")],
    )
    def test_arithmetic_has_a_tolerance_of_the_largest_value(self, tmp_path, error, status):
        y = space_to_batch(image() * THIRD)
        y.flat[0] += error * y.max()
        record(tmp_path, [image()], [y])
        assert look(save(tmp_path / "m.onnx", SCALED)).status == status

    def test_a_nan_is_not_within_any_tolerance(self, tmp_path):
        y = space_to_batch(image() * THIRD)
        y.flat[0] = np.nan
        record(tmp_path, [image()], [y])
        result = look(save(tmp_path / "m.onnx", SCALED))
        assert result.status == "failed"
        assert "1 of 144 elements differ, some by NaN or infinity" in result.message
        assert all(r["max_relative_error"] is None for r in result.recorded)

    def test_relative_to_nothing_the_difference_itself_is_said(self, tmp_path):
        record(tmp_path, [image()], [np.zeros_like(space_to_batch(image()))])
        result = look(save(tmp_path / "m.onnx", SCALED))
        assert "by at most 48 where all values should be 0" in result.message

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (lambda y: y.reshape(12, 2, 6), "its shape is"),
            (lambda y: y.astype(np.float64), "its type is float32, not float64"),
            (lambda y: y[::-1], "elements differ"),
        ],
    )
    def test_other_shapes_types_and_orders_fail(self, tmp_path, change, reason):
        record(tmp_path, [image()], [np.ascontiguousarray(change(space_to_batch(image())))])
        result = look(save(tmp_path / "m.onnx"))
        assert result.status == "failed"
        assert reason in result.message

    def test_data_that_does_not_fit_the_model_fails_it(self, tmp_path):
        record(tmp_path, [image().astype(np.float16)], [])
        result = look(save(tmp_path / "m.onnx"))
        assert (result.status, result.kind) == ("failed", "recorded-data")

    def test_models_without_spatial_operators_are_compared_too(self, tmp_path):
        x = np.array([[-1, 2, -3, 4]], np.float32)
        np.savez(tmp_path / "m.npz", x=x, y=np.maximum(x, 0))
        path = save(tmp_path / "m.onnx", PLAIN)
        assert look(path).status == "passed"
        np.savez(tmp_path / "m.npz", x=x, y=x)
        assert look(path).kind == "recorded-data"

    def test_arrays_that_nothing_asks_for_are_remarked_on(self, tmp_path):
        np.savez(tmp_path / "m.npz", x=np.ones((1, 4), np.float32), z=np.ones(1))
        result = look(save(tmp_path / "m.onnx", PLAIN))
        assert result.status == "passed"
        assert [(e.level, e.kind) for e in result.entries] == [("warning", "recorded-data")]

    def test_a_sequence_that_matches_is_enough(self, tmp_path):
        arrays = [np.full((2, 4), i, np.float32) for i in range(3)]
        path = save(tmp_path / "m.onnx", SEQUENCE)
        assert look(path).status == "unverified"
        record(tmp_path, [numpy_helper.from_list(arrays, "x"), np.array(1)], [arrays[1]])
        assert look(path).status == "passed"
        record(tmp_path, [numpy_helper.from_list(arrays, "x"), np.array(1)], [arrays[2]], 1)
        assert look(path).kind == "recorded-data"

    def test_recorded_inputs_verify_a_model_whose_sizes_nobody_guesses(self, tmp_path):
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


def _chains(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(chain_models.six_dims(), path)
    return path


def test_chains_are_rewritten_by_optimize_alone(tmp_path):
    path = _chains(tmp_path)
    (mode,) = look(path).modes
    assert (mode["mode"], mode["changed"]) == (None, False)
    result = look(path, optimize=True, strict_proof=True)
    (mode,) = result.modes
    assert (result.status, mode["mode"], mode["changed"]) == ("passed", "lower", True)
    assert [(s["dialect"], s["lowering"]) for s in result.operators] == [
        ("standard nodes", "dilated convolution")
    ] * 2
    assert "proven: 2 operators" in result.message


def test_an_optimized_model_is_compared_with_recorded_data(tmp_path):
    path = _chains(tmp_path)
    x = np.random.default_rng(0).random((2, 8, 12, 3), np.float32)
    record(path.parent, [x], [np.zeros((2, 8, 12, 4), np.float32)])
    result = look(path, optimize=True)
    assert (result.status, result.kind) == ("failed", "recorded-data")


def test_a_chain_that_is_read_wrongly_is_a_difference(tmp_path, monkeypatch):
    """Also the file with its chains as they are is compared."""
    real = examination.edit_model

    def wrong(*args: object, **named: object):
        done = real(*args, **named)
        node = next(n for n in done.result.proto.graph.node if n.op_type == "Conv")
        next(a for a in node.attribute if a.name == "dilations").ints[:] = [1, 1]
        return done

    monkeypatch.setattr(examination, "edit_model", wrong)
    result = look(_chains(tmp_path), optimize=True)
    assert (result.status, result.kind) == ("failed", "difference")


@pytest.mark.parametrize("mode", ["lower", "function", "custom-op"])
def test_optimize_has_each_mode(tmp_path, mode):
    result = look(_chains(tmp_path), optimize=True, modes=(mode,))
    assert result.status == "passed"
    assert "--optimize" in Options(optimize=True, modes=(mode,)).command(["m.onnx"])
