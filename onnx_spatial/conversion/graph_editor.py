"""Edit the graphs of a model step by step, and keep track of what replaced its nodes.

    message -> onnx_ir model -> edits of its graphs: regions, operators, layouts -> patch of the message
            -> what the edit left behind goes, and what the model says of itself is true again

Each step reads the graphs as the steps before it left them (`fusion.Matcher`). Changes of layout
(`fusion.push_layouts`) go beside fused operators, or anywhere in a model, if fewer or smaller ones are
left:

    Conv -> Squeeze -> Transpose -> Add -> Transpose -> Unsqueeze -> Conv       (converters of signals)
    Conv (with the Add as its bias) -> Conv
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx
import onnx_ir as ir

from onnx_spatial import analysis
from onnx_spatial.analysis import Analysis, OperatorInfo
from onnx_spatial.conversion.onnxruntime_pads import insert_barriers
from onnx_spatial.conversion.report import EditResult
from onnx_spatial.fusion import MatchedOp, Matcher
from onnx_spatial.fusion.dilated_conv import RegionEdit
from onnx_spatial.fusion.fold_bias import fold_biases
from onnx_spatial.fusion.layout import LayoutGraph
from onnx_spatial.fusion.push_layouts import with_fewer_changes
from onnx_spatial.fusion.views import GraphView
from onnx_spatial.lowering import MIN_OPSET
from onnx_spatial.model import op_traits
from onnx_spatial.model.graph import imports, new_nodes
from onnx_spatial.model.graph.new_nodes import GraphEdit
from onnx_spatial.model.graph.patch_proto import Patch
from onnx_spatial.model.graph.remove_unused import remove_unused_constants
from onnx_spatial.model.inference import value_info
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.model.traversal import GraphLike, Index, Place


def finish(
    result: EditResult,
    original: Index,
    opset: int,
    replaced: Iterable[tuple[Place, str]] = (),
    *,
    folder: Path | None = None,
) -> None:
    """Part Pads from pools, renew declared types and imports, and remove unused constants, in place.

    Args:
        result: of an edit that changed the model.
        original: the model before.
        opset: version of the default domain where it is not imported.
        replaced: places and domains of the nodes that were replaced.
        folder: where external data lies.
    """
    assert result.model is not None
    model = insert_barriers(Index(result.model), original, opset)
    result.model = model.model
    value_info.renew_value_info(model, result.types, result.lost, original, folder)
    remove_unused_constants(original, model)
    imports.adjust_imports(result.model, replaced, opset)


class ModelEditor:
    """Editor of a model, which stays as it is; `finish` returns the edited one.

    Attributes:
        patch: the nodes around the operators in onnx_ir, and their edits.
        nodes: the nodes that may be edited, by position in `traversal.nodes`.
        subjects: the operators that may be rewritten, by `OperatorInfo.index`.
        matcher: its graphs, as the edits so far left them.
        result: what was done so far.
    """

    def __init__(
        self,
        known: Analysis,
        subject: Callable[[OperatorInfo, ir.Node], MatchedOp | None] = lambda info, node: None,
        near: Iterable[int] | None = None,
    ) -> None:
        """Read the graphs of a model.

        Args:
            known: the model, and its spatial operators.
            subject: returns the request for an operator; None for one that stays.
            near: positions of the nodes that are edited, with nodes around them; None for the operators.

        Raises:
            ModelFileError: a graph contradicts itself.
        """
        index = known.model
        self.patch = Patch(index, (info.index for info in known) if near is None else near)
        self.nodes = self.patch.nodes
        self.subjects = {f.index: s for f in known if (s := subject(f, self.nodes[f.index]))}
        self.matcher = Matcher(
            known,
            {
                node: (index.graph(position), index.nodes[position])
                for position, node in self.nodes.items()
            },
            self.subjects.values(),
            self.patch.part.outputs,
        )
        self.result = EditResult()
        self._graphs = index.graphs
        self._places = {id(graph): place for place, graph in self._graphs}

    def editors(self) -> Iterator[GraphEditor]:
        """Yield an editor of each graph, in the order of `traversal.graphs`."""
        for place, graph in self._graphs:
            yield GraphEditor(self, place, graph)

    def place(self, node: ir.Node | None) -> Place:
        """Return the place of the graph that holds a node."""
        return self._places[id(self.matcher.graph(node))]

    def finish(self) -> EditResult:
        """Return what was done, with the edited model, which has the old imports and declared types.

        Raises:
            ModelFileError: a graph cannot be written.
        """
        self.result.model = self.patch.apply()
        return self.result


class GraphEditor:
    """Editor of one graph that keeps track of what replaced its nodes.

    Attributes:
        place, message: the graph.
        lost: names of the values that no node computes any more, by the graph that held the node:
            sizes may be computed in a graph around this one.
        kept: names of the values that new nodes compute.
        fused: nodes that regions have written, and their successors.
    """

    def __init__(self, model: ModelEditor, place: Place, message: GraphLike) -> None:
        self._model = model
        self.place = place
        self.message = message
        self._replacements: dict[ir.Node, list[ir.Node]] = {}
        self.lost: defaultdict[Place, set[str]] = defaultdict(set)
        self.kept: set[str] = set()
        self.fused: set[ir.Node] = set()
        self._moved: set[ir.Node] = set()

    @property
    def view(self) -> GraphView:
        """What is known of the values of the graph."""
        return self._model.matcher.view(self.message)

    def apply(self, edit: GraphEdit) -> None:
        """Carry out an edit, and remove the nodes that only served the removed ones."""
        matcher = self._model.matcher
        kept = {value for draft in edit.drafts for value in draft.results}
        old_nodes = [*(draft.node for draft in edit.drafts), *edit.removed]
        for node in old_nodes:
            self._note_lost(value for value in node.outputs if value not in kept)
        results = {old: new for draft in edit.drafts for old, new in draft.results.items()}
        read = [results.get(v, v) for node in old_nodes for v in node.inputs if v is not None]
        self.kept.update(value.name for value in kept if value.name)
        replacements = self._model.patch.edit(edit, self.place)
        for node, new in replacements.items():
            matcher.adopt_nodes(new, node)  # Constant nodes, too
        self._replacements |= replacements
        for draft in edit.drafts:
            if isinstance(edit, RegionEdit) or draft.node in self.fused:
                self.fused.update(draft.nodes)
            if draft.node in self._moved:
                self._moved.update(draft.nodes)
        self._remove_dead(read)

    def improve_layouts(self) -> bool:
        """Remove changes of layout next to the fused nodes, and return whether there were any."""
        layouts = self._read_layouts()
        if layouts is None:
            return False
        initializers = self._model.patch.model.may_store(self.place)
        edit = with_fewer_changes(layouts, self.fused, initializers=initializers)
        if edit is None:
            return False
        self._moved.update(edit.moved)
        self.apply(edit)
        return True

    def fold_biases(self) -> None:
        """Fold Adds into the biases of convolutions next to the fused nodes and those that moved."""
        layouts = self._read_layouts()
        if layouts is not None:
            for edit in list(fold_biases(layouts, self.fused | self._moved)):
                self.apply(edit)

    def _read_layouts(self) -> LayoutGraph | None:
        """Return the layouts of the graph; None without fused nodes, or where it is in no order."""
        layouts = None if self._ir_graph is None else LayoutGraph(self._ir_graph, self.view)
        return layouts if layouts is not None and layouts.is_sorted else None

    @property
    def _ir_graph(self) -> ir.Graph | ir.Function | None:
        """The graph in the onnx_ir model, known by its fused nodes."""
        return next((node.graph for node in self.fused if node.graph is not None), None)

    def _note_lost(self, outputs: Iterable[ir.Value]) -> None:
        for value in outputs:
            if value.name:
                self.lost[self._model.place(value.producer())].add(value.name)

    def _remove_dead(self, values: Iterable[ir.Value | None]) -> None:
        """Remove the nodes that are unused now, from the producers of these values back."""
        matcher = self._model.matcher
        todo = [value.producer() for value in values if value is not None]
        while todo:
            node = todo.pop()
            if node is None or node.graph is None or matcher.graph(node) is None:
                continue
            if matcher.subject(node) is not None or any(
                matcher.is_output(value) or matcher.readers(value) for value in node.outputs
            ):
                continue
            self._note_lost(node.outputs)
            todo += [value.producer() for value in node.inputs if value is not None]
            new_nodes.remove_nodes(node)

    def results(self, node: ir.Node) -> list[ir.Node]:
        """Return the nodes that replaced a node of the original, those of its own type first."""
        new = self._replacements.get(node, ())
        nodes = [m for n in new for m in ([n] if n.graph is not None else self.results(n))]
        return sorted(nodes, key=lambda each: each.op_type != node.op_type)

    def note_values(self) -> None:
        """Note the values of the graph that new nodes compute, and those that are gone."""
        result = self._model.result
        for place, names in self.lost.items():
            result.lost.setdefault(place, set()).update(names)
            for name in names:
                result.types.get(place, {}).pop(name, None)
        types = result.types.setdefault(self.place, {})
        for name in sorted(self.kept - self.lost[self.place]):
            types.setdefault(name, onnx.TypeProto())  # their types are what they were


_CHANGES = ("Squeeze", "Transpose", "Unsqueeze")
_WINDOWS = op_traits.having(Trait.WINDOWS)


def improve_layouts(model: ModelEditor, fused: Mapping[int, Sequence[ir.Node]]) -> None:
    """Remove changes of layout next to nodes in the place of operators, by `OperatorInfo.index`."""
    if not fused:
        return
    for editor in model.editors():
        here = {i: nodes for i, nodes in fused.items() if model.place(nodes[0]) == editor.place}
        if not here:
            continue
        editor.fused.update(node for nodes in here.values() for node in nodes)
        editor.improve_layouts()
        editor.fold_biases()
        for index, nodes in here.items():
            count = sum(1 if n.graph is not None else len(editor.results(n)) for n in nodes)
            operators = model.result.operator_at
            operators[index] = replace(operators[index], nodes_after=count)
        editor.note_values()


def remove_layout_changes(
    proto: onnx.ModelProto, folder: Path | None = None
) -> onnx.ModelProto | None:
    """Remove changes of layout between convolutions and pools; `proto` stays as it is.

    Args:
        proto: the model.
        folder: where external data lies.

    Returns:
        The edited model; None if nothing changed.
    """
    index = Index(proto)
    windows = index.having(*_WINDOWS)
    changes_in = Counter(map(index.place, index.having(*_CHANGES)))
    places = {place for place in map(index.place, windows) if changes_in[place] > 1}
    if not places:
        return None
    model = ModelEditor(analysis.find(index, (), folder), near=windows)
    edited = False
    for editor in model.editors():
        if editor.place not in places or editor.view.opset < MIN_OPSET:
            continue
        editor.fused.update(model.nodes[p] for p in windows if index.place(p) == editor.place)
        if editor.improve_layouts():
            editor.fold_biases()
            editor.note_values()
            edited = True
    if not edited:
        return None
    result = model.finish()
    finish(result, index, op_traits.opset_of(proto.opset_import) or 1, folder=folder)
    return result.model


def number_of_changes(model: onnx.ModelProto) -> int:
    """Count the nodes that only change the layout of a value."""
    return len(Index(model).having(*_CHANGES))
