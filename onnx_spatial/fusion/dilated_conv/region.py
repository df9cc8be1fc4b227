"""Find the regions of one graph: what lies between SpaceToBatch and BatchToSpace.

    x -> SpaceToBatch -> t1 -> .. -> tn -> BatchToSpace -> y

1. The walk forward computes the layout of every value behind a SpaceToBatch, up to a BatchToSpace,
   which takes the blocks out again, or with a reason to a node that cannot be written without them.
2. What leads to no BatchToSpace is forgotten.
3. Nodes outside may read a SpaceToBatch, which stays for them, or the shape of a value in blocks.
4. The walk back computes how much of each value nobody needs at its ends: its *demand*.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from onnx_spatial.errors import ConversionError
from onnx_spatial.fusion.dilated_conv.amounts import (
    Amount,
    Bounds,
    Element,
    Pairs,
    add_pairs,
    flat,
    is_nothing,
    nothing,
    read_amounts,
    reordered,
)
from onnx_spatial.fusion.dilated_conv.nodes import (
    CONVOLUTIONS,
    Blocked,
    Commuted,
    Convolution,
    commute_convolution,
    commute_node,
    padding_of,
    pads_with_zeros,
)
from onnx_spatial.fusion.rules import Reason, describe
from onnx_spatial.fusion.views import GraphView, MatchedOp, Matcher, NodeInfo
from onnx_spatial.lowering import are_open
from onnx_spatial.maps.cases import UndecidedError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.operators import BatchToSpace, SpaceToBatch
from onnx_spatial.operators.spellings import BlockCall, Conflict

#: Why an operator is no end of a region with `Request.checked`.
_UNCHECKED = "its sizes are checked at run time, which needs the operator"
#: Operators that read only the shape of a value.
_SHAPES = op_traits.having(Trait.SIZES)
#: Operators on single elements: no attribute of theirs matters.
_UNARY = op_traits.having(Trait.UNARY)


@dataclass(frozen=True)
class Step:
    """A node inside a region.

    Attributes:
        view: the node, and what is known of it.
        layouts: layout of each input, None for one that is not in blocks.
        rewrite: what it is on the values themselves.
    """

    view: NodeInfo
    layouts: tuple[Blocked | None, ...]
    rewrite: Commuted | Convolution

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs."""
        return [name for name in self.view.output_names if name]

    @property
    def inputs(self) -> list[str]:
        """Names of the inputs in blocks."""
        pairs = zip(self.view.input_names, self.layouts, strict=True)
        return [name for name, layout in pairs if layout is not None]


@dataclass(frozen=True)
class End:
    """A SpaceToBatch at the start of a region, or a BatchToSpace at its end.

    Attributes:
        subject: the operator.
        name: name of the value in blocks.
        layout: layout of that value; at the end of a region also the axes that are only cropped, last.
        pads: pads or crops, one pair per axis of the layout.
        data: what a SpaceToBatch reads, or the Pad in front that it takes in.
    """

    subject: MatchedOp
    name: str
    layout: Blocked
    pads: Pairs
    data: ir.Value | None = None


