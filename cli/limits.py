"""Print the nodes that a rank limit does not admit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from onnx_spatial.cli.text import say
from onnx_spatial.errors import one_line
from onnx_spatial.operators.shapes import show as show_shape
from onnx_spatial.report.figures import count

if TYPE_CHECKING:
    from rich.console import Console

    from onnx_spatial.conversion.limits import LimitReport, NodeBeyond

#: Reasons, and nodes with the same reason, that are shown without -v.
_REASONS = 8
_NODES = 3


def show(console: Console, report: LimitReport | None, *, verbose: bool, when: str = "") -> None:
    """Print which nodes of a result are beyond the limit, one line for each reason, or that all fit.

    With `verbose`, each of these has a line, and so has each node whose rank is unknown. `when` starts
    the sentence.
    """
    if report is None:
        return
    if report.text is not None:
        say(console, f"{when}{report.text}:", style="bold red")
        lines = list(_each(report.nodes) if verbose else _grouped(report.nodes))
        for line in lines if verbose else lines[:_REASONS]:
            say(console, f"  {one_line(line)}")
        if not verbose and (rest := lines[_REASONS:]):
            say(console, f"  and {count(len(rest), 'other reason')} (-v shows all)")
    else:
        number = len(report.unknown)
        others = f"; of {count(number, 'node')} a rank is unknown (-v shows them)" if number else ""
        say(
            console,
            f"{when}every {'other ' if number else ''}node fits rank {report.max_rank}{others}",
        )
    if verbose:
        for node in report.unknown:
            say(console, one_line(f"{node.node} ({_place(node)}) was not compared: {node.reason}"))


def _each(nodes: Sequence[NodeBeyond]) -> Iterator[str]:
    for node in nodes:
        shape = "" if node.shape is None else f" ({node.value!r} {show_shape(node.shape)})"
        yield f"{node.node} ({_place(node)}): {node.reason}{shape}{_kept(node)}"


def _grouped(nodes: Sequence[NodeBeyond]) -> Iterator[str]:
    names: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        names.setdefault((f"{node.op_type}: {node.reason}", _kept(node)), []).append(node.node)
    for (reason, kept), labels in names.items():
        more = f" and {len(labels) - _NODES:,} more" if len(labels) > _NODES else ""
        yield f"{reason}: {', '.join(labels[:_NODES])}{more}{kept}"


def _kept(node: NodeBeyond) -> str:
    return "" if node.kept is None else f"; the chain stays: {node.kept}"


def _place(node: NodeBeyond) -> str:
    return node.op_type if node.graph == "main graph" else f"{node.op_type} in {node.graph}"
