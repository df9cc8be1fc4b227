"""The maps of operators that keep all elements: Reshape, Transpose, and compositions of them.

    Transpose   y[j, i] = x[i, j]
    Reshape     y[.., i, j, ..] = x[.., i*w + j, ..]      [n, h*w, c] -> [n, h, w, c]

A Reshape pairs axes of the same number of elements first, so that few indices are divided: n and c
stay here, and the index of h*w is split into i and j.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from onnx_spatial.maps.cases import Case, IllegalError, UndecidedError
from onnx_spatial.maps.division import exact
from onnx_spatial.maps.node import NodeView, Rule, assume_equal, axes_of
from onnx_spatial.maps.polynomial import (
    FLOOR,
    ONE,
    ZERO,
    Index,
    Polynomial,
    flat,
    product,
    show,
    top_atoms,
)
from onnx_spatial.maps.tensor import Axis, Dims, Tensor, moved


def reshaped(case: Case, x: Tensor, dims: Sequence[Polynomial]) -> Tensor:
    """Return the tensor with other dims.

    Raises:
        UndecidedError: the number of elements may differ.
    """
    if tuple(dims) == x.dims:
        return x
    groups = _pair_groups(case, x.dims, tuple(dims))

    def at(index: Index) -> Polynomial:
        return x.at(_regroup_index(case, groups, x.dims, tuple(dims), index))

    axes = _regrouped_axes(case, x, groups, tuple(dims))
    return moved(x, case, dims, at, axes)


_Groups = list[tuple[range, range]]


def _pair_groups(case: Case, before: Dims, after: Dims) -> _Groups:
    """Pair groups of axes of as many elements: [a, b*c] -> [a, b, c] gives (a, a), (b*c, b c)."""
    groups: _Groups = []
    i = j = 0
    while i < len(before) and j < len(after):
        start_i, start_j = i, j
        a, b = before[i], after[j]
        i, j = i + 1, j + 1
        while a != b:
            more_a = i < len(before) and (j >= len(after) or exact(b, a) is not None)
            more_b = j < len(after) and exact(a, b) is not None
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
            case.require_equal(a, b, "Reshape: the numbers of elements may differ")
        groups.append((range(start_i, i), range(start_j, j)))
    for dims, at in ((before, i), (after, j)):
        for size in dims[at:]:
            case.require_equal(size, ONE, "Reshape: the numbers of elements may differ")
    return groups


def _regroup_index(case: Case, groups: _Groups, before: Dims, after: Dims, index: Index) -> Index:
    """Return the index in the input of a Reshape for an index in its output."""
    result = [ZERO] * len(before)
    for inside, outside in groups:
        digits = [(index[axis], after[axis]) for axis in outside]
        sizes = [before[axis] for axis in inside]
        places = _redistribute_digits(case, digits, sizes)
        if places is None:
            places = case.digits_of(flat(*zip(*digits, strict=True)), sizes)
        for axis, place in zip(inside, places, strict=True):
            result[axis] = place
    return tuple(result)


_Digit = tuple[Polynomial, Polynomial]


def _redistribute_digits(
    case: Case, digits: list[_Digit], sizes: Sequence[Polynomial]
) -> list[Polynomial] | None:
    """Return the digits of a number for other sizes; None if the sizes do not divide each other.

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
            part = exact(left, extent)
            if part is not None:
                place, weight, left = place + value * weight, weight * extent, part
                continue
            part = exact(extent, left)
            if part is None:
                return None
            high = case.floor_div(value, left)
            place, left = place + (value - high * left) * weight, ONE
            rest.append((high, part))
        places.append(place)
    return places[::-1] if not rest else None


