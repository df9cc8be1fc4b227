"""The maps of integers that a run computes: sizes, arithmetic on them, casts.

    n = Shape(x)[1];  y = Div(Add(n, 1), 2)       y[] = floor((h + 1) / 2)     x: [n, h]
    z = Where(Less(n, 4), n, 4)                   z[] = h where h < 4, and 4 where h >= 4: two cases

Polynomials are exact, and a run computes in 32 or 64 bits. So each number must provably fit its type.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto

from onnx_spatial.maps.cases import MAX_ENTRIES, Case, UndecidedError
from onnx_spatial.maps.division import exact
from onnx_spatial.maps.elements import constant
from onnx_spatial.maps.node import INTEGERS, WHOLE, NodeView, Rule, broadcast, broadcast_at
from onnx_spatial.maps.polynomial import (
    FLOOR,
    LOOKUP,
    ONE,
    UNKNOWN_PREFIX,
    ZERO,
    Atom,
    Index,
    Polynomial,
    computed,
    factor_of,
    product,
    show,
    top_atoms,
    unknown,
)
from onnx_spatial.maps.tensor import Tensor, filled_tensor, only_dims, vector_of
from onnx_spatial.maps.values import MAX_ELEMENTS, MAX_PLACES, SIZE_LIMIT, limit_of

#: Bits of the integer types in which nodes compute, without the sign; int32 where the type is unknown.
_BITS = {int(TensorProto.INT64): 63, int(TensorProto.INT32): 31, 0: 31}


def fitting(case: Case, p: Polynomial, element_type: int, bits: int = 63) -> Polynomial:
    """Return a number that provably fits an integer type.

    Sizes, parameters and indices have limits (`limits`), so have numbers of elements of tensors.

    Args:
        case: the case.
        p: the number.
        element_type: ONNX integer type.
        bits: that the number may have at most.

    Raises:
        UndecidedError: it may overflow, or nothing is known of the type.
    """
    if element_type not in _BITS:
        raise UndecidedError("arithmetic on integers other than int32 and int64 has no index map")
    bits = min(bits, _BITS[element_type])
    if not case.splits:  # sizes fit; a number that is larger than they are is none
        if all(abs(factor) < 1 << bits for factor in p.terms.values()):
            return p
        raise UndecidedError("an integer may overflow")
    # The first bound is fast, the second one knows numbers of elements.
    if any(_magnitude_of(case, p, counted) < 1 << bits for counted in (False, True)):
        return p
    apart = _with_remainders(p)
    if apart != p and _magnitude_of(case, apart, True) < 1 << bits:
        return p
    if any(case.surely(count - p) and case.surely(count + p) for count in case.counts):
        return p
    raise UndecidedError(f"an integer may overflow ({show(p)})")


def _magnitude_of(case: Case, p: Polynomial, counted: bool) -> int:
    """Return a bound of the absolute value of a polynomial.

    Products of sizes are at most as large as sizes are; `counted`, if they are part of a number of
    elements, as that.
    """
    total = 0
    for atoms, factor in p.terms.items():
        bound = 1
        for atom in atoms:
            bound *= _bound_of(case, atom, counted)
        below = {a: limit for a in atoms if (limit := _known_limit(case, a)) is not None}
        term = Polynomial({tuple(a for a in atoms if a not in below): 1})
        large = counted and bound > MAX_ELEMENTS and term.nonnegative
        if large and any(case.surely(count - term) for count in case.counts):
            bound = MAX_ELEMENTS * math.prod(below[a] for a in atoms if a in below)
        total += abs(factor) * bound
    return total


def _known_limit(case: Case, atom: Atom) -> int | None:
    """Return the extent of an index, the divisor of a remainder; None if it is unknown."""
    if atom in case.extents:
        return case.extents[atom]
    if atom.operation.operator != "Mod" or not atom.nonnegative:
        return None
    _, divisor = atom.operation.operands
    return divisor.constant or None


def _with_remainders(p: Polynomial) -> Polynomial:
    """Return the same number with remainders: a - b * floor(a / b) is small, though neither part is."""
    for quotient in top_atoms(p):
        if quotient.operation.operator != FLOOR:
            continue
        dividend, divisor = quotient.operation.operands
        factor, others = factor_of(p, quotient)
        times = None if factor is None else exact(factor, divisor)
        if times is not None:
            remainder = computed("Mod", (dividend, divisor), nonnegative=divisor.nonnegative)
            p = others + times * (dividend - remainder)
    return p


def _bound_of(case: Case, atom: Atom, counted: bool) -> int:
    limit = SIZE_LIMIT if atom in case.bounded else limit_of(atom)
    if limit is not None:
        return limit
    if atom.operation.operator == FLOOR:
        return _magnitude_of(case, next(iter(atom.operation.operands)), counted)
    if atom.operation.operator == LOOKUP:
        (stored,) = atom.operation.details
        return int(np.abs(stored.array).max()) + 1  # type: ignore[attr-defined]
    if (below := _known_limit(case, atom)) is not None:
        return below
    raise UndecidedError("an integer may overflow: its range is unknown")


_Row = Sequence[Polynomial]


def div(case: Case, a: Polynomial, b: Polynomial) -> Polynomial:
    """Return `a / b` rounded toward zero, as ONNX's Div of integers."""
    if not case.decide(b - 1):
        if not case.decide(-b - 1):
            raise UndecidedError("Div: the divisor may be 0")
        return div(case, -a, -b)
    if case.decide(a):
        return case.floor_div(a, b)
    return -case.floor_div(-a, b)


