"""The maps of matrix products, convolutions and pools, as sums of products or functions of windows.

    MatMul      y[i, j] = sum of a[i, k] * b[k, j]  over k
    Conv        y[n, m, o] = sum of w[m, c, k] * x[n, g*C/G + c, o*s + k*d - p]  over c and k
    MaxPool     y[n, c, o] = function of x[n, c, o*s + k*d - p], k, and the number of k

An element of x beyond the border is 0, or what the pool pads with. What onnxruntime writes in optimised
files is what its standard operators are, applied one after the other:

    FusedConv      activation(Conv(x, w, b) + z)
    FusedMatMul    MatMul(a', b')        a' and b' may be transposed
    FusedGemm      activation(Gemm(a, b, c))
    QuickGelu      x * Sigmoid(alpha * x)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from onnx import TensorProto

from onnx_spatial.maps import rules_elements
from onnx_spatial.maps.cases import Case, IllegalError, UndecidedError
from onnx_spatial.maps.division import exact
from onnx_spatial.maps.elements import (
    FINITE_DATA,
    Array,
    broadcast_element,
    canonical_extents,
    constant,
    digits,
    element,
    finite,
    indices_of,
    need_list,
    places_of,
    read,
    stored_in,
    sum_of_products,
)
from onnx_spatial.maps.node import NodeView, Rule, broadcast, number
from onnx_spatial.maps.polynomial import ONE, ZERO, Index, Polynomial, flat, product, unknown
from onnx_spatial.maps.rules_numbers import maximum
from onnx_spatial.maps.rules_reshape import rearranged, transposed
from onnx_spatial.maps.tensor import Axis, Tensor, moved, only_dims
from onnx_spatial.maps.values import MAX_PLACES
from onnx_spatial.model import op_traits


def _map_matmul(case: Case, node: NodeView) -> list[Tensor]:
    a, b = node.input(0), node.input(1)
    node.check(a.rank >= 2 and b.rank >= 2, "a vector")
    batch = broadcast(case, [a.dims[:-2], b.dims[:-2]], legal=node.legal)
    count = len(batch)
    terms = [[*range(count + 2 - x.rank, count), *"ikj"[i : i + 2]] for i, x in enumerate((a, b))]
    return [_map_contraction(case, node, terms, [*range(count), "i", "j"], dict(enumerate(batch)))]


def _map_gemm(case: Case, node: NodeView) -> list[Tensor]:
    a, b, added = node.input(0), node.input(1), node.optional(2)
    node.check(a.rank == b.rank == 2, "another rank than 2")
    beta = 1.0 if added is None else node.get("beta", 1.0)
    node.check(node.get("alpha", 1.0) == beta == 1.0, "alpha or beta")
    terms = ["ki" if node.get("transA", 0) else "ik", "jk" if node.get("transB", 0) else "kj"]
    return [_map_contraction(case, node, terms, "ij", {}, added)]


def _map_einsum(case: Case, node: NodeView) -> list[Tensor]:
    """Return the map of an Einsum of two operands, each of which has a letter at most once."""
    left, arrow, result = node.get("equation", b"").decode().replace(" ", "").partition("->")
    terms = left.split(",")
    letters = left.replace(",", "")
    if not arrow:
        result = "".join(sorted(letter for letter in letters if letters.count(letter) == 1))
    node.check(len(terms) == node.count == 2 and "." not in left, "anything but two operands")
    node.check(all(len(set(t)) == len(t) for t in (*terms, result)), "a letter that occurs twice")
    node.check(set(result) <= set(letters), "a letter of the result alone")
    return [_map_contraction(case, node, terms, result, {})]


def _map_contraction(
    case: Case,
    node: NodeView,
    terms: Sequence[Sequence[Hashable]],
    result: Sequence[Hashable],
    sizes: dict[Hashable, Polynomial],
    added: Tensor | None = None,
) -> Tensor:
    """Return the sum of a[..] * b[..] over the labels that the result lacks, plus a summand.

    Args:
        case: the case.
        node: the operator; its first two inputs are the operands.
        terms: labels of the axes of each operand.
        result: labels of the axes of the result.
        sizes: of the labels whose axes are broadcast.
        added: the summand.
    """
    inputs, batch = [node.input(0), node.input(1)], set(sizes)
    axis_of: dict[Hashable, Axis] = {}
    extents_of: dict[Hashable, list[Polynomial]] = {}
    for term, x in zip(terms, inputs, strict=True):
        node.check(len(term) == x.rank, "an operand of another rank")
        for place, (label, dim) in enumerate(zip(term, x.dims, strict=True)):
            size = sizes.setdefault(label, dim)
            if label not in batch:
                node.need_equal(case, size, dim, f"{node.op_type}: the inner dims may differ")
            if label not in batch or size == dim:
                axis_of.setdefault(label, x.axes[place])
            found = digits(case, x, place)
            extents_of[label] = max(extents_of.get(label, []), found, key=len)
    summed = [label for label in sizes if label not in result]
    extents = [extent for label in summed for extent in extents_of[label]]
    dims = tuple(sizes[label] for label in result)
    if added is not None:
        node.check(broadcast(case, [dims, added.dims]) == dims, "a summand that is larger")

    def at(index: Index) -> Polynomial:
        def factor(number: int, indices: Sequence[Polynomial]) -> Polynomial:
            place, rest = dict(zip(result, index, strict=True)), list(indices)
            for label in summed:
                own = extents_of[label]
                place[label] = flat(rest[: len(own)], own)
                del rest[: len(own)]
            source = tuple(place[label] for label in terms[number])
            return broadcast_element(inputs[number], case, source)

        more = None if added is None else broadcast_element(added, case, index)
        return sum_of_products(case, extents, partial(factor, 1), partial(factor, 0), more)

    axes = [axis_of.get(label) or Axis([sizes[label]]) for label in result]
    return Tensor(case, dims, at, whole=False, type=inputs[0].type, axes=axes)


class _Windows:
    """The windows of a convolution or pool along the spatial axes of [N, C, spatial..].

        y[.., o, ..] reads  x[.., o*stride + place*dilation - begin, ..]

    Those of a ConvTranspose have stride 1, begin and dilation below 0, and elements that lie its strides
    apart: others are 0.

    Attributes:
        kernel: number of places along each axis.
        dims: number of windows along each axis.
        axes: their digits.
        is_known: whether elements are known, and not the dims alone.
    """

    def __init__(self, case: Case, node: NodeView, x: Tensor, kernel: Sequence[int]) -> None:
        count = len(kernel)
        if x.rank != count + 2:
            raise IllegalError(f"{node.op_type}: the ranks of data and kernel do not match")
        self._case, self._x = case, x
        self.kernel = [Polynomial.of(k) for k in kernel]
        self._strides, self._dilations = (
            list(node.get(name, [1] * count)) for name in ("strides", "dilations")
        )
        self._begins: list[Callable[[], Polynomial]] = []
        self.dims: list[Polynomial] = []
        self.is_known, self._apart = True, [1] * count
        auto = node.get("auto_pad", b"NOTSET").decode()
        node.check(auto == "NOTSET" or not node.has("pads") or node.legal, "pads are given twice")
        pads = node.get("pads", [0] * 2 * count) if auto == "NOTSET" else [0] * 2 * count
        steps = [*self._strides, *self._dilations]
        fits = min([*steps, *kernel]) >= 1 and len(steps) == len(pads) == 2 * count
        node.check(fits and min(pads) >= 0, "strides, dilations or pads have no index map")
        if node.op_type == "ConvTranspose":
            self._transpose(node, pads)
        for axis in range(len(self.dims), count):
            size, stride = x.dims[axis + 2], Polynomial.of(self._strides[axis])
            extent = (kernel[axis] - 1) * self._dilations[axis] + 1
            if auto in ("SAME_UPPER", "SAME_LOWER"):
                dim = case.size(partial(_number_of_windows, case, node, size - 1, stride))
                total = (dim - 1) * stride + extent - size
                begin = partial(_same_begin, case, total, lower=auto == "SAME_LOWER")
            else:
                node.check(auto in ("NOTSET", "VALID"), f"auto_pad {auto} has no index map")
                room = size + pads[axis] + pads[axis + count] - extent
                node.need(case, room, f"{node.op_type}: the kernel may be larger than the data")
                dim = case.size(partial(_number_of_windows, case, node, room, stride))
                begin = partial(Polynomial.of, pads[axis])
            self._begins.append(begin)
            self.dims.append(dim)
        pairs = zip(self.dims, x.dims[2:], x.axes[2:], strict=True)
        self.axes = [axis if dim == size else Axis([dim]) for dim, size, axis in pairs]

    def _transpose(self, node: NodeView, pads: Sequence[int]) -> None:
        """Take the windows for those of a ConvTranspose: y[o] = sum of w[k] * x[o + pad - k*d]."""
        count = len(self.kernel)
        added = node.get("output_padding", [0] * count)
        node.check(len(added) == count, "output_padding does not fit the rank of the data")
        for axis, (kernel, size) in enumerate(zip(self.kernel, self._x.dims[2:], strict=True)):
            ends = (kernel - 1) * self._dilations[axis] - pads[axis] - pads[axis + count]
            dim = (size - 1) * self._strides[axis] + 1 + ends + added[axis]
            self.dims.append(self._case.size(partial(_explicit_size, node, dim)))
            self._begins.append(partial(Polynomial.of, -pads[axis]))
        self.is_known = node.get("auto_pad", b"NOTSET") == b"NOTSET"
        self._apart, self._strides = self._strides, [1] * count
        self._dilations = [-dilation for dilation in self._dilations]
        for dim in self.dims if self.is_known else ():
            node.need(self._case, dim - 1, "ConvTranspose: its result may be empty")

    def at(self, index: Index, places: Sequence[Polynomial], channel: Polynomial) -> Index | None:
        """Return the index in the data for a place in a window; None in the padding."""
        source_index = [index[0], channel]
        for axis, place in enumerate(places):
            start = index[axis + 2] * self._strides[axis] - self._begins[axis]()
            element = start + place * self._dilations[axis]
            last = self._x.dims[axis + 2] - 1
            if self._apart[axis] > 1:
                quotient = self._case.floor_div(element, Polynomial.of(self._apart[axis]))
                if not self._case.is_zero(element - quotient * self._apart[axis]):
                    return None
                element = quotient
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
    # Runtimes disagree on windows in the padding.
    node.check(not node.get("ceil_mode", 0) or stride == ONE, "ceil_mode has no index map")
    return case.floor_div(room, stride) + 1


def _explicit_size(node: NodeView, size: Polynomial) -> Polynomial:
    """Return the size behind a ConvTranspose that follows from its strides and pads."""
    explicit = node.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID")
    node.check(explicit and not node.has("output_shape"), "output_shape has no index map")
    return size


#: Inputs that may have one element for each output channel, apart from the bias.
_PER_CHANNEL = {"Conv": (), "ConvTranspose": (), "ConvInteger": (3,), "QLinearConv": (4, 5)}


def _map_conv(case: Case, node: NodeView) -> list[Tensor]:
    place = op_traits.OPERATORS[node.op_type].weight
    assert place is not None
    x, weight = node.input(0), node.input(place)
    is_transposed = node.op_type == "ConvTranspose"
    is_quantized = node.op_type not in ("Conv", "ConvTranspose")
    kernel = node.get("kernel_shape", [d.constant for d in weight.dims[2:]])
    node.check(weight.rank >= 3 and None not in kernel, "the shape of the kernel is unknown")
    for dim, size in zip(weight.dims[2:], map(Polynomial.of, kernel), strict=True):
        node.need_equal(case, dim, size, f"{node.op_type}: kernel_shape may differ from the weight")
    windows = _Windows(case, node, x, kernel)
    groups = Polynomial.of(node.get("group", 1))
    node.check(case.surely(groups - 1), "the number of groups is invalid")
    # The groups cut the first axis of the weight: outputs, and inputs of a ConvTranspose.
    of_group = exact(weight.dims[0], groups)
    if of_group is None:
        raise UndecidedError(f"{node.op_type}: the groups may not divide the channels")
    group_size, channels = (of_group, weight.dims[1])[:: -1 if is_transposed else 1]
    outputs = group_size * groups
    dims = [x.dims[0], outputs, *windows.dims]
    if not windows.is_known:
        reason = "ConvTranspose with auto_pad has no index map"
        return [only_dims(case, dims, reason, x.type)]
    node.need_equal(case, x.dims[1], channels * groups, f"{node.op_type}: the channels may differ")
    channel_digits = digits(case, x, 1) if groups == ONE and x.dims[1] == channels else [channels]
    extents = [*windows.kernel, *channel_digits]
    count = len(windows.kernel)
    bias = node.optional(8 if is_quantized else 2)
    if bias is not None:
        need_list(case, node, bias, outputs)
    # Scales and zero points: one number, or one for each output channel of the kernel.
    others = [(i, node.optional(i)) for i in (1, 2, 3, 4, 5, 6, 7) if i != place]
    parameters = [(i, t) for i, t in others if t is not None and is_quantized]
    for i, t in parameters:
        if product(t.dims) != ONE:
            node.check(i in _PER_CHANNEL[node.op_type], "a parameter has more than one element")
            need_list(case, node, t, outputs)
    zero = node.optional(2) if is_quantized else None
    point = node.optional(7)
    element_type = 0 if point is None else point.type
    if node.op_type != "QLinearConv":
        element_type = int(TensorProto.INT32) if is_quantized else x.type
    order = _copied_order(case, node, weight, bias) if case.copies else None
    if order is not None:
        case.assumptions[FINITE_DATA] = None
        return [_map_copying(case, x, windows, channels * groups, order)]

    def parameter(t: Tensor, channel: Polynomial) -> Polynomial:
        return element(t, case, tuple(ZERO if d == ONE else channel for d in t.dims))

    def at(index: Index) -> Polynomial:
        group = case.floor_div(index[1], group_size) if groups != ONE else ZERO

        def factor_at(indices: Sequence[Polynomial]) -> Polynomial:
            row = (index[1], flat(indices[count:], channel_digits))
            if is_transposed:
                row = (row[1] + group * channels, row[0] - group * group_size)
            return element(weight, case, (*row, *indices[:count]))

        def data_at(indices: Sequence[Polynomial]) -> Polynomial:
            channel = flat(indices[count:], channel_digits) + group * channels
            source = windows.at(index, indices[:count], channel)
            if source is not None:
                return element(x, case, source)
            # 0 times infinity, where zeros are explicit.
            node.check(finite(case, factor_at(indices)), "a weight may be infinite or NaN")
            return ZERO if zero is None else parameter(zero, ZERO)

        added = None if bias is None else parameter(bias, index[1])
        if not is_quantized:
            return sum_of_products(case, extents, factor_at, data_at, added)
        indices = indices_of(case, extents)
        with case.within(sums=1):
            row = [factor_at(indices), data_at(indices)]
        row += [parameter(t, index[1]) for _, t in parameters]
        row += [] if added is None else [added]
        details = (added is None, element_type, *(i for i, _ in parameters))
        return unknown(node.op_type, details, (*row, *canonical_extents(extents)))

    axes = [x.axes[0], Axis([outputs]), *windows.axes]
    return [Tensor(case, dims, at, whole=False, type=element_type, axes=axes)]


# One-hot convolutions


def copied_order(weight: Array, group: int) -> tuple[int, ...] | None:
    """Return what the output channels of a kernel count if each copies an element of the window.

    Args:
        weight: the kernel, with one output channel for each element of the window.
        group: number of groups.

    Returns:
        Axes of the kernel, and the input channels as the number behind them, the slowest first; None
        if not all copy: then a weight is neither 0 nor 1, or the elements are in no such order.
    """
    outputs, each, *kernel = weight.shape
    flat = weight.reshape(outputs, -1)
    rows, columns = np.nonzero(flat)
    if len(rows) != outputs or (rows != np.arange(outputs)).any():
        return None
    if not (flat[rows, columns].astype(np.float64) == 1).all():
        return None
    places, channels = math.prod(kernel), each * group
    channel = columns // places + np.arange(outputs) // (outputs // group) * each
    copied = columns % places * channels + channel
    grid = np.arange(outputs).reshape(*kernel, channels)
    for order in itertools.permutations(range(grid.ndim)):
        if (grid.transpose(order).reshape(-1) == copied).all():
            return order
    return None


def _copied_order(
    case: Case, node: NodeView, weight: Tensor, bias: Tensor | None
) -> tuple[int, ...] | None:
    group = node.get("group", 1)
    sizes = [d.constant or 0 for d in weight.dims]
    whole = sizes[0] == math.prod(sizes[1:]) * group and 0 < math.prod(sizes) <= MAX_PLACES
    if node.op_type != "Conv" or not whole:
        return None
    index = [case.index(f"w{axis}", dim) for axis, dim in enumerate(weight.dims)]
    if bias is not None and element(bias, case, (index[0],)) != ZERO:
        return None
    p = element(weight, case, tuple(index))
    stored = stored_in(p)
    if stored is None or stored.array.dtype.kind != "f":
        return None
    grid = {
        i.lone_atom: values.reshape(-1)
        for i, values in zip(index, np.indices(sizes), strict=True)
        if i.lone_atom is not None
    }
    values = read(stored.array, places_of(p), grid)
    if values is None or len(values) != math.prod(sizes):
        return None
    return copied_order(values.reshape(sizes), group)


def copying_conv(case: Case, node: NodeView, channels: int, order: Sequence[int]) -> Tensor:
    """Return the map of a Conv each of whose output channels copies one element of the window.

    Args:
        case: the case.
        node: the Conv, with its kernel_shape; only its data is read.
        channels: number of input channels.
        order: what an output channel counts, see `copied_order`.
    """
    x, known = node.input(0), Polynomial.of(channels)
    node.need_equal(case, x.dims[1], known, "Conv: the channels may differ")
    windows = _Windows(case, node, x, node.get("kernel_shape", []))
    return _map_copying(case, x, windows, known, order)


def _map_copying(
    case: Case, x: Tensor, windows: _Windows, channels: Polynomial, order: Sequence[int]
) -> Tensor:
    extents = [*windows.kernel, channels]

    def at(index: Index) -> Polynomial:
        source = windows.at(index, index[windows_end:-1], index[-1])
        return ZERO if source is None else x.at(source)

    windows_end = len(windows.kernel) + 2
    dims = [x.dims[0], ONE, *windows.dims, *extents]
    axes = [x.axes[0], Axis([ONE]), *windows.axes, *(Axis([e]) for e in extents)]
    every = moved(x, case, dims, at, axes)
    places = range(windows_end, len(dims))
    inputs = [[axis] for axis in range(len(dims))]
    outputs = [[0], [places[digit] for digit in order], *inputs[2:windows_end]]
    inputs[1] = []
    return rearranged(case, every, dict(enumerate(dims)), inputs, outputs)


#: What a pool makes of attributes is in its windows, and in the elements beyond the border.
_OF_WINDOWS = (
    *("strides", "dilations", "pads", "auto_pad", "kernel_shape"),
    *("ceil_mode", "count_include_pad", "storage_order"),
)
_REALS: dict[int, type[np.floating[Any]]] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.FLOAT16: np.float16,
}


def _map_pool(case: Case, node: NodeView) -> list[Tensor]:
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
    "Einsum": _map_einsum,
    "Gemm": _map_gemm,
    "MatMul": _map_matmul,
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _map_pool),
    **dict.fromkeys(("Conv", "ConvInteger", "ConvTranspose", "QLinearConv"), _map_conv),
}


_RULES = rules_elements.RULES | RULES

#: Activations, with their attributes in the order of activation_params.
_PARAMETERS = {
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    **dict.fromkeys(("Relu", "Sigmoid", "Tanh"), ()),
}


_OF_CONV = frozenset(
    "activation activation_params auto_pad dilations group kernel_shape pads strides".split()
)
_OF_GEMM = frozenset(
    "activation activation_alpha activation_beta activation_gamma alpha beta transA transB".split()
)
_OF_MATMUL = frozenset("alpha transA transB transBatchA transBatchB".split())


def _apply(
    case: Case,
    node: NodeView,
    op_type: str,
    *inputs: Tensor | None,
    attributes: Mapping[str, Any] | None = None,
) -> Tensor:
    """Return the map of a standard operator that a node consists of."""
    view = NodeView(op_type, attributes or {}, inputs, [f"{node.name}.{op_type}"], legal=node.legal)
    return _RULES[op_type](case, view)[0]


def _check_kernel(node: NodeView, most_inputs: int, attributes: frozenset[str]) -> None:
    """Require what onnxruntime's kernels take: floats, and nothing that they do not know."""
    fits = node.count <= most_inputs and len(node.outputs) == 1 and attributes >= {*node.attributes}
    node.check(fits, "an input, an output or an attribute too many")
    node.check(node.input(0).type == TensorProto.FLOAT, "another type than float has no kernel")


