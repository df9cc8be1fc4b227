"""Compare the weights of a part of a model that sums products once, by their bytes.

    original   s = SpaceToBatch(x), c = Conv(s, w, b), y = BatchToSpace(c)
    converted  y = Conv(x, w, b), dilated

A single weight in a sum of thousands changes it by less than rounding may. Where one node of each part
reads all stored reals, and both compute by the same operators, no other node could make up for another
weight: the bytes must be the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.arrays import Array, constant_value, is_float, same_bits
from onnx_spatial.verification.compare import to_float64

#: Larger weights are compared by their effect alone.
_MOST_ELEMENTS = 2**26


@dataclass(frozen=True)
class Weights:
    """The operators of a part that compute with reals, and the stored reals that one of them reads."""

    operators: tuple[str, ...]
    stored: tuple[Array, ...]

    def differ(self, other: Weights) -> bool:
        """Return whether two parts compute by the same operators with other weights."""
        if self.operators != other.operators or len(self.stored) != len(other.stored):
            return False
        pairs = list(zip(self.stored, other.stored, strict=True))
        return all(a.shape == b.shape and a.dtype == b.dtype for a, b in pairs) and not all(
            same_bits(a + 0, b + 0)
            for a, b in pairs  # -0.0 is 0.0
        )


def of(model: onnx.ModelProto, folder: Path | None) -> Weights | None:
    """Return the weights of a part; None if it sums no products, or several nodes read stored reals."""
    stored = {t.name: t for t in model.graph.initializer}
    fed = {v.name for v in model.graph.input}
    for node in model.graph.node:
        if (
            node.op_type == "Constant"
            and len(node.attribute) == 1
            and node.attribute[0].HasField("t")
        ):
            stored[node.output[0]] = node.attribute[0].t
    data = to_float64.reached(model.graph, to_float64.reals(model))
    operators, reader = [], None
    for node in model.graph.node:
        if data.isdisjoint(traversal.needs(node)) or node.op_type in to_float64.SIZES:
            continue
        if op_traits.is_exact(node) and not _reads(node, stored):
            continue
        if not op_traits.is_standard(node):
            continue  # a spatial operator, which only moves data
        if any(traversal.subgraphs(node)):
            return None
        operators.append(node.op_type)
        if _reads(node, stored):
            if reader is not None or Trait.PRODUCTS not in op_traits.of(node).traits:
                return None
            reader = node
    if reader is None or not fed.isdisjoint(name for name in reader.input if name in stored):
        return None
    tensors = [stored[name] for name in reader.input if name in stored]
    if sum(int(np.prod(t.dims)) for t in tensors) > _MOST_ELEMENTS:
        return None
    arrays = tuple(constant_value(tensor, folder) for tensor in tensors)
    return Weights(tuple(sorted(operators)), arrays)


def _reads(node: onnx.NodeProto, stored: dict[str, onnx.TensorProto]) -> bool:
    """Return whether a node reads stored reals, other than sizes, axes or limits."""
    positions = op_traits.moved_inputs(node)
    names = [n for i, n in enumerate(node.input) if i not in positions]
    return any(
        n in stored and is_float(onnx.helper.tensor_dtype_to_np_dtype(stored[n].data_type))
        for n in names
    )
