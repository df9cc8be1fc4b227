"""Sessions of onnxruntime on the CPU, for numpy arrays of every element type.

What fails raises a `RunError` of one clear line. Native code may end the process: so a session reports
what it is about to do before each load and each run.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime as ort

from onnx_spatial.errors import OperatorError
from onnx_spatial.model.io import reader, sparse
from onnx_spatial.operators.operator import show
from onnx_spatial.operators.spellings.python_ops import DOMAIN
from onnx_spatial.python_ops import registration
from onnx_spatial.verification import child, limits
from onnx_spatial.verification.arrays import Array, dtype_of, element_type_of, is_native

#: Models that sessions belong to, in messages.
ORIGINAL, CONVERTED = child.ORIGINAL, child.CONVERTED

Stage = Literal["load", "run", "rule"]

#: onnxruntime's severity of fatal errors: nothing below it is printed.
_SEVERITY_FATAL = 4

#: Threads of one node; more gain little at the sizes that are run.
_THREADS = min(4, os.cpu_count() or 1)

#: Messages of onnxruntime for operators, types and attributes that it has no kernel for.
_LACKS_KERNEL = (
    "NOT_IMPLEMENTED",
    "No Op registered",
    "is not a registered function/op",
    "not supported",
    "not currently registered or supported",
)

#: Messages of onnxruntime, numpy and the C++ library where memory runs out.
_NO_MEMORY = ("bad_alloc", "bad allocation", "Failed to allocate memory", "Unable to allocate")

#: What to do about an error of onnxruntime, by words of its message.
_ADVICE = {
    "two nodes with same node name": "rename one of them",
    "Cannot parse data from external tensors": (
        "onnx.save(onnx.load(MODEL), OUT, save_as_external_data=True) keeps shapes in the model"
    ),
}

#: The name of a node in a message of onnxruntime; the last one is that in the innermost body.
_NODE_NAME = re.compile(r"[Nn]ame:? ?'([^']*)'|Node \(([^)]*)\) Op \(")

#: The name of a spatial operator in its error.
_OPERATOR = re.compile(r"\S+ '([^']*)'")

#: A C++ function of onnxruntime, at times with file and line, in front of a message.
_SIGNATURE = re.compile(
    r"(?:/\S+:\d+ )?(?:[a-z][\w:<>]*[*&]? )?onnxruntime::[^()]*\((?:[^()]|\([^()]*\))*\)(?: const)?"
    r"(?:::<lambda\([^()]*\)>)?(?: \[with [^\]]*\])? "
)


class RunError(Exception):
    """A model does not load or run.

    Attributes:
        stage: "load": it fails on any data; "run": on this data; "rule": this data breaks a rule of a
            spatial operator.
        node: name of the node that failed, where it is known.
        lacks_kernel: onnxruntime does not know the operator, or not with this type or attribute.
        out_of_memory: it needs more memory than there is, or than is allowed.
    """

    def __init__(
        self,
        message: str,
        stage: Stage,
        node: str = "",
        *,
        lacks_kernel: bool = False,
        out_of_memory: bool = False,
    ) -> None:
        super().__init__(message)
        self.stage: Stage = stage
        self.node = node
        self.lacks_kernel = lacks_kernel
        self.out_of_memory = out_of_memory

    @classmethod
    def of(cls, error: Exception, stage: Stage) -> RunError:
        """Describe an exception of onnxruntime, which has a dozen types."""
        text = str(error)
        names = ["".join(each) for each in _NODE_NAME.findall(text)]
        advice = [what for words, what in _ADVICE.items() if words in text]
        message = first_line(error)
        return cls(
            "; ".join([message.removesuffix("."), *advice]) if advice else message,
            stage,
            names[-1] if names else "",
            lacks_kernel=any(words in text for words in _LACKS_KERNEL),
            out_of_memory=isinstance(error, MemoryError) or any(w in text for w in _NO_MEMORY),
        )

    @classmethod
    def broken_rule(cls, error: OperatorError) -> RunError:
        """Describe an error of a spatial operator, which begins with the operator and its name."""
        name = _OPERATOR.match(str(error))
        return cls(str(error), "rule", name.group(1) if name else "")


class Session:
    """A serialized model in onnxruntime.

    Args:
        model: the model.
        of: the model that it is, or is a part of, for messages: ORIGINAL or CONVERTED.
        optimise: with all of onnxruntime's optimisations, or without any.
        folder: folder of its external data.
        keeps: what must live as long as the session: it holds the operators that the model calls.

    Attributes:
        outputs: types in onnxruntime, by name.

    Raises:
        RunError: it does not load.
        UsageError: it has Python operators, which are not available.
    """

    #: What runs the model; see `evaluator.Evaluator` for the other kind.
    kind = "session"

    def __init__(
        self,
        model: bytes,
        *,
        of: str = ORIGINAL,
        optimise: bool = False,
        folder: Path | None = None,
        keeps: object = None,
    ) -> None:
        self._of, self._keeps = of, keeps
        self._level = f"optimisations {'on' if optimise else 'off'}"
        options = _session_options(optimise, folder)
        self._raising: Callable[[], AbstractContextManager[None]] = nullcontext
        if DOMAIN.encode() in model:
            self._raising = registration.raising
            registration.register_fresh(options)
        doing = f"{of} loads with {self._level}"
        limits.check_time(doing)
        child.report(doing, of)
        try:
            with self._raising():  # constants are computed while it loads
                self._session = ort.InferenceSession(
                    model,
                    options,
                    providers=["CPUExecutionProvider"],
                    enable_fallback=False,  # to the same provider, after lines on stdout
                )
        except OperatorError as error:
            raise RunError.broken_rule(error) from None
        except Exception as error:  # of onnxruntime's own types
            raise RunError.of(error, "load") from None
        self.outputs = {o.name: o.type for o in self._session.get_outputs()}

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Run the model and return its outputs by name; sequences are lists.

        Raises:
            RunError: it does not run on this data.
        """
        data = ", ".join(
            f"{name} {show(array.shape)}" if isinstance(array, np.ndarray) else name
            for name, array in feeds.items()
        )
        doing = f"{self._of} runs{' on ' if data else ''}{data} ({self._level})"
        child.report(doing, self._of)
        options = ort.RunOptions()
        options.log_severity_level = _SEVERITY_FATAL
        try:
            with limits.stopping_in_time(options, doing), self._raising():
                return self._run_session(feeds, options)
        except OperatorError as error:
            raise RunError.broken_rule(error) from None
        except Exception as error:  # of onnxruntime's own types
            raise RunError.of(error, "run") from None

    def _run_session(self, feeds: Mapping[str, Any], options: ort.RunOptions) -> dict[str, Any]:
        names = list(self.outputs)
        if _RAW.keys().isdisjoint(self.outputs.values()):
            fed = {name: _fed_value(array) for name, array in feeds.items()}
            results = map(_dense_output, self._session.run(names, fed, options))
        else:  # this way takes outputs of any type, but no strings and sequences as inputs
            values = {name: _to_ort(array) for name, array in feeds.items()}
            results = map(_from_ort, self._session.run_with_ort_values(names, values, options))
        return dict(zip(names, results, strict=True))


