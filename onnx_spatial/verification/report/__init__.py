"""Define the results of a verification as data: comparisons, runs, and the verdict on the whole."""

from onnx_spatial.verification.report.comparisons import Check, OutputResult
from onnx_spatial.verification.report.verification import (
    Difference,
    FirstValue,
    Run,
    SiteResult,
    Status,
    Verification,
)

__all__ = [
    "Check",
    "Difference",
    "FirstValue",
    "OutputResult",
    "Run",
    "SiteResult",
    "Status",
    "Verification",
]
