"""Carry out `fusion.dilated_conv` on a model: dilated convolutions in the place of blocks.

Sites that go with a region are reported here; those that stay, because others read what they give or
because the region could not be had, are left to `splicing`, with the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import onnx
import onnx_ir as ir

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.conversion import report
from onnx_spatial.conversion.report import EditResult
from onnx_spatial.fusion import Matcher, dilated_conv
from onnx_spatial.fusion.dilated_conv import GraphView, Regions, UnwritableError, Written
from onnx_spatial.fusion.dilated_conv.cleanup import Cleanup
from onnx_spatial.lowering import MIN_OPSET, Lowered, Request
from onnx_spatial.model import traversal
from onnx_spatial.model.graph import replace_nodes
from onnx_spatial.model.graph.naming import Names
from onnx_spatial.model.inference import constant_folding
from onnx_spatial.model.symbolic.symbolic_values import SymbolicValues
from onnx_spatial.operators import BatchToSpace, SpaceToBatch

#: What `inspect` shows in the place of a strategy, with a convolution in the region and without.
DILATED = "dilated convolution"
UNBLOCKED = "unblocked"


def fuse_dilated_convs(
    proto: onnx.ModelProto,
    infos: Sequence[OperatorInfo],
    around: Matcher,
    names: Names,
    lower: Callable[[Request, OperatorInfo], Lowered],
    folder: Path | None,
) -> EditResult:
    """Write every region of a model without blocks; `around` is edited, `proto` stays as it is.

    Args:
        proto: the model.
        infos: its spatial operators.
        around: the graphs of its onnx_ir form.
        names: names in use in the model.
        lower: lowers an operator: for values in blocks that others read too.
        folder: where external data lies.
    """
    done = EditResult()
    kinds = {getattr(f.call, "kind", None) for f in infos}
    if not {SpaceToBatch, BatchToSpace} <= kinds:
        return done
    known = constant_folding.scopes(analysis.inferred(proto, infos, folder))
    for (place, graph), (scope, _) in zip(traversal.graphs(proto), known, strict=True):
        view = GraphView(scope, SymbolicValues(scope), scope.opset)
        if view.opset < MIN_OPSET:
            continue
        found, written = _written(graph, view, around, lower)
        _note_declined(found, around, done)
        if written.drafts:
            initializers = proto.ir_version >= 4 and place.function is None
            editing = _Editing(around, names, initializers=initializers)
            _carry_out(found, written, view, editing, done)
    return done


def _written(
    graph: traversal.GraphLike,
    view: GraphView,
    around: Matcher,
    lower: Callable[[Request, OperatorInfo], Lowered],
) -> tuple[Regions, Written]:
    """The regions of a graph that can be written, and how."""
    doom, without, reasons = True, frozenset[str](), dict[ir.Node, list[str]]()
    while True:
        found = dilated_conv.find(graph, view, around, doom=doom, without=without)
        try:
            written = dilated_conv.write(found, view, lambda r, subject: lower(r, subject.info))
        except UnwritableError as error:
            for name in sorted(error.entries):
                reasons.setdefault(found.entries[name].subject.node, []).append(str(error))
            without |= error.entries
            continue
        if doom and written.elements & {v.name for node in found.doomed for v in node.outputs}:
            doom = False  # a shape that seemed to be of no use is
            continue
        for node, each in reasons.items():
            found.declined[node] = [*each, *found.declined.get(node, ())]
        return found, written


def _note_declined(found: Regions, around: Matcher, done: EditResult) -> None:
    for node, reasons in found.declined.items():
        subject = around.subject(node)
        assert subject is not None
        done.declined[subject.info.index] = tuple(reasons)


class _Editing:
    """Edits of one graph, and what has become of its nodes."""

    def __init__(self, around: Matcher, names: Names, *, initializers: bool) -> None:
        self.around = around
        self._names = names
        self._initializers = initializers
        self._standing: dict[ir.Node, list[ir.Node]] = {}
        self.lost: set[str] = set()
        self.given: set[str] = set()

    def replace(self, drafts: Sequence[replace_nodes.Draft], gone: Sequence[ir.Node]) -> None:
        """Put drafts in the place of nodes, take others away, and what only those had needed."""
        kept = {value for draft in drafts for value in draft.results}
        nodes = [*(draft.node for draft in drafts), *gone]
        values = {value for node in nodes for value in node.outputs} - kept
        read = [value for node in nodes for value in node.inputs]
        for draft in drafts:
            self.around.adopt(draft.nodes, draft.node)
        self.lost.update(value.name for value in values if value.name)
        self.given.update(value.name for value in kept if value.name)
        made = replace_nodes.replace_by_draft(
            drafts, gone, self._names, initializers=self._initializers
        )
        self._standing |= made
        self._drop_dead(read)

    def _drop_dead(self, values: Iterable[ir.Value | None]) -> None:
        """Take away the nodes that nobody needs any more, from these values back."""
        around = self.around
        todo = [value.producer() for value in values if value is not None]
        while todo:
            node = todo.pop()
            if node is None or node.graph is None or around.op_type(node) is None:
                continue
            if around.subject(node) is not None or any(
                around.is_named(value) or around.readers(value) for value in node.outputs
            ):
                continue
            self.lost.update(value.name for value in node.outputs if value.name)
            todo += [value.producer() for value in node.inputs if value is not None]
            replace_nodes.remove(node)

    def new(self) -> list[ir.Node]:
        """The nodes that stand in the place of others."""
        return [
            node for nodes in self._standing.values() for node in nodes if node.graph is not None
        ]

    def standing(self, node: ir.Node) -> int:
        """How many nodes stand in the place of a node of the original."""
        made = self._standing.get(node, ())
        return sum(1 if n.graph is not None else self.standing(n) for n in made)


def _carry_out(
    found: Regions, written: Written, view: GraphView, editing: _Editing, done: EditResult
) -> None:
    """Edit the graph and report what was done."""
    between = found.between()
    labels = [tuple(traversal.label(node) for node in nodes) for nodes in between]
    entries = [entry for entry in found.entries.values() if entry.name not in found.outside]
    graph = found.exits[0].subject.node.graph
    editing.replace(written.drafts, [*(e.subject.node for e in entries), *found.doomed])
    if written.elements and graph is not None:
        # What a crop is computed by may stand behind the convolution that takes it in now.
        graph.sort()
    leftovers = Cleanup(view, editing.around, editing.new())
    for last in leftovers.candidates():
        tidied = leftovers.tidy(last)
        if tidied is not None:
            editing.replace(tidied.drafts, tidied.gone)
    given = set[str]()
    for end, nodes, changed in zip(found.exits, between, labels, strict=True):
        info = end.subject.info
        done.site_at[info.index] = report.converted(
            info,
            "lower",
            DILATED if end.name in written.convolved else UNBLOCKED,
            sum(map(editing.standing, (end.subject.node, *nodes))),
            between=changed,
            declined=done.declined.get(info.index, ()),
        )
        gives = [name for name in info.node.output[:1] if name not in editing.lost]
        done.note_outputs(info, gives, info.output_shape)
        given.update(gives)
    convolved = frozenset[str]().union(
        *(found.origins[name] for name in written.convolved if name in found.origins)
    )
    for entry in entries:
        info = entry.subject.info
        rule = DILATED if entry.name in convolved else UNBLOCKED
        declined = done.declined.get(info.index, ())
        done.site_at[info.index] = report.converted(info, "lower", rule, 0, declined=declined)
    place = found.exits[0].subject.info.place
    # New nodes compute them, but their types are those that were declared.
    for name in sorted(editing.given - editing.lost - given):
        done.types.setdefault(place, {})[name] = onnx.TypeProto()
    done.lost.setdefault(place, set()).update(editing.lost)
