"""Time models as parts of a net, next to one another.

A model of one operator alone misleads: onnxruntime copies a graph input that the first Reshape would
only rename, and a Reshape that makes a graph output, and a net pays neither. So each model gets a node
in front and a node behind, whose times are not counted; they are of a kind that onnxruntime does not
look through (Expand to a shape that is only known in the run).

The time of a model is what a run takes longer than a run of these two nodes alone, in the same round;
each timed run follows one of the same model that is not timed, so that its buffers are in the caches
as they are inside a net. Which kinds of kernels take the time is read from onnxruntime's profile, in
runs of their own: writing it adds several microseconds to each kernel.
"""

from __future__ import annotations

import gc
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, MutableSequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]

FIRST, LAST = "bench_first", "bench_last"
_NOTHING = "nothing between"
_SHAPE_IN, _SHAPE_OUT = "bench_shape_in", "bench_shape_out"

WARM_UP = 2
FEWEST, MOST = 5, 400
#: Share of the time of the nodes around it below which a difference says nothing, where these are long.
_BLUR = 0.1
_LONG = 200.0

#: Rows that are gathered to wake the threads: some 30 us.
_ROWS = 4096

#: Runs whose profile is read.
PROFILED = 4


class DisagreementError(Exception):
    """A model gives other numbers than it should; the message says which model."""


@dataclass
class Profile:
    """What a model took.

    Attributes:
        microseconds: of a run, without the nodes around the model.
        by_kind: of the kernels by operator type, as the profile has them.
    """

    microseconds: float
    by_kind: dict[str, float] = field(default_factory=dict)


def measure(
    models: Mapping[str, onnx.ModelProto],
    feeds: Mapping[str, Array],
    threads: int,
    seconds: float,
) -> dict[str, float]:
    """Microseconds of each model inside a net, from runs in turns.

    Args:
        models: models with one input, called as in `feeds`, and one output.
        feeds: the input.
        threads: of onnxruntime, within a node.
        seconds: to run all of them together for; each runs `FEWEST` times at least.

    Raises:
        DisagreementError: the models do not give the same output.
    """
    found = profile(models, feeds, threads, seconds)
    return {name: each.microseconds for name, each in found.items()}


