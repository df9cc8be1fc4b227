"""The converted model in a session: with optimisations, or without and with its operators watched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx

from onnx_spatial.model.io import reader
from onnx_spatial.verification.arrays import Array, constant_value
from onnx_spatial.verification.checks.in_place import InPlace
from onnx_spatial.verification.runtime.sessions import RunFailure, Session


class WatchedSession:
    """A session of the converted model that also fetches what `InPlace` compares.

    Args:
        source: the converted model.
        in_place: the operators to compare in passing, without optimisations only.
        optimised: with onnxruntime's optimisations, or without any.
    """

    def __init__(self, source: reader.Source, in_place: InPlace, *, optimised: bool) -> None:
        self.optimised = optimised
        self._source = source
        self._in_place = in_place
        self._stored = {t.name: t for t in source.proto.graph.initializer}
        self._outputs = [v.name for v in source.proto.graph.output]
        self._extra = [] if optimised else [n for n in in_place.wanted() if n not in self._outputs]

    def load(self) -> None:
        """Make the session.

        Raises:
            RunFailure: the model does not load.
        """
        folder = self._source.folder
        data = self._source.data or reader.serialize(self._source.proto, self._source.name)
        more = onnx.ModelProto()
        more.graph.output.extend(onnx.ValueInfoProto(name=n) for n in self._extra)
        try:
            # Serialized messages that are put together merge: two more kilobytes, and no copy.
            extended = data + more.SerializeToString()
            self._session = Session(extended, optimise=self.optimised, folder=folder)
        except RunFailure:
            if not self._extra:
                raise
            self._extra = []
            self._session = Session(data, folder=folder)

    def run(self, feeds: Mapping[str, Array], *, compare: bool) -> dict[str, Any]:
        """Return the outputs; compare the operators in place if `compare`.

        Raises:
            RunFailure: it cannot run on this data.
        """
        if self.optimised or not compare:
            return self._session.run(feeds, self._outputs)
        try:
            values = self._session.run(feeds, [*self._outputs, *self._extra])
        except RunFailure:
            if not self._extra:
                raise
            # numpy cannot fetch every type from a session that it can also feed strings to.
            values = self._session.run(feeds, self._outputs)
        self._in_place.compare({**feeds, **values}, self._initializer)
        return values

    def _initializer(self, name: str) -> Array | None:
        tensor = self._stored.get(name)
        return None if tensor is None else constant_value(tensor, self._source.folder)
