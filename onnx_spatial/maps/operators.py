"""The maps of the spatial operators, from their definitions, independent of lowering.

SpaceToBatch    y[(r1*b2 + r2)*N + n, o1, o2, ..] = x[n, o1*b1 + r1 - p1, o2*b2 + r2 - p2, ..] or 0
BatchToSpace    y[n, y1, y2, ..] = x[(r1*b2 + r2)*N + n, o1, o2, ..],  o*b + r = y + crop
patches         y[n, o.., k*C + c] = x[n, o*s + k*r - p, c] or 0
Rearrange       y[c*h + i, j] = x[i*w + j, c]
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.division import exact
from onnx_spatial.maps.expressions import ZERO, Index, product, show
from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.maps.rules_numbers import div, maximum
from onnx_spatial.maps.tensor import Axis, Tensor, moved
from onnx_spatial.operators import (
    BatchToSpace,
    ExtractPatches,
    Operator,
    Rearrange,
    ReorgYolo,
    SpaceToBatch,
)

Sizes = Sequence[Polynomial]


def apply(
    case: Case, kind: type[Operator], operator: Operator | None, x: Tensor, *parameters: Sizes
) -> Tensor:
    """Return the map of the output of a spatial operator.

    Args:
        case: the case.
        kind: the operator.
        operator: the operator with its attributes, if its parameters are attributes.
        x: the map of its data.
        parameters: block, begins and ends of SpaceToBatch and BatchToSpace.

    Raises:
        UndecidedError: there is no map of this operator.
    """
    if kind is SpaceToBatch:
        return _space_to_batch(case, x, *parameters)
    if kind is BatchToSpace:
        return _batch_to_space(case, x, *parameters)
    if isinstance(operator, ExtractPatches):
        return _patches(case, operator, x)
    if isinstance(operator, ReorgYolo):
        return _reorg(case, operator, x)
    if isinstance(operator, Rearrange):
        return _rearrange(case, operator, x)
    raise UndecidedError(f"{kind.__name__} has no index map")


def _digits(case: Case, number: Polynomial, block: Sizes) -> tuple[list[Polynomial], Polynomial]:
    """Return the digits of a number whose last extents are `block`, and the leading part."""
    digits = []
    for b in reversed(block):
        quotient = case.floor_div(number, b)
        digits.append(number - quotient * b)
        number = quotient
    return digits[::-1], number


def _space_to_batch(case: Case, x: Tensor, block: Sizes, begins: Sizes, ends: Sizes) -> Tensor:
    count = len(block)
    if x.rank <= count:
        raise UndecidedError("SpaceToBatch: the rank of the data is too small")
    images = x.dims[0]
    dims = [images * product(block)]
    for size, b, begin, end in zip(x.dims[1:], block, begins, ends, strict=False):
        padded = size + begin + end
        cells = case.divide(padded, b, f"{show(padded)} is divisible by {show(b)}")
        dims.append(cells)
        case.assume(cells - 1)
    dims += x.dims[1 + count :]

    def at(index: Index) -> Polynomial:
        place = case.floor_div(index[0], images)
        offsets, _ = _digits(case, place, block)
        source_index = [index[0] - place * images]
        for axis in range(count):
            element = index[axis + 1] * block[axis] + offsets[axis] - begins[axis]
            if not (case.decide(element) and case.decide(x.dims[axis + 1] - 1 - element)):
                return ZERO
            source_index.append(element)
        return x.at((*source_index, *index[1 + count :]))

    axes = [Axis([*block, images]), *(Axis([d]) for d in dims[1:])]
    return moved(x, case, dims, at, axes)


def _batch_to_space(case: Case, x: Tensor, block: Sizes, begins: Sizes, ends: Sizes) -> Tensor:
    count = len(block)
    if x.rank <= count:
        raise UndecidedError("BatchToSpace: the rank of the data is too small")
    blocks = product(block)
    images = case.divide(x.dims[0], blocks, f"{show(x.dims[0])} is divisible by {show(blocks)}")
    case.assume(images - 1)
    dims, axes = [images], [Axis([images])]
    for size, b, begin, end in zip(x.dims[1:], block, begins, ends, strict=False):
        left = size * b - begin - end
        if not case.surely(left - 1):
            case.assumptions[f"{show(left)} is at least 1: the crops leave something"] = None
            case.assume(left - 1)
        dims.append(left)
        axes.append(Axis([size, b], begin, left))
    dims += x.dims[1 + count :]
    axes += x.axes[1 + count :]

    def at(index: Index) -> Polynomial:
        place, cells = ZERO, []
        for axis in range(count):
            element = index[axis + 1] + begins[axis]
            cell = case.floor_div(element, block[axis])
            cells.append(cell)
            place = place * block[axis] + (element - cell * block[axis])
        return x.at((place * images + index[0], *cells, *index[1 + count :]))

    return moved(x, case, dims, at, axes)


def _patches(case: Case, op: ExtractPatches, x: Tensor) -> Tensor:
    if x.rank != op.rank:
        raise UndecidedError(f"ExtractPatches: the data must have rank {op.rank}")
    spatial, channels = list(op.spatial_axes), x.dims[op.channel_axis]
    dims = list(x.dims)
    begins = []
    for number, axis in enumerate(spatial):
        windows, begin = _windows(case, op, number, x.dims[axis])
        case.assume(windows - 1)
        dims[axis] = windows
        begins.append(begin)
    kernel = [Polynomial.of(k) for k in op.kernel]
    dims[op.channel_axis] = product(kernel) * channels
    axes = [Axis([d]) for d in dims]
    by_place = op.major == "place"
    axes[op.channel_axis] = Axis([*kernel, channels] if by_place else [channels, *kernel])
    inner = channels if by_place else product(kernel)

    def at(index: Index) -> Polynomial:
        outer = case.floor_div(index[op.channel_axis], inner)
        rest = index[op.channel_axis] - outer * inner
        place, channel = (outer, rest) if by_place else (rest, outer)
        offsets, _ = _digits(case, place, kernel)
        source_index = list(index)
        source_index[op.channel_axis] = channel
        for number, axis in enumerate(spatial):
            start = index[axis] * op.strides[number] - begins[number]
            element = start + offsets[number] * op.rates[number]
            if not (case.decide(element) and case.decide(x.dims[axis] - 1 - element)):
                return ZERO
            source_index[axis] = element
        return x.at(tuple(source_index))

    return moved(x, case, dims, at, axes)


def _windows(
    case: Case, op: ExtractPatches, number: int, size: Polynomial
) -> tuple[Polynomial, Polynomial]:
    """Return the number of windows along an axis, and the padding before it, which may be negative."""
    stride, extent = op.strides[number], op.extent(number)
    if op.auto_pad == "valid":
        # A window that does not fit gives no element, and is an error for TensorFlow.
        if not case.surely(size - extent):
            case.assumptions[f"{show(size)} is at least {extent}: a window fits"] = None
            case.assume(size - extent)
        return case.floor_div(size - extent + stride, Polynomial.of(stride)), ZERO
    windows = case.floor_div(size + (stride - 1), Polynomial.of(stride))
    total = (windows - 1) * stride + extent - size
    if op.auto_pad == "same_unclamped":
        return windows, div(case, total, Polynomial.of(2))
    total = maximum(case, [total, ZERO])
    odd = 1 if op.auto_pad == "same_lower" else 0
    return windows, case.floor_div(total + odd, Polynomial.of(2))


def _reorg(case: Case, op: ReorgYolo, x: Tensor) -> Tensor:
    n, c, h, w = x.dims
    s = Polynomial.of(op.stride)
    if not case.surely(c - s * s):
        case.assumptions[f"{show(c)} is at least {show(s * s)}"] = None
        case.assume(c - s * s)
    rows = case.divide(h, s, f"{show(h)} is divisible by {show(s)}")
    columns = case.divide(w, s, f"{show(w)} is divisible by {show(s)}")
    dims = [n, c * s * s, rows, columns]
    images = case.floor_div(c, s * s)
    case.assume(images - 1)

    def at(index: Index) -> Polynomial:
        # From the output's dims to those of x, in the order of memory.
        flat = ((index[0] * dims[1] + index[1]) * rows + index[2]) * columns + index[3]
        places = []
        for size in (w, h, c):
            quotient = case.floor_div(flat, size)
            places.append(flat - quotient * size)
            flat = quotient
        column, row, channel = places
        offset = case.floor_div(channel, images)
        image = channel - offset * images
        down = case.floor_div(offset, s)
        right = offset - down * s
        source = ((flat * images + image) * h * s + row * s + down) * w * s + column * s + right
        # By definition: channels beyond a multiple continue in memory.
        case.assume(source)
        case.assume(n * c * h * w - 1 - source)
        source_index = []
        for size in (w, h, c):
            quotient = case.floor_div(source, size)
            source_index.append(source - quotient * size)
            source = quotient
        return x.at((source, *reversed(source_index)))

    whole = exact(c, s * s)
    order = [n, c, h, w] if whole is None else [n, s, s, whole, h, w]
    return Tensor(case, dims, at, whole=x.whole, type=x.type, order=order)


def _rearrange(case: Case, op: Rearrange, x: Tensor) -> Tensor:
    if x.rank != op.rank:
        raise UndecidedError(f"Rearrange: the data must have rank {op.rank}")
    sizes = [Polynomial.of(size) for size in op.sizes]
    for axis, dim in enumerate(x.dims):
        known, factor = Polynomial.of(op.multiple(axis)), op.unknown(axis)
        if factor is None:
            case.require_equal(dim, known, f"{show(dim)} differs from {show(known)}")
        else:
            sizes[factor] = case.divide(dim, known, f"{show(dim)} is divisible by {show(known)}")
            case.assume(sizes[factor] - 1)
    dims = [product([sizes[f] for f in axis]) for axis in op.outputs]

    def at(index: Index) -> Polynomial:
        places: dict[int, Polynomial] = {}
        for axis, number in zip(op.outputs, index, strict=True):
            for factor in reversed(axis):
                quotient = ZERO if factor == axis[0] else case.floor_div(number, sizes[factor])
                places[factor] = number - quotient * sizes[factor]
                number = quotient
        source_index = []
        for axis in op.inputs:
            place = ZERO
            for factor in axis:
                place = place * sizes[factor] + places[factor]
            source_index.append(place)
        return x.at(tuple(source_index))

    axes = [Axis([sizes[f] for f in axis]) for axis in op.outputs]
    return moved(x, case, dims, at, axes)


class CaseArithmetic:
    """Arithmetic on polynomials of a case, see `operators.Arithmetic`."""

    def __init__(self, case: Case) -> None:
        self._case = case

    @staticmethod
    def polynomial(a: Polynomial | int) -> Polynomial:
        """Return a size as a polynomial."""
        return Polynomial.of(a) if isinstance(a, int) else a

    def add(self, a: Polynomial | int, b: Polynomial | int) -> Polynomial:
        """Return a + b."""
        return self.polynomial(a) + self.polynomial(b)

    def sub(self, a: Polynomial | int, b: Polynomial | int) -> Polynomial:
        """Return a - b."""
        return self.polynomial(a) - self.polynomial(b)

    def mul(self, a: Polynomial | int, b: Polynomial | int) -> Polynomial:
        """Return a * b."""
        return self.polynomial(a) * self.polynomial(b)

    def div(self, a: Polynomial | int, b: Polynomial | int) -> Polynomial:
        """Return a // b."""
        return self._case.floor_div(self.polynomial(a), self.polynomial(b))

    def max(self, a: Polynomial | int, b: Polynomial | int) -> Polynomial:
        """Return the larger of two sizes."""
        return maximum(self._case, [self.polynomial(a), self.polynomial(b)])

    def product(self, sizes: Sequence[Polynomial | int]) -> Polynomial:
        """Return the product of sizes."""
        return product([self.polynomial(size) for size in sizes])
