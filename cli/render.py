"""Print results as tables and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from onnx_spatial.cli import limits, summary
from onnx_spatial.cli.text import fits, listed, say
from onnx_spatial.errors import one_line
from onnx_spatial.operators import Dim, Rearrange
from onnx_spatial.operators.shapes import show
from onnx_spatial.report.figures import duration, headline
from onnx_spatial.verification import OperatorResult, OutputResult, Verification

if TYPE_CHECKING:
    from onnx_spatial.conversion.report import OperatorReport
    from onnx_spatial.lowering import Candidate
    from onnx_spatial.report.results import Conversion, Inspection

_STYLES = {
    "lower": "green",
    "fuse": "green",
    "function": "green",
    "custom-op": "green",
    "refuse": "bold red",
    "leave": "yellow",
}
_VERDICTS = {
    "passed": ("PASSED", "bold green"),
    "failed": ("FAILED", "bold red"),
    "unverified": ("UNVERIFIED", "bold yellow"),
}


def inspection(console: Console, found: Inspection, *, verbose: bool = False) -> None:
    """Print a table of the operators of a model, and the reasons below it."""
    if not found.named:
        todo = "" if found.summary is not None else ", nothing to do"
        say(console, f"{found.model}: no spatial operators{todo}")
        chains(console, found)
        _remaining(console, found)
        limits.show(console, found.limits, verbose=verbose, when="after optimize, ")
        return
    opset = "no opset" if found.opset is None else f"opset {found.opset}"
    domains = ", ".join(
        dict.fromkeys(repr(operator.domain) for operator in found.named if operator.spatial)
    )
    spatial = sum(operator.spatial for operator in found.named)
    what = [f"{_count(spatial, 'spatial operator')} in domain {domains}"] if spatial else []
    if refused := len(found.named) - spatial:
        what.append(f"{_count(refused, 'convolution')} that onnxruntime refuses")
    say(console, f"{found.model}: {', '.join(what)}, {opset}, IR {found.ir_version}")
    operators(console, found.named, verbose=verbose)
    if found.conversion is not None:
        say(console, f"after convert: {headline(found.conversion)}")
    chains(console, found)
    _remaining(console, found)
    limits.show(console, found.limits, verbose=verbose, when="after optimize, ")


def chains(console: Console, found: Inspection) -> None:
    """Print a table of the chains of standard nodes, and in one line what `optimize` does with them."""
    if found.chains:
        spatial = all(operator.op_type != Rearrange.name for operator in found.chains)
        what = "are spatial operators" if spatial else "only move data"
        console.print(f"chains of standard nodes that {what}:")
        operators(console, found.chains)
    if found.summary is not None:
        say(console, f"optimize: {found.summary}")
    notes(console, found)


def notes(console: Console, found: Inspection) -> None:
    """Say where the search for chains stopped."""
    for line in found.notes:
        say(console, f"note: {one_line(line)}", style="yellow")


def _remaining(console: Console, found: Inspection) -> None:
    """Say which operators onnxruntime lacks also after the conversion, and what helps."""
    explained = {
        (operator.domain, operator.op_type)
        for operator in found.operators
        if operator.unknown_domain
    }
    lines = [o.message for o in found.remaining if (o.domain, o.op_type) not in explained]
    for line in lines[:_SHOWN]:
        say(console, one_line(line), style="yellow")
    if len(lines) > _SHOWN:
        console.print(f"and {len(lines) - _SHOWN} more operators that onnxruntime lacks")


def operators(console: Console, found: list[OperatorReport], *, verbose: bool = False) -> None:
    """Print a table of operators, or a list where a table does not fit, and the reasons below it.

    Times are shown where there is room; with `verbose` those of the alternatives below the table.
    """
    found = [_printable(operator) for operator in found]
    timed = any(operator.estimated_us is not None for operator in found)
    tables = (_table(found, times=times) for times in ([True, False] if timed else [False]))
    table = next((t for t in tables if fits(console, t)), None)
    if table is not None:
        console.print(table)
    else:
        for operator in found:
            console.print(Text(operator.node, "bold"), soft_wrap=True)
            if operator.converted and not operator.nodes_after:
                # Its region or its pair is described at the operator that has the nodes.
                console.print("   ", _action(operator), f"({operator.op_type}, no node)")
                continue
            if operator.graph != "main graph":
                say(console, f"    in {operator.graph}")
            if operator.function is not None:
                say(console, f"    calls {operator.function}")
            say(
                console,
                f"    {operator.op_type} {operator.element_type or '?'} "
                f"{_shape(operator.input_shape)} -> {_shape(operator.output_shape)}",
            )
            size = ", ".join(filter(None, (_count(operator.nodes_after, "node"), _time(operator))))
            console.print("   ", _action(operator), f"({size})")
    for operator in found:
        if operator.reason is not None:
            what = "cannot be converted" if operator.action == "refuse" else "is not converted"
            say(console, f"{operator.node} {what}: {operator.reason}")
    for line in _grouped(
        "not fused",
        ((operator.node, one_line(reason)) for operator in found for reason in operator.declined),
    ):
        say(console, line)
    summary.notes(console, found)
    if verbose:
        for operator in found:
            if len(operator.candidates) > 1:
                each = ", ".join(map(_candidate, operator.candidates))
                say(console, f"lowerings of {operator.node}: {each}")


def _printable(operator: OperatorReport) -> OperatorReport:
    """Escape control characters in names, which could move the cursor of a terminal."""
    texts = {k: one_line(v) for k, v in vars(operator).items() if isinstance(v, str)}
    return replace(operator, **texts)  # type: ignore[arg-type]


def _table(found: list[OperatorReport], *, times: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    nested = any(operator.graph != "main graph" for operator in found)
    called = any(operator.function is not None for operator in found)
    extra = [*(["in"] if nested else []), *(["function"] if called else [])]
    for name in ("node", "operator", *extra, "type", "input", "output"):
        table.add_column(name, no_wrap=True)
    table.add_column("action", no_wrap=True)
    table.add_column("nodes", justify="right", no_wrap=True)
    if times:
        table.add_column("time", justify="right", no_wrap=True)
    for operator in found:
        row = [
            operator.node,
            operator.op_type,
            *([operator.graph] if nested else []),
            *([operator.function or ""] if called else []),
            operator.element_type or "?",
            _shape(operator.input_shape),
            _shape(operator.output_shape),
        ]
        time = [_time(operator)] if times else []
        table.add_row(*row, _action(operator), str(operator.nodes_after), *time)
    return table


def _time(operator: OperatorReport | Candidate) -> str:
    """Format the estimated time of a lowering."""
    return "" if operator.estimated_us is None else f"~{duration(operator.estimated_us)}"


def _candidate(candidate: Candidate) -> str:
    return f"{candidate.lowering} ({_time(candidate)})"


def _action(operator: OperatorReport) -> Text:
    action = (
        operator.action if operator.lowering is None else f"{operator.action}: {operator.lowering}"
    )
    if operator.absorbed:
        action += f" with {_absorbed(operator)}"
    return Text(action, _STYLES[operator.action])


def conversion(console: Console, result: Conversion, model: Path, *, verbose: bool) -> None:
    """Print what was converted, the verdict, and where the result is."""
    found = result.inspection.named
    if not result.changed:
        why = "no operators to convert" if found else "no spatial operators"
        if found and all(operator.action == "function" for operator in found):
            why = "its operators call local functions already"
        beyond = result.inspection.limits is not None and result.inspection.limits.nodes
        say(console, f"{model}: {why}, nothing {'was changed' if beyond else 'to do'}")
        if found:
            operators(console, found)
    else:
        summary.show(console, result, model, verbose=verbose)
        for versions in result.touched.get("ir_version", ()):
            console.print(f"raised the IR version: {versions}")
        if found and (verbose or not all(operator.converted for operator in found)):
            operators(console, found, verbose=verbose)
    if verbose:
        chains(console, result.inspection)
    elif left := sum(not (s.converted or s.above_limit) for s in result.inspection.chains):
        what = _count(left, "chain")
        say(console, f"{what} of standard nodes left, with nothing to gain by a rewrite")
    if not verbose:
        notes(console, result.inspection)
    _remaining(console, result.inspection)
    if result.verification is not None:
        verification(console, result.verification, verbose=verbose)
    elif result.changed:
        console.print("not verified")
    limits.show(console, result.inspection.limits, verbose=verbose)
    if result.output is not None:
        what = "wrote" if result.changed else "copied byte for byte to"
        say(console, f"{what} {result.output}")
    if result.backup is not None:
        say(console, f"the original is kept as {result.backup}")


def _absorbed(operator: OperatorReport) -> str:
    """Count the nodes merged into an operator; a lowering merges Transposes only."""
    noun = "other node" if operator.action == "fuse" else "Transpose"
    return _count(len(operator.absorbed), noun)


def how_to_run(console: Console, model: Path) -> None:
    """Print lines of Python that run a model of mode "custom-op"."""
    console.print("run it in Python with:")
    for line in (
        "import onnxruntime, onnx_spatial",
        "options = onnxruntime.SessionOptions(); onnx_spatial.custom_ops.register(options)",
        f"session = onnxruntime.InferenceSession({str(model)!r}, options)",
    ):
        console.print(f"    {line}", soft_wrap=True)


def verification(console: Console, result: object, *, verbose: bool) -> None:
    """Print the verdict in one sentence and what is not proven; more with -v or if something differs."""
    if not isinstance(result, Verification):
        return
    word, style = _VERDICTS[result.status]
    message = result.message.removeprefix(f"{result.status}: ")
    say(console, Text(word, style).append(f"  {message}", "default"))
    lines = [
        p for p in result.problems if not message.startswith(p) and f"; and {p}" not in message
    ]
    if not result.problems:
        others = [each for each in result.unproven if str(each) not in message]
        lines = _grouped("not proven", ((each.node, each.reason) for each in others))
    shown = lines if verbose else lines[:_SHOWN]
    for line in shown:
        say(console, f"  {line}")
    if len(shown) < len(lines):
        say(console, f"  and {len(lines) - len(shown)} more (-v shows them)")
    first = result.first_value
    known = result.first_difference
    if first is not None and not (known and (known.kind, known.name) == ("value", first.name)):
        say(
            console,
            f"  the first value that differs is {first.name!r} {show(first.shape)}, of {first.op_type} "
            f"node {first.node!r} ({first.graph}): {first.reason}",
        )
    if result.reproducer is not None:
        say(console, f"  reproduce it with: python {result.reproducer}")
    if result.advice is not None:
        say(console, f"  what to do: {result.advice}")
    for note in result.notes:
        if note not in message:
            say(console, f"  {note}")
    if verbose and result.operators:
        _checked_operators(console, result.operators)
        assumptions(console, [vars(operator) for operator in result.operators])
    if verbose or result.status == "failed":
        _outputs(console, result, verbose=verbose)


def _checked_operators(console: Console, operators: Sequence[OperatorResult]) -> None:
    """Print what is proven of each operator, and whether it ran; as a list where no table fits."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("node", "operator", "proven", "ran"):
        table.add_column(name, overflow="fold")
    for operator in operators:
        kind = "" if operator.unproven is None else operator.unproven.kind
        ran = "agrees" if operator.ran else operator.reason or ""
        ran = ran if operator.counterexample is None else "DIFFERS"
        table.add_row(operator.node, operator.op_type, operator.proven or kind, ran)
    if fits(console, table):
        console.print(table)
        return
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        node, op_type, proven, ran = map(str, cells)
        console.print(Text(one_line(node), "bold"), soft_wrap=True)
        say(console, f"    {op_type}: proven: {proven or '-'}; ran: {ran or '-'}")


