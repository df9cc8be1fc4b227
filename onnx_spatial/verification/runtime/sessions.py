"""onnxruntime sessions for numpy arrays of every element type, with errors of one clear line."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime as ort

from onnx_spatial.operators.shapes import show
from onnx_spatial.operators.spellings.python_ops import DOMAIN
from onnx_spatial.python_ops import registration
from onnx_spatial.verification.process import child
from onnx_spatial.verification.run.ort_values import (
    dense,
    from_ort,
    is_raw,
    is_raw_type,
    to_ort,
)
from onnx_spatial.verification.runtime import time_limit
from onnx_spatial.verification.runtime.stopwatch import Stopwatch

_SILENT = 4

#: More threads gain little at the sizes that are run, and every part of a model has its own.
THREADS = min(4, os.cpu_count() or 1)

#: Seconds that a run may take in a model with loops: a Loop of 2^63 iterations, or one whose condition
#: stays true, does not end by itself.
LOOP_SECONDS = 6.0

#: The operator type Loop in a serialized node: field 4, 4 letters.
_LOOP = b"\x22\x04Loop"

_LACKS_KERNEL = (
    "NOT_IMPLEMENTED",
    "No Op registered",
    "is not a registered function/op",
    "not supported",
    "not currently registered or supported",
)

#: Messages of onnxruntime, numpy and the C++ library where memory runs out.
_NO_MEMORY = ("bad_alloc", "bad allocation", "Failed to allocate memory", "Unable to allocate")

Stage = Literal["load", "run", "rule"]

#: Models that sessions belong to, in messages.
ORIGINAL, CONVERTED = child.ORIGINAL, child.CONVERTED

#: Messages of onnxruntime for models that do not load whatever the sizes of their inputs.
_HOPELESS = (
    "Cannot parse data from external tensors",
    "This is an invalid model",
    "Failed to load model",
    "ValidateEmbeddedTensorProto",
    "TensorProto",
    "buffer size mismatch",
)

#: A C++ function of onnxruntime, at times with file and line, in front of a message.
_SIGNATURE = re.compile(
    r"(?:/\S+:\d+ )?(?:[a-z][\w:<>]*[*&]? )?onnxruntime::[^()]*\((?:[^()]|\([^()]*\))*\)(?: const)?"
    r"(?:::<lambda\([^()]*\)>)?(?: \[with [^\]]*\])? "
)


@dataclass(frozen=True)
class Extension:
    """Custom operators of a domain that sessions have to register.

    `raising` is a context to run them in, which raises the error of an operator that failed.
    """

    register: Callable[[ort.SessionOptions], None]
    raising: Callable[[], AbstractContextManager[None]]


#: The `Extension` of a domain.
EXTENSIONS = {DOMAIN: Extension(registration.register_fresh, registration.raising)}


@dataclass(frozen=True)
class Operands:
    """The inputs of a node that failed.

    Attributes:
        node: the node.
        shapes: of its inputs; () for those that are left out or not computed.
        vectors: values of the short vectors of integers among them, by number.
    """

    node: onnx.NodeProto
    shapes: Sequence[tuple[int, ...]]
    vectors: Mapping[int, tuple[int, ...]]


class RunFailure(Exception):
    """A model, or a part of one, does not load or run.

    Attributes:
        stage: "load": it fails on any data; "run": on this data; "rule": this data breaks a rule of a
            spatial operator.
        node: name of the node that failed, where it is known.
        lacks_kernel: onnxruntime does not know the operator, or not with this type or attribute.
        hopeless: other sizes would fail, too.
        out_of_memory: it needs more memory than there is, or than is allowed.
        progress: number of nodes that ran before.
        operands: the inputs of the node, if requested (`RunContext.explains`).
        refused: position of the spatial operator whose rule is broken, and the shape of its data.
    """

    def __init__(
        self, message: str, stage: Stage, node: str = "", *, lacks_kernel: bool = False
    ) -> None:
        super().__init__(message)
        self.stage: Stage = stage
        self.node = node
        self.lacks_kernel = lacks_kernel
        self.hopeless = any(words in message for words in _HOPELESS)
        self.out_of_memory = _has_no_memory(message)
        self.progress = 0
        self.operands: Operands | None = None
        self.refused: tuple[int, tuple[int, ...]] | None = None


class Session:
    """A serialized model in onnxruntime on the CPU.

    Args:
        optimise: with all of onnxruntime's optimisations, or without any.
        folder: folder of its external data.
        threads: for one node; 0 is onnxruntime's default.
        of: the model that it is, or is a part of: ORIGINAL or CONVERTED.

    Raises:
        RunFailure: it does not load.
    """

    def __init__(
        self,
        model: bytes,
        *,
        optimise: bool = False,
        folder: Path | None = None,
        threads: int = THREADS,
        of: str = ORIGINAL,
    ) -> None:
        self._of, self._optimise = of, optimise
        options = ort.SessionOptions()
        options.log_severity_level = _SILENT
        level = ort.GraphOptimizationLevel
        options.graph_optimization_level = (
            level.ORT_ENABLE_ALL if optimise else level.ORT_DISABLE_ALL
        )
        options.intra_op_num_threads = threads
        # Many small sessions live side by side; spinning threads would starve the one that runs.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # An arena keeps the most that was ever needed, once for every session.
        options.enable_cpu_mem_arena = False
        if not optimise:  # prepacked weights are copies
            options.add_session_config_entry("session.disable_prepacking", "1")
        if folder is not None:
            options.add_session_config_entry(
                "session.model_external_initializers_file_folder_path", str(folder)
            )
        self._has_loop = _LOOP in model
        needed = [each for domain, each in EXTENSIONS.items() if domain.encode() in model]
        self._raising = needed[0].raising if needed else nullcontext
        for extension in needed:
            extension.register(options)
        self._report("loads", {})
        try:
            self._session = ort.InferenceSession(
                model,
                options,
                providers=["CPUExecutionProvider"],
                enable_fallback=False,  # to the same provider, after lines on stdout
            )
        except Exception as error:  # onnxruntime has a dozen types of its own
            raise _failure(error, "load") from None
        self.inputs = {i.name: i.type for i in self._session.get_inputs()}
        self.overridable = {i.name for i in self._session.get_overridable_initializers()}
        self.outputs = {o.name: o.type for o in self._session.get_outputs()}

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Run the model and return its outputs by name, or some of them; sequences are lists.

        Raises:
            RunFailure: it cannot run on this data.
        """
        time_limit.check()
        names = list(outputs if outputs is not None else self.outputs)
        options = ort.RunOptions()
        options.log_severity_level = _SILENT
        self._report("runs", feeds)
        try:
            with _deadline(options, self._has_loop), self._raising():
                if not any(is_raw_type(self.outputs[n]) for n in names):
                    fed = {n: _fed(a) for n, a in feeds.items()}
                    results = map(dense, self._session.run(names, fed, options))
                    return dict(zip(names, results, strict=True))
                # This way takes outputs of any type, but no strings and sequences as inputs.
                values = {n: to_ort(a) for n, a in feeds.items()}
                results = self._session.run_with_ort_values(names, values, options)
                return {n: from_ort(v) for n, v in zip(names, results, strict=True)}
        except Exception as error:  # as above
            if options.terminate:
                raise endless() from None
            raise _failure(error, "run") from None

    def _report(self, does: str, feeds: Mapping[str, Any]) -> None:
        """Say what native code does next: it may end the process."""
        level = "on" if self._optimise else "off"
        shapes = {n: show(a.shape) if isinstance(a, np.ndarray) else "" for n, a in feeds.items()}
        data = ", ".join(f"{n} {shape}".strip() for n, shape in shapes.items())
        text = f"{self._of} {does} with optimisations {level}{' on ' if data else ''}{data}"
        # The original runs without optimisations before. With them it may end the process as well.
        known = self._of == ORIGINAL or not self._optimise
        child.report(text, self._of if known else None)


