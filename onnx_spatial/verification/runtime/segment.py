"""Run standard nodes of the original together, as one model in onnxruntime."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import reference

from onnx_spatial.errors import ModelFileError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.io import external_data
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.arrays import (
    STRING,
    Array,
    constant_value,
    element_type_of,
    is_float,
)
from onnx_spatial.verification.match.graphs import called, model_of
from onnx_spatial.verification.runtime.context import RunContext
from onnx_spatial.verification.runtime.scope import RunScope
from onnx_spatial.verification.runtime.sessions import (
    THREADS,
    Operands,
    RunFailure,
    Session,
    first_line,
)
from onnx_spatial.verification.runtime.steps import Step

#: Operators that onnx's reference evaluator runs in Python loops over elements ...
_LOOPING = frozenset(
    "AveragePool Col2Im Conv ConvInteger ConvTranspose DeformConv GridSample GRU LpPool LRN LSTM "
    "MaxPool MaxRoiPool MaxUnpool NonMaxSuppression QLinearConv Resize RNN RoiAlign STFT "
    "TfIdfVectorizer Upsample".split()
)
#: ... and the elements of their inputs that it may: some seconds.
_MOST_LOOPED = 2**14

#: Sessions of a program with more parts than this get one thread each.
_MANY_PARTS = 16
#: The most nodes of a segment whose session others may share.
_MOST_ALIKE = 8
#: The most bytes of a weight that is fed to such a session, and the most sessions that are kept.
_MOST_BYTES, _MOST_SESSIONS = 2**16, 64
#: Types of weights that may be fed.
_REALS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
#: A vector with at most so many integers may be a shape.
_MOST_DIMS = 8


@dataclass
class Segment(Step):
    """Standard nodes, run as one model by onnxruntime for the outputs that others read."""

    context: RunContext
    nodes: list[onnx.NodeProto]
    outputs: list[str]
    _sessions: dict[object, Session | _Reference | _Shared] = field(default_factory=dict)
    _exact: bool = False
    _alike: bool = True

    def __post_init__(self) -> None:
        produced = {name for node in self.nodes for name in node.output}
        self.context.on_close(self._sessions.clear)
        self._inputs = sorted(set().union(*map(traversal.needs, self.nodes)) - produced)

    def run(self, scope: RunScope) -> None:
        """Run the nodes in onnxruntime, or in onnx's reference evaluator where it lacks a kernel."""
        if not self.outputs:
            return
        try:
            self._run(scope)
        except RunFailure as failure:
            if self.context.explains and failure.stage == "run":
                failure.operands = self._operands(scope, failure.node)
            raise

    def _run(self, scope: RunScope) -> None:
        feeds = self._feeds(scope)
        key = tuple((n, _kind_of(v, exact=self._exact)) for n, v in feeds.items())
        if key not in self._sessions:
            session = self._shared(scope, feeds) or self._load(self._model(scope, feeds))
            if session is None:
                self._exact = True  # some operators need to know shapes
                self._run(scope)
                return
            self._sessions[key] = session
        try:
            scope.values.update(self._sessions[key].run(feeds, self.outputs))
        except RunFailure as failure:
            if isinstance(self._sessions[key], _Shared):
                self._alike = False  # its own names are for the message
                del self._sessions[key]
                self._run(scope)
                return
            failure.progress += self._position(failure.node)
            if not failure.lacks_kernel or isinstance(self._sessions[key], _Reference):
                raise
            substitute = self._substitute(self._model(scope, feeds), failure)
            try:
                scope.values.update(substitute.run(feeds, self.outputs))
            except RunFailure:  # neither runs it: onnxruntime's reason is the one to report
                raise failure from None
            self._sessions[key] = substitute

    def _feeds(self, scope: RunScope) -> dict[str, Any]:
        """Return the computed inputs of the segment."""
        return {n: v for n in self._inputs if (v := scope.computed(n)) is not None}

    def _operands(self, scope: RunScope, label: str) -> Operands | None:
        """Return the inputs of a node, computed by the nodes before it; None if that fails."""
        labels = [traversal.label(node) for node in self.nodes]
        if label not in labels:
            return None
        position = labels.index(label)
        node, before = self.nodes[position], self.nodes[:position]
        produced = {output for other in before for output in other.output}
        computed = [n for n in dict.fromkeys(node.input) if n in produced]
        feeds = self._feeds(scope)
        try:
            values = {n: scope.value(n) for n in node.input if n and n not in produced}
            if computed:
                model = self._model(scope, feeds, before, computed)
                part = Session(model.SerializeToString(), folder=self.context.folder, threads=1)
                values.update(part.run(feeds, computed))
        except RunFailure:
            return None
        inputs = [values.get(n) for n in node.input]
        arrays = [v if isinstance(v, np.ndarray) else np.zeros(()) for v in inputs]
        vectors = {
            i: tuple(map(int, a))
            for i, a in enumerate(arrays)
            if a.ndim == 1 and a.dtype.kind in "iu" and a.size <= _MOST_DIMS
        }
        return Operands(node, [a.shape for a in arrays], vectors)

    def _shared(self, scope: RunScope, feeds: Mapping[str, Any]) -> _Shared | None:
        """Return the session of all segments that differ from this one in names alone; None for none.

        It is for few nodes that compute from reals alone. The numbers of weights are fed like data, so
        that layers of one kind share it; graphs inside nodes read outer values by name, and on integers
        a run may end the process, which is reported with the names of the nodes.
        """
        if not self._alike or len(self.nodes) > _MOST_ALIKE:
            return None
        if not all(isinstance(v, np.ndarray) and is_float(v.dtype) for v in feeds.values()):
            return None
        if not all(op_traits.is_standard(n) and _is_plain(n) for n in self.nodes):
            return None
        if called(self.nodes, self.context.imports.functions):
            return None
        own = [node.name for node in self.nodes if node.name]
        if len({*own}) < len(own):  # onnxruntime refuses the model; names are not shared
            return None
        if (weights := self._weights(scope, feeds)) is None:
            return None
        names: dict[str, str] = {}

        def renamed(values: Iterable[str]) -> list[str]:
            return [name and names.setdefault(name, f"v{len(names)}") for name in values]

        fed = {**feeds, **weights}
        exact = {n: self._exact or n in weights for n in fed}
        inputs = dict(zip(renamed(fed), fed, strict=True))
        nodes = []
        for node in self.nodes:
            copy = onnx.NodeProto(op_type=node.op_type, domain=node.domain)
            copy.attribute.extend(node.attribute)
            copy.input.extend(renamed(node.input))
            copy.output.extend(renamed(node.output))
            nodes.append(copy)
        outputs, context = renamed(self.outputs), self.context
        key = (
            tuple(node.SerializeToString(deterministic=True) for node in nodes),
            tuple(_kind_of(fed[n], exact=exact[n]) for n in inputs.values()),
            tuple(outputs),
            context.imports.ir_version,
            context.imports.opsets.get(""),
            context.optimise,
            self._threads,
        )
        if key not in context.sessions:
            if len(context.sessions) >= _MOST_SESSIONS:
                context.sessions.clear()
            types = {o: _type_of(o, fed[n], exact=exact[n]) for o, n in inputs.items()}
            model = model_of(context.imports, nodes, types, outputs)
            try:
                context.sessions[key] = self._session(model.SerializeToString())
            except RunFailure:
                self._alike = False  # its own names are for the message
                return None
        return _Shared(context.sessions[key], names, weights)

    def _weights(self, scope: RunScope, feeds: Mapping[str, Any]) -> dict[str, Array] | None:
        """Return the stored values that the nodes read, to be fed; None if one of them cannot be."""
        weights = {}
        for name in self._inputs:
            if name in feeds:
                continue
            stored = scope.stored(name)
            # An optimised session computes from constants once, and packs them for its kernels.
            if (
                self.context.optimise
                or not isinstance(stored, onnx.TensorProto)
                or stored.data_type not in _REALS
                or stored.ByteSize() > _MOST_BYTES
                or stored.data_location == onnx.TensorProto.EXTERNAL
            ):
                return None
            try:
                weights[name] = constant_value(stored, None)
            except ModelFileError:  # onnxruntime says what is wrong with it
                return None
        return weights

    @property
    def _threads(self) -> int:
        # Each session has threads of its own: a thousand of them would be too many.
        return 1 if self.context.parts > _MANY_PARTS else THREADS

    def _session(self, model: bytes) -> Session:
        return Session(
            model,
            optimise=self.context.optimise,
            folder=self.context.folder,
            threads=self._threads,
        )

    def _load(self, model: onnx.ModelProto) -> Session | _Reference | None:
        """Return a session or its substitute; None to try again with all shapes declared."""
        try:
            return self._session(model.SerializeToString())
        except RunFailure as failure:
            failure.progress += self._position(failure.node)
            if failure.lacks_kernel:
                return self._substitute(model, failure)
            if self._exact:
                failure.stage = "run"  # other sizes may fit
                raise
            return None

    def _model(
        self,
        scope: RunScope,
        feeds: Mapping[str, Any],
        nodes: Sequence[onnx.NodeProto] | None = None,
        outputs: Sequence[str] | None = None,
    ) -> onnx.ModelProto:
        nodes, outputs = nodes or self.nodes, outputs or self.outputs
        types = {n: _type_of(n, v, exact=self._exact) for n, v in feeds.items()}
        stored = [s for n in self._inputs if n not in types if (s := scope.stored(n)) is not None]
        return model_of(
            self.context.imports,
            [*(s for s in stored if isinstance(s, onnx.NodeProto)), *nodes],
            types,
            outputs,
            [s for s in stored if isinstance(s, onnx.TensorProto)],
            [s for s in stored if isinstance(s, onnx.SparseTensorProto)],
        )

    def _substitute(self, model: onnx.ModelProto, failure: RunFailure) -> _Reference:
        try:
            substitute = _Reference(model, self.context.folder)
        except Exception:  # neither runs it: onnxruntime's reason is the one to report
            raise failure from None
        self.context.substitutes.append(str(failure))
        return substitute

    def _position(self, name: str) -> int:
        labels = [traversal.label(node) for node in self.nodes]
        return labels.index(name) if name in labels else 0


