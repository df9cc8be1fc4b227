"""The maps of matrix products, convolutions and pools, as sums of products or functions of windows.

    MatMul      y[i, j] = sum of a[i, k] * b[k, j]  over k
    Conv        y[n, m, o] = sum of w[m, c, k] * x[n, g*C/G + c, o*s + k*d - p]  over c and k
    MaxPool     y[n, c, o] = function of x[n, c, o*s + k*d - p], k, and the number of k

An element of x beyond the border is 0, or what the pool pads with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from onnx import TensorProto

from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.division import exact
from onnx_spatial.maps.elements import (
    broadcast_element,
    copied_digits,
    digits,
    element,
    finite,
    flat,
    indices_of,
    lengths,
    need_list,
    sum_of_products,
)
from onnx_spatial.maps.expressions import ONE, ZERO, Index, product, unknown
from onnx_spatial.maps.node import NodeView, Rule, broadcast, number
from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.maps.rules_numbers import maximum
from onnx_spatial.maps.rules_reshape import transposed
from onnx_spatial.maps.tensor import Axis, Tensor, moved, only_dims
from onnx_spatial.model import op_traits


def _matmul(case: Case, node: NodeView) -> list[Tensor]:
    a, b = node.input(0), node.input(1)
    if a.rank < 2 or b.rank < 2:
        raise UndecidedError(f"{node.op_type} of a vector has no index map")
    batch = broadcast(case, [a.dims[:-2], b.dims[:-2]], legal=node.legal)
    return [_product(case, node, a, b, batch, None)]


def _gemm(case: Case, node: NodeView) -> list[Tensor]:
    a, b = node.input(0), node.input(1)
    if a.rank != 2 or b.rank != 2 or node.get("alpha", 1.0) != 1.0:
        raise UndecidedError("Gemm with alpha has no index map")
    a = transposed(case, a, [1, 0]) if node.get("transA", 0) else a
    b = transposed(case, b, [1, 0]) if node.get("transB", 0) else b
    added = node.optional(2)
    if added is not None and node.get("beta", 1.0) != 1.0:
        raise UndecidedError("Gemm with beta has no index map")
    return [_product(case, node, a, b, (), added)]


def _product(
    case: Case,
    node: NodeView,
    a: Tensor,
    b: Tensor,
    batch: Sequence[Polynomial],
    added: Tensor | None,
) -> Tensor:
    node.need_equal(case, a.dims[-1], b.dims[-2], f"{node.op_type}: the inner dims may differ")
    first, second = digits(case, a, a.rank - 1), digits(case, b, b.rank - 2)
    extents = first if len(first) >= len(second) else second
    dims = [*batch, a.dims[-2], b.dims[-1]]
    if added is not None:
        whole = broadcast(case, [tuple(dims), added.dims])
        if list(whole) != dims:
            raise UndecidedError(f"{node.op_type}: the summand is larger than the product")

    def at(index: Index) -> Polynomial:
        def left(indices: Sequence[Polynomial]) -> Polynomial:
            return _broadcast_outer(case, a, (*index[:-1], flat(indices, extents)))

        def right(indices: Sequence[Polynomial]) -> Polynomial:
            return _broadcast_outer(case, b, (*index[:-2], flat(indices, extents), index[-1]))

        more = None if added is None else broadcast_element(added, case, index)
        return sum_of_products(case, extents, right, left, more)

    axes = [*(Axis([d]) for d in batch), a.axes[-2], b.axes[-1]]
    if a.rank == len(dims) and a.dims[:-1] == tuple(dims[:-1]):
        axes = [*a.axes[:-1], b.axes[-1]]
    return Tensor(case, dims, at, whole=False, type=a.type, axes=axes)


def _einsum(case: Case, node: NodeView) -> list[Tensor]:
    """Return the map of an Einsum of two operands, each of which has a letter at most once."""
    left, arrow, result = node.get("equation", b"").decode().replace(" ", "").partition("->")
    terms = left.split(",")
    letters = left.replace(",", "")
    if not arrow:
        result = "".join(sorted(letter for letter in letters if letters.count(letter) == 1))
    inputs = node.inputs()
    if len(inputs) != 2 or len(terms) != 2 or "." in left:
        raise UndecidedError("only an Einsum of two operands without ellipsis has an index map")
    sizes: dict[str, Polynomial] = {}
    for term, tensor in zip(terms, inputs, strict=True):
        if len(set(term)) != len(term) or len(term) != tensor.rank:
            raise UndecidedError("Einsum: a letter occurs twice, or the ranks do not fit")
        for letter, dim in zip(term, tensor.dims, strict=True):
            known = sizes.setdefault(letter, dim)
            node.need_equal(case, known, dim, "Einsum: two sizes of a letter may differ")
    if not set(result) <= sizes.keys() or len(set(result)) != len(result):
        raise UndecidedError("Einsum: the letters of the result do not fit")
    summed = [letter for letter in sizes if letter not in result]
    extents = [sizes[letter] for letter in summed]

    def at(index: Index) -> Polynomial:
        def factor(number: int, indices: Sequence[Polynomial]) -> Polynomial:
            place = dict(zip(result, index, strict=True)) | dict(zip(summed, indices, strict=True))
            return element(inputs[number], case, tuple(place[letter] for letter in terms[number]))

        return sum_of_products(case, extents, partial(factor, 1), partial(factor, 0), None)

    dims = [sizes[letter] for letter in result]
    axis_of = {
        letter: axis
        for term, tensor in zip(terms, inputs, strict=True)
        for letter, axis in zip(term, tensor.axes, strict=True)
    }
    axes = [axis_of[letter] for letter in result]
    return [Tensor(case, dims, at, whole=False, type=inputs[0].type, axes=axes)]


def _broadcast_outer(case: Case, x: Tensor, index: Index) -> Polynomial:
    """Return an element of a factor, whose last two axes are not broadcast."""
    tail = index[len(index) - x.rank :]
    outer = [ZERO if d == ONE else i for i, d in zip(tail[:-2], x.dims, strict=False)]
    return element(x, case, (*outer, *tail[-2:]))


class _Windows:
    """The windows of a convolution or pool along the spatial axes of [N, C, spatial..]."""

    def __init__(self, case: Case, node: NodeView, x: Tensor, kernel: Sequence[int]) -> None:
        count = len(kernel)
        if x.rank != count + 2:
            raise UndecidedError(f"{node.op_type}: the ranks of data and kernel do not match")
        self._case = case
        self._x = x
        self.kernel = [Polynomial.of(k) for k in kernel]
        self._strides = node.get("strides", [1] * count)
        self._dilations = node.get("dilations", [1] * count)
        self._begins: list[Callable[[], Polynomial]] = []
        self.dims: list[Polynomial] = []
        self.axes: list[Axis] = []
        auto = node.get("auto_pad", b"NOTSET").decode()
        pads = node.get("pads", [0] * 2 * count) if auto == "NOTSET" else [0] * 2 * count
        steps = [*self._strides, *self._dilations]
        if min([*steps, *kernel]) < 1 or len(steps) != 2 * count:
            raise UndecidedError(f"{node.op_type}: strides or dilations are invalid")
        if min([*pads, 0]) < 0 or len(pads) != 2 * count:
            raise UndecidedError(f"{node.op_type}: negative pads have no index map")
        for axis in range(count):
            size, stride = x.dims[axis + 2], Polynomial.of(self._strides[axis])
            extent = (kernel[axis] - 1) * self._dilations[axis] + 1
            if auto in ("SAME_UPPER", "SAME_LOWER"):
                dim = case.size(partial(_number_of_windows, case, node, size - 1, stride))
                total = (dim - 1) * stride + extent - size
                begin = partial(_same_begin, case, total, lower=auto == "SAME_LOWER")
            elif auto not in ("NOTSET", "VALID"):
                raise UndecidedError(f"{node.op_type} with auto_pad {auto} has no index map")
            else:
                room = size + pads[axis] + pads[axis + count] - extent
                node.need(case, room, f"{node.op_type}: the kernel may be larger than the data")
                dim = case.size(partial(_number_of_windows, case, node, room, stride))
                begin = partial(Polynomial.of, pads[axis])
            self._begins.append(begin)
            self.dims.append(dim)
            self.axes.append(x.axes[axis + 2] if dim == size else Axis([dim]))

    def at(self, index: Index, places: Sequence[Polynomial], channel: Polynomial) -> Index | None:
        """Return the index in the data for a place in a window; None in the padding."""
        source_index = [index[0], channel]
        for axis, place in enumerate(places):
            start = index[axis + 2] * self._strides[axis] - self._begins[axis]()
            element = start + place * self._dilations[axis]
            last = self._x.dims[axis + 2] - 1
            if not (self._case.decide(element) and self._case.decide(last - element)):
                return None
            source_index.append(element)
        return tuple(source_index)


def _same_begin(case: Case, total: Polynomial, *, lower: bool) -> Polynomial:
    """Return the padding before the data of auto_pad SAME, for a total that may be negative."""
    total = maximum(case, [total, ZERO])
    return case.floor_div(total + int(lower), Polynomial.of(2))


def _number_of_windows(
    case: Case, node: NodeView, room: Polynomial, stride: Polynomial
) -> Polynomial:
    """Return how many windows fit in an axis that is longer than one of them by `room`."""
    if node.get("ceil_mode", 0) and stride != ONE:  # runtimes disagree on windows in the padding
        raise UndecidedError(f"{node.op_type}: ceil_mode has no index map")
    return case.floor_div(room, stride) + 1


#: Inputs that may have one element for each output channel, apart from the bias.
_PER_CHANNEL = {"Conv": (), "ConvInteger": (3,), "QLinearConv": (4, 5)}


def _conv(case: Case, node: NodeView) -> list[Tensor]:
    place = op_traits.OPERATORS[node.op_type].weight
    assert place is not None
    x, weight = node.input(0), node.input(place)
    kernel = node.get("kernel_shape", [d.constant for d in weight.dims[2:]])
    if weight.rank < 3 or None in kernel:
        raise UndecidedError(f"{node.op_type}: the shape of the kernel is unknown")
    for dim, size in zip(weight.dims[2:], map(Polynomial.of, kernel), strict=True):
        node.need_equal(case, dim, size, f"{node.op_type}: kernel_shape may differ from the weight")
    windows = _Windows(case, node, x, kernel)
    groups = Polynomial.of(node.get("group", 1))
    if not case.surely(groups - 1):
        raise UndecidedError(f"{node.op_type}: the number of groups is invalid")
    outputs, channels = weight.dims[:2]
    group_size = exact(outputs, groups)
    if group_size is None:
        raise UndecidedError(f"{node.op_type}: the groups may not divide the output channels")
    node.need_equal(case, x.dims[1], channels * groups, f"{node.op_type}: the channels may differ")
    channel_digits = digits(case, x, 1) if groups == ONE and x.dims[1] == channels else [channels]
    extents = [*windows.kernel, *channel_digits]
    count = len(windows.kernel)
    bias = node.optional(2 if node.op_type == "Conv" else 8)
    if bias is not None:
        need_list(case, node, bias, outputs)
    # Scales and zero points: one number, or one for each output channel of the kernel.
    others = [(i, node.optional(i)) for i in (1, 2, 3, 4, 5, 6, 7) if i != place]
    parameters = [(i, t) for i, t in others if t is not None and node.op_type != "Conv"]
    for i, t in parameters:
        if product(t.dims) != ONE:
            if i not in _PER_CHANNEL[node.op_type]:
                raise UndecidedError(f"{node.op_type}: a parameter has more than one element")
            need_list(case, node, t, outputs)
    zero = None if node.op_type == "Conv" else node.optional(2)
    types = {"Conv": x.type, "ConvInteger": int(TensorProto.INT32)}
    point = node.optional(7)
    element_type = types.get(node.op_type, 0 if point is None else point.type)

    def parameter(t: Tensor, channel: Polynomial) -> Polynomial:
        return element(t, case, tuple(ZERO if d == ONE else channel for d in t.dims))

    def factor_of(output: Polynomial, indices: Sequence[Polynomial]) -> Polynomial:
        return element(
            weight, case, (output, flat(indices[count:], channel_digits), *indices[:count])
        )

    def at(index: Index) -> Polynomial:
        group = case.floor_div(index[1], group_size) if groups != ONE else ZERO
        factor_at = partial(factor_of, index[1])

        def data_at(indices: Sequence[Polynomial]) -> Polynomial:
            channel = flat(indices[count:], channel_digits) + group * channels
            source = windows.at(index, indices[:count], channel)
            if source is not None:
                return element(x, case, source)
            if not finite(case, factor_at(indices)):  # 0 times infinity, where zeros are explicit
                raise UndecidedError(f"{node.op_type}: a weight may be infinite or NaN")
            return ZERO if zero is None else parameter(zero, ZERO)

        added = None if bias is None else parameter(bias, index[1])
        if node.op_type == "Conv":
            return sum_of_products(case, extents, factor_at, data_at, added)
        indices = indices_of(case, extents)
        with case.within(sums=1):
            row = [factor_at(indices), data_at(indices)]
        row += [parameter(t, index[1]) for _, t in parameters]
        row += [] if added is None else [added]
        details = (added is None, element_type, *(i for i, _ in parameters))
        return unknown(node.op_type, details, (*row, *lengths(extents)))

    copied = copied_digits(case, outputs, extents, factor_of)
    axes = [x.axes[0], Axis(copied), *windows.axes]
    dims = [x.dims[0], outputs, *windows.dims]
    return [Tensor(case, dims, at, whole=False, type=element_type, axes=axes)]


def copying_conv(case: Case, node: NodeView, channels: int, order: Sequence[int]) -> Tensor:
    """Return the map of a Conv each of whose output channels copies one element of the window.

    Args:
        case: the case.
        node: the Conv, with its kernel_shape; only its data is read.
        channels: number of input channels.
        order: what an output channel counts, the slowest first: axes of the kernel, and the input
            channels as the number behind them.
    """
    x = node.input(0)
    windows = _Windows(case, node, x, node.get("kernel_shape", []))
    node.need_equal(case, x.dims[1], Polynomial.of(channels), "Conv: the channels may differ")
    extents = [*windows.kernel, Polynomial.of(channels)]

    def at(index: Index) -> Polynomial:
        rest, places = index[1], [ZERO] * len(extents)
        for digit in reversed(order):
            quotient = case.floor_div(rest, extents[digit])
            places[digit] = rest - quotient * extents[digit]
            rest = quotient
        source = windows.at(index, places[:-1], places[-1])
        return ZERO if source is None else x.at(source)

    digits = Axis([extents[digit] for digit in order])
    axes = [x.axes[0], digits, *windows.axes]
    dims = [x.dims[0], product(extents), *windows.dims]
    return moved(x, case, dims, at, axes)


def _conv_transpose(case: Case, node: NodeView) -> list[Tensor]:
    """Return the map of a ConvTranspose with stride 1: y[o] = sum of w[k] * x[o + pad - k*d] over k."""
    x, weight, bias = node.input(0), node.input(1), node.optional(2)
    count = x.rank - 2
    kernel = node.get("kernel_shape", [d.constant for d in weight.dims[2:]])
    strides, dilations = (node.get(name, [1] * count) for name in ("strides", "dilations"))
    auto = node.get("auto_pad", b"NOTSET")
    pads = node.get("pads", [0] * 2 * count) if auto == b"NOTSET" else [0] * 2 * count
    added = node.get("output_padding", [0] * count)
    lengths_fit = {len(kernel), len(strides), len(dilations), len(added)} == {count}
    if None in kernel or min([*kernel, *strides, *dilations, 1]) < 1:
        raise UndecidedError("ConvTranspose: the shape of the kernel is unknown")
    if not lengths_fit or len(pads) != 2 * count or min([*pads, 0]) < 0:
        raise UndecidedError("ConvTranspose: its attributes do not fit the rank of the data")
    for dim, size in zip(weight.dims[2:], map(Polynomial.of, kernel), strict=True):
        node.need_equal(case, dim, size, "ConvTranspose: kernel_shape may differ from the weight")
    groups = Polynomial.of(node.get("group", 1))
    group_size = weight.dims[1]
    outputs = group_size * groups
    dims = [x.dims[0], outputs]
    for axis in range(count):
        ends = (kernel[axis] - 1) * dilations[axis] - pads[axis] - pads[axis + count] + added[axis]
        size = (x.dims[axis + 2] - 1) * strides[axis] + 1 + ends
        dims.append(case.size(partial(_explicit, node, size)))
    if auto != b"NOTSET" or max([*strides, *(a + 1 for a in added)]) > 1:
        reason = "ConvTranspose with strides, output_padding or auto_pad has no index map"
        return [only_dims(case, dims, reason, x.type)]
    channels = exact(weight.dims[0], groups)
    if not case.surely(groups - 1) or channels is None:
        raise UndecidedError("ConvTranspose: the groups may not divide the channels")
    node.need_equal(case, x.dims[1], weight.dims[0], "ConvTranspose: the channels may differ")
    channel_digits = digits(case, x, 1) if groups == ONE else [channels]
    if bias is not None:
        need_list(case, node, bias, outputs)
    extents = [*map(Polynomial.of, kernel), *channel_digits]
    for size in dims[2:]:
        node.need(case, size - 1, "ConvTranspose: its result may be empty")

    def at(index: Index) -> Polynomial:
        group = case.floor_div(index[1], group_size) if groups != ONE else ZERO

        def factor_at(indices: Sequence[Polynomial]) -> Polynomial:
            channel = flat(indices[count:], channel_digits) + group * channels
            return element(weight, case, (channel, index[1] - group * group_size, *indices[:count]))

        def data_at(indices: Sequence[Polynomial]) -> Polynomial:
            source = [index[0], flat(indices[count:], channel_digits) + group * channels]
            for axis in range(count):
                place = index[axis + 2] + pads[axis] - indices[axis] * dilations[axis]
                if not (case.decide(place) and case.decide(x.dims[axis + 2] - 1 - place)):
                    if not finite(case, factor_at(indices)):  # as in _conv
                        raise UndecidedError("ConvTranspose: a weight may be infinite or NaN")
                    return ZERO
                source.append(place)
            return element(x, case, tuple(source))

        added = None if bias is None else element(bias, case, (index[1],))
        return sum_of_products(case, extents, factor_at, data_at, added)

    axes = [x.axes[0], Axis([outputs])]
    axes += [x.axes[a] if dims[a] == x.dims[a] else Axis([dims[a]]) for a in range(2, x.rank)]
    return [Tensor(case, dims, at, whole=False, type=x.type, axes=axes)]


def _explicit(node: NodeView, size: Polynomial) -> Polynomial:
    """Return the size behind a ConvTranspose that follows from its strides and pads."""
    if node.has("output_shape") or node.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        raise UndecidedError("ConvTranspose with output_shape or auto_pad has no index map")
    return size


#: What a pool makes of attributes is in its windows, and in the elements beyond the border.
_OF_WINDOWS = (
    *("strides", "dilations", "pads", "auto_pad", "kernel_shape"),
    *("ceil_mode", "count_include_pad", "storage_order"),
)
_REALS: dict[int, type[np.floating[Any]]] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.FLOAT16: np.float16,
}


def _pool(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    windows = _Windows(case, node, x, node.get("kernel_shape", []))
    details = node.details(*_OF_WINDOWS)
    outside = Polynomial.atom("outside")
    if node.op_type == "LpPool" or node.get("count_include_pad", 0):
        outside = ZERO
    elif node.op_type == "MaxPool" and x.type in _REALS:
        outside = number(_REALS[x.type](-np.inf))
    # A mean of all elements of the windows is a sum of products with one number.
    pads = node.get("pads", [0])
    whole = node.get("count_include_pad", 0) or not (any(pads) or node.has("auto_pad"))
    is_sum = node.op_type == "AveragePool" and whole and x.type in _REALS
    count = product(windows.kernel).constant

    def at(index: Index) -> Polynomial:
        def data_at(indices: Sequence[Polynomial]) -> Polynomial:
            source = windows.at(index, indices, index[1])
            return outside if source is None else element(x, case, source)

        if is_sum and count:
            share = number(_REALS[x.type](1 / count))
            return sum_of_products(case, windows.kernel, lambda _: share, data_at, None)
        indices = indices_of(case, windows.kernel)
        with case.within(sums=1):
            data = data_at(indices)
        if data == ZERO and all(k == ONE for k in windows.kernel):
            return ZERO
        return unknown(node.op_type, details, (data, *indices, *windows.kernel))

    axes = [*x.axes[:2], *windows.axes]
    dims = [*x.dims[:2], *windows.dims]
    return [Tensor(case, dims, at, whole=False, type=x.type, axes=axes)]


RULES: dict[str, Rule] = {
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": _matmul,
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pool),
    **dict.fromkeys(("Conv", "ConvInteger", "QLinearConv"), _conv),
    "ConvTranspose": _conv_transpose,
}