def _has_no_memory(message: object) -> bool:
    return any(words in str(message) for words in _NO_MEMORY)


def endless() -> RunFailure:
    """Return the failure of a loop that exceeds its time."""
    return RunFailure(f"a loop was still running after {LOOP_SECONDS:.0f} s", "load")


@contextmanager
def _deadline(options: ort.RunOptions, needed: bool) -> Iterator[None]:
    """Stop a run after LOOP_SECONDS: onnxruntime reads the flag between two nodes."""
    if not needed:
        yield
        return
    stopwatch, over = Stopwatch(), threading.Event()

    def watch() -> None:
        while not over.wait(max(LOOP_SECONDS - stopwatch.seconds, 0.01)):
            if stopwatch.seconds >= LOOP_SECONDS:
                options.terminate = True
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _fed(value: Any) -> Any:
    """Convert an array for a session; lists and None are taken as they are."""
    if is_raw(value):
        return to_ort(value)
    if isinstance(value, np.ndarray) and not value.flags.c_contiguous:
        return np.ascontiguousarray(value)
    return value


def _failure(error: Exception, stage: Stage) -> RunFailure:
    text = str(error)
    name = re.search(r"[Nn]ame:? ?'([^']*)'|Node \(([^)]*)\) Op \(", text)
    node = (name.group(1) or name.group(2) or "") if name else ""
    lacks_kernel = any(words in text for words in _LACKS_KERNEL)
    message, out_of_memory = first_line(error), _has_no_memory(text)
    if out_of_memory:
        message = f"{f'node {node!r}' if node else 'it'} {child.lack_of_memory()}"
    failure = RunFailure(message, stage, node, lacks_kernel=lacks_kernel)
    failure.out_of_memory = out_of_memory
    return failure


def first_line(error: Exception) -> str:
    """Return the first line of an error message, without onnxruntime's codes and source locations."""
    text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text.strip())
    text = re.sub(r"Status Message: /\S+:\d+ .*? was false\. ", "", text)
    text = re.sub(r"Status Message: /\S+:\d+ ", "", text)
    text = _SIGNATURE.sub("", text)
    return text.removeprefix("Non-zero status code returned while ").strip()
