"""Carry out `fusion.dilated_conv` on a model: edit its graphs and report the operators that go.

Operators that stay, because other nodes read their output too or because the region cannot be written,
are left to `replace`, with the reasons.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import onnx
import onnx_ir as ir

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.conversion import report
from onnx_spatial.conversion.report import EditResult
from onnx_spatial.fusion import Matcher, Writer
from onnx_spatial.fusion.dilated_conv import GraphView, RegionEdit, Regions, fuse
from onnx_spatial.fusion.layouts import LayoutEdit, LayoutGraph, improve, with_bias
from onnx_spatial.lowering import MIN_OPSET
from onnx_spatial.model import traversal
from onnx_spatial.model.graph import replace_nodes
from onnx_spatial.model.graph.naming import Names
from onnx_spatial.model.graph.replace_nodes import GraphEdit
from onnx_spatial.model.inference import constant_folding
from onnx_spatial.model.symbolic.symbolic_values import SymbolicValues
from onnx_spatial.model.traversal import Place
from onnx_spatial.operators import BatchToSpace, SpaceToBatch

#: Reported in the place of a strategy, for a region with a convolution and for one without.
DILATED = "dilated convolution"
UNBLOCKED = "unblocked"


def fuse_dilated_convs(
    proto: onnx.ModelProto,
    infos: Sequence[OperatorInfo],
    matcher: Matcher,
    names: Names,
    lower: Writer,
    folder: Path | None,
) -> EditResult:
    """Write every region of a model without blocks; `matcher` is edited, `proto` stays as it is.

    `lower` writes values in blocks that nodes outside of regions read too. The result says which
    operators are gone, and why others are not; it holds no model.
    """
    result = EditResult()
    kinds = {f.call.kind for f in infos if f.call is not None}
    if not {SpaceToBatch, BatchToSpace} <= kinds:
        return result
    scopes = constant_folding.scopes(analysis.inferred(proto, infos, folder))
    graphs = list(traversal.graphs(proto))
    places = {id(graph): place for place, graph in graphs}
    for (place, graph), (scope, _) in zip(graphs, scopes, strict=True):
        view = GraphView(scope, SymbolicValues(scope), scope.opset)
        if view.opset < MIN_OPSET:
            continue
        regions, edit = fuse(graph, view, matcher, lower)
        for node, reasons in regions.declined.items():
            subject = matcher.subject(node)
            assert subject is not None
            result.declined[subject.info.index] = tuple(reasons)
        if edit.drafts:
            initializers = proto.ir_version >= 4 and place.function is None
            editor = _Editor(matcher, names, places, initializers=initializers)
            _carry_out(regions, edit, view, editor, result)
    return result


class _Editor:
    """Editor of one graph that keeps track of what replaced its nodes.

    Attributes:
        lost: names of the values that no node computes any more, by the graph that held the node:
            sizes may be computed in a graph around this one.
        kept: names of the values that new nodes compute.
        fused: nodes that regions have written, and their successors.
    """

    def __init__(
        self, matcher: Matcher, names: Names, places: Mapping[int, Place], *, initializers: bool
    ) -> None:
        self.matcher = matcher
        self._names = names
        self._places = places
        self.initializers = initializers
        self._replacements: dict[ir.Node, list[ir.Node]] = {}
        self.lost: defaultdict[Place, set[str]] = defaultdict(set)
        self.kept: set[str] = set()
        self.fused: set[ir.Node] = set()
        self._moved: set[ir.Node] = set()

    def apply(self, edit: GraphEdit) -> None:
        """Carry out an edit, and remove the nodes that only served the removed ones."""
        kept = {value for draft in edit.drafts for value in draft.results}
        nodes = [*(draft.node for draft in edit.drafts), *edit.removed]
        for node in nodes:
            self._lose(value for value in node.outputs if value not in kept)
        read = [value for node in nodes for value in node.inputs]
        self.kept.update(value.name for value in kept if value.name)
        made = replace_nodes.apply(edit, self._names, initializers=self.initializers)
        for node, new in made.items():
            self.matcher.adopt(new, node)  # Constant nodes, too
        self._replacements |= made
        moved = edit.moved if isinstance(edit, LayoutEdit) else frozenset[ir.Node]()
        for draft in edit.drafts:
            if isinstance(edit, RegionEdit) or draft.node in self.fused:
                self.fused.update(draft.nodes)
            if draft.node in moved or draft.node in self._moved:
                self._moved.update(draft.nodes)
        self._remove_dead(read)

    def fold_biases(self, graph: LayoutGraph) -> None:
        """Fold Adds into the biases of convolutions."""
        for edit in list(with_bias(graph, self.fused | self._moved)):
            self.apply(edit)

    def _lose(self, outputs: Iterable[ir.Value]) -> None:
        for value in outputs:
            graph = self.matcher.graph(value.producer())
            assert graph is not None
            if value.name:
                self.lost[self._places[id(graph)]].add(value.name)

    def _remove_dead(self, values: Iterable[ir.Value | None]) -> None:
        """Remove the nodes that are unused now, from the producers of these values back."""
        matcher = self.matcher
        todo = [value.producer() for value in values if value is not None]
        while todo:
            node = todo.pop()
            if node is None or node.graph is None or matcher.op_type(node) is None:
                continue
            if matcher.subject(node) is not None or any(
                matcher.is_output(value) or matcher.readers(value) for value in node.outputs
            ):
                continue
            self._lose(node.outputs)
            todo += [value.producer() for value in node.inputs if value is not None]
            replace_nodes.remove(node)

    def count(self, node: ir.Node) -> int:
        """Count the nodes that replaced a node of the original."""
        new = self._replacements.get(node, ())
        return sum(1 if n.graph is not None else self.count(n) for n in new)


def _improve_layouts(graph: ir.Graph | ir.Function, view: GraphView, editor: _Editor) -> None:
    """Remove changes of layout next to the new nodes of a graph."""
    matcher, sizes = editor.matcher, dict[ir.Value, int]()
    editor.fold_biases(LayoutGraph(graph, view, matcher))
    while True:
        viewed = LayoutGraph(graph, view, matcher, sizes)
        edit = improve(viewed, editor.fused, initializers=editor.initializers)
        if edit is None:
            break
        editor.apply(edit)
    editor.fold_biases(LayoutGraph(graph, view, matcher))
    if isinstance(graph, ir.Graph):
        for name, value in list(graph.initializers.items()):
            if not matcher.readers(value):  # a constant of a node that was written twice
                del graph.initializers[name]


def _carry_out(
    regions: Regions, edit: RegionEdit, view: GraphView, editor: _Editor, result: EditResult
) -> None:
    """Edit one graph and report its operators."""
    between = regions.between()
    # Operators inside a region are reported on their own.
    labels = [
        tuple(traversal.label(n) for n in nodes if editor.matcher.subject(n) is None)
        for nodes in between
    ]
    entries = [entry for entry in regions.entries.values() if entry.name not in regions.shared]
    graph, place = regions.exits[0].subject.node.graph, regions.exits[0].subject.info.place
    lost = editor.lost[place]
    removed = [(entry.subject, frozenset({entry.name})) for entry in entries]
    for step in regions.steps:
        if (subject := editor.matcher.subject(step.node)) is not None:
            removed.append((subject, regions.origins[step.outputs[0]]))
    editor.apply(edit)
    if edit.elements and graph is not None:
        # Nodes that compute a crop may stand behind the convolution that reads it now.
        graph.sort()
    if graph is not None:
        _improve_layouts(graph, view, editor)
    outputs = set[str]()
    for end, nodes, names in zip(regions.exits, between, labels, strict=True):
        info = end.subject.info
        name = DILATED if end.name in edit.convolved else UNBLOCKED
        declined = result.declined.get(info.index, ())
        count = sum(map(editor.count, (end.subject.node, *nodes)))
        result.site_at[info.index] = report.converted(
            info, "lower", name, count, between=names, declined=declined
        )
        output = [name for name in info.node.output[:1] if name not in lost]
        result.note_outputs(info, output, info.output_shape)
        outputs.update(output)
    convolved = {e for name in edit.convolved for e in regions.origins.get(name, ())}
    for subject, origins in removed:
        info = subject.info
        name = DILATED if origins & convolved else UNBLOCKED
        declined = result.declined.get(info.index, ())
        result.site_at[info.index] = report.converted(info, "lower", name, 0, declined=declined)
    # New nodes compute these values, whose types are what they were.
    for name in sorted(editor.kept - lost - outputs):
        result.types.setdefault(place, {})[name] = onnx.TypeProto()
    for place, values in editor.lost.items():
        result.lost.setdefault(place, set()).update(values)
