"""Print what commands found in a model, what a conversion did, and the verdict on it.

m.onnx: 2 spatial operators in domain 'my.domain', opset 13, IR 8       a headline
node  operator        type     input       output      action           a table, or where it does
a     SpaceToBatchND  float32  1x4x4x3  -> 4x2x2x3     lower: slices    not fit a list
a, b: a note                                                            each sentence once
PASSED  proven: 2 operators for every size                              the verdict
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from onnx_spatial.cli.text import print_table, say, say_first
from onnx_spatial.errors import one_line
from onnx_spatial.operators import Dim, Rearrange
from onnx_spatial.operators.shapes import show
from onnx_spatial.report.figures import (
    count,
    duration,
    figure_rows,
    headline,
    interface,
    listed,
    names_by_sentence,
)
from onnx_spatial.verification import OperatorResult, OutputResult, Verification

if TYPE_CHECKING:
    import onnx

    from onnx_spatial.conversion.limits import LimitReport, NodeBeyond
    from onnx_spatial.conversion.report import OperatorReport
    from onnx_spatial.conversion.summary import Summary
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
#: What is shown without -v: problems and rows of outputs, replaced operators, reasons why nodes are
#: beyond a limit, and nodes with the same reason.
_PROBLEMS, _REPLACEMENTS, _REASONS, _NODES = 6, 12, 8, 3
#: Larger distances in ulp are no figures that help.
_MOST_ULP = 1_000_000


def inspection(console: Console, found: Inspection, *, verbose: bool = False) -> None:
    """Print a table of the operators of a model, and the reasons below it."""
    say(console, f"{found.model}: {_contents(found)}")
    if found.original is not None:
        _interface(console, found.original.proto)
    if found.named:
        operators(console, found.named, verbose=verbose)
        if found.conversion is not None:
            say(console, f"after convert: {headline(found.conversion)}")
    _chains(console, found)
    _remaining(console, found)
    _limits(console, found.limits, verbose=verbose, when="after optimize, ")


def _interface(console: Console, model: onnx.ModelProto) -> None:
    """Print the inputs and outputs of a model, with their types and shapes."""
    for kind, values in interface(model).items():
        say(console, one_line(f"  {kind}: {listed(values)}"))


def _contents(found: Inspection) -> str:
    """Count the operators of a model, and name its domains and versions."""
    if not found.named:
        return f"no spatial operators{'' if found.summary is not None else ', nothing to do'}"
    opset = "no opset" if found.opset is None else f"opset {found.opset}"
    spatial = [repr(operator.domain) for operator in found.named if operator.spatial]
    domains = ", ".join(dict.fromkeys(spatial))
    what = [f"{count(len(spatial), 'spatial operator')} in domain {domains}"] if spatial else []
    if refused := len(found.named) - len(spatial):
        what.append(f"{count(refused, 'convolution')} that onnxruntime refuses")
    return f"{', '.join(what)}, {opset}, IR {found.ir_version}"


def conversion(console: Console, result: Conversion, model: Path, *, verbose: bool) -> None:
    """Print what was converted, the verdict, and where the result is."""
    found, limits = result.inspection, result.inspection.limits
    if not result.changed:
        why = "no operators to convert" if found.named else "no spatial operators"
        if found.named and all(operator.action == "function" for operator in found.named):
            why = "its operators call local functions already"
        beyond = limits is not None and limits.nodes
        say(console, f"{model}: {why}, nothing {'was changed' if beyond else 'to do'}")
    else:
        _summary(console, result, model, verbose=verbose)
    converted = all(operator.converted for operator in found.named)
    if found.named and (verbose or not result.changed or not converted):
        operators(console, found.named, verbose=verbose and result.changed)
    if verbose:
        _chains(console, found)
    else:
        if left := sum(not (s.converted or s.above_limit) for s in found.chains):
            what = count(left, "chain")
            say(console, f"{what} of standard nodes left, with nothing to gain by a rewrite")
        _search_notes(console, found)
    _remaining(console, found)
    if result.verification is not None:
        verification(console, result.verification, verbose=verbose)
    elif result.changed:
        console.print("not verified")
    _limits(console, limits, verbose=verbose)
    if result.output is not None:
        what = "wrote" if result.changed else "copied byte for byte to"
        say(console, f"{what} {result.output}")
    if result.backup is not None:
        say(console, f"the original is kept as {result.backup}")


def _summary(console: Console, result: Conversion, model: Path, *, verbose: bool) -> None:
    """Print a headline, figures before and after, and a row for each operator that was replaced."""
    summary = result.summary
    assert summary is not None
    say(console, f"{one_line(str(model))}: {headline(summary)}")
    _interface(console, result.original.proto)
    figures = zip(*figure_rows(summary, verbose=verbose), strict=True)
    columns = dict(zip(("", "before", "after"), figures, strict=True))
    print_table(console, columns, right=("before", "after"))
    replacements(console, summary, None if verbose else _REPLACEMENTS)
    _notes(console, result.operators)
    for versions in result.touched.get("ir_version", ()):
        console.print(f"raised the IR version: {versions}")


def replacements(console: Console, summary: Summary, most: int | None = None) -> None:
    """Print what took the place of the nodes of a model; the rows add up to all of its nodes."""
    rows = summary.replacements[:most]
    left = summary.replacements[len(rows) :]
    others = summary.others()
    if left:
        before, after = sum(r.nodes_before for r in left), sum(r.nodes_after for r in left)
        others.insert(0, (f"{len(left)} more (-v shows them)", "", before, after))
    in_graphs = {*(row.graph for row in rows)} - {"main graph"}
    columns = {
        "operator or region": [row.node for row in rows] + [name for name, *_ in others],
        "in": [row.graph for row in rows] + [""] * len(others) if in_graphs else [],
        "now": [row.what for row in rows] + [what for _, what, *_ in others],
        "nodes": [f"{row.nodes_before} -> {row.nodes_after}" for row in rows]
        + [f"{before} -> {after}" for _, _, before, after in others],
    }
    columns = {head: cells for head, cells in columns.items() if cells}
    print_table(console, columns, right=("nodes",), spare=("in",))


def operators(console: Console, found: Sequence[OperatorReport], *, verbose: bool = False) -> None:
    """Print a table of operators, or a list where a table does not fit, and the reasons below it.

    Times are shown where there is room; with `verbose` those of the alternatives below the table.
    """
    found = [_printable(operator) for operator in found]
    print_table(console, _operator_columns(found), right=("nodes", "time"), spare=("time",))
    for operator in found:
        if operator.reason is not None:
            what = "cannot be converted" if operator.action == "refuse" else "is not converted"
            say(console, f"'{operator.node}' {what}: {operator.reason}")
    declined = [(f"'{o.node}'", one_line(r)) for o in found for r in o.declined]
    for line in _by_reason("not fused", declined):
        say(console, line)
    _notes(console, found)
    for operator in found if verbose else ():
        if len(operator.candidates) > 1:
            each = ", ".join(f"{c.lowering} ({_time(c)})" for c in operator.candidates)
            say(console, f"lowerings of '{operator.node}': {each}")


def _printable(operator: OperatorReport) -> OperatorReport:
    """Escape control characters in names, which could move the cursor of a terminal."""
    texts = {k: one_line(v) for k, v in vars(operator).items() if isinstance(v, str)}
    return replace(operator, **texts)  # type: ignore[arg-type]


def _operator_columns(found: Sequence[OperatorReport]) -> dict[str, list[str | Text]]:
    """Return the columns of a table of operators; what is the same for all has none."""
    columns: dict[str, list[str | Text]] = {
        "node": [operator.node for operator in found],
        "operator": [operator.op_type for operator in found],
        "in": [operator.graph for operator in found],
        "function": [operator.function or "" for operator in found],
        "type": [operator.element_type or "?" for operator in found],
        "input": [_shape(operator.input_shape) for operator in found],
        "output": [_shape(operator.output_shape) for operator in found],
        "action": [_action(operator) for operator in found],
        "nodes": [str(operator.nodes_after) for operator in found],
        "time": [_time(operator) for operator in found],
    }
    plain = {"in": {"main graph"}, "function": {""}, "time": {""}}
    return {n: cells for n, cells in columns.items() if n not in plain or {*cells} - plain[n]}


def _action(operator: OperatorReport) -> Text:
    action = ": ".join(filter(None, (operator.action, operator.lowering)))
    if operator.absorbed:
        # A lowering merges Transposes only.
        noun = "other node" if operator.action == "fuse" else "Transpose"
        action += f" with {count(len(operator.absorbed), noun)}"
    return Text(action, _STYLES[operator.action])


def _time(operator: OperatorReport | Candidate) -> str:
    """Format the estimated time of a lowering."""
    return "" if operator.estimated_us is None else f"~{duration(operator.estimated_us)}"


def _shape(shape: tuple[Dim, ...] | None) -> str:
    return "?" if shape is None else one_line(show(shape))


def _notes(console: Console, found: Iterable[OperatorReport]) -> None:
    """Print what is to know of operators, each sentence once."""
    said = ((one_line(f"'{o.node}'"), note) for o in found for note in o.notes)
    for note, names in names_by_sentence(said).items():
        say(console, f"{listed(names)}: {note}")


def _chains(console: Console, found: Inspection) -> None:
    """Print a table of the chains of standard nodes, and in one line what `optimize` does with them."""
    if found.chains:
        spatial = all(operator.op_type != Rearrange.name for operator in found.chains)
        what = "are spatial operators" if spatial else "only move data"
        console.print(f"chains of standard nodes that {what}:")
        operators(console, found.chains)
    if found.summary is not None:
        say(console, f"optimize: {found.summary}")
    _search_notes(console, found)


def _search_notes(console: Console, found: Inspection) -> None:
    """Say where the search for chains stopped."""
    for line in found.notes:
        say(console, f"note: {one_line(line)}", style="yellow")


def _remaining(console: Console, found: Inspection) -> None:
    """Say which operators onnxruntime lacks also after the conversion, and what helps."""
    explained = {(o.domain, o.op_type) for o in found.operators if o.unknown_domain}
    lacking = [o for o in found.remaining if (o.domain, o.op_type) not in explained]
    lines = [one_line(operator.message) for operator in lacking]
    rest = "{} more operators that onnxruntime lacks".format
    say_first(console, lines, _PROBLEMS, rest, indent="", style="yellow")


def _limits(console: Console, report: LimitReport | None, *, verbose: bool, when: str = "") -> None:
    """Print which nodes of a result are beyond the limit, one line for each reason, or that all fit.

    With `verbose`, each of these has a line, and so has each node whose rank is unknown. `when` starts
    the sentence.
    """
    if report is None:
        return
    if report.text is not None:
        say(console, f"{when}{report.text}:", style="bold red")
        lines = _each_beyond(report.nodes) if verbose else _beyond_by_reason(report.nodes)
        most = None if verbose else _REASONS
        say_first(console, [*map(one_line, lines)], most, _other_reasons)
    else:
        unknown = count(len(report.unknown), "node")
        others = f"; of {unknown} a rank is unknown (-v shows them)" if report.unknown else ""
        nodes = "every other node" if report.unknown else "every node"
        say(console, f"{when}{nodes} fits rank {report.max_rank}{others}")
    for node in report.unknown if verbose else ():
        say(console, one_line(f"{node.node} ({_place(node)}) was not compared: {node.reason}"))


def _other_reasons(number: int) -> str:
    return f"{count(number, 'other reason')} (-v shows all)"


def _each_beyond(nodes: Sequence[NodeBeyond]) -> Iterator[str]:
    for node in nodes:
        shape = "" if node.shape is None else f" ({node.value!r} {show(node.shape)})"
        yield f"{node.node} ({_place(node)}): {node.reason}{shape}{_why_kept(node)}"


def _beyond_by_reason(nodes: Sequence[NodeBeyond]) -> Iterator[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        reasons.setdefault((f"{node.op_type}: {node.reason}", _why_kept(node)), []).append(
            node.node
        )
    for (reason, why_kept), names in reasons.items():
        more = f" and {len(names) - _NODES:,} more" if len(names) > _NODES else ""
        yield f"{reason}: {', '.join(names[:_NODES])}{more}{why_kept}"


def _why_kept(node: NodeBeyond) -> str:
    return "" if node.kept is None else f"; the chain stays: {node.kept}"


def _place(node: NodeBeyond) -> str:
    return node.op_type if node.graph == "main graph" else f"{node.op_type} in {node.graph}"


def how_to_run(console: Console, model: Path) -> None:
    """Print lines of Python that run a model of mode "custom-op"."""
    console.print("run it in Python with:")
    for line in (
        "import onnxruntime, onnx_spatial",
        "options = onnxruntime.SessionOptions(); onnx_spatial.custom_ops.register(options)",
        f"session = onnxruntime.InferenceSession({str(model)!r}, options)",
    ):
        console.print(f"    {line}", soft_wrap=True)


def verification(
    console: Console,
    result: object,
    operators: Sequence[OperatorReport] = (),
    *,
    verbose: bool,
) -> None:
    """Print the verdict in one sentence and what is not proven; more with -v or if something differs.

    `operators` are those of the conversion, if it is known: their lowerings are named.
    """
    if not isinstance(result, Verification):
        return
    message = result.message.removeprefix(f"{result.status}: ")
    say(console, message, badge=_VERDICTS[result.status])
    lines = [
        p for p in result.problems if not message.startswith(p) and f"; and {p}" not in message
    ]
    if not result.problems:
        others = [each for each in result.unproven if str(each) not in message]
        lines = _by_reason("not proven", ((each.node, each.reason) for each in others))
    say_first(console, lines, None if verbose else _PROBLEMS)
    for line in _explanation(result, operators):
        say(console, f"  {line}")
    for note in result.notes:
        if note not in message:
            say(console, f"  {note}")
    if verbose and result.operators:
        _checked_operators(console, result.operators)
        assumptions(console, [vars(operator) for operator in result.operators])
    if verbose or result.status == "failed":
        _outputs(console, result, verbose=verbose)


def _explanation(result: Verification, operators: Sequence[OperatorReport]) -> Iterator[str]:
    """Yield where two models begin to differ, how to see it again, and what to do."""
    differing = {(o.graph, o.node) for o in result.operators if o.counterexample is not None}
    advice = [_other_way(o) for o in operators if (o.graph, o.node) in differing]
    first, shown = result.first_value, result.first_difference
    if first is not None and not (shown and (shown.kind, shown.name) == ("value", first.name)):
        value = f"{first.name!r} {show(first.shape)}"
        node = f"{first.op_type} node {first.node!r} ({first.graph})"
        yield f"the first value that differs is {value}, of {node}: {first.reason}"
    if result.reproducer is not None:
        yield f"reproduce it with: python {result.reproducer}"
    if advice:
        yield from dict.fromkeys(advice)
    elif result.advice is not None:
        yield f"what to do: {result.advice}"


def _other_way(operator: OperatorReport) -> str:
    """Name the lowering of an operator that differs, and another one that is possible for it."""
    others = [c.lowering for c in operator.candidates if c.lowering != operator.lowering]
    fused = operator.action == "fuse" or operator.absorbed
    advice = "--no-fuse" if fused else f"--prefer {others[0]}" if others else ""
    what = f"'{operator.node}' was converted by {operator.action}: {operator.lowering}"
    return one_line(f"{what}; {f'try {advice}, and ' if advice else 'please '}report it")


def _by_reason(state: str, reasons: Iterable[tuple[str, str]]) -> list[str]:
    """Return one line for each reason: "a, b and 12 more are not fused: the reason"."""
    return [
        f"{listed(names)} {'is' if len(names) == 1 else 'are'} {state}: {reason}"
        for reason, names in names_by_sentence(reasons).items()
    ]


def _checked_operators(console: Console, checked: Sequence[OperatorResult]) -> None:
    """Print what is proven of each operator, and whether it ran; as a list where no table fits."""
    columns: dict[str, list[str | Text]] = {
        "node": [operator.node for operator in checked],
        "operator": [operator.op_type for operator in checked],
        "proven": [o.proven or ("" if o.unproven is None else o.unproven.kind) for o in checked],
        "ran": [_run(operator) for operator in checked],
    }
    print_table(console, columns)


def _run(operator: OperatorResult) -> str:
    if operator.counterexample is not None:
        return "DIFFERS"
    return "agrees" if operator.ran else operator.reason or ""


def assumptions(console: Console, checked: Sequence[Mapping[str, Any]]) -> None:
    """Print what the proofs of operators assume, each with the operators that it is assumed for."""
    proven = sum(bool(operator["assumptions"]) for operator in checked)
    assumed = ((operator["node"], text) for operator in checked for text in operator["assumptions"])
    for assumption, nodes in names_by_sentence(assumed).items():
        which = "" if len(nodes) == proven else f" (for {listed(nodes)})"
        say(console, "  " + one_line(f"assumed: {assumption}{which}"))


def _outputs(console: Console, result: Verification, *, verbose: bool) -> None:
    """Print a table of the outputs that differ, with `verbose` of all; narrow if it does not fit."""
    differing = [output for output in result.outputs if not output.passed]
    # Of each output the largest error tells most.
    worst: dict[str, OutputResult] = {}
    for output in sorted(differing, key=lambda o: -(o.max_relative_error or 0)):
        worst.setdefault(output.name, output)
    rows = result.outputs if verbose else list(worst.values())[:_PROBLEMS]
    if not rows:
        return
    print_table(console, _output_columns(rows), spare=("mean", "99 %", "apart"))
    if len(rows) < len(result.outputs):
        more = f"{len(differing)} of {len(result.outputs)} comparisons of outputs differ"
        say(console, f"{more} (-v shows all)")


def _output_columns(outputs: Sequence[OutputResult]) -> dict[str, list[str | Text]]:
    results = {True: "ok", False: "DIFFERS", None: "not compared"}
    return {
        "output": [output.name for output in outputs],
        "type": [output.dtype for output in outputs],
        "shape": [show(output.shape) for output in outputs],
        "optimised": ["yes" if output.optimised else "no" for output in outputs],
        "largest error": [_largest_error(output) for output in outputs],
        "mean": [_amount(output.mean_relative_error) for output in outputs],
        "99 %": [_amount(output.p99_relative_error) for output in outputs],
        "apart": [_ulp(output.max_steps) for output in outputs],
        "allowed": [_allowed(output) for output in outputs],
        "result": [results[output.passed] for output in outputs],
    }


def _largest_error(output: OutputResult) -> str:
    error = output.max_relative_error
    return "equal bits" if output.equal_bits else "?" if error is None else f"{error:.1e}"


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
