"""Evaluate nodes of constants that leave no rounding open, as tools do when they fold constants.

w -> [Transpose] -> t -> [Slice] -> u       w is an initializer: u is one, too
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper, reference, shape_inference

from onnx_spatial.model import op_traits
from onnx_spatial.verification.arrays import Array

#: They move elements, compare them, or are rounded to the nearest number as IEEE 754 demands.
_MOVE = frozenset(
    "Concat Expand Flatten Gather Identity Reshape Slice Squeeze Tile Transpose Unsqueeze "
    "Where".split()
)
_COMPUTE = frozenset(
    "Add And Equal Greater GreaterOrEqual Less LessOrEqual Mul Not Or Sub Xor".split()
)
#: Types whose arithmetic numpy and runtimes have in common.
_KINDS = {np.dtype(t) for t in (np.bool_, np.int32, np.int64, np.float32, np.float64)}
#: The most elements of a result, and of an input whose values onnx's inference looks at.
_MOST, _FEW = 1 << 24, 64


def is_foldable(node: onnx.NodeProto) -> bool:
    """Tell whether a node of constants may be evaluated."""
    return (
        op_traits.is_standard(node)
        and node.op_type in _MOVE | _COMPUTE
        and not any(a.ref_attr_name for a in node.attribute)
    )


def folded(
    node: onnx.NodeProto, arrays: Mapping[str, Array], opsets: Mapping[str, int]
) -> Sequence[onnx.TensorProto]:
    """Return the outputs of a node for the values of its inputs; nothing if they are not known."""
    if node.op_type in _COMPUTE and not {a.dtype for a in arrays.values()} <= _KINDS:
        return []
    if node.op_type in ("Expand", "Tile") and np.prod(arrays[node.input[1]], dtype=float) > _MOST:
        return []
    names = [name for name in node.output if name]
    outputs = [onnx.ValueInfoProto(name=name) for name in names]
    small = {name for name, array in arrays.items() if array.size <= _FEW}  # axes, shapes, pads
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in arrays.items()
        if n not in small
    ]
    stored = [numpy_helper.from_array(np.asarray(arrays[name]), name) for name in small]
    graph = helper.make_graph([node], "fold", inputs, outputs, stored)
    opset = min(opsets.get("", opsets.get("ai.onnx", 1)), onnx.defs.onnx_opset_version())
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # The evaluator also computes what runtimes refuse, such as an axis listed twice.
            shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
            results = reference.ReferenceEvaluator(model).run(
                None, {i.name: arrays[i.name] for i in inputs}
            )
        if not all(isinstance(r, np.ndarray) and r.size <= _MOST for r in results):
            return []
        return [numpy_helper.from_array(r, n) for r, n in zip(results, names, strict=True)]
    except Exception:  # of any type: the values stay unknown
        return []
