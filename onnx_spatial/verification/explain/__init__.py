"""Explain a failed verification: where the models part, what causes it, and how to reproduce it."""

from onnx_spatial.verification.explain.failure import Cause, add

__all__ = ["Cause", "add"]
