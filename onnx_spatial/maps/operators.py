"""The maps of the spatial operators, from their definitions, independent of lowering.

SpaceToBatch    y[(r1*b2 + r2)*N + n, o1, o2, ..] = x[n, o1*b1 + r1 - p1, o2*b2 + r2 - p2, ..] or 0
BatchToSpace    y[n, y1, y2, ..] = x[(r1*b2 + r2)*N + n, o1, o2, ..],  o*b + r = y + crop
patches         y[n, o.., k*C + c] = x[n, o*s + k*r - p, c] or 0
Rearrange       y[c*h + i, j] = x[i*w + j, c]
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.division import exact
from onnx_spatial.maps.polynomial import ZERO, Index, Polynomial, flat, product, show
from onnx_spatial.maps.rules_numbers import div, maximum
from onnx_spatial.maps.rules_reshape import rearranged
from onnx_spatial.maps.rules_select import padded, window
from onnx_spatial.maps.tensor import Tensor, moved
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
    if kind in (SpaceToBatch, BatchToSpace):
        if x.rank <= len(parameters[0]):
            raise UndecidedError(f"{kind.__name__}: the rank of the data is too small")
        of_blocks = _space_to_batch if kind is SpaceToBatch else _batch_to_space
        return of_blocks(case, x, *parameters)
    if isinstance(operator, ExtractPatches):
        return _map_patches(case, operator, x)
    if isinstance(operator, ReorgYolo):
        return _map_reorg(case, operator, x)
    if isinstance(operator, Rearrange):
        return _map_rearrange(case, operator, x)
    raise UndecidedError(f"{kind.__name__} has no index map")


def _space_to_batch(case: Case, x: Tensor, block: Sizes, begins: Sizes, ends: Sizes) -> Tensor:
    sizes, images = {0: x.dims[0]}, [*range(-1, -len(block) - 1, -1), 0]
    pads = {}
    for axis, (b, begin, end) in enumerate(zip(block, begins, ends, strict=False), start=1):
        padded_size = x.dims[axis] + begin + end
        what = f"{show(padded_size)} is divisible by {show(b)}"
        sizes[axis], sizes[-axis] = case.divide(padded_size, b, what), b
        case.assume(sizes[axis] - 1)
        pads[axis] = (begin, end)
    spread, gathered = _block_factors(x, sizes, images)
    return rearranged(case, padded(case, x, pads), sizes, spread, gathered)


def _block_factors(
    x: Tensor, sizes: dict[int, Polynomial], images: list[int]
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the factors of the axes where blocks are in the images, and where they are in the batch.

    Axis a has the factors a, of its cells, and -a, of the offset in a cell.
    """
    axes = range(1, x.rank)
    sizes.update({axis: x.dims[axis] for axis in axes if axis not in sizes})
    spread = [[axis, -axis] if -axis in sizes else [axis] for axis in axes]
    return [[0], *spread], [images, *([axis] for axis in axes)]


def _batch_to_space(case: Case, x: Tensor, block: Sizes, begins: Sizes, ends: Sizes) -> Tensor:
    blocks = product(block)
    what = f"{show(x.dims[0])} is divisible by {show(blocks)}"
    sizes, images = {0: case.divide(x.dims[0], blocks, what)}, [*range(-1, -len(block) - 1, -1), 0]
    case.assume(sizes[0] - 1)
    windows = {}
    for axis, (b, begin, end) in enumerate(zip(block, begins, ends, strict=False), start=1):
        left = x.dims[axis] * b - begin - end
        _assume_rule(case, left - 1, f"{show(left)} is at least 1: the crops leave something")
        sizes[-axis], windows[axis] = b, (begin, left, 1)
    spread, gathered = _block_factors(x, sizes, images)
    return window(case, rearranged(case, x, sizes, gathered, spread), windows)


def _assume_rule(case: Case, p: Polynomial, what: str) -> None:
    """Assume that `p` is 0 or more; if it does not follow, `what` says it as a rule."""
    if not case.surely(p):
        case.assumptions[what] = None
        case.assume(p)


