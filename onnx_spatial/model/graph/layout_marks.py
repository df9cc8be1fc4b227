"""Mark nodes that were written in another layout, and give their outputs back in the old one.

    a' -> [Add, mark "s 0,2,-,1"] -> s'        becomes
    a' -> Add -> Squeeze -> Transpose -> s -> Transpose -> Unsqueeze -> s'

The mark names the value of the original, and for each axis of the new one the axis that it was, "-" for
an added one of size 1. With the old values between them, the nodes of two models can be compared one by
one. Correctness does not depend on a mark: changing a layout and back changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from onnx_spatial.model import op_traits, traversal

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
    names = {n for _, _, node in traversal.nodes(copy) for n in (*node.input, *node.output)}
    for _, graph in traversal.graphs(copy):
        own = op_traits.opset_of(getattr(graph, "opset_import", ())) or opset
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            nodes.append(node)
            known = _read_mark(node)
            if known is None or known[0] in names:
                continue
            names.add(known[0])
            result, node.output[0] = node.output[0], f"{known[0]}/moved"
            nodes += _write_steps(node.output[0], known[0], _steps_to_old(known[1]), own)
            nodes += _write_steps(known[0], result, _steps_to_new(known[1]), own)
        if len(nodes) > len(graph.node):
            del graph.node[:]
            graph.node.extend(nodes)
    return copy


def _read_mark(node: onnx.NodeProto) -> tuple[str, tuple[int | None, ...]] | None:
    text = next((p.value for p in node.metadata_props if p.key == LAYOUT), None)
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
