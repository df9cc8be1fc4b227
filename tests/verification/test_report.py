"""What a Verification says, in Python and in JSON."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from adapter import verify
from hand_lowered import batch_to_space, model, space_to_batch, space_to_batch_lowered

from onnx_spatial import Verification
from onnx_spatial.model.io import reader
from onnx_spatial.verification.compare.exactness import Exactness, of_outputs
from onnx_spatial.verification.compare.outputs import compare
from onnx_spatial.verification.runtime.program import Program

WRONG = space_to_batch_lowered(perm="4, 2, 0, 1, 3, 5")


def test_to_dict_is_json() -> None:
    for converted in (space_to_batch_lowered(), WRONG):
        result = verify(space_to_batch(), converted, seed=3)
        data = json.loads(json.dumps(result.to_dict(), allow_nan=False))
        assert data["version"] == 2
        assert data["status"] == ("passed" if result else "failed")
        assert data["message"] == result.message
        assert data["runs"][0]["seed"] == 3
        assert data["runs"][0]["inputs"]["x"]["dtype"] == "float32"
        named = {"node", "graph", "op_type", "domain"}
        proof = {"proven", "assumptions", "proof_reason", "counterexample"}
        compared = {"exact", "how", "passed", "reason", "checks"}
        assert named | compared | proof == set(data["operators"][0])
        assert (data["first_difference"] is None) == bool(result)


def test_same_seed_same_report() -> None:
    first, second = (verify(space_to_batch(), WRONG, seed=5) for _ in range(2))
    assert first.to_dict() == second.to_dict()
    assert first.first_difference is not None
    assert second.first_difference is not None
    np.testing.assert_array_equal(
        first.first_difference.inputs["x"].view(np.uint32),
        second.first_difference.inputs["x"].view(np.uint32),
    )
    other = verify(space_to_batch(), WRONG, seed=6)
    assert other.first_difference is not None
    assert not np.array_equal(
        first.first_difference.inputs["x"].view(np.uint32),
        other.first_difference.inputs["x"].view(np.uint32),
    )


def test_first_difference_can_be_saved(tmp_path: object) -> None:
    result = verify(space_to_batch(), WRONG)
    assert result.first_difference is not None
    np.savez(f"{tmp_path}/inputs.npz", **result.first_difference.inputs)
    kept = np.load(f"{tmp_path}/inputs.npz")
    assert set(kept) == {"x", "block", "pads"}


def test_models_in_every_form(tmp_path: object) -> None:
    a, b = space_to_batch(), space_to_batch_lowered()
    onnx.save(a, f"{tmp_path}/a.onnx")
    before = a.SerializeToString(), b.SerializeToString()
    assert verify(f"{tmp_path}/a.onnx", b.SerializeToString())
    assert verify(reader.read(a), reader.Source(b))
    assert verify(ir.from_proto(a), ir.from_proto(b))
    assert (a.SerializeToString(), b.SerializeToString()) == before


def test_progress() -> None:
    lines: list[str] = []
    verify(space_to_batch(), space_to_batch_lowered(), progress=lines.append)
    assert lines[:2] == ["proof 1/1: site", "operator 1/1: site"]
    runs = len(verify(space_to_batch(), space_to_batch_lowered()).runs)
    assert lines[-1].startswith(f"run {runs}/{runs}: x ")


def test_truth() -> None:
    assert Verification("passed", "")
    assert not Verification("failed", "")
    assert not Verification("unverified", "")


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    verify(space_to_batch(), space_to_batch())
    verify(batch_to_space(), WRONG)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == ""


ARITHMETIC, NOTHING = Exactness(arithmetic=True), Exactness()


@pytest.mark.parametrize(
    ("dtype", "error", "passes"),
    [
        (np.float32, 0.9e-5, True),
        (np.float32, 1.2e-5, False),
        (np.float64, 0.9e-11, True),
        (np.float64, 1.2e-11, False),
        (np.float16, 0.0015, True),
        (np.float16, 0.003, False),
    ],
)
def test_tolerance(dtype: type, error: float, passes: bool) -> None:
    expected = np.array([1.0, 0.25, -0.5], dtype)
    actual = expected + np.array([0, 0, error], dtype)
    (result,) = compare("y", 0, False, expected, actual, ARITHMETIC)
    assert result.passed is passes
    (exact,) = compare("y", 0, False, expected, actual, NOTHING)
    assert exact.passed is False
    assert "1 of 3 elements differ" in str(exact.reason)


def test_nan_and_infinity() -> None:
    expected = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    (result,) = compare("y", 0, False, expected, expected + np.float32(0), ARITHMETIC)
    assert result.passed
    for wrong in ([0, np.inf, -np.inf, 1], [np.nan, -np.inf, -np.inf, 1], [np.nan, 9, -np.inf, 1]):
        (result,) = compare("y", 0, False, expected, np.array(wrong, np.float32), ARITHMETIC)
        assert result.passed is False
        assert result.mismatches == 1
        assert result.max_abs_error == np.inf


def test_whole_numbers_behind_reals() -> None:
    discrete = Exactness(arithmetic=True, discrete=True)
    expected = np.zeros(2000, np.int64)
    actual = expected.copy()
    actual[:2] = 1
    assert compare("y", 0, True, expected, actual, discrete)[0].passed
    assert "accepted: a step" in str(compare("y", 0, True, expected, actual, discrete)[0].reason)
    assert not compare("y", 0, False, expected, actual, discrete)[0].passed
    assert not compare("y", 0, True, expected, actual, ARITHMETIC)[0].passed
    actual[2] = 1
    assert not compare("y", 0, True, expected, actual, discrete)[0].passed


def test_exactness_of_outputs() -> None:
    original = model("""
        g (float[2,4,6,3] x, int64[3] k) => (float a, float b, int64 c, int64 d, float e, float f)
          <int32[2] block = {2, 3}, int32[2,2] none = {0, 0, 0, 0}, float[3] w = {1, 2, 3}>
        {
            a = tf.SpaceToBatchND(x, block, none)
            m = Mul(a, w)
            b = Transpose(m)
            c = Add(k, k)
            d = ArgMax(m)
            q = Cast<to = 7>(m)
            e = Cast<to = 1>(q)
            h = Cast<to = 10>(m)
            f = Cast<to = 1>(h)
        }
    """)
    for output in original.graph.output:
        if output.name != "c":
            output.ClearField("type")
    marks = of_outputs(Program(original, [0]))
    assert marks == {
        "a": NOTHING,
        "b": ARITHMETIC,
        "c": NOTHING,
        "d": Exactness(arithmetic=True, discrete=True),
        "e": Exactness(arithmetic=True, discrete=True),
        "f": ARITHMETIC,
    }
