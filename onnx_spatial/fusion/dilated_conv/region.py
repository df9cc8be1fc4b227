"""Describe the regions of one graph: the spatial operators at their ends, and the nodes between."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx
import onnx_ir as ir

from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.conv import BlockedConv
from onnx_spatial.fusion.dilated_conv.front_pad import FrontPad
from onnx_spatial.fusion.dilated_conv.graph_view import GraphView, NodeView
from onnx_spatial.fusion.dilated_conv.nested import Reblocking
from onnx_spatial.fusion.dilated_conv.pad_amounts import Element, PadAmount, PadPairs
from onnx_spatial.fusion.dilated_conv.rule import RuleResult
from onnx_spatial.fusion.matcher import MatchedOp
from onnx_spatial.fusion.rule import Reason
from onnx_spatial.model.symbolic.polynomial import quotient
from onnx_spatial.model.symbolic.symbolic_values import Polynomial
from onnx_spatial.operators import BatchToSpace
from onnx_spatial.operators.spellings import BlockCall


@dataclass(frozen=True)
class RegionNode:
    """A node inside a region.

    Attributes:
        node: the node in the graph.
        view: its message.
        layouts: layout of each input, None for one that is not in blocks; axes that are padded in
            front of the node are not among those of the layout.
        rewrite: how it is written on the values themselves.
    """

    node: ir.Node
    view: NodeView
    layouts: tuple[BlockedLayout | None, ...]
    rewrite: RuleResult | BlockedConv | Reblocking

    @property
    def output_layouts(self) -> tuple[BlockedLayout, ...]:
        """Layout of each output."""
        if isinstance(self.rewrite, RuleResult):
            return self.rewrite.layouts
        return (self.rewrite.layout,)

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs."""
        return list(self.view.message.output)

    @property
    def inputs(self) -> list[tuple[str, BlockedLayout]]:
        """Names and layouts of the inputs in blocks."""
        pairs = zip(self.view.message.input, self.layouts, strict=True)
        return [(name, layout) for name, layout in pairs if layout is not None]

    @property
    def names(self) -> list[str]:
        """Names of the inputs in blocks."""
        return [name for name, _ in self.inputs]


@dataclass(frozen=True)
class RegionEnd:
    """A SpaceToBatch at the start of a region, or a BatchToSpace at its end.

    Attributes:
        subject: the operator.
        name: name of the value in blocks.
        layout: layout of that value; at the end of a region also the axes that are only cropped, last.
        pads: pads or crops, one pair per axis of the layout.
        sources: values of the graph that hold run-time pads or crops, by name.
        front: the Pad in front of a SpaceToBatch whose amounts are among the pads.
    """

    subject: MatchedOp
    name: str
    layout: BlockedLayout
    pads: PadPairs
    sources: Mapping[str, ir.Value]
    front: FrontPad | None = None


@dataclass
class Regions:
    """All regions of one graph. Values are known by their names.

    The walk forward (`propagate`) fills in these attributes:
        entries: the SpaceToBatch operators that regions start with, by their output.
        exits: the BatchToSpace operators that they end with, in order.
        declined: why not, by the node of a spatial operator.
        layouts: layout of each value in blocks.
        origins: entries that each value in blocks is computed from.
        step_of: the node that computes each value in blocks.
        borders: width and number of the border, for values that still have that of SpaceToBatch.
        places: position in the graph of the node that computes each value.
        nested: names of the outputs of each SpaceToBatch inside a region.

    The walk back (`demand`) keeps the entries that lead to an exit, and fills in these:
        steps: the nodes between, in order.
        demand: crop of each value in blocks: what nobody needs at its ends.
        shared: values in blocks that nodes outside of regions read too.
        measured: the nodes that read the shape of a value in blocks and are needed, if only such nodes
            read it outside of regions.
        dead: nodes that are unused without the blocks: they compute with the shapes of values in blocks.
    """

    entries: dict[str, RegionEnd] = field(default_factory=dict)
    exits: list[RegionEnd] = field(default_factory=list)
    declined: dict[ir.Node, list[Reason]] = field(default_factory=dict)
    layouts: dict[str, BlockedLayout] = field(default_factory=dict)
    origins: dict[str, frozenset[str]] = field(default_factory=dict)
    step_of: dict[str, RegionNode] = field(default_factory=dict)
    borders: dict[str, tuple[PadPairs, float]] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    nested: set[str] = field(default_factory=set)
    steps: list[RegionNode] = field(default_factory=list)
    demand: dict[str, PadPairs] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    measured: dict[str, list[ir.Node]] = field(default_factory=dict)
    dead: set[ir.Node] = field(default_factory=set)

    def between(self) -> list[list[ir.Node]]:
        """List for each exit the nodes that lead to it, and to none before it."""
        first: dict[str, int] = {}
        for number, end in enumerate(self.exits):
            first.setdefault(end.name, number)
        nodes: list[list[ir.Node]] = [[] for _ in self.exits]
        for step in reversed(self.steps):
            number = min(first[n] for n in step.outputs if n in first)
            nodes[number].append(step.node)
            for name in step.names:
                first[name] = min(number, first.get(name, number))
        return [each[::-1] for each in nodes]


