"""Measure onnxruntime's kernels on this machine and fit the prices of the cost model.

    python -m benchmarks.fit_prices --seconds 600 --samples build/kernels.jsonl
    python -m benchmarks.fit_prices --samples build/kernels.jsonl --fit-only

Single nodes of random geometry and element size run between two others, with one thread and with
optimisations off, but for a Conv, whose fast kernel is one of them.
`onnx_spatial.lowering.core.cost_model` says which regime a node falls into and which features it has.
For each regime the prices of the features are fitted to the relative error, none below zero.
The times come from the profile, which adds several microseconds to each node. A Reshape in the same run
measures how many, and they are subtracted.

Prices for two threads are those for one times the share of the time that two take, with a call, a loop
and shared lines of their own. They are fitted to whole lowerings of random operators, inside a net: a
node finds part of its input in the cache of the other core, which costs some kernels more than the
second thread saves. Run it on an idle machine.

The printed table has the error of the estimates: median and 90th percentile of
|log(estimate / measured)|.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from benchmarks import forms, grid, kernels, timing
from onnx_spatial.lowering.core import cost_model
from onnx_spatial.lowering.core.cost_model import Features

PRICES = Path(cost_model.__file__).parent / "prices.json"

THREADS = (1, 2)

#: Error of a short time, in nanoseconds.
_BLUR = 2000.0

#: Errors of estimates, as logarithms: smaller ones count alike; samples with larger ones not at all.
_GOOD, _HOPELESS = 0.1, 1.2

#: Nanoseconds of a Reshape or a sum of sizes, measured with 40 in a run; too short for the profile.
_SMALL = 450.0

#: Features with prices of their own for two threads.
_OWN = ("call", "loop", "shared")

#: Features that one thread does not pay for.
_TOGETHER = ("shared",)

#: Usual nanoseconds of a task that two threads share, and of a line of the cache that both write to.
_TASK, _CLASH = 600.0, 10.0

#: The share of the other prices, among the quantities that are fitted.
_SHARE = "share"

#: The most that two threads take, relative to one.
_MOST_SHARE = 2.0

#: Seconds to time the lowerings of one operator.
_PER_CELL = 0.12

#: Lowerings of an operator that are timed: the first ones, unless they are this much slower.
_MOST_FORMS, _SLOW = 8, 3

#: Samples that the price of a feature for two threads must outweigh to differ from its price for one.
_INERTIA = 1.0

#: A line of the file of samples.
Record = dict[str, Any]

_TYPES = {1: TensorProto.UINT8, 2: TensorProto.FLOAT16, 4: TensorProto.FLOAT, 8: TensorProto.INT64}

_LARGEST = 12_000_000


def main() -> None:
    """Measure the kernels, fit the prices, print the errors and write prices.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600, help="Time to measure.")
    parser.add_argument(
        "--samples", type=Path, required=True, help="File that samples are added to."
    )
    parser.add_argument("--seed", type=int, default=0, help="Seed of the random nodes.")
    parser.add_argument("--least", type=int, default=1 << 11, help="Least number of elements.")
    parser.add_argument(
        "--threads", type=int, choices=THREADS, help="Measure with this number of threads only."
    )
    parser.add_argument("--kind", help="Measure only nodes of this operator type.")
    parser.add_argument("--fit-only", action="store_true", help="Fit the samples in the file.")
    parser.add_argument("--dry-run", action="store_true", help="Do not write prices.json.")
    arguments = parser.parse_args()
    if not arguments.fit_only:
        rng = random.Random(arguments.seed)
        _measure(arguments, rng)
    fitted = _fit(arguments.samples)
    if not arguments.dry_run:
        about = (
            f"onnxruntime {onnxruntime.__version__}, nanoseconds with 1 thread and with 2; "
            "made by benchmarks/fit_prices.py"
        )
        text = json.dumps({"about": about, "prices": fitted}, indent=1, sort_keys=True)
        PRICES.write_text(text + "\n", "utf-8")


def _measure(arguments: argparse.Namespace, rng: random.Random) -> None:
    path: Path = arguments.samples
    path.parent.mkdir(parents=True, exist_ok=True)
    counts = THREADS if arguments.threads is None else (arguments.threads,)
    with path.open("a", encoding="utf-8") as file:
        for threads in counts:
            end = time.monotonic() + arguments.seconds / len(counts)
            while time.monotonic() < end:
                record = _kernel(arguments, rng) if threads == 1 else _lowerings(rng, threads)
                if record is not None:
                    file.write(json.dumps(record) + "\n")


