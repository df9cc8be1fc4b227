"""Time what operators are lowered to, next to the alternatives, over a grid of shapes.

    python -m benchmarks.lowering                    the grid, 1 and 2 threads: about 25 minutes
    python -m benchmarks.lowering --quick            a few small cells, 1 thread: about a minute
    python -m benchmarks.report                      tables and plots of docs/internals

Run it from the root of the checkout, on a machine that does nothing else. `grid` says which shapes,
`timing` how time is taken, `peers` what the alternatives are; `pip install -e '.[bench]'` installs
those that need it, what is not installed is left out.

Every form's output is compared with the expected one, element by element, before it is timed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import onnx

from benchmarks import forms, grid, peers, results, timing
from benchmarks.grid import Cell
from benchmarks.results import Record

RESULTS = Path("docs/performance/lowering.json")
#: What a run-time size costs is of interest where data has some size.
DYNAMIC_FROM = 1 << 20


def measure(
    cell: Cell,
    threads: int,
    seconds: float,
    workers: Mapping[str, peers.Worker] | None = None,
    converted: bytes | str | None = None,
) -> Record:
    """Everything that is known of one cell, in microseconds.

    Args:
        cell: what to measure.
        threads: of every library.
        seconds: for each of: onnxruntime's models together, numpy together, each worker.
        workers: processes that run peers.
        converted: what tf2onnx makes of it, or why it does not.

    Raises:
        DisagreementError: a form gives other numbers than the operator means.
    """
    x = cell.data()
    expected = cell.kernel(x)
    chosen = forms.chosen(cell)
    notes: dict[str, str] = {}
    models = {"textbook": forms.textbook(cell), "ours": forms.model_of(chosen, cell)}
    if expected.nbytes >= DYNAMIC_FROM:
        lowered = forms.chosen(cell, dynamic=True)
        models["dynamic"] = forms.model_of(lowered, cell, dynamic=True)
    same = {models["ours"].SerializeToString(): "ours"}
    candidates: dict[str, str] = {}  # name -> the model that stands for it
    for name, candidate in forms.candidates(cell).items():
        model = forms.model_of(candidate, cell)
        key = same.setdefault(model.SerializeToString(), f"candidate {name}")
        candidates[name] = key
        models.setdefault(key, model)
    if isinstance(converted, bytes):
        models["tf2onnx"] = _renamed(onnx.load_model_from_string(converted))
    elif converted is not None:
        notes["tf2onnx"] = converted
    found = timing.profile(models, {"x": x}, threads, seconds, expected)
    us = {name: each.microseconds for name, each in found.items()}
    us |= peers.floor(cell, x, expected, seconds / 4)
    for name, worker in (workers or {}).items():
        answer = worker(cell, seconds / 4)
        if isinstance(answer, float):
            us[name] = answer
        else:
            notes[name] = answer
    return {
        "cell": cell.name,
        "group": cell.group,
        "channels": cell.channels,
        "dtype": cell.dtype,
        "bytes": expected.nbytes,
        "threads": threads,
        "strategy": chosen.strategy,
        "us": results.rounded({k: v for k, v in us.items() if not k.startswith("candidate ")}),
        "candidates": results.rounded({name: us[key] for name, key in candidates.items()}),
        "kinds": found["ours"].by_kind,
        "notes": notes,
    }


def _renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """tf2onnx's model with the output called y."""
    old = model.graph.output[0].name
    for node in model.graph.node:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if name == old:
                    names[index] = "y"
    model.graph.output[0].name = "y"
    return model


def run(
    cells: Sequence[Cell], threads: Sequence[int], seconds: float, wanted: Sequence[str]
) -> list[Record]:
    """Measure cells; a cell that fails has an "error" instead of figures."""
    absent = {name: reason for name in wanted if (reason := peers.missing(name))}
    for reason in absent.values():
        click.echo(reason, err=True)
    present = [name for name in wanted if name not in absent]
    converter = peers.Worker("tf2onnx", 1) if "tf2onnx" in present else None
    converted = {cell: converter(cell, 0) for cell in cells} if converter else {}
    if converter:
        converter.close()
    records = []
    start = time.perf_counter()
    for count in threads:
        workers = {name: peers.Worker(name, count) for name in present if name != "tf2onnx"}
        for number, cell in enumerate(cells, start=1):
            try:
                record = measure(cell, count, seconds, workers, converted.get(cell))
            except Exception as error:  # one cell must not cost the others
                record = {"cell": cell.name, "group": cell.group, "threads": count}
                record["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            records.append(record)
            _show(record, f"{number}/{len(cells)}", time.perf_counter() - start)
        for worker in workers.values():
            worker.close()
    return records


def _show(record: Record, place: str, passed: float) -> None:
    said = record.get("error")
    if said is None:
        us: dict[str, Any] = record["us"]
        said = f"{us['ours']:.0f} us {record['strategy']}, textbook {us['textbook']:.0f}"
        said += f", best {min(record['candidates'].values()):.0f}, copy {us['copy']:.0f}"
    click.echo(
        f"{passed:5.0f} s  {place}  {record['threads']} t  {record['cell']}: {said}", err=True
    )


@click.command(help=__doc__.split("\n\n")[0] if __doc__ else None)
@click.option("--quick", is_flag=True, help="A few small cells, one thread.")
@click.option("--threads", type=click.IntRange(1), multiple=True, help="Default: 1 and 2.")
@click.option("--seconds", type=float, default=0.5, show_default=True, help="Per cell and library.")
@click.option("--only", default="", help="Only cells whose name holds this text.")
@click.option(
    "--peer",
    "chosen",
    type=click.Choice(sorted(peers.NEEDS)),
    multiple=True,
    help="Only these peers. Default: all that are installed.",
)
@click.option("--no-peers", is_flag=True, help="onnxruntime and numpy only.")
@click.option("--list", "listing", is_flag=True, help="Name the cells and end.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help=f"Default: {RESULTS}.")
def main(
    quick: bool,
    threads: tuple[int, ...],
    seconds: float,
    only: str,
    chosen: tuple[str, ...],
    no_peers: bool,
    listing: bool,
    output: Path | None,
) -> None:
    """Measure and write the results."""
    cells = [cell for cell in (grid.quick() if quick else grid.full()) if only in cell.name]
    if not cells:
        raise click.UsageError(f"no cell's name holds {only!r}")
    if listing:
        for cell in cells:
            click.echo(cell.name)
        return
    if output is None:
        if quick or only:
            raise click.UsageError("say with -o where the results of a part are to go")
        output = RESULTS
    wanted = () if no_peers else chosen or tuple(peers.NEEDS)
    load = results.warn_of_load()
    records = run(cells, threads or ((1,) if quick else (1, 2)), seconds, wanted)
    results.write(output, records, seconds=seconds, load=load)
    click.echo(f"{output}: {len(records)} cells", err=True)
    if any("error" in record for record in records):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