def _map_patches(case: Case, op: ExtractPatches, x: Tensor) -> Tensor:
    if x.rank != op.rank:
        raise UndecidedError(f"ExtractPatches: the data must have rank {op.rank}")
    spatial, kernel = list(op.spatial_axes), list(map(Polynomial.of, op.kernel))
    dims = list(x.dims)
    begins = []
    for number, axis in enumerate(spatial):
        dims[axis], begin = _count_windows(case, op, number, x.dims[axis])
        case.assume(dims[axis] - 1)
        begins.append(begin)

    def at(index: Index) -> Polynomial:
        source_index = list(index[: x.rank])
        for number, axis in enumerate(spatial):
            start = index[axis] * op.strides[number] - begins[number]
            element = start + index[x.rank + number] * op.rates[number]
            if not (case.decide(element) and case.decide(x.dims[axis] - 1 - element)):
                return ZERO
            source_index[axis] = element
        return x.at(tuple(source_index))

    windows = moved(x, case, [*dims, *kernel], at)
    inputs = [[axis] for axis in range(windows.rank)]
    outputs, places = inputs[: x.rank], list(range(x.rank, windows.rank))
    channel = [op.channel_axis]
    outputs[op.channel_axis] = places + channel if op.major == "place" else channel + places
    return rearranged(case, windows, dict(enumerate(windows.dims)), inputs, outputs)


def _count_windows(
    case: Case, op: ExtractPatches, number: int, size: Polynomial
) -> tuple[Polynomial, Polynomial]:
    """Return the number of windows along an axis, and the padding before it, which may be negative."""
    stride, extent = op.strides[number], op.extent(number)
    if op.auto_pad == "valid":
        # A window that does not fit gives no element, and is an error for TensorFlow.
        _assume_rule(case, size - extent, f"{show(size)} is at least {extent}: a window fits")
        return case.floor_div(size - extent + stride, Polynomial.of(stride)), ZERO
    windows = case.floor_div(size + (stride - 1), Polynomial.of(stride))
    total = (windows - 1) * stride + extent - size
    if op.auto_pad == "same_unclamped":
        return windows, div(case, total, Polynomial.of(2))
    total = maximum(case, [total, ZERO])
    odd = 1 if op.auto_pad == "same_lower" else 0
    return windows, case.floor_div(total + odd, Polynomial.of(2))


def _map_reorg(case: Case, op: ReorgYolo, x: Tensor) -> Tensor:
    n, c, h, w = x.dims
    s = Polynomial.of(op.stride)
    _assume_rule(case, c - s * s, f"{show(c)} is at least {show(s * s)}")
    rows = case.divide(h, s, f"{show(h)} is divisible by {show(s)}")
    columns = case.divide(w, s, f"{show(w)} is divisible by {show(s)}")
    dims = [n, c * s * s, rows, columns]
    images = case.floor_div(c, s * s)
    case.assume(images - 1)

    def at(index: Index) -> Polynomial:
        # From the output's dims to those of x, in the order of memory.
        batch, channel, row, column = case.digits_of(flat(index, dims), x.dims)
        down, right, image = case.digits_of(channel, [s, s, images])
        source = flat([batch, image, row, down, column, right], [n, images, h, s, w, s])
        # By definition: channels beyond a multiple continue in memory.
        case.assume(source)
        case.assume(n * c * h * w - 1 - source)
        return x.at(tuple(case.digits_of(source, x.dims)))

    whole = exact(c, s * s)
    order = [n, c, h, w] if whole is None else [n, s, s, whole, h, w]
    return Tensor(case, dims, at, whole=x.whole, type=x.type, order=order)


def _map_rearrange(case: Case, op: Rearrange, x: Tensor) -> Tensor:
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
    return rearranged(case, x, dict(enumerate(sizes)), op.inputs, op.outputs)


class CaseArithmetic:
    """Arithmetic on polynomials of a case, see `operators.Arithmetic`."""

    def __init__(self, case: Case) -> None:
        self._case = case

    add = staticmethod(operator.add)
    sub = staticmethod(operator.sub)
    mul = staticmethod(operator.mul)

    @staticmethod
    def polynomial(a: Polynomial | int) -> Polynomial:
        """Return a size as a polynomial."""
        return Polynomial.of(a) if isinstance(a, int) else a

    def div(self, a: Polynomial | int, b: Polynomial | int) -> Polynomial:
        """Return a // b."""
        return self._case.floor_div(self.polynomial(a), self.polynomial(b))

    def max(self, a: Polynomial | int, b: Polynomial | int) -> Polynomial:
        """Return the larger of two sizes."""
        return maximum(self._case, [self.polynomial(a), self.polynomial(b)])

    def product(self, sizes: Sequence[Polynomial | int]) -> Polynomial:
        """Return the product of sizes."""
        return product([self.polynomial(size) for size in sizes])