def assumptions(console: Console, operators: Sequence[Mapping[str, Any]]) -> None:
    """Print what the proofs of operators assume, each with the operators that it is assumed for."""
    assuming: dict[str, list[str]] = {}
    for operator in operators:
        for assumption in operator["assumptions"]:
            assuming.setdefault(assumption, []).append(operator["node"])
    proven = sum(bool(operator["assumptions"]) for operator in operators)
    for assumption, nodes in assuming.items():
        which = "" if len(nodes) == proven else f" (for {listed(nodes)})"
        say(console, "  " + one_line(f"assumed: {assumption}{which}"))


def _grouped(state: str, reasons: Iterable[tuple[str, str]]) -> list[str]:
    """Return one line for each reason: "a, b and 12 more are not fused: the reason"."""
    nodes: dict[str, list[str]] = {}
    for node, reason in reasons:
        nodes.setdefault(reason, []).append(node)
    return [
        f"{listed(names)} {'is' if len(names) == 1 else 'are'} {state}: {reason}"
        for reason, names in nodes.items()
    ]


#: Problems, and rows of outputs, that are shown without -v.
_SHOWN = 6
#: Larger distances in ulp are no figures that help.
_MOST_ULP = 1_000_000


def _outputs(console: Console, result: Verification, *, verbose: bool) -> None:
    """Print a table of the outputs that differ, with `verbose` of all; narrow if it does not fit."""
    differing = [output for output in result.outputs if not output.passed]
    # Of each output the largest error tells most.
    worst: dict[str, OutputResult] = {}
    for output in sorted(differing, key=lambda o: -(o.max_relative_error or 0)):
        worst.setdefault(output.name, output)
    rows = result.outputs if verbose else list(worst.values())[:_SHOWN]
    if not rows:
        return
    wide = _output_table(rows, wide=True)
    console.print(wide if fits(console, wide) else _output_table(rows, wide=False))
    if len(rows) < len(result.outputs):
        more = f"{len(differing)} of {len(result.outputs)} comparisons of outputs differ"
        say(console, f"{more} (-v shows all)")


