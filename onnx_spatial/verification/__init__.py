"""Verify that a converted model computes what its original does.

`verify` runs the original with the numpy kernels of `onnx_spatial.operators` and the converted model
in onnxruntime. Spatial operators only move data and are compared by bit pattern, each on its own and
inside the model; those that became part of a convolution are compared together with it, to a reference
in double precision. The outputs of the whole are compared bit for bit, or with a stated tolerance
behind floating-point arithmetic. Nothing is printed: a `Verification` holds the results.
"""

from onnx_spatial.verification.compare.outputs import RTOL
from onnx_spatial.verification.compare.tolerance import Bound, Tolerances
from onnx_spatial.verification.options import VerifyOptions
from onnx_spatial.verification.pipeline import Model, verify
from onnx_spatial.verification.report import (
    Check,
    Counterexample,
    Difference,
    FirstValue,
    OperatorResult,
    OutputResult,
    Run,
    Verification,
)
from onnx_spatial.verification.run.original import evaluate

__all__ = [
    "RTOL",
    "Bound",
    "Check",
    "Counterexample",
    "Difference",
    "FirstValue",
    "Model",
    "OutputResult",
    "Run",
    "OperatorResult",
    "Tolerances",
    "Verification",
    "VerifyOptions",
    "evaluate",
    "verify",
]
