"""Validate many models as a CI step: each in its own process, all of them before anything fails.

    >>> models = discover.find(["models"])
    >>> report = validate(models, Options(modes=("lower", "function")), jobs=4)
    >>> report.passed, report.message

`select` finds the models, `checks` examines one, `workers` runs each in a process of its own, and
`report` writes what CI systems read.
"""

from onnx_spatial.validation.options import Options
from onnx_spatial.validation.result import Entry, ModelResult, Report
from onnx_spatial.validation.run import Interrupted, validate

__all__ = ["Entry", "Interrupted", "ModelResult", "Options", "Report", "validate"]
