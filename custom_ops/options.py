"""Copy the options of a session, so that the program's own are not changed."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
import onnxruntime as ort
from onnx import TensorProto

from onnx_spatial.python_ops.registration import loads, one_node, open_session, silence_options

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


def private_copy(options: ort.SessionOptions | None, model: onnx.ModelProto) -> ort.SessionOptions:
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
    with silence_options(options) as kept:
        session = open_session(one_node("Identity"), options)
    if session is None:  # the options fit only the program's model
        return options
    copy = session.get_session_options()
    for name, value in kept.items():
        setattr(copy, name, value)
    return copy


def supplies_data(options: ort.SessionOptions, locations: Iterable[str]) -> bool:
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
    return files and any(loads(_model_reading(name), options) for name in names)


def config_entry(options: ort.SessionOptions | None, key: str) -> str:
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


def _model_reading(location: str) -> bytes:
    """Return a model whose output is the first byte of a file."""
    tensor = onnx.TensorProto(name="x", data_type=TensorProto.UINT8, dims=[1])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "1")):
        tensor.external_data.add(key=key, value=value)
    return one_node("Identity", element_type=TensorProto.UINT8, stored=tensor)
