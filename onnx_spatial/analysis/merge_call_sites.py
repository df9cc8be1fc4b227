"""Join what is known of a node at several call sites: what they disagree on becomes unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnx_spatial.operators import Dim
from onnx_spatial.operators.spellings import Conflict, InputFacts, NodeFacts
from onnx_spatial.operators.spellings.call import AttributeValue


def join(each: Sequence[NodeFacts]) -> NodeFacts:
    """Join the facts of one node at several call sites."""
    if len(each) == 1:
        return each[0]
    width = max(len(f.inputs) for f in each)
    inputs = tuple(
        join_inputs([f.inputs[i] for f in each if i < len(f.inputs)]) for i in range(width)
    )
    return replace(each[0], inputs=inputs, attributes=_join_attributes(each))


def _join_attributes(each: Sequence[NodeFacts]) -> dict[str, AttributeValue]:
    first, *others = (f.attributes for f in each)
    return {
        name: value if all(o.get(name) == value for o in others) else Conflict()
        for name, value in first.items()
    }


def join_inputs(each: Sequence[InputFacts | None]) -> InputFacts | None:
    """Join the facts of one input; None if the input is missing at every call site."""
    known = [f for f in each if f is not None]
    if not known:
        return None
    first = known[0]
    if len(known) == 1:
        return first
    dtype = first.dtype if all(f.dtype == first.dtype for f in known) else None
    shape = first.shape
    for other in known[1:]:
        shape = join_shapes(shape, other.shape)
    value = first.value
    if value is not None and not all(
        f.value is not None and np.array_equal(f.value, value) for f in known[1:]
    ):
        value = None
    return InputFacts(dtype, shape, value)


def join_shapes(a: tuple[Dim, ...] | None, b: tuple[Dim, ...] | None) -> tuple[Dim, ...] | None:
    """Join two shapes of one value; None if the ranks differ."""
    if a is None or b is None or len(a) != len(b):
        return None
    # A name stands for one size within one call only.
    return tuple(x if x == y and isinstance(x, int) else None for x, y in zip(a, b, strict=True))
