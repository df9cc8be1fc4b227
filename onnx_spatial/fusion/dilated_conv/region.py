"""What was found in one graph: operators that regions begin and end with, and what lies between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.conv import BlockedConv
from onnx_spatial.fusion.dilated_conv.graph_view import NodeView
from onnx_spatial.fusion.dilated_conv.pad_amounts import PadPairs
from onnx_spatial.fusion.dilated_conv.rule import RuleResult
from onnx_spatial.fusion.matcher import MatchedOp


@dataclass(frozen=True)
class RegionNode:
    """A node inside a region.

    Attributes:
        node: it, in the graph.
        read: it, off its message.
        states: of its inputs, None for one that is not in blocks.
        passage: what it is on the values themselves.
    """

    node: ir.Node
    read: NodeView
    states: tuple[BlockedLayout | None, ...]
    passage: RuleResult | BlockedConv

    @property
    def after(self) -> tuple[BlockedLayout, ...]:
        """State of each output."""
        if isinstance(self.passage, BlockedConv):
            return (self.passage.state,)
        return self.passage.states

    def names(self) -> list[str]:
        """Names of its inputs that are in blocks."""
        pairs = zip(self.read.message.input, self.states, strict=True)
        return [name for name, state in pairs if state is not None]


@dataclass(frozen=True)
class RegionEnd:
    """A SpaceToBatch that a region begins with, or a BatchToSpace that it ends with.

    Attributes:
        subject: it.
        name: of the value in blocks.
        state: of that value.
        window: its pads or crops, one pair per axis of the state.
        sources: values of the model that these are read from, by name.
    """

    subject: MatchedOp
    name: str
    state: BlockedLayout
    window: PadPairs
    sources: Mapping[str, ir.Value]


@dataclass
class Regions:
    """What was found in one graph.

    Attributes:
        entries: the operators that regions begin with, by the name of their output.
        exits: those they end with, in order.
        steps: the nodes between, in order.
        demand: what each value in blocks need not hold at its ends.
        outside: values in blocks that others read too.
        doomed: nodes that nobody needs once the regions are gone: run-time shapes of values in blocks.
        declined: why not, by the node of a spatial operator.
        origins: names of the entries that each value in blocks comes from.
    """

    entries: dict[str, RegionEnd] = field(default_factory=dict)
    exits: list[RegionEnd] = field(default_factory=list)
    steps: list[RegionNode] = field(default_factory=list)
    demand: dict[str, PadPairs] = field(default_factory=dict)
    outside: set[str] = field(default_factory=set)
    doomed: set[ir.Node] = field(default_factory=set)
    declined: dict[ir.Node, list[str]] = field(default_factory=dict)
    origins: dict[str, frozenset[str]] = field(default_factory=dict)

    def between(self) -> list[list[ir.Node]]:
        """For each exit the nodes that lead to it, and to none before it."""
        first: dict[str, int] = {}
        for number, end in enumerate(self.exits):
            first.setdefault(end.name, number)
        found: list[list[ir.Node]] = [[] for _ in self.exits]
        for step in reversed(self.steps):
            number = min(first[n] for n in step.read.message.output if n in first)
            found[number].append(step.node)
            for name in step.names():
                first[name] = min(number, first.get(name, number))
        return [nodes[::-1] for nodes in found]
