"""Time models in turn, each between two other nodes as inside a larger model.

A model of one operator alone misleads: onnxruntime copies a graph input in front of a Reshape, and a
graph output behind one, which it does not do between nodes. So each model gets a node in front and a
node behind: Expand to a shape that is unknown until run time, which onnxruntime does not optimise.

The time of a model is the difference to a run of these two nodes alone in the same round. Each timed
run follows an untimed one of the same model, so that its buffers are in the caches. The times by kind
of kernel come from onnxruntime's profile, in separate runs: the profiler adds several microseconds to
each kernel.
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
#: Least and largest number of rounds, however long or short they are.
MIN_ROUNDS, MAX_ROUNDS = 5, 2000
#: A difference below this share of the time of the two nodes is noise, if they take more than _LONG us.
_BLUR = 0.1
_LONG = 200.0

#: Rows that are gathered to wake the threads: some 30 us.
_ROWS = 4096

#: Sessions of each model: the buffers of each lie elsewhere, which alone changes a time by up to 30 %.
SESSIONS = 3

#: Number of profiled runs.
PROFILED = 4


class DisagreementError(Exception):
    """The output of a model is not the expected one; the message names the model."""


@dataclass
class Profile:
    """Times of a model, in microseconds.

    Attributes:
        microseconds: time of a run, without the nodes around the model.
        by_kind: times of the kernels by operator type, from the profile.
    """

    microseconds: float
    by_kind: dict[str, float] = field(default_factory=dict)


def measure(
    models: Mapping[str, onnx.ModelProto],
    feeds: Mapping[str, Array],
    threads: int,
    seconds: float,
) -> dict[str, float]:
    """Time models in turn.

    Args:
        models: models with one input, of the name in `feeds`, and one output.
        feeds: the input.
        threads: onnxruntime's number of threads within a node.
        seconds: time for all models together; each runs a few times in any case.

    Returns:
        Microseconds of each model.

    Raises:
        DisagreementError: the outputs of the models differ.
    """
    profiles = profile(models, feeds, threads, seconds)
    return {name: each.microseconds for name, each in profiles.items()}


def profile(
    models: Mapping[str, onnx.ModelProto],
    feeds: Mapping[str, Array],
    threads: int,
    seconds: float,
    expected: Array | None = None,
) -> dict[str, Profile]:
    """Time models in turn, also by kind of kernel, and compare their outputs.

    Raises:
        DisagreementError: an output is not the expected one, or not that of the first model.
    """
    ((_, x),) = feeds.items()
    wrapped = {name: in_a_net(model).SerializeToString() for name, model in models.items()}
    profiles: dict[str, Profile] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, net in wrapped.items():
            profiled = session(net, threads, profile=Path(folder, str(len(profiles))))
            inputs = _inputs(profiled, feeds)
            for _ in range(WARM_UP + PROFILED):
                (y,) = profiled.run(None, inputs)
            expected = y if expected is None else expected
            if y.dtype != expected.dtype or not np.array_equal(y, expected):
                raise DisagreementError(f"the output of {name} differs")
            profiles[name] = Profile(0.0, _by_kind(profiled))
    assert expected is not None
    rounds = [
        _differences(wrapped, feeds, _two_nodes(x, expected), expected, threads, seconds / SESSIONS)
        for _ in range(SESSIONS)
    ]
    base = statistics.median(each[_NOTHING] for each in rounds)
    for name, profiled_times in profiles.items():
        difference = statistics.median(each[name] for each in rounds)
        if base > _LONG and difference < _BLUR * base:
            # Lost in the noise of the two nodes: a small output of a large input.
            difference = sum(profiled_times.by_kind.values())
        profiled_times.microseconds = max(0.1, difference)
    return profiles


def _differences(
    nets: Mapping[str, bytes],
    feeds: Mapping[str, Array],
    two_nodes: onnx.ModelProto,
    y: Array,
    threads: int,
    seconds: float,
) -> dict[str, float]:
    """Time each net in a new session, less the time of its two nodes, which is under `_NOTHING`."""
    ((_, x),) = feeds.items()
    arrays = {"x": x, "y": y, "x_shape": np.ones(x.ndim, np.int64)}
    arrays["y_shape"] = np.ones(y.ndim, np.int64)
    runs = {}
    for name, net in nets.items():
        opened = session(net, threads)
        runs[name] = repeatable(opened, _inputs(opened, feeds))
    runs[_NOTHING] = repeatable(session(two_nodes.SerializeToString(), threads), arrays)
    times = in_turns(runs, seconds)
    base = times.pop(_NOTHING)
    pairs = {name: zip(each, base, strict=True) for name, each in times.items()}
    us = {name: 1e6 * statistics.median(a - b for a, b in each) for name, each in pairs.items()}
    return us | {_NOTHING: 1e6 * statistics.median(base)}


def _inputs(opened: ort.InferenceSession, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return all inputs of a net: Expand by ones leaves a shape as it is."""
    ((_, x),) = feeds.items()
    rank = len(opened.get_outputs()[0].shape)
    shapes = {_SHAPE_IN: np.ones(x.ndim, np.int64), _SHAPE_OUT: np.ones(rank, np.int64)}
    return {**feeds, **shapes}


