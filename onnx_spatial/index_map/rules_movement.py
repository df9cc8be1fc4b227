"""The maps of ONNX's data-movement operators.

Each rule gets a node with its inputs, and returns its outputs. A rule requires whatever a run needs: if
that cannot be shown for all legal sizes, the map is undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx import TensorProto

from onnx_spatial.index_map.cases import Case, UndecidedError
from onnx_spatial.index_map.expressions import ONE, ZERO, Index, product
from onnx_spatial.index_map.integers import fitting
from onnx_spatial.index_map.node import MAX_OPSET, WHOLE, NodeView
from onnx_spatial.index_map.tensor import Axis, Dims, Tensor, filled, vector
from onnx_spatial.model.symbolic.polynomial import Polynomial

_INT64 = int(TensorProto.INT64)
_Rule = Callable[[Case, NodeView], Sequence[Tensor]]

#: Ends of Slices from this number on mean the end of the axis; sizes are smaller.
_FAR = 2**31 - 1


def _of(value: int) -> Polynomial:
    return Polynomial.of(value)


def axes_of(given: Sequence[int], rank: int) -> list[int]:
    """Return axes counted from the first one.

    Raises:
        UndecidedError: one is given twice, or beyond the rank.
    """
    axes = [a + rank if a < 0 else a for a in given]
    if len(set(axes)) < len(axes) or not all(0 <= a < rank for a in axes):
        raise UndecidedError(f"the axes {list(given)} are not those of a tensor of rank {rank}")
    return axes


def _same_kind(
    x: Tensor, case: Case, dims: Sequence[Polynomial], at: Callable[[Index], Polynomial]
) -> Tensor:
    return Tensor(case, dims, at, whole=x.whole, type=x.type)


def _identity(case: Case, node: NodeView) -> list[Tensor]:
    return [node.input(0)]


def _reshape(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    target = node.sizes("shape", 1)
    copy = not node.get("allowzero", 0)
    dims: list[Polynomial] = []
    unknown = None
    for place, size in enumerate(target):
        if size.constant == -1:
            if unknown is not None:
                raise UndecidedError("Reshape with two sizes of -1")
            unknown = place
            dims.append(ONE)
        elif case.decide(size - 1):
            dims.append(size)
        elif not case.is_zero(size):
            raise UndecidedError("Reshape to a size that may be negative")
        elif not copy:
            dims.append(ZERO)
        elif place < x.rank:
            dims.append(x.dims[place])
        else:
            raise UndecidedError("Reshape copies a dim that its input does not have")
    if unknown is not None:
        total, known = product(x.dims), product(dims)
        case.require(known - 1, "Reshape: the sizes beside -1")
        rest = case.exact(total, known)
        if rest is None:
            rest = case.floor_div(total, known)
            case.require_equal(rest * known, total, "Reshape: the number of elements")
        # A number of elements divided by another: the terms of a polynomial do not show it.
        case.assume(rest - (1 if all(case.surely(d - 1) for d in x.dims) else 0))
        dims[unknown] = rest
    return [reshaped(case, x, dims)]


def reshaped(case: Case, x: Tensor, dims: Sequence[Polynomial]) -> Tensor:
    """Return the tensor with other dims.

    Raises:
        UndecidedError: the number of elements may differ.
    """
    if tuple(dims) == x.dims:
        return x
    groups = _groups(case, x.dims, tuple(dims))

    def at(index: Index) -> Polynomial:
        return x.at(regrouped(case, groups, x.dims, tuple(dims), index))

    axes = _regrouped_axes(case, x, groups, tuple(dims))
    return Tensor(case, dims, at, whole=x.whole, type=x.type, axes=axes)


_Groups = list[tuple[range, range]]


def _groups(case: Case, before: Dims, after: Dims) -> _Groups:
    """Pair the fewest axes that have as many elements: [a, b*c] -> [a, b, c] is (a, a), (bc, b c)."""
    groups: _Groups = []
    i = j = 0
    while i < len(before) and j < len(after):
        start_i, start_j = i, j
        a, b = before[i], after[j]
        i, j = i + 1, j + 1
        while a != b:
            more_a = i < len(before) and (j >= len(after) or case.exact(b, a) is not None)
            more_b = j < len(after) and case.exact(a, b) is not None
            if more_a:
                a, i = a * before[i], i + 1
            elif more_b:
                b, j = b * after[j], j + 1
            elif i < len(before) or j < len(after):
                a, b = product(before[start_i:]), product(after[start_j:])
                i, j = len(before), len(after)
            else:
                break
        if a != b:
            case.require_equal(a, b, "Reshape: the number of elements")
        groups.append((range(start_i, i), range(start_j, j)))
    for dims, at in ((before, i), (after, j)):
        for size in dims[at:]:
            case.require_equal(size, ONE, "Reshape: a size left over")
    return groups


def regrouped(case: Case, groups: _Groups, before: Dims, after: Dims, index: Index) -> Index:
    """Return the index before a Reshape for an index behind it."""
    result = [ZERO] * len(before)
    for inside, outside in groups:
        digits = [(index[axis], after[axis]) for axis in outside]
        sizes = [before[axis] for axis in inside]
        places = _redistributed(case, digits, sizes) or _divided(case, digits, sizes)
        for axis, place in zip(inside, places, strict=True):
            result[axis] = place
    return tuple(result)


_Digit = tuple[Polynomial, Polynomial]


def _redistributed(
    case: Case, digits: list[_Digit], sizes: Sequence[Polynomial]
) -> list[Polynomial] | None:
    """Return the digits of a number for other sizes; None where these divide each other nowhere.

    Only a digit that is cut is divided: (a, b*c) from (a*b, c) cuts a*b by b.
    """
    rest = [digit for digit in digits if digit[1] != ONE]
    places: list[Polynomial] = []
    for size in reversed(sizes):
        place, weight, left = ZERO, ONE, size
        while left != ONE:
            if not rest:
                return None
            value, extent = rest.pop()
            part = case.exact(left, extent)
            if part is not None:
                place, weight, left = place + value * weight, weight * extent, part
                continue
            part = case.exact(extent, left)
            if part is None:
                return None
            high = case.floor_div(value, left)
            place, left = place + (value - high * left) * weight, ONE
            rest.append((high, part))
        places.append(place)
    return places[::-1] if not rest else None


def _divided(case: Case, digits: list[_Digit], sizes: Sequence[Polynomial]) -> list[Polynomial]:
    """Return the digits of a number for other sizes, by division."""
    flat = ZERO
    for value, extent in digits:
        flat = flat * extent + value
    places = []
    for number, size in reversed(list(enumerate(sizes))):
        if all(s == ONE for s in sizes[:number]):
            places.append(flat)
            flat = ZERO
            continue
        quotient = case.floor_div(flat, size)
        places.append(flat - quotient * size)
        flat = quotient
    return places[::-1]


def _regrouped_axes(case: Case, x: Tensor, groups: _Groups, after: Dims) -> list[Axis]:
    """Return digits for the new axes, made of those of the old ones where they fit."""
    axes = [Axis([d]) for d in after]
    for inside, outside in groups:
        large = [a for a in inside if x.dims[a] != ONE]
        if len(outside) == 1:
            axes[outside[0]] = Axis.joined([x.axes[a] for a in large or inside])
            continue
        extents = [e for a in inside for e in x.axes[a].extents]
        for axis in reversed(outside):
            digits = _taken(case, extents, after[axis])
            if digits is None:
                break
            axes[axis] = Axis(digits)
    return axes


def _taken(case: Case, extents: list[Polynomial], size: Polynomial) -> list[Polynomial] | None:
    """Take the last extents that make up a size off a list, one of them cut; None if none do."""
    digits: list[Polynomial] = []
    while size != ONE:
        extent = extents.pop() if extents else ONE
        if extent == ONE and not extents:
            return None
        rest = case.exact(size, extent)
        if rest is not None:
            digits.insert(0, extent)
            size = rest
            continue
        rest = case.exact(extent, size)
        if rest is None:
            return None
        digits.insert(0, size)
        extents.append(rest)
        size = ONE
    return digits or [ONE]


def _flatten(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    axis = node.get("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    if not 0 <= axis <= x.rank:
        raise UndecidedError("Flatten at an axis beyond the rank")
    return [reshaped(case, x, [product(x.dims[:axis]), product(x.dims[axis:])])]


def _squeeze(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    given = node.optional_integers("axes", 1)
    if given is None:
        axes = [a for a, d in enumerate(x.dims) if case.is_zero(d - 1)]
    elif given:
        axes = axes_of(given, x.rank)
    else:
        raise UndecidedError("Squeeze of no axes, which runtimes take for all or for none")
    for axis in axes:
        case.require_equal(x.dims[axis], ONE, "Squeeze")
    kept = [a for a in range(x.rank) if a not in axes]

    def at(index: Index) -> Polynomial:
        full = [ZERO] * x.rank
        for place, axis in enumerate(kept):
            full[axis] = index[place]
        return x.at(tuple(full))

    return [
        Tensor(
            case,
            [x.dims[a] for a in kept],
            at,
            whole=x.whole,
            type=x.type,
            axes=[x.axes[a] for a in kept],
        )
    ]


def _unsqueeze(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    given = node.optional_integers("axes", 1)
    if given is None:
        raise UndecidedError("Unsqueeze without axes")
    rank = x.rank + len(given)
    new = axes_of(given, rank)
    kept = [a for a in range(rank) if a not in new]
    dims = [ONE] * rank
    axes = [Axis([ONE])] * rank
    for place, axis in enumerate(kept):
        dims[axis], axes[axis] = x.dims[place], x.axes[place]
    return [
        Tensor(
            case,
            dims,
            lambda index: x.at(tuple(index[a] for a in kept)),
            whole=x.whole,
            type=x.type,
            axes=axes,
        )
    ]


def _transpose(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    perm = node.get("perm", None)
    return [transposed(case, x, list(perm) if perm is not None else [*reversed(range(x.rank))])]


def transposed(case: Case, x: Tensor, perm: Sequence[int]) -> Tensor:
    """Return the tensor with its axes in another order.

    Raises:
        UndecidedError: it has another rank.
    """
    if sorted(perm) != list(range(x.rank)):
        raise UndecidedError(f"Transpose by {list(perm)} of rank {x.rank}")
    back = [perm.index(axis) for axis in range(x.rank)]
    return Tensor(
        case,
        [x.dims[a] for a in perm],
        lambda index: x.at(tuple(index[a] for a in back)),
        whole=x.whole,
        type=x.type,
        axes=[x.axes[a] for a in perm],
    )


def _slice(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    starts, ends = node.sizes("starts", 1), node.sizes("ends", 2)
    given = node.optional_integers("axes", 3)
    axes = axes_of(given, x.rank) if given is not None else list(range(len(starts)))
    steps = node.optional_integers("steps", 4) or [1] * len(starts)
    windows: dict[int, tuple[Polynomial, int]] = {}
    dims = list(x.dims)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        first, count = _bounds(case, x.dims[axis], start, end, step)
        windows[axis] = (first, step)
        dims[axis] = count
    if all(w == (ZERO, 1) for w in windows.values()) and tuple(dims) == x.dims:
        return [x]

    def at(index: Index) -> Polynomial:
        moved = list(index)
        for axis, (first, step) in windows.items():
            moved[axis] = first + index[axis] * step
        return x.at(tuple(moved))

    digits = list(x.axes)
    for axis, (first, step) in windows.items():
        digits[axis] = x.axes[axis].cropped(first, dims[axis]) if step == 1 else Axis([dims[axis]])
    return [Tensor(case, dims, at, whole=x.whole, type=x.type, axes=digits)]


def _bounds(
    case: Case, dim: Polynomial, start: Polynomial, end: Polynomial, step: int
) -> tuple[Polynomial, Polynomial]:
    """Return the first element that a Slice takes of an axis, and how many."""

    if step < 0 and (end.constant or 0) >= _FAR:
        raise UndecidedError("Slice backwards to an end that runtimes read differently")
    if not case.decide(dim - 1):
        return ZERO, ZERO

    def clamped(bound: Polynomial, low: int, high: Polynomial) -> Polynomial:
        known = bound.constant
        if known is not None and known >= _FAR:
            return high
        if known is not None and known <= -_FAR:
            return _of(low)
        if not case.decide(bound):
            bound = bound + dim
            if not case.decide(bound - low):
                return _of(low)
        return bound if case.decide(high - bound) else high

    if step > 0:
        first, last = clamped(start, 0, dim), clamped(end, 0, dim)
        if not case.decide(last - first):
            return first, ZERO
        return first, case.floor_div(last - first + (step - 1), _of(step))
    first, last = clamped(start, 0, dim - 1), clamped(end, -1, dim - 1)
    if not case.decide(first - last):
        return first, ZERO
    return first, case.floor_div(first - last + (-step - 1), _of(-step))


def _pad(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    mode = node.get("mode", b"constant").decode()
    if mode != "constant":
        raise UndecidedError(f"Pad with mode {mode} is not followed")
    amounts = node.sizes("pads" if node.has("pads") else "paddings", 1)
    given = node.optional_integers("axes", 3)
    axes = axes_of(given, x.rank) if given is not None else list(range(x.rank))
    value = node.pad_value()
    pads = {
        axis: (amounts[i], amounts[i + len(axes)])
        for i, axis in enumerate(axes)
        if (amounts[i], amounts[i + len(axes)]) != (ZERO, ZERO)
    }
    return [padded(case, x, pads, value)]


def padded(
    case: Case, x: Tensor, pads: dict[int, tuple[Polynomial, Polynomial]], value: Polynomial = ZERO
) -> Tensor:
    """Return the tensor with (begin, end) elements more along some axes; negative amounts crop."""
    if not pads:
        return x
    dims = list(x.dims)
    for axis, (begin, end) in pads.items():
        for amount in (begin, end):
            if not case.surely(amount):  # a negative amount may not exceed the size
                case.require(x.dims[axis] + amount, "Pad: a size")
        dims[axis] = x.dims[axis] + begin + end

    def at(index: Index) -> Polynomial:
        moved = list(index)
        for axis, (begin, _) in pads.items():
            place = index[axis] - begin
            if not case.decide(place) or not case.decide(x.dims[axis] - 1 - place):
                return value
            moved[axis] = place
        return x.at(tuple(moved))

    return _same_kind(x, case, dims, at)


def _concat(case: Case, node: NodeView) -> list[Tensor]:
    parts = node.inputs()
    (axis,) = axes_of([node.get("axis", 1)], parts[0].rank)
    for part in parts[1:]:
        if part.rank != parts[0].rank:
            raise UndecidedError("Concat of different ranks")
        for a in range(part.rank):
            if a != axis:
                case.require_equal(part.dims[a], parts[0].dims[a], "Concat: a size")
    ends: list[Polynomial] = []
    total = ZERO
    for part in parts:
        total = total + part.dims[axis]
        ends.append(total)
    dims = list(parts[0].dims)
    dims[axis] = total
    whole = all(p.whole for p in parts)
    if len({p.type for p in parts if p.type}) > 1:
        raise UndecidedError("Concat of different element types")
    first = parts[0].axes[axis]
    same = len({p.dims[axis] for p in parts}) == 1 and parts[0].dims[axis] != ZERO

    def at(index: Index) -> Polynomial:
        place = index[axis]
        if place.constant is not None and all(e.constant is not None for e in ends):
            number = next(i for i, e in enumerate(ends) if place.constant < (e.constant or 0))
        elif same:
            number = case.value_of(case.floor_div(place, parts[0].dims[axis]), len(parts))
        else:
            number = 0
            while (
                not (first.covers(parts[0].dims[axis]) and case.is_inside(place, first.extents))
                and number < len(parts) - 1
                and not case.decide(ends[number] - 1 - place)
            ):
                number += 1
        start = ends[number] - parts[number].dims[axis]
        return parts[number].at((*index[:axis], place - start, *index[axis + 1 :]))

    leading = {axis: first} if first.covers(parts[0].dims[axis]) else {}
    axes = list(parts[0].axes)
    axes[axis] = Axis.joined([Axis([_of(len(parts))]), first]) if same else Axis([total])
    return [Tensor(case, dims, at, whole=whole, type=parts[0].type, leading=leading, axes=axes)]


def _split(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    (axis,) = axes_of([node.get("axis", 0)], x.rank)
    sizes = node.optional_sizes("split", 1)
    count = len(node.outputs)
    if sizes is None:
        each = case.exact(x.dims[axis], _of(count))
        if node.opset >= 18 and not node.has("num_outputs") and node.opset < MAX_OPSET:
            raise UndecidedError("Split into parts of which nothing is said")
        if node.get("num_outputs", count) != count:
            raise UndecidedError("Split into another number of parts than it has outputs")
        if each is None and not node.has("num_outputs"):
            raise UndecidedError("Split: the number of parts may not divide the size")
        if each is None:
            # All parts but the last are equal; onnxruntime refuses a last one of 0 elements.
            case.require(x.dims[axis] - count * count, "Split: the size of the axis")
            each = case.floor_div(x.dims[axis] + (count - 1), _of(count))
        sizes = [each] * (count - 1)
        sizes.append(x.dims[axis] - each * (count - 1))
    else:
        total = ZERO
        for size in sizes:
            total = total + size
        case.require_equal(total, x.dims[axis], "Split: the sizes of the parts")
    outputs = []
    start = ZERO
    for size in sizes:
        outputs.append(_part(case, x, axis, start, size))
        start = start + size
    return outputs


def _part(case: Case, x: Tensor, axis: int, start: Polynomial, size: Polynomial) -> Tensor:
    def at(index: Index) -> Polynomial:
        return x.at((*index[:axis], start + index[axis], *index[axis + 1 :]))

    return _same_kind(x, case, [*x.dims[:axis], size, *x.dims[axis + 1 :]], at)


def _entry(case: Case, node: NodeView, place: Polynomial, x: Tensor, axis: int) -> Polynomial:
    """Return an element of an index tensor, counted from the start of an axis of `x`.

    Raises:
        UndecidedError: it may lie outside.
    """
    dim = x.dims[axis]
    rows = x.leading.get(axis)
    for digits in (rows, x.axes[axis] if x.axes[axis].covers(dim) else None):
        if digits is not None and case.is_inside(place, digits.extents):
            return place
    if not case.decide(place):
        place = place + dim
        if rows is None or place != product(rows.extents):
            node.need(case, place, "Gather: an index")
    node.need(case, dim - 1 - place, "Gather: the axis behind an index")
    return place


def _gather(case: Case, node: NodeView) -> list[Tensor]:
    x, indices = node.input(0), node.input(1)
    if not indices.whole:
        raise UndecidedError("Gather at indices that are not followed")
    (axis,) = axes_of([node.get("axis", 0)], x.rank)
    dims = [*x.dims[:axis], *indices.dims, *x.dims[axis + 1 :]]
    count = indices.rank

    def check(index: Index) -> None:
        _entry(case, node, indices.at(index), x, axis)

    node.for_all(case, indices.dims, check, indices.index)

    def at(index: Index) -> Polynomial:
        place = _entry(case, node, indices.at(index[axis : axis + count]), x, axis)
        return x.at((*index[:axis], place, *index[axis + count :]))

    return [_same_kind(x, case, dims, at)]


def _gather_nd(case: Case, node: NodeView) -> list[Tensor]:
    x, indices = node.input(0), node.input(1)
    batch = node.get("batch_dims", 0)
    depth = indices.dims[-1].constant
    if depth is None or not indices.whole or not 0 < depth <= x.rank - batch:
        raise UndecidedError("GatherND at indices that are not followed")
    for a, b in zip(x.dims[:batch], indices.dims[:batch], strict=True):
        case.require_equal(a, b, "GatherND: a batch size")
    dims = [*indices.dims[:-1], *x.dims[batch + depth :]]
    count = indices.rank - 1

    def places(index: Index) -> list[Polynomial]:
        entries = [indices.at((*index, _of(k))) for k in range(depth)]
        return [_entry(case, node, entry, x, batch + k) for k, entry in enumerate(entries)]

    def check(index: Index) -> None:
        places(index)

    node.for_all(case, indices.dims[:-1], check, lambda: indices.index()[:-1])

    def at(index: Index) -> Polynomial:
        return x.at((*index[:batch], *places(index[:count]), *index[count:]))

    return [_same_kind(x, case, dims, at)]


def broadcast(case: Case, shapes: Sequence[Dims]) -> Dims:
    """Return the dims of several shapes after broadcasting.

    Raises:
        UndecidedError: they may not fit.
    """
    rank = max(map(len, shapes))
    dims = []
    for axis in range(rank):
        sizes = [s[axis - rank + len(s)] for s in shapes if axis - rank + len(s) >= 0]
        others = [size for size in sizes if size != ONE]
        # A size that may be 1 is only right beside equal ones: they are required to be equal.
        for size in others[1:]:
            case.require_equal(size, others[0], "broadcasting: a size")
        dims.append(others[0] if others else ONE)
    return tuple(dims)


def broadcast_at(x: Tensor, index: Index) -> Polynomial:
    """Return the element of a tensor at the index of a broadcast result."""
    tail = index[len(index) - x.rank :]
    return x.at(tuple(ZERO if d == ONE else i for i, d in zip(tail, x.dims, strict=True)))


def _expand(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    target = node.sizes("shape", 1)
    for size in target:
        case.require(size, "Expand: a size")
    dims = broadcast(case, [x.dims, tuple(target)])
    return [_same_kind(x, case, dims, lambda index: broadcast_at(x, index))]


def _tile(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    repeats = node.sizes("repeats", 1)
    for count in repeats:
        case.require(count, "Tile: a number of repeats")
    dims = [d * r for d, r in zip(x.dims, repeats, strict=True)]

    def at(index: Index) -> Polynomial:
        return x.at(tuple(case.mod(i, d) for i, d in zip(index, x.dims, strict=True)))

    return [_same_kind(x, case, dims, at)]


def _space_to_depth(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    b = _of(node.get("blocksize", 1))
    n, c, h, w = x.dims
    rows, columns = (case.exact(size, b) for size in (h, w))
    if rows is None or columns is None:
        raise UndecidedError("SpaceToDepth: its block may not divide a size")
    split = reshaped(case, x, [n, c, rows, b, columns, b])
    moved = transposed(case, split, [0, 3, 5, 1, 2, 4])
    return [reshaped(case, moved, [n, c * b * b, rows, columns])]


def _depth_to_space(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    b = _of(node.get("blocksize", 1))
    n, c, h, w = x.dims
    depth = case.exact(c, b * b)
    if depth is None:
        raise UndecidedError("DepthToSpace: its block may not divide the channels")
    if node.get("mode", b"DCR") == b"CRD":
        split, perm = reshaped(case, x, [n, depth, b, b, h, w]), [0, 1, 4, 2, 5, 3]
    else:
        split, perm = reshaped(case, x, [n, b, b, depth, h, w]), [0, 3, 4, 1, 5, 2]
    return [reshaped(case, transposed(case, split, perm), [n, depth, h * b, w * b])]


def _shape(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    start, end = node.get("start", 0), node.get("end", None)
    return [vector(case, x.dims[start:end])]


def _size(case: Case, node: NodeView) -> list[Tensor]:
    return [filled(case, [], product(node.input(0).dims), whole=True, type=_INT64)]


def _constant_of_shape(case: Case, node: NodeView) -> list[Tensor]:
    dims = node.input(0).elements()
    value, element_type = node.fill_value()
    return [filled(case, dims, value, whole=element_type in WHOLE, type=element_type)]


def _range(case: Case, node: NodeView) -> list[Tensor]:
    numbers = node.inputs()
    if not all(n.whole and product(n.dims) == ONE for n in numbers):
        raise UndecidedError("Range of anything but three integers")
    # onnxruntime computes the length in double precision.
    start, limit, delta = (fitting(case, n.at((ZERO,) * n.rank), n.type, 53) for n in numbers)
    if not case.decide(delta - 1):
        raise UndecidedError("Range with a step that may not be positive")
    count = ZERO
    if case.decide(limit - start):
        count = case.floor_div(limit - start + delta - 1, delta)
    return [
        Tensor(
            case, [count], lambda index: start + index[0] * delta, whole=True, type=numbers[0].type
        )
    ]


def _non_zero(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    if x.rank != 1 or not x.whole:
        raise UndecidedError("NonZero of anything but a list of ones")

    def check(index: Index) -> None:
        if not x.at(index).constant:
            raise UndecidedError("NonZero of anything but a list of ones")

    node.for_all(case, x.dims, check)
    return [Tensor(case, [ONE, x.dims[0]], lambda index: index[1], whole=True, type=_INT64)]


RULES: dict[str, _Rule] = {
    "Identity": _identity,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Slice": _slice,
    "Pad": _pad,
    "Concat": _concat,
    "Split": _split,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "Expand": _expand,
    "Tile": _tile,
    "SpaceToDepth": _space_to_depth,
    "DepthToSpace": _depth_to_space,
    "Shape": _shape,
    "Size": _size,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "NonZero": _non_zero,
}
