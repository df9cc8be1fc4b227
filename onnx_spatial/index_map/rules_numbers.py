"""The maps of arithmetic: exact on sizes and indices, unknown functions of everything else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx import TensorProto

from onnx_spatial.index_map.cases import ONE, ZERO, Case, UndecidedError
from onnx_spatial.index_map.node import _WHOLE, NodeView
from onnx_spatial.index_map.rules_movement import broadcast, broadcast_at
from onnx_spatial.index_map.tensor import Index, Tensor
from onnx_spatial.model.symbolic.polynomial import OperationKey, Polynomial

_Row = Sequence[Polynomial]


def div(case: Case, a: Polynomial, b: Polynomial) -> Polynomial:
    """Return `a / b` rounded toward zero, as ONNX's Div of integers."""
    if not case.decide(b - 1):
        if not case.decide(-b - 1):
            raise UndecidedError("a division by 0")
        return div(case, -a, -b)
    if case.decide(a):
        return case.floor_div(a, b)
    return -case.floor_div(-a, b)


def _mod(case: Case, node: NodeView, a: Polynomial, b: Polynomial) -> Polynomial:
    if node.get("fmod", 0):
        return a - b * div(case, a, b)
    if not case.decide(b - 1):
        raise UndecidedError("Mod by a number that may not be positive")
    return case.mod(a, b)


def _abs(case: Case, a: Polynomial) -> Polynomial:
    return a if case.decide(a) else -a


def maximum(case: Case, row: _Row) -> Polynomial:
    """Return the largest number, in this case."""
    largest = row[0]
    for each in row[1:]:
        largest = largest if case.decide(largest - each) else each
    return largest


def _minimum(case: Case, row: _Row) -> Polynomial:
    return -maximum(case, [-each for each in row])


def _sum(row: _Row) -> Polynomial:
    return sum(row[1:], row[0])


def _truth(value: bool) -> Polynomial:
    return ONE if value else ZERO


def _holds(case: Case, p: Polynomial) -> bool:
    return not case.is_zero(p)


_Scalar = Callable[[Case, NodeView, _Row], Polynomial]

#: Functions of integers and truth values, element by element.
_WHOLE_RULES: dict[str, _Scalar] = {
    "Add": lambda case, node, row: row[0] + row[1],
    "Sum": lambda case, node, row: _sum(row),
    "Sub": lambda case, node, row: row[0] - row[1],
    "Mul": lambda case, node, row: row[0] * row[1],
    "Neg": lambda case, node, row: -row[0],
    "Div": lambda case, node, row: div(case, row[0], row[1]),
    "Mod": lambda case, node, row: _mod(case, node, row[0], row[1]),
    "Abs": lambda case, node, row: _abs(case, row[0]),
    "Max": lambda case, node, row: maximum(case, row),
    "Min": lambda case, node, row: _minimum(case, row),
    "Equal": lambda case, node, row: _truth(case.is_zero(row[0] - row[1])),
    "Less": lambda case, node, row: _truth(case.decide(row[1] - row[0] - 1)),
    "LessOrEqual": lambda case, node, row: _truth(case.decide(row[1] - row[0])),
    "Greater": lambda case, node, row: _truth(case.decide(row[0] - row[1] - 1)),
    "GreaterOrEqual": lambda case, node, row: _truth(case.decide(row[0] - row[1])),
    "Not": lambda case, node, row: _truth(case.is_zero(row[0])),
    "And": lambda case, node, row: _truth(all(_holds(case, p) for p in row)),
    "Or": lambda case, node, row: _truth(any(_holds(case, p) for p in row)),
    "Xor": lambda case, node, row: _truth(_holds(case, row[0]) != _holds(case, row[1])),
    "Sign": lambda case, node, row: (
        ZERO if case.is_zero(row[0]) else ONE if case.decide(row[0]) else -ONE
    ),
}


