"""Copy the options of a session, so that the program's own are not changed."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

#: Config entry with the folder of external data for a model that is passed as bytes.
FOLDER = "session.model_external_initializers_file_folder_path"

#: Domains of the operators in onnxruntime, onnxruntime-extensions and this package.
_BUILT_IN = frozenset(
    {
        "",
        "ai.onnx",
        "ai.onnx.contrib",
        "ai.onnx.ml",
        "ai.onnx.preview.training",
        "ai.onnx.training",
        "com.microsoft",
        "com.microsoft.experimental",
        "com.microsoft.extensions",
        "com.microsoft.nchwc",
        "onnx_spatial.ops",
        "org.pytorch.aten",
    }
)

#: What options say of a session that writes nothing.
_QUIET = {"enable_profiling": False, "optimized_model_filepath": "", "log_severity_level": 4}

_lock = threading.Lock()


def private(options: ort.SessionOptions | None, model: onnx.ModelProto) -> ort.SessionOptions:
    """Return a copy of options that may be changed for one session of `model`.

    onnxruntime copies options only when it makes a session, so a session of one Identity is made with
    them and returns its copy. The copy lacks libraries of custom operators and providers that were
    registered on the options. If the model may need one of these, or no such session can be made, the
    program's own options are returned.
    """
    if options is None:
        return ort.SessionOptions()
    if _holds_more(options, model):
        return options
    with _probing(options) as kept:
        session = _session(one_node("Identity"), options)
    if session is None:  # the options fit only the program's model
        return options
    copy = session.get_session_options()
    for name, value in kept.items():
        setattr(copy, name, value)
    return copy


def supplies(options: ort.SessionOptions, locations: Iterable[str]) -> bool:
    """Return whether options hold external data in memory, which a copy of them would lack.

    They hold initializers by name if no session of another model can be made with them. They hold a
    file if a session without a folder can read a tensor from it.

    Args:
        options: options of the program.
        locations: files of external data that the model names.
    """
    names = list(locations)
    if not names:
        return False
    if not loads(one_node("Identity"), options):
        return True
    # Where options take no files, a tensor that cannot be found is missed in a run only.
    files = hasattr(options, "add_external_initializers_from_files_in_memory")
    return files and any(loads(_reading(name), options) for name in names)


def loads(model: bytes, options: ort.SessionOptions) -> bool:
    """Return whether a session of a small model can be made with options, which stay as they are."""
    with _probing(options):
        return _session(model, options) is not None


@contextmanager
def _probing(options: ort.SessionOptions) -> Iterator[dict[str, Any]]:
    """Keep sessions with these options from writing files and messages; what the options say else."""
    with _lock:
        kept = {name: getattr(options, name) for name in _QUIET}
        try:
            for name, value in _QUIET.items():
                setattr(options, name, value)
            yield kept
        finally:
            for name, value in kept.items():
                setattr(options, name, value)


def _session(model: bytes, options: ort.SessionOptions) -> ort.InferenceSession | None:
    try:
        return ort.InferenceSession(
            model, options, providers=["CPUExecutionProvider"], enable_fallback=0
        )
    except Exception:  # of onnxruntime's own types
        return None


def entry(options: ort.SessionOptions | None, key: str) -> str:
    """Return a config entry of the options; empty if there is none."""
    if options is None:
        return ""
    try:
        return str(options.get_session_config_entry(key))
    except RuntimeError:
        return ""


def _holds_more(options: ort.SessionOptions, model: onnx.ModelProto) -> bool:
    """Return whether the model may need providers or operators that a copy of the options lacks."""
    if getattr(options, "has_providers", lambda: False)():
        return True
    local = {f.domain for f in model.functions}
    return bool({o.domain for o in model.opset_import} - local - _BUILT_IN)


def one_node(
    op_type: str,
    domain: str = "",
    element_type: int = TensorProto.FLOAT,
    stored: onnx.TensorProto | None = None,
    attributes: Mapping[str, str] | None = None,
) -> bytes:
    """Return a model of one node from x to y; x is an input, or the stored tensor."""
    x, y = (helper.make_tensor_value_info(name, element_type, None) for name in "xy")
    node = helper.make_node(op_type, ["x"], ["y"], domain=domain, **(attributes or {}))
    inputs, initializers = ([x], []) if stored is None else ([], [stored])
    graph = helper.make_graph([node], op_type, inputs, [y], initializers)
    imports = [helper.make_opsetid("", 13), *([helper.make_opsetid(domain, 1)] if domain else [])]
    model = helper.make_model(graph, opset_imports=imports, ir_version=7)
    return bytes(model.SerializeToString())


def _reading(location: str) -> bytes:
    """Return a model whose output is the first byte of a file."""
    tensor = onnx.TensorProto(name="x", data_type=TensorProto.UINT8, dims=[1])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "1")):
        tensor.external_data.add(key=key, value=value)
    return one_node("Identity", element_type=TensorProto.UINT8, stored=tensor)
