"""Validate many models as a CI step: each in its own process, all of them before anything fails.

    >>> paths = run.find(["models"])
    >>> report = run.validate(paths, Options(modes=("lower", "function")), jobs=4)
    >>> report.passed, report.message

`run` finds them and starts a process for each, which `examine`s it; `reports` renders the results. The
options and results need neither onnx nor numpy.
"""

from onnx_spatial.validation.result import Entry, ModelResult, Options, Report

__all__ = ["Entry", "ModelResult", "Options", "Report"]
