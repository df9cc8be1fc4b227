"""Time lowerings and their alternatives over a grid of shapes.

    python -m benchmarks.lowering                    the grid, 1 and 2 threads: about 25 minutes
    python -m benchmarks.lowering --quick            a few small cells, 1 thread: about a minute
    python -m benchmarks.gains                       the page that is made of them

Run it from the root of the checkout, on an idle machine. `grid` chooses the shapes, `timing` measures,
and `peers` runs the alternatives. `pip install -e '.[bench]'` installs these; missing ones are skipped.

Every output is compared with the expected one, element by element, before it is timed.
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
#: Least bytes of an output for which the lowering for unknown sizes is measured, too.
DYNAMIC_FROM = 1 << 20


def measure(
    cell: Cell,
    threads: int,
    seconds: float,
    workers: Mapping[str, peers.Worker] | None = None,
    converted: bytes | str | None = None,
) -> Record:
    """Measure a cell with every lowering and alternative, in microseconds.

    Args:
        cell: the cell.
        threads: number of threads of every library.
        seconds: time for all of onnxruntime's models; numpy and each worker get a quarter of it.
        workers: processes that run peers.
        converted: tf2onnx's model, or why there is none.

    Raises:
        DisagreementError: an output differs from the operator's.
    """
    x = cell.data()
    expected = cell.kernel(x)
    chosen = forms.chosen(cell)
    notes: dict[str, str] = {}
    models = {"textbook": forms.textbook(cell), "ours": forms.model_of(chosen, cell)}
    convolution = forms.one_hot(cell)
    if convolution is not None:
        models["one-hot"] = convolution
    if expected.nbytes >= DYNAMIC_FROM:
        lowered = forms.chosen(cell, dynamic=True)
        models["dynamic"] = forms.model_of(lowered, cell, dynamic=True)
    same = {models["ours"].SerializeToString(): "ours"}
    candidates: dict[str, str] = {}  # name of a lowering -> name of its model
    for name, candidate in forms.candidates(cell).items():
        model = forms.model_of(candidate, cell)
        key = same.setdefault(model.SerializeToString(), f"candidate {name}")
        candidates[name] = key
        models.setdefault(key, model)
    if isinstance(converted, bytes):
        models["tf2onnx"] = _renamed(onnx.load_model_from_string(converted))
    elif converted is not None:
        notes["tf2onnx"] = converted
    profiles = timing.profile(models, {"x": x}, threads, seconds, expected)
    us = {name: each.microseconds for name, each in profiles.items()}
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
        "kinds": profiles["ours"].by_kind,
        "notes": notes,
    }


def _renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Rename the output of tf2onnx's model to y."""
    old = model.graph.output[0].name
    for node in model.graph.node:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if name == old:
                    names[index] = "y"
    model.graph.output[0].name = "y"
    return model


def run(
    cells: Sequence[Cell], threads: Sequence[int], seconds: float, names: Sequence[str]
) -> list[Record]:
    """Measure cells with the peers of these names; a cell that fails has an "error" in its record."""
    absent = {name: reason for name in names if (reason := peers.missing(name))}
    for reason in absent.values():
        click.echo(reason, err=True)
    present = [name for name in names if name not in absent]
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
            except Exception as error:  # the other cells are measured all the same
                record = {"cell": cell.name, "group": cell.group, "threads": count}
                record["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            records.append(record)
            _show(record, f"{number}/{len(cells)}", time.perf_counter() - start)
        for worker in workers.values():
            worker.close()
    return records


def _show(record: Record, place: str, passed: float) -> None:
    text = record.get("error")
    if text is None:
        us: dict[str, Any] = record["us"]
        text = f"{us['ours']:.0f} us {record['strategy']}, textbook {us['textbook']:.0f}"
        text += f", best {min(record['candidates'].values()):.0f}, copy {us['copy']:.0f}"
    click.echo(
        f"{passed:5.0f} s  {place}  {record['threads']} t  {record['cell']}: {text}", err=True
    )


@click.command(help=__doc__.split("\n\n")[0] if __doc__ else None)
@click.option("--quick", is_flag=True, help="Measure a few small cells with one thread.")
@click.option(
    "--threads", type=click.IntRange(1), multiple=True, help="Number of threads (default: 1 and 2)."
)
@click.option(
    "--seconds", type=float, default=0.5, show_default=True, help="Time per cell and library."
)
@click.option("--only", default="", help="Measure only cells whose name contains this text.")
@click.option(
    "--peer",
    "chosen",
    type=click.Choice(sorted(peers.NEEDS)),
    multiple=True,
    help="Measure only these peers (default: all that are installed).",
)
@click.option("--no-peers", is_flag=True, help="Measure onnxruntime and numpy only.")
@click.option("--list", "listing", is_flag=True, help="List the cells and exit.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help=f"Write to this file (default: {RESULTS}).",
)
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
        raise click.UsageError(f"no cell has a name with {only!r}")
    if listing:
        for cell in cells:
            click.echo(cell.name)
        return
    if output is None:
        if quick or only:
            raise click.UsageError("--quick and --only require -o FILE")
        output = RESULTS
    names = () if no_peers else chosen or tuple(peers.NEEDS)
    load = results.warn_of_load()
    records = run(cells, threads or ((1,) if quick else (1, 2)), seconds, names)
    results.write(output, records, seconds=seconds, load=load)
    click.echo(f"{output}: {len(records)} cells", err=True)
    if any("error" in record for record in records):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
