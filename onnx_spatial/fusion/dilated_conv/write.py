"""Write the nodes of regions on the values themselves, with as few Pads and Slices as possible.

    |--crop--|-------|-crop-|  the image u, whose blocks are a value t = SpaceToBatch(u) of the file
             |-------|         the `Part` of it that is written; the rest is its border

A node gets its inputs cropped alike. Convolutions take the difference between the crops of their input
and of their output into their own pads; the rest is a Pad or a Slice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import onnx_ir as ir

from onnx_spatial.errors import ConversionError
from onnx_spatial.fusion.dilated_conv.amounts import (
    AmountWriter,
    Pairs,
    is_nothing,
    minus,
    nothing,
    reordered,
)
from onnx_spatial.fusion.dilated_conv.nodes import Blocked, Border, Commuted, Convolution, may_pad
from onnx_spatial.fusion.dilated_conv.region import End, Regions, Step, UnwritableError
from onnx_spatial.fusion.layout import Layout, write_change
from onnx_spatial.fusion.views import GraphView, NodeView
from onnx_spatial.lowering import Emitter, emitter
from onnx_spatial.lowering.emitter import Size, Tensor
from onnx_spatial.model.graph.new_nodes import Draft, GraphEdit


@dataclass
class RegionEdit(GraphEdit):
    """The edit that writes the regions of one graph without blocks.

    Attributes:
        convolved: names of the values in blocks that are computed by a convolution, for the report.
        elements: names of the run-time parameters that are read, which must stay and be in front.
    """

    convolved: set[str] = field(default_factory=set)
    elements: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Part:
    """The computed part of a value u.

    Attributes:
        value: the part in the graph.
        crop: what it lacks of u at the ends of each axis of the layout.
        border: the number that u holds there; None if unknown.
        layout: the axes.
        types: possible ONNX element types; empty if unknown.
    """

    value: ir.Value
    crop: Pairs
    border: Border
    layout: Blocked
    types: frozenset[int]


def write_regions(regions: Regions, view: GraphView) -> RegionEdit:
    """Draft the regions of one graph.

    Raises:
        UnwritableError: a value is needed that no operator can compute.
    """
    return _Writer(regions, view).run()


class _Writer:
    def __init__(self, regions: Regions, view: GraphView) -> None:
        self._regions, self._view = regions, view
        self._parts: dict[str, Part] = {}
        self._amounts = AmountWriter(view)
        self._bounds = regions.bounds
        self._adjusted: dict[tuple[object, ...], ir.Value] = {}
        self._edit = RegionEdit()

    def run(self) -> RegionEdit:
        regions, edit = self._regions, self._edit
        for name, end in regions.entries.items():
            assert end.data is not None
            self._note_value(name, end.data, end.pads, 0, end.layout)
            self._write_shape(name)
        for part in regions.parts:
            inputs, outputs = (
                ([part.name], []) if isinstance(part, End) else (part.inputs, part.outputs)
            )
            draft = Draft(part.subject.node if isinstance(part, End) else part.node)
            try:
                if isinstance(part, End):
                    self._write_exit(part, draft)
                elif isinstance(part.rewrite, Convolution):
                    self._write_convolution(part, part.rewrite, draft)
                else:
                    self._write_commuted(part, part.rewrite, draft)
            except ConversionError as error:
                origins = regions.common_origins(inputs)
                raise UnwritableError(dict.fromkeys(origins, str(error))) from None
            edit.drafts.append(draft)
            for name in outputs:
                self._write_shape(name)
        edit.elements = self._amounts.read
        entries = [end for name, end in regions.entries.items() if name not in regions.shared]
        edit.removed = [end.subject.node for end in entries]
        _prune_drafts(edit.drafts)
        return edit

    def _note_value(
        self, name: str, value: ir.Value, crop: Pairs, border: Border, layout: Blocked
    ) -> None:
        """Note what is computed of the value that the original has in blocks under this name."""
        self._parts[name] = Part(value, crop, border, layout, self._view.element_types(name))

    def _write_exit(self, end: End, draft: Draft) -> None:
        part = self._parts[end.name]
        crop = (*part.crop, *nothing(len(end.pads) - len(part.crop)))
        value = self._write_cropped(replace(part, crop=crop, layout=end.layout), end.pads, draft)
        draft.results[end.subject.node.outputs[0]] = value

    # The nodes between

    def _write_commuted(self, step: Step, commuted: Commuted, draft: Draft) -> None:
        inputs = {name: self._parts[name] for name in step.inputs}
        crop, border = self._common_part(
            list(inputs.values()), commuted, self._regions.demand_of(step)
        )
        values = {name: self._write_cropped(part, crop, draft) for name, part in inputs.items()}
        outputs = self._copy_node(step, values, commuted.form, draft)
        for name, output in zip(step.view.output_names, outputs, strict=False):
            if name:
                self._note_value(name, output, crop, border, commuted.layout)
                if self._edit.convolved.intersection(inputs):
                    self._edit.convolved.add(name)

    def _common_part(
        self, inputs: Sequence[Part], rewrite: Commuted, demand: Pairs
    ) -> tuple[Pairs, Border]:
        """Choose the crop for all inputs of an operator, and compute the border of its output."""
        first = inputs[0].crop
        if all(part.crop == first for part in inputs):
            border = rewrite.border([part.border for part in inputs])
            if border is not None or self._bounds.covers(demand, first):
                return first, border
        return demand, None

    def _write_convolution(self, step: Step, conv: Convolution, draft: Draft) -> None:
        (name,) = step.inputs
        part, demand = self._parts[name], self._regions.demand_of(step)
        axes = part.layout.axes
        net = conv.net_pads(part.crop, demand)
        if not may_pad(conv.pad_value, part.border, net, part.crop):
            crop = conv.input_crop(demand, self._view.lengths(name, axes), self._bounds)
            part = replace(
                part, value=self._write_cropped(part, crop, draft), crop=crop, border=None
            )
            net = conv.net_pads(crop, demand)
        # The lengths of new values are unknown.
        own = conv.own_pads(net, self._view.lengths(part.value.name, axes))
        value = self._write_padded(replace(part, border=conv.pad_value), minus(net, own), draft)
        (output,) = self._copy_node(step, {name: value}, None, draft)
        node = output.producer()
        assert node is not None
        node.attributes.pop("auto_pad", None)
        for attribute, changed in conv.attributes(own).items():
            node.attributes[attribute] = ir.AttrInt64s(attribute, changed)
        (result,) = step.outputs
        self._note_value(result, output, demand, None, conv.layout)
        self._edit.convolved.add(result)

    def _copy_node(
        self, step: Step, values: Mapping[str, ir.Value], form: Layout | None, draft: Draft
    ) -> Sequence[ir.Value]:
        """Copy the node for other values, or write the change of layout in its place."""
        inputs = [
            values.get(name, value)
            for name, value in zip(step.view.input_names, step.node.inputs, strict=True)
        ]
        if form is None:
            draft.successor = self._view.matcher.copy(step.node, inputs)
            draft.nodes.append(draft.successor)
            return draft.successor.outputs
        assert inputs[0] is not None
        value = write_change(form, inputs[0], draft, self._view.opset)
        draft.successor = value.producer() if form.steps else None
        return [value]

    # Pads and Slices

    def _write_cropped(self, part: Part, crop: Pairs, draft: Draft) -> ir.Value:
        """Write u with this crop: a Slice, or a Pad where less of it is computed."""
        return self._write_padded(part, minus(part.crop, crop), draft)

    def _write_padded(self, part: Part, amounts: Pairs, draft: Draft) -> ir.Value:
        """Write a part padded by these amounts; negative ones crop."""
        if is_nothing(amounts):
            return part.value
        key = (part.value, part.layout.axes, amounts, part.border)
        if key not in self._adjusted:
            emit, rank = Emitter(self._view.opset), part.layout.rank
            sizes = [emit.length(part.value, axis) for axis in range(rank)]
            x = emit.tensor(part.value, sizes, 4)
            split = [tuple(map(self._bounds.split_amount, pair)) for pair in amounts]
            pads, crops = (tuple((begin[i], end[i]) for begin, end in split) for i in (0, 1))
            x = self._with_slice(emit, self._with_pad(emit, x, part, pads), part.layout, crops)
            emit.prune(x.value)
            draft.nodes += emit.nodes
            draft.constants += emit.constants
            self._adjusted[key] = x.value
        return self._adjusted[key]

    def _with_pad(self, emit: Emitter, x: Tensor, part: Part, pads: Pairs) -> Tensor:
        if is_nothing(pads):
            return x
        # Not for some axes only: onnxruntime moves Transposes across a Pad and forgets its axes.
        pairs = reordered(pads, part.layout.axes, range(part.layout.rank))
        size = partial(self._amounts.size, emit)
        sizes = [(size(begin), size(end)) for begin, end in pairs]
        if part.border is None:
            raise ConversionError("the number beyond its border is not known")
        if not part.border:
            return emitter.pad(emit, x, sizes, part.types)
        dtype = emitter.numpy_dtype(*part.types) if len(part.types) == 1 else None
        if dtype is None or not emitter.has_pad_kernel(part.types, emit.opset):
            raise ConversionError(f"a border of {part.border} cannot be written for its type")
        return emitter.pad(emit, x, sizes, part.types, np.array(part.border, dtype))

    def _with_slice(self, emit: Emitter, x: Tensor, layout: Blocked, crops: Pairs) -> Tensor:
        size = partial(self._amounts.size, emit)
        pairs = {
            a: p for a, p in sorted(zip(layout.axes, crops, strict=True)) if not is_nothing((p,))
        }
        parts = {a: emit.inner_part(x.dims[a], *map(size, pair)) for a, pair in pairs.items()}
        return emit.slice(x, parts)

    # Shapes

    def _write_shape(self, name: str) -> None:
        """Write the shape of a value t in blocks, for the nodes outside that read it, from u.

            Shape(t) = (Shape(u) + crops) * [blocks, 1, 1, 1] / [1, block, block, 1]

        Converted models compute the paddings of a SpaceToBatch inside a region, and the targets of
        Reshapes behind it, from such shapes.
        """
        for node in self._regions.measured.get(name, ()):
            draft, emit = Draft(node), Emitter(self._view.opset)
            view = NodeView(node, self._view)
            rank = self._regions.layouts[name].rank
            axes = range(rank)[view.integer("start", 0) : view.integer("end", rank)]
            lengths = self._view.lengths(name, axes)
            if None in lengths:
                shape = self._blocked_shape(emit, self._parts[name], axes)
            else:
                tensor = ir.Tensor(np.array(lengths, np.int64))
                value = ir.Attr("value", ir.AttributeType.TENSOR, tensor)
                shape = emit.op("Constant", value=value)
            draft.nodes, draft.constants = emit.nodes, emit.constants
            draft.results[node.outputs[0]] = shape
            self._edit.drafts.append(draft)

    def _blocked_shape(self, emit: Emitter, part: Part, axes: Sequence[int]) -> ir.Value:
        layout, sizes = part.layout, list[Size]()
        lacks = reordered(part.crop, layout.axes, axes)
        blocks = dict(zip(layout.axes, layout.blocks, strict=True))
        for axis, (begin, end) in zip(axes, lacks, strict=True):
            size = emit.add(emit.length(part.value, axis), self._amounts.size(emit, begin + end))
            if axis == layout.batch:
                size = emit.mul(size, math.prod(layout.blocks))
            sizes.append(emit.div(size, blocks.get(axis, 1)))
        return emit.vector(sizes, "shape")


def _prune_drafts(drafts: Sequence[Draft]) -> None:
    """Remove new nodes and constants that nothing reads, such as a Pad that is part of a later one."""
    read = {value for draft in drafts for value in draft.results.values()}
    for draft in reversed(drafts):
        for node in reversed(draft.nodes):
            if read.intersection(node.outputs):
                read.update(value for value in node.inputs if value is not None)
    for draft in drafts:
        draft.nodes = [node for node in draft.nodes if read.intersection(node.outputs)]
        draft.constants = [(value, hint) for value, hint in draft.constants if value in read]