@dataclass
class Regions:
    """All regions of one graph. Values are known by their names.

    Attributes:
        entries: the SpaceToBatch operators that regions start with, by their output.
        exits: the BatchToSpace operators that they end with, in order.
        items: the nodes between and the exits, in order.
        declined: why not, by the node of a spatial operator.
        layouts: layout of each value in blocks.
        origins: entries that each value in blocks is computed from.
        growth: how much larger than the image each is along the axes of its layout; None if unknown.
        demand: crop of each value in blocks: what nobody needs at its ends.
        shared: entries that nodes outside of regions read too.
        measured: the nodes that read the shape of a value in blocks.
        bounds: what is known of pads and crops.
    """

    entries: dict[str, End] = field(default_factory=dict)
    exits: list[End] = field(default_factory=list)
    items: list[Step | End] = field(default_factory=list)
    declined: dict[ir.Node, list[Reason]] = field(default_factory=dict)
    layouts: dict[str, Blocked] = field(default_factory=dict)
    origins: dict[str, frozenset[str]] = field(default_factory=dict)
    growth: dict[str, tuple[Amount | None, ...]] = field(default_factory=dict)
    demand: dict[str, Pairs] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    measured: dict[str, list[ir.Node]] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def steps(self) -> list[Step]:
        """The nodes between the ends, in order."""
        return [item for item in self.items if isinstance(item, Step)]

    def between(self) -> list[list[ir.Node]]:
        """List for each exit the nodes that lead to it, and to none before it."""
        first: dict[str, int] = {}
        for place, end in enumerate(self.exits):
            first.setdefault(end.name, place)
        nodes: list[list[ir.Node]] = [[] for _ in self.exits]
        for step in reversed(self.steps):
            place = min(first[name] for name in step.outputs if name in first)
            nodes[place].append(step.view.node)
            for name in step.inputs:
                first[name] = min(place, first.get(name, place))
        return [each[::-1] for each in nodes]

    def demand_of(self, step: Step) -> Pairs:
        """Return the demand of the outputs of a step."""
        return next(self.demand[name] for name in step.outputs if name in self.demand)

    def common_origins(self, names: Iterable[str]) -> frozenset[str]:
        """Return the entries that values in blocks are computed from."""
        return frozenset[str]().union(*(self.origins[name] for name in names))


class UnwritableError(ConversionError):
    """Some regions cannot be written.

    Attributes:
        reasons: why not, by the names of the values that they start with.
    """

    def __init__(self, reasons: Mapping[str, Reason]) -> None:
        super().__init__("; ".join(dict.fromkeys(reasons.values())))
        self.reasons = reasons


def find_regions(graph: traversal.GraphLike, view: GraphView, without: Collection[str]) -> Regions:
    """Find the regions of a graph; those that a value in `without` begins are left out.

    Raises:
        UnwritableError: a node outside reads a value in blocks.
    """
    walk = _Forward(view, without)
    places = dict[str, int]()
    for place, message in enumerate(traversal.in_order(graph)):
        places.update(dict.fromkeys(message.output, place))
        node = view.matcher.node_of(graph, message)
        if node is not None:
            walk.visit_node(NodeInfo(node, view))
    regions = walk.regions
    _forget_dead(regions)
    _look_outside(regions, view.matcher)
    _Back(view, regions, places).run()
    return regions


# 1. Forward