def _map_mod(case: Case, node: NodeView, a: Polynomial, b: Polynomial) -> Polynomial:
    if node.get("fmod", 0):
        return a - b * div(case, a, b)
    node.check(case.decide(b - 1), "the divisor may be 0 or negative")
    return case.mod(a, b)


def _multiply_sizes(case: Case, a: Polynomial, b: Polynomial) -> Polynomial:
    """Return a product, with the fact that it is 1 or more if both factors are."""
    result = a * b
    if max(len(a.terms), len(b.terms)) > 1 and case.surely(a - 1) and case.surely(b - 1):
        case.assume(result - 1)
    return result


def _absolute_size(case: Case, a: Polynomial) -> Polynomial:
    return a if case.decide(a) else -a


def maximum(case: Case, row: _Row) -> Polynomial:
    """Return the largest number; split where it is unknown."""
    largest = row[0]
    for number in row[1:]:
        if case.surely(number - largest) or not case.decide(largest - number):
            largest = number
    return largest


def _smallest_of(case: Case, row: _Row) -> Polynomial:
    return -maximum(case, [-each for each in row])


def _sum_of(row: _Row) -> Polynomial:
    return sum(row[1:], row[0])


def _truth(value: bool) -> Polynomial:
    return ONE if value else ZERO


def _holds(case: Case, p: Polynomial) -> bool:
    return not case.is_zero(p)


_Scalar = Callable[[Case, NodeView, _Row], Polynomial]

#: Arithmetic of integers, element by element.
_ARITHMETIC: dict[str, _Scalar] = {
    "Add": lambda case, node, row: row[0] + row[1],
    "Sum": lambda case, node, row: _sum_of(row),
    "Sub": lambda case, node, row: row[0] - row[1],
    "Mul": lambda case, node, row: _multiply_sizes(case, row[0], row[1]),
    "Neg": lambda case, node, row: -row[0],
    "Div": lambda case, node, row: div(case, row[0], row[1]),
    "Mod": lambda case, node, row: _map_mod(case, node, row[0], row[1]),
    "Abs": lambda case, node, row: _absolute_size(case, row[0]),
    "Max": lambda case, node, row: maximum(case, row),
    "Min": lambda case, node, row: _smallest_of(case, row),
    "Sign": lambda case, node, row: (
        ZERO if case.is_zero(row[0]) else ONE if case.decide(row[0]) else -ONE
    ),
}