def _attributes_apart(node: NodeView, *names: str) -> dict[str, Any]:
    """Return the attributes of the standard operator of a node, apart from those of the fusion."""
    return {k: v for k, v in node.attributes.items() if k not in names}


def _activate_elements(case: Case, node: NodeView, x: Tensor, values: list[float]) -> Tensor:
    name = node.get("activation", b"").decode()
    if not name:
        return x
    if name == "Clip" and len(values) == 2 and values[0] <= values[1]:
        bounds = [constant(case, np.array(v, np.float32)) for v in values]
        return _apply(case, node, "Clip", x, *bounds)
    known = name in _PARAMETERS and len(values) == len(_PARAMETERS[name])
    node.check(known, f"the activation {name} has no index map")
    return _apply(case, node, name, x, attributes=dict(zip(_PARAMETERS[name], values, strict=True)))


def _fused_conv(case: Case, node: NodeView) -> list[Tensor]:
    _check_kernel(node, 4, _OF_CONV)
    inputs = [node.optional(i) for i in range(3)]
    attributes = _attributes_apart(node, "activation", "activation_params")
    y = _apply(case, node, "Conv", *inputs, attributes=attributes)
    summand = node.optional(3)
    if summand is not None:  # onnxruntime broadcasts nothing here
        node.check(summand.rank == y.rank, "a summand of another rank has no index map")
        for a, b in zip(summand.dims, y.dims, strict=True):
            node.need_equal(case, a, b, f"{node.op_type}: the dims of the summand may differ")
        y = _apply(case, node, "Add", y, summand)
    return [_activate_elements(case, node, y, list(node.get("activation_params", [])))]


