"""Estimate the memory of a run from the sizes of its values, where no process of its own bounds it.

A wrong Transpose may make two axes of 65,537 meet in one product: 17 GB of float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from onnx_spatial.model import traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.inference.shape_inference import dims, element_type
from onnx_spatial.verification.arrays import STRING, dtype_of, type_of

#: Larger models than this, in bytes, are not estimated: parts of a model are small.
MOST_BYTES = 2**20
#: Bytes of the longest elements.
_ELEMENT = 16


def may_exceed(feeds: Mapping[str, Any], memory: int) -> bool:
    """Tell whether one product of these inputs with each other may be larger than `memory`."""
    return sum(int(np.size(value)) for value in feeds.values()) ** 2 * _ELEMENT > memory


def largest(model: bytes, feeds: Mapping[str, Any]) -> tuple[int, str]:
    """Return the bytes and the name of the largest value of a run; (0, "") if no size is known.

    Args:
        model: a serialized model of at most `MOST_BYTES`.
        feeds: its inputs.
    """
    proto = onnx.load_from_string(model)
    for value in proto.graph.input:
        array = feeds.get(value.name)
        if isinstance(array, np.ndarray):
            value.type.CopyFrom(type_of(array))
            for dim, size in zip(value.type.tensor_type.shape.dim, array.shape, strict=True):
                dim.dim_value = size
    for value in proto.graph.output:  # a declared size may contradict the data
        value.ClearField("type")
    inferred = shape_inference.infer(proto, lambda number, types: None)
    computed = {name for node in traversal.in_order(inferred.graph) for name in node.output}
    values = (*inferred.graph.value_info, *inferred.graph.output)
    sizes = ((_bytes(v.type), str(v.name)) for v in values if v.name in computed)
    return max(sizes, default=(0, ""))


def _bytes(known: onnx.TypeProto) -> int:
    """Return the bytes of a tensor; 0 if its size or type is unknown."""
    shape, kind = dims(known), element_type(known)
    sizes = [dim for dim in shape or () if isinstance(dim, int)]
    if kind is None or shape is None or len(sizes) < len(shape):
        return 0
    return math.prod(sizes) * (_ELEMENT if kind == STRING else dtype_of(kind).itemsize)
