"""Fit the prices of the cost model to lowerings that are measured on this machine.

    python -m benchmarks.fit_prices --seconds 1200          writes onnx_spatial/lowering/prices.json

The time of a lowering is the sum over its nodes of (amount of a feature) x (its price in the node's
regime), as `onnx_spatial.lowering.cost_model` defines them. The lowerings of random operators are
timed inside a net with one thread and with two, and the prices fitted, none below zero; a price that few
samples depend on stays what it is in the file. Run it on an idle machine, for ten minutes or more.

The printed table has the error of the estimates, |log(estimate / measured)|, on every fifth sample,
which is not fitted to: with the prices in the file, and with the new ones.
"""

import json
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime
from building import TF
from onnx import TensorProto, helper

from benchmarks import forms, grid, results, timing
from onnx_spatial import lowering
from onnx_spatial.lowering import Request, cost_model
from onnx_spatial.lowering.cost_model import Features, Work
from onnx_spatial.operators import ExtractPatches
from onnx_spatial.operators.spellings import FixedCall, InputFacts, NodeFacts, read

Array = npt.NDArray[np.float64]
#: Regime -> prices of its features, with one thread and with two.
Prices = dict[str, list[Features]]

PRICES = Path(cost_model.__file__).parent / "prices.json"
THREADS = (1, 2)
#: Seconds to time the lowerings of one operator, and how many of them.
CELL_SECONDS, MAX_LOWERINGS = 0.12, 8
#: A lowering that is estimated to take this much longer than the fastest is not timed.
MAX_SLOWNESS = 3
#: Nanoseconds of a Reshape or a sum of sizes, and the least of any node: measured with 40 in a run.
SMALL_NS = 450.0
#: Error of a measured time, in nanoseconds, beside that in proportion to it.
BLUR_NS = 2000.0
#: Errors of estimates, as logarithms: smaller ones count alike; samples with larger ones not at all.
GOOD_ERROR, HOPELESS_ERROR = 0.1, 1.2
#: Samples that a price must outweigh to leave its present value.
INERTIA = 1.0
#: Steps in which the samples are weighted by their errors.
FIT_STEPS = 12


def request(cell: grid.Cell) -> Request:
    """Return what a lowering is asked for: the operator of a cell, with known sizes."""
    element_type = int(helper.np_dtype_to_tensor_dtype(np.dtype(cell.dtype)))
    data = InputFacts(cell.dtype, cell.input_shape)
    if isinstance(cell.kernel, ExtractPatches):
        call = FixedCall(cell.kernel, "tensorflow")
    else:
        tables = (InputFacts.of(np.array(a)) for a in (cell.block_shape, cell.all_pairs))
        call = read(NodeFacts(f"{cell.operator}ND", TF, (data, *tables)))
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType(element_type)))
    x.shape = ir.Shape(cell.input_shape)
    types = (element_type, int(TensorProto.INT64), int(TensorProto.INT64))
    known = (cell.input_shape, frozenset({element_type}), types, forms.OPSET)
    return Request(call, (x, None, None), *known)


def works(cell: grid.Cell) -> dict[str, list[Work]]:
    """Return the work of the nodes of each lowering that may be fast."""
    asked = request(cell)
    fitting = lowering.rank(asked).fitting[:MAX_LOWERINGS]
    limit = MAX_SLOWNESS * fitting[0].estimated_us + 30
    names = [each.lowering for each in fitting if each.estimated_us <= limit]
    emitted = {name: lowering.lower(asked, only=name).emitted for name in names}
    return {name: cost_model.add_work(each.works()) for name, each in emitted.items()}


def measure(seconds: float, seed: int, threads: int) -> Iterator[tuple[list[Work], float]]:
    """Yield the work and the nanoseconds of lowerings of random operators."""
    rng = random.Random(seed)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        cell = grid.random_cell(rng)
        of_lowering = works(cell)
        models = {n: m for n, m in forms.lowered(cell)[1].items() if n in of_lowering}
        x = cell.data()
        us = timing.microseconds(models, x, cell.kernel(x), threads, CELL_SECONDS)
        yield from ((of_lowering[name], 1000 * each) for name, each in us.items())