@dataclass(frozen=True)
class _Shared:
    """A session for segments that differ in names alone, with its `names` of one segment's values."""

    session: Session
    names: Mapping[str, str]
    weights: Mapping[str, Array]

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str]) -> dict[str, Any]:
        values = {**self.weights, **feeds}
        fed = {self.names[name]: value for name, value in values.items()}
        results = self.session.run(fed, [self.names[name] for name in outputs])
        return {name: results[self.names[name]] for name in outputs}


class _Reference:
    """onnx's reference evaluator in place of a session."""

    def __init__(self, model: onnx.ModelProto, folder: Path | None) -> None:
        external_data.embed_all(model, folder)
        self._evaluator = reference.ReferenceEvaluator(model)
        for node in self._evaluator.rt_nodes_:
            if node.onnx_node.op_type in _LOOPING:
                node.run = _limited(node.onnx_node, node.run)

    def run(self, feeds: Mapping[str, Any], outputs: Iterable[str]) -> dict[str, Any]:
        names = list(outputs)
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                return dict(zip(names, self._evaluator.run(names, dict(feeds)), strict=True))
        except RunFailure:
            raise
        except NotImplementedError as error:
            raise RunFailure(first_line(error), "load") from None
        except Exception as error:  # of numpy, of any type
            raise RunFailure(first_line(error), "run") from None


