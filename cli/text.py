"""Print sentences and tables, as wide as the console is.

sentences   wrapped at spaces in a terminal, in one line each elsewhere
tables      with the columns that fit; without room for them names on lines of their own, or a list
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from onnx_spatial.errors import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from onnx_spatial.report.outcome import Table

#: Style of each level of words, remarks and verdicts.
STYLES = {"passed": "green", "failed": "bold red", "unverified": "yellow"}

#: Width where there is no terminal: wide enough that no table is folded and no sentence wrapped.
PIPE_WIDTH = 1000

#: Spaces at which no line breaks: in "226 -> 68 nodes" and "1.2 ms".
_BOUND = re.compile(
    r"(?<=\S) (?=-> )|(?<= ->) (?=\S)|(?<=\d) (?=(?:us|ms|s|bytes|[kMG]B|nodes?)\b)"
)
#: Replaces these spaces until the lines are made. No name has this character: `one_line` removes
#: control characters.
_PLACE = "\0"


def wrapped(text: str, width: int) -> str:
    """Wrap each line of a text at spaces; a word that is longer than the width stays whole.

    Numbers stay with their unit, and both sides of an arrow on one line. Further lines are indented
    like the first one, and by two columns more.
    """
    if width >= PIPE_WIDTH:
        return text
    lines = []
    for line in text.split("\n"):
        lines += textwrap.wrap(
            _BOUND.sub(_PLACE, line),
            width,
            subsequent_indent=" " * (len(line) - len(line.lstrip()) + 2),
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
        ) or [""]
    return "\n".join(lines).replace(_PLACE, " ")


def say(console: Console, text: str, *, style: str = "", badge: tuple[str, str] = ("", "")) -> None:
    """Print a text, wrapped at spaces if the console is a terminal.

    `badge` is a word with a style of its own in front of the text.
    """
    from rich.text import Text

    word, its_style = badge
    line = wrapped(f"{word}  {text}" if word else text, console.width)
    styled = Text(line, style=style)
    styled.stylize(its_style, 0, len(word))
    console.print(styled, soft_wrap=True)


def print_table(console: Console, shown: Table) -> None:
    """Print a table; where it does not fit, with the names on lines of their own, or else as a list.

    node  operator        nodes     node                        node
    a     SpaceToBatchND  1 -> 5        operator        nodes       operator: SpaceToBatchND,
                                    a                               nodes: 1 -> 5
                                        SpaceToBatchND  1 -> 5
    """
    columns = {head: [*map(one_line, cells)] for head, cells in shown.columns.items()}
    for indent in ("", "    "):
        for left_out in range(len(shown.spare) + 1):
            kept = {h: cells for h, cells in columns.items() if h not in shown.spare[:left_out]}
            if _print_aligned(console, shown, kept, indent):
                if dropped := ", ".join(head for head in columns if head not in kept):
                    say(console, f"too narrow for: {dropped}", style="dim")
                return
    name, *others = columns
    for row, label in enumerate(columns[name]):
        console.print(_styled_text(label), soft_wrap=True)
        cells = ", ".join(f"{head}: {columns[head][row]}" for head in others if columns[head][row])
        say(console, f"    {cells}")


def _print_aligned(
    console: Console, shown: Table, columns: Mapping[str, Sequence[str]], indent: str
) -> bool:
    """Print a table if it fits, with an `indent` below lines of names; return whether it did."""
    from rich.cells import cell_len

    from onnx_spatial.report.outcome import NUMBERS

    heads = [*columns][1:] if indent else [*columns]
    widths = [max(map(cell_len, (head, *columns[head]))) for head in heads]
    if not heads or len(indent) + sum(widths) + 2 * (len(heads) - 1) > console.width:
        return False
    name = next(iter(columns))
    for row in range(-1, len(columns[name])):
        if indent:
            console.print(_styled_text(name if row < 0 else columns[name][row], bold=row < 0))
        line = _styled_text(indent)
        for head, width in zip(heads, widths, strict=True):
            cell = head if row < 0 else columns[head][row]
            gap = " " * (width - cell_len(cell))
            style = "bold" if row < 0 else STYLES.get(shown.level(head, cell), "")
            line.append(gap if head in NUMBERS else "").append(cell, style)
            line.append("" if head in NUMBERS else gap).append("  ")
        line.rstrip()
        console.print(line, soft_wrap=True)
    return True


def _styled_text(text: str, *, bold: bool = False) -> Text:
    from rich.text import Text

    return Text(text, "bold" if bold else "")
