"""The values of one run of a graph: inputs, computed values, initializers and Constant nodes."""

from __future__ import annotations

import sys
from collections import ChainMap
from collections.abc import Collection, MutableMapping
from pathlib import Path
from typing import Any

import onnx

from onnx_spatial.model import op_traits
from onnx_spatial.model.inference import constant_folding
from onnx_spatial.model.io import sparse
from onnx_spatial.verification.arrays import constant_value
from onnx_spatial.verification.runtime.sessions import RunFailure

#: A stored value of a graph: an initializer, a sparse one, or a Constant node.
Stored = onnx.TensorProto | onnx.SparseTensorProto | onnx.NodeProto


class RunScope:
    """The values of one run of a graph and of its outer graphs.

    Initializers and Constant nodes are stored, `values` begin with the inputs, computed ones are added.
    """

    def __init__(
        self,
        stored: MutableMapping[str, Stored],
        folder: Path | None,
        values: dict[str, Any],
        outer: RunScope | None,
    ) -> None:
        self.values: ChainMap[str, Any] = ChainMap(values, *(outer.values.maps if outer else ()))
        self._stored: ChainMap[str, Stored] = ChainMap(
            stored, *(outer._stored.maps if outer else ())
        )
        self._folder = folder

    def computed(self, name: str) -> Any:
        """Return the value of an input or node output; None for other names and empty optionals."""
        return self.values.get(name)

    def stored(self, name: str) -> Stored | None:
        """Return the initializer or Constant node of that name."""
        return self._stored.get(name)

    def value(self, name: str) -> Any:
        """Any value as an array, a list of arrays, or None (an empty optional).

        Raises:
            RunFailure: there is no such value.
        """
        if name in self.values:
            return self.values[name]
        stored = self.stored(name)
        if isinstance(stored, onnx.TensorProto):
            return constant_value(stored, self._folder)
        if isinstance(stored, onnx.SparseTensorProto):
            return self._dense(stored)
        if isinstance(stored, onnx.NodeProto):
            return constant_folding.held(
                stored, lambda t: constant_value(t, self._folder), sys.maxsize
            )
        raise RunFailure(
            f"the value {name!r} is read, but no node, input or initializer produces it", "load"
        )

    def _dense(self, stored: onnx.SparseTensorProto) -> Any:
        try:
            return sparse.dense(stored, lambda t: constant_value(t, self._folder))
        except ValueError as error:
            raise RunFailure(f"{stored.values.name!r} cannot be read: {error}", "load") from None


def is_dense_constant(node: onnx.NodeProto) -> bool:
    """Return whether a node is a Constant with a plain tensor or numbers."""
    return _is_constant(node, constant_folding.HELD)


def is_constant(node: onnx.NodeProto) -> bool:
    """Return whether a node is a Constant whose value `RunScope.value` reads."""
    return _is_constant(node, {*constant_folding.HELD, "sparse_value"})


def _is_constant(node: onnx.NodeProto, attributes: Collection[str]) -> bool:
    return (
        node.op_type == "Constant"
        and op_traits.is_standard(node)
        and len(node.attribute) == 1
        and node.attribute[0].name in attributes
    )
