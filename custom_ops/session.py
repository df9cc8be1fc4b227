"""`InferenceSession`: onnxruntime's, for models that it does not load by itself.

    from onnxruntime import InferenceSession   ->   from onnx_spatial import InferenceSession

The model is rewritten in memory. Weights stay in their files, the model's own included: onnxruntime
is given the small rest of the model and the folder to find them in.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from google.protobuf.message import DecodeError

from onnx_spatial.custom_ops import options, registration
from onnx_spatial.custom_ops.operators import watch
from onnx_spatial.custom_ops.prepared import write
from onnx_spatial.custom_ops.running import raising
from onnx_spatial.dialects.prepared import DOMAIN
from onnx_spatial.errors import ConversionError, UsageError
from onnx_spatial.graph import external, files, walk
from onnx_spatial.plan import make_plan, refusals

MODES = ("lower", "function", "custom-op")

_FORMAT = "session.load_model_format"


class InferenceSession(ort.InferenceSession):  # type: ignore[misc]
    """An onnxruntime.InferenceSession that loads models with spatial operators.

    All of onnxruntime's methods work as they do there. A model without spatial operators (and without
    convolutions that onnxruntime refuses) is handed to onnxruntime as it is.

    Args:
        path_or_bytes: path or bytes, as onnxruntime takes them, or an onnx.ModelProto or
            onnx_ir.Model, which is not changed.
        sess_options: onnxruntime.SessionOptions; they are not changed.
        providers, provider_options: as onnxruntime takes them.
        mode: "lower": standard operators; "function": model-local functions; "custom-op": Python
            operators, by way of onnxruntime-extensions.
        domains: operator domains to accept beside the ones that converters are known to use.
        max_rank: largest rank that new tensors may have, in mode "lower".
        checked: let every run fail in which sizes or parameters break a rule of an operator, as for
            `onnx_spatial.convert`.
        arguments: whatever else onnxruntime.InferenceSession takes, as disabled_optimizers.

    Raises:
        UsageError: there is no such mode, or mode "custom-op" cannot be had here.
        ModelFileError: the model cannot be read.
        ConversionError: an operator breaks its rules or cannot be converted.
        Exception: whatever onnxruntime raises where it cannot load the result.
    """

    def __init__(
        self,
        path_or_bytes: files.Model,
        sess_options: ort.SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        *,
        mode: str = "lower",
        domains: Sequence[str] = (),
        max_rank: int | None = None,
        checked: bool = False,
        **arguments: Any,
    ) -> None:
        if mode not in MODES:
            raise UsageError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
        if mode == "custom-op":
            registration.extensions()
        #: Whether Python operators may run in this session.
        self._runs_python = False
        self._running: Callable[[], AbstractContextManager[None]] = nullcontext
        given: Any = path_or_bytes
        if not _is_ort_format(path_or_bytes, sess_options):
            given, sess_options = self._rewrite(
                given, sess_options, mode, domains, max_rank, checked
            )
        super().__init__(given, sess_options, providers, provider_options, **arguments)

    def _rewrite(
        self,
        model: files.Model,
        given: ort.SessionOptions | None,
        mode: str,
        domains: Sequence[str],
        max_rank: int | None,
        checked: bool,
    ) -> tuple[str | os.PathLike[str] | bytes, ort.SessionOptions | None]:
        """What to give to onnxruntime in place of a model and options."""
        source = _read(model, given)
        plan = make_plan(
            source.proto,
            domains=domains,
            max_rank=max_rank,
            checked=checked,
            folder=source.folder,
            mode=mode,
            write=write if mode == "custom-op" else None,
        )
        if refused := plan.refused():
            raise ConversionError(f"{source.name}: {refusals(refused)}")
        result = source.proto
        if plan.model is not None:
            result = plan.model
            _drop_leftovers(result, source.proto)
        self._runs_python = any(o.domain == DOMAIN for o in result.opset_import)
        own = given
        if self._runs_python:
            self._running = raising
            own = options.private(given, result)
            if own is given and given is not None:
                registration.register(given)
            else:
                registration.register_fresh(own)
        if plan.model is None and isinstance(model, str | os.PathLike | bytes):
            return model, own
        rewritten = source.holding(result)
        if source.weights is None and not external.locations(source):
            return files.serialize(result, source.name), own
        if own is given:
            own = options.private(given, result)
        if own is given and not external.locations(source):  # they are not ours to change
            return files.serialize(rewritten.whole(), source.name), own
        rewritten = files.resolved(rewritten)
        assert own is not None and rewritten.folder is not None
        own.add_session_config_entry(options.FOLDER, str(rewritten.folder.resolve()))
        return files.serialize(rewritten.proto, source.name), own

    def run(self, *arguments: Any, **named: Any) -> Any:
        """As onnxruntime's."""
        with self._running():
            return super().run(*arguments, **named)

    def run_with_ort_values(self, *arguments: Any, **named: Any) -> Any:
        """As onnxruntime's."""
        with self._running():
            return super().run_with_ort_values(*arguments, **named)

    def run_with_iobinding(self, *arguments: Any, **named: Any) -> None:
        """As onnxruntime's."""
        with self._running():
            super().run_with_iobinding(*arguments, **named)

    def run_with_ortvaluevector(self, *arguments: Any, **named: Any) -> None:
        """As onnxruntime's."""
        with self._running():
            super().run_with_ortvaluevector(*arguments, **named)

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Any,
        callback: Callable[[Any, Any, str], None],
        user_data: Any,
        run_options: ort.RunOptions | None = None,
    ) -> None:
        """As onnxruntime's; the callback's error string says what an operator of ours said."""
        if not self._runs_python:
            super().run_async(output_names, input_feed, callback, user_data, run_options)
            return
        watch.begin()
        try:
            callback = _explaining(callback)
            super().run_async(output_names, input_feed, callback, user_data, run_options)
        except BaseException:  # it was not even begun
            watch.end()
            raise


