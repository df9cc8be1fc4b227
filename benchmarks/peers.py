"""Run the alternatives to the lowerings: numpy, OpenVINO, TensorFlow, tf2onnx.

OpenVINO and TensorFlow run in processes of their own, one per library and number of threads, which get
cells through a pipe. A library that is not installed is skipped; `missing` returns a message.

* numpy: pad, reshape, transpose, `ascontiguousarray`; sliding windows for patches.
* copy: `ndarray.copy()` of the output, which allocates; copyto: into an existing array.
* OpenVINO: its operator on the CPU plugin between two Relu nodes. The time is the sum of its profile
  without these two, reorders included. (It moves Relu across BatchToSpace, so elementwise nodes are
  excluded by kind, not by name.) Its patches have channels first only; for channels last a Transpose
  stands on each side, as its TensorFlow frontend writes them.
* TensorFlow: the eager call from Python, overhead included. It has no patches with channels first.
* tf2onnx: its conversion of a function with this operator (opset 17, sizes known). Patches with channels
  first are between two transpositions, as in TensorFlow.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from benchmarks import timing
from benchmarks.grid import Cell

Array = npt.NDArray[Any]

#: The packages that each worker needs.
NEEDS = {
    "openvino": ("openvino",),
    "tensorflow": ("tensorflow",),
    "tf2onnx": ("tensorflow", "tf2onnx"),
}
TF2ONNX_OPSET = 17


def missing(name: str) -> str | None:
    """Say why a peer is skipped; None if it is installed."""
    absent = [p for p in NEEDS[name] if importlib.util.find_spec(p) is None]
    return f"{name} is skipped, not installed: {', '.join(absent)}" if absent else None


# ---------------------------------------------------------------- numpy, in this process


def floor(cell: Cell, x: Array, y: Array, seconds: float) -> dict[str, float]:
    """Time numpy and copies of the output, in microseconds.

    Raises:
        DisagreementError: numpy's output is not `y`.
    """
    if not np.array_equal(in_numpy(cell, x), y):
        raise timing.DisagreementError("the output of numpy differs")
    target = np.empty_like(y)
    calls: dict[str, Callable[[], object]] = {
        "copy": y.copy,
        "copyto": lambda: np.copyto(target, y),
        "numpy": lambda: in_numpy(cell, x),
    }
    return timing.wall(calls, seconds)


def in_numpy(cell: Cell, x: Array) -> Array:
    """Compute a cell in numpy, as one would write it by hand."""
    if cell.window is not None:
        return _numpy_patches(cell, x)
    m, first = len(cell.size), 1 if cell.layout == "NHWC" else 2
    cells = [s // b for s, b in zip(cell.padded, cell.block, strict=True)]
    if cell.operator == "SpaceToBatch":
        around = [(0, 0)] * x.ndim
        around[first : first + m] = cell.pairs
        padded = np.pad(x, around) if any(map(any, cell.pairs)) else x
        split = [v for pair in zip(cells, cell.block, strict=True) for v in pair]
        parts = padded.reshape(*x.shape[:first], *split, *x.shape[first + m :])
        offsets = [first + 2 * i + 1 for i in range(m)]
        rest = [axis for axis in range(parts.ndim) if axis not in offsets]
        return np.ascontiguousarray(parts.transpose(*offsets, *rest)).reshape(cell.output_shape)
    parts = x.reshape(*cell.block, cell.batch, *x.shape[1:])
    perm = list(range(m, m + first))
    for i in range(m):
        perm += [m + first + i, i]
    moved = parts.transpose(*perm, *range(2 * m + first, parts.ndim))
    image = np.ascontiguousarray(moved).reshape(
        *cell.image[:first], *cell.padded, *cell.image[first + m :]
    )
    inside = [slice(b, s - e) for (b, e), s in zip(cell.pairs, cell.padded, strict=True)]
    return np.ascontiguousarray(image[(slice(None),) * first + tuple(inside)])


def _numpy_patches(cell: Cell, x: Array) -> Array:
    assert cell.window is not None
    kernel, stride, rate = cell.window
    m, first = len(cell.size), 1 if cell.layout == "NHWC" else 2
    pads = [cell.kernel.padding(axis, size) for axis, size in enumerate(cell.size)]  # type: ignore[union-attr]
    around = [(0, 0)] * x.ndim
    around[first : first + m] = pads
    padded = np.pad(x, around) if any(map(any, pads)) else x
    extent = (kernel - 1) * rate + 1
    axes = tuple(range(first, first + m))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (extent,) * m, axes)
    some = [slice(None)] * first + [slice(None, None, stride)] * m
    taps = windows[(*some, ..., *[slice(None, None, rate)] * m)]
    inner = list(range(x.ndim, x.ndim + m))
    # [N, windows.., C, kernel..] to [N, windows.., kernel.., C], or
    # [N, C, windows.., kernel..] to [N, kernel.., C, windows..].
    perm = [*range(1 + m), *inner, 1 + m] if first == 1 else [0, *inner, *range(1, 2 + m)]
    return np.ascontiguousarray(taps.transpose(perm)).reshape(cell.output_shape)


# ---------------------------------------------------------------- the others, in their own processes


class Worker:
    """A process that runs one peer with a number of threads."""

    def __init__(self, peer: str, threads: int) -> None:
        self._what = (peer, threads)
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(*self._what, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def __call__(self, cell: Cell, seconds: float) -> Any:
        """Run a cell; return microseconds, a model, or a sentence that says why there is none."""
        try:
            self._pipe.send((cell, seconds))
            return self._pipe.recv()
        except (EOFError, OSError):
            self.close()
            self._start()
            return "the process that ran it ended"

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join(timeout=10)
        self._process.terminate()


def _serve(peer: str, threads: int, pipe: Connection) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # hides what libraries print on stderr
    serve = {"openvino": _openvino, "tensorflow": _tensorflow, "tf2onnx": _tf2onnx}[peer](threads)
    while True:
        try:
            cell, seconds = pipe.recv()
        except EOFError:
            return
        try:
            answer = serve(cell, seconds)
        except Exception as error:  # a peer may refuse a cell with any exception
            answer = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        pipe.send(answer)


#: Kinds of the nodes around the operator in OpenVINO's profile.
_OPENVINO_UNCOUNTED = frozenset({"Parameter", "Result", "Subgraph", "Eltwise"})


def _openvino(threads: int) -> Callable[[Cell, float], float]:
    import openvino as ov
    from openvino import opset15 as op

    core = ov.Core()
    settings = {
        "PERF_COUNT": True,
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "NUM_STREAMS": 1,
    }

    def run(cell: Cell, seconds: float) -> float:
        x = cell.data()
        data = op.parameter(list(x.shape), x.dtype)
        last = op.relu(_openvino_node(op, cell, op.relu(data)))
        compiled = core.compile_model(ov.Model([last], [data]), "CPU", settings)
        request = compiled.create_infer_request()
        _check(cell, x, next(iter(request.infer([x]).values())))
        times: list[float] = []
        end = time.perf_counter() + seconds
        while len(times) < timing.MIN_ROUNDS or time.perf_counter() < end:
            request.infer([x], share_inputs=True)
            took = sum(
                node.real_time.total_seconds()
                for node in request.profiling_info
                if node.node_type not in _OPENVINO_UNCOUNTED
            )
            times.append(took * 1e6)
        return statistics.median(times[1:])

    return run


def _openvino_node(op: Any, cell: Cell, x: Any) -> Any:
    """Return OpenVINO's operator on `x`."""
    if cell.window is None:
        build = op.space_to_batch if cell.operator == "SpaceToBatch" else op.batch_to_space
        rest = [1] * (len(cell.image) - 1 - len(cell.block_shape))
        none = [0] * len(rest)
        block = [1, *cell.block_shape, *rest]
        begins = [0, *(b for b, _ in cell.all_pairs), *none]
        ends = [0, *(e for _, e in cell.all_pairs), *none]
        return build(x, *(np.array(v, np.int64) for v in (block, begins, ends)))
    if len(cell.size) != 2:
        raise NotImplementedError("OpenVINO has patches of images only")
    if cell.layout == "NHWC":
        x = op.transpose(x, np.array([0, 3, 1, 2]))
    padding = "valid" if cell.amounts == "VALID" else "same_upper"
    patches = op.extract_image_patches(x, *([v, v] for v in cell.window), padding)
    return op.transpose(patches, np.array([0, 2, 3, 1])) if cell.layout == "NHWC" else patches


