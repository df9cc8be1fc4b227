"""Time models in turn, each between two other nodes as inside a larger model.

    x -> Expand -> MODEL -> Expand -> y        less the time of        x -> Expand, y -> Expand

A model of one operator alone misleads: onnxruntime copies a graph input in front of a Reshape, and a
graph output behind one, which it does not do between nodes. Expand to a shape that is unknown until run
time is not optimised. Each timed run follows an untimed one of the same model, so that its buffers are
in the caches.
"""

import gc
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, MutableSequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]

#: Name of the run of the two nodes alone.
_NOTHING = "nothing between"
_SHAPE_IN, _SHAPE_OUT = "bench_shape_in", "bench_shape_out"

WARM_UP_RUNS = PROFILED_RUNS = 4
#: Least and largest number of rounds, however long or short they are.
MIN_ROUNDS, MAX_ROUNDS = 5, 2000
#: A difference below this share of the time of the two nodes is noise, if they take longer than this.
_NOISE_SHARE, _NOISE_MIN_US = 0.1, 200.0
#: Rows that are gathered to wake the threads, which takes some 30 us.
_WAKING_ROWS = 4096
#: Sessions of each model: the buffers of each lie elsewhere, which alone changes a time by up to 30 %.
SESSIONS = 3


class DisagreementError(Exception):
    """The output of a model is not the expected one; the message names the model."""


def microseconds(
    models: Mapping[str, onnx.ModelProto], x: Array, expected: Array, threads: int, seconds: float
) -> dict[str, float]:
    """Compare the outputs of models from x to y, and time the models in turn.

    Args:
        models: models by name.
        x: the input.
        expected: the output, to the last bit.
        threads: onnxruntime's number of threads within a node.
        seconds: time for all models together; each runs a few times in any case.

    Raises:
        DisagreementError: an output is another one.
    """
    nets = {name: _in_a_net(model).SerializeToString() for name, model in models.items()}
    kernels = {name: _checked(name, net, x, expected, threads) for name, net in nets.items()}
    rounds = [_differences(nets, x, expected, threads, seconds / SESSIONS) for _ in range(SESSIONS)]
    two_nodes = statistics.median(each[_NOTHING] for each in rounds)
    found = {}
    for name in models:
        difference = statistics.median(each[name] for each in rounds)
        if two_nodes > _NOISE_MIN_US and difference < _NOISE_SHARE * two_nodes:
            difference = kernels[name]  # a small output of a large input: lost in the noise
        found[name] = max(0.1, difference)
    return found


def _checked(name: str, net: bytes, x: Array, expected: Array, threads: int) -> float:
    """Compare the output of a net, and return the sum of its kernels' times by onnxruntime's profile.

    The profiler adds several microseconds to each kernel.
    """
    with tempfile.TemporaryDirectory() as folder:
        opened = session(net, threads, profile=Path(folder, "profile"))
        for _ in range(WARM_UP_RUNS + PROFILED_RUNS):
            (y,) = opened.run(None, _inputs(x, expected.ndim))
        events = json.loads(Path(opened.end_profiling()).read_text("utf-8"))
    if y.dtype != expected.dtype or not np.array_equal(y, expected):
        raise DisagreementError(f"the output of {name} differs")
    times: dict[str, list[float]] = {}
    for event in events:
        node = event.get("name", "").removesuffix("_kernel_time")
        if event.get("cat") == "Node" and not node.startswith("bench_"):
            times.setdefault(node, []).append(event["dur"])
    return sum(statistics.median(each[WARM_UP_RUNS:]) for each in times.values())