#: Comparisons of integers, and functions of truth values.
_TRUTHS: dict[str, _Scalar] = {
    "Equal": lambda case, node, row: _truth(case.is_zero(row[0] - row[1])),
    "Less": lambda case, node, row: _truth(case.decide(row[1] - row[0] - 1)),
    "LessOrEqual": lambda case, node, row: _truth(case.decide(row[1] - row[0])),
    "Greater": lambda case, node, row: _truth(case.decide(row[0] - row[1] - 1)),
    "GreaterOrEqual": lambda case, node, row: _truth(case.decide(row[0] - row[1])),
    "Not": lambda case, node, row: _truth(case.is_zero(row[0])),
    "And": lambda case, node, row: _truth(all(_holds(case, p) for p in row)),
    "Or": lambda case, node, row: _truth(any(_holds(case, p) for p in row)),
    "Xor": lambda case, node, row: _truth(_holds(case, row[0]) != _holds(case, row[1])),
}


def _fit_node(
    case: Case, node: NodeView, p: Polynomial, element_type: int, bits: int = 63
) -> Polynomial:
    """Return a number that provably fits an integer type; of a legal node this is assumed."""
    return p if node.legal and case.splits else fitting(case, p, element_type, bits)


def _map_elementwise(case: Case, node: NodeView) -> list[Tensor]:
    """Return the map of an elementwise operator on integers."""
    inputs = node.inputs()
    dims = broadcast(case, [i.dims for i in inputs])
    arithmetic, truth = _ARITHMETIC.get(node.op_type), _TRUTHS.get(node.op_type)
    element_type = int(TensorProto.BOOL) if truth else inputs[0].type

    def check(index: Index) -> None:
        node.check(not case.is_zero(broadcast_at(inputs[1], index)), "the divisor may be 0")

    if node.op_type in ("Div", "Mod"):
        node.for_all(case, dims, check)

    details = (element_type, *node.details())

    def at(index: Index) -> Polynomial:
        row = [broadcast_at(i, index) for i in inputs]

        def number() -> Polynomial:
            if truth is not None:
                return truth(case, node, row)
            assert arithmetic is not None
            return _fit_node(case, node, arithmetic(case, node, row), element_type)

        return case.function(node.op_type, details, lambda: row, number)

    axes = next((i.axes for i in inputs if i.dims == dims), None)
    return [Tensor(case, dims, at, whole=True, type=element_type, axes=axes)]


def _map_where(case: Case, node: NodeView) -> list[Tensor]:
    condition, yes, no = node.inputs()
    dims = broadcast(case, [condition.dims, yes.dims, no.dims])
    element_type = yes.type or no.type
    node.check(no.type in (0, element_type), "the element types differ")

    def at(index: Index) -> Polynomial:
        def chosen() -> Polynomial:
            return broadcast_at(yes if _holds(case, broadcast_at(condition, index)) else no, index)

        def operands() -> list[Polynomial]:
            return [broadcast_at(i, index) for i in (condition, yes, no)]

        return case.function("Where", (element_type,), operands, chosen)

    return [Tensor(case, dims, at, whole=yes.whole and no.whole, type=element_type)]


def _map_cast(case: Case, node: NodeView) -> list[Tensor]:
    """Return the map of a Cast, or of a CastLike, which casts to the type of its second input."""
    x = node.input(0)
    to = int(node.get("to", 0)) if node.op_type == "Cast" else node.input(1).type
    node.check(bool(to), "the element type is unknown")
    if to == x.type:
        return [x]
    whole = x.whole and to in WHOLE
    details = (x.type, to, *node.details("to"))

    def check(index: Index) -> None:
        _cast_to(case, x.at(index), to)

    if whole:
        node.for_all(case, x.dims, check)

    def at(index: Index) -> Polynomial:
        value = x.at(index)
        if whole:
            return case.function(
                "Cast", details, lambda: (value,), lambda: _cast_to(case, value, to)
            )
        if value == ZERO and TensorProto.STRING not in (x.type, to):
            return ZERO
        if x.type in _WIDER.get(to, ()) and (inner := _cast_from(value, to, x.type)) is not None:
            return inner
        if not case.splits and to in (TensorProto.INT32, TensorProto.INT64):
            size = _cast_size(value, x.type)
            if size is not None:
                return size
        return unknown("Cast", details, [value])

    return [Tensor(case, x.dims, at, whole=whole, type=to, axes=x.axes)]


