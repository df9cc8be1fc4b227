"""Render annotations for GitHub Actions, which its runner reads in the output of a step.

::error file=models/a.onnx,title=onnx-spatial%3A FAILED::what is wrong
"""

from __future__ import annotations

import os
from pathlib import Path

from onnx_spatial.validation.result import Report


def render(report: Report) -> str:
    """Render one line for each model that neither passed nor failed as expected.

    Paths are relative to GITHUB_WORKSPACE, the top of the checkout.
    """
    top = os.environ.get("GITHUB_WORKSPACE")
    failed = {id(model) for model in report.failed()}
    lines = []
    for model in report.models:
        if model.status in ("passed", "xfailed"):
            continue
        level = "error" if id(model) in failed else "warning"
        text = f"{model.message}\nrun it again with: {report.reproduce(model)}"
        file = _property(_relative(model.model, top))
        code = "" if model.code is None else f" [{model.code}]"
        title = _property(f"onnx-spatial: {model.status.upper()}{code}")
        lines.append(f"::{level} file={file},title={title}::{_data(text)}\n")
    return "".join(lines)


def _relative(path: str, top: str | None) -> str:
    absolute = Path(os.path.abspath(path))  # noqa: PTH100  links stay as the repository has them
    if top and absolute.is_relative_to(top):
        return absolute.relative_to(top).as_posix()
    return path


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
