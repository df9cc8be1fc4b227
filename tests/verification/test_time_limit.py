"""A verification that takes too long says what it did not compare, and how to allow more time."""

from __future__ import annotations

import onnx
import pytest
from adapter import convert, verify
from hand_lowered import TF
from onnx import parser

import onnx_spatial
from onnx_spatial import UsageError
from onnx_spatial.verification import pipeline
from onnx_spatial.verification.checks.context import ModelCheck
from onnx_spatial.verification.runtime import time_limit

TEXT = """
    <ir_version: 8, opset_import: ["" : 17, "tf" : 1]>
    f (float[N,4,4,3] x) => (float[A,B,C,3] y)
    <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}> {
        s = tf.SpaceToBatchND(x, block, none) e = Exp(s) y = tf.BatchToSpaceND(e, block, none)
    }"""
AT_ONCE = 1e-9


@pytest.fixture(name="pair")
def made() -> tuple[onnx.ModelProto, onnx.ModelProto]:
    model = parser.parse_model(TEXT)
    for item in (*model.graph.node, model.opset_import[1]):
        item.domain = TF if item.domain == "tf" else item.domain
    return model, convert(model, fuse=False)


@pytest.mark.parametrize("isolate", [False, True])
def test_what_was_not_compared_is_listed(pair, isolate):
    told = []
    result = verify(*pair, time_limit=AT_ONCE, isolate=isolate, progress=told.append)
    assert result.status == "unverified" and not result.operators_only and not result.outputs
    first, *others = result.problems
    assert "stopped after 1e-09 s" in first and "--time-limit" in first and "'y'" in first
    assert any(f"at {line!r}" in first for line in told)
    assert len(others) == 1 and "not compared (and 1 more" in others[0]  # the operators


def test_with_enough_time_or_any_nothing_changes(pair):
    for seconds in (60.0, None):
        assert verify(*pair, time_limit=seconds).status == "passed"


def test_a_difference_that_was_found_in_time_counts(pair, monkeypatch):
    def too_late(context: object) -> None:
        raise time_limit.TimeLimitError("over")

    monkeypatch.setattr(pipeline, "CHECKS", (*pipeline.CHECKS, ModelCheck("late", too_late)))
    original, converted = pair
    assert verify(original, converted).status == "unverified"
    next(node for node in converted.graph.node if node.op_type == "Exp").op_type = "Abs"
    assert verify(original, converted).status == "failed"


def test_limits_do_not_reach_beyond_their_block():
    with pytest.raises(time_limit.TimeLimitError), time_limit.allowing(AT_ONCE):
        time_limit.check()
    time_limit.check()


@pytest.mark.parametrize("limit", [0, float("nan")])
def test_a_limit_is_positive(pair, limit):
    with pytest.raises(UsageError, match=f"time_limit must be more than 0 seconds, not {limit}"):
        onnx_spatial.convert(pair[0], verify=onnx_spatial.VerifyOptions(time_limit=limit))
