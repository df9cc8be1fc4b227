"""Legal data sizes and run-time parameters for one operator node, consistent with what is known.

What is known stays; everything else gets small values that differ from draw to draw: a batch that
the blocks divide with two or more images left, sizes that the blocks divide after padding, windows
that fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnx_spatial.errors import OperatorError
from onnx_spatial.operators import Dim, Operator
from onnx_spatial.operators.operator import MOST_SIZES
from onnx_spatial.operators.spellings import Call, NodeFacts, read
from onnx_spatial.verification.arrays import Array

#: Elements of a site's data or output that a draw may have; more only where the model says so.
MAX_ELEMENTS = 2**21

_TRIES = 60


@dataclass(frozen=True)
class ShapeSample:
    """Sizes of the data and values of the parameters that come at run time, by input number.

    `elements` is the larger of what goes in and what comes out. An `unusual` draw tells only of a
    lowering that runs at usual sizes; a `large` one is for one element type, as what it shows does not
    depend on that.
    """

    shape: tuple[int, ...]
    parameters: dict[int, Array]
    elements: int = 0
    unusual: bool = False
    large: bool = False


def draw_sample(facts: NodeFacts, rng: np.random.Generator, number: int) -> ShapeSample | None:
    """Draw `number` for a node; None if nothing legal is found."""
    try:
        call = read(facts)
    except OperatorError:
        return None
    best: ShapeSample | None = None
    for attempt in range(_TRIES):
        found = _attempt(facts, call, rng, number, attempt)
        if found is None:
            continue
        operator = call.bind(_arrays(facts, found))
        size = max(math.prod(found.shape), _output_size(operator, found.shape))
        found = replace(found, elements=size)
        # An empty output proves little: only if nothing else is legal.
        if 0 < size <= MAX_ELEMENTS and _output_size(operator, found.shape):
            return found
        best = best or found
    return best


def _output_size(operator: Operator, shape: Sequence[int]) -> int:
    return math.prod(d for d in operator.output_shape(shape) if isinstance(d, int))


def _arrays(facts: NodeFacts, found: ShapeSample) -> list[Array | None]:
    known = [fact.value if fact is not None else None for fact in facts.inputs]
    return [found.parameters.get(i, value) for i, value in enumerate(known)]


def _attempt(
    facts: NodeFacts, call: Call, rng: np.random.Generator, number: int, attempt: int
) -> ShapeSample | None:
    data = facts.inputs[0]
    dims = data.shape if data is not None else None
    if dims is None:
        dims = (None,) * call.test_rank(number + attempt)
    drawn = call.draw(dims, facts, rng, number)
    if drawn is None:
        return None
    operator, parameters = drawn
    return _with_sizes(dims, parameters, operator, number + attempt)


def _with_sizes(
    dims: tuple[Dim, ...], parameters: dict[int, Array], operator: Operator, number: int
) -> ShapeSample | None:
    """Choose the unknown dims; dims of the same name get the same size."""
    shape = list(dims)
    for axis, dim in enumerate(dims):
        if isinstance(shape[axis], int):
            continue
        same = [a for a, d in enumerate(dims) if a == axis or (d is not None and d == dim)]
        fitting = fitting_sizes(operator, dims, same)
        if not fitting:
            return None
        typical = fitting[: 2 if axis == 0 else MOST_SIZES]
        for a in same:
            # Neighbouring axes get neighbours in the list; once all of these had their turn, others,
            # so that no two axes are odd and even by turns for ever.
            shape[a] = typical[(number + axis * (1 + number // len(typical))) % len(typical)]
    sizes = tuple(d for d in shape if isinstance(d, int))
    try:
        operator.output_shape(sizes)
    except OperatorError:
        return None
    return ShapeSample(sizes, parameters)


def fitting_sizes(operator: Operator, dims: Sequence[Dim], axes: Sequence[int]) -> list[int]:
    """Sizes that axes which share one size can have, the most informative ones first."""
    typical = [s for axis in axes for s in operator.typical_sizes(axis)]
    if len(axes) > 1:
        typical += [s for s in range(1, 4 * max(typical) + 1) if s not in typical]
    return [s for s in typical if fits(operator, len(dims), axes, s)]


def fits(operator: Operator, rank: int, axes: Sequence[int], size: int) -> bool:
    """Whether a size is legal on some axes, whatever the others, and gives a non-empty output."""
    trial: list[Dim] = [size if axis in axes else None for axis in range(rank)]
    try:
        return 0 not in operator.output_shape(trial)
    except OperatorError:
        return False