def _drop_leftovers(result: onnx.ModelProto, original: onnx.ModelProto) -> None:
    """Take out initializers that only converted nodes read: onnxruntime warns of each."""
    before, now = (_read_names(model) for model in (original, result))
    kept = now | {v.name for v in (*result.graph.input, *result.graph.output)}
    for index in reversed(range(len(result.graph.initializer))):
        if (name := result.graph.initializer[index].name) in before and name not in kept:
            del result.graph.initializer[index]


def _read_names(model: onnx.ModelProto) -> set[str]:
    names = {name for _, _, node in walk.nodes(model) for name in node.input}
    inner = (g for _, g in walk.graphs(model) if isinstance(g, onnx.GraphProto))
    return names | {v.name for graph in inner for v in graph.output}


def _explaining(callback: Callable[[Any, Any, str], None]) -> Callable[[Any, Any, str], None]:
    def explained(results: Any, user_data: Any, error: str) -> None:
        watch.end()
        reason = registration.explain(error) if error else None
        callback(results, user_data, error if reason is None else str(reason))

    return explained


def _read(model: files.Model, sess_options: ort.SessionOptions | None) -> files.Source:
    """The model; bytes may say in the options where their external data lies."""
    folder = options.entry(sess_options, options.FOLDER)
    if folder and isinstance(model, bytes):
        try:
            return files.Source(onnx.ModelProto.FromString(model), base=Path(folder))
        except DecodeError:
            pass  # said in our own words below
    return files.read(model)


def _is_ort_format(model: object, sess_options: ort.SessionOptions | None) -> bool:
    """onnxruntime's own file format is not ONNX; what is in there was loaded once before."""
    if known := options.entry(sess_options, _FORMAT):
        return known == "ORT"
    if isinstance(model, bytes):
        return model[4:8] == b"ORTM"
    return isinstance(model, str | os.PathLike) and Path(model).suffix == ".ort"
