"""onnxruntime sessions that take and give numpy arrays of every type, and fail with one clear line."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal

import numpy as np
import onnxruntime as ort

from onnx_spatial.operators.spellings.python_ops import DOMAIN
from onnx_spatial.verification.runtime.operand_mismatch import Operands
from onnx_spatial.verification.runtime.ort_values import (
    from_ort,
    is_raw,
    is_raw_type,
    to_ort,
)

_SILENT = 4

#: More threads gain little at the sizes that are run, and every part of a model has its own.
THREADS = min(4, os.cpu_count() or 1)

#: Seconds that a run may take in a model with loops. Every other graph ends by itself; a Loop of
#: 2^63 turns, or one whose condition stays true, does not.
LOOP_SECONDS = 6.0

#: How the operator type Loop stands in a serialized node: field 4, 4 letters.
_LOOP = b"\x22\x04Loop"

_LACKS_KERNEL = (
    "NOT_IMPLEMENTED",
    "No Op registered",
    "is not a registered function/op",
    "not supported",
    "not currently registered or supported",
)

Stage = Literal["load", "run", "rule"]


#: What onnxruntime says of a model that it would not load whatever the sizes of its inputs.
_HOPELESS = (
    "Cannot parse data from external tensors",
    "This is an invalid model",
    "Failed to load model",
    "ValidateEmbeddedTensorProto",
    "TensorProto",
    "buffer size mismatch",
)


#: A function of onnxruntime's own, at times with its file and line, in front of what it has to say.
_SIGNATURE = re.compile(
    r"(?:/\S+:\d+ )?(?:[a-z][\w:<>]*[*&]? )?onnxruntime::[^()]*\((?:[^()]|\([^()]*\))*\)(?: const)?"
    r"(?:::<lambda\([^()]*\)>)?(?: \[with [^\]]*\])? "
)


@dataclass(frozen=True)
class Extension:
    """Operators of a domain that onnxruntime must be told of.

    Attributes:
        register: lets sessions that are made with the options run them.
        raising: a block in which they run; it raises what went wrong in one of them.
    """

    register: Callable[[ort.SessionOptions], None]
    raising: Callable[[], AbstractContextManager[None]]


#: The `Extension` of a domain, as "module:attribute" in a row above this one.
EXTENSIONS = {DOMAIN: "onnx_spatial.custom_ops.running:EXTENSION"}


class RunFailure(Exception):
    """A model, or a part of one, does not load or run.

    Attributes:
        stage: "load": whatever it is fed; "run": on this data; "rule": an operator of ours is
            asked for what it cannot do.
        node: name of the node that failed, where it is known.
        lacks_kernel: onnxruntime does not know the operator, or not for this type or attribute.
        hopeless: no other sizes would help, either.
        progress: nodes that ran before.
        operands: what the node was given, where that was asked for (`Program.explains`).
        refused: the operator of ours that is asked for what it cannot do, by its position among the
            nodes, and the sizes of its data; None for other failures.
    """

    def __init__(
        self, message: str, stage: Stage, node: str = "", *, lacks_kernel: bool = False
    ) -> None:
        super().__init__(message)
        self.stage: Stage = stage
        self.node = node
        self.lacks_kernel = lacks_kernel
        self.hopeless = any(words in message for words in _HOPELESS)
        self.progress = 0
        self.operands: Operands | None = None
        self.refused: tuple[int, tuple[int, ...]] | None = None


class Session:
    """A model in onnxruntime on the CPU.

    Args:
        model: serialized.
        optimise: with all of onnxruntime's optimisations, or without any.
        folder: where its external data lies.
        threads: that one node may use; 0 leaves that to onnxruntime.
        spin: whether threads wait for work by spinning, as is onnxruntime's default.

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
        spin: bool = False,
    ) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = _SILENT
        level = ort.GraphOptimizationLevel
        options.graph_optimization_level = (
            level.ORT_ENABLE_ALL if optimise else level.ORT_DISABLE_ALL
        )
        options.intra_op_num_threads = threads
        # Many small sessions live side by side; threads that spin would starve the one that runs.
        # Those that are timed spin as any user's do, but only while they run.
        entry = "force_spinning_stop" if spin else "intra_op.allow_spinning"
        options.add_session_config_entry(f"session.{entry}", "1" if spin else "0")
        # An arena keeps the most that was ever needed, and every session has its own.
        options.enable_cpu_mem_arena = spin
        if not optimise:  # prepacked weights are copies: the session that users see has them
            options.add_session_config_entry("session.disable_prepacking", "1")
        if folder is not None:
            options.add_session_config_entry(
                "session.model_external_initializers_file_folder_path", str(folder)
            )
        self._has_loop = _LOOP in model
        needed: list[Extension] = [
            resolve_name(name) for domain, name in EXTENSIONS.items() if domain.encode() in model
        ]
        self._raising = needed[0].raising if needed else nullcontext
        for extension in needed:
            extension.register(options)
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
        """Outputs by name, all of them if none are named; sequences are lists.

        Raises:
            RunFailure: it cannot run on this data.
        """
        names = list(outputs if outputs is not None else self.outputs)
        options = ort.RunOptions()
        options.log_severity_level = _SILENT
        try:
            with _deadline(options, self._has_loop), self._raising():
                if not any(is_raw_type(self.outputs[n]) for n in names):
                    fed = {n: _fed(a) for n, a in feeds.items()}
                    return dict(zip(names, self._session.run(names, fed, options), strict=True))
                # The other way: all outputs of any type, but no strings and no sequences are fed.
                values = {n: to_ort(a) for n, a in feeds.items()}
                results = self._session.run_with_ort_values(names, values, options)
                return {n: from_ort(v) for n, v in zip(names, results, strict=True)}
        except Exception as error:  # as above
            if options.terminate:
                raise endless() from None
            raise _failure(error, "run") from None

    def repeatable(self, feeds: Mapping[str, Any]) -> Callable[[], None]:
        """A run on this data that can be repeated, with nothing of ours around it to be timed.

        The function raises RunFailure where the model cannot run on this data. What the model gives
        is dropped. There is no bound on loops.
        """
        options = ort.RunOptions()
        options.log_severity_level = _SILENT
        names, session, raising = list(self.outputs), self._session, self._raising
        strings = any(isinstance(a, np.ndarray) and a.dtype.kind in "OUST" for a in feeds.values())
        fed = {n: _fed(a) if strings else to_ort(a) for n, a in feeds.items()}
        run = session.run if strings else session.run_with_ort_values

        def once() -> None:
            try:
                with raising():
                    run(names, fed, options)
            except Exception as error:  # as above
                raise _failure(error, "run") from None

        return once


