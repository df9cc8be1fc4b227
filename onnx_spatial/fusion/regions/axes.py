"""Operators that move axes, or add and drop axes of size 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_spatial.fusion.regions.blocked import Blocked
from onnx_spatial.fusion.regions.pointwise import (
    Form,
    Pointwise,
    Rule,
    data_state,
    only_data,
    same_border,
)
from onnx_spatial.fusion.regions.view import Node
from onnx_spatial.graph.arithmetic import Expression


def _transpose(node: Node, states: Sequence[Blocked | None]) -> Pointwise | str:
    state = data_state(states)
    perm = node.integers("perm", tuple(reversed(range(state.rank))))
    if perm is None or sorted(perm) != list(range(state.rank)):
        return "the permutation of Transpose is unknown"
    places = [perm.index(axis) for axis in range(state.rank)]
    return Pointwise((state.moved(places, state.rank),), same_border)


def _unsqueeze(node: Node, states: Sequence[Blocked | None]) -> Pointwise | str:
    if reason := only_data(node, states):
        return reason
    state, axes = data_state(states), node.axes(1)
    if axes is None:
        return "the axes of Unsqueeze are unknown"
    rank = state.rank + len(axes)
    new = {a % rank for a in axes}
    places = [a for a in range(rank) if a not in new]
    return Pointwise((state.moved(places, rank),), same_border)


def _squeeze(node: Node, states: Sequence[Blocked | None]) -> Pointwise | str:
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
    return Pointwise((state.moved(places, len(kept)),), same_border)


def _reshape(node: Node, states: Sequence[Blocked | None]) -> Pointwise | str:
    """A Reshape that only adds or drops axes of size 1."""
    if reason := only_data(node, states):
        return reason
    state, dims = data_state(states), node.view.dims(node.input(0))
    target = node.view.sizes.entries(node.input(1))
    if dims is None or target is None or node.view.opset < 5:
        return "the shape that Reshape gives is unknown"
    keep_zero = node.integer("allowzero", 0) == 1
    wanted = [
        dims[i] if t.constant == 0 and not keep_zero and i < len(dims) else t
        for i, t in enumerate(target)
    ]
    places = _align(dims, wanted, state)
    if places is None:
        return "Reshape splits or joins axes"
    added = [place for place in range(len(wanted)) if place not in places]
    gone = [axis for axis, place in enumerate(places) if place == -1]
    if gone and added:
        return "Reshape both adds axes and drops some"
    if gone:
        form = _with_axes("Squeeze", gone, node)
    elif added:
        form = _with_axes("Unsqueeze", added, node)
    else:
        form = Form("Identity", {}, ())
    return Pointwise((state.moved(places, len(wanted)),), same_border, form)


def _align(
    dims: Sequence[Expression], wanted: Sequence[Expression], state: Blocked
) -> list[int] | None:
    """Place of each axis in a shape that has axes of size 1 more or less, -1 for one that is not there.

    A size of -1 is whatever is left; where all others are the same, so is that one.
    """

    def places(axis: int, place: int) -> list[int] | None:
        if axis == len(dims) and place == len(wanted):
            return []
        both = axis < len(dims) and place < len(wanted)
        if both and (wanted[place] == dims[axis] or wanted[place].constant == -1):
            rest = places(axis + 1, place + 1)
            if rest is not None:
                return [place, *rest]
        if axis < len(dims) and dims[axis].constant == 1 and axis not in state.taken:
            rest = places(axis + 1, place)
            if rest is not None:
                return [-1, *rest]
        if place < len(wanted) and wanted[place].constant == 1:
            return places(axis, place + 1)
        return None

    return places(0, 0)


def _with_axes(op_type: str, axes: Sequence[int], node: Node) -> Form:
    if node.view.opset < 13:
        return Form(op_type, {"axes": tuple(axes)}, ())
    return Form(op_type, {}, (np.array(axes, np.int64),))


def _expand(node: Node, states: Sequence[Blocked | None]) -> Pointwise | str:
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
    form = Form("Expand", {}, (np.array(wanted, np.int64),))
    return Pointwise((here,), same_border, form)


#: The rule for each operator.
RULES: dict[str, Rule] = {
    "Expand": _expand,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