def _two_nodes(x: Array, y: Array) -> onnx.ModelProto:
    """Build a model of the node in front and the node behind only."""
    nodes, inputs, outputs, stored = [], [], [], list[onnx.TensorProto]()
    for name, array in (("x", x), ("y", y)):
        element_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        shape, result = f"{name}_shape", f"{name}_result"
        if name == "x":
            nodes += _awake(shape, stored)
        target = "bench_woken" if name == "x" else shape
        nodes.append(helper.make_node("Expand", [name, target], [result]))
        inputs.append(helper.make_tensor_value_info(name, element_type, array.shape))
        inputs.append(helper.make_tensor_value_info(shape, TensorProto.INT64, [array.ndim]))
        outputs.append(helper.make_tensor_value_info(result, element_type, array.shape))
    graph = helper.make_graph(nodes, "two_nodes", inputs, outputs, stored)
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def wall(runs: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Time calls in turn, after a warm-up; return median microseconds of each."""
    times = in_turns(runs, seconds)
    return {name: statistics.median(each) * 1e6 for name, each in times.items()}


def session(model: bytes, threads: int, *, profile: Path | None = None) -> ort.InferenceSession:
    """Make a session with onnxruntime's defaults, but threads that sleep between runs.

    By default the threads of a session spin for a while after a run, and keep the next session in turn
    from the cores: it then takes up to six times as long.

    Args:
        model: serialized model.
        threads: number of threads within a node.
        profile: prefix of the file to write a profile to.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return ort.InferenceSession(model, options, ["CPUExecutionProvider"])


def repeatable(session: ort.InferenceSession, inputs: Mapping[str, Array]) -> Callable[[], object]:
    """Return a function that runs a session on inputs."""
    values = {k: ort.OrtValue.ortvalue_from_numpy(v) for k, v in inputs.items()}
    return partial(session.run_with_ort_values, None, values)


def in_a_net(model: onnx.ModelProto) -> onnx.ModelProto:
    """Put a node in front of the model's only input and one behind its only output."""
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
    """Return nodes that pass `shape` on after all threads have worked.

    A sleeping thread takes some ten microseconds to join, which would count for the first kernel;
    inside a larger model threads are awake.
    """
    rows = np.arange(1, _ROWS + 1)
    stored.append(numpy_helper.from_array(np.zeros((_ROWS, 1), np.int64), "bench_table"))
    stored.append(numpy_helper.from_array(rows, "bench_rows"))
    stored.append(numpy_helper.from_array(np.zeros(1, np.int64), "bench_zero"))
    return [
        # Depends on an input, so that it is not folded when the model loads.
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


def in_turns(runs: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, list[float]]:
    """Call functions in rounds; in a round each is called twice, and the second call is timed.

    After the calls of the others the processor's caches hold their buffers. A copy of 4 MB takes twice
    as long then, which it does not inside a model, where buffers are passed from node to node.

    Args:
        runs: functions by name, at least one.
        seconds: time for all of them together; at least `MIN_ROUNDS` rounds are run.

    Returns:
        Seconds of each timed call, by name.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs.items())
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        for run in [*runs.values()] * WARM_UP:
            run()
        end = time.perf_counter() + seconds
        done = 0
        while done < (MAX_ROUNDS if time.perf_counter() < end else MIN_ROUNDS):
            for name, run in order:
                run()
                start = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - start)
            # Each follows another one than in the last round, whose caches and clock speed it inherits.
            order.reverse()
            done += 1
    finally:
        if was_collecting:
            gc.enable()
    return times


def _by_kind(session: ort.InferenceSession) -> dict[str, float]:
    """End the profiling of a session; return microseconds by operator type."""
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
