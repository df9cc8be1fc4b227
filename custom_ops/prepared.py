"""Convert models to the form that the registered Python operators run.

    x -> any spelling -> y
    x -> SpaceToBatch | BatchToSpace | ... -> Reshape -> y

onnxruntime-extensions gives Python operators a fixed number of inputs, scalar attributes, no shape
inference, and no way to report an error: an exception ends the process. So

- every spelling becomes an operator of the domain `onnx_spatial.ops`
  (`operators.spellings.python_ops`), its parameters int64 inputs, constant or computed, or a text;
- the Reshape behind it is the way out for errors. It changes nothing: its shape is the output's own,
  0 (as the input has it) where that is unknown. An operator that fails answers with a tensor of one
  more dim and no elements, which no Reshape takes: onnxruntime then raises, whoever runs the session
  and on whatever thread. It costs no copy, and it tells onnxruntime the shape it cannot infer;
- elements that cannot cross into Python and back unharmed stay where they are (`carriers`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.conversion.pipeline import convert_operators, refusal
from onnx_spatial.custom_ops import carriers
from onnx_spatial.errors import Code, ConversionError, of_model
from onnx_spatial.lowering import Emitter, Lowered, Request
from onnx_spatial.model import traversal
from onnx_spatial.model.graph import node_groups
from onnx_spatial.model.io import reader
from onnx_spatial.operators.spellings import BlockCall, FixedCall, Vector
from onnx_spatial.operators.spellings.python_ops import (
    BATCH_ENTRY,
    BLOCKS,
    DOMAIN,
    PARAMETERS,
    SITE,
    as_json,
)

#: Reshape has taken its shape as an input since opset 5, Cast its type as a number since 6.
MIN_OPSET = 6
_CAST_LIKE = 15


def prepare(model: reader.Model, *, domains: Iterable[str] = ()) -> onnx.ModelProto:
    """Convert the spatial operators of a model to the registered Python operators.

    Args:
        model: path, bytes, onnx.ModelProto or onnx_ir.Model; it is not changed. External data stays
            in its files.
        domains: operator domains to accept beside the ones that converters are known to use.

    Returns:
        The prepared model; the model itself if there is nothing to convert.

    Raises:
        ModelFileError: the model cannot be read.
        ConversionError: an operator breaks its rules or cannot be run this way.
    """
    source = reader.read(model)
    options = ConvertOptions("custom-op", domains=tuple(domains))
    with of_model(source.name):
        plan = convert_operators(source.proto, options, folder=source.folder)
    if refused := plan.refused():
        raise refusal(source.name, refused)
    return source.proto if plan.model is None else plan.model


def write(request: Request, info: OperatorInfo) -> Lowered:
    """Emit a Python operator in place of a spatial operator, with the nodes that it needs.

    Raises:
        ConversionError: Python operators cannot run it in this model.
    """
    if request.opset < MIN_OPSET:
        raise ConversionError(
            f"the model's opset is {request.opset}; Python operators need {MIN_OPSET} or newer "
            "(export the model again with a newer opset)",
            code=Code.OPSET_TOO_OLD,
        )
    node = info.node
    site = f"{node.op_type} {traversal.label(node)!r} in {info.place}"
    emit = Emitter(request.opset)
    if not request.ranked and request.shape is not None:
        data = request.of_its_rank(emit)
        request = replace(request, inputs=(data, *request.inputs[1:]), ranked=True)
    carrier = carriers.choose(request)
    carried = carrier.into(request, emit)
    call = request.call
    parameters: list[ir.Value] = []
    attributes: dict[str, str | int] = {SITE: site}
    if isinstance(call, BlockCall):
        block, table, whole = _tables(call, request, emit)
        parameters = [block, table]
        attributes[BATCH_ENTRY] = int(whole)
    elif isinstance(call, FixedCall):
        attributes[PARAMETERS] = as_json(call.operator)
    else:
        raise ConversionError(f"there is no Python operator for {call.kind.name}")
    main = ir.node(call.kind.name, [carried, *parameters], attributes, domain=DOMAIN)
    emit.nodes.append(main)
    checked = emit.op("Reshape", main.outputs[0], _shape(request, emit))
    output = carrier.back(request, emit, checked)
    if output is checked and info.place.function is not None:
        output = _typed(request, emit, output)
    emit.prune(output)
    node_groups.mark(emit.nodes, main, node.input[0], node.output[0])
    return Lowered(carrier.name, emit, output)


def _typed(request: Request, emit: Emitter, value: ir.Value) -> ir.Value:
    """Emit a Cast to the element type, which onnxruntime cannot infer for the output of a function."""
    if len(request.element_types) == 1:
        return emit.op("Cast", value, to=next(iter(request.element_types)))
    if request.opset >= _CAST_LIKE:
        return emit.op("CastLike", value, request.inputs[0])
    raise ConversionError(
        "its element type is unknown or differs between calls; Python operators in functions then "
        f"need opset {_CAST_LIKE} or newer (or inline the function first with "
        "onnx.inliner.inline_local_functions)",
        code=Code.OPSET_TOO_OLD,
    )


def _shape(request: Request, emit: Emitter) -> ir.Value:
    """Emit the output's shape for Reshape, with 0 for unknown dims."""
    rank = len(request.shape) if request.shape is not None else request.call.rank
    if rank is None:  # it is that of the data
        assert request.inputs[0] is not None
        shape = emit.shape_of(request.inputs[0])
        return emit.op("Sub", shape, shape)
    known = request.call.output_shape(request.shape or (None,) * rank)
    return emit.ints([d if isinstance(d, int) else 0 for d in known], "shape")


