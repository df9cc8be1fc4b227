"""Draft the nodes of a region without blocks, with as few Pads and Slices as possible.

Every value u is computed as far as it is needed (`ComputedPart`): a crop cuts off its ends, where u
holds a known number, its border, or unknown elements. Convolutions take the difference between the
crops of their input and of their output into their own pads; the rest is a Pad or a Slice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import sub

import onnx
import onnx_ir as ir

from onnx_spatial.errors import ConversionError
from onnx_spatial.fusion.dilated_conv.amount_vectors import AmountVectors
from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.blocked_shape import blocked_shape
from onnx_spatial.fusion.dilated_conv.conv import BlockedConv
from onnx_spatial.fusion.dilated_conv.graph_view import Array, GraphView, NodeView
from onnx_spatial.fusion.dilated_conv.nested import Reblocking
from onnx_spatial.fusion.dilated_conv.pad_amounts import (
    NOTHING,
    PadAmount,
    PadPair,
    PadPairs,
    combined,
    flat,
    reordered,
    same,
    whole,
)
from onnx_spatial.fusion.dilated_conv.pad_slice import ComputedPart, PadSliceWriter
from onnx_spatial.fusion.dilated_conv.region import (
    RegionEnd,
    RegionNode,
    Regions,
    batch_vectors,
)
from onnx_spatial.fusion.dilated_conv.reshape import write_reshape
from onnx_spatial.fusion.dilated_conv.rule import (
    IDENTITY,
    BorderValue,
    Operand,
    RewrittenNode,
    RewrittenReshape,
    RuleResult,
)
from onnx_spatial.fusion.matcher import Matcher
from onnx_spatial.fusion.rule import Writer
from onnx_spatial.lowering import Request
from onnx_spatial.model.graph.replace_nodes import Draft, GraphEdit
from onnx_spatial.operators import Dim, SpaceToBatch
from onnx_spatial.operators.spellings import BlockCall, Vector


@dataclass
class RegionEdit(GraphEdit):
    """The edit that writes the regions of one graph without blocks.

    Attributes:
        convolved: names of the values in blocks that are computed by a convolution, for the report.
        elements: names of the run-time parameters that are read, which must stay and be in front.
    """

    convolved: set[str] = field(default_factory=set)
    elements: set[str] = field(default_factory=set)


def write(regions: Regions, view: GraphView, matcher: Matcher, lower: Writer) -> RegionEdit:
    """Draft the regions of one graph.

    Raises:
        UnwritableError: a value is needed that no operator can compute.
    """
    return _Writer(regions, view, matcher, lower).run()


class UnwritableError(ConversionError):
    """A region cannot be written.

    Attributes:
        entries: names of the values that it starts with.
    """

    def __init__(self, message: str, entries: frozenset[str]) -> None:
        super().__init__(message)
        self.entries = entries


class _Writer:
    def __init__(self, regions: Regions, view: GraphView, matcher: Matcher, lower: Writer) -> None:
        self._regions, self._view, self._matcher = regions, view, matcher
        self._lower = lower
        self._computed: dict[str, ComputedPart] = {}
        ends = (*regions.entries.values(), *regions.exits)
        inner = [s.rewrite for s in regions.steps if isinstance(s.rewrite, Reblocking)]
        sources = {name: value for end in ends for name, value in end.sources.items()}
        sources |= {name: value for each in inner for name, value in each.sources.items()}
        operators = [end.subject for end in ends]
        operators += filter(None, (matcher.subject(step.node) for step in regions.steps))
        zeros = set[str]()
        for subject in operators:
            message = matcher.message(subject.node)
            assert message is not None
            zeros |= batch_vectors(subject, message)
        vectors = AmountVectors(view, sources, regions.layouts, zeros)
        self._pads = PadSliceWriter(view, vectors)
        self._edit = RegionEdit()

    def run(self) -> RegionEdit:
        regions, edit = self._regions, self._edit
        for end in regions.entries.values():
            x = end.subject.node.inputs[0] if end.front is None else end.front.data
            assert x is not None
            self._computed[end.name] = ComputedPart(x, end.pads, 0, end.layout)
            self._try([end.name], partial(self._measure, end.name))
        for step in regions.steps:
            self._try(step.names, partial(self._step, step))
        self._pads.at_exits = True
        for end in regions.exits:
            self._try([end.name], partial(self._exit, end))
        edit.elements = self._pads.amounts.elements
        kept = regions.shared
        edit.removed = [e.subject.node for e in regions.entries.values() if e.name not in kept]
        edit.removed += regions.dead
        _prune(edit.drafts)
        return edit

    def _try(self, names: Sequence[str], write: Callable[[], None]) -> None:
        try:
            write()
        except ConversionError as error:
            entries = frozenset[str]().union(*(self._regions.origins[name] for name in names))
            raise UnwritableError(str(error), entries) from None

    def _step(self, step: RegionNode) -> None:
        draft = Draft(step.node)
        if isinstance(step.rewrite, BlockedConv):
            self._convolution(step, step.rewrite, draft)
        elif isinstance(step.rewrite, Reblocking):
            self._reblocked(step, step.rewrite, draft)
        else:
            self._pointwise(step, step.rewrite, draft)
        self._edit.drafts.append(draft)
        for name in step.outputs:
            if name in self._computed:
                self._measure(name)
            if name in self._regions.shared and name in self._computed:
                self._into_blocks(step, name, draft)

    def _sizes(self, name: str, layout: BlockedLayout) -> tuple[Dim, ...]:
        """Return the shape of u, from that of the value in blocks, None where unknown."""
        sizes = self._view.lengths(name, range(layout.rank))
        blocks = dict(zip(layout.axes, layout.blocks, strict=True))
        shape = [None if n is None else n * blocks.get(axis, 1) for axis, n in enumerate(sizes)]
        batch = shape[layout.batch]
        shape[layout.batch] = None if batch is None else batch // math.prod(blocks.values())
        return tuple(shape)

    def _cropped_sizes(self, step: RegionNode, crop: PadPairs) -> list[int | None]:
        """Return the sizes of the part of the input of a step that is computed, None where unknown."""
        (name,), (layout,) = step.names, [s for s in step.layouts if s is not None]
        sizes = [n if isinstance(n, int) else None for n in self._sizes(name, layout)]
        for axis, pair in zip(layout.axes, crop, strict=True):
            size, cut = sizes[axis], (pair[0] + pair[1]).constant
            sizes[axis] = None if size is None or cut is None else size - cut
        return sizes

    # Steps

    def _pointwise(self, step: RegionNode, result: RuleResult, draft: Draft) -> None:
        inputs = {name: self._input(name, layout, draft) for name, layout in step.inputs}
        crop, border = self._common_part(list(inputs.values()), result, self._demand(step))
        values = {name: self._pads.at(part, crop, draft) for name, part in inputs.items()}
        if result.forms == IDENTITY:
            outputs: Sequence[ir.Value] = list(values.values())
        else:
            outputs = self._copy(step, values, result.forms, draft, crop).outputs
        for name, output, layout in zip(step.outputs, outputs, result.layouts, strict=False):
            if name:
                self._computed[name] = ComputedPart(output, crop, border, layout)
                if self._edit.convolved.intersection(inputs):
                    self._edit.convolved.add(name)

    def _input(self, name: str, layout: BlockedLayout, draft: Draft) -> ComputedPart:
        """Return the part of a value that is computed, padded along the axes not in the layout."""
        part = self._computed[name]
        axes, others = part.layout.axes, layout.axes
        if axes == others:
            return part
        crop = reordered(part.crop, axes, others)
        value = self._pads.at(part, reordered(crop, others, axes), draft)
        return replace(part, value=value, crop=crop, layout=layout)

    def _common_part(
        self, inputs: Sequence[ComputedPart], result: RuleResult, demand: PadPairs
    ) -> tuple[PadPairs, BorderValue]:
        """Choose the crop for all inputs of an operator, and compute the border of its output."""
        first = inputs[0].crop
        if all(same(part.crop, first) for part in inputs):
            border = result.border([part.border for part in inputs])
            if border is not None or all(map(PadAmount.is_at_least, flat(demand), flat(first))):
                return first, border
        crops = [demand, *(part.crop for part in inputs)]
        kept = [c for c in crops if all(map(PadAmount.is_at_least, flat(demand), flat(c)))]
        return min(kept, key=lambda crop: self._effort(inputs, crop, demand)), None

    def _effort(self, inputs: Sequence[ComputedPart], crop: PadPairs, demand: PadPairs) -> float:
        """Count the Pads and Slices for a common crop of inputs, and behind it for what is needed."""
        steps = [self._pads.steps_between(part, crop) for part in inputs]
        known = [count for count in steps if count is not None]
        return math.inf if len(known) < len(steps) else sum(known) + (not same(crop, demand))

    def _convolution(self, step: RegionNode, conv: BlockedConv, draft: Draft) -> None:
        ((name, layout),) = step.inputs
        part, demand = self._input(name, layout, draft), self._demand(step)
        net = conv.net_pads(part.crop, demand)
        if not _fits(part, net, conv.pad_value):
            crop = conv.input_crop(demand, self._view.lengths(name, part.layout.axes))
            value = self._pads.at(part, crop, draft)
            part = replace(part, value=value, crop=crop, border=None)
            net = conv.net_pads(crop, demand)
        own = conv.within_limits(tuple(map(_own_pads, net, self._lengths(part))))
        before = combined(sub, net, own)
        value = self._pads.padded(part, before, conv.pad_value, draft)
        node = self._copy(step, {name: value}, (), draft)
        node.attributes.pop("auto_pad", None)
        for attribute, changed in conv.attributes(own).items():
            node.attributes[attribute] = ir.convenience.convert_attribute(attribute, changed)
        output = step.outputs[0]
        self._computed[output] = ComputedPart(node.outputs[0], demand, None, conv.layout)
        self._edit.convolved.add(output)

    def _reblocked(self, step: RegionNode, change: Reblocking, draft: Draft) -> None:
        """Let a value that is blocked otherwise have more zeros at its ends, or less of its elements."""
        (name,) = step.names
        part, demand = self._computed[name], self._demand(step)
        crop = reordered(part.crop, part.layout.axes, change.before.axes)
        part = replace(part, crop=crop, layout=change.before)
        crop, border = change.output_crop(part.crop), part.border
        if border != 0 or not all(amount.is_at_least(NOTHING) for amount in flat(crop)):
            needed = change.input_crop(demand, zeros=border == 0)
            part = replace(part, value=self._pads.at(part, needed, draft))
            crop = change.output_crop(needed)
            border = 0 if all(amount.constant == 0 for amount in flat(needed)) else None
            if not all(amount.is_at_least(NOTHING) for amount in flat(crop)):
                raise ConversionError("the crops of an operator inside the region are not known")
        output = step.outputs[0]
        self._computed[output] = ComputedPart(part.value, crop, border, change.layout)
        if name in self._edit.convolved:
            self._edit.convolved.add(output)

    def _lengths(self, computed: ComputedPart) -> list[int | None]:
        """Return the lengths of the blocked axes of a value; those of new values are unknown."""
        name, axes = computed.value.name, computed.layout.axes
        return [None] * len(axes) if name is None else self._view.lengths(name, axes)

    def _demand(self, step: RegionNode) -> PadPairs:
        return next(self._regions.demand[n] for n in step.outputs if n in self._regions.demand)

    def _copy(
        self,
        step: RegionNode,
        values: Mapping[str, ir.Value],
        forms: Sequence[RewrittenNode | RewrittenReshape],
        draft: Draft,
        crop: PadPairs = (),
    ) -> ir.Node:
        """Copy the node for other values, all cropped alike, or write its forms."""
        inputs = [
            values.get(name, value)
            for name, value in zip(step.view.message.input, step.node.inputs, strict=True)
        ]
        if not forms:
            node = self._matcher.copy(step.node, inputs)
            draft.nodes.append(node)
        value = inputs[0]
        for form in forms:
            if isinstance(form, RewrittenReshape):
                assert value is not None
                sizes = self._cropped_sizes(step, crop)
                node = write_reshape(value, sizes, form, self._view, draft)
            else:
                operands = [self._operand(operand, inputs, draft) for operand in form.operands]
                node = ir.node(form.op_type, [value, *operands], form.attributes)
                draft.nodes.append(node)
            value = node.outputs[0]
        draft.successor = node
        return node

    def _operand(
        self, operand: Array | Operand, inputs: Sequence[ir.Value | None], draft: Draft
    ) -> ir.Value | None:
        if not isinstance(operand, Operand):
            return draft.constant(operand, "shape")
        value = inputs[operand.index]
        if operand.transposed:
            node = ir.node("Transpose", [value], {"perm": (1, 0)})
            draft.nodes.append(node)
            value = node.outputs[0]
        return value

    # Ends

    def _measure(self, name: str) -> None:
        """Write the shape of a value in blocks for the nodes outside that read it."""
        for node in self._regions.measured.get(name, ()):
            draft = Draft(node)
            view = NodeView(self._matcher.message(node) or onnx.NodeProto(), self._view)
            rank = self._regions.layouts[name].rank
            axes = range(rank)[view.integer("start", 0) : view.integer("end", rank)]
            lengths = self._view.lengths(name, axes)
            shape = blocked_shape(self._computed[name], axes, lengths, self._pads.amounts, draft)
            draft.results[node.outputs[0]] = shape
            self._edit.drafts.append(draft)

    def _exit(self, end: RegionEnd) -> None:
        draft = Draft(end.subject.node)
        part = self._computed[end.name]
        crop = (*part.crop, *whole(len(end.pads) - len(part.crop)))
        value = self._pads.at(replace(part, crop=crop, layout=end.layout), end.pads, draft)
        draft.results[end.subject.node.outputs[0]] = value
        self._edit.drafts.append(draft)

    def _into_blocks(self, step: RegionNode, name: str, draft: Draft) -> None:
        """Write the value in blocks for nodes outside the region.

        It is lowered from u, or computed by a copy of its node where the inputs are there in blocks.
        """
        output = next(o for o in step.node.outputs if o.name == name)
        shared = self._regions.shared
        if (
            isinstance(step.rewrite, RuleResult)
            and len(step.outputs) == 1
            and shared.issuperset(step.names)
        ):
            node = self._matcher.copy(step.node, step.node.inputs)
            draft.nodes.append(node)
            draft.results[output] = node.outputs[0]
            return
        computed = self._computed[name]
        layout = computed.layout
        if layout.rows or layout.batch != 0 or list(layout.order) != sorted(layout.order):
            raise ConversionError(f"{name!r} is read elsewhere with its axes in another order")
        value = self._pads.at(computed, whole(len(layout.axes)), draft)
        if not layout.order:
            draft.results[output] = value
            return
        blocks = dict(layout.order)
        last = max(blocks)
        zeros = Vector(last, (0,) * last)
        block = Vector(last, tuple(blocks.get(axis, 1) for axis in range(1, last + 1)))
        call = BlockCall(SpaceToBatch, block, zeros, zeros, "", layout.rank)
        entry = next(iter(self._regions.entries.values())).subject
        shape, opset = self._sizes(name, layout), entry.request.opset
        request = Request(call, (value,), shape, layout.element_types, (None,), opset)
        lowered = self._lower(request, entry.info)
        draft.nodes += lowered.emitted.nodes
        draft.constants += lowered.emitted.constants
        draft.results[output] = lowered.output


def _prune(drafts: Sequence[Draft]) -> None:
    """Remove new nodes and constants that nothing reads, such as a Pad that is part of a later one."""
    read = {
        value for draft in drafts for value in (*draft.results.values(), *draft.redirected.values())
    }
    for draft in reversed(drafts):
        for node in reversed(draft.nodes):
            if read.intersection(node.outputs):
                read.update(value for value in node.inputs if value is not None)
    for draft in drafts:
        draft.nodes = [node for node in draft.nodes if read.intersection(node.outputs)]
        draft.constants = [(value, hint) for value, hint in draft.constants if value in read]


def _fits(part: ComputedPart, net: PadPairs, pad_value: BorderValue) -> bool:
    """Return whether a convolution may pad its input itself: with the number that u holds there."""
    if part.border is not None and part.border == pad_value:
        return True
    return all(
        crop.constant == 0 or (amount.constant is not None and amount.constant <= 0)
        for amount, crop in zip(flat(net), flat(part.crop), strict=True)
    )


def _own_pads(net: PadPair, length: int | None) -> PadPair:
    """Select the part of the pads of an axis that a convolution can take itself: what is always padded.

    None of it if more may be cropped at one end than is there before the other end is padded.
    """
    crops = [amount for amount in net if not amount.is_at_least(NOTHING)]
    grows = any(not NOTHING.is_at_least(amount) for amount in net)
    if crops and grows:
        cut = [amount.constant for amount in crops]
        if length is None or any(n is None or length < -n for n in cut):
            return (NOTHING, NOTHING)
    begin, end = (PadAmount.known(max(amount.bounds.least or 0, 0)) for amount in net)
    return begin, end
