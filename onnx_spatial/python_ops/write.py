"""Write a spatial operator as a Python operator, with the nodes that it needs in onnxruntime.

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
- elements that cannot cross into Python and back unharmed stay where they are:

      direct     numbers and bools cross
      bits       BitCast -> operator on uint16 -> BitCast: float16 and bfloat16 from opset 26
      positions  the operator moves positions, and Gather fetches the elements:

          Range -> Reshape -> operator -> Reshape -> Gather -> y
          x -> Reshape [-1] -> Concat(zero, .) -------^

      Position 0, which the operator pads with, is a zero in front of the elements.

  onnxruntime-extensions aborts the process on a 16-bit float and on a string that is not UTF-8, and it
  cuts strings at a zero byte. A Cast to float32 would quieten signalling NaNs. Positions keep every
  bit of any type, at the price of two integer tensors of the same shape. Data of unknown type goes by
  position if nothing is padded; otherwise it is taken to be numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.analysis import OperatorInfo, dtype_name
from onnx_spatial.errors import Code, ConversionError
from onnx_spatial.lowering import Emitter, Lowered, Request
from onnx_spatial.lowering.emitter import numpy_dtype
from onnx_spatial.lowering.nodes import SINCE
from onnx_spatial.model import traversal
from onnx_spatial.model.graph import marks
from onnx_spatial.operators.spellings import BlockCall, Vector
from onnx_spatial.operators.spellings.call import BLOCKS
from onnx_spatial.operators.spellings.python_ops import (
    BATCH_ENTRY,
    DOMAIN,
    PARAMETERS,
    SITE,
    as_json,
)
from onnx_spatial.python_ops.kernels import PREPARED_TYPES

_HALVES = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
_BY_POSITION = _HALVES | {TensorProto.STRING}

#: Opsets: Reshape has taken its shape as an input since 5, Cast its type as a number since 6.
_MIN_OPSET = 6

#: Emits the output, made of the operator's result.
_Back = Callable[[ir.Value], ir.Value]


def write_python_op(request: Request, info: OperatorInfo, *, by_position: bool = False) -> Lowered:
    """Emit a Python operator in place of a spatial operator.

    Args:
        request: what is to be emitted.
        info: the operator.
        by_position: whether numbers and bools go by position, too, where they can.

    Raises:
        ConversionError: Python operators cannot run it in this model.
    """
    if request.opset < _MIN_OPSET:
        raise ConversionError(
            f"the model's opset is {request.opset}; Python operators need {_MIN_OPSET} or newer "
            "(export the model again with a newer opset)",
            code=Code.OPSET_TOO_OLD,
        )
    node = info.node
    site = f"{node.op_type} {traversal.label(node)!r} in {info.place}"
    emit = Emitter(request.opset)
    if not request.ranked and request.shape is not None:
        data = request.of_its_rank(emit)
        request = replace(request, inputs=(data, *request.inputs[1:]), ranked=True)
    way, carried, back = _carry_data(request, emit, by_position)
    call = request.call
    parameters: list[ir.Value] = []
    attributes: dict[str, str | int] = {SITE: site}
    if isinstance(call, BlockCall):
        block, table, whole = _emit_tables(call, request, emit)
        parameters = [block, table]
        attributes[BATCH_ENTRY] = int(whole)
    else:
        attributes[PARAMETERS] = as_json(call.operator)
    main = ir.node(call.kind.name, [carried, *parameters], attributes, domain=DOMAIN)
    emit.nodes.append(main)
    checked = emit.op("Reshape", main.outputs[0], _emit_shape(request, emit))
    output = back(checked)
    if output is checked and info.place.function is not None:
        output = _emit_cast(request, emit, output)
    emit.prune(output)
    marks.mark_group(emit.nodes, main, node.input[0], node.output[0])
    return Lowered(way, emit, output)


def _carry_data(request: Request, emit: Emitter, by_position: bool) -> tuple[str, ir.Value, _Back]:
    """Emit the operator's input in the cheapest exact way; return its name, the input, the way back.

    Raises:
        ConversionError: there is no way for the element types that the data may have.
    """
    types = request.element_types
    x = request.inputs[0]
    assert x is not None
    pads = request.call.may_pad
    if not types and not pads and request.opset >= SINCE["Range"]:
        return _emit_positions(request, emit, None)  # behind a foreign operator: strings, perhaps
    by_position = by_position and len(types) == 1 and request.opset >= SINCE["Range"]
    if types <= set(PREPARED_TYPES) and not by_position:
        return "direct", x, lambda moved: moved
    names = ", ".join(sorted(dtype_name(t) for t in types))
    if types - set(PREPARED_TYPES) - _BY_POSITION:
        raise ConversionError(
            f"Python operators do not support element type {names}", code=Code.ELEMENT_TYPE
        )
    if len(types) == 1 and types <= _HALVES and request.opset >= SINCE["BitCast"]:
        bits = emit.op("BitCast", x, to=int(TensorProto.UINT16))
        return "bits", bits, lambda moved: emit.op("BitCast", moved, to=min(types))
    needed = SINCE["bfloat16 in Gather"] if TensorProto.BFLOAT16 in types else SINCE["Range"]
    if request.opset < needed:
        raise ConversionError(
            f"the model's opset is {request.opset}; Python operators on {names} need {needed} or "
            "newer",
            code=Code.OPSET_TOO_OLD,
        )
    if pads and len(types) > 1:
        raise ConversionError(
            f"its function is called with several element types, {names}; Python operators pad only one "
            "(inline the function first with onnx.inliner.inline_local_functions)",
            code=Code.ELEMENT_TYPE,
        )
    return _emit_positions(request, emit, min(types) if pads else None)


def _emit_positions(
    request: Request, emit: Emitter, padded: int | None
) -> tuple[str, ir.Value, _Back]:
    """Emit the positions of the elements, from 1; from 0 if no element type is `padded`."""
    x, shape = request.inputs[0], request.shape
    assert x is not None

    def count_positions(sizes: ir.Value) -> ir.Value:
        """Emit as many positions as the product of the sizes."""
        one = emit.constant(np.array(1, np.int64), "one")
        number = emit.op("ReduceProd", sizes, keepdims=0)  # Size has no kernel for bfloat16
        if padded is None:
            return emit.op("Range", emit.constant(np.array(0, np.int64), "none"), number, one)
        return emit.op("Range", one, emit.op("Add", number, one), one)

    def fetch_elements(moved: ir.Value) -> ir.Value:
        """Emit the elements at the positions."""
        flat = emit.op("Reshape", x, emit.ints([-1], "flat"))
        if padded is not None:
            dtype = numpy_dtype(padded)
            zero = np.full(1, "", object) if dtype is None else np.zeros(1, dtype)
            flat = emit.op("Concat", emit.constant(zero, "zero"), flat, axis=0)
        return emit.op("Gather", flat, moved, axis=0)

    sizes = emit.op("Shape", x)
    if emit.opset >= SINCE["allowzero"]:
        positions = emit.op("Reshape", count_positions(sizes), sizes, allowzero=1)
    elif shape is not None and all(isinstance(d, int) and d > 0 for d in shape):
        positions = emit.op("Reshape", count_positions(sizes), sizes)
    else:  # Reshape cannot make a new dim of 0: make one of 1 and slice it off
        one = emit.ints([1], "one")
        grown = emit.where(emit.less(sizes, one), one, sizes)
        full = emit.op("Reshape", count_positions(grown), grown)
        positions = emit.op("Slice", full, emit.op("Sub", sizes, sizes), sizes)
    return "positions", positions, fetch_elements


def _emit_cast(request: Request, emit: Emitter, value: ir.Value) -> ir.Value:
    """Emit a Cast to the element type, which onnxruntime cannot infer for the output of a function."""
    if len(request.element_types) == 1:
        return emit.op("Cast", value, to=next(iter(request.element_types)))
    if request.opset >= SINCE["CastLike"]:
        return emit.op("CastLike", value, request.inputs[0])
    raise ConversionError(
        "its element type is unknown or differs between calls; Python operators in functions then "
        f"need opset {SINCE['CastLike']} or newer (or inline the function first with "
        "onnx.inliner.inline_local_functions)",
        code=Code.OPSET_TOO_OLD,
    )


def _emit_shape(request: Request, emit: Emitter) -> ir.Value:
    """Emit the output's shape for Reshape, with 0 for unknown dims."""
    rank = len(request.shape) if request.shape is not None else request.call.rank
    if rank is None:  # it is that of the data
        assert request.inputs[0] is not None
        shape = emit.op("Shape", request.inputs[0])
        return emit.op("Sub", shape, shape)
    known = request.call.output_shape(request.shape or (None,) * rank)
    return emit.ints([d if isinstance(d, int) else 0 for d in known], "shape")


