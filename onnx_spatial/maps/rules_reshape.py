"""The maps of operators that keep all elements: Reshape, Transpose, and compositions of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from onnx_spatial.maps.cases import Case, IllegalError, UndecidedError
from onnx_spatial.maps.division import exact
from onnx_spatial.maps.expressions import FLOOR, ONE, ZERO, Index, product, show, top_atoms
from onnx_spatial.maps.node import NodeView, Rule, assume_equal, axes_of
from onnx_spatial.maps.polynomial import OperationKey, Polynomial
from onnx_spatial.maps.regrouping import reshaped
from onnx_spatial.maps.tensor import Axis, Tensor, moved


def _identity(case: Case, node: NodeView) -> list[Tensor]:
    return [node.input(0)]


def _reshape(case: Case, node: NodeView) -> list[Tensor]:
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
        case.require_equal(rest * known, total, "Reshape: the numbers of elements may differ")
    # A quotient of numbers of elements is not negative, which its terms may not show.
    case.assume(rest - (1 if all(case.surely(d - 1) for d in x.dims) else 0))
    return rest


def _split_by_rests(case: Case, before: Polynomial, after: Polynomial) -> None:
    """Split by what is left of sizes: whether two numbers of elements are equal depends on it.

    A legal node [h] -> [h/2, 2] with h = 2*h' + r only runs where r is 0.
    """
    if not case.splits or case.are_equal(before, after):
        return
    for atom in sorted(top_atoms(before - after), key=lambda atom: atom.serial):
        key = atom.key
        if isinstance(key, OperationKey) and key.operator == FLOOR:
            size, divisor = key.operands
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


def _flatten(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    axis = node.get("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    if not 0 <= axis <= x.rank:
        raise UndecidedError("Flatten: the axis is beyond the rank")
    return [reshaped(case, x, [product(x.dims[:axis]), product(x.dims[axis:])])]


def _squeeze(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    axes = node.axes(1, x.rank)
    if axes is None:
        axes = [a for a, d in enumerate(x.dims) if case.is_zero(d - 1)]
    elif not axes:
        raise UndecidedError("Squeeze: runtimes disagree on an empty list of axes")
    for axis in axes:
        node.need_equal(case, x.dims[axis], ONE, "Squeeze: a dim may not be 1")
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
    listed = node.optional_integers("axes", 1)
    if listed is None:
        raise UndecidedError("Unsqueeze: axes are missing")
    rank = x.rank + len(listed)
    new = axes_of(listed, rank)
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
        raise UndecidedError(f"Transpose: perm {list(perm)} does not fit rank {x.rank}")
    back = [perm.index(axis) for axis in range(x.rank)]
    return Tensor(
        case,
        [x.dims[a] for a in perm],
        lambda index: x.at(tuple(index[a] for a in back)),
        whole=x.whole,
        type=x.type,
        axes=[x.axes[a] for a in perm],
    )


def _space_to_depth(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    b = _block(node)
    n, c, h, w = x.dims
    rows, columns = (_quotient(case, node, size, b) for size in (h, w))
    split = reshaped(case, x, [n, c, rows, b, columns, b])
    moved = transposed(case, split, [0, 3, 5, 1, 2, 4])
    return [reshaped(case, moved, [n, c * b * b, rows, columns])]


def _block(node: NodeView) -> Polynomial:
    """Return the blocksize; tf2onnx gives the names of these operators to block operators, too."""
    block = node.get("blocksize", 0)
    if node.count != 1 or block < 1:
        raise UndecidedError(f"{node.op_type}: not the operator of ONNX")
    return Polynomial.of(block)


def _quotient(case: Case, node: NodeView, size: Polynomial, block: Polynomial) -> Polynomial:
    """Return a size divided by a block; a node that is legal runs only where it divides the size."""
    quotient = exact(size, block)
    if quotient is not None:
        return quotient
    if not node.legal:
        raise UndecidedError(f"{node.op_type}: the block may not divide a dim")
    return case.divide(size, block, f"{show(size)} is divisible by {show(block)}")


def _depth_to_space(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    b = _block(node)
    n, c, h, w = x.dims
    depth = exact(c, b * b)
    if depth is None:
        raise UndecidedError("DepthToSpace: the block may not divide the channels")
    if node.get("mode", b"DCR") == b"CRD":
        split, perm = reshaped(case, x, [n, depth, b, b, h, w]), [0, 1, 4, 2, 5, 3]
    else:
        split, perm = reshaped(case, x, [n, b, b, depth, h, w]), [0, 3, 4, 1, 5, 2]
    return [reshaped(case, transposed(case, split, perm), [n, depth, h * b, w * b])]


RULES: dict[str, Rule] = {
    "Identity": _identity,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "SpaceToDepth": _space_to_depth,
    "DepthToSpace": _depth_to_space,
}
