"""Replace onnxruntime's InferenceSession by one that loads models with spatial operators.

    from onnxruntime import InferenceSession   ->   from onnx_spatial import InferenceSession

The model is converted in memory. External data stays in its files: onnxruntime gets their folder. The
options of the program are copied before they are changed.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import onnx
import onnxruntime as ort
from google.protobuf.message import DecodeError
from onnx import TensorProto

from onnx_spatial.api import edit_model
from onnx_spatial.conversion.options import ConvertOptions, Mode, domain_names
from onnx_spatial.conversion.pipeline import convert_operators
from onnx_spatial.conversion.report import refusal
from onnx_spatial.errors import Code, ConversionError, ModelFileError, SpatialError, of_model
from onnx_spatial.model.io import external_data, reader
from onnx_spatial.operators.spellings.python_ops import DOMAIN
from onnx_spatial.python_ops import registration
from onnx_spatial.python_ops.registration import loads, one_node, open_session, silence_options
from onnx_spatial.report.results import Conversion
from onnx_spatial.verification.options import VerifyOptions

_FORMAT = "session.load_model_format"


def prepare(model: reader.Model) -> onnx.ModelProto:
    """Convert the spatial operators of a model to the registered Python operators.

    `onnx_spatial.convert` with mode "custom-op" does it with options.

    Args:
        model: path, bytes, onnx.ModelProto or onnx_ir.Model; it is not changed. External data stays
            in its files.

    Returns:
        The prepared model; the model itself if there is nothing to convert.

    Raises:
        ModelFileError: the model cannot be read.
        ConversionError: an operator breaks its rules or cannot be run this way.
    """
    source = reader.read(model)
    with of_model(source.name):
        plan = convert_operators(source.proto, ConvertOptions("custom-op"), folder=source.folder)
    if refused := plan.refused():
        raise refusal(source.name, refused)
    return source.proto if plan.model is None else plan.model


class OnnxruntimeArguments(TypedDict, total=False):
    """The keywords that onnxruntime.InferenceSession takes from its **kwargs; it ignores all others."""

    disabled_optimizers: Sequence[str]
    enable_fallback: int
    read_config_from_model: int


def _raising_errors(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a way to run a session so that it raises the errors of Python operators."""

    @functools.wraps(method)
    def run(self: InferenceSession, *arguments: Any, **named: Any) -> Any:
        if not self._runs_python:
            return method(self, *arguments, **named)
        with registration.raising():
            return method(self, *arguments, **named)

    return run