def _kernel(arguments: argparse.Namespace, rng: random.Random) -> Record | None:
    """Time a random node with one thread; None if it is too large, too small or of another kind."""
    case = kernels.draw(rng, arguments.least)
    sizes = [float(np.prod(shape)) for shape in case.inputs]
    if not 256 <= sum(sizes) <= _LARGEST or arguments.kind not in (None, case.op_type):
        return None
    return {
        "regime": case.work.regime,
        "inputs": case.inputs,
        "itemsize": case.itemsize,
        "attributes": case.attributes,
        "features": case.work.features,
        "ns": _time(case),
    }


def _lowerings(rng: random.Random, threads: int) -> Record | None:
    """Time the lowerings of a random operator inside a net; None if there is only one."""
    cell = grid.random_cell(rng)
    models, works = {}, {}
    made = forms.candidates(cell)
    fastest = min(lowered.cost for lowered in made.values())
    for name, lowered in list(made.items())[:_MOST_FORMS]:
        model = forms.model_of(lowered, cell)
        if lowered.cost <= _SLOW * fastest + 30 and model not in models.values():
            models[name] = model
            parts = cost_model.together(lowered.emitted.works())
            works[name] = [(work.regime, work.features) for work in parts]
    if len(models) < 2:
        return None
    x = cell.data()
    times = timing.profile(models, {"x": x}, threads, _PER_CELL, cell.kernel(x))
    ns = {name: 1000 * profile.microseconds for name, profile in times.items()}
    return {"cell": cell.name, "works": works, "ns": ns}