def fit(samples: Sequence[tuple[list[Work], float]], usual: dict[tuple[str, str], float]) -> Array:
    """Return the fitted prices, in the order of `usual`.

    The sum of the errors is minimized, not that of their squares: a neighbour that slows a sample down
    moves the prices less. An estimate that is half as long counts as much as one twice as long.
    """
    amounts, times = table(samples, usual), np.array([ns for _, ns in samples])
    unit = np.array([*usual.values()])
    estimates, trust = times, np.ones(len(times))
    prices = unit
    for _ in range(FIT_STEPS):
        weights = trust / np.sqrt((times + BLUR_NS) * (estimates + BLUR_NS))
        weighted = np.vstack([amounts * unit * weights[:, None], INERTIA * np.eye(len(unit))])
        goal = np.concatenate([times * weights, np.full(len(unit), INERTIA)])
        prices = _least_squares(weighted, goal) * unit
        estimates = amounts @ prices
        seen = errors(estimates, times)
        trust = np.where(seen < HOPELESS_ERROR, 1 / np.sqrt(np.maximum(seen, GOOD_ERROR)), 0)
    return prices


def table(
    samples: Sequence[tuple[list[Work], float]], usual: dict[tuple[str, str], float]
) -> Array:
    """Return the amount of each feature of each regime, the columns, in each sample, the rows."""
    place = {part: number for number, part in enumerate(usual)}
    amounts = np.zeros((len(samples), len(usual)))
    for row, (parts, _) in zip(amounts, samples, strict=True):
        for work in parts:
            for feature, amount in work.features.items():
                row[place[work.regime, feature]] += amount
    return amounts


def errors(estimates: Array, times: Array) -> Array:
    """Return the errors of estimates, as logarithms."""
    return np.abs(np.log((estimates + BLUR_NS) / (times + BLUR_NS)))


def _least_squares(amounts: Array, times: Array) -> Array:
    """Fit prices that are not negative, by dropping the most negative feature until there is none."""
    active = list(range(amounts.shape[1]))
    while True:
        prices = np.zeros(amounts.shape[1])
        prices[active] = np.linalg.lstsq(amounts[:, active], times, rcond=None)[0]
        if (prices >= 0).all():
            return prices
        active.remove(int(np.argmin(prices)))


def present_prices(
    samples: Sequence[tuple[list[Work], float]], prices: Prices, threads: int
) -> dict[tuple[str, str], float]:
    """Return (regime, feature) -> present price, for all in the file or in a sample.

    One that is not in the file starts at the median price of that feature elsewhere.
    """
    known = {(r, f): p for r, each in prices.items() for f, p in each[threads - 1].items()}
    elsewhere = defaultdict(list)
    for (_, feature), price in known.items():
        elsewhere[feature].append(price)
    for parts, _ in samples:
        for work in parts:
            for feature in work.features:
                start = statistics.median(elsewhere[feature] or [1.0])
                known.setdefault((work.regime, feature), start)
    return known


@click.command(help=__doc__)
@click.option("--seconds", default=1200.0, show_default=True, help="time to measure")
@click.option("--seed", default=0, show_default=True, help="of the random operators")
@click.option("--dry-run", is_flag=True, help="do not write prices.json")
def main(seconds: float, seed: int, dry_run: bool) -> None:
    """Measure, fit, print the errors, and write prices.json."""
    prices: Prices = json.loads(PRICES.read_text("utf-8"))["prices"]
    fitted: dict[str, list[Features]] = defaultdict(lambda: [{}, {}])
    rows = []
    for threads in THREADS:
        samples = [*measure(seconds / len(THREADS), seed, threads)]
        usual = present_prices(samples, prices, threads)
        found = fit([each for n, each in enumerate(samples) if n % 5], usual)
        held_out = samples[::5]
        times = np.array([ns for _, ns in held_out])
        for name, each in (("in the file", np.array([*usual.values()])), ("new", found)):
            seen = errors(table(held_out, usual) @ each, times)
            median, tail = np.quantile(seen, [0.5, 0.9])
            rows.append((threads, name, len(times), f"{median:.2f}", f"{tail:.2f}"))
        for (regime, feature), price in zip(usual, found, strict=True):
            least = SMALL_NS if feature == "call" else 0.0
            fitted[regime][threads - 1][feature] = float(f"{max(price, least):.3g}")
    head = ("threads", "prices", "samples", "median error", "90 %")
    click.echo(f"{results.heading()}\n\n{results.table(head, rows)}")
    if not dry_run:
        about = (
            f"onnxruntime {onnxruntime.__version__}, nanoseconds with 1 thread and with 2; "
            "made by benchmarks/fit_prices.py"
        )
        text = json.dumps({"about": about, "prices": fitted}, indent=1, sort_keys=True)
        PRICES.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