def _differences(
    nets: Mapping[str, bytes], x: Array, y: Array, threads: int, seconds: float
) -> dict[str, float]:
    """Time each net in a new session, less the time of its two nodes, which is under `_NOTHING`."""
    runs = {}
    for name, net in nets.items():
        runs[name] = repeatable(session(net, threads), _inputs(x, y.ndim))
    both = {
        "x": x,
        "y": y,
        "x_shape": np.ones(x.ndim, np.int64),
        "y_shape": np.ones(y.ndim, np.int64),
    }
    runs[_NOTHING] = repeatable(session(_two_nodes(x, y).SerializeToString(), threads), both)
    times = _in_turns(runs, seconds)
    base = times.pop(_NOTHING)
    pairs = {name: zip(each, base, strict=True) for name, each in times.items()}
    us = {name: 1e6 * statistics.median(a - b for a, b in each) for name, each in pairs.items()}
    return us | {_NOTHING: 1e6 * statistics.median(base)}


def _inputs(x: Array, rank: int) -> dict[str, Array]:
    """Return all inputs of a net: Expand by ones leaves a shape as it is."""
    return {"x": x, _SHAPE_IN: np.ones(x.ndim, np.int64), _SHAPE_OUT: np.ones(rank, np.int64)}


def whole_runs(runs: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Time calls in turn; return median microseconds of each."""
    times = _in_turns(runs, seconds)
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


def _in_a_net(model: onnx.ModelProto) -> onnx.ModelProto:
    """Put a node in front of the model's only input x and one behind its only output y."""
    net = onnx.ModelProto()
    net.CopyFrom(model)
    graph = net.graph
    inner = {"x": "bench_inner_x", "y": "bench_inner_y"}
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [inner.get(name, name) for name in names]
    del graph.value_info[:]
    for info, shape in ((graph.input[0], _SHAPE_IN), (graph.output[0], _SHAPE_OUT)):
        graph.value_info.add().CopyFrom(info)
        graph.value_info[-1].name = inner[info.name]
        rank = len(info.type.tensor_type.shape.dim)
        graph.input.append(helper.make_tensor_value_info(shape, TensorProto.INT64, [rank]))
    first = helper.make_node("Expand", ["x", "bench_woken"], [inner["x"]], "bench_first")
    last = helper.make_node("Expand", [inner["y"], _SHAPE_OUT], ["y"], "bench_last")
    nodes = [*_awake(_SHAPE_IN, graph.initializer), first, *graph.node, last]
    del graph.node[:]
    graph.node.extend(nodes)
    return net


def _two_nodes(x: Array, y: Array) -> onnx.ModelProto:
    """Build a model of the node in front and the node behind only."""
    stored: list[onnx.TensorProto] = []
    nodes, inputs, outputs = _awake("x_shape", stored), [], []
    for name, array in (("x", x), ("y", y)):
        element_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        shape, result = f"{name}_shape", f"{name}_result"
        target = "bench_woken" if name == "x" else shape
        nodes.append(helper.make_node("Expand", [name, target], [result]))
        inputs.append(helper.make_tensor_value_info(name, element_type, array.shape))
        inputs.append(helper.make_tensor_value_info(shape, TensorProto.INT64, [array.ndim]))
        outputs.append(helper.make_tensor_value_info(result, element_type, array.shape))
    graph = helper.make_graph(nodes, "two_nodes", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _awake(shape: str, stored: MutableSequence[onnx.TensorProto]) -> list[onnx.NodeProto]:
    """Return nodes that pass `shape` on after all threads have worked.

    A sleeping thread takes some ten microseconds to join, which would count for the first kernel;
    inside a larger model threads are awake.
    """
    rows = np.arange(1, _WAKING_ROWS + 1)
    stored.append(numpy_helper.from_array(np.zeros((_WAKING_ROWS, 1), np.int64), "bench_table"))
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


def _in_turns(runs: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, list[float]]:
    """Call functions in rounds, each twice; return the seconds of the second calls, by name.

    After the calls of the others the processor's caches hold their buffers. A copy of 4 MB takes twice
    as long then, which it does not inside a model, where buffers are passed from node to node.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs.items())
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        for run in [*runs.values()] * WARM_UP_RUNS:
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