def blocks(subject: MatchedOp) -> tuple[int, ...] | None:
    """Return the block of each axis of an operator; None if it is computed at run time."""
    call = subject.request.call
    return call.block.values if isinstance(call, BlockCall) else None


def refusal(subject: MatchedOp, layout: BlockedLayout) -> Reason | None:
    """Say why a BatchToSpace cannot end the region of a value; None if it can, or is no BatchToSpace."""
    call, known = subject.request.call, blocks(subject)
    if not isinstance(call, BlockCall) or call.kind is not BatchToSpace:
        return None
    if known is None:
        return "its block is not known before the model runs"
    if layout.batch != 0 or layout.rows:
        return "the batch axis is not the first any more"
    if tuple((i, block) for i, block in enumerate(known, 1) if block > 1) != layout.order:
        return f"its blocks {list(known)} are not those of the SpaceToBatch in front"
    return None


def amounts(
    subject: MatchedOp, message: onnx.NodeProto, view: GraphView
) -> tuple[PadPairs, Mapping[str, ir.Value]]:
    """Read the pads or crops of all axes of an operator, and the values that hold them at run time."""
    call = subject.request.call
    assert isinstance(call, BlockCall)
    sources: dict[str, ir.Value] = {}
    sides = []
    for vector in (call.begins, call.ends):
        if vector.values is not None:
            sides.append([PadAmount.known(value) for value in vector.values])
            continue
        assert vector.input is not None
        name, value = message.input[vector.input], subject.node.inputs[vector.input]
        assert value is not None
        sources[name] = value
        places = range(vector.start, vector.start + vector.length * vector.step, vector.step)
        entries = view.sizes.entries(name)
        if entries is None or len(entries) <= max(places, default=-1):
            numbers = {p: Polynomial.atom(("parameter", name, p)) for p in places}
        else:
            numbers = {p: entries[p] for p in places}
        sides.append([PadAmount.read(Element(name, p, n)) for p, n in numbers.items()])
    return tuple(zip(*sides, strict=True)), sources


def batch_vectors(subject: MatchedOp, message: onnx.NodeProto) -> set[str]:
    """Return the names of the run-time parameters whose first element is that of the batch: 0."""
    call = subject.request.call
    assert isinstance(call, BlockCall)
    vectors = (vector for vector in (call.begins, call.ends) if vector.input is not None)
    return {
        message.input[v.input]
        for v in vectors
        if v.input is not None and (v.start, v.step) == (1, 1)
    }


def note_blocked(
    view: GraphView, message: onnx.NodeProto, blocks: Sequence[int], pads: PadPairs
) -> None:
    """Note the sizes behind SpaceToBatch: shapes may be computed from those in front."""
    source = view.dims(message.input[0])
    if source is None or len(source) <= len(blocks):
        return
    dims = [source[0] * math.prod(blocks), *source[1:]]
    for axis, (block, pair) in enumerate(zip(blocks, pads, strict=True), 1):
        padded = source[axis] + pair[0].expression + pair[1].expression
        dims[axis] = view.divided(padded, block)
    view.sizes.note(message.output[0], dims)


def note_unblocked(
    view: GraphView, message: onnx.NodeProto, blocks: Sequence[int], crops: PadPairs
) -> None:
    """Note the sizes behind BatchToSpace."""
    source = view.dims(message.input[0])
    if source is None or len(source) <= len(blocks):
        return
    dims = [quotient(source[0], Polynomial.of(math.prod(blocks))), *source[1:]]
    for axis, (block, pair) in enumerate(zip(blocks, crops, strict=True), 1):
        dims[axis] = source[axis] * block - pair[0].expression - pair[1].expression
    view.sizes.note(message.output[0], dims)