def _regrouped_axes(case: Case, x: Tensor, groups: _Groups, after: Dims) -> list[Axis]:
    """Return the digits of the new axes: those of the old ones where they fit."""
    axes = [Axis([d]) for d in after]
    for inside, outside in groups:
        large = [a for a in inside if x.dims[a] != ONE]
        if len(outside) == 1:
            axes[outside[0]] = Axis.joined([x.axes[a] for a in large or inside])
            continue
        extents = [e for a in inside for e in x.axes[a].extents]
        for axis in reversed(outside):
            digits = _take(case, extents, after[axis])
            if digits is None:
                break
            axes[axis] = Axis(digits)
    return axes


def _take(case: Case, extents: list[Polynomial], size: Polynomial) -> list[Polynomial] | None:
    """Remove the last extents whose product is a size, and return them; None if none fit.

    The first of them may be split: its other factor stays in the list.
    """
    digits: list[Polynomial] = []
    while size != ONE:
        extent = extents.pop() if extents else ONE
        if extent == ONE and not extents:
            return None
        rest = exact(size, extent)
        if rest is not None:
            digits.insert(0, extent)
            size = rest
            continue
        rest = exact(extent, size)
        if rest is None:
            return None
        digits.insert(0, size)
        extents.append(rest)
        size = ONE
    return digits or [ONE]


def _map_identity(case: Case, node: NodeView) -> list[Tensor]:
    return [node.input(0)]


