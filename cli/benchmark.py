"""Print the figures of `bench`: the whole model, then every lowering of each operator."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from onnx_spatial.benchmark import Benchmark, LoweringTime, SiteTime
from onnx_spatial.cli.text import fits, say
from onnx_spatial.errors import one_line
from onnx_spatial.operators.shapes import show as show_shape
from onnx_spatial.report.figures import count, duration


def show(console: Console, found: Benchmark) -> None:
    """Print what was measured."""
    name = found.inspection.model
    if not found.models:
        say(console, f"{name}: no operators to convert, nothing to measure")
        return
    say(console, f"{name}: {_machine(found)}")
    ran = ", ".join(f"{one_line(n)} {show_shape(a.shape)}" for n, a in found.inputs.items())
    console.print(_whole(found, f"whole model on {ran}" if ran else "whole model"))
    for reason in dict.fromkeys(f"{m.form}: {m.reason}" for m in found.models if m.reason):
        say(console, one_line(reason))
    if not found.sites:
        return
    console.print()
    table = _sites(found)
    if fits(console, table):
        console.print(table)
    else:
        _list(console, found)


def _machine(found: Benchmark) -> str:
    of = found.machine
    return f"{of['processor']}, {count(int(of['cores']), 'core')}, onnxruntime {of['onnxruntime']}"


def _threads(number: int) -> str:
    return "all threads" if number == 0 else count(number, "thread")


def _whole(found: Benchmark, title: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(title, overflow="fold")
    for number in found.threads:
        table.add_column(_threads(number), justify="right", no_wrap=True)
    times = {(m.form, m.threads): m.time_us for m in found.models}
    for form in dict.fromkeys(m.form for m in found.models):
        cells = []
        for number in found.threads:
            time, base = times.get((form, number)), times.get(("converted", number))
            ratio = f" ({time / base:.2f}x)" if time and base and form != "converted" else ""
            cells.append(f"{duration(time) or '-'}{ratio}")
        table.add_row(form, *cells)
    return table


def _sites(found: Benchmark) -> Table:
    """Make a table with a row for each lowering; * marks the one that `convert` uses."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("node", "operator", "type", "input", "lowering"):
        table.add_column(name, no_wrap=True)
    for name in ("estimated", *map(_threads, found.threads)):
        table.add_column(name, justify="right", no_wrap=True)
    for site in found.sites:
        known = [one_line(site.site.node), site.site.op_type, *_data(site)]
        for way in site.ways:
            table.add_row(*known, _name(site, way), *_figures(found, way))
            known = [""] * len(known)
    return table


def _list(console: Console, found: Benchmark) -> None:
    """Print a list where a table does not fit."""
    heads = ["estimated", *map(_threads, found.threads)]
    for site in found.sites:
        console.print(Text(one_line(site.site.node), "bold"), soft_wrap=True)
        console.print("   ", site.site.op_type, *_data(site), soft_wrap=True)
        for way in site.ways:
            pairs = zip(heads, _figures(found, way), strict=True)
            figures = ", ".join(f"{head} {figure}" for head, figure in pairs)
            console.print("    ", _name(site, way), f": {figures}", sep="", soft_wrap=True)


def _data(site: SiteTime) -> tuple[str, str]:
    described = site.to_dict()
    if site.given is None:
        return "?", "?"
    return str(described["element_type"]), show_shape(site.given.shape)


def _name(site: SiteTime, way: LoweringTime) -> Text:
    taken = way.strategy == site.site.strategy
    return Text(f"{way.strategy} *" if taken else way.strategy, "green" if taken else "")


def _figures(found: Benchmark, way: LoweringTime) -> list[str]:
    # The time of what is around it is subtracted, which may leave nothing.
    times = [way.measured_us.get(t) for t in found.threads]
    measured = ["too short" if time == 0 else duration(time) or "-" for time in times]
    return [f"~{duration(way.estimated_us)}", *measured]
