"""Verify that a converted model computes what its original does.

    original   -> the parts that differ -> formulas  =  formulas <- the parts that differ <- converted
               -> one run of the whole  -> outputs   ~  outputs  <- one run of the whole  <-

`verify` proves each part of the converted file that differs, for all sizes, by index maps. All else is
identical. Then both models run once: a test of the runtime. What is not proven is named, and the verdict
is "sampled". Nothing is printed: a `Verification` holds the results.
"""

from onnx_spatial.verification.evidence import (
    Counterexample,
    Difference,
    FirstValue,
    OperatorResult,
    OutputResult,
    Run,
    Unproven,
    Verification,
)
from onnx_spatial.verification.options import Bound, Tolerances, VerifyOptions
from onnx_spatial.verification.run.legal_sizes import evaluate
from onnx_spatial.verification.verify import Model, verify

__all__ = [
    "Bound",
    "Counterexample",
    "Difference",
    "FirstValue",
    "Model",
    "OperatorResult",
    "OutputResult",
    "Run",
    "Tolerances",
    "Unproven",
    "Verification",
    "VerifyOptions",
    "evaluate",
    "verify",
]
