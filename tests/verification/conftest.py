"""Fixtures for tests of what is compared where nothing is proven."""

from __future__ import annotations

import pytest

from onnx_spatial.verification.checks import proof
from onnx_spatial.verification.checks.proof import Proof


@pytest.fixture
def nothing_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the prover give up: then sizes are looked for, and double precision is computed."""
    sampled = Proof("sampled", reason="as this test says")
    monkeypatch.setattr(proof, "_prove", lambda operator, context: sampled)
