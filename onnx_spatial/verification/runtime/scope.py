"""The values of one run of a graph: what was fed and computed, initializers, Constant nodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

from onnx_spatial.model import op_traits
from onnx_spatial.model.inference import constant_folding
from onnx_spatial.verification.arrays import constant_value
from onnx_spatial.verification.runtime.sessions import RunFailure

#: What a graph stores under a name: an initializer, a sparse one, or a Constant node.
Stored = onnx.TensorProto | onnx.SparseTensorProto | onnx.NodeProto


class RunScope:
    """The values of one run of a graph, and those of the graphs around it."""

    def __init__(
        self,
        stored: Mapping[str, Stored],
        folder: Path | None,
        values: dict[str, Any],
        outer: RunScope | None,
    ) -> None:
        self._stored = stored
        self._folder = folder
        self._outer = outer
        self.values = values

    def computed(self, name: str) -> Any:
        """A value that was fed or computed; None if it is none of these, or an empty optional."""
        holder = self._holder(name)
        return None if holder is None else holder.values[name]

    def _holder(self, name: str) -> RunScope | None:
        if name in self.values:
            return self
        return None if self._outer is None else self._outer._holder(name)

    def stored(self, name: str) -> Stored | None:
        """The initializer or Constant node of that name."""
        found = self._stored.get(name)
        return found if found is not None or self._outer is None else self._outer.stored(name)

    def value(self, name: str) -> Any:
        """Any value as an array, a list of arrays, or None (an empty optional)."""
        holder = self._holder(name)
        if holder is not None:
            return holder.values[name]
        stored = self.stored(name)
        if isinstance(stored, onnx.TensorProto):
            return constant_value(stored, self._folder)
        if isinstance(stored, onnx.NodeProto):
            return constant_folding.held(stored, lambda t: constant_value(t, self._folder))
        raise RunFailure(f"the value {name!r} is read but nothing computes it", "load")


def is_dense_constant(node: onnx.NodeProto) -> bool:
    """Whether a node is a Constant with a plain tensor or numbers."""
    return (
        node.op_type == "Constant"
        and op_traits.is_standard(node)
        and len(node.attribute) == 1
        and node.attribute[0].name in constant_folding.HELD
    )