def _tables(call: BlockCall, request: Request, emit: Emitter) -> tuple[ir.Value, ir.Value, bool]:
    """Emit block_shape and the table of amounts; say whether they have an entry for the batch axis."""
    vectors = (call.block, call.begins, call.ends)
    # Run-time values in OpenVINO's spelling have an entry for the batch axis, which is checked too.
    whole = any(v.values is None and v.start == v.step for v in vectors)
    names = ("block_shape", *[BLOCKS[call.kind.name][1]] * 2)
    neutral = (1, 0, 0)
    columns = [
        _column(v, name, n, request, emit, whole=whole)
        for v, name, n in zip(vectors, names, neutral, strict=True)
    ]
    block, begins, ends = columns
    table: ir.Value
    if isinstance(begins, list) and isinstance(ends, list):
        pairs = [amount for pair in zip(begins, ends, strict=True) for amount in pair]
        table = _constant(emit, pairs, names[1], [len(begins), 2])
    elif isinstance(begins, ir.Value) and call.begins.step == 2:  # it was a table before
        table = begins
    else:
        rows = emit.ints([-1, 1], "column")
        parts = [
            emit.op("Reshape", emit.ints(c, names[1]) if isinstance(c, list) else c, rows)
            for c in (begins, ends)
        ]
        table = emit.op("Concat", *parts, axis=1)
    return (emit.ints(block, "block_shape") if isinstance(block, list) else block), table, whole


def _column(
    vector: Vector, name: str, neutral: int, request: Request, emit: Emitter, *, whole: bool
) -> list[int] | ir.Value:
    """Return the entries if they are known, or else the int64 value that holds them among others."""
    if vector.values is not None:
        return [neutral, *vector.values] if whole else list(vector.values)
    assert vector.input is not None
    value = request.inputs[vector.input]
    assert value is not None
    if request.parameter_types[vector.input] != TensorProto.INT64:
        value = emit.op("Cast", value, to=int(TensorProto.INT64))
    return value


def _constant(emit: Emitter, values: list[int], hint: str, shape: list[int]) -> ir.Value:
    return emit.constant(np.array(values, np.int64).reshape(shape), hint)
