"""The maps of operators on single elements, per channel, and along axes, as unknown functions.

    Relu                  y[i] = f(x[i])
    Add                   y[i, j] = f(a[i, j], b[0, j])             broadcast
    BatchNormalization    y[n, c, i] = f(x[n, c, i], scale[c], ..)
    Softmax               y[n, i] = f(x[n, k] for all k, i)

Equal functions of equal elements are equal. Where all elements are integers that rules compute with,
the rules of `rules_numbers` come first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.elements import (
    KEEP_ZERO,
    broadcast_element,
    element,
    indices_of,
    is_scale,
    need_list,
    stored_in,
)
from onnx_spatial.maps.node import NodeView, Rule, axes_of, broadcast
from onnx_spatial.maps.polynomial import ONE, ZERO, Index, Polynomial, product, unknown
from onnx_spatial.maps.rules_numbers import INTEGER_RULES
from onnx_spatial.maps.tensor import Axis, Tensor
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

_TRUTHS = op_traits.having(Trait.TRUTH)
_UNARY = op_traits.having(Trait.UNARY) - {"Cast", "CastLike", "BitCast", "Identity"}
_BROADCASTS = op_traits.having(Trait.BROADCASTS)


def _map_elementwise(case: Case, node: NodeView) -> list[Tensor]:
    inputs = [node.optional(i) for i in range(node.count)]
    known = [i for i in inputs if i is not None]
    integers = INTEGER_RULES.get(node.op_type)
    deciding = inputs[:1] if node.op_type == "Where" else inputs
    if integers is not None and all(i is not None and i.whole for i in deciding):
        return list(integers(case, node))
    of_opset_6 = {"axis", "broadcast", "consumed_inputs"}
    node.check(of_opset_6.isdisjoint(node.attributes), "its form of opset 6 has no index map")
    dims = broadcast(case, [i.dims for i in known], legal=node.legal)
    details = (*node.details(), *(i is None for i in inputs))

    def at(index: Index) -> Polynomial:
        row = [broadcast_element(i, case, index) for i in known]
        if _is_zero(node, row):
            return ZERO
        if (same := _unchanged_element(node, row)) is not None:
            return same
        return unknown(node.op_type, details, row)

    axes = next((i.axes for i in known if i.dims == dims), None)
    source = known[1] if node.op_type == "Where" else known[0]
    element_type = int(TensorProto.BOOL) if node.op_type in _TRUTHS else source.type
    return [Tensor(case, dims, at, whole=False, type=element_type, axes=axes)]


def _map_unary(case: Case, node: NodeView) -> list[Tensor]:
    """Return the map of a function of one element and of parameters of one element."""
    for i in range(1, node.count):
        parameter = node.optional(i)
        if parameter is not None and product(parameter.dims) != ONE:
            raise UndecidedError(f"{node.op_type}: a parameter has more than one element")
    return _map_elementwise(case, node)


def _is_zero(node: NodeView, row: Sequence[Polynomial]) -> bool:
    """Tell whether an elementwise operator returns 0 for these elements, some of them 0."""
    if node.op_type in KEEP_ZERO and all(p == ZERO for p in row):
        return True
    if (node.op_type == "Mul" and ZERO in row) or (node.op_type == "PRelu" and row[0] == ZERO):
        others = [stored_in(p) for p in row if p != ZERO]
        # A negative number makes -0 of 0.
        return all(s is not None and s.nonnegative for s in others)
    return False


def _unchanged_element(node: NodeView, row: Sequence[Polynomial]) -> Polynomial | None:
    """Return the element that an elementwise operator returns as it is: x*1, x/1 or x - 0, but no x + 0.

    They keep every float, -0.0 and NaN included; -0.0 + 0.0 is 0.0.
    """
    if len(row) != 2 or node.op_type not in ("Div", "Mul", "Sub"):
        return None
    if node.op_type == "Sub":
        return row[0] if row[1] == ZERO else None
    for one, other in (row, row[::-1]) if node.op_type == "Mul" else (row,):
        stored = stored_in(other)
        if stored is not None and stored.finite and (stored.array == 1).all():
            return one
    return None


def _is_minus_zero(*values: float) -> bool:
    return any(value == 0 and np.signbit(value) for value in values)


def _map_clip(case: Case, node: NodeView) -> list[Tensor]:
    (result,) = _map_unary(case, node)
    x = node.input(0)
    bounds = []
    for place, name in ((1, "min"), (2, "max")):
        bound = node.optional(place)
        value = ZERO if bound is None else bound.at((ZERO,) * bound.rank)
        stored = stored_in(value)
        number = None if stored is None else np.float64(stored.array.reshape(-1)[0])
        bounds.append(node.get(name, 0.0) if bound is None else number)
    low, high = bounds
    # Zeros have a sign: -0 is below 0.
    if low is None or high is None or low > 0 or high < 0 or _is_minus_zero(low, high):
        return [result]

    def at(index: Index) -> Polynomial:
        return ZERO if element(x, case, index) == ZERO else result.at(index)

    return [Tensor(case, result.dims, at, whole=False, type=x.type, axes=result.axes)]


def _map_dropout(case: Case, node: NodeView) -> list[Tensor]:
    training = node.optional(2)
    trained = training is None or training.at((ZERO,) * training.rank) == ZERO
    trained = trained and node.get("is_test", 1) and node.opset >= 7
    node.check(trained, "training mode has no index map")
    return [node.input(0)]


# Along axes


def _per_channel(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    trained = not node.get("training_mode", 0) and node.get("is_test", 1)
    node.check(trained and node.get("spatial", 1), "training mode has no index map")
    parameters = [node.input(i) for i in range(1, node.count)]
    for p in parameters:
        need_list(case, node, p, x.dims[1])
    details = node.details()

    def at(index: Index) -> Polynomial:
        row = [element(p, case, (index[1],)) for p in parameters]
        return unknown(node.op_type, details, (element(x, case, index), *row))

    return [Tensor(case, x.dims, at, whole=False, type=x.type, axes=x.axes)]


def _map_quantize(case: Case, node: NodeView) -> list[Tensor]:
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    node.check(not node.get("block_size", 0) and scale.rank <= 1, "blocks have no index map")
    axis = _axis(node, x, 1) if scale.rank else 0
    for t in (scale, zero):
        if t is not None and product(t.dims) != ONE:
            need_list(case, node, t, x.dims[axis])
    source = zero if node.op_type == "QuantizeLinear" else scale
    element_type = 0 if source is None else source.type
    # Of what type a result is says where it saturates.
    details = (*node.details("axis"), zero is None, element_type)

    def at(index: Index) -> Polynomial:
        def parameter(t: Tensor) -> Polynomial:
            return element(t, case, tuple(ZERO if d == ONE else index[axis] for d in t.dims))

        data, factor = element(x, case, index), parameter(scale)
        point = ZERO if zero is None else parameter(zero)
        before, behind = (ZERO, point) if node.op_type == "QuantizeLinear" else (point, ZERO)
        if data == before and is_scale(factor):
            return behind
        return unknown(node.op_type, details, (data, factor, point))

    return [Tensor(case, x.dims, at, whole=False, type=element_type, axes=x.axes)]


def _axis(node: NodeView, x: Tensor, default: int) -> int:
    return axes_of([node.get("axis", default)], x.rank)[0]


#: Reductions that return a lone element as it is.
_OF_ONE = ("ReduceMax", "ReduceMean", "ReduceMin")
_GLOBAL_POOLS = ("GlobalAveragePool", "GlobalMaxPool")


def _map_reduction(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    integers = INTEGER_RULES.get(node.op_type)
    if x.whole and integers is not None:
        return list(integers(case, node))
    positions = node.op_type in ("ArgMax", "ArgMin")
    if node.op_type in _GLOBAL_POOLS:
        node.check(x.rank > 2, "data without spatial axes has no index map")
        axes = list(range(2, x.rank))
    else:
        axes = [_axis(node, x, 0)] if positions else node.reduced_axes(x.rank)
    keep = bool(node.get("keepdims", 1))
    details = node.details("axes", "axis", "keepdims")
    kept = [a for a in range(x.rank) if keep or a not in axes]

    def at(index: Index) -> Polynomial:
        full = [ZERO] * x.rank
        for place, axis in zip(index, kept, strict=True):
            full[axis] = place
        if node.op_type in _OF_ONE and all(x.dims[a] == ONE for a in axes):
            return element(x, case, tuple(full))
        return _over(case, node, x, details, tuple(full), axes, ())

    dims = [ONE if a in axes else x.dims[a] for a in kept]
    kept_axes = [Axis([ONE]) if a in axes else x.axes[a] for a in kept]
    element_type = int(TensorProto.INT64) if positions else x.type
    return [Tensor(case, dims, at, whole=False, type=element_type, axes=kept_axes)]


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
    indices = indices_of(case, extents)
    source = list(index)
    for axis, place in zip(axes, indices, strict=True):
        source[axis] = place
    with case.within(sums=1):
        data = element(x, case, tuple(source))
    return unknown(node.op_type, (*details, len(axes)), (data, *others, *indices, *extents))


#: Before opset 13 these run along all axes from one on.
_FLATTENING = ("Hardmax", "LogSoftmax", "Softmax")


def _map_along(case: Case, node: NodeView) -> list[Tensor]:
    """Return a tensor like the first input: functions of all its elements along axes, and of others.

    Others are the place along the axis, or the element itself, and its parameters.
    """
    x = node.input(0)
    parameters = [node.optional(i) for i in range(1, node.count)]
    is_normal = node.op_type in _NORMALIZATIONS
    if node.op_type in ("CumProd", "CumSum"):
        (place,), parameters = parameters, []
        axis = None if place is None else place.at((ZERO,) * place.rank).constant
        node.check(axis is not None, "an axis that is unknown until run time has no index map")
        axes = axes_of([axis or 0], x.rank)
    elif node.op_type == "MeanVarianceNormalization":
        axes = axes_of(node.get("axes", [0, 2, 3]), x.rank)
    elif node.op_type == "LRN":
        axes = [1]
    elif is_normal:
        axes = list(range(_axis(node, x, -1), x.rank))
    elif node.op_type in _FLATTENING and node.opset < 13:
        axes = list(range(_axis(node, x, 1), x.rank))
    else:
        axes = [_axis(node, x, -1)]
    for p in parameters:
        if p is not None and broadcast(case, [x.dims, p.dims]) != x.dims:
            raise UndecidedError(f"{node.op_type}: a parameter is larger than the data")
    details = (*node.details("axis", "axes"), *(p is None for p in parameters))

    def at(index: Index) -> Polynomial:
        others = [element(x, case, index)] if is_normal else [index[axis] for axis in axes]
        others += [broadcast_element(p, case, index) for p in parameters if p is not None]
        return _over(case, node, x, details, index, axes, others)

    return [Tensor(case, x.dims, at, whole=False, type=x.type, axes=x.axes)]


_NORMALIZATIONS = ("LayerNormalization", "MeanVarianceNormalization", "RMSNormalization")


def _top_k(case: Case, node: NodeView) -> list[Tensor]:
    x, axis = node.input(0), _axis(node, node.input(0), -1)
    node.check(node.get("sorted", 1) and node.count >= 2, "no order or input k has no index map")
    (count,) = node.input(1).elements()
    node.need(case, count, "TopK: k may be negative")
    node.need(case, x.dims[axis] - count, "TopK: k may be larger than the axis")
    dims = [*x.dims[:axis], count, *x.dims[axis + 1 :]]
    axes = [*x.axes[:axis], Axis([count]), *x.axes[axis + 1 :]]

    def output(name: str, element_type: int) -> Tensor:
        details = (*node.details("axis"), name)

        def at(index: Index) -> Polynomial:
            return _over(case, node, x, details, index, [axis], [index[axis]])

        return Tensor(case, dims, at, whole=False, type=element_type, axes=axes)

    return [output("values", x.type), output("indices", int(TensorProto.INT64))]


def _one_hot(case: Case, node: NodeView) -> list[Tensor]:
    x, depth, values = (node.input(i) for i in range(3))
    (axis,) = axes_of([node.get("axis", -1)], x.rank + 1)
    count = depth.at((ZERO,) * depth.rank)
    node.check(depth.whole, "the depth is no integer")
    node.need(case, count - 1, "OneHot: the depth may not be positive")
    dims = [*x.dims[:axis], count, *x.dims[axis:]]

    def at(index: Index) -> Polynomial:
        data = element(x, case, (*index[:axis], *index[axis + 1 :]))
        both = [element(values, case, (Polynomial.of(i),)) for i in range(2)]
        return unknown(node.op_type, (), (data, index[axis], count, *both))

    axes = [*x.axes[:axis], Axis([count]), *x.axes[axis:]]
    return [Tensor(case, dims, at, whole=False, type=values.type, axes=axes)]


def _map_resize(case: Case, node: NodeView) -> list[Tensor]:
    """Return the map of a Resize to given sizes: a function of all elements along the resized axes."""
    x, scales, sizes = node.input(0), node.optional(2), node.optional(3)
    modes = (
        node.get("coordinate_transformation_mode", b""),
        node.get("keep_aspect_ratio_policy", b""),
    )
    plain = b"tf_crop_and_resize" not in modes and modes[1] in (b"", b"stretch")
    node.check(plain, "a part, or a kept aspect ratio, has no index map")
    if sizes is None or (scales is not None and product(scales.dims) != ZERO):
        raise UndecidedError("Resize by scales has no index map")
    axes = axes_of(node.get("axes", range(x.rank)), x.rank)
    dims = list(x.dims)
    for axis, size in zip(axes, sizes.elements(), strict=True):
        node.need(case, size - 1, "Resize: a size may not be positive")
        dims[axis] = size
    axes = [axis for axis in sorted(axes) if not case.are_equal(dims[axis], x.dims[axis])]
    details = (*node.details("axes"), node.opset)

    def at(index: Index) -> Polynomial:
        others = [place for axis in axes for place in (index[axis], dims[axis])]
        return _over(case, node, x, details, index, axes, others)

    kept = [Axis([dims[a]]) if a in axes else x.axes[a] for a in range(x.rank)]
    return [Tensor(case, dims, at, whole=False, type=x.type, axes=kept)]


RULES: dict[str, Rule] = {
    **dict.fromkeys(_UNARY, _map_unary),
    **dict.fromkeys(_BROADCASTS, _map_elementwise),
    **dict.fromkeys((*op_traits.having(Trait.REDUCES), *_GLOBAL_POOLS), _map_reduction),
    **dict.fromkeys((*_FLATTENING, *_NORMALIZATIONS, "LRN", "LpNormalization"), _map_along),
    **dict.fromkeys(("CumProd", "CumSum"), _map_along),
    **dict.fromkeys(("DequantizeLinear", "QuantizeLinear"), _map_quantize),
    "BatchNormalization": _per_channel,
    "Clip": _map_clip,
    "Dropout": _map_dropout,
    "OneHot": _one_hot,
    "Resize": _map_resize,
    "TopK": _top_k,
}