def _map_reshape(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    target = node.sizes("shape", 1)
    asked = [_asked_dim(case, node, x, place, size) for place, size in enumerate(target)]
    left_dim = partial(_left_dim, case, node, x, asked)
    dims = [case.size(left_dim) if size is None else size for size in asked]
    if not case.splits:  # the number of elements stays the same, as the node is legal
        return [moved(x, case, dims, lambda index: reshaped(case, x, dims).at(index))]
    before, after = product(x.dims), product(dims)
    if node.legal and None not in asked and before != after:
        if _are_all_equal(case, x.dims, dims):
            for a, b in zip(x.dims, dims, strict=True):
                assume_equal(case, a, b)
            return [x]
        _split_by_rests(case, before, after)
        if _is_linear(before - after):
            assume_equal(case, before, after)
    return [reshaped(case, x, dims)]


def _asked_dim(
    case: Case, node: NodeView, x: Tensor, place: int, size: Polynomial
) -> Polynomial | None:
    """Return the dim that a Reshape asks for at a place of its shape; None for what is left."""
    copies = not node.get("allowzero", 0)
    if size != ZERO and not case.splits:
        # A size that may be 0 is taken for one that is not: inference says nothing of empty tensors.
        return size if case.surely(size) else None if size == -ONE else case.size(_unknown_dim)
    if case.decide(size - 1):
        return size
    if case.is_zero(size):
        if copies and place >= x.rank:
            raise IllegalError("Reshape: a 0 in the shape copies a dim beyond the rank")
        return x.dims[place] if copies else ZERO
    if size.constant == -1 or (node.legal and case.is_zero(size + 1)):
        return None
    if node.legal:
        raise IllegalError("Reshape: a dim is negative")
    raise UndecidedError("Reshape: a dim may be negative")


def _unknown_dim() -> Polynomial:
    raise UndecidedError("Reshape: a dim may be negative")


def _left_dim(
    case: Case, node: NodeView, x: Tensor, asked: Sequence[Polynomial | None]
) -> Polynomial:
    """Return the dim that is left for a -1 of a Reshape, whose place in `asked` holds None."""
    if asked.count(None) > 1:
        raise IllegalError("Reshape: the shape holds -1 twice")
    dims = [size for size in asked if size is not None]
    total, known = product(x.dims), product(dims)
    if case.splits and not all(case.surely(d - 1) for d in dims):
        case.require(known - 1, "Reshape: -1 stands beside a dim that may be 0")
    rest = exact(total, known)
    if rest is None:
        rest = case.floor_div(total, known)
        if node.legal:
            _split_by_rests(case, rest * known, total)
            _assume_exact(case, rest, total, known)
        case.require_equal(rest * known, total, "Reshape: the numbers of elements may differ")
    # A quotient of numbers of elements is not negative, which its terms may not show.
    case.assume(rest - (1 if all(case.surely(d - 1) for d in x.dims) else 0))
    return rest


def _assume_exact(case: Case, rest: Polynomial, total: Polynomial, known: Polynomial) -> None:
    """Assume that the quotient of two numbers of elements is exact: what divides in it is, too."""
    for atom in top_atoms(rest):
        if atom.operation.operator == FLOOR:
            quotient, (a, b) = Polynomial({(atom,): 1}), atom.operation.operands
            if (rest - quotient) * b * known + a * known == total * b:
                assume_equal(case, quotient * b, a)
                case.assume(quotient - 1 if case.surely(a - 1) else quotient)


def _split_by_rests(case: Case, before: Polynomial, after: Polynomial) -> None:
    """Split by what is left of sizes: whether two numbers of elements are equal depends on it.

    A legal node [h] -> [h/2, 2] with h = 2*h' + r only runs where r is 0.
    """
    if not case.splits or case.are_equal(before, after):
        return
    for atom in sorted(top_atoms(before - after), key=lambda atom: atom.serial):
        if atom.operation.operator == FLOOR:
            size, divisor = atom.operation.operands
            if divisor.constant is not None and case.is_size(size):
                case.residue(size, divisor.constant)


def _are_all_equal(case: Case, before: Sequence[Polynomial], after: Sequence[Polynomial]) -> bool:
    """Return whether a Reshape that succeeds keeps each dim: none grows, or none shrinks.

    Numbers of 1 or more whose products are equal are equal themselves then.
    """
    pairs = list(zip(before, after, strict=False))
    if len(before) != len(after) or not all(map(_is_linear, (*before, *after))):
        return False
    if not all(case.surely(d - 1) for d in (*before, *after)):
        return False
    return all(case.surely(a - b) for a, b in pairs) or all(case.surely(b - a) for a, b in pairs)


def _is_linear(p: Polynomial) -> bool:
    """Return whether a polynomial has no products: facts that have some make proofs slow."""
    return all(len(product) <= 1 for product in p.terms)


def _map_flatten(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    axis = node.get("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    node.check(0 <= axis <= x.rank, "the axis is beyond the rank")
    return [reshaped(case, x, [product(x.dims[:axis]), product(x.dims[axis:])])]


def _map_squeeze(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    axes = node.axes(1, x.rank)
    if axes is None:
        axes = [a for a, d in enumerate(x.dims) if case.is_zero(d - 1)]
    elif not axes:
        raise UndecidedError("Squeeze: runtimes disagree on an empty list of axes")
    for axis in axes:
        node.need_equal(case, x.dims[axis], ONE, "Squeeze: a dim may not be 1")
    kept = [[] if a in axes else [a] for a in range(x.rank)]
    return [rearranged(case, x, dict(enumerate(x.dims)), kept, list(filter(None, kept)))]


def _map_unsqueeze(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    listed = node.optional_integers("axes", 1)
    if listed is None:
        raise UndecidedError("Unsqueeze: axes are missing")
    outputs = inputs = [[a] for a in range(x.rank)]
    for axis in sorted(axes_of(listed, x.rank + len(listed))):
        outputs = [*outputs[:axis], [], *outputs[axis:]]
    return [rearranged(case, x, dict(enumerate(x.dims)), inputs, outputs)]


def _map_transpose(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    perm = node.get("perm", None)
    return [transposed(case, x, list(perm) if perm is not None else [*reversed(range(x.rank))])]


def transposed(case: Case, x: Tensor, perm: Sequence[int]) -> Tensor:
    """Return the tensor with its axes in another order.

    Raises:
        IllegalError: `perm` does not fit the rank.
    """
    if sorted(perm) != list(range(x.rank)):
        raise IllegalError(f"Transpose: perm {list(perm)} does not fit rank {x.rank}")
    factors = [[a] for a in range(x.rank)]
    return rearranged(case, x, dict(enumerate(x.dims)), factors, [[a] for a in perm])


def rearranged(
    case: Case,
    x: Tensor,
    sizes: Mapping[int, Polynomial],
    inputs: Sequence[Sequence[int]],
    outputs: Sequence[Sequence[int]],
) -> Tensor:
    """Return the tensor whose axes are made of the same factors in another order.

    Args:
        case: the case.
        x: the tensor.
        sizes: the sizes of the factors.
        inputs: the factors of each axis of `x`, the slowest first.
        outputs: the same of the result.
    """

    def at(index: Index) -> Polynomial:
        places: dict[int, Polynomial] = {}
        for axis, number in zip(outputs, index, strict=True):
            places.update(zip(axis, case.digits_of(number, [sizes[f] for f in axis]), strict=True))
        return x.at(tuple(flat([places[f] for f in a], [sizes[f] for f in a]) for a in inputs))

    extents = [[sizes[factor] for factor in axis] for axis in outputs]
    axis_of = {axis[0]: x.axes[place] for place, axis in enumerate(inputs) if len(axis) == 1}
    pairs = zip(outputs, extents, strict=True)
    axes = [
        axis_of[a[0]] if len(a) == 1 and a[0] in axis_of else Axis(e or [ONE]) for a, e in pairs
    ]
    return moved(x, case, list(map(product, extents)), at, axes)


def _map_space_to_depth(case: Case, node: NodeView) -> list[Tensor]:
    b = _block_size(node)
    n, c, h, w = node.input(0).dims
    sizes = [n, c, _block_quotient(case, node, h, b), b, _block_quotient(case, node, w, b), b]
    outputs = [[0], [3, 5, 1], [2], [4]]
    return [_of_factors(case, node, sizes, [[0], [1], [2, 3], [4, 5]], outputs)]


def _of_factors(
    case: Case, node: NodeView, sizes: Sequence[Polynomial], *factors: Sequence[Sequence[int]]
) -> Tensor:
    return rearranged(case, node.input(0), dict(enumerate(sizes)), *factors)


def _block_size(node: NodeView) -> Polynomial:
    """Return the blocksize; tf2onnx gives the names of these operators to block operators, too."""
    block = node.get("blocksize", 0)
    node.check(node.count == 1 and block >= 1, "not the operator of ONNX")
    return Polynomial.of(block)


def _block_quotient(case: Case, node: NodeView, size: Polynomial, block: Polynomial) -> Polynomial:
    """Return a size divided by a block; a node that is legal runs only where it divides the size."""
    quotient = exact(size, block)
    if quotient is not None:
        return quotient
    node.check(node.legal, "the block may not divide a dim")
    return case.divide(size, block, f"{show(size)} is divisible by {show(block)}")


def _map_depth_to_space(case: Case, node: NodeView) -> list[Tensor]:
    b = _block_size(node)
    n, c, h, w = node.input(0).dims
    depth = exact(c, b * b)
    if depth is None:
        raise UndecidedError("DepthToSpace: the block may not divide the channels")
    sizes = [n, depth, b, b, h, w]
    channels = [1, 2, 3] if node.get("mode", b"DCR") == b"CRD" else [2, 3, 1]
    outputs = [[0], [1], [4, 2], [5, 3]]
    return [_of_factors(case, node, sizes, [[0], channels, [4], [5]], outputs)]


RULES: dict[str, Rule] = {
    "Identity": _map_identity,
    "Reshape": _map_reshape,
    "Flatten": _map_flatten,
    "Squeeze": _map_squeeze,
    "Unsqueeze": _map_unsqueeze,
    "Transpose": _map_transpose,
    "SpaceToDepth": _map_space_to_depth,
    "DepthToSpace": _map_depth_to_space,
}
