"""Mark in their metadata what nodes were written for, and read the marks.

    x -> [ A -> Reshape ] -> y                 a group: becomes x -> A -> y again
    a' -> [Add, mark "s 0,2,-,1"] -> s'        another layout: becomes
                                               a' -> Add -> Squeeze -> Transpose -> s -> ... -> s'

The mark of a layout names the value of the original, and for each axis of the new one the axis that it
was, "-" for an added one of size 1: with the old values between them, the nodes of two models can be
compared one by one. Correctness depends on no mark: without those of a group (an inliner may drop
them) its nodes are not merged, and changing a layout and back changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.new_nodes import ORIGIN
from onnx_spatial.model.graph.remove_unused import remove_where

#: Metadata key on every node of a group: name of the group's output.
RESULT = "onnx_spatial.result"
#: Metadata key on its main node: name of the group's first input.
DATA = "onnx_spatial.data"


def mark_group(nodes: Iterable[ir.Node], main: ir.Node, data: str, result: str) -> None:
    """Mark `nodes` as a group that merges into `main`, with first input `data` and output `result`."""
    for node in nodes:
        node.metadata_props[RESULT] = result
    main.metadata_props[DATA] = data


def merge_groups(model: onnx.ModelProto) -> onnx.ModelProto:
    """Merge every group into its main node, in a copy; return `model` itself if it has no groups."""
    if not any(p.key == DATA for _, _, n in traversal.nodes(model) for p in n.metadata_props):
        return model
    copy = deepcopy(model)
    for _, graph in traversal.graphs(copy):
        _merge_graph(graph)
    return copy


def _metadata_of(node: onnx.NodeProto, key: str) -> str | None:
    return next((p.value for p in node.metadata_props if p.key == key), None)


def _merge_graph(graph: traversal.GraphLike) -> None:
    """Merge the groups of one graph in place, and remove what only their other nodes read."""
    groups: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        if result := _metadata_of(node, RESULT):
            groups.setdefault(result, []).append(node)
    dropped: set[int] = set()
    merged: dict[int, onnx.NodeProto] = {}  # the merged node, by the id of the last of its group
    for result, group in groups.items():
        main_nodes = [n for n in group if _metadata_of(n, DATA)]
        last_nodes = [n for n in group if result in n.output]
        if len(main_nodes) != 1 or len(last_nodes) != 1:
            continue
        main = main_nodes[0]
        of_parameters = _ids_of_ancestors(main.input[1:], group)
        dropped.update(id(n) for n in group if id(n) not in of_parameters)
        merged[id(last_nodes[0])] = _merged_node(main, result)
    if not merged:
        return
    read_before = _read_names(graph.node)
    nodes = [merged.get(id(n), n) for n in graph.node if id(n) in merged or id(n) not in dropped]
    unread = read_before - _read_names(nodes)
    nodes = [
        n for n in nodes if not (_metadata_of(n, ORIGIN) and n.output and n.output[0] in unread)
    ]
    copies = [deepcopy(n) for n in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    if isinstance(graph, onnx.GraphProto):
        unused = unread - {*traversal.value_names((*graph.input, *graph.output))}
        remove_where(graph.initializer, lambda tensor: tensor.name in unused)


def _merged_node(main: onnx.NodeProto, result: str) -> onnx.NodeProto:
    node = deepcopy(main)
    node.input[0] = _metadata_of(main, DATA) or node.input[0]
    node.output[0] = result
    remove_where(node.metadata_props, lambda entry: entry.key in (DATA, RESULT))
    return node


def _ids_of_ancestors(names: Iterable[str], nodes: list[onnx.NodeProto]) -> set[int]:
    """Return the ids of the nodes on which the values `names` depend."""
    producers = {name: node for node in nodes for name in node.output}
    ancestors: set[int] = set()
    pending = list(names)
    while pending:
        node = producers.get(pending.pop())
        if node is not None and id(node) not in ancestors:
            ancestors.add(id(node))
            pending.extend(node.input)
    return ancestors


def _read_names(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Return the names that nodes read, with the graphs inside them."""
    return set().union(*map(traversal.needs, nodes))


