"""`InferenceSession`: onnxruntime's, for models that it does not load by itself.

    from onnxruntime import InferenceSession   ->   from onnx_spatial import InferenceSession

The model is rewritten in memory. Weights stay in their files, the model's own included: onnxruntime
is given the small rest of the model and the folder to find them in.
"""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from google.protobuf.message import DecodeError

from onnx_spatial.api import Conversion, convert
from onnx_spatial.custom_ops import model_cache, options, registration
from onnx_spatial.custom_ops.running import raising
from onnx_spatial.errors import ConversionError, ModelFileError, SpatialError
from onnx_spatial.model import traversal
from onnx_spatial.model.io import external_data, reader
from onnx_spatial.operators.spellings.python_ops import DOMAIN

_FORMAT = "session.load_model_format"

#: What onnxruntime.InferenceSession takes out of its **kwargs; it ignores all else without a word.
_ONNXRUNTIME = frozenset({"disabled_optimizers", "enable_fallback", "read_config_from_model"})


class InferenceSession(ort.InferenceSession):  # type: ignore[misc]
    """An onnxruntime.InferenceSession that loads models with spatial operators.

    All of onnxruntime's methods work as they do there. A model without spatial operators (and without
    convolutions that onnxruntime refuses) is handed to onnxruntime as it is.

    Args:
        path_or_bytes: path or bytes, as onnxruntime takes them, or an onnx.ModelProto or
            onnx_ir.Model, which is not changed. May be called `model`.
        sess_options: onnxruntime.SessionOptions; they are not changed.
        providers, provider_options: as onnxruntime takes them.
        mode: "lower": standard operators; "function": model-local functions; "custom-op": Python
            operators, by way of onnxruntime-extensions.
        fuse: in mode "lower", also fuse the operators with the nodes around them, as `convert` does.
        domains: operator domains to accept beside the ones that converters are known to use.
        static: sizes for symbolic dims, by name; they are fixed in the session.
        strategy: lower with this strategy wherever it applies, instead of the cheapest.
        max_rank: largest rank that new tensors may have, in mode "lower".
        checked: let every run fail in which sizes or parameters break a rule of an operator, as for
            `onnx_spatial.convert`.
        verify: prove the rewritten model first, as `convert` does.
        cache: folder that keeps rewritten models; a session of the same model with the same arguments
            takes it from there. It is made if it is missing, and may be emptied at any time.
        onnxruntime_arguments: disabled_optimizers, enable_fallback, read_config_from_model, as
            onnxruntime takes them.

    Raises:
        TypeError: an argument of another name.
        UsageError: there is no such mode, strategy or dim, or mode "custom-op" cannot be had here.
        ModelFileError: the model cannot be read.
        ConversionError: an operator breaks its rules or cannot be converted.
        VerificationError: with `verify`, the rewritten model is not proven to be the original.
        Exception: whatever onnxruntime raises where it cannot load the result.
    """

    def __init__(
        self,
        path_or_bytes: reader.Model | None = None,
        sess_options: ort.SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        *,
        model: reader.Model | None = None,
        mode: str = "lower",
        fuse: bool = True,
        domains: Iterable[str] = (),
        static: Mapping[str, int] | None = None,
        strategy: str | None = None,
        max_rank: int | None = None,
        checked: bool = False,
        verify: bool = False,
        cache: str | os.PathLike[str] | None = None,
        **onnxruntime_arguments: Any,
    ) -> None:
        _check_names(onnxruntime_arguments)
        if (path_or_bytes is None) == (model is None):
            raise TypeError("InferenceSession() takes one model: a path, bytes or a message")
        given: Any = model if path_or_bytes is None else path_or_bytes
        if mode == "custom-op":
            registration.extensions()
        #: Whether Python operators may run in this session.
        self._runs_python = False
        self._running: Callable[[], AbstractContextManager[None]] = nullcontext
        self._convert: Callable[[], Conversion] | None = None
        source = None
        if not _is_ort_format(given, sess_options):
            wanted = {
                "mode": mode,
                "raise_ir_version": True,  # nobody sees it
                "fuse": fuse,
                "domains": sorted({domains} if isinstance(domains, str) else set(domains)),
                "static": dict(static or {}),
                "strategy": strategy,
                "max_rank": max_rank,
                "checked": checked,
                "verify": verify,
            }
            source = _read(given, sess_options, data=verify)
            given, sess_options = self._rewrite(given, source, sess_options, wanted, cache)
        try:
            super().__init__(
                given, sess_options, providers, provider_options, **onnxruntime_arguments
            )
        except Exception as error:
            reason = None if source is None else self._reason(source, str(error))
            if reason is None:
                raise
            raise reason from error

    @cached_property
    def conversion(self) -> Conversion | None:
        """What was done with the model; None for onnxruntime's own file format.

        For a model that came out of the cache it is done again when this is first asked for.
        """
        return None if self._convert is None else self._convert()

    def _rewrite(
        self,
        model: reader.Model,
        source: reader.Source,
        given: ort.SessionOptions | None,
        wanted: dict[str, Any],
        cache: str | os.PathLike[str] | None,
    ) -> tuple[str | os.PathLike[str] | bytes, ort.SessionOptions | None]:
        """What to give to onnxruntime in place of a model and options."""
        locations = external_data.locations(source)
        supplied = given is not None and options.supplies(given, locations)
        proto = self._rewritten(source, wanted, cache, supplied=supplied)
        changed = proto is not source.proto
        self._runs_python = any(o.domain == DOMAIN for o in proto.opset_import)
        own = given
        if self._runs_python:
            self._running = raising
            own = given if supplied else options.private(given, proto)
            if own is given and given is not None:
                registration.register(given)
            else:
                registration.register_fresh(own)
        if not changed and isinstance(model, str | os.PathLike | bytes):
            return model, own
        rewritten = source.holding(proto)
        there = source.folder is not None and any((source.folder / p).exists() for p in locations)
        if not there and (source.weights is None or supplied):
            return reader.serialize(rewritten.whole(), source.name), own
        if own is given and not supplied:
            own = options.private(given, proto)
        if own is given and not there:  # they are not ours to change
            return reader.serialize(rewritten.whole(), source.name), own
        rewritten = reader.resolved(rewritten)
        assert own is not None and rewritten.folder is not None
        own.add_session_config_entry(options.FOLDER, str(rewritten.folder.resolve()))
        return reader.serialize(rewritten.proto, source.name), own

    def _rewritten(
        self,
        source: reader.Source,
        wanted: dict[str, Any],
        cache: str | os.PathLike[str] | None,
        *,
        supplied: bool,
    ) -> onnx.ModelProto:
        """The model for onnxruntime, from the cache if it is there; the original if nothing is to do.

        Args:
            source: the model.
            wanted: the arguments of `convert`.
            cache: folder of the cache, if there is one.
            supplied: the options hold external data: what lies in files says nothing.
        """
        # Without a path and a folder no value is read from external data.
        readable = replace(source, path=None, base=None, data=None) if supplied else source

        def again() -> Conversion:
            return convert(readable, **wanted)

        self._convert = again
        key = ""
        if cache is not None:
            key = model_cache.key_of(source, {**wanted, "supplied": supplied})
            kept = model_cache.get(Path(cache), key)
            if kept is not None:
                return kept if kept.HasField("graph") else source.proto
        made = again()
        self._convert = lambda: made
        proto = source.proto
        if made.changed or wanted["static"]:
            proto = made.result.proto
        if made.changed:
            _drop_leftovers(proto, source, supplied=supplied)
        if cache is not None:
            empty = onnx.ModelProto()
            model_cache.put(Path(cache), key, empty if proto is source.proto else proto)
        return proto

    def _reason(self, source: reader.Source, error: str) -> SpatialError | None:
        """Return the error to raise for one of onnxruntime's at load; None where its own says it all."""
        if "xternal" in error or "model_path must not be empty" in error:  # so says 1.23
            try:
                external_data.check(source)
            except ModelFileError as missing:
                return missing
        conversion = self.conversion
        sites = [] if conversion is None else conversion.inspection.sites
        for site in sites:
            if site.unknown_domain and site.domain in error and site.op_type in error:
                return ConversionError(
                    f"{source.name}: {site.op_type} {site.node!r} in {site.graph}: domain "
                    f"{site.domain!r} is not known to hold this operator; accept it with "
                    f"domains=[{site.domain!r}]"
                )
        return None

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
        registration.state().watch.begin()
        try:
            callback = _explaining(callback)
            super().run_async(output_names, input_feed, callback, user_data, run_options)
        except BaseException:  # it was not even begun
            registration.state().watch.end()
            raise


