"""What operators that only move elements make of small tensors of expressions.

    Concat([a], Slice([b, c, d], 1, 3)) = [a, c, d]        Unsqueeze([a, b], 0) = [[a, b]]

numpy moves the expressions; parameters (axes, starts, shapes, indices) have to be known numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from onnx import TensorProto, numpy_helper

from onnx_spatial.model.symbolic.polynomial import Polynomial
from onnx_spatial.model.symbolic.symbolic_tensor import (
    INTEGERS,
    MAX_ENTRIES,
    Attributes,
    SymbolicTensor,
    Table,
    of_array,
    table,
)

_Inputs = Sequence[SymbolicTensor | None]


class _UnknownError(ValueError):
    """Something that has to be known is not."""


def move(
    operator: str, attributes: Attributes, outputs: int, index: int, inputs: _Inputs
) -> SymbolicTensor | None:
    """An output of one of `OPERATORS`; None where the node is not understood.

    Args:
        operator: its type.
        attributes: its attributes.
        outputs: how many outputs the node has.
        index: which output is asked for.
        inputs: its inputs; None for those that are left out.

    Raises:
        Exception: of any type, where the node breaks its operator's rules.
    """
    try:
        if operator == "Split":
            return _split(attributes, outputs, index, inputs)
        return _RULES[operator](attributes, inputs) if index == 0 else None
    except _UnknownError:
        return None


def parameter(
    attributes: Attributes, name: str, inputs: _Inputs, position: int
) -> list[int] | None:
    """Whole numbers that older opsets hold in an attribute and newer ones take as an input.

    Returns:
        None if the parameter is left out.

    Raises:
        ValueError: the numbers are only known to the run.
    """
    if name in attributes:
        return list(attributes[name])
    given = inputs[position] if position < len(inputs) else None
    return _constants(given) if given is not None else None


def _constants(given: SymbolicTensor) -> list[int]:
    known = given.constants
    if known is None:
        raise _UnknownError
    return known


def _input(inputs: _Inputs, position: int) -> SymbolicTensor:
    given = inputs[position]
    if given is None:
        raise _UnknownError
    return given


def _required(attributes: Attributes, name: str, inputs: _Inputs, position: int) -> list[int]:
    given = parameter(attributes, name, inputs, position)
    if given is None:
        raise _UnknownError
    return given


def _like(data: SymbolicTensor, moved: Table) -> SymbolicTensor:
    if moved.size > MAX_ENTRIES:
        raise _UnknownError
    return SymbolicTensor(data.element_type, moved)


def _identity(_: Attributes, inputs: _Inputs) -> SymbolicTensor:
    return _input(inputs, 0)


def _concat(attributes: Attributes, inputs: _Inputs) -> SymbolicTensor:
    parts = [_input(inputs, i) for i in range(len(inputs))]
    if len({p.element_type for p in parts}) > 1:
        raise _UnknownError
    return _like(parts[0], np.concatenate([p.table for p in parts], attributes["axis"]))


def _gather(attributes: Attributes, inputs: _Inputs) -> SymbolicTensor:
    data, indices = _input(inputs, 0), _input(inputs, 1)
    positions = np.array(_constants(indices), np.int64).reshape(indices.table.shape)
    return _like(data, np.asarray(data.table.take(positions, attributes.get("axis", 0)), object))


def _slice(attributes: Attributes, inputs: _Inputs) -> SymbolicTensor:
    data = _input(inputs, 0)
    starts = _required(attributes, "starts", inputs, 1)
    ends = _required(attributes, "ends", inputs, 2)
    axes = parameter(attributes, "axes", inputs, 3)
    steps = parameter({}, "steps", inputs, 4)
    result = data.table
    for axis, start, end, step in zip(
        axes if axes is not None else range(len(starts)),
        starts,
        ends,
        steps if steps is not None else [1] * len(starts),
        strict=True,
    ):
        taken = _positions(result.shape[axis], start, end, step)
        result = result.take(np.array(taken, np.int64), axis)
    return _like(data, result)


def _positions(length: int, start: int, end: int, step: int) -> list[int]:
    """What Slice takes of an axis.

    Python's slices differ: backward from before the first element they take nothing, ONNX's the
    first element.
    """
    start, end = (bound + length if bound < 0 else bound for bound in (start, end))
    if step > 0:
        return list(range(min(max(start, 0), length), min(max(end, 0), length), step))
    return list(range(min(max(start, 0), length - 1), min(max(end, -1), length - 1), step))


def _reshape(attributes: Attributes, inputs: _Inputs) -> SymbolicTensor:
    data = _input(inputs, 0)
    shape = _required(attributes, "shape", inputs, 1)
    if not attributes.get("allowzero", 0):
        shape = [data.table.shape[i] if size == 0 else size for i, size in enumerate(shape)]
    return _like(data, data.table.reshape(shape))


def _flatten(attributes: Attributes, inputs: _Inputs) -> SymbolicTensor:
    data = _input(inputs, 0)
    axis = attributes.get("axis", 1)
    rows = math.prod(data.table.shape[:axis])
    return _like(data, data.table.reshape(rows, math.prod(data.table.shape[axis:])))


def _squeeze(attributes: Attributes, inputs: _Inputs) -> SymbolicTensor:
    data = _input(inputs, 0)
    axes = parameter(attributes, "axes", inputs, 1)
    if axes == []:  # runtimes differ on whether this means none or all
        raise _UnknownError
    return _like(data, data.table.squeeze(tuple(axes) if axes is not None else None))


def _unsqueeze(attributes: Attributes, inputs: _Inputs) -> SymbolicTensor:
    data = _input(inputs, 0)
    axes = _required(attributes, "axes", inputs, 1)
    return _like(data, np.expand_dims(data.table, tuple(axes)))


def _transpose(attributes: Attributes, inputs: _Inputs) -> SymbolicTensor:
    data = _input(inputs, 0)
    return _like(data, data.table.transpose(attributes.get("perm")))


def _expand(_: Attributes, inputs: _Inputs) -> SymbolicTensor:
    data = _input(inputs, 0)
    shape = np.broadcast_shapes(data.table.shape, tuple(_constants(_input(inputs, 1))))
    if math.prod(shape) > MAX_ENTRIES:
        raise _UnknownError
    return _like(data, np.broadcast_to(data.table, shape))


def _constant_of_shape(attributes: Attributes, inputs: _Inputs) -> SymbolicTensor:
    shape = _constants(_input(inputs, 0))
    if math.prod(shape) > MAX_ENTRIES or min(shape, default=0) < 0:
        raise _UnknownError
    value = np.zeros(1, np.float32)
    if "value" in attributes:
        value = numpy_helper.to_array(attributes["value"])
    filled = of_array(np.full(shape, value.reshape(-1)[0], value.dtype))
    if filled is None:
        raise _UnknownError
    return filled


def _range(_: Attributes, inputs: _Inputs) -> SymbolicTensor:
    bounds = [_input(inputs, i) for i in range(3)]
    if bounds[0].element_type not in INTEGERS - {TensorProto.UINT64}:
        raise _UnknownError
    numbers = range(*(number for b in bounds for number in _constants(b)))
    if len(numbers) > MAX_ENTRIES:
        raise _UnknownError
    return _like(bounds[0], table([Polynomial.of(n) for n in numbers], [len(numbers)]))


def _split(attributes: Attributes, outputs: int, index: int, inputs: _Inputs) -> SymbolicTensor:
    data = _input(inputs, 0)
    axis = attributes.get("axis", 0)
    sizes = parameter(attributes, "split", inputs, 1)
    length = data.table.shape[axis]
    if sizes is None:  # equal parts; what is left over is the last one's
        part = -(-length // attributes.get("num_outputs", outputs))
        sizes = [part] * (outputs - 1)
        sizes.append(length - sum(sizes))
    if sum(sizes) != length or len(sizes) != outputs or min(sizes) < 0:
        raise _UnknownError
    return _like(data, np.split(data.table, np.cumsum(sizes)[:-1], axis)[index])


_RULES: dict[str, Callable[[Attributes, _Inputs], SymbolicTensor]] = {
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Identity": _identity,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}

#: Operators of the default domain that are followed.
OPERATORS = _RULES.keys() | {"Split"}
