"""Write the nodes of regions on the values themselves, with as few Pads and Slices as possible.

    |--crop--|-------|-crop-|  the image u, whose blocks are a value t = SpaceToBatch(u) of the file
             |-------|         what is `Written` of it; the rest is its border

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
from onnx_spatial.fusion.views import GraphView, NodeInfo
from onnx_spatial.lowering import Emitter, emitter
from onnx_spatial.lowering.emitter import Size, Tensor
from onnx_spatial.lowering.nodes import SINCE
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
class Written:
    """What is written of a value u.

    Attributes:
        value: that part, in the graph.
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
        self._written: dict[str, Written] = {}
        self._amounts = AmountWriter(view)
        self._bounds = regions.bounds
        self._adjusted: dict[tuple[object, ...], ir.Value] = {}
        self._edit = RegionEdit()
        #: Of values whose type differs between the calls of a function.
        self._types = frozenset[int]().union(
            *(end.subject.info.element_types for end in regions.entries.values())
        )

    def run(self) -> RegionEdit:
        """Draft all nodes, in the order of the file."""
        regions, edit = self._regions, self._edit
        for name, end in regions.entries.items():
            assert end.data is not None
            self._note_value(name, end.data, end.pads, 0, end.layout)
            self._write_shape(name)
        for item in regions.items:
            inputs = [item.name] if isinstance(item, End) else item.inputs
            try:
                draft = self._draft_exit(item) if isinstance(item, End) else self._draft_step(item)
            except ConversionError as error:
                origins = regions.common_origins(inputs)
                raise UnwritableError(dict.fromkeys(origins, str(error))) from None
            edit.drafts.append(draft)
            for name in () if isinstance(item, End) else item.outputs:
                self._write_shape(name)
        edit.elements = self._amounts.read
        entries = [end for name, end in regions.entries.items() if name not in regions.shared]
        edit.removed = [end.subject.node for end in entries]
        _prune_drafts(edit.drafts)
        self._check_constants()
        return edit

    def _check_constants(self) -> None:
        """Raise UnwritableError if constants of the drafts cannot stand in an old function."""
        entries, drafts = self._regions.entries, self._edit.drafts
        if all(end.subject.takes_constants for end in entries.values()):
            return
        if any(d.constants or any(n.op_type == "Constant" for n in d.nodes) for d in drafts):
            opset = SINCE["integers in Constant"]
            reason = f"integer constants in a function need opset {opset}"
            raise UnwritableError(dict.fromkeys(entries, reason))

    def _note_value(
        self, name: str, value: ir.Value, crop: Pairs, border: Border, layout: Blocked
    ) -> None:
        """Note what is computed of the value that the original has in blocks under this name."""
        types = self._view.element_types(name) or self._types
        self._written[name] = Written(value, crop, border, layout, types)

    def _draft_exit(self, end: End) -> Draft:
        draft, written = Draft(end.subject.node), self._written[end.name]
        crop = (*written.crop, *nothing(len(end.pads) - len(written.crop)))
        whole = replace(written, crop=crop, layout=end.layout)
        draft.results[end.subject.node.outputs[0]] = self._write_cropped(whole, end.pads, draft)
        return draft

    # The nodes between

    def _draft_step(self, step: Step) -> Draft:
        draft = Draft(step.view.node)
        if isinstance(step.rewrite, Convolution):
            self._write_convolution(step, step.rewrite, draft)
        else:
            self._write_commuted(step, step.rewrite, draft)
        return draft

    def _write_commuted(self, step: Step, commuted: Commuted, draft: Draft) -> None:
        """Write another node on its inputs, all of them cropped alike."""
        inputs = {name: self._written[name] for name in step.inputs}
        demand = self._regions.demand_of(step)
        crop, border = self._common_crop([*inputs.values()], commuted, demand)
        values = {name: self._write_cropped(each, crop, draft) for name, each in inputs.items()}
        outputs = self._copy_node(step, values, commuted.form, draft)
        for name, output in zip(step.view.output_names, outputs, strict=False):
            if name:
                self._note_value(name, output, crop, border, commuted.layout)
                if self._edit.convolved.intersection(inputs):
                    self._edit.convolved.add(name)

    def _common_crop(
        self, inputs: Sequence[Written], rewrite: Commuted, demand: Pairs
    ) -> tuple[Pairs, Border]:
        """Choose the crop for all inputs of an operator, and compute the border of its output."""
        first = inputs[0].crop
        if all(written.crop == first for written in inputs):
            border = rewrite.border([written.border for written in inputs])
            if border is not None or self._bounds.covers(demand, first):
                return first, border
        return demand, None

    def _write_convolution(self, step: Step, conv: Convolution, draft: Draft) -> None:
        """Write a convolution on u, with as much of the padding as it can take itself."""
        (name,) = step.inputs
        data, demand = self._written[name], self._regions.demand_of(step)
        axes = data.layout.axes
        net = conv.net_pads(data.crop, demand)
        if not may_pad(conv.pad_value, data.border, net, data.crop):
            crop = conv.input_crop(demand, self._view.lengths(name, axes), self._bounds)
            value = self._write_cropped(data, crop, draft)
            data = replace(data, value=value, crop=crop, border=None)
            net = conv.net_pads(crop, demand)
        # The lengths of new values are unknown.
        own = conv.own_pads(net, self._view.lengths(data.value.name, axes))
        value = self._write_padded(replace(data, border=conv.pad_value), minus(net, own), draft)
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
            for name, value in zip(step.view.input_names, step.view.node.inputs, strict=True)
        ]
        if form is None:
            draft.successor = self._view.matcher.copy(step.view.node, inputs)
            draft.nodes.append(draft.successor)
            return draft.successor.outputs
        assert inputs[0] is not None
        value = write_change(form, inputs[0], draft, self._view.opset)
        draft.successor = value.producer() if form.steps else None
        return [value]

    # Pads and Slices

    def _write_cropped(self, written: Written, crop: Pairs, draft: Draft) -> ir.Value:
        """Write u with this crop: a Slice, or a Pad where less of it is computed."""
        return self._write_padded(written, minus(written.crop, crop), draft)

    def _write_padded(self, written: Written, amounts: Pairs, draft: Draft) -> ir.Value:
        """Write it padded by these amounts; negative ones crop."""
        if is_nothing(amounts):
            return written.value
        key = (written.value, written.layout.axes, amounts, written.border)
        if key not in self._adjusted:
            emit = Emitter(self._view.opset)
            sizes = [emit.length(written.value, axis) for axis in range(written.layout.rank)]
            x = emit.tensor(written.value, sizes)
            split = [tuple(map(self._bounds.split_amount, pair)) for pair in amounts]
            pads, crops = (tuple((begin[i], end[i]) for begin, end in split) for i in (0, 1))
            x = self._with_pad(emit, x, written, pads)
            x = self._with_slice(emit, x, written.layout, crops)
            emit.prune(x.value)
            draft.nodes += emit.nodes
            draft.constants += emit.constants
            self._adjusted[key] = x.value
        return self._adjusted[key]

    def _with_pad(self, emit: Emitter, x: Tensor, written: Written, pads: Pairs) -> Tensor:
        """Emit a Pad with the number that u holds outside of what is written.

        Raises:
            ConversionError: that number is unknown, or no Pad can write it.
        """
        if is_nothing(pads):
            return x
        # Not for some axes only: onnxruntime moves Transposes across a Pad and forgets its axes.
        pairs = reordered(pads, written.layout.axes, range(written.layout.rank))
        size = partial(self._amounts.size, emit)
        sizes = [(size(begin), size(end)) for begin, end in pairs]
        border, types = written.border, written.types
        if border is None:
            raise ConversionError("the number beyond its border is not known")
        if not border:
            return emitter.pad(emit, x, sizes, types)
        dtype = emitter.numpy_dtype(*types) if len(types) == 1 else None
        if dtype is None or not emitter.has_pad_kernel(types, emit.opset):
            raise ConversionError(f"a border of {border} cannot be written for its type")
        return emitter.pad(emit, x, sizes, types, np.array(border, dtype))

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
            view = NodeInfo(node, self._view)
            rank = self._regions.layouts[name].rank
            axes = range(rank)[view.integer("start", 0) : view.integer("end", rank)]
            lengths = self._view.lengths(name, axes)
            if None in lengths:
                shape = self._blocked_shape(emit, self._written[name], axes)
            else:
                tensor = ir.Tensor(np.array(lengths, np.int64))
                shape = emit.op("Constant", value=ir.AttrTensor("value", tensor))
            draft.nodes, draft.constants = emit.nodes, emit.constants
            draft.results[node.outputs[0]] = shape
            self._edit.drafts.append(draft)

    def _blocked_shape(self, emit: Emitter, u: Written, axes: Sequence[int]) -> ir.Value:
        """Compute these dims of t: u of [1, 30, 30, 8] in blocks 2x2 gives [4, 15, 15, 8]."""
        layout, sizes = u.layout, list[Size]()
        lacks = reordered(u.crop, layout.axes, axes)
        blocks = dict(zip(layout.axes, layout.blocks, strict=True))
        for axis, (begin, end) in zip(axes, lacks, strict=True):
            size = emit.add(emit.length(u.value, axis), self._amounts.size(emit, begin + end))
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
