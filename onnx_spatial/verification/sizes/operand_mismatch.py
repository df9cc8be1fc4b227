"""Find the input dims that have to change so that the operands of a failed node fit each other.

    x [2,16,20,8], h [2,33,40,8]  ->  Concat: h is an input, so its second dim is 16, its third 20

The states of a recurrent net get their sizes in this way, whatever these follow from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import onnx

from onnx_spatial.model.symbolic.eval_shapes import BROADCAST
from onnx_spatial.verification.runtime.sessions import Operands

#: Number of an operand, and one of its axes.
_Axis = tuple[int, int]


def matching_sizes(
    operands: Operands,
    dims: Mapping[str, Sequence[object]],
    order: Sequence[str],
    keep: Collection[str] = (),
) -> dict[str, int]:
    """Other sizes for symbols, with which the operands of a node that failed fit each other.

    Args:
        operands: of the node.
        dims: symbolic dims of the values in the model, as far as they are known before it runs.
        order: symbols whose size is open; of two that must be equal the later one changes.
        keep: symbols that keep their sizes.
    """
    rank = {symbol: number for number, symbol in enumerate(order) if symbol not in keep}
    names = operands.node.input

    shapes = dict(enumerate(operands.shapes))
    if operands.node.op_type == "Expand" and 1 in operands.vectors:
        shapes[1] = operands.vectors[1]  # the shape that the other operand must broadcast to

    def symbol(operand: int, axis: int) -> object:
        known = dims.get(names[operand]) if operand < len(names) else None
        return known[axis] if known is not None and len(known) == len(shapes[operand]) else None

    broadcast = operands.node.op_type in {*BROADCAST, "Expand"}
    changes: dict[str, int] = {}
    for first, second, factor in _equal_axes(operands.node, shapes):
        size, required = shapes[first[0]][first[1]], shapes[second[0]][second[1]] * factor
        if size == required or min(size, required) < (2 if broadcast else 1):
            continue
        own, other = symbol(*first), symbol(*second)
        if rank.get(other, -1) > rank.get(own, -1):  # type: ignore[call-overload]
            changes.setdefault(str(other), size // factor)
        elif own in rank:
            changes.setdefault(str(own), required)
    return {name: size for name, size in changes.items() if size}


def _equal_axes(
    node: onnx.NodeProto, shapes: Mapping[int, Sequence[int]]
) -> Iterator[tuple[_Axis, _Axis, int]]:
    """Yield pairs of axes with a factor: the first size must be the second times the factor."""
    attributes = {a.name: a for a in node.attribute}

    def integer(name: str, default: int) -> int:
        return attributes[name].i if name in attributes else default

    ranks = {number: len(shape) for number, shape in shapes.items() if len(shape)}
    if node.op_type in ("LSTM", "GRU", "RNN"):
        batch = 0 if integer("layout", 0) else 1
        for state in (5, 6):  # initial_h, initial_c
            if ranks.get(state) == 3 and {0, 2} <= set(ranks):
                yield (state, 1 - batch), (2, 0), 1  # directions
                yield (state, batch), (0, batch), 1
                yield (state, 2), (2, 2), 1  # R is [directions, gates, hidden]
        return
    if not {0, 1} <= set(ranks):
        return
    if node.op_type in ("Conv", "ConvTranspose"):
        if min(ranks[0], ranks[1]) > 1:
            group = integer("group", 1) if node.op_type == "Conv" else 1
            yield (0, 1), (1, 1 if node.op_type == "Conv" else 0), group
    elif node.op_type == "Gemm":
        yield (0, 1 - integer("transA", 0)), (1, integer("transB", 0)), 1
    elif node.op_type == "MatMul":
        yield (0, ranks[0] - 1), (1, max(ranks[1] - 2, 0)), 1
        for back in range(3, min(ranks[0], ranks[1]) + 1):
            yield (0, ranks[0] - back), (1, ranks[1] - back), 1
    elif node.op_type in {*BROADCAST, "Expand", "Concat"}:
        # Along the axis of a Concat sizes are mostly equal, too: of a state and of the data.
        for number in range(1, max(ranks) + 1):
            for back in range(1, min(ranks[0], ranks.get(number, 0)) + 1):
                yield (0, ranks[0] - back), (number, ranks[number] - back), 1
