"""Validate many models as a CI step: each in its own process, all of them before anything fails.

    >>> models = discover.find(["models"])
    >>> report = validate(models, Options(modes=("lower", "function")), jobs=4)
    >>> report.passed, report.message

What one model goes through is in `model`, where it runs in `lane` and `executors`, and what is written
about it in `report`.
"""

from onnx_spatial.validation.engine import Interrupted, validate
from onnx_spatial.validation.options import Options
from onnx_spatial.validation.result import Entry, ModelResult, Report

__all__ = ["Entry", "Interrupted", "ModelResult", "Options", "Report", "validate"]