def _time(case: kernels.Case) -> float:
    """Measure the nanoseconds of a node alone: the first quartile, others may disturb the rest."""
    names = [f"x{i}" for i in range(len(case.inputs))]
    element_type = _TYPES[case.itemsize]
    held = [f"c{i}" for i in range(len(case.constants))]
    nodes = [helper.make_node("Identity", [n], [f"{n}_"], name=f"in_{n}") for n in names]
    outputs = [f"y{i}_" for i in range(case.outputs)]
    inputs = [*(f"{n}_" for n in names), *held]
    nodes.append(helper.make_node(case.op_type, inputs, outputs, name="node", **case.attributes))
    nodes += [helper.make_node("Identity", [y], [y[:-1]], name=f"out_{y}") for y in outputs]
    nodes += [
        helper.make_node("Reshape", ["four", "two_by_two"], ["square"], name="reshape_1"),
        helper.make_node("Reshape", ["square", "flat"], ["probe"], name="probe"),
    ]
    graph = helper.make_graph(
        nodes,
        "kernel",
        [
            helper.make_tensor_value_info(n, element_type, shape)
            for n, shape in zip(names, case.inputs, strict=True)
        ]
        + [helper.make_tensor_value_info("four", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info(o[:-1], element_type, None) for o in outputs]
        + [helper.make_tensor_value_info("probe", TensorProto.FLOAT, None)],
        [
            *(numpy_helper.from_array(a, n) for a, n in zip(case.constants, held, strict=True)),
            numpy_helper.from_array(np.array([2, 2]), "two_by_two"),
            numpy_helper.from_array(np.array([1, 4]), "flat"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    dtype = helper.tensor_dtype_to_np_dtype(element_type)
    # Pages that were never written are all the same one in memory, and never leave the caches.
    feeds = {n: np.ones(shape, dtype) for n, shape in zip(names, case.inputs, strict=True)}
    feeds["four"] = np.zeros(4, np.float32)
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        levels = onnxruntime.GraphOptimizationLevel
        options.graph_optimization_level = levels.ORT_DISABLE_ALL
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder, "profile"))
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        for _ in range(11):
            session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    runs, probes = _durations(events, "node"), _durations(events, "probe")
    idle = statistics.fmean(probes) * 1000 - _SMALL
    return max(statistics.quantiles(runs, n=4)[0] * 1000 - idle, _SMALL)


def _durations(events: list[dict[str, Any]], node: str) -> list[int]:
    """Return the microseconds of a node in each run but the first two."""
    return [event["dur"] for event in events if event["name"] == f"{node}_kernel_time"][2:]


def _fit(path: Path) -> dict[str, list[Features]]:
    nodes: dict[str, list[Record]] = defaultdict(list)
    lowerings = []
    for line in path.read_text("utf-8").splitlines():
        record = json.loads(line)
        if "regime" in record:
            nodes[record["regime"]].append(record)
        else:
            lowerings.append(record)
    print(f"{'regime':20} samples  median  p90")
    present = json.loads(PRICES.read_text("utf-8"))["prices"]
    alone: dict[str, Features] = {regime: prices[0] for regime, prices in present.items()}
    alone["small"] = {"call": _SMALL}
    for regime, records in sorted(nodes.items()):
        alone[regime], errors = _fitted(records)
        _say(regime, errors)
    shared = {
        regime for regime, all_ in nodes.items() if any("shared" in r["features"] for r in all_)
    }
    two = {regime: prices[1] for regime, prices in present.items()}
    if lowerings:
        two, errors = _fitted_together(lowerings, alone, shared)
        _say("two threads", errors)
    return {regime: [alone[regime], two[regime]] for regime in alone}


def _say(name: str, errors: np.ndarray) -> None:
    print(f"{name:20} {len(errors):7} {np.median(errors):7.2f} {np.quantile(errors, 0.9):5.2f}")


def _fitted(records: list[Record]) -> tuple[Features, np.ndarray]:
    """Fit the price of each feature; return them and the error of each sample."""
    names = sorted({name for record in records for name in record["features"]} - {*_TOGETHER})
    times = np.array([record["ns"] for record in records])
    table = np.array([[r["features"].get(name, 0) for name in names] for r in records])
    prices, errors = _prices(table, times)
    fitted = {n: _short(v) for n, v in zip(names, prices, strict=True) if v > 1e-6}
    fitted["call"] = max(fitted.get("call", 0.0), _SMALL)
    return fitted, errors


def _fitted_together(
    records: list[Record], alone: dict[str, Features], shared: set[str]
) -> tuple[dict[str, Features], np.ndarray]:
    """Fit prices that are those for one thread times a share, but for those in `_OWN`.

    The nodes of a lowering have different regimes, so that all are fitted at once.

    Args:
        records: lowerings.
        alone: prices for one thread.
        shared: regimes whose threads can write to the same lines of the cache.
    """
    usual = {}
    for regime, prices in alone.items():
        usual[regime, _SHARE] = 1.0
        usual |= {(regime, name): prices[name] for name in _OWN if name in prices}
        if regime in shared:
            usual |= {(regime, "loop"): _TASK, (regime, "shared"): _CLASH}
    place = {part: number for number, part in enumerate(usual)}
    rows, times = [], []
    for record in records:
        for name, works in record["works"].items():
            row = np.zeros(len(usual))
            for regime, features in works:
                for feature, amount in features.items():
                    if (regime, feature) in place:
                        row[place[regime, feature]] += amount
                    else:
                        price = alone[regime].get(feature, 0.0)
                        row[place[regime, _SHARE]] += price * amount
            rows.append(row)
            times.append(record["ns"][name])
    known = np.array([*usual.values()])
    fitted, errors = _prices(np.array(rows), np.array(times), known)
    two: dict[str, Features] = defaultdict(dict)
    for (regime, name), value in zip(usual, fitted, strict=True):
        if name == _SHARE:
            share = min(max(value, 1 / THREADS[-1]), _MOST_SHARE)
            prices = alone[regime].items()
            two[regime] |= {n: _short(v * share) for n, v in prices if n not in _OWN}
        else:
            two[regime][name] = _short(max(value, _SMALL) if name == "call" else value)
    return two, errors


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def _prices(
    table: np.ndarray, times: np.ndarray, usual: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Fit prices to times; return them and |log(estimate / measured)| of each sample.

    The sum of these errors is minimized, not that of their squares: a neighbour that slows a sample
    down moves the prices less. An estimate that is half as long counts as much as one twice as long.

    Args:
        table: amount of each feature in each sample.
        times: nanoseconds of each sample.
        usual: prices to keep to, unless `_INERTIA` is outweighed.
    """
    estimates, trust = times, np.ones(len(times))
    unit = np.ones(table.shape[1]) if usual is None else usual
    for _ in range(12):
        # The profile has whole microseconds, so that short times are inexact.
        weights = trust / np.sqrt((times + _BLUR) * (estimates + _BLUR))
        weighted, goal = table * unit * weights[:, None], times * weights
        if usual is not None:
            weighted = np.vstack([weighted, _INERTIA * np.eye(len(unit))])
            goal = np.concatenate([goal, np.full(len(unit), _INERTIA)])
        prices = _least_squares(weighted, goal) * unit
        estimates = table @ prices
        errors = np.abs(np.log((estimates + _BLUR) / (times + _BLUR)))
        trust = np.where(errors < _HOPELESS, 1 / np.sqrt(np.maximum(errors, _GOOD)), 0)
    return prices, errors


def _least_squares(table: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Fit prices that are not negative, by dropping the most negative feature until there is none."""
    active = list(range(table.shape[1]))
    while True:
        prices = np.zeros(table.shape[1])
        prices[active] = np.linalg.lstsq(table[:, active], times, rcond=None)[0]
        if (prices >= 0).all():
            return prices
        active.remove(int(np.argmin(prices)))


if __name__ == "__main__":
    main()
