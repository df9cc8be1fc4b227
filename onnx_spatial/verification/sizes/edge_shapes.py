"""Sample edge shapes of one operator node, which a lowering may treat differently from usual ones.

    usual      2 x 6 x 8 x 3       some images, cells and channels, no two axes alike
    least      1 x 2 x 2 x 1       detects a Squeeze of too many axes, a batch in a wrong order
    alike      2 x 4 x 4 x 3       detects a permutation found by comparing sizes
    long       1 x 65538 x 2 x 1   detects a Slice that ends at 1000, sizes in 16 bits
    no images  0 x 2 x 2 x 1       detects a division of sizes; from opset 14 on, because Reshape
                                   needs allowzero

Known dims stay as they are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from onnx_spatial.errors import OperatorError
from onnx_spatial.operators import Operator
from onnx_spatial.operators.spellings import NodeFacts, read
from onnx_spatial.verification.sizes.operator_shapes import ShapeSample, fits

#: Size of a long axis: it exceeds 16 bits, and a float16.
LONG = 2**16 + 1
#: Elements of the input and of the output with a long axis, at most.
MOST_ELEMENTS = 2**18
#: Sizes of each remainder by this number are sampled: the strides of most nets divide it.
_REMAINDERS = 32
#: The opset in which Reshape got allowzero.
_ALLOWZERO = 14
#: Number of consecutive sizes to try: a block divides one of them.
_WIDTH = 256


def edge_samples(
    facts: NodeFacts, usual: ShapeSample, opset: int, limits: Iterable[int] = ()
) -> Iterator[ShapeSample]:
    """Yield samples with the parameters of a usual one and other sizes; a long axis makes it `large`.

    Sizes above some `limits` are among them: integers of the nodes that replace the operator.
    """
    operator = _bound(facts, usual)
    groups = _groups(facts, len(usual.shape))
    least = _least(operator, groups, usual)
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
            for sample in _legal(usual, operator, _with(least, axes, size)):
                yield replace(sample, large=True)
    for limit, axes in itertools.product(limits, groups):
        if LONG > limit > usual.shape[axes[0]]:
            size = _first(operator, len(least), axes, limit + 1, limit + 1 + _WIDTH)
            for sample in _legal(usual, operator, _with(least, axes, size)):
                yield replace(sample, large=True)
    if groups and groups[0] == [0] and opset >= _ALLOWZERO:
        yield from _legal(usual, operator, _with(least, [0], 0))


def remainder_samples(facts: NodeFacts, usual: ShapeSample) -> Iterator[ShapeSample]:
    """Yield samples in which a size of the data, and one of the output, has each remainder by 32.

    The sizes of one axis after the other vary; the others are the least ones.
    """
    operator = _bound(facts, usual)
    groups = _groups(facts, len(usual.shape))
    least = _least(operator, groups, usual)
    for axes in groups:
        met = set[tuple[int, int]]()
        for size in range(1, _REMAINDERS**2):
            shape = _with(least, axes, size)
            for sample in _legal(usual, operator, shape):
                sizes = enumerate((*shape, *operator.output_shape(sample.shape)))
                rests = {(i, d % _REMAINDERS) for i, d in sizes if isinstance(d, int)}
                if sample.elements <= MOST_ELEMENTS and not rests <= met:
                    met |= rests
                    yield replace(sample, large=True)


def _bound(facts: NodeFacts, usual: ShapeSample) -> Operator:
    """Return the operator with the parameters of a sample."""
    known = [fact.value if fact is not None else None for fact in facts.inputs]
    return read(facts).bind([usual.parameters.get(i, value) for i, value in enumerate(known)])


def _least(operator: Operator, groups: Sequence[Sequence[int]], usual: ShapeSample) -> list[int]:
    """Return the shape of a sample with the least size of each group of axes that is legal."""
    least = list(usual.shape)
    for axes in groups:
        stop = min(usual.shape[axes[0]], _WIDTH) + 1
        least = _with(least, axes, _first(operator, len(least), axes, 1, stop))
    return least


def _groups(facts: NodeFacts, rank: int) -> list[list[int]]:
    """Group the axes of unknown size by their shared name."""
    data = facts.inputs[0]
    dims = data.shape if data is not None and data.shape is not None else (None,) * rank
    groups: dict[object, list[int]] = {}
    for axis, dim in enumerate(dims):
        if not isinstance(dim, int):
            groups.setdefault(axis if dim is None else dim, []).append(axis)
    return list(groups.values())


def _first(operator: Operator, rank: int, axes: Sequence[int], start: int, stop: int) -> int | None:
    """Return the first size from `start` on that is legal for some axes together."""
    return next((s for s in range(start, stop) if fits(operator, rank, axes, s)), None)


def _with(shape: Sequence[int], axes: Sequence[int], size: int | None) -> list[int]:
    """Return a shape with another size of some axes; None changes nothing."""
    return [size if axis in axes and size is not None else d for axis, d in enumerate(shape)]


def _elements(operator: Operator, shape: Sequence[int]) -> int:
    """Return the number of elements of the input or the output, the larger one.

    Raises:
        OperatorError: the shape is not legal.
    """
    output = operator.output_shape(tuple(shape))
    return max(math.prod(shape), math.prod(d for d in output if isinstance(d, int)))


def _legal(usual: ShapeSample, operator: Operator, shape: Sequence[int]) -> Iterator[ShapeSample]:
    """Yield the sample of a shape if it is legal and not the usual one."""
    try:
        elements = _elements(operator, shape)
    except OperatorError:
        return
    if tuple(shape) != usual.shape:
        yield replace(usual, shape=tuple(shape), elements=elements, unusual=True)
