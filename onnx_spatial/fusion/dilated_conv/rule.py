"""Rules for a node between SpaceToBatch and BatchToSpace, written on u in the place of SpaceToBatch(u).

    pattern    the operator type of a node with inputs in blocks (`rules.RULES`)
    check      the layouts of its inputs; it declines with a Reason
    rewrite    a RuleResult, or a BlockedConv (`conv`)

Outside of what is computed of a value u lies its *border*: SpaceToBatch pads with zeros, and most
operators turn a known number into a known number (`BorderValue`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TypeVar

from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.graph_view import Array, NodeView
from onnx_spatial.fusion.rule import Reason
from onnx_spatial.model.symbolic.symbolic_values import Polynomial

Result = TypeVar("Result")

#: The number that fills the border of a value; None if it is no single known number.
BorderValue = float | None


def no_border(_: Sequence[BorderValue]) -> BorderValue:
    """Know nothing of the border."""
    return None


@dataclass(frozen=True)
class Operand:
    """An input of the node on t, which is not in blocks; a matrix may be transposed."""

    index: int
    transposed: bool = False


@dataclass(frozen=True)
class RewrittenNode:
    """A node on u that differs from the node on t.

    Attributes:
        op_type: operator.
        attributes: attributes of the new node, INTS or STRING.
        operands: inputs behind the data.
    """

    op_type: str
    attributes: dict[str, tuple[int, ...] | str]
    operands: tuple[Array | Operand, ...]


#: The forms of a node that changes nothing on u: no node is written.
IDENTITY = (RewrittenNode("Identity", {}, ()),)


@dataclass(frozen=True)
class AxisSize:
    """A dim that is that of an axis of the input."""

    axis: int


@dataclass(frozen=True)
class RewrittenReshape:
    """A Reshape on u: for each dim of the result its size, or the axis of u that has it."""

    dims: tuple[int | AxisSize, ...]


@dataclass(frozen=True)
class RuleResult:
    """A node as it is written on u.

    Attributes:
        layouts: layout of each output.
        border: border of the outputs, from the borders of the inputs in blocks.
        forms: nodes that replace it, one behind the other; none if it is written as it is.
        others: alternatives with other layouts.
        dims: sizes of the first output on t; empty if the rule does not know them.
    """

    layouts: tuple[BlockedLayout, ...]
    border: Callable[[Sequence[BorderValue]], BorderValue] = no_border
    forms: tuple[RewrittenNode | RewrittenReshape, ...] = ()
    others: tuple[RuleResult, ...] = ()
    dims: tuple[Polynomial, ...] = ()

    @property
    def read_operands(self) -> frozenset[int]:
        """Indices of the inputs of the node, besides the data, that its forms read."""
        nodes = (form for form in self.forms if isinstance(form, RewrittenNode))
        operands = (operand for node in nodes for operand in node.operands)
        return frozenset(o.index for o in operands if isinstance(o, Operand))


#: From the layout of each input, None for one that is not in blocks, to a result or a reason.
Rule = Callable[[NodeView, Sequence[BlockedLayout | None]], RuleResult | Reason]


def of_data(
    rule: Callable[[NodeView, BlockedLayout], Result],
) -> Callable[[NodeView, Sequence[BlockedLayout | None]], Result | Reason]:
    """Make a rule of one for the layout of the first input: no other may be in blocks."""

    @wraps(rule)
    def checked(node: NodeView, layouts: Sequence[BlockedLayout | None]) -> Result | Reason:
        data, *parameters = layouts
        if data is None or any(layout is not None for layout in parameters):
            return f"a parameter of {node.op_type} is a value in blocks"
        return rule(node, data)

    return checked


def may_differ(name: str) -> Reason:
    """Blame an operand that is not the same for all elements of the batch and blocked axes."""
    return f"{name!r} may differ between positions or images"


def same_border(borders: Sequence[BorderValue]) -> BorderValue:
    """Keep the border of the inputs: operators that only move elements."""
    first = borders[0]
    return first if all(border == first for border in borders) else None


def zero_stays(borders: Sequence[BorderValue]) -> BorderValue:
    """Keep zeros: operators that map zeros to zero."""
    return 0 if all(border == 0 for border in borders) else None
