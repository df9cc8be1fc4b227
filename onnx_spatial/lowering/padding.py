"""Zero padding for every element type: Pad where it has a kernel, else Concat with zeros.

onnxruntime's Pad runs for f32 f64 i8 u8 i32 u32 i64 u64 and, from opset 13, bool. It takes f16
through a Cast, which turns signalling NaNs into quiet ones, and has nothing for bf16, i16, u16 and
strings. For those each padded axis is one Concat with blocks of zeros.
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

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering import prices
from onnx_spatial.lowering.emit import Emitter, Size, Tensor, same
from onnx_spatial.ops.shapes import is_countable

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

#: Blocks of zeros up to this many elements are constants; larger ones are made at run time.
_LARGEST_CONSTANT = 1 << 14

Pads = Sequence[tuple[Size, Size]]


def has_pad_kernel(element_types: frozenset[int], opset: int) -> bool:
    """Whether one Pad is exact for all of `element_types` (none known: taken to be so)."""
    types = _PAD_TYPES | {TensorProto.BOOL} if opset >= 13 else _PAD_TYPES
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
        emit: where the nodes go.
        x: what to pad.
        pads: one pair per axis.
        element_types: ONNX element types that `x` may have.
        pad_value: scalar to pad with; only for types that have a Pad kernel.
        signed: whether amounts may be negative, which crops.

    Raises:
        ConversionError: `x` may have several types of which one has no Pad kernel.
    """
    padded = [
        axis for axis, (begin, end) in enumerate(pads) if not (same(begin, 0) and same(end, 0))
    ]
    if not padded:
        return x
    dims = [emit.add(emit.add(d, begin), end) for d, (begin, end) in zip(x.dims, pads, strict=True)]
    if has_pad_kernel(element_types, emit.opset):
        amounts = emit.vector([*(b for b, _ in pads), *(e for _, e in pads)], "pads")
        inputs = (
            [amounts] if pad_value is None else [amounts, emit.constant(pad_value, "pad_value")]
        )
        run = emit.elements_in(x.dims[padded[-1] :])
        size = emit.elements_in(dims) * x.itemsize
        work = prices.pad(emit.elements_in(x.dims) // max(run, 1), size)
        return emit.tensor(emit.op("Pad", x.value, *inputs, work=work), dims, x.itemsize)
    if len(element_types) > 1:
        raise ConversionError(
            "the function is called with several element types and Pad has no kernel for one of them"
        )
    (element_type,) = element_types
    if signed:
        x, pads = _crop(emit, x, pads)
    for axis in padded:
        begin, end = (
            [] if same(amount, 0) else [zeros(emit, x, axis, amount, element_type)]
            for amount in pads[axis]
        )
        joined = (*x.dims[:axis], dims[axis], *x.dims[axis + 1 :])
        x = replace(emit.concat([*begin, x, *end], axis), dims=joined)
    return x


def zeros(emit: Emitter, x: Tensor, axis: int, amount: Size, element_type: int) -> Tensor:
    """Zeros to be put beside `x` along `axis`."""
    dims = [*x.dims[:axis], amount, *x.dims[axis + 1 :]]
    return emit.tensor(filled(emit, dims, element_type), dims, x.itemsize)


def _crop(emit: Emitter, x: Tensor, pads: Pads) -> tuple[Tensor, Pads]:
    """Cut off what negative amounts ask for; the amounts that are left are not negative."""
    cut = [[emit.max(emit.sub(0, amount), 0) for amount in pair] for pair in pads]
    axes = [axis for axis, pair in enumerate(cut) if not (same(pair[0], 0) and same(pair[1], 0))]
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


def filled(emit: Emitter, dims: Sequence[Size], element_type: int) -> ir.Value:
    """A tensor of zeros of any shape, empty ones included."""
    dtype = numpy_dtype(element_type)
    known = [d for d in dims if isinstance(d, int)]
    small = math.prod(known) <= _LARGEST_CONSTANT and is_countable(known)
    if len(known) == len(dims) and small:
        value = np.full(known, "", object) if dtype is None else np.zeros(known, dtype)
        return emit.constant(value, "zeros")
    shape = emit.vector(dims, "zeros_shape")
    if dtype is None:  # ConstantOfShape has no strings
        return emit.op("Expand", emit.constant(np.array("", object), "empty_string"), shape)
    if dtype == ml_dtypes.bfloat16:  # and fails to load with bf16 inside functions, opset 13 to 19
        plain = emit.op("ConstantOfShape", shape)
        return emit.op("Cast", plain, to=int(TensorProto.BFLOAT16))
    if dtype == np.float32:
        return emit.op("ConstantOfShape", shape)
    zero = ir.Attr("value", ir.AttributeType.TENSOR, ir.tensor(np.zeros(1, dtype)))
    return emit.op("ConstantOfShape", shape, value=zero)


def numpy_dtype(element_type: int) -> np.dtype[np.generic] | None:
    """ONNX element type -> numpy dtype; None for strings."""
    if element_type == TensorProto.STRING:
        return None
    return ir.DataType(element_type).numpy()
