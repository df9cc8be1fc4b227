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
from onnx_spatial.operators import BatchToSpace, Dim, ExtractPatches, Operator, SpaceToBatch
from onnx_spatial.operators.spellings import (
    BlockCall,
    Call,
    InputFacts,
    NodeFacts,
    PatchCall,
    Vector,
    read,
)
from onnx_spatial.verification.arrays import Array

#: Elements of a site's data or output that a draw may have; more only where the model says so.
MAX_ELEMENTS = 2**21

_TRIES = 60

#: How many sizes one axis gets, over as many draws.
_SIZES = 14

#: Draws for a node with blocks, and for one some of whose parameters come at run time.
_USUAL_TURNS, _PARAMETER_TURNS = 3, 9

#: Blocks that come at run time, after some usual draws: of even axes and of odd ones.
_BLOCKS = ((1, 1), (4, 1), (2, 2), (3, 4), (5, 2))

#: Pads and crops that come at run time are up to so many blocks, by the number of the draw.
_BLOCKS_OF_PADDING = (1, 1, 0, 3)

#: Cells of a blocked axis beyond the fewest possible, for neighbouring axes in turn.
_CELLS = (1, 2, 3, 1, 2, 0)


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


def number_of_samples(call: Call) -> int:
    """How many draws meet all kinds of sizes and parameters that a node treats differently."""
    if isinstance(call, BlockCall):
        vectors = (call.block, call.begins, call.ends)
        return _USUAL_TURNS if all(v.values is not None for v in vectors) else _PARAMETER_TURNS
    if call.operator.auto_pad == "valid":
        return 8
    return max(8, min(_SIZES, 4 + max(call.operator.strides)))


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
    if isinstance(call, PatchCall):
        dims = dims if dims is not None else (None,) * call.rank
        return _with_sizes(dims, {}, call.operator, number + attempt)
    if dims is None:
        dims = (None,) * (call.rank or call.blocked + 1 + (number + 1 + attempt) % 3)
    return _blocks(facts, dims, call, rng, number, attempt)


def _blocks(
    facts: NodeFacts,
    dims: tuple[Dim, ...],
    call: BlockCall,
    rng: np.random.Generator,
    number: int,
    attempt: int,
) -> ShapeSample | None:
    block, begins, ends = [], [], []
    for axis in range(call.blocked):
        size = dims[axis + 1]
        low, high = (None if v.values is None else v.values[axis] for v in (call.begins, call.ends))
        if call.block.values is not None:
            b = call.block.values[axis]
        elif call.kind is BatchToSpace:
            b = _divisor(dims[0], rng, number, axis)
        else:
            known = isinstance(size, int) and low is not None and high is not None
            padded = size + low + high if known else None  # type: ignore[operator]
            b = _divisor(padded, rng, number, axis)
        pair = _pads if call.kind is SpaceToBatch else _crops
        most = b * _BLOCKS_OF_PADDING[number % len(_BLOCKS_OF_PADDING)]
        if b == 1 and number < _USUAL_TURNS:
            most = 0  # most likely the channels, and what reads them counts on their number
        low, high = pair(size if isinstance(size, int) else None, b, low, high, most, rng)
        block.append(b)
        begins.append(low)
        ends.append(high)
    parameters: dict[int, Array] = {}
    try:
        _fill(parameters, facts, call.block, block, 1)
        _fill(parameters, facts, call.begins, begins, 0)
        _fill(parameters, facts, call.ends, ends, 0)
        operator = call.kind(tuple(block), tuple(zip(begins, ends, strict=True)))
    except (OperatorError, OverflowError):  # the latter: more than the input's integers hold
        return None
    return _with_sizes(dims, parameters, operator, number + attempt)


def _divisor(size: Dim, rng: np.random.Generator, number: int, axis: int) -> int:
    """A block size that a known size does not exclude."""
    if not isinstance(size, int) or size == 0:
        if number < _USUAL_TURNS:
            return int(rng.integers(2, 4))
        return _BLOCKS[number % len(_BLOCKS)][axis % 2]
    return int(rng.choice([d for d in range(1, min(size, 8) + 1) if size % d == 0]))


