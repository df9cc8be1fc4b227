"""Validate many models as a CI step: each in its own process, all of them before anything fails.

    >>> models = discover.find(["models"])
    >>> report = validate(models, Options(modes=("lower", "function")), jobs=4)
    >>> report.passed, report.message

`select` finds the models, `checks` examines one, `workers` runs each in a process of its own, and
`report` writes what CI systems read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx_spatial.validation.options import Options
from onnx_spatial.validation.result import Entry, ModelResult, Report

__all__ = ["Entry", "Interrupted", "ModelResult", "Options", "Report", "validate"]

if TYPE_CHECKING:
    from onnx_spatial.validation.run import Interrupted, validate
else:

    def __getattr__(name: str) -> object:
        """Import what runs models on first use: the options and results need neither onnx nor numpy."""
        if name not in ("Interrupted", "validate"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from onnx_spatial.validation import run

        return getattr(run, name)
