"""Evaluate elementwise operators, and reductions of integers, on symbolic tensors.

    [h, w] / 2 * 2 - [h, w]      is      [2*Div(h, 2) - h, 2*Div(w, 2) - w]

int32 and int64 follow the rules of integers. A floating point operation is an atom of its operands:
the same chain (Cast, Div, Ceil, Cast) of the same number is the same atom, and nothing else is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto

from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.model.symbolic import polynomial
from onnx_spatial.model.symbolic.polynomial import OperationKey, Polynomial
from onnx_spatial.model.symbolic.symbolic_tensor import (
    INTEGERS,
    MAX_ENTRIES,
    Attributes,
    SymbolicTensor,
    literal,
    table,
)

#: Element types of sizes, with their bits.
_RING: dict[int, int] = {TensorProto.INT32: 32, TensorProto.INT64: 64}
#: Floating point types whose arithmetic is deterministic.
_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE})

_TRUTHS = op_traits.having(Trait.TRUTH)
#: Operators of the default domain that are evaluated.
OPERATORS = frozenset(
    "Abs Add And Cast CastLike Ceil Div Equal Floor Greater GreaterOrEqual Less LessOrEqual Max Min "
    "Mod Mul Neg Not Or Round Sign Sub Sum Where Xor".split()
)

#: Reductions -> the operator that combines their elements.
_REDUCTIONS = {"ReduceMax": "Max", "ReduceMin": "Min", "ReduceProd": "Mul", "ReduceSum": "Add"}
REDUCTIONS = frozenset(_REDUCTIONS)

_Row = Sequence[Polynomial]


def compute(
    operator: str, attributes: Attributes, inputs: Sequence[SymbolicTensor | None]
) -> SymbolicTensor | None:
    """Return the output of one of `OPERATORS`; None if it cannot be evaluated.

    Omitted inputs are None.

    Raises:
        Exception: of any type, if the node breaks its operator's rules.
    """
    known = [i for i in inputs if i is not None]
    # Before opset 7 `axis` aligned the operands; sizes are not computed that way.
    if not known or len(known) < len(inputs) or {"axis", "broadcast"} & attributes.keys():
        return None
    types = [i.element_type for i in known]
    if operator == "CastLike":
        operator, attributes = "Cast", {**attributes, "to": types[1]}
        known = known[:1]
    shape = np.broadcast_shapes(*(i.table.shape for i in known))
    if math.prod(shape) > MAX_ENTRIES:
        return None
    rows = list(zip(*(np.broadcast_to(i.table, shape).flat for i in known), strict=True))
    if operator == "Cast":
        to = attributes["to"]
        if not isinstance(to, int):  # a name, in opset 1
            return None
        return SymbolicTensor(
            to, table([_cast(e, types[0], to, attributes) for (e,) in rows], shape)
        )
    if operator == "Where":
        return SymbolicTensor(types[1], table([_where(*row) for row in rows], shape))
    if len(set(types)) > 1:
        return None
    results = [_apply(operator, attributes, types[0], row) for row in rows]
    if any(r is None for r in results):
        return None
    result_type = TensorProto.BOOL if operator in _TRUTHS else types[0]
    return SymbolicTensor(result_type, table([r for r in results if r is not None], shape))


def reduced(
    operator: str, attributes: Attributes, inputs: Sequence[SymbolicTensor | None]
) -> SymbolicTensor | None:
    """Return the output of one of `REDUCTIONS`; None if it cannot be evaluated.

    Raises:
        Exception: of any type, if the node breaks its operator's rules.
    """
    data, axes = inputs[0], attributes.get("axes")
    if axes is None and len(inputs) > 1 and inputs[1] is not None:
        axes = inputs[1].constants
        if axes is None:
            return None
    if data is None or data.element_type not in _RING or not data.table.size:
        return None
    shape = data.table.shape
    if not axes:  # all axes or none
        if attributes.get("noop_with_empty_axes", 0):
            return None
        axes = range(len(shape))
    gone = sorted(axis % len(shape) for axis in axes)
    first = np.moveaxis(data.table, gone, range(len(gone)))
    kept = first.shape[len(gone) :]
    combined = _REDUCTIONS[operator]
    results = []
    for column in first.reshape(-1, math.prod(kept)).T.tolist():
        result = column[0]
        for element in column[1:]:
            result = _wrap(_WHOLE[combined]({}, (result, element)), data.element_type)
        results.append(result)
    if attributes.get("keepdims", 1):
        kept = tuple(1 if axis in gone else size for axis, size in enumerate(shape))
    return SymbolicTensor(data.element_type, table(results, kept))


def _apply(
    operator: str, attributes: Attributes, element_type: int, row: _Row
) -> Polynomial | None:
    if element_type in _RING:
        if operator in _WHOLE:
            return _wrap(_WHOLE[operator](attributes, row), element_type)
        if operator in _COMPARED:
            difference = (row[0] - row[1]).constant
            if difference is not None:
                return Polynomial.of(_COMPARED[operator](difference))
    elif element_type not in _FLOATS and element_type != TensorProto.BOOL:
        return None
    details = (element_type, *sorted(attributes.items()))
    return polynomial.computed(operator, row, details)


def _sum(_: Attributes, row: _Row) -> Polynomial:
    return sum(row, Polynomial.of(0))


#: (attributes, operands) -> result, by operator, for integers.
_WHOLE: dict[str, Callable[[Attributes, _Row], Polynomial]] = {
    "Add": _sum,
    "Sum": _sum,
    "Sub": lambda _, row: row[0] - row[1],
    "Mul": lambda _, row: row[0] * row[1],
    "Neg": lambda _, row: -row[0],
    "Div": lambda _, row: polynomial.quotient(row[0], row[1]),
    "Mod": lambda attributes, row: polynomial.remainder(
        row[0], row[1], truncated=bool(attributes.get("fmod", 0))
    ),
    "Abs": lambda _, row: polynomial.absolute(row[0]),
    "Max": lambda _, row: polynomial.maximum(row),
    "Min": lambda _, row: polynomial.minimum(row),
}

#: Difference of two integers -> result of the comparison.
_COMPARED: dict[str, Callable[[int], bool]] = {
    "Equal": lambda d: d == 0,
    "Greater": lambda d: d > 0,
    "GreaterOrEqual": lambda d: d >= 0,
    "Less": lambda d: d < 0,
    "LessOrEqual": lambda d: d <= 0,
}


def _wrap(result: Polynomial, element_type: int) -> Polynomial:
    """Wrap a result to a type of 32 or 64 bits.

    Sizes never overflow. A polynomial whose factors overflow may, so it becomes an atom.
    """
    bits = _RING[element_type]
    half = 1 << (bits - 1)
    if all(-half <= factor < half for factor in result.terms.values()):
        return result
    if result.constant is not None:
        return Polynomial.of((result.constant + half) % (2 * half) - half)
    return polynomial.computed("Wrap", (result,), (bits,))


#: Source type in the key of a cast from any integer type: the result depends on the value only.
_FROM_WHOLE = "whole"


def _cast(value: Polynomial, source: int, to: int, attributes: Attributes) -> Polynomial:
    if source == to:
        return value
    constant, more = value.constant, sorted(attributes.items())
    if source in INTEGERS or source == TensorProto.BOOL:
        if _holds(source, to):
            return value
        if source == TensorProto.INT64 and to == TensorProto.INT32:
            return _wrap(value, to)
        if constant is not None and to == TensorProto.BOOL:
            return Polynomial.of(constant != 0)
        if constant is not None and to in _FLOATS and abs(constant) < 1 << 24:
            return literal(to, onnx.helper.tensor_dtype_to_np_dtype(to).type(constant))
        return polynomial.computed("Cast", (value,), (_FROM_WHOLE, to, *more))
    if source in _FLOATS and to in _RING and (number := _whole_number(value, source)) is not None:
        return _wrap(number, to)
    return polynomial.computed("Cast", (value,), (source, to, *more))


def _whole_number(value: Polynomial, source: int) -> Polynomial | None:
    """Return the integer from which `value`, of floating point type `source`, was cast exactly.

    A double represents each int32, and each int64 that is a size (below 2^53). A float represents
    integers below 2^24: more than any single dim in practice, but products of dims may be larger and
    return None.
    """
    atom = value.lone_atom
    if atom is None or not isinstance(atom.key, OperationKey) or atom.key.operator != "Cast":
        return None
    if atom.key.details[:2] != (_FROM_WHOLE, source):
        return None
    (number,) = atom.key.operands
    linear = all(len(product) <= 1 for product in number.terms)
    return number if linear or source == TensorProto.DOUBLE else None


def _holds(source: int, to: int) -> bool:
    """Tell whether the integer type `to` represents all values of `source`, which may be bool."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype
    return to in INTEGERS and np.can_cast(dtype(source), dtype(to))


def _where(condition: Polynomial, then: Polynomial, other: Polynomial) -> Polynomial:
    if condition.constant is not None:
        return then if condition.constant else other
    return then if then == other else polynomial.computed("Where", (condition, then, other))
