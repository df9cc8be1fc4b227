"""What an operator that treats all places and all images alike makes of values in blocks.

Outside of what is computed of a value u lies a border that is known to be one number (`BorderValue`):
SpaceToBatch pads with zeros, and most operators make a known number of a known number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.graph_view import Array, NodeView

#: The number that a value holds in its border; None if it is no single known number.
BorderValue = int | None


@dataclass(frozen=True)
class RewrittenNode:
    """A node on u, where that is not written the way it is on t.

    Attributes:
        op_type: operator.
        attributes: attributes of the new node, all INTS.
        operands: what follows the data; arrays are constants.
    """

    op_type: str
    attributes: dict[str, tuple[int, ...]]
    operands: tuple[Array, ...]


@dataclass(frozen=True)
class RuleResult:
    """What an operator of this kind makes of values in blocks.

    Attributes:
        states: of its outputs.
        outside: the border of the output by those of its inputs in blocks.
        forms: nodes that it is written as, one behind the other; none if it is written as it is.
        others: what it may be taken for as well, with other states.
    """

    states: tuple[BlockedLayout, ...]
    outside: Callable[[Sequence[BorderValue]], BorderValue]
    forms: tuple[RewrittenNode, ...] = ()
    others: tuple[RuleResult, ...] = ()


#: State of each input, None for one that is not in blocks -> what comes out, or why not.
Rule = Callable[[NodeView, Sequence[BlockedLayout | None]], RuleResult | str]


def data_state(states: Sequence[BlockedLayout | None]) -> BlockedLayout:
    """State of the first input that is in blocks."""
    return next(s for s in states if s is not None)


def same_border(outsides: Sequence[BorderValue]) -> BorderValue:
    """The border of the inputs, for operators that only move elements."""
    first = outsides[0]
    return first if all(o == first for o in outsides) else None


def no_border(_: Sequence[BorderValue]) -> BorderValue:
    """What lies outside is not known, whatever it was before."""
    return None


def zero_stays(outsides: Sequence[BorderValue]) -> BorderValue:
    """Zeros, for operators that make zero of zeros."""
    return 0 if all(o == 0 for o in outsides) else None


def only_data(node: NodeView, states: Sequence[BlockedLayout | None]) -> str | None:
    """Why not, if others than the first input are in blocks."""
    if states[0] is None or any(s is not None for s in states[1:]):
        return f"a parameter of {node.op_type} is a value in blocks"
    return None
