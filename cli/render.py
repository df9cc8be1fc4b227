"""Print results as tables and sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from onnx_spatial.api import Conversion, Inspection
from onnx_spatial.conversion.options import STRATEGY_NAMES
from onnx_spatial.conversion.report import Site
from onnx_spatial.errors import one_line
from onnx_spatial.lowering import Candidate
from onnx_spatial.operators import Dim
from onnx_spatial.operators.shapes import show
from onnx_spatial.verification import OutputResult, Verification

_STYLES = {
    "lower": "green",
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
    if not found.sites:
        todo = "" if found.chains else ", nothing to do"
        console.print(f"{found.model}: no spatial operators{todo}", soft_wrap=True)
        chains(console, found)
        return
    opset = "no opset" if found.opset is None else f"opset {found.opset}"
    domains = ", ".join(dict.fromkeys(repr(site.domain) for site in found.sites if site.spatial))
    spatial = sum(site.spatial for site in found.sites)
    what = [f"{_count(spatial, 'spatial operator')} in domain {domains}"] if spatial else []
    if refused := len(found.sites) - spatial:
        what.append(f"{_count(refused, 'convolution')} that onnxruntime refuses")
    console.print(
        f"{found.model}: {', '.join(what)}, {opset}, IR {found.ir_version}", soft_wrap=True
    )
    sites(console, found.sites, verbose=verbose)
    chains(console, found)


def chains(console: Console, found: Inspection) -> None:
    """Print a table of the chains of standard nodes, and in one line what `optimize` does with them."""
    if found.summary is not None:
        console.print("chains of standard nodes that are spatial operators:")
        sites(console, found.chains)
        console.print(f"optimize: {found.summary}", soft_wrap=True)


def sites(console: Console, found: list[Site], *, verbose: bool = False) -> None:
    """Print a table of operators, or a list where a table does not fit, and the reasons below it.

    Times are shown where there is room; with `verbose` those of the alternatives below the table.
    """
    found = [_printable(site) for site in found]
    timed = any(site.estimated_us is not None for site in found)
    tables = (_table(found, times=times) for times in ([True, False] if timed else [False]))
    table = next((t for t in tables if fits(console, t)), None)
    if table is not None:
        console.print(table)
    else:
        for site in found:
            console.print(Text(site.node, "bold"), soft_wrap=True)
            if site.graph != "main graph":
                console.print(f"    in {site.graph}", soft_wrap=True)
            if site.function is not None:
                console.print(f"    calls {site.function}", soft_wrap=True)
            console.print(
                f"    {site.op_type} {site.element_type or '?'} {_shape(site.input_shape)} -> "
                f"{_shape(site.output_shape)}",
                soft_wrap=True,
            )
            size = ", ".join(filter(None, (_count(site.nodes_after, "node"), _time(site))))
            console.print("   ", _action(site), f"({size})")
    for site in found:
        if site.reason is not None:
            what = "cannot be converted" if site.action == "refuse" else "is not converted"
            console.print(f"{site.node} {what}: {site.reason}", soft_wrap=True)
        for declined in site.declined:
            console.print(f"{site.node} is not fused: {one_line(declined)}", soft_wrap=True)
    if verbose:
        for site in found:
            if len(site.candidates) > 1:
                each = ", ".join(map(_candidate, site.candidates))
                console.print(f"lowerings of {site.node}: {each}", soft_wrap=True)


def fits(console: Console, table: Table) -> bool:
    """Return whether a table fits into the width without folding a cell."""
    boundless = console.options.update_width(100_000)
    return console.measure(table, options=boundless).maximum <= console.width


def _printable(site: Site) -> Site:
    """Escape control characters in names, which could move the cursor of a terminal."""
    texts = {k: one_line(v) for k, v in vars(site).items() if isinstance(v, str)}
    return replace(site, **texts)  # type: ignore[arg-type]


def _table(found: list[Site], *, times: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    nested = any(site.graph != "main graph" for site in found)
    called = any(site.function is not None for site in found)
    extra = [*(["in"] if nested else []), *(["function"] if called else [])]
    for name in ("node", "operator", *extra, "type", "input", "output"):
        table.add_column(name, no_wrap=True)
    table.add_column("action", no_wrap=True)
    table.add_column("nodes", justify="right", no_wrap=True)
    if times:
        table.add_column("time", justify="right", no_wrap=True)
    for site in found:
        row = [
            site.node,
            site.op_type,
            *([site.graph] if nested else []),
            *([site.function or ""] if called else []),
            site.element_type or "?",
            _shape(site.input_shape),
            _shape(site.output_shape),
        ]
        time = [_time(site)] if times else []
        table.add_row(*row, _action(site), str(site.nodes_after), *time)
    return table


def duration(us: float | None) -> str:
    """Format microseconds with three digits; None is empty."""
    if us is None:
        return ""
    unit, size = ("s", 1e6) if us >= 1e6 else ("ms", 1e3) if us >= 1e3 else ("us", 1.0)
    number = us / size
    return f"{number:.{2 if number < 10 else 1 if number < 100 else 0}f} {unit}"


def _time(site: Site | Candidate) -> str:
    """Format the measured time of a lowering, or its estimated time with a ~."""
    if site.measured_us is not None:
        return duration(site.measured_us)
    return "" if site.estimated_us is None else f"~{duration(site.estimated_us)}"


def _candidate(candidate: Candidate) -> str:
    measured = candidate.measured_us is not None
    estimate = f", estimated {duration(candidate.estimated_us)}" if measured else ""
    return f"{candidate.strategy} ({_time(candidate)}{estimate})"


def _action(site: Site) -> Text:
    action = site.action if site.strategy is None else f"{site.action}: {site.strategy}"
    if site.absorbed:
        action += f" with {_absorbed([site])}"
    return Text(action, _STYLES[site.action])


def conversion(console: Console, result: Conversion, model: Path, *, verbose: bool) -> None:
    """Print what was converted, the verdict, and where the result is."""
    found = result.inspection.sites
    if not result.changed:
        why = "no operators to convert" if found else "no spatial operators"
        if found and all(site.action == "function" for site in found):
            why = "its operators call local functions already"
        console.print(f"{model}: {why}, nothing to do", soft_wrap=True)
        if found:
            sites(console, found)
    else:
        converted = [site for site in found if site.converted]
        console.print(f"{model}: {_done(converted)}", soft_wrap=True)
        for versions in result.touched.get("ir_version", ()):
            console.print(f"raised the IR version: {versions}")
        if verbose or len(converted) < len(found):
            sites(console, found, verbose=verbose)
    _verdict(console, result, verbose=verbose)


def _verdict(console: Console, result: Conversion, *, verbose: bool) -> None:
    """Print the verdict, and where the result is."""
    if result.verification is not None:
        verification(console, result.verification, verbose=verbose)
    elif result.changed:
        console.print("not verified (--no-verify)")
    if result.output is not None:
        what = "wrote" if result.changed else "copied byte for byte to"
        console.print(f"{what} {result.output}", soft_wrap=True)
    if result.backup is not None:
        console.print(f"the original is kept as {result.backup}", soft_wrap=True)


def optimization(console: Console, result: Conversion, model: Path, *, verbose: bool) -> None:
    """Print what was converted and rewritten, the verdict, and where the result is."""
    if result.inspection.summary is not None:
        console.print(f"{model}: {result.inspection.summary}", soft_wrap=True)
        if verbose:
            sites(console, result.inspection.chains)
    if result.inspection.sites or result.inspection.summary is None or not result.changed:
        conversion(console, result, model, verbose=verbose)
    else:
        _verdict(console, result, verbose=verbose)


def _done(converted: list[Site]) -> str:
    """Say what was converted, and what it became."""
    operators = [site for site in converted if site.spatial]
    parts = []
    if operators:
        parts.append(f"{_what(operators)} -> {_made(operators)}")
    if convolutions := len(converted) - len(operators):
        parts.append(f"{_count(convolutions, 'convolution')} -> explicit pads")
    return ", ".join(parts)


def _what(converted: list[Site]) -> str:
    """Count the operators, and the nodes between and around them that went with them."""
    parts = [_count(len(converted), "spatial operator")]
    if between := sum(len(site.between) for site in converted):
        parts.append(f"{_count(between, 'node')} between")
    absorbed = [site for site in converted if site.absorbed]
    if absorbed:
        parts.append(_absorbed(absorbed))
    *others, last = parts
    return f"{', '.join(others)} and {last}" if others else last


def _absorbed(found: list[Site]) -> str:
    """Count the nodes merged into operators; a lowering merges Transposes only."""
    lowered = all(site.strategy in STRATEGY_NAMES for site in found)
    noun = "Transpose" if lowered else "other node"
    return _count(sum(len(site.absorbed) for site in found), noun)


def _made(converted: list[Site]) -> str:
    """Count the nodes or functions that replaced the operators."""
    action = converted[0].action
    if action != "function":
        kind = "node" if action == "custom-op" else "standard node"
        return _count(sum(site.nodes_after for site in converted), kind)
    functions = {site.function: site.nodes_after for site in converted}
    nodes = _count(sum(functions.values()), "standard node")
    return f"calls of {_count(len(functions), 'local function')} ({nodes})"


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
    """Print the verdict in one line, and the figures with -v or if something differs."""
    if not isinstance(result, Verification):
        return
    word, style = _VERDICTS[result.status]
    message = result.message.removeprefix(f"{result.status}: ")
    console.print(Text(word, style).append(f"  {message}", "default"), soft_wrap=True)
    problems = [p for p in result.problems if not message.startswith(p)]
    shown = problems if verbose else problems[:_SHOWN]
    for problem in shown:
        console.print(f"  {problem}", soft_wrap=True)
    if len(shown) < len(problems):
        console.print(f"  and {len(problems) - len(shown)} more (-v shows them)", soft_wrap=True)
    for line in result.unsteady:
        console.print(f"  not compared: {line}", soft_wrap=True)
    first = result.first_value
    known = result.first_difference
    if first is not None and not (known and (known.kind, known.name) == ("value", first.name)):
        console.print(
            f"  the first value that differs is {first.name!r} {show(first.shape)}, of {first.op_type} "
            f"node {first.node!r} ({first.graph}): {first.reason}",
            soft_wrap=True,
        )
    if result.reproducer is not None:
        console.print(f"  reproduce it with: python {result.reproducer}", soft_wrap=True)
    if result.advice is not None:
        console.print(f"  what to do: {result.advice}", soft_wrap=True)
    for note in result.notes:
        if note not in message:
            console.print(f"  {note}", soft_wrap=True)
    if result.sites and result.status != "failed" and not result.outputs_only:
        console.print(f"  {result.proofs}", soft_wrap=True)
    if verbose:
        _checked_sites(console, result)
    if verbose or result.status == "failed":
        _outputs(console, result, verbose=verbose)


def _checked_sites(console: Console, result: Verification) -> None:
    if not result.sites:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("site", "operator", "compared", "elements", "result", "proven"):
        table.add_column(name, overflow="fold", justify="right" if name == "elements" else "left")
    for site in result.sites:
        passed = "bit for bit" if site.exact else "within tolerance"
        verdict = {True: passed, False: "DIFFERS", None: "end to end only"}[site.passed]
        how = ", ".join(site.how) or (site.reason or "")
        elements = sum(check.elements for check in site.checks)
        table.add_row(site.node, site.op_type, how, f"{elements:,}", verdict, site.proven or "")
    console.print(table)
    for site in result.sites:
        for check in site.checks:
            if check.skipped is not None:
                console.print(f"{site.node} not compared with {check.how}: {check.skipped}")
    proofs(console, [vars(site) for site in result.sites], result.sampled)


def proofs(
    console: Console, sites: Sequence[Mapping[str, Any]], others: Sequence[str] = ()
) -> None:
    """Print what the proofs of operators assume, and why operators and other nodes are not proven."""
    assuming: dict[str, list[str]] = {}
    for site in sites:
        for assumption in site["assumptions"]:
            assuming.setdefault(assumption, []).append(site["node"])
    proven = sum(bool(site["assumptions"]) for site in sites)
    lines = [
        f"assumed: {assumption}{'' if len(nodes) == proven else f' (for {listed(nodes)})'}"
        for assumption, nodes in assuming.items()
    ]
    reasons = [(s["node"], s["proof_reason"]) for s in sites if s["proof_reason"]]
    lines += [f"{node} is not proven: {reason}" for node, reason in reasons]
    for line in (*lines, *others):
        console.print("  " + one_line(line), soft_wrap=True)


def listed(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


#: Problems, and rows of outputs, that are shown without -v.
_SHOWN = 6
#: Larger distances in ulp are no figures that help.
_MOST_ULP = 1_000_000
#: Names in a list on the screen, at most.
_NAMES = 3


def _outputs(console: Console, result: Verification, *, verbose: bool) -> None:
    """Print a table of the outputs that differ, with `verbose` of all; narrow if it does not fit."""
    differing = [output for output in result.outputs if not output.passed]
    rows = result.outputs if verbose else differing[:_SHOWN]
    if not rows:
        return
    wide = _output_table(rows, wide=True)
    console.print(wide if fits(console, wide) else _output_table(rows, wide=False))
    if len(rows) < len(result.outputs):
        more = f"{len(differing)} of {len(result.outputs)} comparisons of outputs differ"
        console.print(f"{more} (-v shows all)", soft_wrap=True)


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