def _emit_tables(
    call: BlockCall, request: Request, emit: Emitter
) -> tuple[ir.Value, ir.Value, bool]:
    """Emit block_shape and the table of amounts; say whether they have an entry for the batch axis."""
    vectors = (call.block, call.begins, call.ends)
    # Run-time values in OpenVINO's spelling have an entry for the batch axis, which is checked too.
    whole = any(v.values is None and v.start == v.step for v in vectors)

    def column_of(vector: Vector, neutral: int) -> list[int] | ir.Value:
        """Return the entries if they are known, or else the int64 value that holds them among others."""
        if vector.values is not None:
            return [neutral, *vector.values] if whole else list(vector.values)
        assert vector.input is not None
        value = request.inputs[vector.input]
        assert value is not None
        if request.parameter_types[vector.input] != TensorProto.INT64:
            value = emit.op("Cast", value, to=int(TensorProto.INT64))
        return value

    def value_of(column: list[int] | ir.Value, name: str) -> ir.Value:
        return emit.ints(column, name) if isinstance(column, list) else column

    block, begins, ends = map(column_of, vectors, (1, 0, 0))
    name = BLOCKS[call.kind.name][1]
    table: ir.Value
    if isinstance(begins, list) and isinstance(ends, list):
        pairs = np.array([begins, ends], np.int64).T
        table = emit.constant(np.ascontiguousarray(pairs), name)
    elif isinstance(begins, ir.Value) and call.begins.step == 2:  # it was a table before
        table = begins
    else:
        rows = emit.ints([-1, 1], "column")
        parts = [emit.op("Reshape", value_of(column, name), rows) for column in (begins, ends)]
        table = emit.op("Concat", *parts, axis=1)
    return value_of(block, "block_shape"), table, whole
