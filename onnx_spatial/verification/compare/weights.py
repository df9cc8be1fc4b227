"""Compare the weights of a part of a model that sums products, by their bytes.

    original   s = SpaceToBatch(x), c = Conv(s, w, b), y = BatchToSpace(c)
    converted  y = Conv(x, w, b), dilated

A single weight in a sum of thousands changes it by less than rounding may. Where both parts compute by
the same operators, nothing could make up for another weight: both must hold the same numbers, in any
layout. What is added may have been scaled, or become part of a bias: then it is left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.arrays import Array, constant_value, dtype_name, is_float, same_bits
from onnx_spatial.verification.compare import to_float64

#: Larger weights are compared by their effect alone.
_MOST_ELEMENTS = 2**26
#: Operators that give all elements of their input in another shape or order.
_LAYOUTS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
_PRODUCT = "sum of products"


@dataclass(frozen=True)
class Weights:
    """The operators of a part that compute with reals, and the reals that it stores for them.

    Attributes:
        operators: types of nodes, without sums with stored reals; one name for all sums of products.
        factors: of products, and of sums of products.
        offsets: what is added: biases and operands of Add.
        sums: number of Adds with stored reals.
        scales: whether products with stored reals may have scaled what is added.
    """

    operators: tuple[str, ...]
    factors: tuple[Array, ...]
    offsets: tuple[Array, ...]
    sums: int
    scales: bool

    def differ(self, other: Weights) -> bool:
        """Return whether two parts compute by the same operators with other weights."""
        if self.operators != other.operators:
            return False
        if _differ(self.factors, other.factors):
            return True
        return not self.scales and self.sums == other.sums and _differ(self.offsets, other.offsets)


def of(model: onnx.ModelProto, folder: Path | None) -> Weights | None:
    """Return the weights of a part; None if it sums no products, or other nodes read stored reals."""
    stored = _stored(model.graph)
    fed = {v.name for v in model.graph.input}
    data = to_float64.reached(model.graph, to_float64.reals(model))
    operators: list[str] = []
    factors: list[onnx.TensorProto] = []
    offsets: list[onnx.TensorProto] = []
    sums, scales = 0, False
    for node in model.graph.node:
        if data.isdisjoint(traversal.needs(node)) or node.op_type in to_float64.SIZES:
            continue
        reads = _reals_read(node, stored)
        if not op_traits.is_standard(node) or (op_traits.is_exact(node) and not reads):
            continue  # it only moves data, as a spatial operator does
        if any(traversal.subgraphs(node)) or not fed.isdisjoint(reads):
            return None
        tensors = [stored[name] for name in reads]
        many = [t for t in tensors if math.prod(t.dims) > 1]
        if Trait.PRODUCTS in op_traits.of(node).traits:
            if any(a.name in ("alpha", "beta") and a.f != 1 for a in node.attribute):
                return None
            factors += (t for t in tensors if len(t.dims) > 1)
            offsets += (t for t in tensors if len(t.dims) < 2)
            operators.append(_PRODUCT)
        elif reads and node.op_type == "Add":
            offsets += many
            sums += 1
        else:
            operators.append(node.op_type)
            if reads and node.op_type in ("Mul", "Div"):
                factors += many
                scales = True
            elif reads and not op_traits.is_exact(node):
                return None
    every = [*factors, *offsets]
    if _PRODUCT not in operators or sum(math.prod(t.dims) for t in every) > _MOST_ELEMENTS:
        return None
    arrays = [constant_value(tensor, folder) + 0 for tensor in every]  # -0.0 is 0.0
    parts = tuple(arrays[: len(factors)]), tuple(arrays[len(factors) :])
    return Weights(tuple(sorted(operators)), *parts, sums, scales)


def _stored(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Return the stored tensors of a graph by name, also by the names of their other layouts."""
    stored = {t.name: t for t in graph.initializer}
    for node in traversal.in_order(graph):
        if node.op_type == "Constant" and [a.name for a in node.attribute] == ["value"]:
            stored[node.output[0]] = node.attribute[0].t
        elif op_traits.is_standard(node) and node.op_type in _LAYOUTS and node.input[0] in stored:
            stored[node.output[0]] = stored[node.input[0]]
    return stored


def _reals_read(node: onnx.NodeProto, stored: Mapping[str, onnx.TensorProto]) -> list[str]:
    """Return the stored reals that a node reads, other than sizes, axes or fill values."""
    positions = op_traits.moved_inputs(node)
    names = [n for i, n in enumerate(node.input) if i not in positions and n in stored]
    dtypes = (onnx.helper.tensor_dtype_to_np_dtype(stored[n].data_type) for n in names)
    return [n for n, dtype in zip(names, dtypes, strict=True) if is_float(dtype)]


def _differ(before: Sequence[Array], after: Sequence[Array]) -> bool:
    """Return whether arrays of the same types and sizes hold other numbers."""
    mine, others = list[Array](), list(after)
    for array in before:
        same = next((i for i, other in enumerate(others) if same_bits(array, other)), None)
        if same is None:
            mine.append(array)
        else:
            others.pop(same)
    kinds = (Counter((dtype_name(a), a.size) for a in arrays) for arrays in (mine, others))
    return next(kinds) == next(kinds) and Counter(map(_numbers, mine)) != Counter(
        map(_numbers, others)
    )


def _numbers(array: Array) -> bytes:
    """Return the bits of all elements in ascending order."""
    bits = np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")
    return np.sort(bits).tobytes()
