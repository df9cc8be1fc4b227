"""Show results to people: an HTML page with graphs and tables.

`results` defines what `inspect`, `convert` and `optimize` return. `outcome` describes a result once: the
screen prints the description, and `page` renders it. `figures` has the words, `graphs` shows two models
side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx_spatial.model.io.reader import Model
    from onnx_spatial.verification import Verification


def verification_html(verification: Verification, original: Model, converted: Model) -> str:
    """Return an HTML page with the result of `verify` and the graphs of both models.

    Args:
        verification: what `verify` returned.
        original, converted: the models that it compared, as `verify` takes them.

    Raises:
        UsageError: jinja2 is missing.
        ModelFileError: a model cannot be read.
    """
    from onnx_spatial.report.outcome import describe_verification
    from onnx_spatial.report.page import render

    return render("verify", [describe_verification(verification, original, converted)])
