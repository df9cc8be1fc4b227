"""Print sentences, lists and tables, as wide as the console is.

sentences   wrapped at spaces in a terminal, in one line each elsewhere
lists       the first entries, and how many more there are
tables      with the columns that fit; without room for them a list of their rows
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from onnx_spatial.errors import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

#: Width where there is no terminal: wide enough that no table is folded and no sentence wrapped.
PIPE_WIDTH = 1000

#: Spaces at which no line breaks: in "226 -> 68 nodes" and "1.2 ms".
_BOUND = re.compile(
    r"(?<=\S) (?=-> )|(?<= ->) (?=\S)|(?<=\d) (?=(?:us|ms|s|bytes|[kMG]B|nodes?)\b)"
)
#: Replaces these spaces until the lines are made. No name has this character: `one_line` removes
#: control characters.
_PLACE = "\0"

#: Names in a list, at most.
_NAMES = 3


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


def listed(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


def names_by_sentence(said: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Collect the names of which the same is said, from pairs of a name and a sentence."""
    names: dict[str, list[str]] = {}
    for name, sentence in said:
        names.setdefault(sentence, []).append(name)
    return names


def say_first(
    console: Console,
    lines: Sequence[str],
    most: int | None,
    rest: Callable[[int], str] = "{} more (-v shows them)".format,
    *,
    indent: str = "  ",
    style: str = "",
) -> None:
    """Print the first lines of a list, and how many more there are; `most` is None: all of them.

    Args:
        console: to print to.
        lines: of the list.
        most: number of lines that are printed.
        rest: names the lines that are not, by their number.
        indent: of each line.
        style: of the lines.
    """
    for line in lines[:most]:
        say(console, f"{indent}{line}", style=style)
    if left := len(lines[:0] if most is None else lines[most:]):
        say(console, f"{indent}and {rest(left)}")


def print_table(
    console: Console,
    columns: Mapping[str, Sequence[str | Text]],
    *,
    right: Collection[str] = (),
    spare: Collection[str] = (),
) -> None:
    """Print a table, or a list of its rows where no cell may be folded and they do not fit.

    node  operator        nodes         node
    a     SpaceToBatchND      5             operator: SpaceToBatchND, nodes: 5

    Args:
        console: to print to.
        columns: the cells of each, by its head.
        right: heads of the columns that are aligned at the right.
        spare: columns that are left out where there is no room for them.
    """
    from rich.table import Table
    from rich.text import Text

    columns = {
        head: [cell if isinstance(cell, Text) else Text(one_line(cell)) for cell in cells]
        for head, cells in columns.items()
    }
    boundless = console.options.update_width(100_000)
    for heads in ([*columns], [head for head in columns if head not in spare]):
        table = Table(box=None, pad_edge=False, header_style="bold")
        for head in heads:
            table.add_column(head, justify="right" if head in right else "left", no_wrap=True)
        for row in zip(*(columns[head] for head in heads), strict=True):
            table.add_row(*row)
        if console.measure(table, options=boundless).maximum <= console.width:
            console.print(table)
            return
    heads = [*columns][1:]
    for name, *cells in zip(*columns.values(), strict=True):
        console.print(Text(name.plain, "bold"), soft_wrap=True)
        pairs = [f"{head}: {cell}" for head, cell in zip(heads, cells, strict=True) if cell.plain]
        say(console, f"    {', '.join(pairs)}")
