"""The maps of operators that compute with elements: convolutions, products, and everything elementwise.

An element that is computed is an atom: an unknown function of the elements that it is computed of. A
sum over channels and places of a kernel holds the two factors of one product, at indices that take all
values:

    y[n, m, o] = sum of w[m, c, k] * x[n, g*C/G + c, o*s + k*d - p]  over c and k, x is 0 outside

Two sums are equal if, for all values of these indices, the factors are. So the indices are named by what
both sides have in common: how many sums enclose them, and the extents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from onnx_spatial.index_map import rules_numbers
from onnx_spatial.index_map.cases import Case, UndecidedError
from onnx_spatial.index_map.constants import stored_in
from onnx_spatial.index_map.expressions import ONE, ZERO, Index, product
from onnx_spatial.index_map.node import NodeView
from onnx_spatial.index_map.rules_movement import (
    axes_of,
    broadcast,
    broadcast_at,
    transposed,
)
from onnx_spatial.index_map.rules_numbers import unknown
from onnx_spatial.index_map.tensor import Axis, Tensor
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.model.symbolic.polynomial import OperationKey, Polynomial

_Rule = Callable[[Case, NodeView], Sequence[Tensor]]

#: The operator of the atoms for sums of products; the first two operands are the factors.
PRODUCTS = "Products"

#: Atoms whose operands may be swapped.
COMMUTATIVE = frozenset({"op:Add", "op:Mul"})

_TRUTHS = op_traits.having(Trait.TRUTH)
_KEEP_ZERO = op_traits.having(Trait.KEEPS_ZERO)


# Elements


def _element(x: Tensor, case: Case, index: Index) -> Polynomial:
    """Return an element that is only compared."""
    with case.within(opaque=x.whole):
        return x.at(index)


def _broadcast_element(x: Tensor, case: Case, index: Index) -> Polynomial:
    with case.within(opaque=x.whole):
        return broadcast_at(x, index)


def _details(node: NodeView, *apart: str) -> tuple[object, ...]:
    """Return the attributes of a node, by value, apart from some."""
    kept = {k: v for k, v in node.attributes.items() if k not in apart}
    return tuple(sorted((k, _plain(v)) for k, v in kept.items()))


def _plain(value: Any) -> str:
    return repr(value.SerializeToString() if hasattr(value, "SerializeToString") else value)


# Sums


def _digits(case: Case, x: Tensor, axis: int) -> list[Polynomial]:
    """Return the extents of the digits of an axis, the axis itself if they do not explain it."""
    digits = x.axes[axis]
    if digits.covers(x.dims[axis]):
        return [e for e in digits.extents if e != ONE]
    return [x.dims[axis]]


def _indices(case: Case, extents: Sequence[Polynomial]) -> list[Polynomial]:
    """Return indices that take all values below some extents: the same ones for the same extents."""
    seen: Counter[Polynomial] = Counter()
    indices = []
    for extent in extents:
        text = extent.constant if extent.constant is not None else repr(extent)
        indices.append(case.index(f"k{case.context[0]}.{text}.{seen[extent]}", extent))
        seen[extent] += 1
    return indices


def _lengths(extents: Sequence[Polynomial]) -> list[Polynomial]:
    """Return the lengths of a sum along its indices, in an order that does not matter."""
    return sorted((e for e in extents if e != ONE), key=lambda e: (e.constant or 0, repr(e)))


def _flat(indices: Sequence[Polynomial], extents: Sequence[Polynomial]) -> Polynomial:
    place = ZERO
    for index, extent in zip(indices, extents, strict=True):
        place = place * extent + index
    return place


def _sum(
    factor: Polynomial,
    data: Polynomial,
    extents: Sequence[Polynomial],
    added: Polynomial | None,
) -> Polynomial:
    """Return a sum of products along indices of some extents, and what is added to it."""
    key = OperationKey(PRODUCTS, (), (factor, data, *_lengths(extents)))
    total = Polynomial.atom(key)
    return total if added is None else unknown("Add", (False, False), (total, added))


def _finite(case: Case, weight: Polynomial) -> bool:
    """Tell whether a factor makes 0 of 0; of one that is not a constant it is assumed."""
    stored = stored_in(weight)
    if stored is not None:
        return stored.finite
    case.assumptions["weights are finite"] = None
    return True


class _Windows:
    """The windows of a convolution or pool along the spatial axes of [N, C, spatial..]."""

    def __init__(self, case: Case, node: NodeView, x: Tensor, kernel: Sequence[int]) -> None:
        count = len(kernel)
        if x.rank != count + 2:
            raise UndecidedError(f"{node.op_type}: kernel and image have different ranks")
        self._case = case
        self._x = x
        self.kernel = [Polynomial.of(k) for k in kernel]
        self._strides = node.get("strides", [1] * count)
        self._dilations = node.get("dilations", [1] * count)
        self._begins: list[Polynomial] = []
        self.dims: list[Polynomial] = []
        self.axes: list[Axis] = []
        auto = node.get("auto_pad", b"NOTSET").decode()
        pads = node.get("pads", [0] * 2 * count) if auto == "NOTSET" else [0] * 2 * count
        steps = [*self._strides, *self._dilations]
        if min([*steps, *kernel]) < 1 or len(steps) != 2 * count:
            raise UndecidedError(f"{node.op_type}: its strides or dilations are not legal")
        if min([*pads, 0]) < 0 or len(pads) != 2 * count or node.get("ceil_mode", 0):
            raise UndecidedError(f"{node.op_type}: pads or rounding that are not followed")
        for number in range(count):
            size, stride = x.dims[number + 2], self._strides[number]
            extent = (kernel[number] - 1) * self._dilations[number] + 1
            begin, end = (Polynomial.of(p) for p in (pads[number], pads[number + count]))
            if auto.startswith("SAME"):
                begin, end = _same(case, size, stride, extent, lower=auto == "SAME_LOWER")
            elif auto not in ("NOTSET", "VALID"):
                raise UndecidedError(f"{node.op_type}: auto_pad {auto}")
            room = size + begin + end - extent
            node.need(case, room, f"{node.op_type}: the room of a window")
            dim = case.floor_div(room, Polynomial.of(stride)) + 1
            self._begins.append(begin)
            self.dims.append(dim)
            self.axes.append(x.axes[number + 2] if dim == size else Axis([dim]))

    def at(self, index: Index, places: Sequence[Polynomial], channel: Polynomial) -> Index | None:
        """Return the place of the image at a place of a window; None outside."""
        moved = [index[0], channel]
        for number, place in enumerate(places):
            start = index[number + 2] * self._strides[number] - self._begins[number]
            element = start + place * self._dilations[number]
            last = self._x.dims[number + 2] - 1
            if not (self._case.decide(element) and self._case.decide(last - element)):
                return None
            moved.append(element)
        return tuple(moved)


def _same(
    case: Case, size: Polynomial, stride: int, extent: int, *, lower: bool
) -> tuple[Polynomial, Polynomial]:
    """Return the pads of auto_pad SAME."""
    total = Polynomial.of(extent - 1)
    if stride != 1:
        windows = case.floor_div(size + (stride - 1), Polynomial.of(stride))
        total = rules_numbers.maximum(case, [(windows - 1) * stride + extent - size, ZERO])
    begin = case.floor_div(total + int(lower), Polynomial.of(2))
    return begin, total - begin


def _conv(case: Case, node: NodeView) -> list[Tensor]:
    place = op_traits.OPERATORS[node.op_type].weight
    assert place is not None
    x, weight = node.input(0), node.input(place)
    kernel = [d.constant for d in weight.dims[2:]]
    if weight.rank < 3 or any(k is None for k in kernel):
        raise UndecidedError(f"{node.op_type}: the size of the kernel is not known")
    sizes = [k for k in kernel if k is not None]
    if node.get("kernel_shape", sizes) != sizes:
        raise UndecidedError(f"{node.op_type}: kernel_shape is not the shape of the kernel")
    windows = _Windows(case, node, x, sizes)
    groups = Polynomial.of(node.get("group", 1))
    if not case.surely(groups - 1):
        raise UndecidedError(f"{node.op_type}: the number of groups is not legal")
    outputs, channels = weight.dims[:2]
    each = case.exact(outputs, groups)
    if each is None:
        raise UndecidedError(f"{node.op_type}: its groups may not divide the channels")
    node.need_equal(case, x.dims[1], channels * groups, f"{node.op_type}: the channels")
    own = _digits(case, x, 1) if groups == ONE and x.dims[1] == channels else [channels]
    extents = [*windows.kernel, *own]
    count = len(windows.kernel)
    bias = node.optional(2 if node.op_type == "Conv" else 8)
    # Scales and zero points: one number, or one for each output channel of the kernel.
    others = [(i, node.optional(i)) for i in (1, 2, 3, 4, 5, 6, 7) if i != place]
    parameters = [(i, t) for i, t in others if t is not None and node.op_type != "Conv"]
    zero = None if node.op_type == "Conv" else node.optional(2)

    for t in (bias, *(t for _, t in parameters)):
        if t is not None and product(t.dims) != ONE:
            (size,) = t.dims
            node.need_equal(case, size, outputs, f"{node.op_type}: the channels of a parameter")

    def parameter(t: Tensor, channel: Polynomial) -> Polynomial:
        return _element(t, case, tuple(ZERO if d == ONE else channel for d in t.dims))

    def at(index: Index) -> Polynomial:
        group = case.floor_div(index[1], each) if groups != ONE else ZERO
        indices = _indices(case, extents)
        channel = _flat(indices[count:], own)
        source = windows.at(index, indices[:count], channel + group * channels)
        with case.within(sums=1):
            factor = _element(weight, case, (index[1], channel, *indices[:count]))
            if source is not None:
                data = _element(x, case, source)
            else:
                data = ZERO if zero is None else parameter(zero, ZERO)
                if not _finite(case, factor):  # 0 times infinity, where zeros are explicit
                    raise UndecidedError(f"{node.op_type}: a weight is not finite")
        added = None if bias is None else parameter(bias, index[1])
        if node.op_type == "Conv":
            return _sum(factor, data, extents, added)
        row = [parameter(t, index[1]) for _, t in parameters]
        row += [] if added is None else [added]
        details = (added is None, *(i for i, _ in parameters))
        return unknown(node.op_type, details, (factor, data, *row, *_lengths(extents)))

    axes = [x.axes[0], Axis([outputs]), *windows.axes]
    dims = [x.dims[0], outputs, *windows.dims]
    types = {"Conv": x.type, "ConvInteger": int(TensorProto.INT32)}
    point = node.optional(7)
    element_type = types.get(node.op_type, 0 if point is None else point.type)
    return [Tensor(case, dims, at, whole=False, type=element_type, axes=axes)]


def _pool(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    windows = _Windows(case, node, x, node.get("kernel_shape", []))
    details = _details(node, "strides", "dilations", "pads", "auto_pad", "kernel_shape")
    outside = Polynomial.atom("outside")

    def at(index: Index) -> Polynomial:
        indices = _indices(case, windows.kernel)
        source = windows.at(index, indices, index[1])
        with case.within(sums=1):
            data = outside if source is None else _element(x, case, source)
        return unknown(node.op_type, details, (data, *indices, *windows.kernel))

    axes = [*x.axes[:2], *windows.axes]
    dims = [*x.dims[:2], *windows.dims]
    return [Tensor(case, dims, at, whole=False, type=x.type, axes=axes)]


def _matmul(case: Case, node: NodeView) -> list[Tensor]:
    a, b = node.input(0), node.input(1)
    if a.rank < 2 or b.rank < 2:
        raise UndecidedError(f"{node.op_type} of a vector is not followed")
    batch = node.broadcast(case, [a.dims[:-2], b.dims[:-2]])
    return [_product(case, node, a, b, batch, None)]


def _gemm(case: Case, node: NodeView) -> list[Tensor]:
    a, b = node.input(0), node.input(1)
    if a.rank != 2 or b.rank != 2 or node.get("alpha", 1.0) != 1.0:
        raise UndecidedError("Gemm with alpha, or not of matrices")
    a = transposed(case, a, [1, 0]) if node.get("transA", 0) else a
    b = transposed(case, b, [1, 0]) if node.get("transB", 0) else b
    added = node.optional(2)
    if added is not None and node.get("beta", 1.0) != 1.0:
        raise UndecidedError("Gemm with beta")
    return [_product(case, node, a, b, (), added)]


def _product(
    case: Case,
    node: NodeView,
    a: Tensor,
    b: Tensor,
    batch: Sequence[Polynomial],
    added: Tensor | None,
) -> Tensor:
    node.need_equal(case, a.dims[-1], b.dims[-2], f"{node.op_type}: the length of the sums")
    first, second = _digits(case, a, a.rank - 1), _digits(case, b, b.rank - 2)
    extents = first if len(first) >= len(second) else second
    dims = [*batch, a.dims[-2], b.dims[-1]]
    if added is not None:
        whole = broadcast(case, [tuple(dims), added.dims])
        if list(whole) != dims:
            raise UndecidedError(f"{node.op_type}: what it adds is larger than the product")

    def at(index: Index) -> Polynomial:
        indices = _indices(case, extents)
        place = _flat(indices, extents)
        with case.within(sums=1):
            data = _broadcast_outer(case, a, (*index[:-1], place))
            factor = _broadcast_outer(case, b, (*index[:-2], place, index[-1]))
        if stored_in(data) is not None and stored_in(factor) is None:
            data, factor = factor, data
        more = None if added is None else _broadcast_element(added, case, index)
        return _sum(factor, data, extents, more)

    axes = [*(Axis([d]) for d in batch), a.axes[-2], b.axes[-1]]
    if a.rank == len(dims) and a.dims[:-1] == tuple(dims[:-1]):
        axes = [*a.axes[:-1], b.axes[-1]]
    return Tensor(case, dims, at, whole=False, type=a.type, axes=axes)


def _broadcast_outer(case: Case, x: Tensor, index: Index) -> Polynomial:
    """Return an element of a factor, whose last two axes are not broadcast."""
    tail = index[len(index) - x.rank :]
    outer = [ZERO if d == ONE else i for i, d in zip(tail[:-2], x.dims, strict=False)]
    return _element(x, case, (*outer, *tail[-2:]))


# Elements of several inputs at one place


def _elementwise(case: Case, node: NodeView) -> list[Tensor]:
    inputs = [node.optional(i) for i in range(node.count)]
    known = [i for i in inputs if i is not None]
    numbers = rules_numbers.RULES.get(node.op_type)
    if numbers is not None and all(
        i.whole for i in known[: 1 if node.op_type == "Where" else None]
    ):
        return list(numbers(case, node))
    if node.has("axis") or node.has("broadcast") or node.has("consumed_inputs"):
        raise UndecidedError(f"{node.op_type} of opset 6 is not followed")
    dims = node.broadcast(case, [i.dims for i in known])
    details = (*_details(node), *(i is None for i in inputs))

    def at(index: Index) -> Polynomial:
        row = [_broadcast_element(i, case, index) for i in known]
        if _is_zero(node, row):
            return ZERO
        return unknown(node.op_type, details, row)

    axes = next((i.axes for i in known if i.dims == dims), None)
    element_type = int(TensorProto.BOOL) if node.op_type in _TRUTHS else known[0].type
    return [Tensor(case, dims, at, whole=False, type=element_type, axes=axes)]


def _unary(case: Case, node: NodeView) -> list[Tensor]:
    """Return the map of a function of one element; further inputs are single numbers."""
    for i in range(1, node.count):
        parameter = node.optional(i)
        if parameter is not None and product(parameter.dims) != ONE:
            raise UndecidedError(f"{node.op_type}: a parameter is not a number")
    if node.op_type == "CastLike":
        raise UndecidedError("CastLike is not followed")
    return _elementwise(case, node)


def _is_zero(node: NodeView, row: Sequence[Polynomial]) -> bool:
    """Tell whether an elementwise operator makes 0 of 0."""
    if node.op_type in _KEEP_ZERO and all(p == ZERO for p in row):
        return True
    if (node.op_type == "Mul" and ZERO in row) or (node.op_type == "PRelu" and row[0] == ZERO):
        others = [stored_in(p) for p in row if p != ZERO]
        # A negative number makes -0 of 0.
        return all(s is not None and s.nonnegative for s in others)
    return False


def _clip(case: Case, node: NodeView) -> list[Tensor]:
    (result,) = _unary(case, node)
    x = node.input(0)
    bounds = []
    for place, name in ((1, "min"), (2, "max")):
        bound = node.optional(place)
        value = ZERO if bound is None else bound.at((ZERO,) * bound.rank)
        stored = stored_in(value)
        number = None if stored is None else np.float64(stored.array.reshape(-1)[0])
        bounds.append(node.get(name, 0.0) if bound is None else number)
    low, high = bounds
    if low is None or high is None or not low <= 0 <= high or _is_minus_zero(low, high):
        return [result]

    def at(index: Index) -> Polynomial:
        return ZERO if _element(x, case, index) == ZERO else result.at(index)

    return [Tensor(case, result.dims, at, whole=False, type=x.type, axes=result.axes)]


def _is_minus_zero(*numbers: float) -> bool:
    return any(n == 0 and np.signbit(n) for n in numbers)


def _dropout(case: Case, node: NodeView) -> list[Tensor]:
    training = node.optional(2)
    if training is not None and training.at((ZERO,) * training.rank) != ZERO:
        raise UndecidedError("Dropout may be in training mode")
    if not node.get("is_test", 1) or node.opset < 7:
        raise UndecidedError("Dropout may be in training mode")
    return [node.input(0)]


# Along axes


def _per_channel(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    if node.get("training_mode", 0) or not node.get("is_test", 1) or not node.get("spatial", 1):
        raise UndecidedError(f"{node.op_type} is in training mode")
    parameters = [node.input(i) for i in range(1, node.count)]
    for parameter in parameters:
        (count,) = parameter.dims
        node.need_equal(case, count, x.dims[1], f"{node.op_type}: the number of channels")
    details = _details(node)

    def at(index: Index) -> Polynomial:
        row = [_element(p, case, (index[1],)) for p in parameters]
        return unknown(node.op_type, details, (_element(x, case, index), *row))

    return [Tensor(case, x.dims, at, whole=False, type=x.type, axes=x.axes)]


def _quantize(case: Case, node: NodeView) -> list[Tensor]:
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    if node.get("block_size", 0) or scale.rank > 1:
        raise UndecidedError(f"{node.op_type} in blocks is not followed")
    axis = _axis(node, x, 1) if scale.rank else 0
    for parameter in (scale, zero):
        if parameter is not None and product(parameter.dims) != ONE:
            (count,) = parameter.dims
            node.need_equal(case, count, x.dims[axis], f"{node.op_type}: the number of scales")
    details = (*_details(node, "axis"), zero is None)

    def at(index: Index) -> Polynomial:
        def parameter(t: Tensor) -> Polynomial:
            return _element(t, case, tuple(ZERO if d == ONE else index[axis] for d in t.dims))

        data, factor = _element(x, case, index), parameter(scale)
        point = ZERO if zero is None else parameter(zero)
        before, behind = (ZERO, point) if node.op_type == "QuantizeLinear" else (point, ZERO)
        stored = stored_in(factor)
        if data == before and stored is not None and stored.finite and stored.array.all():
            return behind
        return unknown(node.op_type, details, (data, factor, point))

    source = zero if node.op_type == "QuantizeLinear" else scale
    element_type = 0 if source is None else source.type
    return [Tensor(case, x.dims, at, whole=False, type=element_type, axes=x.axes)]


def _axis(node: NodeView, x: Tensor, default: int) -> int:
    return axes_of([node.get("axis", default)], x.rank)[0]


def _axes_of(node: NodeView, x: Tensor) -> list[int]:
    axes = node.optional_integers("axes", 1)
    if axes is None and node.get("noop_with_empty_axes", 0):
        return []
    return sorted(axes_of(axes, x.rank)) if axes else list(range(x.rank))


def _reduction(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    numbers = rules_numbers.RULES.get(node.op_type)
    if x.whole and numbers is not None:
        return list(numbers(case, node))
    positions = node.op_type in ("ArgMax", "ArgMin")
    axes = [_axis(node, x, 0)] if positions else _axes_of(node, x)
    keep = bool(node.get("keepdims", 1))
    details = _details(node, "axes", "axis", "keepdims")
    kept = [a for a in range(x.rank) if keep or a not in axes]

    def at(index: Index) -> Polynomial:
        full = [ZERO] * x.rank
        for place, axis in zip(index, kept, strict=True):
            full[axis] = place
        return _over(case, node, x, details, tuple(full), axes, ())

    dims = [ONE if a in axes else x.dims[a] for a in kept]
    same = [Axis([ONE]) if a in axes else x.axes[a] for a in kept]
    element_type = int(TensorProto.INT64) if positions else x.type
    return [Tensor(case, dims, at, whole=False, type=element_type, axes=same)]


def _over(
    case: Case,
    node: NodeView,
    x: Tensor,
    details: Sequence[object],
    index: Index,
    axes: Sequence[int],
    others: Sequence[Polynomial],
) -> Polynomial:
    """Return a function of all elements along some axes, and of others."""
    extents = [x.dims[a] for a in axes]
    indices = _indices(case, extents)
    source = list(index)
    for axis, place in zip(axes, indices, strict=True):
        source[axis] = place
    with case.within(sums=1):
        data = _element(x, case, tuple(source))
    return unknown(node.op_type, (*details, len(axes)), (data, *others, *indices, *extents))


def _along(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    axis = 1 if node.op_type == "LRN" else _axis(node, x, -1)
    if node.op_type not in ("LRN", "LpNormalization") and node.opset < 13:
        raise UndecidedError(f"{node.op_type} of opset {node.opset} is not followed")
    axes = [axis]
    details = _details(node, "axis")

    def at(index: Index) -> Polynomial:
        return _over(case, node, x, details, index, axes, [index[a] for a in axes])

    return [Tensor(case, x.dims, at, whole=False, type=x.type, axes=x.axes)]


def _layer_normalization(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    axes = list(range(_axis(node, x, -1), x.rank))
    details = _details(node, "axis")
    parameters = [node.optional(i) for i in range(1, node.count)]
    for p in parameters:
        if p is not None and broadcast(case, [x.dims, p.dims]) != x.dims:
            raise UndecidedError(f"{node.op_type}: its parameters are larger than its data")

    def at(index: Index) -> Polynomial:
        row = [_broadcast_element(p, case, index) for p in parameters if p is not None]
        given = tuple(p is None for p in parameters)
        own = _element(x, case, index)
        return _over(case, node, x, (*details, *given), index, axes, [own, *row])

    return [Tensor(case, x.dims, at, whole=False, type=x.type, axes=x.axes)]


def vanishes(case: Case, p: Polynomial) -> bool:
    """Tell whether an element is 0, whatever is not known.

    Of a sum it is enough that one product is: that the others are 0, too, other cases show.
    """
    if p == ZERO:
        return True
    atom = p.lone_atom
    key = atom.key if atom is not None else None
    if not isinstance(key, OperationKey) or not isinstance(key.operands, tuple):
        return False
    if key.operator == PRODUCTS:
        factor, data, *_ = key.operands
        return any(
            vanishes(case, one) and _finite(case, other)
            for one, other in ((data, factor), (factor, data))
        )
    op_type = key.operator.removeprefix("op:")
    if op_type == "Cast":
        texts = TensorProto.STRING in key.details or ("to", TensorProto.STRING) in key.details
        return not texts and vanishes(case, key.operands[0])
    keeps = op_type in _KEEP_ZERO and op_type != key.operator
    return keeps and all(vanishes(case, q) for q in key.operands)


_UNARY = op_traits.having(Trait.UNARY) - {"Cast", "BitCast", "Identity"}
_BROADCASTS = op_traits.having(Trait.BROADCASTS)

RULES: dict[str, _Rule] = {
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(_BROADCASTS, _elementwise),
    **dict.fromkeys(op_traits.having(Trait.REDUCES), _reduction),
    **dict.fromkeys(("Conv", "ConvInteger", "QLinearConv"), _conv),
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pool),
    **dict.fromkeys(("Hardmax", "LRN", "LogSoftmax", "LpNormalization", "Softmax"), _along),
    **dict.fromkeys(("DequantizeLinear", "QuantizeLinear"), _quantize),
    "BatchNormalization": _per_channel,
    "Clip": _clip,
    "Dropout": _dropout,
    "Gemm": _gemm,
    "LayerNormalization": _layer_normalization,
    "MatMul": _matmul,
}
