"""Print a description of an outcome (`report.outcome`).

m.onnx: 2 spatial operators in domain 'my.domain', opset 13, IR 8       a headline
node  operator        data                     action                   tables, or lists where they
a     SpaceToBatchND  float32 1x4x4x3 -> ...   lower: slices            do not fit
a, b: a note                                                            each sentence once
PASSED  proven: 2 operators for every size                              the verdict
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from onnx_spatial.cli.text import STYLES, print_table, say
from onnx_spatial.errors import one_line
from onnx_spatial.report.figures import listed
from onnx_spatial.report.outcome import LEVELS, Outcome, Part


def badge(status: str, width: int = 0) -> tuple[str, str]:
    """Return a verdict in capitals, and its style."""
    return status.upper().ljust(width), f"bold {STYLES.get(LEVELS.get(status, ''), '')}".strip()


def outcome(console: Console, shown: Outcome) -> None:
    """Print what became of a model."""
    if shown.headline:
        say(console, f"{one_line(shown.name)}: {shown.headline}")
    for kind, values in shown.facts.items():
        say(console, one_line(f"  {kind}: {listed(values)}"))
    parts(console, shown.parts)
    for text, level in shown.remarks:
        say(console, text, style=STYLES.get(level, ""))
    parts(console, shown.checks)


def parts(console: Console, shown: list[Part]) -> None:
    """Print parts of a description: a sentence, a table, and lines below."""
    for part in shown:
        if part.message:
            say(console, part.message, badge=badge(part.status))
        if part.table is not None:
            print_table(console, part.table)
        for line in part.lines:
            say(console, f"  {line}" if part.message else line)


def how_to_run(console: Console, model: Path) -> None:
    """Print lines of Python that run a model of mode "custom-op"."""
    console.print("run it in Python with:")
    for line in (
        "import onnxruntime, onnx_spatial",
        "options = onnxruntime.SessionOptions(); onnx_spatial.custom_ops.register(options)",
        f"session = onnxruntime.InferenceSession({str(model)!r}, options)",
    ):
        console.print(f"    {line}", soft_wrap=True)
