"""Replace Col2Im by standard nodes for runtimes that lack it (`lowering.col2im`).

onnxruntime's own kernel is 1.2 to 4 times as fast as these nodes: the operator stays without a target.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial import analysis
from onnx_spatial.analysis import GraphFacts, attributes
from onnx_spatial.conversion import report
from onnx_spatial.conversion.node_editor import NodeEditor
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.conversion.report import EditResult, Site
from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering.col2im import Windows, emit_col2im
from onnx_spatial.lowering.core.builder import Emitter, Size
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph.replace_nodes import Draft
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.traversal import Place

COL2IM = "Col2Im"

#: Reported in the place of a strategy.
SHIFTED = "shifted sums"

#: Bytes of an element.
_TYPES: dict[int, int] = {
    TensorProto.FLOAT: 4,
    TensorProto.FLOAT16: 2,
    TensorProto.DOUBLE: 8,
    TensorProto.INT32: 4,
    TensorProto.INT64: 8,
}


@dataclass(frozen=True)
class _Node:
    """A Col2Im with what is known of it."""

    place: Place
    message: onnx.NodeProto
    facts: GraphFacts

    @property
    def element_type(self) -> int:
        """ONNX element type of the data; 0 if it is unknown."""
        known = self.facts.scope.type(self.message.input[0])
        return shape_inference.element_type(known) or 0

    def dims(self) -> list[int | None] | None:
        """Return the dims of the data, [N, C * places, windows]; None if the rank is unknown."""
        dims = self.facts.sizes.dims(self.message.input[0])
        return None if dims is None else [dim.constant for dim in dims]

    def entries(self, index: int) -> list[int | None] | None:
        """Return the entries of a list of sizes; None if their number is unknown."""
        entries = self.facts.sizes.entries(self.message.input[index])
        return None if entries is None else [entry.constant for entry in entries]

    def windows(self) -> Windows | None:
        """Return the windows; None if the kernel is computed in the run."""
        kernel = self.entries(2)
        if not kernel or None in kernel:
            return None
        axes, known = len(kernel), attributes(self.message)
        lists = []
        for name, least in (("strides", 1), ("dilations", 1), ("pads", 0)):
            count = 2 * axes if name == "pads" else axes
            values = known.get(name, (least,) * count)
            if not isinstance(values, tuple) or len(values) != count:
                return None
            lists.append(tuple(int(v) for v in values))
            if min(lists[-1]) < least:
                return None
        strides, dilations, pads = lists
        sizes = tuple(size for size in kernel if size is not None)
        if min(sizes) < 1:
            return None
        return Windows(sizes, strides, dilations, pads[:axes], pads[axes:])


def replace_col2im(
    proto: onnx.ModelProto, options: ConvertOptions, folder: Path | None = None
) -> EditResult:
    """Replace the Col2Im nodes of a model if the target of the options refuses them.

    Nodes stay whose kernel, rank or element type is unknown; `proto` stays as it is.

    Args:
        proto: the model.
        options: with the target, and the largest rank of a new tensor.
        folder: where external data lies.
    """
    runtime = options.runtime
    if runtime is None or COL2IM not in runtime.refused:
        return EditResult()
    if not any(_is_col2im(node) for _, _, node in traversal.nodes(proto)):
        return EditResult()
    facts = analysis.graph_facts(proto, analysis.find(proto, options.domains, folder), folder)
    editor = NodeEditor(proto)
    for (place, graph), known in zip(traversal.graphs(proto), facts, strict=True):
        for message in filter(_is_col2im, graph.node):
            node = _Node(place, message, known)
            draft = _draft(node, editor.node(place, message), options.max_rank)
            if draft is not None:
                editor.replace(place, message, draft, _site(node, len(draft.nodes)), message.input)
    return editor.result()


def _is_col2im(node: onnx.NodeProto) -> bool:
    complete = len(node.input) == 3 and len(node.output) == 1 and all((*node.input, *node.output))
    return node.op_type == COL2IM and op_traits.is_standard(node) and complete


def _draft(node: _Node, old: ir.Node, max_rank: int | None) -> Draft | None:
    windows, sizes, image = node.windows(), node.dims(), node.entries(1)
    itemsize, value, shape = _TYPES.get(node.element_type), old.inputs[0], old.inputs[1]
    if windows is None or sizes is None or image is None or value is None or shape is None:
        return None
    if itemsize is None or len(sizes) != 3 or len(image) != len(windows.kernel):
        return None
    emit = Emitter(node.facts.scope.opset, max_rank)
    dims: list[Size] = [
        size if size is not None else emit.lengths(value, [axis]) for axis, size in enumerate(sizes)
    ]
    lengths: list[Size] = [
        size if size is not None else emit.elements(shape, [axis])[0]
        for axis, size in enumerate(image)
    ]
    types = frozenset({node.element_type})
    try:
        y = emit_col2im(emit, emit.tensor(value, dims, itemsize), lengths, windows, types)
    except ConversionError:  # the sizes fit no window, or an old opset lacks what they need
        return None
    emit.prune(y.value)
    if max_rank is not None and emit.max_rank > max_rank:
        return None
    return Draft(old, emit.nodes, emit.constants, {old.outputs[0]: y.value})


def _site(node: _Node, count: int) -> Site:
    """Report a node that was replaced."""
    known = node.dims()
    return Site(
        node=traversal.label(node.message),
        graph=str(node.place),
        op_type=COL2IM,
        domain="",
        dialect=report.CHAIN,
        action="lower",
        reason=None,
        strategy=SHIFTED,
        element_type=analysis.dtype_name(node.element_type),
        input_shape=None if known is None else tuple(known),
        output_shape=None,
        output=node.message.output[0],
        nodes_before=1,
        nodes_after=count,
    )
