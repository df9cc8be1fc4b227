"""Give explicit pads to convolutions that onnxruntime refuses: auto_pad SAME with dilations.

    x -> Conv (SAME, dilations 2) -> y              x -> Conv (pads 2, dilations 2) -> y
    x -> Conv (SAME, dilations 2, strides 2) -> y   x -> Pad -> Conv (dilations 2, strides 2) -> y

ONNX allows them. They stand in the same files as the spatial operators: exporters write dilated layers
in either way. With stride 1 the pads do not depend on the size of the input (`find` has the
arithmetic); pads that depend on run-time sizes are computed in front of a Pad. Weights stay as they
are.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import onnx_ir as ir

from onnx_spatial import analysis
from onnx_spatial.conversion import report
from onnx_spatial.conversion.report import EditResult
from onnx_spatial.conversion.same_padding import find
from onnx_spatial.errors import Code, OperatorError, SpatialError
from onnx_spatial.lowering import Emitter
from onnx_spatial.lowering.core.builder import Size
from onnx_spatial.model import traversal
from onnx_spatial.model.graph import insert_nodes
from onnx_spatial.model.graph.naming import Names
from onnx_spatial.operators.shapes import INT64_MAX
from onnx_spatial.operators.spellings import NodeFacts

#: Reported in the place of a strategy.
STRATEGY = "explicit-pads"

#: Pad has taken its amounts as an input since this opset.
_PAD_OPSET = 11


def add_explicit_pads(model: onnx.ModelProto, opset: int, folder: Path | None = None) -> EditResult:
    """Give explicit pads to the convolutions that onnxruntime refuses; `model` stays as it is.

    `opset` is the version of the default domain where it is not imported, `folder` holds external data.
    """
    result = EditResult()
    refused = find.find(model, folder)
    if not refused:
        return result
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    names = Names(copy)
    nodes = list(traversal.nodes(copy))
    inserted: dict[int, insert_nodes.Inserted] = {}
    for index, known in refused.items():
        place, _, node = nodes[index]
        # Files older than IR 4 list every initializer as an input too; functions have none at all.
        initializers = model.ir_version >= 4 and place.function is None
        version = analysis.opset_of(model, place) or opset
        info = analysis.OperatorInfo(index, place, node, version, True, known)
        try:
            new = _edit(node, known, version, names, initializers=initializers)
        except SpatialError as error:
            operator = report.left(info, done=str(error), code=error.code)
        else:
            inserted[index] = new
            info.output_shape = find.output_shape(node, known)
            operator = report.converted(info, "lower", STRATEGY, 1 + len(new.nodes))
        result.operator_at[index] = replace(operator, dialect=report.AUTO_PAD)
    if inserted:
        insert_nodes.in_front(copy, inserted)
        result.model = copy
    return result


def _edit(
    node: onnx.NodeProto, known: NodeFacts, opset: int, names: Names, *, initializers: bool
) -> insert_nodes.Inserted:
    """Give a convolution its pads, in place, and write the Pad in front of it where one is needed.

    Raises:
        OperatorError: its pads cannot be computed in this model.
    """
    same = find.read(node, known)
    emit = Emitter(opset)
    axes = range(len(same.strides))
    pads = [(0, 0) for _ in axes]
    padded: dict[int, tuple[Size, Size]] = {}
    kind = find.kind_of(node)
    assert kind is not None
    data, weight = (ir.Value(name=node.input[index]) for index in (0, kind.weight))
    for axis in axes:
        kernel, size = same.kernel[axis], same.sizes[axis]
        is_known = isinstance(kernel, int) and (isinstance(size, int) or same.strides[axis] == 1)
        begin, end = same.split(
            emit,
            axis,
            size if isinstance(size, int) else 1 if is_known else _dim(emit, data, axis),
            kernel if isinstance(kernel, int) else _dim(emit, weight, axis),
        )
        if isinstance(begin, int) and isinstance(end, int):
            pads[axis] = begin, end
        else:
            padded[axis] = begin, end
    if padded and opset < _PAD_OPSET:
        raise OperatorError(
            f"its pads depend on sizes that only the run knows, and a Pad that computes them needs "
            f"opset {_PAD_OPSET}, not {opset} (fix them with --static, or export the model again with "
            "a newer opset)",
            code=Code.OPSET_TOO_OLD,
        )
    made = insert_nodes.Inserted((), ())
    if padded:
        amounts = [(0, 0), (0, 0), *(padded.get(axis, (0, 0)) for axis in axes)]
        inputs = [data, emit.vector([pair[side] for side in (0, 1) for pair in amounts], "pads")]
        # Quantised data is padded with its zero point.
        zero = node.input[kind.zero] if kind.zero and kind.zero < len(node.input) else ""
        emit.op("Pad", *inputs, *([ir.Value(name=zero)] if zero else []))
        made = insert_nodes.written(
            node, emit.nodes, emit.constants, names, initializers=initializers
        )
        node.input[0] = made.nodes[-1].output[0]
    own = [pair[side] for side in (0, 1) for pair in pads]
    if max(own) > INT64_MAX:
        raise OperatorError("its pads overflow 64-bit integers", code=Code.OVERFLOW)
    for attribute in node.attribute:
        if attribute.name == "auto_pad":
            attribute.CopyFrom(onnx.helper.make_attribute("pads", own))
    insert_nodes.mark(node, node)
    return made


def _dim(emit: Emitter, value: ir.Value, axis: int) -> Size:
    """Return the size of spatial axis number `axis`."""
    return emit.length(value, 2 + axis)