def profile(
    models: Mapping[str, onnx.ModelProto],
    feeds: Mapping[str, Array],
    threads: int,
    seconds: float,
    expected: Array | None = None,
) -> dict[str, Profile]:
    """`measure` with the kinds of kernels, and with the output that is expected.

    Raises:
        DisagreementError: a model's output is not the expected one, or not that of the first model.
    """
    ((data, x),) = feeds.items()
    given = {data: x, _SHAPE_IN: np.ones(x.ndim, np.int64)}
    found: dict[str, Profile] = {}
    runs: dict[str, Callable[[], object]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, model in models.items():
            wrapped = in_a_net(model).SerializeToString()
            session = _session(wrapped, threads)
            # Expand by ones leaves the shape as it is.
            fed = {**given, _SHAPE_OUT: np.ones(len(session.get_outputs()[0].shape), np.int64)}
            (y,) = session.run(None, fed)
            expected = y if expected is None else expected
            if y.dtype != expected.dtype or not np.array_equal(y, expected):
                raise DisagreementError(f"{name} gives other numbers")
            profiled = _session(wrapped, threads, Path(folder, str(len(found))))
            for _ in range(WARM_UP + PROFILED):
                profiled.run(None, fed)
            found[name] = Profile(0.0, _by_kind(profiled))
            runs[name] = _repeatable(session, fed)
        assert expected is not None
        nothing = _session(_two_nodes(x, expected).SerializeToString(), threads)
        fed = {"x": x, "y": expected}
        fed |= {f"{k}_shape": np.ones(v.ndim, np.int64) for k, v in list(fed.items())}
        runs[_NOTHING] = _repeatable(nothing, fed)
        times = _in_turns(runs, seconds)
    base = times.pop(_NOTHING)
    for name, taken in times.items():
        longer = 1e6 * statistics.median(a - b for a, b in zip(taken, base, strict=True))
        around = 1e6 * statistics.median(base)
        if around > _LONG and longer < _BLUR * around:
            # Lost in the noise of the two nodes: the operator makes little of much.
            longer = sum(found[name].by_kind.values())
        found[name].microseconds = max(0.1, longer)
    return found


def _session(model: bytes, threads: int, prefix: Path | None = None) -> ort.InferenceSession:
    options = session_options(threads)
    if prefix is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(prefix)
    return ort.InferenceSession(model, options, ["CPUExecutionProvider"])


def _repeatable(session: ort.InferenceSession, fed: Mapping[str, Array]) -> Callable[[], object]:
    values = {k: ort.OrtValue.ortvalue_from_numpy(v) for k, v in fed.items()}
    return partial(session.run_with_ort_values, None, values)


def _two_nodes(x: Array, y: Array) -> onnx.ModelProto:
    """The node in front and the node behind, with nothing between them."""
    nodes, inputs, outputs, stored = [], [], [], list[onnx.TensorProto]()
    for name, array in (("x", x), ("y", y)):
        element_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        shape, result = f"{name}_shape", f"{name}_result"
        if name == "x":
            nodes += _awake(shape, stored)
        given = "bench_woken" if name == "x" else shape
        nodes.append(helper.make_node("Expand", [name, given], [result]))
        inputs.append(helper.make_tensor_value_info(name, element_type, array.shape))
        inputs.append(helper.make_tensor_value_info(shape, TensorProto.INT64, [array.ndim]))
        outputs.append(helper.make_tensor_value_info(result, element_type, array.shape))
    graph = helper.make_graph(nodes, "two_nodes", inputs, outputs, stored)
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def wall(runs: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Median microseconds of each call, from calls in turns after a warm-up."""
    for run in runs.values():
        for _ in range(WARM_UP):
            run()
    times = _in_turns(runs, seconds)
    return {name: statistics.median(each) * 1e6 for name, each in times.items()}


def session_options(threads: int) -> ort.SessionOptions:
    """Everything as by default: threads spin for a while after a run, as they do inside a net."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return options


def in_a_net(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a node in front of its only input and one behind its only output."""
    wrapped = onnx.ModelProto()
    wrapped.CopyFrom(model)
    graph = wrapped.graph
    (data,), (result,) = graph.input, graph.output
    inner = [data.name, result.name]
    before, after = (f"bench_inner_{name}" for name in inner)
    for node in graph.node:
        _rename(node.input, data.name, before)
        _rename(node.input, result.name, after)
        _rename(node.output, result.name, after)
    graph.node.insert(0, helper.make_node("Expand", [data.name, "bench_woken"], [before], FIRST))
    for number, node in enumerate(_awake(_SHAPE_IN, graph.initializer)):
        graph.node.insert(number, node)
    graph.node.append(helper.make_node("Expand", [after, _SHAPE_OUT], [result.name], LAST))
    kept = [info for info in graph.value_info if info.name not in inner]
    del graph.value_info[:]
    graph.value_info.extend(kept)
    for info, name in ((data, before), (result, after)):
        graph.value_info.add().CopyFrom(info)
        graph.value_info[-1].name = name
        rank = len(info.type.tensor_type.shape.dim)
        shape = _SHAPE_IN if info is data else _SHAPE_OUT
        graph.input.append(helper.make_tensor_value_info(shape, TensorProto.INT64, [rank]))
    return wrapped


def _awake(shape: str, stored: MutableSequence[onnx.TensorProto]) -> list[onnx.NodeProto]:
    """Nodes that give `shape` again, after all threads were at work: inside a net they are awake.

    A thread that sleeps takes some ten microseconds to join, which would count for the first kernel.
    """
    rows = np.arange(1, _ROWS + 1)
    stored.append(numpy_helper.from_array(np.zeros((_ROWS, 1), np.int64), "bench_table"))
    stored.append(numpy_helper.from_array(rows, "bench_rows"))
    stored.append(numpy_helper.from_array(np.zeros(1, np.int64), "bench_zero"))
    return [
        # Depends on what is fed, so that it is not computed when the model loads.
        helper.make_node("Gather", [shape, "bench_zero"], ["bench_one"], "bench_one"),
        helper.make_node("Sub", ["bench_rows", "bench_one"], ["bench_order"], "bench_order"),
        helper.make_node("Gather", ["bench_table", "bench_order"], ["bench_busy"], "bench_busy"),
        helper.make_node("ReduceMax", ["bench_busy"], ["bench_most"], "bench_most", keepdims=0),
        helper.make_node("Add", [shape, "bench_most"], ["bench_woken"], "bench_woken"),
    ]


def _rename(names: Any, old: str, new: str) -> None:
    for index, name in enumerate(names):
        if name == old:
            names[index] = new


def _in_turns(runs: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, list[float]]:
    """Seconds of every timed call; each follows one that is not timed."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    gc.collect()
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < FEWEST or (time.perf_counter() < end and rounds < MOST):
        for name, run in runs.items():
            run()
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
        rounds += 1
    return times


def _by_kind(session: ort.InferenceSession) -> dict[str, float]:
    """Microseconds by operator type, of a session that has run and ends here."""
    times: dict[tuple[str, str], list[float]] = {}
    for event in json.loads(Path(session.end_profiling()).read_text("utf-8")):
        name = event.get("name", "")
        if event.get("cat") != "Node" or not name.endswith("_kernel_time"):
            continue
        node = name.removesuffix("_kernel_time")
        if not node.startswith("bench_"):
            times.setdefault((node, event["args"]["op_name"]), []).append(event["dur"])
    by_kind: dict[str, float] = {}
    for (_, kind), each in times.items():
        by_kind[kind] = by_kind.get(kind, 0) + statistics.median(each[WARM_UP:])
    total = sum(by_kind.values())
    return {kind: round(t, 1) for kind, t in by_kind.items() if t > total / 100}
