"""Validate many models as a CI step: each in its own process, all of them before anything fails.

    >>> paths = models.find(["models"])
    >>> report = run.validate(paths, Options(modes=("lower", "function")), jobs=4)
    >>> report.passed, report.message

`models` finds them, `run` starts a process for each, which `examine`s it and compares it with `recorded`
data; `reports` and `page` render the results. The options and results need neither onnx nor numpy.
"""

from onnx_spatial.validation.options import Options
from onnx_spatial.validation.result import Entry, ModelResult, Report

__all__ = ["Entry", "ModelResult", "Options", "Report"]
