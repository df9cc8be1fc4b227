"""Draw legal sizes and run-time parameters for one operator node.

Known ones stay; the others get small values that differ from sample to sample: a batch that the blocks
divide with two or more images left, sizes that the blocks divide after padding, windows that fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from onnx_spatial.errors import OperatorError
from onnx_spatial.operators import Dim, Operator
from onnx_spatial.operators.operator import MOST_SIZES
from onnx_spatial.operators.spellings import Call, NodeFacts, read
from onnx_spatial.verification.arrays import Array

#: The most elements of a sample's data or output, unless the model declares more.
MAX_ELEMENTS = 2**21

_TRIES = 60


@dataclass(frozen=True)
class ShapeSample:
    """Sizes of the data, and values of the run-time parameters by input number.

    Attributes:
        shape: of the data.
        parameters: values of inputs by their numbers.
        elements: number of elements of the data or the output, the larger one.
        unusual: whether the sample is only for a lowering that passed at usual sizes.
        large: whether one element type is enough for the sample.
    """

    shape: tuple[int, ...]
    parameters: dict[int, Array]
    elements: int = 0
    unusual: bool = False
    large: bool = False


def draw_sample(facts: NodeFacts, rng: np.random.Generator, number: int) -> ShapeSample | None:
    """Draw sample `number` for a node; None if no legal sizes are found."""
    try:
        call = read(facts)
    except OperatorError:
        return None
    best: ShapeSample | None = None
    for attempt in range(_TRIES):
        drawn = _attempt(facts, call, rng, number, attempt)
        if drawn is None:
            continue
        sample, operator = drawn
        output = math.prod(d for d in operator.output_shape(sample.shape) if isinstance(d, int))
        sample = replace(sample, elements=max(math.prod(sample.shape), output))
        # An empty output shows little: only if nothing else is legal.
        if 0 < sample.elements <= MAX_ELEMENTS and output:
            return sample
        best = best or sample
    return best


def _attempt(
    facts: NodeFacts, call: Call, rng: np.random.Generator, number: int, attempt: int
) -> tuple[ShapeSample, Operator] | None:
    data = facts.inputs[0]
    dims = data.shape if data is not None else None
    if dims is None:
        dims = (None,) * call.sample_rank(number + attempt)
    drawn = call.sample_parameters(dims, facts, rng, number)
    if drawn is None:
        return None
    operator, parameters = drawn
    shape = _sizes(dims, operator, number + attempt)
    return None if shape is None else (ShapeSample(shape, parameters), operator)


def _sizes(dims: tuple[Dim, ...], operator: Operator, number: int) -> tuple[int, ...] | None:
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
            # Neighbouring axes get neighbours in the list, then entries further apart, so that no two
            # axes always differ in parity.
            shape[a] = typical[(number + axis * (1 + number // len(typical))) % len(typical)]
    sizes = tuple(d for d in shape if isinstance(d, int))
    try:
        operator.output_shape(sizes)
    except OperatorError:
        return None
    return sizes


def fitting_sizes(operator: Operator, dims: Sequence[Dim], axes: Sequence[int]) -> list[int]:
    """Return legal sizes for axes that share one size, the most informative ones first."""
    typical = [s for axis in axes for s in operator.typical_sizes(axis)]
    if len(axes) > 1:
        typical += [s for s in range(1, 4 * max(typical) + 1) if s not in typical]
    return [s for s in typical if fits(operator, len(dims), axes, s)]


def fits(operator: Operator, rank: int, axes: Sequence[int], size: int) -> bool:
    """Tell whether a size is legal on some axes, with other axes unknown, and its output not empty."""
    return _fits(operator, rank, tuple(axes), size)


@lru_cache(maxsize=1 << 14)  # a model has many equal operators, each with hundreds of candidates
def _fits(operator: Operator, rank: int, axes: tuple[int, ...], size: int) -> bool:
    trial: list[Dim] = [size if axis in axes else None for axis in range(rank)]
    try:
        return 0 not in operator.output_shape(trial)
    except OperatorError:
        return False