#: Metadata key on a node that was written in another layout.
LAYOUT = "onnx_spatial.layout"

#: For each axis the axis that it was, None for an added one.
Axes = Sequence[int | None]


def mark_layout(node: ir.Node, name: str, axes: Axes) -> None:
    """Note which value of the original the output of a node is."""
    places = ",".join("-" if axis is None else str(axis) for axis in axes)
    node.metadata_props[LAYOUT] = f"{name} {places}"


def read_mark(text: str) -> tuple[str, tuple[int | None, ...]] | None:
    """Return the name and the axes of a mark; None if it is damaged."""
    name, _, places = text.rpartition(" ")
    fields = places.split(",")
    if not name or not all(field == "-" or field.isdecimal() for field in fields):
        return None
    axes = tuple(None if field == "-" else int(field) for field in fields)
    kept = sorted(axis for axis in axes if axis is not None)
    return (name, axes) if kept == list(range(len(kept))) else None


def with_original_values(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy that computes the marked values in their old layouts, too; `model` without marks."""
    if not any(_read_mark(node) for _, _, node in traversal.nodes(model)):
        return model
    copy = deepcopy(model)
    opset = op_traits.opset_of(copy.opset_import) or 0
    for _, graph in traversal.graphs(copy):
        names = {n for node in graph.node for n in (*node.input, *node.output)}
        graph_opset = op_traits.opset_of(getattr(graph, "opset_import", ())) or opset
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            nodes.append(node)
            mark = _read_mark(node)
            if mark is None or mark[0] in names:
                continue
            old_value, axes = mark
            names.add(old_value)
            result, moved = node.output[0], f"{old_value}/moved"
            node.output[0] = moved
            nodes += _write_steps(moved, old_value, _steps_to_old(axes), graph_opset)
            nodes += _write_steps(old_value, result, _steps_to_new(axes), graph_opset)
        if len(nodes) > len(graph.node):
            del graph.node[:]
            graph.node.extend(nodes)
    return copy


def _read_mark(node: onnx.NodeProto) -> tuple[str, tuple[int | None, ...]] | None:
    text = _metadata_of(node, LAYOUT)
    return None if text is None or len(node.output) != 1 else read_mark(text)


#: A type of node and its axes or perm.
_Step = tuple[str, list[int]]


def _steps_to_new(axes: Axes) -> list[_Step]:
    kept = [axis for axis in axes if axis is not None]
    added = [place for place, axis in enumerate(axes) if axis is None]
    return [("Transpose", kept), ("Unsqueeze", added)]


def _steps_to_old(axes: Axes) -> list[_Step]:
    (_, kept), (_, added) = _steps_to_new(axes)
    return [("Squeeze", added), ("Transpose", [kept.index(axis) for axis in range(len(kept))])]


def _write_steps(
    source: str, result: str, steps: list[_Step], opset: int
) -> Iterator[onnx.NodeProto]:
    """Yield the nodes from one value to another; the first step may have no axes."""
    steps = [(op_type, axes) for op_type, axes in steps if axes and _changes_layout(op_type, axes)]
    for number, (op_type, axes) in enumerate(steps, start=1):
        output = result if number == len(steps) else f"{source}/{op_type}"
        if op_type == "Transpose":
            yield helper.make_node(op_type, [source], [output], perm=axes)
        elif opset < 13:
            yield helper.make_node(op_type, [source], [output], axes=axes)
        else:
            constant = f"{output}/axes"
            value = numpy_helper.from_array(np.array(axes, np.int64))
            yield helper.make_node("Constant", [], [constant], value=value)
            yield helper.make_node(op_type, [source, constant], [output])
        source = output
    if not steps:
        yield helper.make_node("Identity", [source], [result])


def _changes_layout(op_type: str, axes: list[int]) -> bool:
    return op_type != "Transpose" or axes != sorted(axes)