class _Forward:
    def __init__(self, view: GraphView, without: Collection[str]) -> None:
        self._view, self._matcher, self._without = view, view.matcher, without
        self._ended: dict[str, Reason] = {}  # why the region of a value has ended
        self._inner: dict[str, Reason] = {}  # the same for one that begins inside another one
        self.regions = Regions()

    def visit_node(self, view: NodeInfo) -> None:
        """Take a node behind those in front of it into a region, or note why its region ends there."""
        regions, subject, names = self.regions, self._matcher.subject(view.node), view.input_names
        if subject is not None and subject.request.call.kind in (SpaceToBatch, BatchToSpace):
            enters = subject.request.call.kind is SpaceToBatch
            (self._enter_region if enters else self._leave_region)(subject, view)
            return
        layouts = tuple(regions.layouts.get(name) for name in names)
        if not any(layouts):
            if reasons := [self._ended[name] for name in names if name in self._ended]:
                self._end(view.node, reasons[0])
            return
        if view.op_type in _SHAPES and self._matcher.is_standard(view.node):
            return
        step = self._add_step(view, layouts)
        if isinstance(step, str):
            in_blocks = [name for name, layout in zip(names, layouts, strict=True) if layout]
            reason = f"{describe(view.node)}: {step}"
            self._decline_regions(regions.common_origins(in_blocks), reason)
            self._end(view.node, reason)
            return
        origins, growth = regions.common_origins(step.inputs), regions.growth[step.inputs[0]]
        if isinstance(step.rewrite, Convolution):
            growth = step.rewrite.growth(growth)
        for name in step.outputs:
            regions.layouts[name], regions.origins[name] = step.rewrite.layout, origins
            regions.growth[name] = growth
        regions.items.append(step)

    def _end(self, node: ir.Node, reason: Reason) -> None:
        self._ended.update((value.name, reason) for value in node.outputs if value.name)

    def _decline_regions(self, origins: Iterable[str], reason: Reason) -> None:
        for name in sorted(origins):
            self._decline_at(self.regions.entries[name].subject, reason)

    def _decline_at(self, subject: MatchedOp, reason: Reason) -> None:
        reasons = self.regions.declined.setdefault(subject.node, [])
        if reason not in reasons:
            reasons.append(reason)

    def _add_step(self, view: NodeInfo, layouts: tuple[Blocked | None, ...]) -> Step | Reason:
        """Return a node that reads values in blocks as it is without them, or why it cannot be."""
        node, message = view.node, self._matcher.message(view.node)
        if not self._matcher.is_standard(node):
            return f"{node.domain}:{node.op_type} is not known to be position-independent"
        if message is not None and any(traversal.subgraphs(message)):
            return "it has subgraphs"
        if view.differing and view.op_type not in _UNARY:
            return f"its {view.differing[0]} has no common value in the calls of its function"
        write = commute_convolution if view.op_type in CONVOLUTIONS else commute_node
        rewrite = write(view, layouts)
        return rewrite if isinstance(rewrite, str) else Step(view, layouts, rewrite)

    # The ends

    def _enter_region(self, subject: MatchedOp, view: NodeInfo) -> None:
        """Begin a region behind a SpaceToBatch, or note why none begins there."""
        node, request, reason = subject.node, subject.request, ""
        name, source = view.output_names[0], view.input_names[0]
        blocks = _blocks_of_axes(subject)
        if name in self._without:
            self._end(node, f"the region that {describe(node)} begins cannot be written")
            return
        if request.checked and are_open(request):
            reason = what = _UNCHECKED
        elif blocks is None or request.shape is None:
            what = "the block" if blocks is None else "the rank of the data"
            what = f"{what} is not known before the model runs"
            reason = what
            if subject.info.place.function is not None:
                reason += ", or differs between the calls of the function"
            if blocks is None:
                reason += "; the dilations of a Conv are attributes"
        if reason or blocks is None or request.shape is None:
            self._decline_at(subject, reason)
            self._end(node, f"{describe(node)}: {what}")
            return
        regions = self.regions
        if source in regions.layouts:
            self._inner[name] = f"{describe(node)} begins another region inside the region"
            self._decline_regions(regions.origins[source], self._inner[name])
        pads = read_amounts(subject, self._view, regions.bounds)
        self._note_end(view, blocks, pads, enters=True)
        data, front = self._front_pad(subject, blocks)
        pads = add_pairs(pads, front)
        kept = [i for i, block in enumerate(blocks) if block > 1 or not is_nothing((pads[i],))]
        kept_blocks, axes = tuple(blocks[i] for i in kept), tuple(i + 1 for i in kept)
        layout = Blocked(axes, kept_blocks, 0, len(request.shape))
        pairs = tuple(pads[i] for i in kept)
        end = End(subject, name, layout, pairs, data)
        regions.entries[name], regions.layouts[name] = end, layout
        regions.growth[name] = tuple(begin + end for begin, end in pairs)
        regions.origins[name] = frozenset({name})

    def _leave_region(self, subject: MatchedOp, view: NodeInfo) -> None:
        """End a region at a BatchToSpace, or note why it does not end there."""
        node, name, regions = subject.node, view.input_names[0], self.regions
        layout = regions.layouts.get(name)
        if layout is None:
            if name in self._ended:
                self._decline_at(subject, self._ended[name])
            return
        reason = self._why_not_leave(subject, layout)
        if reason is not None:
            self._decline_regions(regions.origins[name], f"{describe(node)}: {reason}")
            self._decline_at(subject, reason)
            return
        crops = read_amounts(subject, self._view, regions.bounds)
        axes = range(1, len(crops) + 1)
        more = [a for a in axes if a not in layout.axes and not is_nothing((crops[a - 1],))]
        wide = replace(
            layout, axes=(*layout.axes, *more), blocks=(*layout.blocks, *(1 for _ in more))
        )
        end = End(subject, name, wide, reordered(crops, axes, wide.axes))
        regions.exits.append(end)
        regions.items.append(end)
        for origin in regions.origins[name] & self._inner.keys():
            self._end(node, self._inner[origin])
        self._note_end(view, _blocks_of_axes(subject) or (), crops, enters=False)

    def _why_not_leave(self, subject: MatchedOp, layout: Blocked) -> Reason | None:
        """Say why an operator cannot end the region of a value; None if it can."""
        blocks = _blocks_of_axes(subject)
        if subject.request.call.kind is not BatchToSpace:
            return "it stands inside another region"
        if subject.request.checked and are_open(subject.request, of_batch=False):
            return _UNCHECKED
        if blocks is None:
            return "its block is not known before the model runs"
        if layout.batch != 0:
            return "the batch axis is not the first any more"
        if tuple((i, block) for i, block in enumerate(blocks, 1) if block > 1) != layout.order:
            return f"its blocks {list(blocks)} are not those of the SpaceToBatch in front"
        return None

    def _note_end(
        self, view: NodeInfo, blocks: Sequence[int], pads: Pairs, *, enters: bool
    ) -> None:
        """Note the sizes behind SpaceToBatch or BatchToSpace: shapes may be computed from them."""
        source, count = view.dims(0), math.prod(blocks)
        if source is None or len(source) <= len(blocks):
            return
        quotient = self._view.sizes.quotient
        with suppress(UndecidedError):  # blocks are too large: the sizes stay unknown
            dims = [source[0] * count if enters else quotient(source[0], count), *source[1:]]
            for axis, (block, (begin, end)) in enumerate(zip(blocks, pads, strict=True), 1):
                total = begin.value + end.value
                size = source[axis]
                dims[axis] = quotient(size + total, block) if enters else size * block - total
            self._view.sizes.note(view.output_names[0], dims)

    def _front_pad(
        self, subject: MatchedOp, blocks: Sequence[int]
    ) -> tuple[ir.Value | None, Pairs]:
        """Take in a Pad of zeros in front, as causal layers have it, if it is gone then.

            SpaceToBatch(Pad(x, A), D, pads P) = SpaceToBatch(x, D, pads P + A)

        Only SpaceToBatch, and what reads its shape, may read it.
        """
        data, none = subject.node.inputs[0], nothing(len(blocks))
        pad = None if data is None else data.producer()
        if data is None or pad is None or pad.graph is not subject.node.graph:
            return data, none
        if not self._matcher.is_of_file(pad, "Pad") or self._matcher.is_named(data):
            return data, none
        readers = [reader for reader, _ in self._matcher.readers(data)]
        if not all(self._matcher.subject(n) or _reads_lengths(n, self._matcher) for n in readers):
            return data, none
        view = NodeInfo(pad, self._view)
        dims = view.dims(0)
        amounts = None if dims is None else padding_of(view, len(dims))
        if amounts is None or not pads_with_zeros(view):
            return data, none
        split = {axis for axis, block in enumerate(blocks, 1) if block > 1}
        for axis, pair in enumerate(amounts):
            sizes = [-1 if amount.constant is None else amount.constant for amount in pair]
            if min(sizes) < 0 or (any(sizes) and axis not in split):
                return data, none
        known = amounts[1 : len(blocks) + 1]
        return pad.inputs[0], tuple((Amount(b, b), Amount(e, e)) for b, e in known)


