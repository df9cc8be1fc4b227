"""`onnx-spatial bench`"""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from onnx_spatial.benchmark import Benchmark, LoweringTime, SiteTime
from onnx_spatial.benchmark import bench as run_benchmark
from onnx_spatial.cli import data, options, render
from onnx_spatial.errors import one_line
from onnx_spatial.operators.shapes import show


@click.command(short_help="What a model and its lowerings cost on this machine.")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--threads",
    metavar="N,N,...",
    default="1,0",
    show_default=True,
    help="Threads to measure with; 0: as many as onnxruntime takes.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    default=0.3,
    show_default=True,
    metavar="S",
    help="Time to spend on each lowering and each form of a model.",
)
@click.option(
    "--runs", type=click.IntRange(min=1), metavar="N", help="Runs of each, instead of --seconds."
)
@options.model_options
@options.data_options
@options.output_options
@click.pass_context
def bench(
    context: click.Context,
    models: tuple[str, ...],
    threads: str,
    seconds: float,
    runs: int | None,
    domains: tuple[str, ...],
    static: tuple[str, ...],
    max_rank: int | None,
    shapes: tuple[str, ...],
    inputs: str | None,
    seed: int,
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Time each MODEL as it came, converted, and every lowering of each of its operators.

    The original is run with its operators in Python, where onnxruntime-extensions is installed.
    Operators are measured inside a net: the data comes from a node and goes to a node, whose time
    does not count. Exit code 3 if an operator could not be converted, 2 if a file could not be read.
    """
    output = options.start(context, as_json, quiet, verbose)
    counts = _counts(threads)
    sizes = options.sizes("--static", static)
    given = options.shapes("--shape", shapes)

    def look(model: str, progress: options.Progress) -> Benchmark:
        return run_benchmark(
            model,
            threads=counts,
            seconds=seconds,
            runs=runs,
            static=sizes,
            domains=domains,
            inputs=data.inputs(model, inputs),
            shapes=given,
            max_rank=max_rank,
            seed=seed,
            progress=progress,
        )

    return options.each_model(output, models, look, lambda found: _show(output.out, found))


def _counts(text: str) -> list[int]:
    """Numbers of threads.

    Raises:
        click.UsageError: the text is something else.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(p.isascii() and p.isdigit() and len(p) < 5 for p in parts):
        raise click.UsageError(f"--threads wants numbers like 1,4, not {text!r}")
    return list(dict.fromkeys(map(int, parts)))


def _show(console: Console, found: Benchmark) -> None:
    name = found.inspection.model
    if not found.models:
        console.print(f"{name}: no operators to convert, nothing to measure", soft_wrap=True)
        return
    console.print(f"{name}: {_machine(found)}", soft_wrap=True)
    ran = ", ".join(f"{one_line(n)} {show(a.shape)}" for n, a in found.inputs.items())
    console.print(_whole(found, f"whole model on {ran}" if ran else "whole model"))
    for reason in dict.fromkeys(f"{m.form}: {m.reason}" for m in found.models if m.reason):
        console.print(one_line(reason), soft_wrap=True)
    if not found.sites:
        return
    console.print()
    table = _sites(found)
    if render.fits(console, table):
        console.print(table)
    else:
        _list(console, found)


def _machine(found: Benchmark) -> str:
    of = found.machine
    return f"{of['processor']}, {of['cores']} cores, onnxruntime {of['onnxruntime']}"


def _threads(count: int) -> str:
    return "all threads" if count == 0 else f"{count} thread{'' if count == 1 else 's'}"


def _whole(found: Benchmark, title: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(title, overflow="fold")
    for count in found.threads:
        table.add_column(_threads(count), justify="right", no_wrap=True)
    times = {(m.form, m.threads): m.time_us for m in found.models}
    for form in dict.fromkeys(m.form for m in found.models):
        cells = []
        for count in found.threads:
            time, base = times.get((form, count)), times.get(("converted", count))
            ratio = f" ({time / base:.2f}x)" if time and base and form != "converted" else ""
            cells.append(f"{render.duration(time) or '-'}{ratio}")
        table.add_row(form, *cells)
    return table


def _sites(found: Benchmark) -> Table:
    """One line per lowering; * marks the one that `convert` takes."""
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
    """The same where a table does not fit."""
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
    return str(described["element_type"]), show(site.given.shape)


def _name(site: SiteTime, way: LoweringTime) -> Text:
    taken = way.strategy == site.site.strategy
    return Text(f"{way.strategy} *" if taken else way.strategy, "green" if taken else "")


def _figures(found: Benchmark, way: LoweringTime) -> list[str]:
    measured = [render.duration(way.measured_us.get(t)) or "-" for t in found.threads]
    return [f"~{render.duration(way.estimated_us)}", *measured]