class InferenceSession(ort.InferenceSession):  # type: ignore[misc]
    """An onnxruntime.InferenceSession that loads models with spatial operators.

    All methods are onnxruntime's. A model without spatial operators (and without convolutions that
    onnxruntime refuses) goes to onnxruntime unchanged.

    Args:
        path_or_bytes: path or bytes, as in onnxruntime, or an onnx.ModelProto or onnx_ir.Model, which
            is not changed. May be passed as `model`.
        sess_options: onnxruntime.SessionOptions; they are not changed.
        providers, provider_options: as in onnxruntime.
        mode: "lower": standard operators; "function": model-local functions; "custom-op": Python
            operators, through onnxruntime-extensions.
        fuse, chains, domains: as in `onnx_spatial.convert`.
        static: sizes of symbolic dims, by name, which are fixed in the session.
        verify: verify the converted model first, as `onnx_spatial.convert` does.
        onnxruntime_arguments: disabled_optimizers, enable_fallback, read_config_from_model, as in
            onnxruntime.

    Raises:
        TypeError: an argument is unknown.
        UsageError: a mode or dim does not exist, or mode "custom-op" is not available.
        ModelFileError: the model cannot be read.
        ConversionError: an operator breaks its rules or cannot be converted.
        VerificationError: with `verify`, the converted model differs from the original, or could not be
            compared.
        Exception: of onnxruntime, if it cannot load the result.
    """

    def __init__(
        self,
        path_or_bytes: reader.Model | None = None,
        sess_options: ort.SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        *,
        model: reader.Model | None = None,
        mode: Mode = "lower",
        fuse: bool = True,
        chains: bool = False,
        domains: Iterable[str] = (),
        static: Mapping[str, int] | None = None,
        verify: bool | VerifyOptions = False,
        **onnxruntime_arguments: Unpack[OnnxruntimeArguments],
    ) -> None:
        _check_names(onnxruntime_arguments)
        if (path_or_bytes is None) == (model is None):
            raise TypeError(
                "InferenceSession() takes one model: a path, bytes, onnx.ModelProto or onnx_ir.Model"
            )
        # A model in the form that the base class takes, once it is rewritten.
        loaded: Any = model if path_or_bytes is None else path_or_bytes
        if mode == "custom-op":
            registration.extensions()
        #: Whether Python operators may run in this session.
        self._runs_python = False
        #: Result of the conversion; None for a model in onnxruntime's own format.
        self.conversion: Conversion | None = None
        source = None
        if not _is_ort_format(loaded, sess_options):
            convert = functools.partial(
                edit_model,
                options=ConvertOptions(mode, fuse, chains, domains=domain_names(domains)),
                static=static,
                verify=verify,
            )
            source = _read_model(loaded, sess_options, data=bool(verify))
            loaded, sess_options = self._rewrite_model(loaded, source, sess_options, convert)
        try:
            super().__init__(
                loaded, sess_options, providers, provider_options, **onnxruntime_arguments
            )
        except Exception as error:
            reason = None if source is None else self._clearer_error(source, str(error))
            if reason is None:
                raise
            raise reason from error

    def _rewrite_model(
        self,
        model: reader.Model,
        source: reader.Source,
        sess_options: ort.SessionOptions | None,
        convert: Callable[[reader.Source], Conversion],
    ) -> tuple[str | os.PathLike[str] | bytes, ort.SessionOptions | None]:
        """Return the model and the options that onnxruntime gets."""
        locations = external_data.locations(source)
        supplied = sess_options is not None and supplies_data(sess_options, locations)
        # Without a path and a folder no value is read from external data.
        readable = replace(source, path=None, base=None, data=None) if supplied else source
        self.conversion = conversion = convert(readable)
        proto = conversion.result.proto
        if supplied and conversion.changed:
            _restore_external(proto, source)
        self._runs_python = any(o.domain == DOMAIN for o in proto.opset_import)
        options = sess_options
        if self._runs_python:
            options = sess_options if supplied else private_copy(sess_options, proto)
            if options is sess_options and sess_options is not None:
                registration.register(sess_options)
            else:
                registration.register_fresh(options)
        if proto is source.proto and isinstance(model, str | os.PathLike | bytes):
            return model, options
        if source.folder is None or not any(
            (source.folder / location).exists() for location in locations
        ):
            return reader.serialize(proto, source.name), options
        if options is sess_options and not supplied:
            options = private_copy(sess_options, proto)
        rewritten = reader.resolved(source.holding(proto))
        assert options is not None and rewritten.folder is not None
        options.add_session_config_entry(FOLDER, str(rewritten.folder.resolve()))
        return reader.serialize(rewritten.proto, source.name), options

    def _clearer_error(self, source: reader.Source, error: str) -> SpatialError | None:
        """Return a clearer error for one that onnxruntime raised at load; None if there is none."""
        if "xternal" in error or "model_path must not be empty" in error:  # the latter in 1.23
            try:
                external_data.check_data(source)
            except ModelFileError as missing:
                return missing
        sites = [] if self.conversion is None else self.conversion.operators
        for site in sites:
            if site.unknown_domain and site.domain in error and site.op_type in error:
                return ConversionError(
                    f"{source.name}: {site.op_type} {site.node!r} in {site.graph}: domain "
                    f"{site.domain!r} is not accepted for this operator; use domains=[{site.domain!r}]",
                    code=Code.UNKNOWN_DOMAIN,
                )
        return None

    run = _raising_errors(ort.InferenceSession.run)
    run_with_ort_values = _raising_errors(ort.InferenceSession.run_with_ort_values)
    run_with_iobinding = _raising_errors(ort.InferenceSession.run_with_iobinding)
    run_with_ortvaluevector = _raising_errors(ort.InferenceSession.run_with_ortvaluevector)

    @functools.wraps(ort.InferenceSession.run_async)
    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Any,
        callback: Callable[[Any, Any, str], None],
        *others: Any,
        **named: Any,
    ) -> Any:
        """Run as in onnxruntime; the callback gets the message of a Python operator that fails."""
        if not self._runs_python:
            return super().run_async(output_names, input_feed, callback, *others, **named)
        registration.state().failures.begin()
        try:
            callback = _explaining_errors(callback)
            return super().run_async(output_names, input_feed, callback, *others, **named)
        except BaseException:  # the run did not start
            registration.state().failures.end()
            raise


def _check_names(arguments: Iterable[str]) -> None:
    """Refuse keywords that neither this class nor onnxruntime's knows.

    Raises:
        TypeError: there is one.
    """
    for name in arguments:
        if name not in OnnxruntimeArguments.__annotations__:
            known = {*inspect.signature(InferenceSession).parameters}
            known |= {*OnnxruntimeArguments.__annotations__}
            near = difflib.get_close_matches(name, sorted(known), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"InferenceSession() got an unexpected keyword argument {name!r}{hint}")


def _restore_external(result: onnx.ModelProto, source: reader.Source) -> None:
    """Restore external initializers that conversion removed, as options supply their data.

    onnxruntime refuses options with an initializer that the model does not have.
    """
    external = {t.name for t in source.external_tensors}
    missing = external - {t.name for t in result.graph.initializer}
    result.graph.initializer.extend(t for t in source.proto.graph.initializer if t.name in missing)


def _explaining_errors(
    callback: Callable[[Any, Any, str], None],
) -> Callable[[Any, Any, str], None]:
    """Wrap a callback so that it gets the message of the Python operator that failed."""

    def explained(results: Any, user_data: Any, error: str) -> None:
        registration.state().failures.end()
        reason = registration.explain(error) if error else None
        callback(results, user_data, error if reason is None else str(reason))

    return explained


def _read_model(
    model: reader.Model, sess_options: ort.SessionOptions | None, *, data: bool
) -> reader.Source:
    """Read a model; for bytes, the options may name the folder of the external data."""
    folder = config_entry(sess_options, FOLDER)
    if folder and isinstance(model, bytes):
        try:
            return reader.Source(onnx.ModelProto.FromString(model), base=Path(folder))
        except DecodeError:
            pass  # raised below as a ModelFileError
    return reader.read(model, data=data)


def _is_ort_format(model: object, sess_options: ort.SessionOptions | None) -> bool:
    """Return whether a model is in onnxruntime's own format, which is not ONNX."""
    if known := config_entry(sess_options, _FORMAT):
        return known == "ORT"
    if isinstance(model, bytes):
        return model[4:8] == b"ORTM"
    return isinstance(model, str | os.PathLike) and Path(model).suffix == ".ort"


# Options of a session


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
