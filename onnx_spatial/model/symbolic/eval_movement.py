"""Evaluate data-movement operators on symbolic tensors.

    Concat([a], Slice([b, c, d], 1, 3)) = [a, c, d]        Unsqueeze([a, b], 0) = [[a, b]]

numpy moves the polynomials. Parameters (axes, starts, shapes, indices) must be known numbers.
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
#: (attributes, first input, all inputs) -> output.
_Rule = Callable[[Attributes, Table, _Inputs], Table | SymbolicTensor]


class _UnknownError(ValueError):
    """Failure to evaluate a node: a parameter is not a known number, or the result is too large."""


def move(
    operator: str, attributes: Attributes, outputs: int, index: int, inputs: _Inputs
) -> SymbolicTensor | None:
    """Return output `index` of `outputs` of one of `OPERATORS`; None if it cannot be evaluated.

    Omitted inputs are None.

    Raises:
        Exception: of any type, if the node breaks its operator's rules.
    """
    try:
        first = _input(inputs, 0)
        moved: Table | SymbolicTensor
        if operator == "Split":
            moved = _split(attributes, outputs, index, first.table, inputs)
        elif index == 0:
            moved = _RULES[operator](attributes, first.table, inputs)
        else:
            return None
    except _UnknownError:
        return None
    if isinstance(moved, SymbolicTensor):
        return moved
    return SymbolicTensor(first.element_type, moved) if moved.size <= MAX_ENTRIES else None


def parameter(
    attributes: Attributes, name: str, inputs: _Inputs, position: int
) -> list[int] | None:
    """Return integers that older opsets store in an attribute and newer ones take as an input.

    Returns:
        None if the parameter is omitted.

    Raises:
        ValueError: the integers are unknown until run time.
    """
    if name in attributes:
        return list(attributes[name])
    tensor = inputs[position] if position < len(inputs) else None
    return _constants(tensor) if tensor is not None else None


def _constants(tensor: SymbolicTensor) -> list[int]:
    constants = tensor.constants
    if constants is None:
        raise _UnknownError
    return constants


def _input(inputs: _Inputs, position: int) -> SymbolicTensor:
    tensor = inputs[position]
    if tensor is None:
        raise _UnknownError
    return tensor


def _required(attributes: Attributes, name: str, inputs: _Inputs, position: int) -> list[int]:
    integers = parameter(attributes, name, inputs, position)
    if integers is None:
        raise _UnknownError
    return integers


def _concat(attributes: Attributes, _: Table, inputs: _Inputs) -> Table:
    parts = [_input(inputs, i) for i in range(len(inputs))]
    if len({p.element_type for p in parts}) > 1:
        raise _UnknownError
    return np.concatenate([p.table for p in parts], attributes["axis"])


def _gather(attributes: Attributes, data: Table, inputs: _Inputs) -> Table:
    indices = _input(inputs, 1)
    positions = np.array(_constants(indices), np.int64).reshape(indices.table.shape)
    return np.asarray(data.take(positions, attributes.get("axis", 0)), object)


def _slice(attributes: Attributes, data: Table, inputs: _Inputs) -> Table:
    starts = _required(attributes, "starts", inputs, 1)
    ends = _required(attributes, "ends", inputs, 2)
    axes = parameter(attributes, "axes", inputs, 3)
    steps = parameter({}, "steps", inputs, 4)
    for axis, start, end, step in zip(
        axes if axes is not None else range(len(starts)),
        starts,
        ends,
        steps if steps is not None else [1] * len(starts),
        strict=True,
    ):
        positions = _positions(data.shape[axis], start, end, step)
        data = data.take(np.array(positions, np.int64), axis)
    return data


def _positions(length: int, start: int, end: int, step: int) -> list[int]:
    """Return the positions that Slice takes of an axis.

    Python's slices differ: backward from before the first element they take nothing, ONNX's take the
    first element.
    """
    start, end = (bound + length if bound < 0 else bound for bound in (start, end))
    if step > 0:
        return list(range(min(max(start, 0), length), min(max(end, 0), length), step))
    return list(range(min(max(start, 0), length - 1), min(max(end, -1), length - 1), step))


def _reshape(attributes: Attributes, data: Table, inputs: _Inputs) -> Table:
    shape = _required(attributes, "shape", inputs, 1)
    if not attributes.get("allowzero", 0):
        shape = [data.shape[i] if size == 0 else size for i, size in enumerate(shape)]
    return data.reshape(shape)


def _flatten(attributes: Attributes, data: Table, _: _Inputs) -> Table:
    axis = attributes.get("axis", 1)
    return data.reshape(math.prod(data.shape[:axis]), math.prod(data.shape[axis:]))


def _squeeze(attributes: Attributes, data: Table, inputs: _Inputs) -> Table:
    axes = parameter(attributes, "axes", inputs, 1)
    if axes == []:  # no axes for some runtimes, all axes for others
        raise _UnknownError
    return data.squeeze(tuple(axes) if axes is not None else None)


def _expand(_: Attributes, data: Table, inputs: _Inputs) -> Table:
    shape = np.broadcast_shapes(data.shape, tuple(_constants(_input(inputs, 1))))
    return np.broadcast_to(data, shape)


def _constant_of_shape(attributes: Attributes, _: Table, inputs: _Inputs) -> SymbolicTensor:
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


def _range(_: Attributes, start: Table, inputs: _Inputs) -> Table:
    bounds = [_input(inputs, i) for i in range(3)]
    if bounds[0].element_type not in INTEGERS - {TensorProto.UINT64}:
        raise _UnknownError
    numbers = range(*(number for b in bounds for number in _constants(b)))
    if len(numbers) > MAX_ENTRIES:
        raise _UnknownError
    return table([Polynomial.of(n) for n in numbers], [len(numbers)])


def _split(attributes: Attributes, outputs: int, index: int, data: Table, inputs: _Inputs) -> Table:
    axis = attributes.get("axis", 0)
    sizes = parameter(attributes, "split", inputs, 1)
    length = data.shape[axis]
    if sizes is None:  # equal parts; the last one may be smaller
        part = -(-length // attributes.get("num_outputs", outputs))
        sizes = [part] * (outputs - 1)
        sizes.append(length - sum(sizes))
    if sum(sizes) != length or len(sizes) != outputs or min(sizes) < 0:
        raise _UnknownError
    return np.split(data, np.cumsum(sizes)[:-1], axis)[index]


_RULES: dict[str, _Rule] = {
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Identity": lambda _, data, inputs: data,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Transpose": lambda attributes, data, _: data.transpose(attributes.get("perm")),
    "Unsqueeze": lambda attributes, data, inputs: np.expand_dims(
        data, tuple(_required(attributes, "axes", inputs, 1))
    ),
}

#: Operators of the default domain that are evaluated.
OPERATORS = _RULES.keys() | {"Split"}
