"""Fold an Add of a constant for each channel into the Conv in front, across changes of layout.

Add(T(Conv(x, w)), b) = T(Conv(x, w, b))        T: Transpose, Squeeze, Unsqueeze, or nothing
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import onnx_ir as ir

from onnx_spatial.fusion.layout import SOURCE, Forms, Layout, LayoutGraph
from onnx_spatial.maps.elements import Array
from onnx_spatial.model import op_traits
from onnx_spatial.model.graph.new_nodes import Draft, GraphEdit


def fold_biases(graph: LayoutGraph, fused: Collection[ir.Node]) -> Iterator[GraphEdit]:
    """Yield edits that fold an Add into a Conv, one of which fusion has written.

    The edits do not depend on each other.
    """
    for conv in graph.order:
        if conv.op_type != "Conv" or not op_traits.is_standard(conv):
            continue
        if any(value is not None for value in conv.inputs[2:]):
            continue
        forms = graph.forms(conv.outputs[0])
        add = _only_reader(graph, forms)
        if add is not None and (conv in fused or add in fused):
            edit = _fold_bias(graph, conv, forms, add)
            if edit is not None:
                yield edit


def _only_reader(graph: LayoutGraph, forms: Forms) -> ir.Node | None:
    """Return the Add behind a value and its changes of layout, if each has one reader and no name."""
    for value, node in zip(forms.layouts, (*forms.nodes, None), strict=True):
        readers = graph.matcher.readers(value)
        if graph.matcher.is_named(value) or len(readers) != 1:
            return None
        reader = readers[0][0]
        if node is None:
            is_add = reader.op_type == "Add" and op_traits.is_standard(reader)
            return reader if is_add and reader in graph.order else None
        if reader is not node:
            return None
    return None


def _fold_bias(graph: LayoutGraph, conv: ir.Node, forms: Forms, add: ir.Node) -> GraphEdit | None:
    """Write the Conv with a bias, and the changes of layout behind it; None if Add adds no bias."""
    output = list(forms.layouts)[-1]
    addend = add.inputs[1 - list(add.inputs).index(output)]
    kernel = conv.inputs[1]
    dims = None if kernel is None else graph.view.dims(kernel.name)
    channels = dims[0].constant if dims else None
    added = graph.view.known(addend)
    if graph.opset < 7 or addend is None or channels is None or added is None:
        return None
    bias = _bias_elements(added, forms.layouts[output], channels)
    if bias is None:
        return None
    draft = Draft(conv)
    stored = addend.meta.get(SOURCE, addend)
    elements = graph.view.known(stored)
    # A Constant node may stand behind the convolution.
    is_bias = stored.producer() is None and elements is not None and elements.shape == bias.shape
    operand = stored if is_bias else draft.constant(bias, "bias")
    copy = graph.matcher.copy(conv, [conv.inputs[0], kernel, operand])
    draft.nodes, draft.successor = [copy], copy
    drafts, result = [draft], copy.outputs[0]
    for node in forms.nodes:
        draft = Draft(node)
        copy = graph.matcher.copy(node, [result, *node.inputs[1:]])
        draft.nodes, draft.successor, result = [copy], copy, copy.outputs[0]
        drafts.append(draft)
    drafts[-1].results[add.outputs[0]] = result
    return GraphEdit(drafts, [add])


def _bias_elements(addend: Array, change: Layout, channels: int) -> Array | None:
    """Return the elements of a constant that is the same for all elements of a channel.

    `change` is that from the output of the Conv to what the constant is added to.
    """
    rank = len(change.axes)
    if addend.dtype == object or addend.ndim > rank or 1 not in change.axes:
        return None
    wide = addend.reshape((1,) * (rank - addend.ndim) + addend.shape)
    if wide.size not in (1, channels) or wide.shape[change.place(1)] != wide.size:
        return None
    return np.ascontiguousarray(np.broadcast_to(wide.reshape(-1), (channels,)))
