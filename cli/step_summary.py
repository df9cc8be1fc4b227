"""Append the result of a command to the summary that GitHub Actions shows on the page of a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def append(render: Callable[[], str]) -> None:
    """Append Markdown to the file that the environment names, if it names one that can be written."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    with (
        suppress(OSError),
        Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file,
    ):
        file.write(render() + "\n")


def sentence(command: str, model: str, *parts: str) -> str:
    """Return the result of a command for one model as a line of Markdown."""
    from onnx_spatial.validation.reports import escaped

    text = "; ".join(filter(None, parts))
    return f"**onnx-spatial {command}** {escaped(model)}: {escaped(text)}\n"
