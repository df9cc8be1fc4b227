"""Prove with numbers that a converted model is the original.

`verify` runs the original through the numpy kernels of `onnx_spatial.operators` and the converted
model in onnxruntime. Spatial operators are pure data movement and are compared by bit pattern, each
on its own and in place; those that became part of a convolution together with it, to a reference in
double precision; the outputs of the whole are compared bit for bit, or with a stated tolerance where
floating-point arithmetic leads to them. Nothing is printed: a `Verification` holds what was found.
"""

from onnx_spatial.verification.compare.outputs import RTOL, OutputResult
from onnx_spatial.verification.evaluate import evaluate
from onnx_spatial.verification.pipeline import Model, verify
from onnx_spatial.verification.report import (
    Check,
    Difference,
    FirstValue,
    Run,
    SiteResult,
    Verification,
)

__all__ = [
    "RTOL",
    "Check",
    "Difference",
    "FirstValue",
    "Model",
    "OutputResult",
    "Run",
    "SiteResult",
    "Verification",
    "evaluate",
    "verify",
]
