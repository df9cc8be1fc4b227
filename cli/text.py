"""Print sentences and tables, as wide as the console is.

sentences   wrapped at spaces in a terminal, in one line each elsewhere
tables      with the columns that fit; without room for them a list of their rows
"""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from onnx_spatial.errors import one_line

if TYPE_CHECKING:
    from rich.console import Console

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
    """Print a table, or a list of its rows where no cell may be folded and they do not fit.

    node  operator        nodes         node
    a     SpaceToBatchND  1 -> 5            operator: SpaceToBatchND, nodes: 1 -> 5
    """
    import rich.table
    from rich.text import Text

    from onnx_spatial.report.outcome import NUMBERS

    boundless = console.options.update_width(100_000)
    for left_out in range(len(shown.spare) + 1):
        heads = [head for head in shown.columns if head not in shown.spare[:left_out]]
        table = rich.table.Table(box=None, pad_edge=False, header_style="bold")
        for head in heads:
            table.add_column(head, justify="right" if head in NUMBERS else "left", no_wrap=True)
        for row in zip(*(shown.columns[head] for head in heads), strict=True):
            styles = (STYLES.get(shown.level(*each), "") for each in zip(heads, row, strict=True))
            table.add_row(*map(Text, map(one_line, row), styles))
        if console.measure(table, options=boundless).maximum <= console.width:
            console.print(table)
            return
    for name, *cells in shown.rows:
        console.print(Text(one_line(name), "bold"), soft_wrap=True)
        pairs = zip([*shown.columns][1:], cells, strict=True)
        say(
            console, f"    {', '.join(f'{head}: {one_line(cell)}' for head, cell in pairs if cell)}"
        )
