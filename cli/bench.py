"""Define the command `onnx-spatial bench`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from onnx_spatial.cli import help, options
from onnx_spatial.cli.each_model import Progress, each_model
from onnx_spatial.cli.output import Output

if TYPE_CHECKING:
    from onnx_spatial.benchmark import Benchmark


@click.command(
    cls=help.Command,
    short_help="Time a model, its conversion and every lowering on this machine.",
    examples=("bench model.onnx", "bench model.onnx --shape x=1,512,512,3 --threads 1,4"),
)
@options.models_argument
@click.option(
    "--threads",
    metavar="N,N,...",
    default="1,0",
    show_default=True,
    help="Numbers of threads to measure with. 0 leaves the number to onnxruntime.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    default=0.3,
    show_default=True,
    metavar="S",
    help="Time to spend on each lowering and on each form of a model.",
)
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Measure this number of runs, instead of --seconds.",
)
@options.model_options
@options.data_options
@options.output_options
def bench(
    models: tuple[str, ...],
    threads: str,
    seconds: float,
    runs: int | None,
    model_options: dict[str, Any],
    data_options: dict[str, Any],
    output: Output,
) -> int:
    """Time each MODEL before and after conversion, and every lowering of each of its operators.

    The original runs with Python operators, which need onnxruntime-extensions. A lowering is timed
    between a node that produces its input and a node that reads its output; their time is
    subtracted.

    Exit code 3 if an operator cannot be converted, 2 if a file cannot be read.
    """
    from onnx_spatial import benchmark
    from onnx_spatial.cli import benchmark as tables
    from onnx_spatial.cli import data

    counts = _counts(threads)

    def measure(model: str, progress: Progress) -> Benchmark:
        return benchmark.bench(
            model,
            threads=counts,
            seconds=seconds,
            runs=runs,
            **model_options,
            **data.read_inputs(model, data_options),
            progress=progress,
        )

    return each_model(output, models, measure, lambda _, times: tables.show(output.out, times))


def _counts(text: str) -> list[int]:
    """Parse numbers of threads.

    Raises:
        click.UsageError: the text is something else.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(p.isascii() and p.isdigit() and len(p) < 5 for p in parts):
        raise click.UsageError(f"--threads must be numbers such as 1,4, not {text!r}")
    return list(dict.fromkeys(map(int, parts)))
