"""Share sessions among small models that differ in names alone.

x -> [Reshape a] -> p -> [Transpose b] -> y
u -> [Reshape c] -> q -> [Transpose d] -> z      one session of v1 -> v3 -> v4 runs both
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.arrays import is_float
from onnx_spatial.verification.runtime.both_levels import BothLevels, load_part
from onnx_spatial.verification.runtime.sessions import RunFailure

#: Sessions that are kept, nodes and bytes of a model: larger ones are seldom equal.
_MOST_SESSIONS, _MOST_NODES, _MOST_BYTES = 64, 32, 2**16

#: Operators that may end the process on integers, which is reported with the name of the node.
_TRAPS = frozenset({"Div", "Mod"})


class SharedSessions:
    """The last sessions of a verification, by their models without names."""

    def __init__(self) -> None:
        self.load = lru_cache(maxsize=_MOST_SESSIONS)(load_part)

    def both_levels(self, model: onnx.ModelProto, output: str, folder: Path | None) -> BothLevels:
        """Return the sessions of a part of the converted model, shared if it is small and plain."""
        if not _is_plain(model):
            return BothLevels(model, output, folder)
        return _SharedLevels(self, model, output, folder)


class _SharedLevels(BothLevels):
    """Sessions that equal models use, too; after a failure, those of the model with its names."""

    def __init__(
        self, shared: SharedSessions, model: onnx.ModelProto, output: str, folder: Path | None
    ) -> None:
        super().__init__(model, output, folder)
        self._load = shared.load
        self._content, self._names = _without_names(model)
        self._inputs = [value.name for value in model.graph.input]
        self._alike = True

    def _run(self, feeds: Mapping[str, Any], optimised: bool) -> Any:
        fed = {self._names[n]: feeds[n] for n in self._inputs if n in feeds}
        # As in `segment`: on integers a run may end the process.
        reals = all(isinstance(a, np.ndarray) and is_float(a.dtype) for a in fed.values())
        if self._alike and reals:
            try:
                session = self._load(self._content, optimised, self._folder)
                return session.run(fed)[self._names[self._output]]
            except RunFailure:
                self._alike = False  # its own names are for the message
        return super()._run(feeds, optimised)


def _is_plain(model: onnx.ModelProto) -> bool:
    """Tell whether a model has few nodes, no graphs inside, and gives the same on the same data."""
    nodes = model.graph.node
    return (
        len(nodes) <= _MOST_NODES
        and not model.functions
        and not model.graph.sparse_initializer
        and all(op_traits.is_standard(n) and n.op_type not in _TRAPS for n in nodes)
        and not any(Trait.RANDOM in op_traits.of(n).traits for n in nodes)
        and not any(True for n in nodes for _ in traversal.subgraphs(n))
        and len({n.name for n in nodes}) == len(nodes)  # else onnxruntime refuses the model
        and model.ByteSize() <= _MOST_BYTES
    )


def _without_names(model: onnx.ModelProto) -> tuple[bytes, dict[str, str]]:
    """Return a model that is equal for models that differ in names alone, and its names of values."""
    names = {"": ""}

    def renamed(values: Iterable[str]) -> list[str]:
        return [names.setdefault(name, f"v{len(names)}") for name in values]

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    for value in graph.input:
        (value.name,) = renamed([value.name])
    for node in graph.node:
        for field in ("name", "doc_string", "metadata_props"):
            node.ClearField(field)
        node.input[:], node.output[:] = renamed(node.input), renamed(node.output)
    for each in (*graph.initializer, *graph.output):
        (each.name,) = renamed([each.name])
    graph.initializer.sort(key=lambda tensor: tensor.name)  # they come in any order
    return copy.SerializeToString(deterministic=True), names