def _check_names(arguments: Iterable[str]) -> None:
    """Refuse keywords that neither we nor onnxruntime know.

    Raises:
        TypeError: there is one.
    """
    for name in arguments:
        if name not in _ONNXRUNTIME:
            known = {*inspect.signature(InferenceSession).parameters, *_ONNXRUNTIME}
            near = difflib.get_close_matches(name, sorted(known), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"InferenceSession() got an unexpected keyword argument {name!r}{hint}")


def _drop_leftovers(result: onnx.ModelProto, source: reader.Source, *, supplied: bool) -> None:
    """Take out initializers that only converted nodes read: onnxruntime warns of each.

    Where options supply external data, those that may be among it stay: onnxruntime refuses options
    with an initializer that the model does not have.
    """
    original = source.proto
    before, now = (_read_names(model) for model in (original, result))
    kept = now | {v.name for v in (*result.graph.input, *result.graph.output)}
    if supplied:
        of_files = {t.name for t in external_data.tensors(source)}
        there = {t.name for t in result.graph.initializer}
        for tensor in original.graph.initializer:
            if tensor.name in of_files and tensor.name not in there:
                result.graph.initializer.append(tensor)
        kept |= of_files
    for index in reversed(range(len(result.graph.initializer))):
        if (name := result.graph.initializer[index].name) in before and name not in kept:
            del result.graph.initializer[index]


