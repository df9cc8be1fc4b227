"""Emit operations on tensors whose dims may be known at run time only; what changes nothing is left out.

    x = emit.tensor(value, [n, 6, w])           n, w: sizes (`sizes`)
    emit.reshape(x, [n, 2, 3, w])               Reshape [0, 2, 3, w]: a literal shape if one is enough
    pad(emit, x, pads, types)                   Pad, or Concat with zeros
    emit.gather(x, index(emit, terms), 0)       rows in any order

Older opsets hold in attributes what newer ones take as inputs: Slice has inputs, and steps, since opset
10. Before, known bounds are attributes, and a Gather serves for computed ones.

onnxruntime's Pad runs for f32 f64 i8 u8 i32 u32 i64 u64 and, from opset 13, bool; before opset 11 for
f32 and f64 only, by amounts that are attributes. It takes f16 through a Cast, which turns signalling
NaNs into quiet ones, and has nothing for bf16, i16, u16 and strings. For those, and for computed amounts
before opset 11, each padded axis is one Concat with blocks of zeros.

The index of a Gather of rows is a sum of one term for each axis of the index. A short index is one
constant; a long one is stored as its terms, which runtimes add when they load. A term that depends on
unknown sizes is computed at run time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx import TensorProto

from onnx_spatial.errors import Code, ConversionError
from onnx_spatial.lowering import cost_model
from onnx_spatial.lowering.cost_model import Work
from onnx_spatial.lowering.nodes import SINCE, NewerOpsetError
from onnx_spatial.lowering.sizes import LARGEST_CONSTANT, TYPICAL_DIM, Size, SizeArithmetic
from onnx_spatial.operators.operator import INT64_MAX, is_countable

__all__ = ["TYPICAL_DIM", "Emitter", "Size", "Tensor"]


@dataclass(frozen=True)
class Tensor:
    """A value and its dims, known or computed at run time.

    Attributes:
        value: the value.
        dims: its shape.
        itemsize: bytes of an element, for estimates of time.
    """

    value: ir.Value
    dims: tuple[Size, ...]
    itemsize: int = 8

    @property
    def rank(self) -> int:
        """Number of dims."""
        return len(self.dims)


@dataclass(frozen=True)
class AxisPart:
    """A part of an axis.

    Attributes:
        start: the first element.
        count: number of elements.
        left: elements that stay behind the part: its end is dim - left, without arithmetic. With a step
            any number up to those behind the last one taken. None: the end is start + count * step.
        step: from one element to the next.
        may_exceed: whether more may be left than there is, in a run that fails otherwise.
    """

    start: Size
    count: Size
    left: Size | None = None
    step: int = 1
    may_exceed: bool = False

    def is_whole(self, dim: Size) -> bool:
        """Return whether the part is an axis of this length."""
        return self.start == 0 and self.step == 1 and self.count == dim


class Emitter(SizeArithmetic):
    """The nodes that one operator is lowered to.

    Attributes:
        rank_limit: the largest rank that the target of the lowering admits.
        max_rank: the largest rank of any tensor so far.
        slices_by_gather: whether a Gather replaces a Slice that the opset lacks.
    """

    def __init__(
        self, opset: int, rank_limit: float | None = None, *, defers: bool = False
    ) -> None:
        super().__init__(opset, defers=defers)
        self.rank_limit = math.inf if rank_limit is None else rank_limit
        self.max_rank = 0
        self.slices_by_gather = False
        #: What was reshaped: another Reshape reads it.
        self._before_reshape: dict[ir.Value, Tensor] = {}

    def copying(
        self,
        regime: str,
        piece: Sequence[Size],
        dims: Sequence[Size],
        itemsize: int,
        parts: int = 0,
        single: str | None = None,
    ) -> Callable[[], Work]:
        """Return the work of a node that copies contiguous pieces to a tensor.

        Args:
            regime: of its kernel (`cost_model.copies`).
            piece: dims of a piece.
            dims: of the tensor.
            itemsize: bytes of an element.
            parts: outputs of a Split.
            single: the regime for pieces of one element; None for the same.
        """

        def work() -> Work:
            run, count = self.elements_in(piece), self.elements_in(dims)
            kernel = single if single is not None and run == 1 else regime
            return cost_model.copies(kernel, count // max(run, 1), count * itemsize, parts)

        return work

    def tensor(self, value: ir.Value, dims: Sequence[Size], itemsize: int = 8) -> Tensor:
        """Return a value with its dims, and record its rank."""
        self.max_rank = max(self.max_rank, len(dims))
        return Tensor(value, tuple(dims), itemsize)

    def reshape(self, x: Tensor, dims: Sequence[Size], *, exact: bool = False) -> Tensor:
        """Reshape to `dims`, with as little arithmetic as zero-sized tensors allow.

        A literal 0 copies the input's dim unless allowzero is set (opset 14); -1 fails beside a
        zero-sized dim, so it is used only where every other dim is known and not 0.

        Args:
            x: the tensor.
            dims: its new shape.
            exact: whether a run whose number of elements differs from that of `dims` must fail.
        """
        if not exact:
            x = self._reshaped_from(x, dims)
        if _are_same(dims, x.dims):
            return x
        literal = self._literal_shape(x, dims, exact)
        if literal is not None:
            shape, allow_zero = literal
            extra: dict[str, Any] = {"allowzero": 1} if allow_zero else {}
            value = self.op("Reshape", x.value, self.ints(shape, "shape"), **extra)
        else:
            kept = _same_places(x, dims)
            copies_dims = self.opset < SINCE["allowzero"]  # for a 0
            sizes = [
                0 if copies_dims and is_kept and not isinstance(dim, int) else dim
                for dim, is_kept in zip(dims, kept, strict=True)
            ]
            value = self.reshape_exactly(x.value, sizes, kept)
        if not exact:
            self._before_reshape[value] = x
        return self.tensor(value, dims, x.itemsize)

    def _reshaped_from(self, x: Tensor, dims: Sequence[Size]) -> Tensor:
        """Return what a Reshape to `dims` reads: `x`, or what `x` was reshaped from."""
        source = self._before_reshape.get(x.value)
        if source is None or _are_same(dims, x.dims):
            return x
        # The shape may be a constant from the one, and computed from the other.
        again = self._literal_shape(source, dims, exact=False)
        return x if again is None and self._literal_shape(x, dims, exact=False) else source

    def _literal_shape(
        self, x: Tensor, dims: Sequence[Size], exact: bool
    ) -> tuple[list[int], bool] | None:
        """Return the shape of a Reshape and whether it needs allowzero; None if it is computed."""
        unknown = [i for i, d in enumerate(dims) if not isinstance(d, int)]
        kept = _same_places(x, dims)
        zero_free = all(d != 0 for d in dims if isinstance(d, int))
        if unknown and zero_free and len(unknown) == 1 and not exact:
            return [d if isinstance(d, int) else -1 for d in dims], False
        if unknown and zero_free and all(kept[i] for i in unknown):
            return [d if isinstance(d, int) else 0 for d in dims], False
        if unknown:
            return None
        literal = [d for d in dims if isinstance(d, int)]
        allow_zero = any(d == 0 and not copied for d, copied in zip(literal, kept, strict=True))
        if allow_zero and self.opset < SINCE["allowzero"]:
            if literal.count(0) > 1:
                raise ConversionError(
                    f"a Reshape to {literal} needs allowzero, opset 14", code=Code.OPSET_TOO_OLD
                )
            allow_zero, literal[literal.index(0)] = False, -1
        return literal, allow_zero

    def reshape_exactly(
        self,
        value: ir.Value,
        dims: Sequence[Size],
        kept: Sequence[bool] = (),
        tail: ir.Value | None = None,
    ) -> ir.Value:
        """Reshape to sizes none of which is inferred by the Reshape.

        Before allowzero one of them may be 0: it is replaced by -1.

        Args:
            value: the tensor.
            dims: its new shape.
            kept: for each dim whether it is the input's; a 0 is then copied. None by default.
            tail: more sizes, as a 1-D value.
        """
        shape = self.vector(dims, "shape")
        if tail is not None:
            shape = self.op("Concat", shape, tail, axis=0)
        if self.opset >= SINCE["allowzero"]:
            return self.op("Reshape", value, shape, allowzero=1)
        instead = self.ints([0 if k else -1 for k in kept] or [-1], "instead_of_0")
        empty = self.op("Equal", shape, self.ints([0], "zero"))
        return self.op("Reshape", value, self.where(empty, instead, shape))

    def reshape_to(self, value: ir.Value, dims: Sequence[int]) -> ir.Value:
        """Reshape to known dims, one of which may be -1; no dim may become zero."""
        return self.op("Reshape", value, self.ints(dims, "shape"))

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        """Permute the axes."""
        if list(perm) == sorted(perm):
            return x

        def work() -> Work:
            return cost_model.transpose(tuple(map(self.guess, x.dims)), tuple(perm), x.itemsize)

        value = self.op("Transpose", x.value, perm=list(perm), work=work)
        return self.tensor(value, [x.dims[p] for p in perm], x.itemsize)

    def transpose_as(self, x: Tensor, dims: Sequence[Size], perm: Sequence[int]) -> Tensor:
        """Reshape to `dims` and permute these, with another dim of 1 where that is faster."""

        def faster_swap() -> tuple[int, tuple[int, ...]] | None:
            sizes = tuple(map(self.guess, dims))
            return cost_model.swap_inwards(sizes, tuple(perm), x.itemsize, self.rank_limit)

        swaps = self.in_each_case(faster_swap)
        swap = next(filter(None, swaps), None)
        if swap is None or 2 * swaps.count(None) > len(swaps):  # most cases say no
            return self.transpose(self.reshape(x, dims), perm)
        place, perm = swap
        return self.transpose(self.reshape(x, [*dims[:place], 1, *dims[place:]]), perm)

    def permute(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        """Permute the axes by a Transpose of the lowest rank, or by a Reshape where none moves."""
        groups = cost_model.axis_groups(x.dims, perm)
        inner = sorted(groups)
        if groups != inner:
            dims = [self.product([x.dims[axis] for axis in group]) for group in inner]
            y = self.transpose_as(x, dims, [inner.index(group) for group in groups])
        else:
            y = x
        return self.reshape(y, [x.dims[axis] for axis in perm])

    def slice(self, x: Tensor, parts: Mapping[int, AxisPart]) -> Tensor:
        """Take a part of each of some axes; one that is the whole axis takes no node."""
        parts = {axis: part for axis, part in parts.items() if not part.is_whole(x.dims[axis])}
        if not parts:
            return x
        dims = [parts[axis].count if axis in parts else dim for axis, dim in enumerate(x.dims)]
        ends = [self._end_of(part, x.dims[axis]) for axis, part in parts.items()]
        if self.opset < SINCE["inputs of Slice"]:
            return self._slice_by_attributes(x, parts, ends, dims)
        starts, steps = [p.start for p in parts.values()], [p.step for p in parts.values()]
        inputs = [self.vector(starts, "starts"), self.vector(ends, "ends")]
        inputs.append(self.ints(list(parts), "axes"))
        strided = any(step != 1 for step in steps)
        if strided:
            inputs.append(self.ints(steps, "steps"))
        inner = max(parts)
        elementwise = parts[inner].step != 1
        piece = dims[inner + elementwise :]
        regime = "slice" if strided else "crop"
        single = "slice elements" if elementwise else None
        work = self.copying(regime, piece, dims, x.itemsize, single=single)
        return self.tensor(self.op("Slice", x.value, *inputs, work=work), dims, x.itemsize)

    def inner_part(
        self, dim: Size, begin: Size, end: Size, *, may_exceed: bool = False
    ) -> AxisPart:
        """Return the part of an axis without the elements at its ends."""
        return AxisPart(begin, self.sub(self.sub(dim, begin), end), end, may_exceed=may_exceed)

    def _end_of(self, part: AxisPart, dim: Size) -> Size:
        """Return where a part of an axis ends; what is counted from the end takes no arithmetic."""
        if part.left is None:
            # One step beyond the last element; Slice clamps an end beyond the axis.
            return self.add(part.start, self.mul(part.count, part.step))
        if isinstance(part.left, int):
            return -part.left or INT64_MAX  # -0 would mean empty
        end = self.sub(dim, part.left)
        return self.max(end, 0) if part.may_exceed else end

    def _slice_by_attributes(
        self, x: Tensor, parts: Mapping[int, AxisPart], ends: Sequence[Size], dims: Sequence[Size]
    ) -> Tensor:
        """Slice before opset 10: by attributes where the bounds are known, else by a Gather."""
        literal: list[tuple[int, int, int]] = []
        for (axis, part), end in zip(parts.items(), ends, strict=True):
            start, count, step = part.start, part.count, part.step
            if isinstance(start, int) and isinstance(end, int) and step == 1:
                literal.append((axis, start, end))
                continue
            if isinstance(start, int) and isinstance(count, int) and count <= LARGEST_CONSTANT:
                places = self.ints([start + i * step for i in range(count)], "index")
            else:
                places = self.range(count, step)
                if start != 0:
                    places = self.op("Add", places, self.size(start))
            self.slices_by_gather = True
            x = self.gather(x, self.tensor(places, [count]), axis)
        if not literal:
            return x
        axes, starts, stops = (list(row) for row in zip(*literal, strict=True))
        work = self.copying("crop", dims[max(axes) :], dims, x.itemsize)
        value = self.op("Slice", x.value, axes=axes, starts=starts, ends=stops, work=work)
        return self.tensor(value, dims, x.itemsize)

    def split(self, x: Tensor, axis: int, parts: int) -> list[Tensor]:
        """Split into equal parts along `axis`; of an unknown size, or 0, with one more axis, of 1."""
        if not isinstance(x.dims[axis], int) or x.dims[axis] == 0:
            # onnxruntime does not split an axis of 0.
            length = self.div(x.dims[axis], parts)
            x = self.reshape(x, [*x.dims[:axis], parts, length, *x.dims[axis + 1 :]])
        part = list(x.dims)
        part[axis] = self.div(x.dims[axis], parts)
        work = self.copying("split", part[axis:], x.dims, x.itemsize, parts, "split elements")
        attributes = {"axis": axis} | ({"num_outputs": parts} if self.opset >= 18 else {})
        values = self.add_node("Split", [x.value], parts, work, attributes)
        return [self.tensor(value, part, x.itemsize) for value in values]

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        """Join along `axis`."""
        dims = list(parts[0].dims)
        for part in parts[1:]:
            dims[axis] = self.add(dims[axis], part.dims[axis])
        if len(parts) == 1:
            return parts[0]

        def work() -> Work:
            run = min(self.elements_in(part.dims[axis:]) for part in parts)
            runs = len(parts) * self.elements_in(dims[:axis])
            size = self.elements_in(dims) * parts[0].itemsize
            return cost_model.concat_work(len(parts), runs, size, single=run == 1)

        value = self.op("Concat", *(part.value for part in parts), axis=axis, work=work)
        return self.tensor(value, dims, parts[0].itemsize)

    def gather(self, x: Tensor, indices: Tensor, axis: int) -> Tensor:
        """Gather along `axis`; the dims of the indices replace it."""
        dims = (*x.dims[:axis], *indices.dims, *x.dims[axis + 1 :])
        work = self.copying("gather", x.dims[axis + 1 :], dims, x.itemsize)
        value = self.op("Gather", x.value, indices.value, axis=axis, work=work)
        return self.tensor(value, dims, x.itemsize)

    def gather_elements(self, x: Tensor, indices: ir.Value, count: Size) -> Tensor:
        """Gather `count` elements of a 1-D tensor, by 1-D indices."""
        work = self.copying("gather elements", [], [count], x.itemsize)
        value = self.op("GatherElements", x.value, indices, axis=0, work=work)
        return self.tensor(value, [count], x.itemsize)


def _are_same(some: Sequence[Size], others: Sequence[Size]) -> bool:
    return len(some) == len(others) and all(a == b for a, b in zip(some, others, strict=True))


def _same_places(x: Tensor, dims: Sequence[Size]) -> list[bool]:
    """Tell for each of `dims` whether `x` has it in the same place."""
    return [axis < x.rank and dim == x.dims[axis] for axis, dim in enumerate(dims)]


# Padding

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

#: Types of its kernels before it took its amounts as an input.
_OLD_PAD_TYPES = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE})

Pads = Sequence[tuple[Size, Size]]


def is_zero(pair: tuple[Size, Size]) -> bool:
    """Tell whether the amounts at both ends of an axis are known to be 0."""
    return pair[0] == 0 and pair[1] == 0


def has_pad_kernel(element_types: frozenset[int], opset: int) -> bool:
    """Tell whether one Pad is exact for all of `element_types`; true if none is known."""
    types = _PAD_TYPES | {TensorProto.BOOL} if opset >= 13 else _PAD_TYPES
    if opset < SINCE["inputs of Pad"]:
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
    written = emit.opset >= SINCE["inputs of Pad"] or len(literal) == len(amounts)
    if written and has_pad_kernel(element_types, emit.opset):
        source = x

        def work() -> Work:
            run = emit.elements_in(source.dims[padded[-1] :])
            size = emit.elements_in(dims) * source.itemsize
            return cost_model.copies("pad", emit.elements_in(source.dims) // max(run, 1), size)

        if emit.opset < SINCE["inputs of Pad"]:
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
        raise NewerOpsetError(what, SINCE["inputs of Pad"])
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
    left = [(emit.max(begin, 0), emit.max(end, 0)) for begin, end in pads]
    parts = [emit.inner_part(dim, *pair) for dim, pair in zip(x.dims, cut, strict=True)]
    return emit.slice(x, dict(enumerate(parts))), left


def filled(
    emit: Emitter,
    dims: Sequence[Size],
    element_type: int,
    value: npt.NDArray[np.generic] | None = None,
) -> ir.Value:
    """Return a tensor of zeros, or of another value, of any shape, empty ones included."""
    dtype = numpy_dtype(element_type)
    known = [d for d in dims if isinstance(d, int)]
    small = math.prod(known) <= LARGEST_CONSTANT and is_countable(known)
    if len(known) == len(dims) and small:
        return emit.constant(_filled_array(known, dtype, value), "zeros")
    shape = emit.vector(dims, "zeros_shape")
    if emit.opset < SINCE["ConstantOfShape"]:
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
    zero = ir.AttrTensor("value", ir.tensor(_filled_array([1], dtype, value)))
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


Numbers = npt.NDArray[np.int64]

# The index of a Gather of rows

#: Entries of an index that is stored as one constant (int32: 32 KiB).
MAX_STORED_ENTRIES = 1 << 13

#: Entries of an index, at most: runtimes hold it for as long as the model is loaded (64 MiB).
MAX_INDEX_ENTRIES = 1 << 24


@dataclass(frozen=True, eq=False)
class Term:
    """One axis of an index: entry i adds steps[i] * stride to the row number.

    Attributes:
        steps: the number of entries, whose steps are 0, step, 2 * step, ..; or their steps, computed in
            the run.
        stride: rows from one step to the next.
        step: see `steps`.
    """

    steps: Size | Tensor
    stride: Size
    step: int = 1

    @property
    def count(self) -> Size:
        """Number of entries."""
        return self.steps.dims[0] if isinstance(self.steps, Tensor) else self.steps

    @property
    def known(self) -> bool:
        """Whether count and stride are known."""
        return isinstance(self.steps, int) and isinstance(self.stride, int)

    def offsets(self) -> Numbers:
        """Return the summand of each entry of a known term."""
        assert isinstance(self.steps, int) and isinstance(self.stride, int)
        check_length(self.steps)
        return np.arange(self.steps, dtype=np.int64) * (self.step * self.stride)


def constant_index(emit: Emitter, axes: Sequence[Numbers], *, wide: bool = False) -> Tensor:
    """Return the flat index.

    Args:
        emit: collects the nodes.
        axes: summands of the row number for the entries of each axis, outermost first.
        wide: whether it must be int64.
    """
    lengths = [len(axis) for axis in axes]
    count = math.prod(lengths)
    check_length(count)
    largest = sum(int(axis.max(initial=0)) for axis in axes)
    dtype = np.int64 if wide or largest >= 2**31 else np.int32
    if count <= MAX_STORED_ENTRIES or len(axes) < 2:
        return emit.tensor(emit.constant(outer_sum(axes).astype(dtype), "rows"), [count])
    cut = min(range(1, len(axes)), key=lambda i: math.prod(lengths[:i]) + math.prod(lengths[i:]))
    column = emit.constant(outer_sum(axes[:cut]).astype(dtype)[:, None], "rows")
    row = emit.constant(outer_sum(axes[cut:]).astype(dtype)[None], "rows")
    dims = [math.prod(lengths[:cut]), math.prod(lengths[cut:])]
    return emit.reshape(emit.tensor(emit.op("Add", column, row), dims), [count])


def index(emit: Emitter, terms: Sequence[Term], *, wide: bool = False) -> Tensor:
    """Return the index: flat if it is a constant, else with one axis for each term, and int64."""
    counts = [term.count for term in terms if term.known and isinstance(term.count, int)]
    if len(counts) == len(terms) and math.prod(counts) <= MAX_INDEX_ENTRIES:
        return constant_index(emit, [term.offsets() for term in terms], wide=wide)
    return computed_index(emit, terms)


def computed_index(emit: Emitter, terms: Sequence[Term]) -> Tensor:
    """Return the index as int64 with one axis for each term that adds anything."""
    terms = [term for term in terms if term.count != 1] or terms[:1]
    dims = [term.count for term in terms]
    columns = [
        _emit_column(emit, term, [-1 if axis == place else 1 for axis in range(len(terms))])
        for place, term in enumerate(terms)
    ]
    total = columns[-1]
    for axis in reversed(range(len(dims) - 1)):  # the rows of each Add are as long as they can be
        work = emit.copying("crop", dims[axis + 1 :], dims[axis:], 8)
        total = emit.op("Add", columns[axis], total, work=work)
    return emit.tensor(total, dims)


def _emit_column(emit: Emitter, term: Term, column: list[int]) -> ir.Value:
    """Return the summands of a term in the shape `column`; the innermost ones may stay 1-D."""
    if term.known:
        return emit.constant(term.offsets().reshape(column), "rows")
    if isinstance(term.steps, Tensor):
        return emit.reshape_to(term.steps.value, column)
    if isinstance(term.stride, int):
        numbers = emit.range(term.count, max(1, term.step * term.stride))  # 0 where all is empty
    elif isinstance(term.count, int) and term.count <= LARGEST_CONSTANT:
        steps = np.arange(term.count, dtype=np.int64) * term.step
        return emit.op("Mul", emit.constant(steps.reshape(column), "steps"), emit.size(term.stride))
    else:
        numbers = emit.op("Mul", emit.range(term.count, term.step), emit.size(term.stride))
    return numbers if column[-1] == -1 else emit.reshape_to(numbers, column)


def check_length(count: int) -> None:
    """Refuse an index of more than LARGEST entries.

    Raises:
        ConversionError: it has more.
    """
    if count > MAX_INDEX_ENTRIES:
        raise ConversionError(f"it would take an index of {count} entries")


def outer_sum(axes: Iterable[Numbers]) -> Numbers:
    """Return every sum of one entry of each axis, the last axis fastest."""
    total = np.zeros(1, np.int64)
    for axis in axes:
        total = np.add.outer(total, axis).reshape(-1)
    return total
