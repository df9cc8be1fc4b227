"""Show results to people: an HTML page with graphs and tables.

`results` defines what `inspect`, `convert` and `optimize` return, with these views as methods. `figures`
has the words and rows that the screen shows, too. `graphs` shows two models side by side,
`section` joins what is known of one model, and `page` renders the templates.
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
    from onnx_spatial.report.page import render
    from onnx_spatial.report.section import verification_section

    return render("verify", [verification_section(verification, original, converted)])
