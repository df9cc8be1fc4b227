"""Write patches as a named operator, and the nodes that arrange its digits as the chain does.

x -> [Transpose] -> [Pad] -> ExtractPatches -> [Reshape] -> [Transpose] -> [Reshape] -> y
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import onnx_ir as ir

from onnx_spatial.chains.patches import Patches
from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor
from onnx_spatial.lowering.core.padding import pad
from onnx_spatial.operators import Dim, ExtractPatches
from onnx_spatial.operators.spellings import chain_ops, python_ops


def write_patches(
    emit: Emitter, patches: Patches, source: ir.Value, shape: Sequence[Dim], element_type: int
) -> tuple[ir.Node, ir.Value]:
    """Emit the operator and the nodes around it; return the operator and the result.

    Args:
        emit: collects the nodes.
        patches: the patches.
        source: their data.
        shape: of the data, as far as it is known.
        element_type: ONNX element type of the data; 0 if it is unknown.
    """
    op, value = patches.operator, source
    known: list[Dim] = [shape[axis] for axis in patches.before]
    if list(patches.before) != sorted(patches.before):
        value = emit.op("Transpose", value, perm=list(patches.before))
    pads = dict(zip(op.spatial_axes, patches.pads, strict=True))
    if any(map(any, patches.pads)):
        types = frozenset({element_type}) if element_type else frozenset[int]()
        x = emit.tensor(value, _dims_of(emit, value, known))
        value = pad(emit, x, [pads.get(axis, (0, 0)) for axis in range(op.rank)], types).value
        known = [
            dim + sum(pads.get(axis, (0, 0))) if isinstance(dim, int) else None
            for axis, dim in enumerate(known)
        ]
    op_type, attributes = _spell_operator(op)
    operator = ir.node(op_type, [value], attributes, domain=chain_ops.DOMAIN)
    emit.nodes.append(operator)
    return operator, _arrange_digits(emit, patches, operator.outputs[0], known)


def _spell_operator(op: ExtractPatches) -> tuple[str, dict[str, Any]]:
    """Return operator type and attributes: those of TensorFlow, or of `chain_ops` for other patches."""
    padding = {"valid": "VALID", "same_upper": "SAME"}.get(op.auto_pad)
    usual = op.layout == "channels_last" and op.major == "place" and len(op.kernel) == 2
    if not usual or padding is None or op.clamp_negative:
        return op.name, {python_ops.PARAMETERS: python_ops.as_json(op)}
    rows = {"ksizes": op.kernel, "strides": op.strides, "rates": op.rates}
    lists = {name: [1, *values, 1] for name, values in rows.items()}
    return "ExtractImagePatches", {**lists, "padding": padding}


def _dims_of(emit: Emitter, value: ir.Value, known: Sequence[Dim]) -> list[Size]:
    """Return the dims of a value; nodes read those that are not known."""
    return [
        dim if isinstance(dim, int) else emit.length(value, axis) for axis, dim in enumerate(known)
    ]


def _arrange_digits(
    emit: Emitter, patches: Patches, value: ir.Value, image: Sequence[Dim]
) -> ir.Value:
    """Emit the nodes that bring the digits of the operator's output into the order of the result."""
    op, order = patches.operator, patches.order
    axes = [tuple(d for d in axis if d in order) for axis in patches.digits]
    parts = _parts_in_order(axes, order)
    if parts == list(patches.groups) and len(parts) == len(axes):
        perm = [axes.index(part) for part in parts]
        return value if perm == sorted(perm) else emit.op("Transpose", value, perm=perm)
    dims = _dims_of(emit, value, op.output_shape(image))
    size: dict[int, Size] = {
        axis[0]: d for axis, d in zip(axes, dims, strict=True) if len(axis) == 1
    }
    size |= {1 + patches.axes + i: k for i, k in enumerate(op.kernel)}
    channel = image[op.channel_axis]
    size[2 * patches.axes + 1] = (
        channel
        if isinstance(channel, int)
        else emit.div(dims[op.channel_axis], math.prod(op.kernel))
    )
    x = emit.tensor(value, dims)
    split = [part for axis in axes for part in _split_axis(axis, parts)]
    x = _emit_reshape(emit, x, [emit.product([size[d] for d in part]) for part in split])
    x = emit.transpose(x, [split.index(part) for part in parts])
    groups = [emit.product([size[d] for d in group]) for group in patches.groups]
    return _emit_reshape(emit, x, groups).value


def _emit_reshape(emit: Emitter, x: Tensor, dims: Sequence[Size]) -> Tensor:
    """Reshape to dims of 1 or more; with -1 where one of them is new and unknown."""
    kept = [axis < x.rank and dim == x.dims[axis] for axis, dim in enumerate(dims)]
    entries = [
        dim if isinstance(dim, int) else 0 if known else -1
        for dim, known in zip(dims, kept, strict=True)
    ]
    if entries.count(-1) != 1:
        return emit.reshape(x, dims)
    return emit.tensor(emit.reshape_to(x.value, entries), dims)


def _parts_in_order(axes: Sequence[tuple[int, ...]], order: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the longest parts of axes that follow each other in an order of their digits."""
    following = {a: b for axis in axes for a, b in pairwise(axis)}
    parts: list[tuple[int, ...]] = []
    for digit in order:
        if parts and following.get(parts[-1][-1]) == digit:
            parts[-1] += (digit,)
        else:
            parts.append((digit,))
    return parts


def _split_axis(axis: tuple[int, ...], parts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the parts that an axis consists of, in its order."""
    return sorted((part for part in parts if part[0] in axis), key=lambda part: axis.index(part[0]))
