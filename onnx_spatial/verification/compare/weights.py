"""Compare the weights of a part of a model that sums products once, by their bytes.

    original   s = SpaceToBatch(x), c = Conv(s, w, b), y = BatchToSpace(c)
    converted  y = Conv(x, w, b), dilated

A single weight in a sum of thousands changes it by less than rounding may. Where one node of each part
reads all stored reals, and both compute by the same operators, no other node could make up for another
weight: the bytes must be the same. A bias may be added by a node of its own, as MatMul and Add are Gemm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    operators, reader, bias = list[str](), None, ""
    for node in model.graph.node:
        if data.isdisjoint(traversal.needs(node)) or node.op_type in to_float64.SIZES:
            continue
        if op_traits.is_exact(node) and not _reads(node, stored):
            continue
        if not op_traits.is_standard(node):
            continue  # a spatial operator, which only moves data
        if any(traversal.subgraphs(node)):
            return None
        if reader is not None and _adds_bias(node, reader, stored):
            bias = next(n for n in node.input if n in stored)
            continue
        operators.append("MatMul" if node.op_type == "Gemm" and _is_plain(node) else node.op_type)
        if _reads(node, stored):
            if reader is not None or Trait.PRODUCTS not in op_traits.of(node).traits:
                return None
            reader = node
    if reader is None:
        return None
    names = [name for name in (*reader.input, bias) if name in stored]
    if not fed.isdisjoint(names):
        return None
    tensors = [stored[name] for name in names]
    if sum(int(np.prod(t.dims)) for t in tensors) > _MOST_ELEMENTS:
        return None
    arrays = [constant_value(tensor, folder) for tensor in tensors]
    if reader.op_type == "Gemm" and _is_plain(reader) and reader.input[1] in stored:
        place = names.index(reader.input[1])
        arrays[place] = arrays[place].T if _attributes(reader).get("transB", 0) else arrays[place]
    if len(arrays) == 2 and names[0] == reader.input[1]:  # with a bias, which broadcasts
        arrays[1] = arrays[1].reshape(-1)
    return Weights(tuple(sorted(operators)), tuple(arrays))


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def _is_plain(gemm: onnx.NodeProto) -> bool:
    """Return whether a Gemm is a MatMul and an Add, but for a transposed weight."""
    attributes = _attributes(gemm)
    scales = (attributes.get("alpha", 1.0), attributes.get("beta", 1.0))
    return scales == (1.0, 1.0) and not attributes.get("transA", 0)


def _adds_bias(
    node: onnx.NodeProto, product: onnx.NodeProto, stored: dict[str, onnx.TensorProto]
) -> bool:
    """Return whether a node adds a bias of its own to the result of a MatMul or Conv without one."""
    known = [n for n in node.input if n in stored]
    if node.op_type != "Add" or len(known) != 1 or product.output[0] not in node.input:
        return False
    weight = stored.get(product.input[1])
    if weight is None or len(product.input) > 2 or product.op_type not in ("MatMul", "Conv"):
        return False
    is_conv = product.op_type == "Conv"
    shape, dims = list(stored[known[0]].dims), list(weight.dims)
    channels = dims[0] if is_conv else dims[-1]
    expected = [channels, *[1] * (len(dims) - 2)] if is_conv else [channels]
    without_ones = shape[max(0, len(shape) - len(expected)) :]
    return math.prod(shape) == channels and without_ones == expected


def _reads(node: onnx.NodeProto, stored: dict[str, onnx.TensorProto]) -> bool:
    """Return whether a node reads stored reals, other than sizes, axes or limits."""
    positions = op_traits.moved_inputs(node)
    names = [n for i, n in enumerate(node.input) if i not in positions]
    return any(
        n in stored and is_float(onnx.helper.tensor_dtype_to_np_dtype(stored[n].data_type))
        for n in names
    )
