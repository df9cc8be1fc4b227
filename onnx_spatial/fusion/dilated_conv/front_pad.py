"""Let a SpaceToBatch take in the Pad in front of it.

    SpaceToBatch(Pad(x, A), D, paddings P) = SpaceToBatch(x, D, paddings P + A)

Causal layers pad the past with a Pad of their own. In the paddings it gets into the pads of a
convolution like the others, and the Pad is gone if nothing else needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_spatial.fusion.dilated_conv.graph_view import GraphView, NodeView
from onnx_spatial.fusion.dilated_conv.pad_amounts import PadAmount, PadPairs
from onnx_spatial.fusion.matcher import Matcher
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait

_SHAPES = op_traits.having(Trait.SIZES)
#: Most nodes behind the shape of the padded value that are followed.
_FAR = 200


class FrontPad(NamedTuple):
    """A Pad of zeros in front of a SpaceToBatch.

    Attributes:
        data: what it pads.
        amounts: how much, at the ends of each axis that the SpaceToBatch has a block for.
        node: the Pad.
    """

    data: ir.Value
    amounts: PadPairs
    node: ir.Node


def find(
    node: ir.Node, blocks: Sequence[int], view: GraphView, matcher: Matcher
) -> FrontPad | None:
    """Find the Pad in front of a SpaceToBatch; None if it pads otherwise, or has to stay."""
    value = node.inputs[0]
    pad = None if value is None else value.producer()
    message = None if pad is None or pad.graph is not node.graph else matcher.standard(pad)
    if value is None or pad is None or message is None or message.op_type != "Pad":
        return None
    amounts = _zeros(NodeView(message, view), blocks)
    data = pad.inputs[0]
    if amounts is None or data is None or not _is_only_blocked(value, matcher):
        return None
    return FrontPad(data, amounts, pad)


def _zeros(pad: NodeView, blocks: Sequence[int]) -> PadPairs | None:
    """Return how many zeros a Pad writes along the axes; None if unknown, or beside split axes."""
    known = pad.known(1)
    listed = pad.integers("pads", ()) if known is None else tuple(int(n) for n in known.reshape(-1))
    dims = pad.view.dims(pad.input(0))
    if listed is None or dims is None or pad.attributes.get("mode", "constant") != "constant":
        return None
    axes = pad.axes(3) if pad.input(3) else tuple(range(len(dims)))
    number = pad.known(2) if pad.input(2) else np.array(pad.attributes.get("value", 0.0))
    if number is None or number.any() or np.signbit(number).any():
        return None
    if axes is None or len(listed) != 2 * len(axes) or min(listed, default=0) < 0:
        return None
    ends = np.zeros((2, len(dims)), np.int64)
    ends[:, list(axes)] = np.reshape(listed, (2, -1))
    split = [axis for axis, block in enumerate(blocks, 1) if block > 1]
    if np.delete(ends, split, axis=1).any():
        return None
    pairs = ends[:, 1 : len(blocks) + 1].T
    return tuple((PadAmount.known(int(a)), PadAmount.known(int(b))) for a, b in pairs)


def _is_only_blocked(value: ir.Value, matcher: Matcher) -> bool:
    """Return whether only spatial operators read a value, and its sizes only their parameters."""
    if matcher.is_named(value):
        return False
    todo: list[ir.Node] = []
    for reader, index in matcher.readers(value):
        if matcher.subject(reader) is not None and index == 0:
            continue
        if matcher.op_type(reader) not in _SHAPES:
            return False
        todo.append(reader)
    seen = set(todo)
    while todo:
        node = todo.pop()
        if len(seen) > _FAR or any(matcher.is_named(output) for output in node.outputs):
            return False
        readers = {reader for output in node.outputs for reader, _ in matcher.readers(output)}
        new = {reader for reader in readers - seen if matcher.subject(reader) is None}
        seen |= new
        todo += new
    return True


def needed(
    pads: Collection[ir.Node], names: Collection[str], graph: traversal.GraphLike, matcher: Matcher
) -> set[ir.Node]:
    """Return the Pads that values are computed from."""
    todo = [node for name in names if (node := matcher.producer(graph, name)) is not None]
    seen = set(todo)
    while todo:
        sources = (value.producer() for value in todo.pop().inputs if value is not None)
        new = {node for node in sources if node is not None} - seen
        seen |= new
        todo += new
    return seen.intersection(pads)
