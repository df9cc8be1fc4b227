"""Write the Reshapes of a region for the sizes of u."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_spatial.fusion.dilated_conv.graph_view import GraphView
from onnx_spatial.fusion.dilated_conv.rule import AxisSize, RewrittenReshape
from onnx_spatial.lowering import Emitter
from onnx_spatial.model.graph.replace_nodes import Draft


def write_reshape(
    value: ir.Value,
    sizes: Sequence[int | None],
    form: RewrittenReshape,
    view: GraphView,
    draft: Draft,
) -> ir.Node:
    """Write a Reshape of a value whose dims have these sizes, None where only the run knows them."""
    emit = Emitter(view.opset)
    shape = emit.shape_of(value)
    dims = [
        emit.elements(shape, [axis])[0] if size is None else size for axis, size in enumerate(sizes)
    ]
    target = [dims[dim.axis] if isinstance(dim, AxisSize) else dim for dim in form.dims]
    result = emit.reshape(emit.tensor(value, dims), target).value
    emit.prune(result)
    draft.nodes += emit.nodes
    draft.constants += emit.constants
    return next(node for node in emit.nodes if result in node.outputs)
