"""Operators on single elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import TensorProto

from onnx_spatial.fusion.dilated_conv.blocked_layout import BlockedLayout
from onnx_spatial.fusion.dilated_conv.graph_view import NodeView
from onnx_spatial.fusion.dilated_conv.rule import (
    BorderValue,
    Rule,
    RuleResult,
    data_state,
    no_border,
    only_data,
    same_border,
    zero_stays,
)
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

_KEEP_ZERO = op_traits.having(Trait.KEEPS_ZERO)
_BROADCASTING = op_traits.having(Trait.BROADCASTS)
_TRUTHS = op_traits.having(Trait.TRUTH)


def _unary(node: NodeView, states: Sequence[BlockedLayout | None]) -> RuleResult | str:
    state = data_state(states)
    if node.op_type in _TRUTHS:
        state = state.with_types(frozenset({TensorProto.BOOL}))
    return RuleResult((state,), zero_stays if node.op_type in _KEEP_ZERO else no_border)


def _cast(node: NodeView, states: Sequence[BlockedLayout | None]) -> RuleResult | str:
    if reason := only_data(node, states):
        return reason
    to = node.integer("to", 0)
    types = frozenset({to}) if to else node.view.element_types(node.message.output[0])
    numeric = TensorProto.STRING not in (types | data_state(states).element_types)
    border = zero_stays if types and numeric else no_border
    return RuleResult((data_state(states).with_types(types),), border)


def _clip(node: NodeView, states: Sequence[BlockedLayout | None]) -> RuleResult | str:
    if reason := only_data(node, states):
        return reason
    ends: list[float | None] = []
    for index, name in ((1, "min"), (2, "max")):
        known = node.known(index)
        if known is not None and known.size == 1:
            ends.append(float(known.reshape(-1)[0]))
        elif node.input(index):
            ends.append(None)
        else:
            value = node.attributes.get(name, 0)
            ends.append(float(value) if isinstance(value, int | float) else None)
    least, most = ends
    around_zero = least is not None and most is not None and least <= 0 <= most
    return RuleResult((data_state(states),), zero_stays if around_zero else no_border)


def _dropout(node: NodeView, states: Sequence[BlockedLayout | None]) -> RuleResult | str:
    if reason := only_data(node, states):
        return reason
    training = node.known(2)
    if node.input(2) and (training is None or training.any()):
        return "Dropout may be in training mode"
    if len(node.message.output) > 1:
        return "Dropout gives a mask as well"
    return RuleResult((data_state(states),), same_border)


def _broadcasting(node: NodeView, states: Sequence[BlockedLayout | None]) -> RuleResult | str:
    if node.view.opset < 7 or "axis" in node.attributes:
        return f"{node.op_type} broadcasts in the way of opset 6"
    if node.op_type == "PRelu" and states[0] is None:
        return "the slope of PRelu is a value in blocks"
    known = [node.view.dims(name) for name in node.message.input]
    ranks = [
        state.rank if state is not None else len(dims) if dims is not None else None
        for state, dims in zip(states, known, strict=True)
    ]
    if None in ranks:
        return f"the rank of {node.input(ranks.index(None))!r} is unknown"
    rank = max(r for r in ranks if r is not None)
    result: BlockedLayout | None = None
    for state, dims, own in zip(states, known, ranks, strict=True):
        assert own is not None
        if state is None:
            continue
        here = state.moved([axis + rank - own for axis in range(own)], rank)
        if result is None:
            result, sizes = here, dims
        elif not here.aligned_with(result):
            return f"the inputs of {node.op_type} are blocked in different ways"
        elif not _equal_sizes(here, sizes, dims, rank):
            return f"the inputs of {node.op_type} may be of different sizes, which broadcast"
    assert result is not None
    for name, state, dims, own in zip(node.message.input, states, known, ranks, strict=True):
        if state is not None:
            continue
        assert dims is not None and own is not None
        for axis in result.taken:
            place = axis - (rank - own)
            if place >= 0 and dims[place].constant != 1:
                return f"{name!r} may differ from place to place, or from image to image"
    types = frozenset({TensorProto.BOOL}) if node.op_type in _TRUTHS else _joint_types(node, states)
    return RuleResult((result.with_types(types),), _border_of(node, states))


def _equal_sizes(
    state: BlockedLayout, a: Sequence[object] | None, b: Sequence[object] | None, rank: int
) -> bool:
    """Whether two values are of provably equal size along the blocked axes.

    The batch axes must be equal where they are a product of blocks, else the original does not run.
    """
    if a is None or b is None:
        return False
    axes = state.axes if state.order else state.taken
    return all(a[axis - (rank - len(a))] == b[axis - (rank - len(b))] for axis in axes)


def _joint_types(node: NodeView, states: Sequence[BlockedLayout | None]) -> frozenset[int]:
    index = 1 if node.op_type == "Where" else 0
    state = states[index]
    return state.element_types if state is not None else node.view.element_types(node.input(index))


def _border_of(
    node: NodeView, states: Sequence[BlockedLayout | None]
) -> Callable[[Sequence[BorderValue]], BorderValue]:
    others = [i for i, state in enumerate(states) if state is None]
    if not others and node.op_type in _KEEP_ZERO:
        return zero_stays
    if node.op_type in ("Mul", "PRelu"):
        values = [node.known(i) for i in others]
        # A negative number makes -0 of 0, which a reciprocal tells from it.
        finite = all(
            v is not None and bool((np.isfinite(v) & ~np.signbit(v)).all()) for v in values
        )
        return zero_stays if finite else no_border
    return no_border


#: The rule for each operator.
RULES: dict[str, Rule] = {
    **dict.fromkeys(op_traits.having(Trait.UNARY), _unary),
    **dict.fromkeys(_BROADCASTING, _broadcasting),
    "BitCast": _cast,
    "Cast": _cast,
    "CastLike": _cast,
    "Clip": _clip,
    "Dropout": _dropout,
}
