"""Print what a conversion did: a headline, figures before and after, one row for each operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from onnx_spatial.cli.text import fits, listed, say
from onnx_spatial.errors import one_line
from onnx_spatial.report.figures import figure_rows, headline

if TYPE_CHECKING:
    from onnx_spatial.conversion.report import OperatorReport
    from onnx_spatial.conversion.summary import Replacement, Summary
    from onnx_spatial.report.results import Conversion

#: Replaced operators that are shown without -v.
_ROWS = 12
#: Letters of a name that are shown at least.
_MIN_NAME = 18


def show(console: Console, result: Conversion, model: Path, *, verbose: bool) -> None:
    """Print the summary of a conversion that changed the model."""
    summary = result.summary
    assert summary is not None
    say(console, f"{one_line(str(model))}: {headline(summary)}")
    console.print(_figures(summary, verbose=verbose))
    rows = summary.replacements if verbose else summary.replacements[:_ROWS]
    if rows:
        _show_replacements(console, rows)
    if more := len(summary.replacements) - len(rows):
        console.print(f"and {more} more (-v shows them)")
    notes(console, result.operators)


def _figures(summary: Summary, *, verbose: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    for name in ("before", "after"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in figure_rows(summary, verbose=verbose):
        table.add_row(*map(one_line, row))
    return table


def _show_replacements(console: Console, rows: Sequence[Replacement]) -> None:
    """Print the replaced operators in a table, or as a list where a table does not fit."""
    table = _replacements(rows, console.width)
    if fits(console, table):
        console.print(table)
        return
    for row in rows:
        console.print(Text(one_line(row.node), "bold"), soft_wrap=True)
        graph = "" if row.graph == "main graph" else f" in {one_line(row.graph)}"
        nodes = f"{row.nodes_before} -> {row.nodes_after} nodes"
        say(console, f"    {one_line(row.what)}{graph}, {nodes}")


def _replacements(rows: Sequence[Replacement], width: int) -> Table:
    """Make a table of the replaced operators; graphs are named where there is room."""
    columns = {
        "in": [one_line(row.graph) for row in rows],
        "now": [one_line(row.what) for row in rows],
        "nodes": [f"{row.nodes_before} -> {row.nodes_after}" for row in rows],
    }
    names = [one_line(row.node) for row in rows]
    room = _room(columns, width)
    if {*columns["in"]} == {"main graph"} or room < max(map(len, names)):
        del columns["in"]
        room = _room(columns, width)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("operator or region", *columns):
        justify: Literal["left", "right"] = "right" if name == "nodes" else "left"
        table.add_column(name, justify=justify, no_wrap=True)
    for name, *cells in zip(names, *columns.values(), strict=True):
        table.add_row(_end(name, room), *cells)
    return table


def _room(columns: Mapping[str, Sequence[str]], width: int) -> int:
    """Return the width that other columns leave for names."""
    return max(width - sum(max(map(len, cells)) + 2 for cells in columns.values()), _MIN_NAME)


def _end(name: str, room: int) -> str:
    """Shorten a name to its end, which tells more of a node than its scope does."""
    return name if len(name) <= room else f"...{name[3 - room :]}"


def notes(console: Console, found: Iterable[OperatorReport]) -> None:
    """Print what is to know of operators, each sentence once."""
    nodes: dict[str, list[str]] = {}
    for operator in found:
        for note in operator.notes:
            nodes.setdefault(note, []).append(one_line(operator.node))
    for note, names in nodes.items():
        say(console, f"{listed(names)}: {note}")
