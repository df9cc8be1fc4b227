"""Operators that move axes, or add and drop axes of size 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations, islice, permutations
from operator import mul

import numpy as np

from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.graph_view import NodeView
from onnx_spatial.fusion.dilated_conv.rule import (
    RewrittenNode,
    Rule,
    RuleResult,
    data_state,
    only_data,
    same_border,
)
from onnx_spatial.model.symbolic.symbolic_values import Polynomial

#: Operators that only tell from the sizes of a value what becomes of its axes.
SHAPED = frozenset({"Expand", "Flatten", "Reshape"})
#: Ways to pair axes of size 1 that are looked at.
_MOST_PLACEMENTS = 1000


def _transpose(node: NodeView, states: Sequence[BlockedLayout | None]) -> RuleResult | str:
    state = data_state(states)
    perm = node.integers("perm", tuple(reversed(range(state.rank))))
    if perm is None or sorted(perm) != list(range(state.rank)):
        return "the permutation of Transpose is unknown"
    places = [perm.index(axis) for axis in range(state.rank)]
    return RuleResult((state.moved(places, state.rank),), same_border)


def _unsqueeze(node: NodeView, states: Sequence[BlockedLayout | None]) -> RuleResult | str:
    if reason := only_data(node, states):
        return reason
    state, axes = data_state(states), node.axes(1)
    if axes is None:
        return "the axes of Unsqueeze are unknown"
    rank = state.rank + len(axes)
    new = {a % rank for a in axes}
    places = [a for a in range(rank) if a not in new]
    return RuleResult((state.moved(places, rank),), same_border)


def _squeeze(node: NodeView, states: Sequence[BlockedLayout | None]) -> RuleResult | str:
    if reason := only_data(node, states):
        return reason
    state, axes = data_state(states), node.axes(1)
    if not axes:
        return "the axes of Squeeze are unknown"
    gone = {a % state.rank for a in axes}
    if gone & set(state.taken):
        return "Squeeze takes a blocked axis away"
    kept = [a for a in range(state.rank) if a not in gone]
    places = [kept.index(a) if a in kept else -1 for a in range(state.rank)]
    return RuleResult((state.moved(places, len(kept)),), same_border)


def _reshape(node: NodeView, states: Sequence[BlockedLayout | None]) -> RuleResult | str:
    """A Reshape that only adds, drops or moves axes of size 1."""
    if reason := only_data(node, states):
        return reason
    dims, target = node.view.dims(node.input(0)), node.view.sizes.entries(node.input(1))
    if dims is None or target is None or node.view.opset < 5:
        return "the shape that Reshape gives is unknown"
    keep_zero = node.integer("allowzero", 0) == 1
    wanted = [
        dims[i] if t.constant == 0 and not keep_zero and i < len(dims) else t
        for i, t in enumerate(target)
    ]
    return _reshaped(node, data_state(states), dims, wanted)


def _flatten(node: NodeView, states: Sequence[BlockedLayout | None]) -> RuleResult | str:
    """A Flatten that only adds or drops axes of size 1."""
    dims, axis = node.view.dims(node.input(0)), node.integer("axis", 1)
    if dims is None or axis is None:
        return "the shape that Flatten gives is unknown"
    at = axis if axis >= 0 else axis + len(dims)
    wanted = [reduce(mul, part, Polynomial.of(1)) for part in (dims[:at], dims[at:])]
    return _reshaped(node, data_state(states), dims, wanted)


def _reshaped(
    node: NodeView, state: BlockedLayout, dims: Sequence[Polynomial], wanted: Sequence[Polynomial]
) -> RuleResult | str:
    """What takes axes of size 1 to other places, adds or drops some, to get from one shape to another.

    Such axes cannot be told apart: each way to pair them gives the same. Only one of them may suit what
    follows, so all are given that block other axes.
    """
    ways: dict[BlockedLayout, RuleResult] = {}
    for places in islice(_placements(dims, wanted, state), _MOST_PLACEMENTS):
        after = state.moved(places, len(wanted))
        forms = _forms(places, len(wanted), node)
        way = RuleResult((after,), same_border, forms)
        if after not in ways or _effort(way) < _effort(ways[after]):
            ways[after] = way
    if not ways:
        return f"{node.op_type} splits or joins axes"
    first, *others = sorted(ways.values(), key=_effort)
    return replace(first, others=tuple(others))


def _placements(
    dims: Sequence[Polynomial], wanted: Sequence[Polynomial], state: BlockedLayout
) -> Iterator[list[int]]:
    """Places of the axes in a shape that differs only in axes of size 1, -1 for one that is dropped.

    A size of -1 is whatever is left: where the others are all there, 1.
    """
    large = [axis for axis, size in enumerate(dims) if size.constant != 1]
    slots = [place for place, size in enumerate(wanted) if size.constant != 1]
    if len(slots) == len(large) + 1:
        slots = [place for place in slots if wanted[place].constant != -1]
    if len(slots) != len(large) or any(
        wanted[place] != dims[axis] and wanted[place].constant != -1
        for axis, place in zip(large, slots, strict=True)
    ):
        return
    ones = [axis for axis in range(len(dims)) if axis not in large]
    free = [place for place in range(len(wanted)) if place not in slots]
    for kept in combinations(ones, min(len(ones), len(free))):
        if any(axis in state.taken for axis in ones if axis not in kept):
            continue
        for chosen in permutations(free, len(kept)):
            places = [-1] * len(dims)
            for axis, place in (*zip(large, slots, strict=True), *zip(kept, chosen, strict=True)):
                places[axis] = place
            yield places


def _forms(places: Sequence[int], rank: int, node: NodeView) -> tuple[RewrittenNode, ...]:
    """The nodes that bring axes to these places."""
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
    return tuple(forms) or (RewrittenNode("Identity", {}, ()),)


def _effort(way: RuleResult) -> tuple[object, ...]:
    """Least where nothing is moved, then where the channels go first or last: that cancels best."""
    perms = [form.attributes["perm"] for form in way.forms if "perm" in form.attributes]
    to_an_end = all(
        perm in ((0, n - 1, *range(1, n - 1)), (0, *range(2, n), 1))
        for perm in perms
        for n in [len(perm)]
    )
    return (len(perms), not to_an_end, perms, way.states[0].axes)


def _with_axes(op_type: str, axes: Sequence[int], node: NodeView) -> RewrittenNode:
    if node.view.opset < 13:
        return RewrittenNode(op_type, {"axes": tuple(axes)}, ())
    return RewrittenNode(op_type, {}, (np.array(axes, np.int64),))


def _expand(node: NodeView, states: Sequence[BlockedLayout | None]) -> RuleResult | str:
    """An Expand that repeats along free axes only."""
    if reason := only_data(node, states):
        return reason
    state, dims = data_state(states), node.view.dims(node.input(0))
    target = node.view.sizes.entries(node.input(1))
    if dims is None or target is None:
        return "the shape that Expand gives is unknown"
    rank = max(state.rank, len(target))
    wanted = []
    for place in range(rank):
        axis, index = place - (rank - state.rank), place - (rank - len(target))
        size = target[index] if index >= 0 else None
        if axis >= 0 and axis in state.taken:
            if size is not None and size.constant != 1 and size != dims[axis]:
                return "Expand repeats along a blocked axis"
            wanted.append(1)
        elif size is None or size.constant is None:
            if size is not None and not (axis >= 0 and size == dims[axis]):
                return "the shape that Expand gives is unknown"
            wanted.append(1)
        else:
            wanted.append(size.constant)
    here = state.moved([a + rank - state.rank for a in range(state.rank)], rank)
    form = RewrittenNode("Expand", {}, (np.array(wanted, np.int64),))
    return RuleResult((here,), same_border, (form,))


#: The rule for each operator.
RULES: dict[str, Rule] = {
    "Expand": _expand,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
