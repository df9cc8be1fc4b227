"""Make shapes of one operator node that a lowering may treat differently from usual ones.

    usual      2 x 6 x 8 x 3       some images, cells and channels, no two axes alike
    least      1 x 2 x 2 x 1       a Squeeze takes away too much, a batch of one has no order
    alike      2 x 4 x 4 x 3       a permutation found by comparing sizes
    long       1 x 65538 x 2 x 1   a Slice that ends at 1000, sizes that went through 16 bits
    no images  0 x 2 x 2 x 1       sizes that are divided by each other; from opset 14 on, before
                                   which a Reshape cannot say all that it takes

Dims that are known stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from onnx_spatial.errors import OperatorError
from onnx_spatial.operators import Operator
from onnx_spatial.operators.spellings import NodeFacts, read
from onnx_spatial.verification.sizes.operator_shapes import ShapeSample, fits

#: A long axis: more than 16 bits count, and more than a float16 holds.
LONG = 2**16 + 1
#: Elements of the input and of the output with a long axis, at most.
MOST_ELEMENTS = 2**18
#: The opset in which Reshape got allowzero.
_ALLOWZERO = 14
#: Number of consecutive sizes to try: a block divides one of them.
_WIDTH = 256


def corners(facts: NodeFacts, usual: ShapeSample, opset: int) -> Iterator[ShapeSample]:
    """Samples with the parameters of a usual one and other sizes; one with a long axis is `large`."""
    known = [fact.value if fact is not None else None for fact in facts.inputs]
    arrays = [usual.parameters.get(i, value) for i, value in enumerate(known)]
    operator = read(facts).bind(arrays)
    groups = _groups(facts, len(usual.shape))
    least = list(usual.shape)
    for axes in groups:
        stop = min(usual.shape[axes[0]], _WIDTH) + 1
        _set(least, axes, _first(operator, len(least), axes, 1, stop))
    try:
        elements = _elements(operator, least)
    except OperatorError:  # each axis is legal by itself, and not all of them together
        return
    yield from _legal(usual, operator, least)
    inner = [axes for axes in groups if axes[0] > 0 and axes[-1] < len(least) - 1]
    middle = [axis for axes in inner for axis in axes]
    if len(middle) > 1:
        start = max(2, *(least[axis] for axis in middle))
        square = _first(operator, len(least), middle, start, start + _WIDTH)
        yield from _legal(usual, operator, _with(usual.shape, middle, square))
    for axes in groups:
        room = MOST_ELEMENTS / max(1, elements)
        start = min(LONG, int(least[axes[0]] * room ** (1 / len(axes))))
        size = _first(operator, len(least), axes, start, start + _WIDTH)
        if start > usual.shape[axes[0]]:
            for draw in _legal(usual, operator, _with(least, axes, size)):
                yield replace(draw, large=True)
    if groups and groups[0] == [0] and opset >= _ALLOWZERO:
        yield from _legal(usual, operator, _with(least, [0], 0))


def _groups(facts: NodeFacts, rank: int) -> list[list[int]]:
    """Axes whose size is open, together where they share it."""
    data = facts.inputs[0]
    dims = data.shape if data is not None and data.shape is not None else (None,) * rank
    found: dict[object, list[int]] = {}
    for axis, dim in enumerate(dims):
        if not isinstance(dim, int):
            found.setdefault(axis if dim is None else dim, []).append(axis)
    return list(found.values())


def _first(operator: Operator, rank: int, axes: Sequence[int], start: int, stop: int) -> int | None:
    """The first size from `start` on that is legal for some axes together."""
    return next((s for s in range(start, stop) if fits(operator, rank, axes, s)), None)


def _with(shape: Sequence[int], axes: Sequence[int], size: int | None) -> list[int]:
    changed = list(shape)
    _set(changed, axes, size)
    return changed


def _set(shape: list[int], axes: Sequence[int], size: int | None) -> None:
    if size is not None:
        for axis in axes:
            shape[axis] = size


def _elements(operator: Operator, shape: Sequence[int]) -> int:
    """Number of elements of the input or the output, whatever is more.

    Raises:
        OperatorError: the shape is not legal.
    """
    output = operator.output_shape(tuple(shape))
    return max(math.prod(shape), math.prod(d for d in output if isinstance(d, int)))


def _legal(usual: ShapeSample, operator: Operator, shape: Sequence[int]) -> Iterator[ShapeSample]:
    """The sample of a shape, if that is legal and not the usual one."""
    try:
        elements = _elements(operator, shape)
    except OperatorError:
        return
    if tuple(shape) != usual.shape:
        yield replace(usual, shape=tuple(shape), elements=elements, unusual=True)
