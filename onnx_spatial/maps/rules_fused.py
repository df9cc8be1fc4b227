"""The maps of operators that onnxruntime writes in optimised files, by their definitions.

    com.microsoft          FusedConv      activation(Conv(x, w, b) + z)
                           FusedMatMul    alpha * MatMul(a', b'), a' and b' may be transposed
                           QuickGelu      x * Sigmoid(alpha * x)
                           SkipLayerNormalization    LayerNormalization(x + skip + bias)
    com.microsoft.nchwc    [N, C/16, H, W, 16] in memory, [N, C, H, W] by name

The maps of blocked tensors are those of [N, C, H, W] without the channels that only fill a block: what
these hold is multiplied by weights of 0, or cut off. Only nodes that keep channels apart may read such
tensors: `Tensor.blocked`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnx_spatial.maps import rules_elements, rules_products
from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.constants import constant
from onnx_spatial.maps.node import NodeView, Rule
from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.maps.rules_reshape import transposed
from onnx_spatial.maps.tensor import Dims, Tensor, moved
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

#: Channels of a block on processors with AVX-512 and on Arm; files for others are not proven.
BLOCK = 16
_OF_BLOCKS = f"the file is for processors that hold {BLOCK} channels in a block"

_RULES = rules_elements.RULES | rules_products.RULES


def apply(
    case: Case, node: NodeView, op_type: str, *inputs: Tensor | None, **attributes: Any
) -> Tensor:
    """Return the map of a standard operator that a node consists of."""
    return _RULES[op_type](case, node.part(op_type, inputs, attributes))[0]


#: Attributes of activations, in the order of activation_params.
_PARAMETERS = {
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    **dict.fromkeys(("HardSwish", "Relu", "Sigmoid", "Tanh"), ()),
}
_ACTIVATION = ("activation", "activation_params")


def _activated(case: Case, node: NodeView, x: Tensor) -> Tensor:
    name = node.get("activation", b"").decode()
    values = node.get("activation_params", [])
    if not name:
        return x
    if name == "Clip" and len(values) == 2:
        bounds = [constant(case, np.array(v, np.float32)) for v in values]
        return apply(case, node, "Clip", x, *bounds)
    if name not in _PARAMETERS or len(values) != len(_PARAMETERS[name]):
        raise UndecidedError(f"{node.op_type} with {name} has no index map")
    return apply(case, node, name, x, **dict(zip(_PARAMETERS[name], values, strict=True)))


def _fused_conv(case: Case, node: NodeView) -> list[Tensor]:
    attributes = {k: v for k, v in node.attributes.items() if k not in _ACTIVATION}
    y = apply(case, node, "Conv", *(node.optional(i) for i in range(3)), **attributes)
    if node.optional(3) is not None:
        _need_dims(case, node, node.input(3).dims, y.dims)
        y = apply(case, node, "Add", y, node.input(3))
    return [_activated(case, node, y)]


def _fused_matmul(case: Case, node: NodeView) -> list[Tensor]:
    a, b = node.input(0), node.input(1)
    if node.get("transBatchA", 0) or node.get("transBatchB", 0):
        raise UndecidedError("FusedMatMul with a transposed batch has no index map")
    sides = []
    for x, name in ((a, "transA"), (b, "transB")):
        order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        sides.append(transposed(case, x, order) if node.get(name, 0) else x)
    y = apply(case, node, "MatMul", *sides)
    if node.get("alpha", 1.0) != 1.0:
        y = apply(
            case, node, "Mul", y, constant(case, np.array(node.get("alpha", 1.0), np.float32))
        )
    return [y]


def _quick_gelu(case: Case, node: NodeView) -> list[Tensor]:
    alpha = node.get("alpha", 1.702)
    return [apply(case, node, "Swish", node.input(0), alpha=alpha)]


def _need_dims(case: Case, node: NodeView, dims: Dims, others: Dims) -> None:
    """Require equal dims: onnxruntime broadcasts nothing there."""
    if len(dims) != len(others):
        raise UndecidedError(f"{node.op_type}: the ranks of two inputs may not differ")
    for a, b in zip(dims, others, strict=True):
        node.need_equal(case, a, b, f"{node.op_type}: the dims of two inputs may differ")


def _skip_normalization(case: Case, node: NodeView) -> list[Tensor]:
    data, skip = node.input(0), node.input(1)
    if data.rank not in (2, 3) or skip.rank < 2:
        raise UndecidedError(f"{node.op_type}: its data has another rank than 2 or 3")
    _need_dims(case, node, skip.dims[-2:], data.dims[-2:])
    x = apply(case, node, "Add", data, skip)
    _need_dims(case, node, x.dims, data.dims)
    if node.optional(4) is not None:
        x = apply(case, node, "Add", x, node.input(4))
    rest = [node.input(2), node.optional(3)]
    epsilon = node.get("epsilon", 1e-12)
    y = apply(case, node, "LayerNormalization", x, *rest, axis=-1, epsilon=epsilon)
    return (
        [y] if len(node.outputs) == 1 else [y, x, x, x][: 1 + 3 * (node.outputs[1:3] == ["", ""])]
    )


# Blocks of channels


def _blocked(case: Case, x: Tensor) -> Tensor:
    """Return a tensor in blocks."""
    case.assumptions[_OF_BLOCKS] = None
    result = moved(x, case, x.dims, x.at, x.axes)
    result.blocked = True
    return result


def _reorder_input(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    if node.get("channels_last", 0):
        x = transposed(case, x, [0, x.rank - 1, *range(1, x.rank - 1)])
    if x.blocked:
        raise UndecidedError("ReorderInput reads blocks")
    return [_blocked(case, x)]


def _reorder_output(case: Case, node: NodeView) -> list[Tensor]:
    x, channels = node.input(0), Polynomial.of(node.get("channels", 0))
    if not x.blocked:
        raise UndecidedError("ReorderOutput reads no blocks")
    case.require(x.dims[1] - channels, "ReorderOutput: there are fewer channels")
    y = moved(x, case, [x.dims[0], channels, *x.dims[2:]], x.at)
    if node.get("channels_last", 0):
        y = transposed(case, y, [0, *range(2, x.rank), 1])
    return [y]


def _blocked_conv(case: Case, node: NodeView) -> list[Tensor]:
    """Return the map of a Conv by its weights in the order of [O, I, H, W], without those that fill."""
    x, weight, bias = node.input(0), node.input(1).array, node.optional(2)
    channels, group = x.dims[1].constant, node.get("group", 1)
    added = None if bias is None else bias.array
    if (
        weight is None
        or weight.ndim != 4
        or channels is None
        or (bias is not None and added is None)
    ):
        raise UndecidedError("Conv of blocks: its weights or channels are unknown")
    outputs, inputs, *kernel = weight.shape
    if outputs % BLOCK or (group != 1 and (group != outputs or inputs != 1)):
        raise UndecidedError("Conv of blocks: the number of channels or groups has no index map")
    if x.blocked != (inputs >= BLOCK or group != 1) or (
        x.blocked and group == 1 and inputs % BLOCK
    ):
        raise UndecidedError("Conv of blocks: its data has another layout")
    if inputs < BLOCK:
        ordered = weight.reshape(outputs // BLOCK, inputs, *kernel, BLOCK).transpose(0, 4, 1, 2, 3)
    else:
        shape = (outputs // BLOCK, inputs // BLOCK, *kernel, BLOCK, BLOCK)
        ordered = weight.reshape(shape).transpose(0, 5, 1, 4, 2, 3)
    weight = ordered.reshape(outputs, inputs, *kernel)
    if group == 1:
        if weight[:, channels:].any():
            raise UndecidedError("Conv of blocks: weights of channels that fill a block are not 0")
        weight = weight[:, :channels]
        used = weight.reshape(outputs, -1).any(1) | (False if added is None else added != 0)
        count = max(int(np.flatnonzero(used).max(initial=0)) + 1, outputs - BLOCK + 1)
    else:
        count = channels
    attributes = {k: v for k, v in node.attributes.items() if k not in _ACTIVATION}
    attributes["group"] = 1 if group == 1 else count
    inputs_of_conv = [x, constant(case, weight[:count])]
    if added is not None:
        inputs_of_conv.append(constant(case, added[:count]))
    y = apply(case, node, "Conv", *inputs_of_conv, **attributes)
    if node.optional(3) is not None:
        if not node.input(3).blocked:
            raise UndecidedError("Conv of blocks: its summand is no tensor of blocks")
        y = apply(case, node, "Add", y, _first(case, node.input(3), Polynomial.of(count)))
    return [_blocked(case, _activated(case, node, y))]


def _first(case: Case, x: Tensor, channels: Polynomial) -> Tensor:
    case.require(x.dims[1] - channels, "Conv of blocks: the summand has fewer channels")
    return moved(x, case, [x.dims[0], channels, *x.dims[2:]], x.at)


def _blocked_pool(case: Case, node: NodeView) -> list[Tensor]:
    if not node.input(0).blocked:
        raise UndecidedError(f"{node.op_type} reads no blocks")
    return [_blocked(case, apply(case, node, node.op_type, node.input(0), **node.attributes))]


def on_blocks(case: Case, node: NodeView, domain: str, rule: Rule) -> Sequence[Tensor]:
    """Return the maps of a node that reads blocks: of one that treats all channels alike.

    Raises:
        UndecidedError: it does not.
    """
    inputs = node.inputs()
    if domain == "com.microsoft.nchwc":
        return rule(case, node)
    channels = [x.dims[1].constant or 0 for x in inputs if x.blocked]
    # A single channel is not repeated for all: in memory it has others beside it, which are 0.
    alike = len(set(channels)) == 1 and (
        node.op_type in _ALIKE or (domain, node.op_type) == ("com.microsoft", "QuickGelu")
    )
    if node.op_type == "Concat" and node.get("axis", 1) == 1:
        alike = all(count and count % BLOCK == 0 for count in channels)
    if node.op_type == "Reshape" and inputs[1].array is not None and channels:
        # To [N, C/16, H, W, 16], as it lies in memory, and back.
        blocks = -(-channels[0] // BLOCK)
        if inputs[1].array.tolist() in ([0, blocks, 0, 0, BLOCK], [0, blocks * BLOCK, 0, 0]):
            return inputs[:1]
    if not alike or not all(x.blocked for x in inputs):
        raise UndecidedError(f"{node.op_type} reads blocks of channels")
    results = rule(case, node)
    for result in results:
        result.blocked = True
    return results


_ALIKE = op_traits.having(Trait.UNARY, Trait.BROADCASTS)
_POOLS = ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")

#: Domains of onnxruntime's own operators.
DOMAINS = ("com.microsoft", "com.microsoft.nchwc")

#: By domain and operator.
RULES: dict[tuple[str, str], Rule] = {
    ("com.microsoft", "FusedConv"): _fused_conv,
    ("com.microsoft", "FusedMatMul"): _fused_matmul,
    ("com.microsoft", "QuickGelu"): _quick_gelu,
    ("com.microsoft", "SkipLayerNormalization"): _skip_normalization,
    ("com.microsoft.nchwc", "Conv"): _blocked_conv,
    ("com.microsoft.nchwc", "ReorderInput"): _reorder_input,
    ("com.microsoft.nchwc", "ReorderOutput"): _reorder_output,
    **{("com.microsoft.nchwc", name): _blocked_pool for name in _POOLS},
}
