"""Time whole models, converted by this package and by tf2onnx.

    python -m benchmarks.nets --build FOLDER                     write models (needs tf2onnx)
    python -m benchmarks.nets --models FOLDER [--models FOLDER]  time the models in folders

A folder holds for each NAME `NAME.onnx` with spatial operators, `NAME.npz` with its input x and
TensorFlow's output y, and `NAME.tf2onnx-default.onnx`, which tf2onnx writes by default, without spatial
operators. Whole runs on x are timed, in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import onnx

import onnx_spatial
from benchmarks import peers, results, timing, zoo
from benchmarks.results import Record
from benchmarks.zoo import DEFAULT

Array = npt.NDArray[Any]

RESULTS = Path("docs/performance/nets.json")
#: Convolutions sum in another order; an element in a wrong place differs by about 1.
TOLERANCE = 1e-3


def measure(path: Path, threads: int, seconds: float) -> Record:
    """Time whole runs of a model in each form, in microseconds."""
    with np.load(path.with_suffix(".npz")) as stored:
        x, y = stored["x"], stored["y"]
    models: dict[str, onnx.ModelProto] = {}
    notes: dict[str, str] = {}
    for fuse in (True, False):
        name = "ours" if fuse else "ours, not fused"
        models[name] = onnx_spatial.convert(path, fuse=fuse, verify=False).model
    if models["ours"].SerializeToString() == models["ours, not fused"].SerializeToString():
        del models["ours, not fused"]
    models["tf2onnx"] = onnx.load(path.with_name(path.stem + DEFAULT))
    runs: dict[str, Callable[[], object]] = {}
    for name, model in models.items():
        try:
            session = timing.session(model.SerializeToString(), threads)
        except Exception as error:  # onnxruntime raises a class for each of its codes
            if name != "tf2onnx":
                raise
            notes[name] = f"onnxruntime does not load it: {str(error).splitlines()[0][:200]}"
            continue
        data = session.get_inputs()[0].name
        (output,) = session.run(None, {data: x})
        difference = float(np.max(np.abs(output.astype(np.float64) - y), initial=0))
        scale = max(1.0, float(np.max(np.abs(y), initial=0)))
        if output.shape != y.shape or not difference <= TOLERANCE * scale:
            if name != "tf2onnx":
                raise timing.DisagreementError(f"{path.stem}: the output of {name} differs")
            notes[name] = "its output differs from TensorFlow's"
        runs[name] = timing.repeatable(session, {data: x})
    us = results.rounded(timing.wall(runs, seconds))
    return {"net": path.stem, "input": list(x.shape), "threads": threads, "us": us, "notes": notes}


def models_in(folders: Iterable[Path]) -> list[Path]:
    """Return the models in folders, sorted by name."""
    return sorted(
        path
        for folder in folders
        for path in folder.glob("*.onnx")
        if not path.name.endswith(DEFAULT) and path.with_suffix(".npz").exists()
    )


@click.command(help=__doc__.split("\n\n")[0] if __doc__ else None)
@click.option(
    "--build",
    "target",
    type=click.Path(path_type=Path),
    help="Write the models of `zoo` to this folder.",
)
@click.option(
    "--models",
    "folders",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    help="Time the models in this folder.",
)
@click.option(
    "--threads", type=click.IntRange(1), multiple=True, help="Number of threads (default: 1 and 2)."
)
@click.option("--seconds", type=float, default=4, show_default=True, help="Time per model.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
def main(
    target: Path | None,
    folders: tuple[Path, ...],
    threads: tuple[int, ...],
    seconds: float,
    output: Path,
) -> None:
    """Build the models, or measure and write the results."""
    if (target is None) == (not folders):
        raise click.UsageError("give either --build FOLDER or --models FOLDER")
    if target is not None:
        if reason := peers.missing("tf2onnx"):
            raise click.UsageError(reason)
        zoo.build(target)
        return
    load = results.warn_of_load()
    records = []
    for count in threads or (1, 2):
        for path in models_in(folders):
            record = measure(path, count, seconds)
            records.append(record)
            figures = "  ".join(f"{name} {us / 1000:.2f} ms" for name, us in record["us"].items())
            notes = "  ".join(f"{name} {note}" for name, note in record["notes"].items())
            click.echo(f"{count} t  {path.stem}: {figures}  {notes}", err=True)
    results.write(output, records, seconds=seconds, load=load)
    click.echo(f"{output}: {len(records)} figures", err=True)


if __name__ == "__main__":
    main()