def _limited(node: onnx.NodeProto, run: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse inputs that take Python loops more than seconds."""

    def limited(*inputs: Any, **attributes: Any) -> Any:
        if sum(int(np.size(value)) for value in inputs) > _MOST_LOOPED:
            reason = (
                "no kernel of onnxruntime, and its inputs are too large for the reference kernel"
            )
            raise RunFailure(f"{node.op_type} node {traversal.label(node)!r}: {reason}", "run")
        return run(*inputs, **attributes)

    return limited


def _is_plain(node: onnx.NodeProto) -> bool:
    """Tell whether a node has no graphs inside and gives the same on the same data."""
    return Trait.RANDOM not in op_traits.of(node).traits and not any(traversal.subgraphs(node))


def _kind_of(value: Any, *, exact: bool) -> object:
    """Return what `_type_of` depends on beside the name."""
    if isinstance(value, np.ndarray):
        kind: object = STRING if value.dtype.kind in "OUST" else value.dtype
        vector = value.ndim == 1 and value.dtype.kind in "iu"
        return kind, value.shape if exact or vector else value.ndim
    first = value[0] if isinstance(value, list) and value else None
    return type(value), first.dtype if isinstance(first, np.ndarray) else type(first)


def _type_of(name: str, value: Any, *, exact: bool = False) -> onnx.TypeProto:
    """Return the type to declare for a value: without sizes, so that one session serves all sizes.

    Vectors of integers keep theirs: they are shapes, and onnxruntime infers ranks from their size.
    """
    if isinstance(value, np.ndarray):
        vector = value.ndim == 1 and value.dtype.kind in "iu"
        # Unknown dims have names: without, onnxruntime plans its memory in quadratic time.
        unknown = [f"{name}[{axis}]" for axis in range(value.ndim)]
        dims = list(value.shape) if exact or vector else unknown
        return onnx.helper.make_tensor_type_proto(element_type_of(value), dims)
    if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        element = onnx.helper.make_tensor_type_proto(element_type_of(value[0]), None)
        return onnx.helper.make_sequence_type_proto(element)
    kind = "an empty sequence" if isinstance(value, list) else f"a {type(value).__name__}"
    raise RunFailure(
        f"{name!r} is {kind}, which cannot be passed between two parts of the model", "load"
    )