def _read_names(model: onnx.ModelProto) -> set[str]:
    names = {name for _, _, node in traversal.nodes(model) for name in node.input}
    inner = (g for _, g in traversal.graphs(model) if isinstance(g, onnx.GraphProto))
    return names | {v.name for graph in inner for v in graph.output}


def _explaining(callback: Callable[[Any, Any, str], None]) -> Callable[[Any, Any, str], None]:
    def explained(results: Any, user_data: Any, error: str) -> None:
        registration.state().watch.end()
        reason = registration.explain(error) if error else None
        callback(results, user_data, error if reason is None else str(reason))

    return explained


def _read(
    model: reader.Model, sess_options: ort.SessionOptions | None, *, data: bool
) -> reader.Source:
    """The model; bytes may say in the options where their external data lies."""
    folder = options.entry(sess_options, options.FOLDER)
    if folder and isinstance(model, bytes):
        try:
            return reader.Source(onnx.ModelProto.FromString(model), base=Path(folder))
        except DecodeError:
            pass  # said in our own words below
    return reader.read(model, data=data)


def _is_ort_format(model: object, sess_options: ort.SessionOptions | None) -> bool:
    """onnxruntime's own file format is not ONNX; what is in there was loaded once before."""
    if known := options.entry(sess_options, _FORMAT):
        return known == "ORT"
    if isinstance(model, bytes):
        return model[4:8] == b"ORTM"
    return isinstance(model, str | os.PathLike) and Path(model).suffix == ".ort"