def _output_table(outputs: Sequence[OutputResult], *, wide: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    names = ["output", "type", "shape", "optimised", "largest error"]
    for name in (*names, *(("mean", "99 %", "apart") if wide else ()), "allowed", "result"):
        table.add_column(name, overflow="fold")
    for output in outputs:
        error = output.max_relative_error
        details = (
            _amount(output.mean_relative_error),
            _amount(output.p99_relative_error),
            _ulp(output.max_steps),
        )
        table.add_row(
            output.name,
            output.dtype,
            show(output.shape),
            "yes" if output.optimised else "no",
            "equal bits" if output.equal_bits else "?" if error is None else f"{error:.1e}",
            *(details if wide else ()),
            _allowed(output),
            {True: "ok", False: "DIFFERS", None: "not compared"}[output.passed],
        )
    return table


def _ulp(steps: float | None) -> str:
    if steps is None:
        return ""
    return f"{steps:.0f} ulp" if steps <= _MOST_ULP else "> 1e6 ulp"


def _allowed(output: OutputResult) -> str:
    if not output.tolerance and not output.atol:
        return "equal bits" if output.max_steps is not None or output.passed else ""
    return f"{output.tolerance:.0e}" + (f" + {output.atol:.0e}" if output.atol else "")


def _amount(error: float | None) -> str:
    return "" if error is None else "0" if not error else f"{error:.1e}"


def _shape(shape: tuple[Dim, ...] | None) -> str:
    return "?" if shape is None else one_line(show(shape))


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