def _blocks_of_axes(subject: MatchedOp) -> tuple[int, ...] | None:
    """Return the block of each axis of an operator; None if it is computed at run time."""
    call = subject.request.call
    return call.block.values if isinstance(call, BlockCall) else None


# 2. What leads to an end


def _forget_dead(regions: Regions) -> None:
    """Keep the steps that lead to an exit, and the entries that lead to them."""
    live, kept = set[str](), list[Step | End]()
    for item in reversed(regions.items):
        if isinstance(item, End):
            live.add(item.name)
        elif live.isdisjoint(item.outputs):
            continue
        else:
            live.update(item.inputs)
        kept.append(item)
    regions.items = kept[::-1]
    regions.entries = {name: end for name, end in regions.entries.items() if name in live}


# 3. Readers outside


def _look_outside(regions: Regions, matcher: Matcher) -> None:
    """Find what nodes outside of regions read of values in blocks.

    Raises:
        UnwritableError: they read the elements of a value inside.
    """
    inside = {step.view.node for step in regions.steps} | {
        end.subject.node for end in regions.exits
    }
    nodes = [entry.subject.node for entry in regions.entries.values()]
    nodes += [step.view.node for step in regions.steps]
    reasons: dict[str, Reason] = {}
    for value in (value for node in nodes for value in node.outputs if value.name):
        name, uses = value.name or "", matcher.readers(value)
        outside = [node for node, _ in uses if node not in inside]
        readers = [node for node in outside if not _reads_lengths(node, matcher)]
        # A BatchToSpace inside may read its crops from a value in blocks.
        readers += [node for node, index in uses if index > 0 and matcher.subject(node)]
        if not readers and not matcher.is_named(value):
            regions.measured[name] = outside
        elif name in regions.entries:
            regions.shared.add(name)
        else:
            reader = describe(readers[0]) if readers else "the model"
            reason = f"{reader} reads {name!r} from outside of the region, in blocks"
            reasons.update(dict.fromkeys(regions.origins[name], reason))
    if reasons:
        raise UnwritableError(reasons)


