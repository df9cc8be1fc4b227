"""Carry out `fusion.dilated_conv` on a model: edit its graphs and report the operators that go.

Operators that stay, because other nodes read their output too or because the region cannot be written,
are left to `replace`, with the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from onnx_spatial.analysis import Analysis, OperatorInfo
from onnx_spatial.conversion import report
from onnx_spatial.conversion.graph_editor import GraphEditor
from onnx_spatial.conversion.report import EditResult
from onnx_spatial.fusion import Matcher
from onnx_spatial.fusion.dilated_conv import GraphView, RegionEdit, Regions, fuse
from onnx_spatial.lowering import MIN_OPSET
from onnx_spatial.model import traversal
from onnx_spatial.model.graph.naming import Names
from onnx_spatial.operators import BatchToSpace, SpaceToBatch

#: Reported in the place of a strategy, for a region with a convolution and for one without.
DILATED = "dilated convolution"
UNBLOCKED = "unblocked"


def fuse_dilated_convs(
    proto: onnx.ModelProto,
    known: Analysis,
    infos: Sequence[OperatorInfo],
    matcher: Matcher,
    names: Names,
) -> EditResult:
    """Write every region of a model without blocks; `matcher` is edited, `proto` stays as it is.

    The result says which operators are gone, and why others are not; it holds no model.
    """
    result = EditResult()
    kinds = {f.call.kind for f in infos if f.call is not None}
    if not {SpaceToBatch, BatchToSpace} <= kinds:
        return result
    graphs = list(traversal.graphs(proto))
    places = {id(graph): place for place, graph in graphs}
    for (place, graph), facts in zip(graphs, known.facts, strict=True):
        view = GraphView(facts.scope, facts.sizes, facts.scope.opset)
        _note_attributes(graph, view, matcher)
        if view.opset < MIN_OPSET:
            continue
        regions, edit = fuse(graph, view, matcher)
        for node, reasons in regions.declined.items():
            subject = matcher.subject(node)
            assert subject is not None
            result.declined[subject.info.index] = tuple(reasons)
        if edit.drafts:
            initializers = proto.ir_version >= 4 and place.function is None
            editor = GraphEditor(matcher, names, places, initializers=initializers)
            _carry_out(regions, edit, view, editor, result)
    return result


def _note_attributes(graph: traversal.GraphLike, view: GraphView, matcher: Matcher) -> None:
    """Note the attributes of a function that all of its calls give alike."""
    for message in graph.node:
        node = matcher.node(graph, message)
        if node is not None and any(a.ref_attr_name for a in message.attribute):
            matcher.note_attributes(node, view.attributes(message))


def _carry_out(
    regions: Regions, edit: RegionEdit, view: GraphView, editor: GraphEditor, result: EditResult
) -> None:
    """Edit one graph and report its operators."""
    between = regions.between()
    labels = [tuple(map(traversal.label, nodes)) for nodes in between]
    entries = [entry for entry in regions.entries.values() if entry.name not in regions.shared]
    graph, place = regions.exits[0].subject.node.graph, regions.exits[0].subject.info.place
    lost = editor.lost[place]
    editor.apply(edit)
    if edit.elements and graph is not None:
        # Nodes that compute a crop may stand behind the convolution that reads it now.
        graph.sort()
    if graph is not None:
        editor.improve_layouts(graph, view)
        editor.fold_biases(graph, view)
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
    editor.note(place, result)
