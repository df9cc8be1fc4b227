"""The maps of operators that onnxruntime writes in optimised files, by their definitions.

    FusedConv      activation(Conv(x, w, b) + z)
    FusedMatMul    MatMul(a', b')        a' and b' may be transposed
    FusedGemm      activation(Gemm(a, b, c))
    QuickGelu      x * Sigmoid(alpha * x)

Each is what its standard operators are: these are applied one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto

from onnx_spatial.maps import rules_elements, rules_products
from onnx_spatial.maps.cases import Case
from onnx_spatial.maps.constants import constant
from onnx_spatial.maps.node import NodeView, Rule
from onnx_spatial.maps.rules_reshape import transposed
from onnx_spatial.maps.tensor import Tensor

_RULES = rules_elements.RULES | rules_products.RULES

#: Activations, with their attributes in the order of activation_params.
_PARAMETERS = {
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    **dict.fromkeys(("Relu", "Sigmoid", "Tanh"), ()),
}


_OF_CONV = frozenset(
    "activation activation_params auto_pad dilations group kernel_shape pads strides".split()
)
_OF_GEMM = frozenset(
    "activation activation_alpha activation_beta activation_gamma alpha beta transA transB".split()
)
_OF_MATMUL = frozenset("alpha transA transB transBatchA transBatchB".split())


def _apply(
    case: Case,
    node: NodeView,
    op_type: str,
    *inputs: Tensor | None,
    attributes: Mapping[str, Any] | None = None,
) -> Tensor:
    """Return the map of a standard operator that a node consists of."""
    view = NodeView(op_type, attributes or {}, inputs, [f"{node.name}.{op_type}"], legal=node.legal)
    return _RULES[op_type](case, view)[0]


def _check_kernel(node: NodeView, most_inputs: int, attributes: frozenset[str]) -> None:
    """Require what onnxruntime's kernels take: floats, and nothing that they do not know."""
    fits = node.count <= most_inputs and len(node.outputs) == 1 and attributes >= {*node.attributes}
    node.check(fits, "an input, an output or an attribute too many")
    node.check(node.input(0).type == TensorProto.FLOAT, "another type than float has no kernel")


def _attributes_apart(node: NodeView, *names: str) -> dict[str, Any]:
    """Return the attributes of the standard operator of a node, apart from those of the fusion."""
    return {k: v for k, v in node.attributes.items() if k not in names}


def _activate_elements(case: Case, node: NodeView, x: Tensor, values: list[float]) -> Tensor:
    name = node.get("activation", b"").decode()
    if not name:
        return x
    if name == "Clip" and len(values) == 2 and values[0] <= values[1]:
        bounds = [constant(case, np.array(v, np.float32)) for v in values]
        return _apply(case, node, "Clip", x, *bounds)
    known = name in _PARAMETERS and len(values) == len(_PARAMETERS[name])
    node.check(known, f"the activation {name} has no index map")
    return _apply(case, node, name, x, attributes=dict(zip(_PARAMETERS[name], values, strict=True)))


def _fused_conv(case: Case, node: NodeView) -> list[Tensor]:
    _check_kernel(node, 4, _OF_CONV)
    inputs = [node.optional(i) for i in range(3)]
    attributes = _attributes_apart(node, "activation", "activation_params")
    y = _apply(case, node, "Conv", *inputs, attributes=attributes)
    summand = node.optional(3)
    if summand is not None:  # onnxruntime broadcasts nothing here
        node.check(summand.rank == y.rank, "a summand of another rank has no index map")
        for a, b in zip(summand.dims, y.dims, strict=True):
            node.need_equal(case, a, b, f"{node.op_type}: the dims of the summand may differ")
        y = _apply(case, node, "Add", y, summand)
    return [_activate_elements(case, node, y, list(node.get("activation_params", [])))]


def _fused_gemm(case: Case, node: NodeView) -> list[Tensor]:
    _check_kernel(node, 3, _OF_GEMM)
    names = ["activation", "activation_alpha", "activation_beta", "activation_gamma"]
    values = [node.attributes[name] for name in names[1:] if node.has(name)]
    inputs = [node.optional(i) for i in range(3)]
    y = _apply(case, node, "Gemm", *inputs, attributes=_attributes_apart(node, *names))
    return [_activate_elements(case, node, y, values)]


def _fused_matmul(case: Case, node: NodeView) -> list[Tensor]:
    _check_kernel(node, 2, _OF_MATMUL)
    plain = node.get("alpha", 1.0) == 1.0
    plain = plain and not node.get("transBatchA", 0) and not node.get("transBatchB", 0)
    node.check(plain, "alpha or a transposed batch has no index map")
    sides = []
    for x, name in ((node.input(0), "transA"), (node.input(1), "transB")):
        node.check(x.rank >= 2, "a vector has no index map")
        order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        sides.append(transposed(case, x, order) if node.get(name, 0) else x)
    return [_apply(case, node, "MatMul", *sides)]


def _quick_gelu(case: Case, node: NodeView) -> list[Tensor]:
    _check_kernel(node, 1, frozenset({"alpha"}))
    x, alpha = node.input(0), node.get("alpha", np.float32(1.702))
    scaled = _apply(case, node, "Mul", x, constant(case, np.array(alpha, np.float32)))
    return [_apply(case, node, "Mul", x, _apply(case, node, "Sigmoid", scaled))]


#: The domain of onnxruntime's own operators.
DOMAIN = "com.microsoft"

RULES: dict[str, Rule] = {
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "QuickGelu": _quick_gelu,
}