def _reads_lengths(node: ir.Node, matcher: Matcher) -> bool:
    """Return whether a node reads lengths of axes that are the same in all calls of its function."""
    if matcher.standard_type(node) not in _SHAPES - {"Size"}:
        return False
    return not any(isinstance(v, Conflict) for v in matcher.attributes(node).values())


# 4. Back


class _Back:
    def __init__(self, view: GraphView, regions: Regions, places: Mapping[str, int]) -> None:
        self._view, self._regions, self._places = view, regions, places
        self._inside = {step.view.node for step in regions.steps}

    def run(self) -> None:
        """Compute the demand of each value from that of its readers."""
        regions, demands = self._regions, dict[str, list[Pairs]]()
        for item in reversed(regions.items):
            if isinstance(item, End):
                demands.setdefault(item.name, []).append(self._crops_of(item))
                continue
            outputs = [name for name in item.outputs if name in demands]
            demand = regions.bounds.common_crop(
                [crop for name in outputs for crop in demands[name]]
            )
            needed = demand
            if isinstance(conv := item.rewrite, Convolution):
                lengths = self._view.lengths(outputs[0], conv.layout.axes)
                growth = regions.growth[outputs[0]]
                demand = conv.shelter_crop(demand, growth, lengths, regions.bounds)
                lengths = self._view.lengths(item.inputs[0], conv.layout.axes)
                needed = conv.input_crop(demand, lengths, regions.bounds)
            regions.demand.update(dict.fromkeys(outputs, demand))
            for name in item.inputs:
                demands.setdefault(name, []).append(needed)

    def _crops_of(self, end: End) -> Pairs:
        """Return the crops of an exit along the axes of its value.

        Crops that are computed from a value of the region are unknown inside it: nothing is cropped
        before the end then.
        """
        regions = self._regions
        crops = end.pads[: len(regions.layouts[end.name].axes)]
        first = min(self._places[name] for name in regions.origins[end.name])
        if any(self._depends_on_region(amount, first) for amount in flat(crops)):
            return nothing(len(crops))
        return crops

    def _depends_on_region(self, amount: Amount, first: int) -> bool:
        """Return whether a crop is computed from a node inside, of those from `first` on."""
        keys = [product[0].key for product in amount.elements.terms if product]
        todo, seen = [key.source for key in keys if isinstance(key, Element)], set[ir.Value]()
        while todo:
            value = todo.pop()
            node = value.producer()
            if value in seen or node is None or self._places.get(value.name or "", -1) < first:
                continue
            if node in self._inside:
                return True
            seen.add(value)
            todo.extend(source for source in node.inputs if source is not None)
        return False
