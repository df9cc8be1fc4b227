"""Emit the nodes of a region without blocks, with as few Pads and Slices as possible.

Every value u is computed as far as it is needed (`ComputedPart`): a window cuts off its ends, and beyond
the window u holds a known number, or nothing is known. Convolutions take the difference between the
window of their input and that of their output into their own pads; the rest is a Pad or a Slice.

The nodes are drafts, in no graph, until `conversion.replace` carries them out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import onnx_ir as ir

from onnx_spatial.errors import ConversionError
from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.conv import BlockedConv
from onnx_spatial.fusion.dilated_conv.graph_view import GraphView
from onnx_spatial.fusion.dilated_conv.pad_amounts import (
    NOTHING,
    PadAmount,
    PadPair,
    PadPairs,
    same,
    whole,
)
from onnx_spatial.fusion.dilated_conv.pad_slice import ComputedPart, PadSliceWriter
from onnx_spatial.fusion.dilated_conv.region import RegionEnd, RegionNode, Regions
from onnx_spatial.fusion.dilated_conv.rule import BorderValue, RewrittenNode, RuleResult
from onnx_spatial.fusion.matcher import MatchedOp
from onnx_spatial.lowering import Lowered, Request
from onnx_spatial.model.graph.replace_nodes import Draft
from onnx_spatial.operators import Dim, SpaceToBatch
from onnx_spatial.operators.spellings import BlockCall, Vector


@dataclass
class Written:
    """The regions of one graph, ready to be put in place.

    Attributes:
        drafts: in an order in which each reads what is there before it.
        convolved: names of the values in blocks that stand behind a convolution.
        elements: names of the run-time parameters that are still read.
    """

    drafts: list[Draft] = field(default_factory=list)
    convolved: set[str] = field(default_factory=set)
    elements: set[str] = field(default_factory=set)


#: Lowers a SpaceToBatch: for values in blocks that others read too.
Lower = Callable[[Request, MatchedOp], Lowered]


def write(regions: Regions, view: GraphView, lower: Lower) -> Written:
    """Write what was found in one graph.

    Raises:
        UnwritableError: something is needed that no operator can be had for.
    """
    return _Writer(regions, view, lower).run()


class UnwritableError(ConversionError):
    """A region cannot be written.

    Attributes:
        entries: the values that it begins with.
    """

    def __init__(self, message: str, entries: frozenset[str]) -> None:
        super().__init__(message)
        self.entries = entries


class _Writer:
    def __init__(self, regions: Regions, view: GraphView, lower: Lower) -> None:
        self._regions = regions
        self._view = view
        self._lower = lower
        self._computed: dict[str, ComputedPart] = {}
        ends = (*regions.entries.values(), *regions.exits)
        sources = {name: value for end in ends for name, value in end.sources.items()}
        self._fitting = PadSliceWriter(view, sources)
        self._written = Written()

    def run(self) -> Written:
        regions = self._regions
        for end in regions.entries.values():
            x = end.subject.node.inputs[0]
            assert x is not None
            self._computed[end.name] = ComputedPart(x, end.window, 0, end.state)
        for step in regions.steps:
            self._try(step.names(), partial(self._step, step))
        self._fitting.at_exits = True
        for end in regions.exits:
            self._try([end.name], partial(self._exit, end))
        self._written.elements = self._fitting.elements
        return self._written

    def _try(self, names: Sequence[str], write: Callable[[], None]) -> None:
        try:
            write()
        except ConversionError as error:
            entries = frozenset[str]().union(*(self._regions.origins[name] for name in names))
            raise UnwritableError(str(error), entries) from None

    def _step(self, step: RegionNode) -> None:
        draft = Draft(step.node)
        if isinstance(step.passage, BlockedConv):
            self._convolution(step, step.passage, draft)
        else:
            self._pointwise(step, step.passage, draft)
        self._written.drafts.append(draft)
        for name in step.read.message.output:
            if name in self._regions.outside and name in self._computed:
                self._into_blocks(step, name, draft)

    def _sizes(self, name: str, state: BlockedLayout) -> tuple[Dim, ...]:
        """The shape of u, by that of the value in blocks, as far as it is known."""
        dims = self._view.dims(name)
        sizes: list[Dim] = [None] * state.rank if dims is None else [d.constant for d in dims]
        factors = dict.fromkeys(range(state.rank), 1) | dict(state.order)
        for axis, factor in factors.items():
            size = sizes[axis]
            sizes[axis] = size * factor if isinstance(size, int) else None
        batch = sizes[state.batch]
        product = math.prod(block for _, block in state.order)
        sizes[state.batch] = batch // product if isinstance(batch, int) else None
        return tuple(sizes)

    # Steps

    def _pointwise(self, step: RegionNode, passage: RuleResult, draft: Draft) -> None:
        given = {name: self._computed[name] for name in step.names()}
        wanted = self._wanted(step)
        crop, outside = self._meeting(list(given.values()), passage, wanted)
        values = {name: self._fitting.at(c, crop, draft) for name, c in given.items()}
        node = self._copy(step, values, passage.forms, draft)
        for output, state in zip(node.outputs, passage.states, strict=False):
            name = step.read.message.output[output.index() or 0]
            if name:
                self._computed[name] = ComputedPart(output, crop, outside, state)
                if self._written.convolved.intersection(given):
                    self._written.convolved.add(name)

    def _meeting(
        self, given: Sequence[ComputedPart], passage: RuleResult, wanted: PadPairs
    ) -> tuple[PadPairs, BorderValue]:
        """As far as what an operator's inputs are taken, and what lies beyond its output then."""
        first = given[0].crop
        if all(same(c.crop, first) for c in given):
            outside = passage.outside([c.outside for c in given])
            enough = all(
                want.is_at_least(have)
                for wants, haves in zip(wanted, first, strict=True)
                for want, have in zip(wants, haves, strict=True)
            )
            if outside is not None or enough:
                return first, outside
        return wanted, None

    def _convolution(self, step: RegionNode, passage: BlockedConv, draft: Draft) -> None:
        (name,) = step.names()
        given, wanted = self._computed[name], self._wanted(step)
        net = passage.net_pads(given.crop, wanted)
        if not _fits(given, net, passage.pad_value):
            needed = passage.needed(wanted, self._view.lengths(name, given.state.axes))
            value = self._fitting.at(given, needed, draft)
            given = replace(given, value=value, crop=needed, outside=None)
            net = passage.net_pads(needed, wanted)
        before, own = _shared_out(net, self._lengths(given))
        value = self._fitting.padded(given, before, passage.pad_value, draft)
        pads = passage.with_pads(own)
        node = self._copy(step, {name: value}, (), draft)
        _set_axes(node, passage, pads)
        output = step.read.message.output[0]
        self._computed[output] = ComputedPart(node.outputs[0], wanted, None, passage.state)
        self._written.convolved.add(output)

    def _lengths(self, computed: ComputedPart) -> list[int | None]:
        """Lengths of a value's blocked axes; they are known of values of the original only."""
        name, axes = computed.value.name, computed.state.axes
        return [None] * len(axes) if name is None else self._view.lengths(name, axes)

    def _wanted(self, step: RegionNode) -> PadPairs:
        return next(
            self._regions.demand[n] for n in step.read.message.output if n in self._regions.demand
        )

    def _copy(
        self,
        step: RegionNode,
        values: Mapping[str, ir.Value],
        forms: Sequence[RewrittenNode],
        draft: Draft,
    ) -> ir.Node:
        """The step's node on other values; graph and metadata are the edit's business."""
        message = step.read.message
        inputs = [
            values.get(name, value)
            for name, value in zip(message.input, step.node.inputs, strict=True)
        ]
        if not forms:
            attributes = [ir.serde.deserialize_attribute(a) for a in message.attribute]
            node = ir.Node(
                step.node.domain,
                step.node.op_type,
                inputs,
                attributes,
                num_outputs=len(message.output),
            )
            draft.nodes.append(node)
        value = inputs[0]
        for form in forms:
            constants = [
                ir.Value(
                    type=ir.TensorType(ir.DataType.INT64),
                    shape=ir.Shape(array.shape),
                    const_value=ir.tensor(array),
                )
                for array in form.operands
            ]
            draft.constants += [(constant, "shape") for constant in constants]
            node = ir.node(form.op_type, [value, *constants], form.attributes)
            value = node.outputs[0]
            draft.nodes.append(node)
        draft.successor = node
        return node

    # Ends

    def _exit(self, end: RegionEnd) -> None:
        computed = self._computed[end.name]
        draft = Draft(end.subject.node)
        value = self._fitting.at(computed, end.window, draft)
        draft.results[end.subject.node.outputs[0]] = value
        self._written.drafts.append(draft)

    def _into_blocks(self, step: RegionNode, name: str, draft: Draft) -> None:
        """A value in blocks for others than the region."""
        computed = self._computed[name]
        state = computed.state
        if state.batch != 0 or [a for a, _ in state.order] != sorted(a for a, _ in state.order):
            raise ConversionError(f"{name!r} is read elsewhere with its axes in another order")
        value = self._fitting.at(computed, whole(len(state.axes)), draft)
        output = next(o for o in step.node.outputs if o.name == name)
        if not state.order:
            draft.results[output] = value
            return
        last = max(axis for axis, _ in state.order)
        blocks = dict(state.order)
        zeros = Vector(last, (0,) * last)
        block = Vector(last, tuple(blocks.get(axis, 1) for axis in range(1, last + 1)))
        call = BlockCall(SpaceToBatch, block, zeros, zeros, "", state.rank)
        any_end = next(iter(self._regions.entries.values()))
        request = Request(
            call,
            (value,),
            self._sizes(name, state),
            state.element_types,
            (None,),
            any_end.subject.request.opset,
        )
        lowered = self._lower(request, any_end.subject)
        draft.nodes += lowered.emitted.nodes
        draft.constants += lowered.emitted.constants
        draft.results[output] = lowered.output


