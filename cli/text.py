"""Print sentences, lists and tables, as wide as the console is.

sentences   wrapped at spaces in a terminal, in one line each elsewhere
lists       the first entries, and how many more there are
tables      the widest one that fits without folding a cell
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
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


def wrapped(text: str, width: int, *, hang: int = 2) -> str:
    """Wrap each line of a text at spaces; a word that is longer than the width stays whole.

    Numbers stay with their unit, and both sides of an arrow on one line. Further lines are indented
    like the first one, and by `hang` columns more.
    """
    if width >= PIPE_WIDTH:
        return text
    lines = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()) + hang)
        lines += textwrap.wrap(
            _BOUND.sub(_PLACE, line),
            width,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
            drop_whitespace=True,
        ) or [""]
    return "\n".join(lines).replace(_PLACE, " ")


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


def table(
    columns: Mapping[str, Sequence[str | Text]],
    *,
    right: Collection[str] = (),
    folded: bool = False,
) -> Table:
    """Make a table of columns, by their heads.

    Args:
        columns: the cells of each.
        right: heads of the columns that are aligned at the right.
        folded: whether a cell may take several lines where the table does not fit.
    """
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in right else "left"
        overflow: Literal["fold", "ellipsis"] = "fold" if folded else "ellipsis"
        made.add_column(name, justify=justify, overflow=overflow, no_wrap=not folded)
    for cells in zip(*columns.values(), strict=True):
        made.add_row(*cells)
    return made


def print_table(console: Console, *tables: Table) -> bool:
    """Print the first table that fits into the width without folding a cell; False if none does."""
    boundless = console.options.update_width(100_000)
    for each in tables:
        if console.measure(each, options=boundless).maximum <= console.width:
            console.print(each)
            return True
    return False
