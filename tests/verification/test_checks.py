"""The list of checks: each comes after those it needs, and one more finds its way to the result."""

from __future__ import annotations

import pytest
from adapter import verify
from hand_lowered import space_to_batch, space_to_batch_lowered

from onnx_spatial.verification import pipeline
from onnx_spatial.verification.checks.context import Context, ModelCheck


def test_every_check_comes_after_those_it_needs() -> None:
    earlier: list[str] = []
    for check in pipeline.CHECKS:
        assert set(check.needs) <= set(earlier), check.name
        earlier.append(check.name)
    assert len(set(earlier)) == len(earlier)


def test_a_further_check_decides_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(context: Context) -> None:
        assert context.findings.operators[0].result.passed
        for node in context.models.converted.proto.graph.node:
            if not node.name:
                context.findings.fail(f"{node.op_type} has no name")

    further = ModelCheck("node_names", run, needs=("isolated",))
    monkeypatch.setattr(pipeline, "CHECKS", (*pipeline.CHECKS, further))
    original, converted = space_to_batch(), space_to_batch_lowered()
    for number, node in enumerate(converted.graph.node):
        node.name = f"node {number}"
    assert verify(original, converted)
    node.name = ""
    result = verify(original, converted)
    assert (result.status, result.message) == ("failed", f"failed: {node.op_type} has no name")


def test_one_that_has_nothing_to_check_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(context: Context) -> None:
        raise AssertionError("it must not run")

    never = ModelCheck("never", run, when=lambda findings: bool(findings.failures))
    monkeypatch.setattr(pipeline, "CHECKS", (*pipeline.CHECKS, never))
    assert verify(space_to_batch(), space_to_batch_lowered())