def _fits(given: ComputedPart, net: PadPairs, pad_value: BorderValue) -> bool:
    """Whether a convolution may pad what it is given: with the number that u holds there."""
    if given.outside is not None and given.outside == pad_value:
        return True
    return all(
        crop.constant == 0 or (amount.constant is not None and amount.constant <= 0)
        for pair, crops in zip(net, given.crop, strict=True)
        for amount, crop in zip(pair, crops, strict=True)
    )


def _shared_out(net: PadPairs, lengths: Sequence[int | None]) -> tuple[PadPairs, PadPairs]:
    """What is padded or cropped in front of a convolution, and its own pads: known, none negative."""
    own = tuple(map(_own_pads, net, lengths))
    before = tuple(
        (begin - mine[0], end - mine[1]) for (begin, end), mine in zip(net, own, strict=True)
    )
    return before, own


def _own_pads(net: PadPair, length: int | None) -> PadPair:
    """What of the pads of an axis a convolution can take: nothing of it if there may be more to crop
    than there is before the other end is padded.
    """
    known = [amount.constant for amount in net]
    crops = [amount for amount in net if not amount.is_at_least(NOTHING)]
    grows = any(not NOTHING.is_at_least(amount) for amount in net)
    if crops and grows:
        cut = [amount.constant for amount in crops]
        if length is None or any(n is None or length < -n for n in cut):
            return (NOTHING, NOTHING)
    begin, end = (PadAmount.known(max(n or 0, 0)) for n in known)
    return begin, end


def _set_axes(node: ir.Node, passage: BlockedConv, pads: Sequence[tuple[int, int]]) -> None:
    """Give a convolution its dilations and pads."""
    node.attributes.pop("auto_pad", None)
    node.attributes["dilations"] = ir.AttrInt64s("dilations", [a.dilation for a in passage.axes])
    flat = [*(begin for begin, _ in pads), *(end for _, end in pads)]
    node.attributes["pads"] = ir.AttrInt64s("pads", flat)
