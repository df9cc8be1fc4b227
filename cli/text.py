"""Print sentences: wrapped at spaces in a terminal, in one line each elsewhere."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from onnx_spatial.errors import Code

#: Width where there is no terminal: wide enough that no table is folded and no sentence wrapped.
PIPE_WIDTH = 1000

#: Names in a list, at most.
_NAMES = 3


def wrapped(text: str, width: int, *, hang: int = 2) -> str:
    """Wrap each line of a text at spaces; a word that is longer than the width stays whole.

    Further lines are indented like the first one, and by `hang` columns more.
    """
    if width >= PIPE_WIDTH:
        return text
    lines = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()) + hang)
        lines += textwrap.wrap(
            line,
            width,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
            drop_whitespace=True,
        ) or [""]
    return "\n".join(lines)


def coded(text: str, code: Code | None) -> str:
    """Return a message with its code at the end, which `onnx-spatial explain` takes."""
    return text if code is None else f"{text} [{code}]"


def say(console: Console, text: str | Text, *, style: str = "", hang: int = 2) -> None:
    """Print a text, wrapped at spaces if the console is a terminal.

    The styles of a `Text` must lie in its first line.
    """
    from rich.text import Text

    plain = wrapped(str(text), console.width, hang=hang)
    styled = Text(plain, style=style)
    if isinstance(text, Text):
        styled.spans = text.spans
        styled.style = text.style
    console.print(styled, soft_wrap=True)


def say_command(console: Console, what: str, command: str, *, style: str = "") -> None:
    r"""Print a command line; in a narrow terminal on lines of its own, which can be pasted.

    They end in a backslash, and break between arguments only.
    """
    room = console.width if console.width < PIPE_WIDTH else len(what) + 2 + len(command)
    if len(what) + 2 + len(command) <= room:
        console.print(f"{what}: {command}", style=style, soft_wrap=True)
        return
    lines = [""]
    for word in map(shlex.quote, shlex.split(command)):
        if lines[-1] and len(lines[-1]) + len(word) + 7 > console.width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    text = " \\\n      ".join(lines)
    console.print(f"{what}:\n    {text}", style=style, soft_wrap=True)


def listed(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more