def _session_options(optimise: bool, folder: Path | None) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.log_severity_level = _SEVERITY_FATAL
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimise else level.ORT_DISABLE_ALL
    options.intra_op_num_threads = _THREADS
    # Small sessions live side by side; spinning threads would starve the one that runs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # An arena keeps the most that was ever needed, once for every session.
    options.enable_cpu_mem_arena = False
    if not optimise:  # prepacked weights are copies
        options.add_session_config_entry("session.disable_prepacking", "1")
    if folder is not None:
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(folder)
        )
    return options


def _fed_value(value: Any) -> Any:
    """Convert an array for a session; lists and None are taken as they are."""
    if not isinstance(value, np.ndarray):
        return value
    return np.asarray(value, order="C") if is_native(value.dtype) else _to_ort(value)


def open_converted(
    source: reader.Source, values: Iterable[str] = (), *, optimise: bool = False
) -> Session:
    """Open a converted model, of which some inner values of the main graph are outputs, too.

    Raises:
        RunError: it does not load.
        ModelFileError: the model exceeds protobuf's 2 GiB.
    """
    model = source.proto
    computed = {name for node in model.graph.node for name in node.output}
    computed -= {value.name for value in model.graph.output}
    if added := [name for name in values if name in computed]:
        model = onnx.ModelProto()
        model.CopyFrom(source.proto)
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in added)
    data = reader.serialize(model, source.name)
    return Session(data, of=CONVERTED, optimise=optimise, folder=source.folder)


def first_line(error: Exception) -> str:
    """Return the first line of an error message, without onnxruntime's codes and source locations."""
    text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text.strip())
    text = re.sub(r"Status Message: /\S+:\d+ .*? was false\. ", "", text)
    text = re.sub(r"Status Message: /\S+:\d+ ", "", text)
    text = _SIGNATURE.sub("", text)
    return text.removeprefix("Non-zero status code returned while ").strip()


# Tensors of types that numpy lacks. They go through the memory of an OrtValue, which has the layout of
# ONNX's raw data: elements of 4 and 2 bits are packed, the first one in the lowest bits, while numpy has
# a byte for each.

_UNKNOWN = frozenset({onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING})

#: Element types that numpy lacks, by the name of a tensor of them in onnxruntime.
_RAW = {
    f"tensor({name.lower()})": int(number)
    for name, number in onnx.TensorProto.DataType.items()
    if number not in _UNKNOWN and not is_native(dtype_of(number))
}


def _to_ort(array: Array) -> ort.OrtValue:
    """Convert an array to an onnxruntime tensor.

    Raises:
        RuntimeError: this onnxruntime has no tensors of that type.
    """
    dense = np.asarray(array, order="C")
    if is_native(array.dtype):
        return ort.OrtValue.ortvalue_from_numpy(dense)
    value = ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), element_type_of(array))
    data = onnx.numpy_helper.from_array(dense).raw_data
    if data:
        ctypes.memmove(value.data_ptr(), data, len(data))
    return value


def _from_ort(value: ort.OrtValue) -> Any:
    """Convert an onnxruntime value to an array; sequences to lists."""
    element_type = _RAW.get(value.data_type())
    if element_type is None:
        return value.numpy()
    size = value.tensor_size_in_bytes()
    data = ctypes.string_at(value.data_ptr(), size) if size else b""
    return onnx.numpy_helper.to_array(
        onnx.TensorProto(data_type=element_type, dims=value.shape(), raw_data=data)
    )


def _dense_output(value: Any) -> Any:
    """Return an output of onnxruntime; as an array if it is the sparse tensor of a Constant."""
    if not hasattr(value, "get_coo_data"):
        return value
    return sparse.scatter_values(
        value.values(), value.get_coo_data().indices(), value.dense_shape()
    )
