"""Write the shape of a value t in blocks, for nodes outside of its region, from the value u.

    Shape(t) = (Shape(u) + pads) * [blocks, 1, 1, 1] / [1, block, block, 1]

Converted models compute the paddings of a SpaceToBatch inside a region, and the targets of Reshapes
behind it, from such shapes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnx_spatial.fusion.dilated_conv.amount_vectors import AmountVectors
from onnx_spatial.fusion.dilated_conv.pad_amounts import NOTHING
from onnx_spatial.fusion.dilated_conv.pad_slice import ComputedPart
from onnx_spatial.lowering import Emitter
from onnx_spatial.model.graph.replace_nodes import Draft


def blocked_shape(
    part: ComputedPart,
    axes: Sequence[int],
    lengths: Sequence[int | None],
    amounts: AmountVectors,
    draft: Draft,
) -> ir.Value:
    """Write the sizes of consecutive axes of t as a vector.

    Args:
        part: the computed part of u.
        axes: the axes.
        lengths: their sizes, None where unknown.
        amounts: what writes amounts that are computed at run time.
        draft: collects the nodes.
    """
    emit = Emitter(amounts.opset)
    if None not in lengths:
        tensor = ir.Tensor(np.array(lengths, np.int64))
        result = emit.op("Constant", value=ir.Attr("value", ir.AttributeType.TENSOR, tensor))
    else:
        result = _computed(part, axes, amounts, emit)
    draft.nodes += emit.nodes
    draft.constants += emit.constants
    return result


def _computed(
    part: ComputedPart, axes: Sequence[int], amounts: AmountVectors, emit: Emitter
) -> ir.Value:
    layout = part.layout
    if len(axes) == layout.rank:
        result = emit.op("Shape", part.value)
    else:
        result = emit.op("Shape", part.value, start=axes[0], end=axes[-1] + 1)
    pair_of = dict(zip(layout.axes, part.crop, strict=True))
    pairs = [pair_of.get(axis, (NOTHING, NOTHING)) for axis in axes]
    totals = [begin + end for begin, end in pairs]
    known = [total.constant for total in totals]
    if any(number != 0 for number in known):
        numbers = [number for number in known if number is not None]
        is_known = len(numbers) == len(known)
        added = emit.ints(numbers, "amounts") if is_known else amounts.write(emit, totals)
        result = emit.op("Add", result, added)
    blocks = dict(zip(layout.axes, layout.blocks, strict=True))
    count = math.prod(layout.blocks)
    if count > 1 and layout.batch in axes:
        factors = [count if axis == layout.batch else 1 for axis in axes]
        result = emit.op("Mul", result, emit.ints(factors, "factors"))
    divisors = [blocks.get(axis, 1) for axis in axes]
    if max(divisors) > 1:
        result = emit.op("Div", result, emit.ints(divisors, "blocks"))
    return result