#: Types that hold all numbers of a type of reals.
_WIDER: dict[int, tuple[int, ...]] = {
    TensorProto.FLOAT16: (TensorProto.FLOAT, TensorProto.DOUBLE),
    TensorProto.BFLOAT16: (TensorProto.FLOAT, TensorProto.DOUBLE),
    TensorProto.FLOAT: (TensorProto.DOUBLE,),
}


def _cast_from(value: Polynomial, source: int, target: int) -> Polynomial | None:
    """Return the element that `value` was cast from, if it was from one type to another."""
    key = value.operation
    known = key.operator == f"{UNKNOWN_PREFIX}Cast" and key.details[:2] == (source, target)
    return next(iter(key.operands)) if known else None


def _cast_size(value: Polynomial, real_type: int) -> Polynomial | None:
    """Return the size from which `value`, of a real type, was cast exactly; None if it was not.

    A double represents each int32, and each int64 that is a size (below 2^53). A float represents
    integers below 2^24: more than any single dim in practice, but not than products of dims.
    """
    key = value.operation
    if key.operator != f"{UNKNOWN_PREFIX}Cast":
        return None
    source, target, *_ = key.details
    (size,) = key.operands
    linear = all(len(product) <= 1 for product in size.terms)
    exact = real_type == TensorProto.DOUBLE or (real_type == TensorProto.FLOAT and linear)
    return size if source in INTEGERS and target == real_type and exact else None


#: Least and largest value of the small integer types.
_RANGES = {
    int(TensorProto.INT8): (-128, 127),
    int(TensorProto.UINT8): (0, 255),
    int(TensorProto.INT16): (-(1 << 15), (1 << 15) - 1),
    int(TensorProto.UINT16): (0, (1 << 16) - 1),
}


def _cast_to(case: Case, value: Polynomial, to: int) -> Polynomial:
    """Return an integer in another integer type.

    Raises:
        UndecidedError: it may not fit.
    """
    if to == TensorProto.BOOL:
        return _truth(_holds(case, value))
    if to in _RANGES:
        low, high = _RANGES[to]
        case.require(value - low, "Cast: a number may not fit the type")
        case.require(high - value, "Cast: a number may not fit the type")
        return value
    if to in (TensorProto.UINT32, TensorProto.UINT64):
        case.require(value, "Cast: a number may not fit the type")
        to = int(TensorProto.INT32)
    return fitting(case, value, to)


def _bit_cast(case: Case, node: NodeView) -> list[Tensor]:
    """Return the map of a BitCast; a second one back to the first type cancels it."""
    x, to = node.input(0), int(node.get("to", 0))
    if x.whole and x.type == to:
        return [x]
    node.check(not x.whole, "of integers has no index map")

    def at(index: Index) -> Polynomial:
        value = x.at(index)
        if value == ZERO or x.type == to:
            return value
        key = value.operation
        if x.type and (key.operator, key.details) == (f"{UNKNOWN_PREFIX}BitCast", (to, x.type)):
            (inner,) = key.operands
            return inner
        return unknown("BitCast", (x.type, to), [value])

    return [Tensor(case, x.dims, at, whole=False, type=to, axes=x.axes)]


#: Bits of the integers that a double represents: onnxruntime reduces integers as doubles.
_EXACT_BITS = 53