def elementwise(case: Case, node: NodeView) -> list[Tensor]:
    """Return the map of an elementwise operator; of values that only move, an unknown function."""
    inputs = [node.optional(i) for i in range(16)]
    known = [i for i in inputs if i is not None]
    dims = broadcast(case, [i.dims for i in known])
    rule = _WHOLE_RULES.get(node.op_type)
    whole = rule is not None and all(i.whole for i in known)
    details = tuple(sorted((k, _plain(v)) for k, v in node.attributes.items()))

    def at(index: Index) -> Polynomial:
        row = [broadcast_at(i, index) for i in known]
        if whole and rule is not None:
            return rule(case, node, row)
        return Polynomial.atom(OperationKey(node.op_type, details, tuple(row)))

    axes = next((i.axes for i in known if i.dims == dims), None)
    return [Tensor(case, dims, at, whole=whole, axes=axes)]


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, list) else str(value)


def _where(case: Case, node: NodeView) -> list[Tensor]:
    condition, yes, no = node.inputs()
    dims = broadcast(case, [condition.dims, yes.dims, no.dims])
    if not condition.whole:
        raise UndecidedError("Where on values that are not followed")

    def at(index: Index) -> Polynomial:
        chosen = yes if _holds(case, broadcast_at(condition, index)) else no
        return broadcast_at(chosen, index)

    return [Tensor(case, dims, at, whole=yes.whole and no.whole)]


def _cast(case: Case, node: NodeView) -> list[Tensor]:
    x, to = node.input(0), node.get("to", None)
    truth = to == TensorProto.BOOL
    whole = x.whole and to in _WHOLE

    def at(index: Index) -> Polynomial:
        value = x.at(index)
        if whole:
            return _truth(_holds(case, value)) if truth else value
        if value == ZERO:
            return ZERO
        return Polynomial.atom(OperationKey(node.op_type, (to,), (value,)))

    return [Tensor(case, x.dims, at, whole=whole, axes=x.axes)]


def _reduce(case: Case, node: NodeView) -> list[Tensor]:
    x = node.input(0)
    if not x.whole:
        raise UndecidedError(f"{node.op_type} of values that are not followed")
    given = node.optional_integers("axes", 1)
    axes = sorted(a % x.rank for a in given) if given else list(range(x.rank))
    keep = bool(node.get("keepdims", 1))
    counts = [x.dims[a].constant for a in axes]
    if any(c is None or c > 64 for c in counts):
        raise UndecidedError(f"{node.op_type} over an unknown number of elements")
    dims = [ONE if a in axes else d for a, d in enumerate(x.dims) if keep or a not in axes]

    def at(index: Index) -> Polynomial:
        rest = [i for a, i in enumerate(index) if a not in axes] if keep else list(index)
        rows: list[list[Polynomial]] = [[]]
        for axis in range(x.rank):
            if axis in axes:
                count = counts[axes.index(axis)] or 0
                rows = [[*row, Polynomial.of(i)] for row in rows for i in range(count)]
            else:
                rows = [[*row, rest[axis - sum(a < axis for a in axes)]] for row in rows]
        return _REDUCTIONS[node.op_type](case, [x.at(tuple(row)) for row in rows])

    return [Tensor(case, dims, at, whole=True)]


def _product(case: Case, row: _Row) -> Polynomial:
    total = ONE
    for each in row:
        total = total * each
    return total


_REDUCTIONS: dict[str, Callable[[Case, _Row], Polynomial]] = {
    "ReduceProd": _product,
    "ReduceSum": lambda case, row: _sum([ZERO, *row]),
    "ReduceMax": maximum,
    "ReduceMin": _minimum,
}

RULES: dict[str, Callable[[Case, NodeView], Sequence[Tensor]]] = {
    **dict.fromkeys(_WHOLE_RULES, elementwise),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    "Where": _where,
    "Cast": _cast,
    "BitCast": _cast,
}
