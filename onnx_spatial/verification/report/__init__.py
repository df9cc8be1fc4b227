"""Define the results of a verification as data: comparisons, runs, and the verdict on the whole."""

from onnx_spatial.verification.report.comparisons import Check, OutputResult, WorstElement
from onnx_spatial.verification.report.verification import (
    Counterexample,
    Difference,
    FirstValue,
    OperatorResult,
    Run,
    Status,
    Verification,
    check_verified,
    count_proofs,
    plain,
)

__all__ = [
    "Check",
    "Counterexample",
    "Difference",
    "FirstValue",
    "OutputResult",
    "Run",
    "OperatorResult",
    "Status",
    "Verification",
    "WorstElement",
    "check_verified",
    "count_proofs",
    "plain",
]