def _pads(
    size: int | None,
    block: int,
    low: int | None,
    high: int | None,
    most: int,
    rng: np.random.Generator,
) -> tuple[int, int]:
    if low is None and high is not None and size is not None:
        return (-size - high) % block, high
    if low is None:
        low = int(rng.integers(0, most + 1))
    if high is None and size is not None:
        return low, (-size - low) % block + (block * int(rng.integers(0, 2)) if most else 0)
    return low, int(rng.integers(0, most + 1)) if high is None else high


def _crops(
    size: int | None,
    block: int,
    low: int | None,
    high: int | None,
    most: int,
    rng: np.random.Generator,
) -> tuple[int, int]:
    room = most if size is None else min(most, max(0, (size * block - 1) // 2))
    if low is None:
        low = int(rng.integers(0, room + 1))
    return low, int(rng.integers(0, room + 1)) if high is None else high


def _fill(
    parameters: dict[int, Array],
    facts: NodeFacts,
    vector: Vector,
    values: Sequence[int],
    neutral: int,
) -> None:
    """Write the entries of one vector into the input that it is read from at run time."""
    index = vector.input
    if vector.values is not None or index is None:
        return
    if index not in parameters:
        fact = facts.inputs[index] or InputFacts()
        # OpenVINO's vectors hold a neutral entry for the batch; tables have a row for each axis.
        shape = (vector.rows,) if vector.step == 1 else (vector.rows, vector.step)
        parameters[index] = np.full(shape, neutral, fact.dtype or "int64")
    flat = parameters[index].reshape(-1)
    flat[vector.start :: vector.step][: vector.length] = values


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
        typical = fitting[: 2 if axis == 0 else _SIZES]
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
    typical = [s for axis in axes for s in _typical(operator, axis)]
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


def _typical(operator: Operator, axis: int) -> list[int]:
    """Sizes that give one axis some images, cells or windows."""
    if isinstance(operator, SpaceToBatch | BatchToSpace):
        return _typical_block(operator, axis)
    if axis in operator.spatial_axes:
        number = operator.spatial_axes.index(axis)
        return _typical_window(operator, number)
    return [2, 3, 1, 4] if axis == 0 else [3, 2, 5, 4]


def _typical_window(operator: ExtractPatches, number: int) -> list[int]:
    """Sizes on both sides of where another window begins to fit, and the smallest.

    Neighbours in the list give two windows or more, and not as many, so that swapped axes show.
    """
    extent, stride = operator.extent(number), operator.strides[number]
    if operator.auto_pad == "valid":
        more = [extent + n for n in (stride, 2 * stride + 1, 3 * stride - 1, 0, stride - 1)]
    else:
        full = stride * (-(-extent // stride) + 1)
        more = [full + 1, full, full + stride - 1, full + stride + 1, 1, max(1, extent - 1)]
        # The padding depends on the remainder, and so does who gets the odd element of it.
        more += [full + r for r in range(2, min(stride - 1, _SIZES))]
    return list(dict.fromkeys(more))


def _typical_block(operator: SpaceToBatch | BatchToSpace, axis: int) -> list[int]:
    blocked = len(operator.block_shape)
    if axis == 0:
        factor = math.prod(operator.block_shape) if isinstance(operator, BatchToSpace) else 1
        return [2 * factor, 3 * factor, factor, 4 * factor]
    if axis > blocked:
        return [3, 2, 5, 4]
    b = operator.block_shape[axis - 1]
    if isinstance(operator, BatchToSpace):
        fewest = sum(operator.crops[axis - 1]) // b + 1
        return [fewest + more for more in _CELLS]
    pads = sum(operator.pads[axis - 1])
    fewest = pads // b + 1
    return [(fewest + more) * b - pads for more in _CELLS]
