"""Walk forward from each SpaceToBatch and compute the layout of every value behind it.

The walk ends at a BatchToSpace, which takes the blocks out again, and with a reason at a node that
cannot be written without them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import onnx
import onnx_ir as ir

from onnx_spatial.fusion.dilated_conv import front_pad, nested, region, rules, rules_axes
from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.graph_view import GraphView, NodeView
from onnx_spatial.fusion.dilated_conv.pad_amounts import (
    NOTHING,
    PadAmount,
    PadPairs,
    combined,
    reordered,
    same,
)
from onnx_spatial.fusion.dilated_conv.region import RegionEnd, RegionNode, Regions
from onnx_spatial.fusion.dilated_conv.rule import RuleResult
from onnx_spatial.fusion.matcher import MatchedOp, Matcher
from onnx_spatial.fusion.rule import Reason
from onnx_spatial.lowering import are_open
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.model.symbolic.symbolic_values import Polynomial
from onnx_spatial.operators import BatchToSpace, SpaceToBatch

#: Why an operator is no end of a region with `Request.checked`.
_UNCHECKED = "its sizes are checked at run time, which needs the operator"

#: Operators that read only the shape of a value.
SHAPES = op_traits.having(Trait.SIZES)
#: Operators on single elements: no attribute of theirs matters.
_UNARY = op_traits.having(Trait.UNARY)
#: Most nodes behind one with alternatives that are tried to choose among these.
_AHEAD = 32


def follow(
    graph: traversal.GraphLike,
    view: GraphView,
    matcher: Matcher,
    without: Collection[str],
    apart: Collection[str],
    padded: Collection[str],
) -> Regions:
    """Walk through one graph, from every SpaceToBatch whose output is not in `without`.

    One whose output is in `apart` is part of no region around it; one whose output is in `padded` takes
    in no Pad in front of it.
    """
    walker = _Walk(graph, view, matcher, without, apart, padded)
    for place, message in enumerate(traversal.in_order(graph)):
        walker.result.places.update(dict.fromkeys(message.output, place))
        walker.visit(message)
    return walker.result


class _Walk:
    def __init__(
        self,
        graph: traversal.GraphLike,
        view: GraphView,
        matcher: Matcher,
        without: Collection[str],
        apart: Collection[str],
        padded: Collection[str],
    ) -> None:
        self._graph, self._view, self._matcher = graph, view, matcher
        self._without, self._apart, self._padded = without, apart, padded
        self._reasons: dict[str, Reason] = {}  # why the region of a value has ended
        self.result = Regions()

    def visit(self, message: onnx.NodeProto) -> None:
        node = self._matcher.node(self._graph, message)
        if node is None:
            return
        subject = self._matcher.subject(node)
        kind = None if subject is None else subject.request.call.kind
        if subject is not None and kind in (SpaceToBatch, BatchToSpace):
            if nested_step := self._nested(subject, message):
                self._note_step(nested_step)
                return
            enter_or_leave = self._enter if kind is SpaceToBatch else self._leave
            enter_or_leave(subject, message)
            return
        layouts = tuple(self.result.layouts.get(name) for name in message.input)
        if not any(layouts):
            if reasons := [self._reasons[n] for n in message.input if n in self._reasons]:
                self._end(message, reasons[0])
            return
        if message.op_type in SHAPES:
            return
        step = self._step(node, message, layouts)
        if isinstance(step, str):
            blocked = [n for n, s in zip(message.input, layouts, strict=True) if s is not None]
            origins = self._origins(blocked)
            reason = f"{_label(message)}: {step}"
            self._decline(origins, reason)
            self._end(message, reason)
            return
        if isinstance(step.rewrite, RuleResult) and step.rewrite.others:
            step = self._settled(step, step.rewrite)
        self._note_step(step)

    def _note_step(self, step: RegionNode) -> None:
        origins = self._origins(step.names)
        for name, layout in zip(step.outputs, step.output_layouts, strict=False):
            if name:
                self.result.layouts[name], self.result.origins[name] = layout, origins
                self.result.step_of[name] = step
                if isinstance(step.rewrite, RuleResult):
                    self._note_sizes(step, name, layout)
                    self._note_border(step, step.rewrite, name)

    def _origins(self, names: Sequence[str]) -> frozenset[str]:
        return frozenset[str]().union(*(self.result.origins[name] for name in names))

    def _nested(self, subject: MatchedOp, message: onnx.NodeProto) -> RegionNode | None:
        """Write an operator inside a region; None if it begins or ends one."""
        name, output = message.input[0], message.output[0]
        layout, known = self.result.layouts.get(name), region.blocks(subject)
        if layout is None or known is None or output in self._apart or subject.request.checked:
            return None
        enters = subject.request.call.kind is SpaceToBatch
        if not enters and region.refusal(subject, layout) is None:
            return None
        pads, sources = region.amounts(subject, message, self._view)
        if self._read_region(sources.values()):
            if enters:
                reason = f"{_label(message)}: its paddings are computed from elements of the region"
                self._decline(self.result.origins[name], reason)
            return None
        write = nested.entered if enters else nested.left
        rewrite = write(layout, known, pads, sources)
        if rewrite is None:
            return None
        if enters:
            region.note_blocked(self._view, message, known, pads)
            self.result.nested.add(output)
            border = self.result.borders.get(name)
            if border is not None and border[1] == 0:
                self.result.borders[output] = (rewrite.output_crop(border[0]), 0)
        else:
            region.note_unblocked(self._view, message, known, pads)
        layouts = (rewrite.before, *(None for _ in message.input[1:]))
        return RegionNode(subject.node, NodeView(message, self._view), layouts, rewrite)

    def _read_region(self, values: Iterable[ir.Value]) -> bool:
        """Return whether values are computed from the elements of values in blocks."""
        todo, seen = list(values), set[ir.Value]()
        while todo:
            value = todo.pop()
            if value in seen:
                continue
            if value.name in self.result.layouts:
                return True
            seen.add(value)
            node = value.producer()
            if node is not None and self._matcher.op_type(node) not in SHAPES:
                todo += [source for source in node.inputs if source]
        return False

    def _end(self, message: onnx.NodeProto, reason: Reason) -> None:
        self._reasons.update((name, reason) for name in message.output if name)

    def _settled(self, step: RegionNode, result: RuleResult) -> RegionNode:
        """Choose among the alternatives of a step the one that the fewest nodes behind it decline."""
        name = step.outputs[0]
        # The nodes behind ask for the sizes, which are the same for all alternatives.
        self._note_sizes(step, name, result.layouts[0])
        ways = [replace(step, rewrite=way) for way in (result, *result.others)]
        return min(ways, key=self._refusals)

    def _refusals(self, step: RegionNode) -> int:
        """Count the nodes behind a step that decline, up to the ends.

        Nodes with inputs that the walk has not reached are left out.
        """
        layouts = {step.outputs[0]: step.output_layouts[0]}
        skipped = SHAPES | rules_axes.SHAPED
        todo, seen, refusals = [step.node], set[ir.Node](), 0
        while todo and len(seen) < _AHEAD:
            readers = [use for value in todo.pop().outputs for use in self._matcher.readers(value)]
            for reader, _ in readers:
                message = self._matcher.message(reader)
                if reader in seen or message is None or message.op_type in skipped:
                    continue
                inputs = tuple(layouts.get(n) or self.result.layouts.get(n) for n in message.input)
                subject = self._matcher.subject(reader)
                if subject is None and not self._is_reached(message, inputs):
                    continue
                seen.add(reader)
                if subject is not None:
                    layout = self._in_blocks(subject, inputs[0])
                    if layout is None:
                        refusals += 1
                    elif layout.order:
                        layouts[message.output[0]] = layout
                        todo.append(reader)
                    continue
                behind = self._step(reader, message, inputs)
                if isinstance(behind, str):
                    refusals += 1
                else:
                    layouts.update(zip(message.output, behind.output_layouts, strict=False))
                    todo.append(reader)
        return refusals

    def _in_blocks(self, subject: MatchedOp, layout: BlockedLayout | None) -> BlockedLayout | None:
        """Return the layout of the output of a spatial operator inside a region or at its end.

        Paddings and crops do not change it. Behind the end there are no blocks. None if the operator is
        neither inside nor at the end.
        """
        known = region.blocks(subject)
        if layout is None or known is None:
            return None
        nothing = [(NOTHING, NOTHING)] * len(known)
        if subject.request.call.kind is SpaceToBatch:
            inside = nested.entered(layout, known, nothing, {})
        elif region.refusal(subject, layout) is None:
            return replace(layout, blocks=(), axes=(), nesting=())
        else:
            inside = nested.left(layout, known, nothing, {})
        return None if inside is None else inside.layout

    def _is_reached(self, message: onnx.NodeProto, layouts: Sequence[BlockedLayout | None]) -> bool:
        """Return whether the walk has reached every input of a node, Constants ignored."""
        todo = [n for n, s in zip(message.input, layouts, strict=True) if s is None]
        nodes = [
            self._matcher.producer(self._graph, n) for n in todo if n not in self.result.places
        ]
        return all(node is None or node.op_type == "Constant" for node in nodes)

    def _note_border(self, step: RegionNode, result: RuleResult, name: str) -> None:
        """Note that a value still has the border of SpaceToBatch."""
        borders = [self._border(name, layout) for name, layout in step.inputs]
        first = borders[0]
        if first is None or any(b is None or not same(b[0], first[0]) for b in borders):
            return
        border = result.border([b[1] for b in borders if b is not None])
        if border is not None:
            self.result.borders[name] = (first[0], border)

    def _border(self, name: str, layout: BlockedLayout) -> tuple[PadPairs, float] | None:
        """Return the border of a value along the axes of a layout."""
        border = self.result.borders.get(name)
        if border is None:
            return None
        return reordered(border[0], self.result.layouts[name].axes, layout.axes), border[1]

    def _note_sizes(self, step: RegionNode, name: str, layout: BlockedLayout) -> None:
        """Note that a node that treats all places alike keeps the sizes of batch and blocked axes."""
        if isinstance(step.rewrite, RuleResult) and step.rewrite.dims:
            self._view.sizes.note(name, step.rewrite.dims)
            return
        if layout.rows:
            return
        index, before = next((i, s) for i, s in enumerate(step.layouts) if s is not None)
        sizes = self._view.sizes
        source, known = sizes.dims(step.view.message.input[index]), sizes.dims(name)
        if source is None:
            return
        dims = [Polynomial.atom((name, axis), nonnegative=True) for axis in range(layout.rank)]
        if known is not None and len(known) == layout.rank:
            dims = list(known)
        for old, new in zip(before.taken, layout.taken, strict=True):
            dims[new] = source[old]
        sizes.note(name, dims)

    def _step(
        self, node: ir.Node, message: onnx.NodeProto, layouts: tuple[BlockedLayout | None, ...]
    ) -> RegionNode | Reason:
        if not op_traits.is_standard(message) or self._matcher.is_local(message):
            return f"{message.domain}:{message.op_type} is not known to be position-independent"
        if any(traversal.subgraphs(message)):
            return "it has subgraphs"
        view = NodeView(message, self._view)
        if view.differing and message.op_type not in _UNARY:
            return f"its {view.differing[0]} has no common value in the calls of its function"
        # Axes that are only padded may be padded before the node, and are free for it then.
        unsplit = sorted({axis for layout in layouts if layout for axis in layout.unsplit})
        reason = ""
        for axes in ([], *([axis] for axis in unsplit), unsplit):
            free = tuple(layout and layout.with_free(axes) for layout in layouts)
            rewrite = rules.apply(view, free)
            if not isinstance(rewrite, str):
                return RegionNode(node, view, free, rewrite)
            reason = rewrite
        return reason

    def _enter(self, subject: MatchedOp, message: onnx.NodeProto) -> None:
        name = message.output[0]
        if name in self._without:
            self._reasons[name] = f"the region that {_label(message)} begins cannot be written"
            return
        request = subject.request
        if request.checked and are_open(request):
            self._decline_at(subject, _UNCHECKED)
            self._reasons[name] = f"{_label(message)}: {_UNCHECKED}"
            return
        blocks = region.blocks(subject)
        shape = subject.request.shape
        if blocks is None or shape is None:
            what = "the block" if blocks is None else "the rank of the data"
            reason = f"{what} is not known before the model runs"
            if subject.info.place.function is not None:
                reason += ", or differs between the calls of the function"
            if blocks is None:
                reason += "; the dilations of a Conv are attributes"
            self._decline_at(subject, reason)
            self._reasons[name] = f"{_label(message)}: {what} is not known"
            return
        pads, sources = region.amounts(subject, message, self._view)
        region.note_blocked(self._view, message, blocks, pads)
        front = None
        if name not in self._padded:
            front = front_pad.find(subject.node, blocks, self._view, self._matcher)
        if front is not None:
            pads = combined(PadAmount.__add__, pads, front.amounts)
        kept = [i for i, b in enumerate(blocks) if b > 1 or any(a.constant != 0 for a in pads[i])]
        kept_blocks, axes = tuple(blocks[i] for i in kept), tuple(i + 1 for i in kept)
        layout = BlockedLayout(kept_blocks, axes, 0, len(shape), subject.info.element_types)
        end = RegionEnd(subject, name, layout, tuple(pads[i] for i in kept), sources, front)
        self.result.entries[name] = end
        self.result.layouts[name], self.result.origins[name] = layout, frozenset({name})
        self.result.borders[name] = (end.pads, 0)

    def _leave(self, subject: MatchedOp, message: onnx.NodeProto) -> None:
        name = message.input[0]
        layout = self.result.layouts.get(name)
        if layout is None:
            if name in self._reasons:
                self._decline_at(subject, self._reasons[name])
            return
        end = self._exit(subject, message, layout)
        if isinstance(end, str):
            self._decline(self.result.origins[name], f"{_label(message)}: {end}")
            self._decline_at(subject, end)
            return
        self.result.exits.append(end)
        blocks = region.blocks(subject)
        assert blocks is not None
        crops = reordered(end.pads, end.layout.axes, range(1, len(blocks) + 1))
        region.note_unblocked(self._view, message, blocks, crops)

    def _exit(
        self, subject: MatchedOp, message: onnx.NodeProto, layout: BlockedLayout
    ) -> RegionEnd | Reason:
        if subject.request.checked and are_open(subject.request, of_batch=False):
            return _UNCHECKED
        if reason := region.refusal(subject, layout):
            return reason
        pads, sources = region.amounts(subject, message, self._view)
        pairs = {i + 1: pair for i, pair in enumerate(pads)}
        others = tuple(
            axis
            for axis, pair in pairs.items()
            if axis not in layout.axes and any(amount.constant != 0 for amount in pair)
        )
        layout = layout.with_unsplit(others)
        crops = tuple(pairs.get(axis, (NOTHING, NOTHING)) for axis in layout.axes)
        return RegionEnd(subject, message.input[0], layout, crops, sources)

    def _decline(self, origins: frozenset[str], reason: str) -> None:
        for name in sorted(origins):
            self._decline_at(self.result.entries[name].subject, reason)

    def _decline_at(self, subject: MatchedOp, reason: str) -> None:
        reasons = self.result.declined.setdefault(subject.node, [])
        if reason not in reasons:
            reasons.append(reason)


def _label(message: onnx.NodeProto) -> str:
    return f"{message.op_type} {traversal.label(message)!r}"
