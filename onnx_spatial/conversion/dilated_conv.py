"""Carry out `fusion.dilated_conv` on a model: edit its graphs and report the operators that go.

Operators that stay, because other nodes read their output too or because the region cannot be written,
are left to `replace`, with the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir

from onnx_spatial.conversion import report
from onnx_spatial.conversion.graph_editor import GraphEditor, ModelEditor
from onnx_spatial.fusion.dilated_conv import RegionEdit, Regions, fuse_regions
from onnx_spatial.lowering import MIN_OPSET
from onnx_spatial.model import traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators import BatchToSpace, SpaceToBatch

#: Reported in the place of a strategy, for a region with a convolution and for one without.
DILATED = "dilated convolution"
UNBLOCKED = "unblocked"

#: Convolutions that may become dilated, and the position of the weight among their inputs.
CONVOLUTIONS = {"Conv": 1, "ConvInteger": 1, "ConvTranspose": 1, "QLinearConv": 3}


def fuse_dilated_convs(model: ModelEditor) -> None:
    """Write every region of a model without blocks.

    `model.result` says which operators are gone, and why others are not.
    """
    kinds = {subject.request.call.kind for subject in model.subjects.values()}
    if not {SpaceToBatch, BatchToSpace} <= kinds:
        return
    for editor in model.editors():
        _note_attributes(editor, model)
        if editor.view.opset < MIN_OPSET:
            continue
        regions, edit = fuse_regions(editor.message, editor.view)
        for node, reasons in regions.declined.items():
            subject = model.matcher.subject(node)
            assert subject is not None
            model.result.declined[subject.info.index] = tuple(reasons)
        if edit.drafts:
            _carry_out(regions, edit, editor, model)


def _note_attributes(editor: GraphEditor, model: ModelEditor) -> None:
    """Note the attributes of a function that all of its calls give alike."""
    for message in editor.message.node:
        if any(a.ref_attr_name for a in message.attribute):
            node = model.matcher.node_of(editor.message, message)
            if node is not None:
                model.matcher.note_attributes(node, editor.view.attributes(message))


def _carry_out(regions: Regions, edit: RegionEdit, editor: GraphEditor, model: ModelEditor) -> None:
    """Edit one graph and report its operators."""
    result = model.result
    between = regions.between()
    labels = [tuple(map(traversal.label, nodes)) for nodes in between]
    entries = [entry for entry in regions.entries.values() if entry.name not in regions.shared]
    graph = regions.exits[0].subject.node.graph
    lost = editor.lost[editor.place]
    editor.apply(edit)
    if edit.elements and graph is not None:
        # Nodes that compute a crop may stand behind the convolution that reads it now.
        graph.sort()
    editor.improve_layouts()
    editor.fold_biases()
    counted = {*regions.shared}
    for end, nodes, names in zip(regions.exits, between, labels, strict=True):
        info = end.subject.info
        begun = [name for name in regions.entries if name in regions.origins[end.name] - counted]
        counted.update(begun)
        convolutions = [
            (label, _describe_convolution(new, editor))
            for label, old in zip(names, nodes, strict=True)
            if old.op_type in CONVOLUTIONS
            for new in editor.results(old)[:1]
            if new.op_type == old.op_type
        ]
        name = DILATED if end.name in edit.convolved else UNBLOCKED
        declined = result.declined.get(info.index, ())
        count = sum(len(editor.results(node)) for node in (end.subject.node, *nodes))
        done = report.converted(info, "fuse", name, count, between=names, declined=declined)
        result.operator_at[info.index] = replace(
            done, convolutions=tuple(convolutions), entries=tuple(begun)
        )
        output = [name for name in info.node.output[:1] if name not in lost]
        result.note_outputs(info, output, info.output_shape)
    convolved = regions.common_origins(edit.convolved & regions.origins.keys())
    for entry in entries:
        info = entry.subject.info
        name = DILATED if entry.name in convolved else UNBLOCKED
        declined = result.declined.get(info.index, ())
        result.operator_at[info.index] = report.converted(info, "fuse", name, 0, declined=declined)
    editor.note_values()


def _describe_convolution(node: ir.Node, editor: GraphEditor) -> str:
    """Describe a convolution: "depthwise 3x3, dilation 4, 960 channels"."""
    position = CONVOLUTIONS[node.op_type]
    read = node.inputs[position] if len(node.inputs) > position else None
    weight = () if read is None else _stored_shape(read, editor)
    kernel = node.attributes.get_ints("kernel_shape") or weight[2:]
    dilations = node.attributes.get_ints("dilations", [1])
    dilation = f"dilation {_join_sizes(dilations[:1] if len({*dilations}) == 1 else dilations)}"
    if len(weight) < 2:
        return f"{f'{node.op_type} {_join_sizes(kernel)}'.strip()}, {dilation}"
    group = node.attributes.get_int("group", 1)
    inputs, outputs = weight[1] * group, weight[0]
    if node.op_type == "ConvTranspose":
        inputs, outputs = weight[0], weight[1] * group
    depthwise = group == inputs > 1
    kind = node.op_type
    if depthwise:
        kind = "depthwise" if kind == "Conv" else f"depthwise {kind}"
    groups = f", {group} groups" if group > 1 and not depthwise else ""
    channels = f"{inputs}" if inputs == outputs else f"{inputs} -> {outputs}"
    return f"{kind} {_join_sizes(kernel)}, {dilation}, {channels} channels{groups}"


def _stored_shape(value: ir.Value, editor: GraphEditor) -> tuple[int, ...]:
    """Return the shape of a weight, new or of the model; () if it is not known."""
    if value.const_value is not None:
        return tuple(value.const_value.shape.numpy())
    dims = shape_inference.dims(editor.view.scope.type(value.name or "")) or ()
    sizes = tuple(dim for dim in dims if isinstance(dim, int))
    return sizes if len(sizes) == len(dims) else ()


def _join_sizes(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))
