"""Render a report as JSON; `validation-report-1.schema.json` describes it."""

from __future__ import annotations

import json

from onnx_spatial.validation.result import Report


def render(report: Report) -> str:
    """Render `Report.to_dict()`."""
    return json.dumps(report.to_dict(), indent=2) + "\n"
