"""Carry out `fusion.dilated_conv` on a model: edit its graphs and report the operators that go.

Operators that stay, because other nodes read their output too or because the region cannot be written,
are left to `replace`, with the reasons.
"""

from __future__ import annotations

from onnx_spatial.conversion import report
from onnx_spatial.conversion.graph_editor import GraphEditor, ModelEditor
from onnx_spatial.fusion.dilated_conv import RegionEdit, Regions, fuse
from onnx_spatial.lowering import MIN_OPSET
from onnx_spatial.model import traversal
from onnx_spatial.operators import BatchToSpace, SpaceToBatch

#: Reported in the place of a strategy, for a region with a convolution and for one without.
DILATED = "dilated convolution"
UNBLOCKED = "unblocked"


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
        regions, edit = fuse(editor.message, editor.view)
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
            node = model.matcher.node(editor.message, message)
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
    for end, nodes, names in zip(regions.exits, between, labels, strict=True):
        info = end.subject.info
        name = DILATED if end.name in edit.convolved else UNBLOCKED
        declined = result.declined.get(info.index, ())
        count = sum(map(editor.count, (end.subject.node, *nodes)))
        result.operator_at[info.index] = report.converted(
            info, "fuse", name, count, between=names, declined=declined
        )
        output = [name for name in info.node.output[:1] if name not in lost]
        result.note_outputs(info, output, info.output_shape)
    convolved = regions.common_origins(edit.convolved & regions.origins.keys())
    for entry in entries:
        info = entry.subject.info
        name = DILATED if entry.name in convolved else UNBLOCKED
        declined = result.declined.get(info.index, ())
        result.operator_at[info.index] = report.converted(info, "fuse", name, 0, declined=declined)
    editor.note()
