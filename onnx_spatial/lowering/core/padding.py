"""Pad every element type: by Pad where it has a kernel, else by Concat with zeros.

onnxruntime's Pad runs for f32 f64 i8 u8 i32 u32 i64 u64 and, from opset 13, bool; before opset 11 for
f32 and f64 only, by amounts that are attributes. It takes f16 through a Cast, which turns signalling
NaNs into quiet ones, and has nothing for bf16, i16, u16 and strings. For those, and for computed amounts
before opset 11, each padded axis is one Concat with blocks of zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.errors import Code, ConversionError
from onnx_spatial.lowering.core import cost_model
from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor
from onnx_spatial.lowering.core.cost_model import Work
from onnx_spatial.lowering.core.nodes import NewerOpsetError
from onnx_spatial.operators.operator import is_countable

_PAD_TYPES = frozenset(
    {
        TensorProto.FLOAT,
        TensorProto.DOUBLE,
        TensorProto.INT8,
        TensorProto.UINT8,
        TensorProto.INT32,
        TensorProto.UINT32,
        TensorProto.INT64,
        TensorProto.UINT64,
    }
)

#: Pad has taken its amounts as an input since this opset; before, it has fewer kernels.
PAD_INPUTS = 11
_OLD_PAD_TYPES = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE})

#: ConstantOfShape came with this opset.
_CONSTANT_OF_SHAPE = 9

#: Blocks of zeros up to this many elements are constants; larger ones are made at run time.
_LARGEST_CONSTANT = 1 << 14

Pads = Sequence[tuple[Size, Size]]


def is_zero(pair: tuple[Size, Size]) -> bool:
    """Tell whether the amounts at both ends of an axis are known to be 0."""
    return pair[0] == 0 and pair[1] == 0


def has_pad_kernel(element_types: frozenset[int], opset: int) -> bool:
    """Tell whether one Pad is exact for all of `element_types`; true if none is known."""
    types = _PAD_TYPES | {TensorProto.BOOL} if opset >= 13 else _PAD_TYPES
    if opset < PAD_INPUTS:
        types = _OLD_PAD_TYPES
    return element_types <= types


def pad(
    emit: Emitter,
    x: Tensor,
    pads: Pads,
    element_types: frozenset[int],
    pad_value: npt.NDArray[np.generic] | None = None,
    signed: bool = False,
) -> Tensor:
    """Pad each axis of `x` by (begin, end).

    Args:
        emit: collects the nodes.
        x: the data.
        pads: one pair per axis.
        element_types: ONNX element types that `x` may have.
        pad_value: scalar to pad with; only for types that have a Pad kernel in newer opsets.
        signed: whether amounts may be negative, which crops.

    Raises:
        ConversionError: `x` may have several types (or any, before opset 11) of which one has no
            Pad kernel.
    """
    padded = [axis for axis, pair in enumerate(pads) if not is_zero(pair)]
    if not padded:
        return x
    dims = [emit.add(emit.add(d, begin), end) for d, (begin, end) in zip(x.dims, pads, strict=True)]
    amounts = [*(b for b, _ in pads), *(e for _, e in pads)]
    literal = [amount for amount in amounts if isinstance(amount, int)]
    written = emit.opset >= PAD_INPUTS or len(literal) == len(amounts)
    if written and has_pad_kernel(element_types, emit.opset):
        source = x

        def work() -> Work:
            run = emit.elements_in(source.dims[padded[-1] :])
            size = emit.elements_in(dims) * source.itemsize
            return cost_model.copies("pad", emit.elements_in(source.dims) // max(run, 1), size)

        if emit.opset < PAD_INPUTS:
            value = 0.0 if pad_value is None else float(pad_value)
            outside = {} if value == 0 else {"value": ir.AttrFloat32("value", value)}
            padding = emit.op("Pad", x.value, pads=literal, work=work, **outside)
        else:
            inputs = [emit.vector(amounts, "pads")]
            inputs += [] if pad_value is None else [emit.constant(pad_value, "pad_value")]
            padding = emit.op("Pad", x.value, *inputs, work=work)
        return emit.tensor(padding, dims, x.itemsize)
    if len(element_types) > 1:
        raise ConversionError(
            "the function is called with several element types and Pad has no kernel for one of them",
            code=Code.ELEMENT_TYPE,
        )
    if not element_types:
        what = "computed amounts of zeros of an unknown element type"
        raise NewerOpsetError(what, PAD_INPUTS)
    (element_type,) = element_types
    if signed:
        x, pads = _emit_crop(emit, x, pads)
    for axis in padded:
        begin, end = (
            [] if amount == 0 else [_emit_block(emit, x, axis, amount, element_type, pad_value)]
            for amount in pads[axis]
        )
        joined = (*x.dims[:axis], dims[axis], *x.dims[axis + 1 :])
        x = replace(emit.concat([*begin, x, *end], axis), dims=joined)
    return x


def _emit_block(
    emit: Emitter,
    x: Tensor,
    axis: int,
    amount: Size,
    element_type: int,
    value: npt.NDArray[np.generic] | None,
) -> Tensor:
    """Return zeros, or another value, to join to `x` along `axis`."""
    dims = [*x.dims[:axis], amount, *x.dims[axis + 1 :]]
    return emit.tensor(filled(emit, dims, element_type, value), dims, x.itemsize)


def _emit_crop(emit: Emitter, x: Tensor, pads: Pads) -> tuple[Tensor, Pads]:
    """Crop `x` by the negative amounts; return it with the other amounts."""
    cut = [(emit.max(emit.sub(0, begin), 0), emit.max(emit.sub(0, end), 0)) for begin, end in pads]
    axes = [axis for axis, pair in enumerate(cut) if not is_zero(pair)]
    left = [(emit.max(begin, 0), emit.max(end, 0)) for begin, end in pads]
    if not axes:
        return x, left
    dims = list(x.dims)
    ends: list[Size] = []
    for axis in axes:
        begin, end = cut[axis]
        ends.append(emit.sub(x.dims[axis], end))
        dims[axis] = emit.sub(ends[-1], begin)
    return emit.slice(x, axes, [cut[axis][0] for axis in axes], ends, dims), left


def filled(
    emit: Emitter,
    dims: Sequence[Size],
    element_type: int,
    value: npt.NDArray[np.generic] | None = None,
) -> ir.Value:
    """Return a tensor of zeros, or of another value, of any shape, empty ones included."""
    dtype = numpy_dtype(element_type)
    known = [d for d in dims if isinstance(d, int)]
    small = math.prod(known) <= _LARGEST_CONSTANT and is_countable(known)
    if len(known) == len(dims) and small:
        return emit.constant(_filled_array(known, dtype, value), "zeros")
    shape = emit.vector(dims, "zeros_shape")
    if emit.opset < _CONSTANT_OF_SHAPE:
        return emit.op(
            "Tile", emit.constant(_filled_array([1] * len(dims), dtype, value), "zero"), shape
        )
    if dtype is None:  # ConstantOfShape has no strings
        return emit.op("Expand", emit.constant(np.array("", object), "empty_string"), shape)
    if dtype == ml_dtypes.bfloat16:  # and fails to load with bf16 inside functions, opset 13 to 19
        plain = emit.op("ConstantOfShape", shape)
        return emit.op("Cast", plain, to=int(TensorProto.BFLOAT16))
    if dtype == np.float32 and value is None:
        return emit.op("ConstantOfShape", shape)
    zero = ir.Attr("value", ir.AttributeType.TENSOR, ir.tensor(_filled_array([1], dtype, value)))
    return emit.op("ConstantOfShape", shape, value=zero)


def _filled_array(
    shape: Sequence[int],
    dtype: np.dtype[np.generic] | None,
    value: npt.NDArray[np.generic] | None,
) -> npt.NDArray[np.generic]:
    if dtype is None:
        return np.full(shape, "", object)
    return np.zeros(shape, dtype) if value is None else np.full(shape, value, dtype)


def numpy_dtype(element_type: int) -> np.dtype[np.generic] | None:
    """Return the numpy dtype of an ONNX element type; None for strings."""
    if element_type == TensorProto.STRING:
        return None
    return ir.DataType(element_type).numpy()
