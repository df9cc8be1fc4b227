"""The maps of operators that take, repeat or join parts.

Slice, Split    y[i] = x[first + i*step]
Pad             y[i] = x[i - begin] inside of x, else the value
Concat          y[i] = a[i] for i < A, else b[i - A]
Gather          y[i] = x[indices[i]], with n added to an index below 0
Expand, Tile    y[i] = x[0] for a dim of 1, x[i mod n]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.division import exact
from onnx_spatial.maps.node import MAX_OPSET, NodeView, Rule, axes_of, broadcast, broadcast_at
from onnx_spatial.maps.polynomial import ZERO, Index, Polynomial, product
from onnx_spatial.maps.tensor import Axis, Tensor, moved, only_dims
from onnx_spatial.maps.values import MAX_ELEMENTS

#: Ends of a Slice from this number on are the end of the axis: none has more elements.
_OPEN_END = MAX_ELEMENTS - 1


def _map_slice(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    starts, ends = node.sizes("starts", 1), node.sizes("ends", 2)
    axes = node.axes(3, x.rank)
    axes = list(range(len(starts))) if axes is None else axes
    steps = node.optional_integers("steps", 4) or [1] * len(starts)
    windows: dict[int, tuple[Polynomial, Polynomial, int]] = {}
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        bounds = partial(_slice_bounds, case, x.dims[axis], start, end, step)
        first, count = case.sizes(bounds, 2)
        windows[axis] = (first, count, step)
    return [window(case, x, windows)]


def window(
    case: Case, x: Tensor, windows: Mapping[int, tuple[Polynomial, Polynomial, int]]
) -> Tensor:
    """Return a part of a tensor: by axis, its first index, its number of elements, and the step."""
    dims, axes = list(x.dims), list(x.axes)
    for axis, (first, dims[axis], step) in windows.items():
        axes[axis] = x.axes[axis].cropped(first, dims[axis]) if step == 1 else Axis([dims[axis]])
    if tuple(dims) == x.dims and all(w[0] == ZERO and w[2] == 1 for w in windows.values()):
        return x

    def at(index: Index) -> Polynomial:
        source_index = list(index)
        for axis, (first, _, step) in windows.items():
            source_index[axis] = first + index[axis] * step
        return x.at(tuple(source_index))

    return moved(x, case, dims, at, axes)


def _slice_bounds(
    case: Case, dim: Polynomial, start: Polynomial, end: Polynomial, step: int
) -> tuple[Polynomial, Polynomial]:
    """Return the first index that a Slice takes of an axis, and the number of elements."""

    if step < 0 and (end.constant or 0) >= _OPEN_END:
        raise UndecidedError("Slice: runtimes disagree on a negative step to the largest integer")
    if not case.decide(dim - 1):
        return ZERO, ZERO

    def clamped(bound: Polynomial, low: int, high: Polynomial) -> Polynomial:
        known = bound.constant
        if known is not None and known >= _OPEN_END:
            return high
        if known is not None and known <= -_OPEN_END:
            return Polynomial.of(low)
        if not case.decide(bound):
            bound = bound + dim
            if not case.decide(bound - low):
                return Polynomial.of(low)
        return bound if case.decide(high - bound) else high

    if step > 0:
        first, last = clamped(start, 0, dim), clamped(end, 0, dim)
        if not case.decide(last - first):
            return first, ZERO
        return first, case.floor_div(last - first + (step - 1), Polynomial.of(step))
    first, last = clamped(start, 0, dim - 1), clamped(end, -1, dim - 1)
    if not case.decide(first - last):
        return first, ZERO
    return first, case.floor_div(first - last + (-step - 1), Polynomial.of(-step))


def _map_pad(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    amounts = node.sizes("pads" if node.has("pads") else "paddings", 1)
    axes = node.axes(3, x.rank)
    axes = list(range(x.rank)) if axes is None else axes
    node.check(len(amounts) == 2 * len(axes), "the number of pads does not fit the axes")
    pads = {
        axis: (amounts[i], amounts[i + len(axes)])
        for i, axis in enumerate(axes)
        if (amounts[i], amounts[i + len(axes)]) != (ZERO, ZERO)
    }
    mode = node.get("mode", b"constant").decode()
    if mode not in _MIRRORS:
        reason = f"Pad with mode {mode} has no index map"
        return [only_dims(case, padded(case, x, pads).dims, reason, x.type)]
    for axis, (begin, end) in pads.items() if mode == "reflect" else ():
        for amount in (begin, end):
            node.need(case, amount, "Pad: a mirror crops nothing")
            node.need(case, x.dims[axis] - 1 - amount, "Pad: a mirror is wider than the data")
    return [padded(case, x, pads, node.pad_value() if mode == "constant" else ZERO, mode)]


#: Where an element beyond the ends is copied from.
_MIRRORS: dict[str, Callable[[Polynomial, Polynomial, bool], Polynomial]] = {
    "constant": lambda place, last, below: place,
    "edge": lambda place, last, below: ZERO if below else last,
    "reflect": lambda place, last, below: -place if below else 2 * last - place,
}


def padded(
    case: Case,
    x: Tensor,
    pads: dict[int, tuple[Polynomial, Polynomial]],
    value: Polynomial = ZERO,
    mode: str = "constant",
) -> Tensor:
    """Return the tensor padded by (begin, end) elements along some axes; negative amounts crop."""
    if not pads:
        return x
    dims = list(x.dims)
    for axis, (begin, end) in pads.items():
        for amount in (begin, end):
            if case.splits and not case.surely(amount):  # a negative amount may not exceed the size
                case.require(
                    x.dims[axis] + amount, "Pad: more elements may be cropped than there are"
                )
        dims[axis] = x.dims[axis] + begin + end

    def at(index: Index) -> Polynomial:
        source_index = list(index)
        for axis, (begin, _) in pads.items():
            place, last = index[axis] - begin, x.dims[axis] - 1
            below = not case.decide(place)
            if below or not case.decide(last - place):
                if mode == "constant":
                    return value
                place = _MIRRORS[mode](place, last, below)
            source_index[axis] = place
        return x.at(tuple(source_index))

    return moved(x, case, dims, at)


def _map_concat(case: Case, node: NodeView) -> list[Tensor]:
    parts = node.inputs()
    (axis,) = axes_of([node.get("axis", 1)], parts[0].rank)
    for part in parts[1:]:
        node.check(part.rank == parts[0].rank, "the ranks differ")
        for a in range(part.rank):
            if a != axis:
                node.need_equal(case, part.dims[a], parts[0].dims[a], "Concat: dims may differ")
    ends: list[Polynomial] = []
    total = ZERO
    for part in parts:
        total = total + part.dims[axis]
        ends.append(total)
    # Of equal sizes one may be known as a number.
    columns = zip(*(part.dims for part in parts), strict=True)
    dims = [min(column, key=lambda size: size.constant is None) for column in columns]
    dims[axis] = total
    whole = all(p.whole for p in parts)
    node.check(len({p.type for p in parts if p.type}) <= 1, "the element types differ")
    first = parts[0].axes[axis]
    equally_long = len({p.dims[axis] for p in parts}) == 1 and parts[0].dims[axis] != ZERO

    def at(index: Index) -> Polynomial:
        place = index[axis]
        if place.constant is not None and all(e.constant is not None for e in ends):
            number = sum((e.constant or 0) <= place.constant for e in ends)
        elif equally_long:
            number = case.value_of(case.floor_div(place, parts[0].dims[axis]), len(parts))
        elif first.covers(parts[0].dims[axis]) and case.is_inside(place, first.extents):
            number = 0  # by its digits, without a decision
        else:
            number = 0
            while number < len(parts) - 1 and not case.decide(ends[number] - 1 - place):
                number += 1
        start = ends[number] - parts[number].dims[axis]
        return parts[number].at((*index[:axis], place - start, *index[axis + 1 :]))

    leading = {axis: first} if first.covers(parts[0].dims[axis]) else {}
    axes = list(parts[0].axes)
    axes[axis] = (
        Axis.joined([Axis([Polynomial.of(len(parts))]), first]) if equally_long else Axis([total])
    )
    return [Tensor(case, dims, at, whole=whole, type=parts[0].type, leading=leading, axes=axes)]


def _map_split(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    (axis,) = axes_of([node.get("axis", 0)], x.rank)
    sizes = node.optional_sizes("split", 1)
    count = len(node.outputs)
    if sizes is None:
        part = case.size(partial(_even_part, case, node, x.dims[axis], count))
        sizes = [part] * (count - 1)
        sizes.append(x.dims[axis] - part * (count - 1))
    elif len(sizes) != count:
        raise UndecidedError("Split: the number of parts is not the number of outputs")
    else:
        total = sum(sizes, ZERO)
        node.need_equal(case, total, x.dims[axis], "Split: the parts may not add up to the dim")
    outputs = []
    start = ZERO
    for size in sizes:
        outputs.append(window(case, x, {axis: (start, size, 1)}))
        start = start + size
    return outputs


def _even_part(case: Case, node: NodeView, dim: Polynomial, count: int) -> Polynomial:
    """Return the size of all parts but the last, which may be smaller."""
    part = exact(dim, Polynomial.of(count))
    node.check(
        node.opset < 18 or node.has("num_outputs") or node.opset >= MAX_OPSET,
        "neither split nor num_outputs is set",
    )
    node.check(node.get("num_outputs", count) == count, "num_outputs is not the number of outputs")
    if part is None and not node.has("num_outputs"):
        raise UndecidedError("Split: the number of outputs may not divide the dim")
    if part is None:  # onnxruntime refuses a last part of 0 elements
        case.require(dim - count * count, "Split: the last part may be empty")
        part = case.floor_div(dim + (count - 1), Polynomial.of(count))
    return part


def _entry(case: Case, node: NodeView, place: Polynomial, x: Tensor, axis: int) -> Polynomial:
    """Return an index of a Gather, counted from the start of an axis of `x`.

    Raises:
        UndecidedError: it may be out of bounds.
    """
    dim = x.dims[axis]
    rows = x.leading.get(axis)
    for digits in (rows, x.axes[axis] if x.axes[axis].covers(dim) else None):
        if digits is not None and case.is_inside(place, digits.extents):
            return place
    if not case.decide(place):
        place = place + dim
        if rows is None or place != product(rows.extents):
            node.need(case, place, f"{node.op_type}: an index may be below the first element")
    node.need(case, dim - 1 - place, f"{node.op_type}: an index may exceed the axis")
    return place


def _check_entries(case: Case, node: NodeView, indices: Tensor, x: Tensor, axis: int) -> None:
    """Check all indices of a Gather along an axis of `x`; of a stored table the extremes are enough."""

    def check(index: Index) -> None:
        if indices.extremes is None:
            _entry(case, node, indices.at(index), x, axis)
            return
        for extreme in indices.extremes:
            _entry(case, node, Polynomial.of(extreme), x, axis)

    node.for_all(case, indices.dims, check, indices.index)


def _map_gather(case: Case, node: NodeView) -> list[Tensor]:
    x, indices = node.input(0), node.input(1)
    node.check(indices.whole, "the indices have no index map")
    (axis,) = axes_of([node.get("axis", 0)], x.rank)
    dims = [*x.dims[:axis], *indices.dims, *x.dims[axis + 1 :]]
    count = indices.rank

    _check_entries(case, node, indices, x, axis)

    def at(index: Index) -> Polynomial:
        place = _entry(case, node, indices.at(index[axis : axis + count]), x, axis)
        return x.at((*index[:axis], place, *index[axis + count :]))

    return [moved(x, case, dims, at)]


def _gather_elements(case: Case, node: NodeView) -> list[Tensor]:
    x, indices = node.input(0), node.input(1)
    node.check(indices.whole and indices.rank == x.rank, "the indices have no index map")
    (axis,) = axes_of([node.get("axis", 0)], x.rank)
    for other in set(range(x.rank)) - {axis}:
        room = x.dims[other] - indices.dims[other]
        node.need(case, room, "GatherElements: there may be more indices than data along an axis")

    _check_entries(case, node, indices, x, axis)

    def at(index: Index) -> Polynomial:
        place = _entry(case, node, indices.at(index), x, axis)
        return x.at((*index[:axis], place, *index[axis + 1 :]))

    return [moved(x, case, indices.dims, at)]


def _gather_nd(case: Case, node: NodeView) -> list[Tensor]:
    x, indices = node.input(0), node.input(1)
    batch = node.get("batch_dims", 0)
    depth = indices.dims[-1].constant
    if depth is None or not indices.whole or not 0 < depth <= x.rank - batch:
        raise UndecidedError("GatherND: the indices have no index map")
    for a, b in zip(x.dims[:batch], indices.dims[:batch], strict=True):
        case.require_equal(a, b, "GatherND: batch dims may differ")
    dims = [*indices.dims[:-1], *x.dims[batch + depth :]]
    count = indices.rank - 1

    def places(index: Index) -> list[Polynomial]:
        entries = [indices.at((*index, Polynomial.of(k))) for k in range(depth)]
        return [_entry(case, node, entry, x, batch + k) for k, entry in enumerate(entries)]

    def check(index: Index) -> None:
        places(index)

    node.for_all(case, indices.dims[:-1], check, lambda: indices.index()[:-1])

    def at(index: Index) -> Polynomial:
        return x.at((*index[:batch], *places(index[:count]), *index[count:]))

    return [moved(x, case, dims, at)]


def _map_expand(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    dims = broadcast(case, [x.dims, tuple(node.sizes("shape", 1))])
    return [moved(x, case, dims, lambda index: broadcast_at(x, index))]


def _map_tile(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    repeats = node.sizes("repeats", 1)
    for count in repeats:
        case.require(count, "Tile: repeats may be negative")
    dims = [d * r for d, r in zip(x.dims, repeats, strict=True)]

    def at(index: Index) -> Polynomial:
        return x.at(tuple(case.mod(i, d) for i, d in zip(index, x.dims, strict=True)))

    return [moved(x, case, dims, at)]


RULES: dict[str, Rule] = {
    "Expand": _map_expand,
    "Tile": _map_tile,
    "Slice": _map_slice,
    "Pad": _map_pad,
    "Concat": _map_concat,
    "Split": _map_split,
    "Gather": _map_gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
}
