"""Run a model: in a session of onnxruntime, with the spatial operators in Python.

No runtime loads an original. In it a Python operator says where each element of the output comes from,
counted from 1, with 0 for padding; Gather fetches the elements (`python_ops.write`):

    x -> Shape -> Range -> Reshape -> operator -> Reshape -> Gather -> y
    x -> Reshape [-1] -> Concat(zero, .) --------------------^

Python operators have the definitions in numpy that converted models of mode "custom-op" run, too. So
the parts of such a model are compared with the same definitions in onnx's reference evaluator
(`evaluator`). That also runs the original where onnxruntime-extensions is not available, and for types
that have no Python operators.

Convolutions that onnxruntime refuses, auto_pad SAME with dilations, get the pads that conversion gives
them. That these are right is proven from the files.

What fails raises a `RunError` of one clear line. Native code may end the process: so what runs reports
what it is about to do before each load and each run.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.conversion import onnxruntime_pads
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.conversion.pipeline import convert_operators
from onnx_spatial.errors import OperatorError, SpatialError
from onnx_spatial.lowering import Lowered, Request
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import functions
from onnx_spatial.model.io import reader, sparse
from onnx_spatial.operators.operator import show
from onnx_spatial.operators.spellings.python_ops import DOMAIN
from onnx_spatial.python_ops import registration
from onnx_spatial.python_ops.write import write_python_op
from onnx_spatial.verification import process
from onnx_spatial.verification.options import Array
from onnx_spatial.verification.process import CONVERTED, ORIGINAL
from onnx_spatial.verification.run.run_error import RunError, first_line
from onnx_spatial.verification.values import dtype_of, element_type_of, is_native

if TYPE_CHECKING:
    from onnx_spatial.verification.run.evaluator import Evaluator

#: onnxruntime's severity of fatal errors: nothing below it is printed.
_SEVERITY_FATAL = 4

#: Threads of one node; more gain little at the sizes that are run.
_THREADS = min(4, os.cpu_count() or 1)


class Session:
    """A serialized model in onnxruntime.

    Args:
        model: the model.
        of: the model that it is, or is a part of, for messages: ORIGINAL or CONVERTED.
        optimise: with all of onnxruntime's optimisations, or without any.
        folder: folder of its external data.

    Attributes:
        outputs: types in onnxruntime, by name.

    Raises:
        RunError: it does not load.
        UsageError: it has Python operators, which are not available.
    """

    #: What runs the model; `Evaluator` is the other kind.
    kind = "session"

    def __init__(
        self,
        model: bytes,
        *,
        of: str = ORIGINAL,
        optimise: bool = False,
        folder: Path | None = None,
    ) -> None:
        self._of = of
        self._level = f"optimisations {'on' if optimise else 'off'}"
        options = _session_options(optimise, folder)
        self._raising: Callable[[], AbstractContextManager[None]] = nullcontext
        if DOMAIN.encode() in model:
            self._raising = registration.raising
            registration.register_fresh(options)
        doing = f"{of} loads with {self._level}"
        process.check_time(doing)
        process.report(doing, of)
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
        process.report(doing, self._of)
        options = ort.RunOptions()
        options.log_severity_level = _SEVERITY_FATAL
        try:
            with process.stopping_in_time(options, doing), self._raising():
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
    model, added = source.proto, list(values)
    if added:
        computed = {name for node in model.graph.node for name in node.output}
        computed -= {value.name for value in model.graph.output}
        added = [name for name in added if name in computed]
    if added:
        model = onnx.ModelProto()
        model.CopyFrom(source.proto)
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in added)
    data = reader.serialize(model, source.name)
    return Session(data, of=CONVERTED, optimise=optimise, folder=source.folder)


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


# The original

#: Most elements of the output of an operator: a block of 10^9 must not exhaust the memory. A string
#: takes some 60 bytes.
_MAX_ELEMENTS, _MAX_STRINGS = 2**27, 2**22


class Original:
    """A model with spatial operators that onnxruntime loads, with optimisations on or off.

    Args:
        source: the model, and where its external data lies.
        domains: operator domains of the user's own that hold spatial operators.
        values: inner values of the main graph that become outputs, too.
        evaluated: whether onnx's evaluator runs it in any case.

    Raises:
        RunError: it cannot be made a model that loads.
    """

    def __init__(
        self,
        source: reader.Source,
        domains: Iterable[str] = (),
        *,
        values: Iterable[str] = (),
        evaluated: bool = False,
    ) -> None:
        source = reader.resolved(source)
        self._domains = frozenset(domains)
        self._folder = source.folder
        self._model = _with_explicit_pads(_inline_functions(source.proto), source.folder)
        outputs = self._model.graph.output
        declared = {value.name for value in outputs}
        outputs.extend(onnx.ValueInfoProto(name=n) for n in values if n not in declared)
        self._bytes = b""
        if registration.available() and not evaluated:
            options = ConvertOptions("custom-op", domains=tuple(self._domains))
            try:
                result = convert_operators(
                    self._model, options, folder=self._folder, write=_write_by_position
                )
            except SpatialError as error:
                raise RunError(str(error), "load") from None
            if all(operator.action != "refuse" for operator in result.operators):
                self._bytes = reader.serialize(result.model or self._model, source.name)

    def open(self, *, optimise: bool = False) -> Session | Evaluator:
        """Open a session, or onnx's evaluator where that is not possible.

        Raises:
            RunError: it does not load.
        """
        if not self._bytes:
            from onnx_spatial.verification.run.evaluator import Evaluator  # takes long to import

            return Evaluator(self._model, self._domains, self._folder)
        return Session(self._bytes, optimise=optimise, folder=self._folder)


def _write_by_position(request: Request, info: OperatorInfo) -> Lowered:
    """Emit a Python operator, unless its output is too large to be computed.

    Raises:
        RunError: it is.
        ConversionError: Python operators cannot run it in this model.
    """
    most = _MAX_STRINGS if onnx.TensorProto.STRING in info.element_types else _MAX_ELEMENTS
    output_elements, data_elements = (
        math.prod(dim for dim in shape or () if isinstance(dim, int) and dim)
        for shape in (info.output_shape, request.shape)
    )
    if output_elements > max(most, data_elements):  # no data of that size is made up
        site = f"{info.node.op_type} {traversal.label(info.node)!r} in {info.place}"
        shape = show(info.output_shape or ())
        raise RunError(f"{site}: its output {shape} is too large to be compared", "rule")
    return write_python_op(request, info, by_position=True)


def _inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy without local functions, and without declared shapes, which may be wrong."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    try:
        copy = functions.inline(copy)
    except Exception as error:  # of onnx's C++ code, without a type of its own
        raise RunError(f"its functions cannot be inlined: {first_line(error)}", "load") from None
    for _, graph in traversal.graphs(copy):
        del graph.value_info[:]
    for _, _, node in traversal.nodes(copy):
        node.name = traversal.label(node)  # for messages
    for value in copy.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    return copy


def _with_explicit_pads(model: onnx.ModelProto, folder: Path | None) -> onnx.ModelProto:
    """Return the model with explicit pads of the convolutions that onnxruntime refuses.

    Raises:
        RunError: the pads of one cannot be computed.
    """
    if not onnxruntime_pads.find(model, folder):
        return model
    opset = op_traits.opset_of(model.opset_import) or 0
    result = onnxruntime_pads.add_explicit_pads(model, opset, folder)
    for each in result.operator_at.values():
        if not each.converted:
            raise RunError(f"{each.op_type} {each.node!r}: {each.reason}", "load", each.node)
    return model if result.model is None else result.model