def endless() -> RunFailure:
    """A loop that was given up, whatever it is fed."""
    return RunFailure(f"a loop was still running after {LOOP_SECONDS:.0f} s", "load")


@contextmanager
def _deadline(options: ort.RunOptions, needed: bool) -> Iterator[None]:
    """Tell onnxruntime, which looks at it between two nodes, to give up in time."""
    if not needed:
        yield
        return
    timer = threading.Timer(LOOP_SECONDS, setattr, (options, "terminate", True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _fed(value: Any) -> Any:
    """What a session takes beside numpy's own arrays: OrtValues, lists, None."""
    if is_raw(value):
        return to_ort(value)
    if isinstance(value, np.ndarray) and not value.flags.c_contiguous:
        return np.ascontiguousarray(value)
    return value


def _failure(error: Exception, stage: Stage) -> RunFailure:
    text = str(error)
    found = re.search(r"[Nn]ame:? ?'([^']*)'|Node \(([^)]*)\) Op \(", text)
    lacks_kernel = any(words in text for words in _LACKS_KERNEL)
    return RunFailure(
        first_line(error),
        stage,
        (found.group(1) or found.group(2) or "") if found else "",
        lacks_kernel=lacks_kernel,
    )


def first_line(error: Exception) -> str:
    """What went wrong, without onnxruntime's codes and source locations."""
    text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text.strip())
    text = re.sub(r"Status Message: /\S+:\d+ .*? was false\. ", "", text)
    text = re.sub(r"Status Message: /\S+:\d+ ", "", text)
    text = _SIGNATURE.sub("", text)
    return text.removeprefix("Non-zero status code returned while ").strip()