def _map_reduction(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    axes = node.reduced_axes(x.rank)
    if not axes:
        return [x]
    keep = bool(node.get("keepdims", 1))
    kept = [a for a in range(x.rank) if keep or a not in axes]
    dims = [ONE if a in axes else x.dims[a] for a in kept]
    counts = [x.dims[a].constant for a in axes]
    known = [c for c in counts if c]
    if len(known) < len(counts) or math.prod(known) > MAX_ENTRIES:
        reason = f"{node.op_type} over more than {MAX_ENTRIES} elements"
        return [only_dims(case, dims, reason, x.type)]
    for size in x.dims if case.splits else ():  # onnxruntime leaves axes of an empty tensor
        case.require(size - 1, f"{node.op_type}: the data may be empty")

    def at(index: Index) -> Polynomial:
        place, elements = dict(zip(kept, index, strict=True)), []
        for numbers in itertools.product(*map(range, known)):
            place.update(zip(axes, map(Polynomial.of, numbers), strict=True))
            element = x.at(tuple(place[a] for a in range(x.rank)))
            elements.append(_fit_node(case, node, element, x.type, _EXACT_BITS))
        return _fit_node(case, node, _REDUCTIONS[node.op_type](case, elements), x.type, _EXACT_BITS)

    return [Tensor(case, dims, at, whole=True, type=x.type)]


def _product_of(case: Case, row: _Row) -> Polynomial:
    total = ONE
    for each in row:
        total = _multiply_sizes(case, total, each)
    return total


_REDUCTIONS: dict[str, Callable[[Case, _Row], Polynomial]] = {
    "ReduceProd": _product_of,
    "ReduceSum": lambda case, row: _sum_of([ZERO, *row]),
    "ReduceMax": maximum,
    "ReduceMin": _smallest_of,
}

_INT64 = int(TensorProto.INT64)


def _map_shape(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    start, end = node.get("start", 0), node.get("end", None)
    return [vector_of(case, x.dims[start:end])]


def _map_size(case: Case, node: NodeView) -> list[Tensor]:
    return [filled_tensor(case, [], product(node.input(0).dims), whole=True, type=_INT64)]


def _constant_of_shape(case: Case, node: NodeView) -> list[Tensor]:
    dims = node.input(0).elements()
    value, element_type = node.fill_value()
    return [filled_tensor(case, dims, value, whole=element_type in WHOLE, type=element_type)]


def _map_range(case: Case, node: NodeView) -> list[Tensor]:
    numbers = node.inputs()
    node.check(
        all(n.whole and product(n.dims) == ONE for n in numbers),
        "start, limit and delta must be single integers",
    )
    # onnxruntime computes the length in double precision.
    start, limit, delta = (fitting(case, n.at((ZERO,) * n.rank), n.type, 53) for n in numbers)
    node.check(case.decide(delta - 1), "delta may be 0 or negative")
    count = ZERO
    if case.decide(limit - start):
        count = case.floor_div(limit - start + delta - 1, delta)
    return [
        Tensor(
            case, [count], lambda index: start + index[0] * delta, whole=True, type=numbers[0].type
        )
    ]


def _non_zero(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    node.check(x.rank == 1 and x.whole, "of anything but a list of ones has no index map")

    def check(index: Index) -> None:
        node.check(bool(x.at(index).constant), "of anything but a list of ones has no index map")

    node.for_all(case, x.dims, check)
    return [Tensor(case, [ONE, x.dims[0]], lambda index: index[1], whole=True, type=_INT64)]


def _eye_like(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    rows, columns = (d.constant for d in x.dims)
    if rows is None or columns is None or rows * columns > MAX_PLACES:
        raise UndecidedError("EyeLike of an unknown or large size has no index map")
    element_type = node.get("dtype", 0) or x.type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(element_type)
    return [constant(case, np.eye(rows, columns, node.get("k", 0), dtype))]


#: The maps of operators on integers alone.
INTEGER_RULES: dict[str, Rule] = {
    **dict.fromkeys([*_ARITHMETIC, *_TRUTHS], _map_elementwise),
    **dict.fromkeys(_REDUCTIONS, _map_reduction),
    "Where": _map_where,
}

RULES: dict[str, Rule] = {
    "Shape": _map_shape,
    "Size": _map_size,
    "Range": _map_range,
    "ConstantOfShape": _constant_of_shape,
    "EyeLike": _eye_like,
    "NonZero": _non_zero,
    "Cast": _map_cast,
    "CastLike": _map_cast,
    "BitCast": _bit_cast,
}
