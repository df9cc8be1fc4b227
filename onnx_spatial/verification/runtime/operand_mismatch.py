"""Tell from the operands of a node that refused them which open dims of the inputs have to change.

    x [2,16,20,8], h [2,33,40,8]  ->  Concat: h is fed as it is, so its second dim is 16, its third 20

What a recurrent net is fed beside its data (states) gets its sizes so, whatever these follow from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx

from onnx_spatial.model.symbolic.eval_shapes import BROADCAST

#: One axis of one operand.
_At = tuple[int, int]


@dataclass(frozen=True)
class Operands:
    """A node that failed, and what it was given.

    Attributes:
        node: it.
        shapes: of its inputs; none for those that are left out or not computed.
        vectors: values of those that are short vectors of integers, by number.
    """

    node: onnx.NodeProto
    shapes: Sequence[tuple[int, ...]]
    vectors: Mapping[int, tuple[int, ...]]


def mended(
    operands: Operands,
    dims: Mapping[str, Sequence[object]],
    order: Sequence[str],
    keep: Collection[str] = (),
) -> dict[str, int]:
    """Other sizes for symbols, with which the operands fit each other.

    Args:
        operands: of the node that failed.
        dims: of the values in the model, in symbols, as far as they are known before it runs.
        order: symbols whose size is open; of two that meet the later one follows.
        keep: symbols that stay as they are.
    """
    rank = {symbol: number for number, symbol in enumerate(order) if symbol not in keep}
    names = operands.node.input

    shapes = dict(enumerate(operands.shapes))
    if operands.node.op_type == "Expand" and 1 in operands.vectors:
        shapes[1] = operands.vectors[1]  # what it holds is the shape that the other is to have

    def symbol(at: _At) -> object:
        known = dims.get(names[at[0]]) if at[0] < len(names) else None
        if known is None or len(known) != len(shapes[at[0]]):
            return None
        return known[at[1]]

    broadcast = operands.node.op_type in {*BROADCAST, "Expand"}
    found: dict[str, int] = {}
    for one, other, times in _meeting(operands.node, shapes):
        size, wanted = shapes[one[0]][one[1]], shapes[other[0]][other[1]] * times
        if size == wanted or min(size, wanted) < (2 if broadcast else 1):
            continue
        own, met = symbol(one), symbol(other)
        if rank.get(met, -1) > rank.get(own, -1):  # type: ignore[call-overload]
            found.setdefault(str(met), size // times)
        elif own in rank:
            found.setdefault(str(own), wanted)
    return {name: size for name, size in found.items() if size}


def _meeting(
    node: onnx.NodeProto, shapes: Mapping[int, Sequence[int]]
) -> Iterator[tuple[_At, _At, int]]:
    """Axes that have the same size if the node runs; or the first as many times that of the second."""
    attributes = {a.name: a for a in node.attribute}

    def given(name: str, default: int) -> int:
        return attributes[name].i if name in attributes else default

    ranks = {number: len(shape) for number, shape in shapes.items() if len(shape)}
    if node.op_type in ("LSTM", "GRU", "RNN"):
        batch = 0 if given("layout", 0) else 1
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
            group = given("group", 1) if node.op_type == "Conv" else 1
            yield (0, 1), (1, 1 if node.op_type == "Conv" else 0), group
    elif node.op_type == "Gemm":
        yield (0, 1 - given("transA", 0)), (1, given("transB", 0)), 1
    elif node.op_type == "MatMul":
        yield (0, ranks[0] - 1), (1, max(ranks[1] - 2, 0)), 1
        for back in range(3, min(ranks[0], ranks[1]) + 1):
            yield (0, ranks[0] - back), (1, ranks[1] - back), 1
    elif node.op_type in {*BROADCAST, "Expand", "Concat"}:
        # Along the axis of a Concat sizes are alike more often than not: what a net remembers, and
        # what it remembers it for.
        for number in range(1, max(ranks) + 1):
            for back in range(1, min(ranks[0], ranks.get(number, 0)) + 1):
                yield (0, ranks[0] - back), (number, ranks[number] - back), 1
