"""Rules for Reshape and Flatten: where they bring the batch and the blocked axes.

    moves, adds and drops axes of size 1         Squeeze, Transpose, Unsqueeze
    regroups the axes between the taken ones     a Reshape for the sizes of u
    merges all axes but the last into rows       nothing: u keeps its axes (`rules_rows`)

Sizes are compared as polynomials: what is not provably the same counts as different.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations, islice, pairwise, permutations
from operator import mul

import numpy as np

from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.graph_view import NodeView
from onnx_spatial.fusion.dilated_conv.rule import (
    IDENTITY,
    AxisSize,
    RewrittenNode,
    RewrittenReshape,
    Rule,
    RuleResult,
    of_data,
    same_border,
)
from onnx_spatial.fusion.rule import Reason
from onnx_spatial.model.symbolic.polynomial import quotient
from onnx_spatial.model.symbolic.symbolic_values import Polynomial

#: Most ways to pair axes of size 1 that are tried.
_MOST_PLACEMENTS = 1000


@of_data
def _reshape(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    """Accept a Reshape that keeps taken axes apart, or merges all axes but the last into rows."""
    dims, target = node.view.dims(node.input(0)), node.view.sizes.entries(node.input(1))
    if target is None or node.view.opset < 5:
        return "the shape that Reshape gives is unknown"
    if layout.rows:
        return _from_rows(node, layout, target)
    if dims is None:
        return "the rank of the input of Reshape is unknown"
    keep_zero = node.integer("allowzero", 0) == 1
    shape = [
        dims[i] if t.constant == 0 and not keep_zero and i < len(dims) else t
        for i, t in enumerate(target)
    ]
    return _reshaped(node, layout, dims, shape)


@of_data
def _flatten(node: NodeView, layout: BlockedLayout) -> RuleResult | Reason:
    """Accept a Flatten as the Reshape that it is."""
    dims, axis = node.view.dims(node.input(0)), node.integer("axis", 1)
    if dims is None or axis is None:
        return "the shape that Flatten gives is unknown"
    at = axis if axis >= 0 else axis + len(dims)
    shape = [reduce(mul, part, Polynomial.of(1)) for part in (dims[:at], dims[at:])]
    return _reshaped(node, layout, dims, shape)


def _reshaped(
    node: NodeView, layout: BlockedLayout, dims: Sequence[Polynomial], target: Sequence[Polynomial]
) -> RuleResult | Reason:
    """Get from one shape to another by moving, adding and dropping axes of size 1.

    Such axes look alike: each way to pair them gives the same values. Only one way may suit the nodes
    behind, so every way that blocks other axes is an alternative.
    """
    ways: dict[BlockedLayout, RuleResult] = {}
    for places in islice(_placements(dims, target, layout), _MOST_PLACEMENTS):
        after = layout.moved(places, len(target))
        way = RuleResult((after,), same_border, _forms(places, len(target), node))
        if after not in ways or _effort(way) < _effort(ways[after]):
            ways[after] = way
    if not ways:
        result = _to_rows(layout, dims, target) or _regrouped(layout, dims, target)
        known = all(size.constant is not None for size in (*dims, *target))
        return result or f"{node.op_type} splits or joins axes{'' if known else ', or may do so'}"
    first, *others = sorted(ways.values(), key=_effort)
    return replace(first, others=tuple(others))


def _to_rows(
    layout: BlockedLayout, dims: Sequence[Polynomial], target: Sequence[Polynomial]
) -> RuleResult | None:
    """Merge all axes but the last, which is free; on u they stay apart."""
    *leading, last = dims
    if len(target) != 2 or len(dims) < 3 or not layout.is_free(-1) or layout.batch != 0:
        return None
    sizes = (reduce(mul, leading), last)
    inferred = [t.constant == -1 for t in target]
    if all(inferred) or any(
        not i and t != size for i, t, size in zip(inferred, target, sizes, strict=True)
    ):
        return None
    rows = replace(layout, rows=tuple(leading))
    return RuleResult((rows,), same_border, IDENTITY, dims=sizes)


def _from_rows(
    node: NodeView, layout: BlockedLayout, target: Sequence[Polynomial]
) -> RuleResult | Reason:
    """Split the rows into the axes that were merged."""
    inferred = [t.constant == -1 for t in target]
    sizes = zip(inferred, target, layout.rows, strict=False)
    if (
        len(target) != len(layout.rows) + 1
        or sum(inferred) > 1
        or any(not i and t != size for i, t, size in sizes)
    ):
        return "Reshape does not split the rows into the axes that were merged, or may not do so"
    dims = node.view.dims(node.input(0))
    last = target[-1] if dims is None or not inferred[-1] else dims[-1]
    whole = replace(layout, rows=())
    return RuleResult((whole,), same_border, IDENTITY, dims=(*layout.rows, last))


def _regrouped(
    layout: BlockedLayout, dims: Sequence[Polynomial], target: Sequence[Polynomial]
) -> RuleResult | None:
    """Keep the taken axes in their order, and regroup the free axes between them."""
    taken = sorted(layout.taken)
    bounds = [-1, *taken, len(dims)]
    groups = [dims[a + 1 : b] for a, b in pairwise(bounds)]
    kept = [dims[axis] for axis in taken]
    found = _match_groups(kept, groups, target, 0)
    if found is None and all(size.constant != -1 for size in target):
        # Where all other sizes agree, a run in which the last ones do not would fail.
        found = _match_groups(kept, groups, target, 1)
    if found is None:
        return None
    places = [-1] * len(dims)
    for axis, place in zip(taken, found, strict=True):
        places[axis] = place
    sizes, written = list(target), list[int | AxisSize]()
    for group, first, end in zip(groups, [-1, *found], [*found, len(target)], strict=True):
        for place in range(first + 1, end):
            size = _resolved(place, target[first + 1 : end], first + 1, group)
            same = [a for a, dim in enumerate(dims) if a not in taken and dim == size]
            if size is None or (size.constant is None and not same):
                return None
            sizes[place] = size
            number = size.constant
            written.append(AxisSize(same[0]) if number is None else number)
        if end < len(target):
            axis = taken[found.index(end)]
            sizes[end] = dims[axis]
            written.append(AxisSize(axis))
    forms = (RewrittenReshape(tuple(written)),)
    return RuleResult((layout.moved(places, len(target)),), same_border, forms, dims=tuple(sizes))


def _match_groups(
    taken: Sequence[Polynomial],
    groups: Sequence[Sequence[Polynomial]],
    target: Sequence[Polynomial],
    unknown: int,
    start: int = 0,
) -> list[int] | None:
    """Find the places of the taken sizes, with as many elements between them as in the groups.

    Of `unknown` groups the number of elements may be unknown.
    """
    if not taken:
        return [] if unknown or _same_count(groups[0], target[start:]) else None
    for place in range(start, len(target)):
        left = unknown - (not _same_count(groups[0], target[start:place]))
        if left < 0 or (target[place] != taken[0] and target[place].constant != -1):
            continue
        rest = _match_groups(taken[1:], groups[1:], target, left, place + 1)
        if rest is not None:
            return [place, *rest]
    return None


def _same_count(group: Sequence[Polynomial], target: Sequence[Polynomial]) -> bool:
    """Return whether sizes have as many elements as others, of which one may be inferred (-1)."""
    if any(size.constant == -1 for size in target):
        return True
    return _count(group) == _count(target)


def _count(sizes: Sequence[Polynomial]) -> Polynomial:
    return reduce(mul, sizes, Polynomial.of(1))


def _resolved(
    place: int, target: Sequence[Polynomial], first: int, group: Sequence[Polynomial]
) -> Polynomial | None:
    """Return the size at a place of the target, with an inferred one computed; None if unknown."""
    size = target[place - first]
    if size.constant != -1:
        return size
    others = _count([t for t in target if t is not size]).constant
    whole = _count(group)
    if others is None or others < 1 or not whole.divisible(others):
        return None
    return quotient(whole, Polynomial.of(others))


def _placements(
    dims: Sequence[Polynomial], target: Sequence[Polynomial], layout: BlockedLayout
) -> Iterator[list[int]]:
    """Yield places of the axes in a shape that differs only in axes of size 1; -1 drops an axis.

    A size of -1 is inferred: it is 1 if the other sizes are those of all longer axes.
    """
    large = [axis for axis, size in enumerate(dims) if size.constant != 1]
    slots = [place for place, size in enumerate(target) if size.constant != 1]
    if len(slots) == len(large) + 1:
        slots = [place for place in slots if target[place].constant != -1]
    if len(slots) != len(large) or any(
        target[place] != dims[axis] and target[place].constant != -1
        for axis, place in zip(large, slots, strict=True)
    ):
        return
    ones = [axis for axis in range(len(dims)) if axis not in large]
    free = [place for place in range(len(target)) if place not in slots]
    for kept in combinations(ones, min(len(ones), len(free))):
        if any(axis in layout.taken for axis in ones if axis not in kept):
            continue
        for chosen in permutations(free, len(kept)):
            places = [-1] * len(dims)
            for axis, place in (*zip(large, slots, strict=True), *zip(kept, chosen, strict=True)):
                places[axis] = place
            yield places


def _forms(places: Sequence[int], rank: int, node: NodeView) -> tuple[RewrittenNode, ...]:
    """Write the nodes that bring axes to these places."""
    gone = [axis for axis, place in enumerate(places) if place == -1]
    kept = [place for place in places if place != -1]
    perm = sorted(range(len(kept)), key=kept.__getitem__)
    added = [place for place in range(rank) if place not in kept]
    forms = []
    if gone:
        forms.append(_with_axes("Squeeze", gone, node))
    if perm != sorted(perm):
        forms.append(RewrittenNode("Transpose", {"perm": tuple(perm)}, ()))
    if added:
        forms.append(_with_axes("Unsqueeze", added, node))
    return tuple(forms) or IDENTITY


def _effort(way: RuleResult) -> tuple[object, ...]:
    """Rank ways: first without a move, then with the channels moved to an end, which cancels best."""
    nodes = [form for form in way.forms if isinstance(form, RewrittenNode)]
    perms = [node.attributes["perm"] for node in nodes if "perm" in node.attributes]
    to_an_end = all(
        perm in ((0, len(perm) - 1, *range(1, len(perm) - 1)), (0, *range(2, len(perm)), 1))
        for perm in perms
    )
    return (len(perms), not to_an_end, perms, way.layouts[0].axes)


def _with_axes(op_type: str, axes: Sequence[int], node: NodeView) -> RewrittenNode:
    if node.view.opset < 13:
        return RewrittenNode(op_type, {"axes": tuple(axes)}, ())
    return RewrittenNode(op_type, {}, (np.array(axes, np.int64),))


#: The rule for each operator.
RULES: dict[str, Rule] = {"Flatten": _flatten, "Reshape": _reshape}