def _fused_gemm(case: Case, node: NodeView) -> list[Tensor]:
    _check_kernel(node, 3, _OF_GEMM)
    names = ["activation", "activation_alpha", "activation_beta", "activation_gamma"]
    values = [node.attributes[name] for name in names[1:] if node.has(name)]
    inputs = [node.optional(i) for i in range(3)]
    y = _apply(case, node, "Gemm", *inputs, attributes=_attributes_apart(node, *names))
    return [_activate_elements(case, node, y, values)]


def _fused_matmul(case: Case, node: NodeView) -> list[Tensor]:
    _check_kernel(node, 2, _OF_MATMUL)
    plain = node.get("alpha", 1.0) == 1.0
    plain = plain and not node.get("transBatchA", 0) and not node.get("transBatchB", 0)
    node.check(plain, "alpha or a transposed batch has no index map")
    sides = []
    for x, name in ((node.input(0), "transA"), (node.input(1), "transB")):
        node.check(x.rank >= 2, "a vector has no index map")
        order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        sides.append(transposed(case, x, order) if node.get(name, 0) else x)
    return [_apply(case, node, "MatMul", *sides)]


def _quick_gelu(case: Case, node: NodeView) -> list[Tensor]:
    _check_kernel(node, 1, frozenset({"alpha"}))
    x, alpha = node.input(0), node.get("alpha", np.float32(1.702))
    scaled = _apply(case, node, "Mul", x, constant(case, np.array(alpha, np.float32)))
    return [_apply(case, node, "Mul", x, _apply(case, node, "Sigmoid", scaled))]


#: The domain of onnxruntime's own operators.
DOMAIN = "com.microsoft"

FUSED_RULES: dict[str, Rule] = {
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "QuickGelu": _quick_gelu,
}