def _check(cell: Cell, x: Array, y: Array) -> None:
    if not np.array_equal(cell.kernel(x), y):
        raise timing.DisagreementError("its output differs")


def _tensorflow(threads: int) -> Callable[[Cell, float], float]:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)

    def run(cell: Cell, seconds: float) -> float:
        if cell.window is not None and cell.layout == "NCHW":
            raise NotImplementedError("TensorFlow has no patches with channels first")
        x = cell.data()
        tensor = tf.constant(x)
        _check(cell, x, _tensorflow_call(tf, cell, tensor).numpy())
        return timing.wall({"": lambda: _tensorflow_call(tf, cell, tensor)}, seconds)[""]

    return run


def _tensorflow_call(tf: Any, cell: Cell, x: Any) -> Any:
    if cell.window is None:
        call = tf.space_to_batch if cell.operator == "SpaceToBatch" else tf.batch_to_space
        return call(x, list(cell.block_shape), [list(pair) for pair in cell.all_pairs])
    if cell.layout == "NCHW":
        x = tf.transpose(x, [0, 2, 3, 1])
    windows = [[1, *(value,) * len(cell.size), 1] for value in cell.window]
    if len(cell.size) == 3:
        if cell.window[2] != 1:
            raise NotImplementedError("TensorFlow has no rates for volumes")
        return tf.extract_volume_patches(x, *windows[:2], cell.amounts)
    patches = tf.image.extract_patches(x, *windows, cell.amounts)
    return tf.transpose(patches, [0, 3, 1, 2]) if cell.layout == "NCHW" else patches


def _tf2onnx(_: int) -> Callable[[Cell, float], bytes]:
    import logging

    import tensorflow as tf
    import tf2onnx

    for logger in ("tensorflow", "tf2onnx"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)

    def convert(cell: Cell, _: float) -> bytes:
        signature = [tf.TensorSpec(cell.input_shape, tf.as_dtype(cell.dtype), name="x")]
        function = tf.function(lambda x: _tensorflow_call(tf, cell, x), input_signature=signature)
        made, _ = tf2onnx.convert.from_function(function, signature, opset=TF2ONNX_OPSET)
        left = sorted({n.op_type for n in made.graph.node if not _standard(n)})
        if left:
            raise NotImplementedError(f"tf2onnx leaves {', '.join(left)}")
        shape = made.graph.output[0].type.tensor_type.shape
        del shape.dim[:]
        for size in cell.output_shape:
            shape.dim.add().dim_value = size
        model = bytes(made.SerializeToString())
        timing.session(model, 1)  # refuses what onnxruntime does not load
        return model

    return convert


def _standard(node: onnx.NodeProto) -> bool:
    return node.domain == "" and onnx.defs.has(node.op_type, TF2ONNX_OPSET)
