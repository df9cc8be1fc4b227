"""Say what nodes demand of the open sizes of a model, as formulas of these.

    SpaceToBatchND with blocks of 4, data [N, H + 2, W, 3]    4 divides H + 2, and W
    MatMul of data [N, W // 2] and a weight [12, 5]           W // 2 = 12
    Reshape of data [N, H, 3] to [N, 7, -1]                   7 divides H * 3

A formula may depend on what only a run tells, such as the number of NonZero elements. Such a demand is
taken to be met.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.analysis.shape_probes import number_of
from onnx_spatial.errors import OperatorError
from onnx_spatial.model import traversal
from onnx_spatial.model.inference import constant_folding, shape_inference
from onnx_spatial.model.symbolic.eval_shapes import BROADCAST
from onnx_spatial.model.symbolic.polynomial import (
    Atom,
    OperationKey,
    Polynomial,
    maximum,
    quotient,
)
from onnx_spatial.model.symbolic.symbolic_tensor import INTEGERS, LiteralKey, attributes
from onnx_spatial.model.symbolic.symbolic_values import ElementKey, NamedDimKey, SymbolicValues
from onnx_spatial.operators import Dim, Operator
from onnx_spatial.operators.spellings import Call
from onnx_spatial.verification.arrays import BOOL, Array, dtype_of
from onnx_spatial.verification.run.data import Assignment

_Formulas = Sequence[Polynomial]

#: Powers of two by which a size changes where no likely size meets a demand.
_POWERS = 20
#: Sums of how much demands are broken that differ by less are equal: they are rounded.
_LEAST_GAIN = 1e-9


@dataclass(frozen=True)
class Demand:
    """A rule about the values of some formulas.

    Attributes:
        formulas: of sizes and elements of parameters.
        rule: tells by how much it is broken from their values and the details; 0 if it holds.
        details: further arguments of the rule.
    """

    formulas: tuple[Polynomial, ...]
    rule: Callable[..., float]
    details: tuple[Any, ...] = ()

    @property
    def symbols(self) -> set[str]:
        """The symbols of sizes that the formulas depend on."""
        found, seen, todo = set[str](), set[Atom](), list(self.formulas)
        while todo:
            for atom in itertools.chain.from_iterable(todo.pop().terms):
                if isinstance(atom.key, NamedDimKey):
                    found.add(atom.key.name)
                elif isinstance(atom.key, OperationKey) and atom not in seen:
                    todo.extend(atom.key.operands)
                seen.add(atom)
        return found

    def excess(self, values: Values) -> float:
        """Return by how much it is broken for the sizes and parameters of a run."""
        numbers = [values.of(formula) for formula in self.formulas]
        known = [number for number in numbers if number is not None]
        return self.rule(known, *self.details) if len(known) == len(numbers) else 0.0


class Values:
    """Values of formulas for some sizes, by symbol, and arrays that are fed, by name."""

    def __init__(self, sizes: Mapping[str, int], arrays: Mapping[str, Array]) -> None:
        self._sizes, self._arrays = sizes, arrays
        self._known: dict[Atom, Any] = {}

    def of(self, formula: Polynomial) -> Any:
        """Return the value of a formula; None if it depends on more."""
        total = 0
        for atoms, factor in formula.terms.items():
            numbers = [self._atom(atom) for atom in atoms]
            if None in numbers:
                return None
            total += factor * math.prod(numbers)
        return total

    def _atom(self, atom: Atom) -> Any:
        if atom not in self._known:
            self._known[atom] = self._computed(atom.key)
        return self._known[atom]

    def _computed(self, key: object) -> Any:
        if isinstance(key, NamedDimKey):
            return self._sizes.get(key.name)
        if isinstance(key, ElementKey) and key.scope.is_fed(key.name):
            array = self._arrays.get(key.name)
            return (
                None if array is None or key.index >= array.size else array.flat[key.index].item()
            )
        if isinstance(key, LiteralKey):
            return np.frombuffer(key.data, dtype_of(key.element_type))[0].item()
        if isinstance(key, OperationKey) and key.operator in _FUNCTIONS:
            numbers = [self.of(operand) for operand in key.operands]
            try:
                return None if None in numbers else _FUNCTIONS[key.operator](key.details, *numbers)
            except (ArithmeticError, ValueError):
                return None
        return None


def _quotient(_: object, a: Any, b: Any) -> Any:
    """Divide as ONNX's Div: integers are rounded toward zero."""
    if isinstance(a, float) or isinstance(b, float):
        return a / b
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _cast(details: Sequence[Any], number: Any) -> Any:
    if details[1] in INTEGERS:
        return int(number)
    return bool(number) if details[1] == BOOL else float(number)


#: Values of the operators in formulas, for the details and the values of the operands.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Abs": lambda _, a: abs(a),
    "Add": lambda _, *terms: sum(terms),
    "And": lambda _, a, b: a and b,
    "Cast": _cast,
    "Ceil": lambda _, a: math.ceil(a),
    "Div": _quotient,
    "Equal": lambda _, a, b: a == b,
    "Floor": lambda _, a: math.floor(a),
    "Greater": lambda _, a, b: a > b,
    "GreaterOrEqual": lambda _, a, b: a >= b,
    "Less": lambda _, a, b: a < b,
    "LessOrEqual": lambda _, a, b: a <= b,
    "Max": lambda _, *numbers: max(numbers),
    "Min": lambda _, *numbers: min(numbers),
    "Mod": lambda details, a, b: int(math.fmod(a, b)) if details[0] else a % b,
    "Mul": lambda _, *factors: math.prod(factors),
    "Not": lambda _, a: not a,
    "Or": lambda _, a, b: a or b,
    "Sub": lambda _, a, b: a - b,
    "Where": lambda _, condition, a, b: a if condition else b,
    "Wrap": lambda _, a: a,
}


# Rules


def equal(numbers: Sequence[int]) -> float:
    """Two sizes are equal."""
    a, b = numbers
    return abs(a - b) / max(abs(a), abs(b), 1)


def broadcast(numbers: Sequence[int]) -> float:
    """Two sizes are equal, or one of them is 1."""
    return 0.0 if 1 in numbers else equal(numbers)


def same_count(numbers: Sequence[int], rank: int) -> float:
    """A Reshape keeps the number of elements: the first `rank` numbers are the dims of its data."""
    return equal((math.prod(numbers[:rank]), math.prod(numbers[rank:])))


def divided(numbers: Sequence[int], rank: int) -> float:
    """A Reshape divides the elements by all but one of its dims; the first are the dims of its data."""
    count, divisor = math.prod(numbers[:rank]), math.prod(numbers[rank:])
    return count % divisor / divisor if divisor > 0 else 0.0


def at_least(numbers: Sequence[int], least: int) -> float:
    """A size is not too small."""
    return max(0, least - numbers[0]) / least


def at_most(numbers: Sequence[int], most: float) -> float:
    """A tensor has not too many elements."""
    return max(0.0, math.log2(max(1, math.prod(numbers)) / most))


def legal(numbers: Sequence[int], operator: Operator, rank: int, axis: int) -> float:
    """A spatial operator accepts the size of an axis, and its output is not empty."""
    return 0.0 if fits(operator, rank, axis, numbers[0]) else 1.0


def legal_block(numbers: Sequence[int], kind: type[Operator], rank: int, axis: int) -> float:
    """The same for an operator with computed parameters, which follow: block, begins, ends."""
    size, *parameters = numbers
    third = len(parameters) // 3
    block, begins, ends = (tuple(parameters[i * third : (i + 1) * third]) for i in range(3))
    try:
        operator = kind(block, tuple(zip(begins, ends, strict=True)))  # type: ignore[call-arg]
    except OperatorError:
        return 2.0
    return legal((size,), operator, rank, axis)


@lru_cache(maxsize=1 << 14)  # a model has many equal operators, each with hundreds of candidates
def fits(operator: Operator, rank: int, axis: int, size: int) -> bool:
    """Tell whether a size is legal on an axis, with other axes unknown, and the output not empty."""
    dims: list[Dim] = [None] * rank
    dims[axis] = size
    try:
        return 0 not in operator.output_shape(dims)
    except OperatorError:
        return False


# Sizes


class Demands:
    """Demands that the sizes of a run have to meet, all together.

    Args:
        choices: sizes that each open symbol may have, the likely ones first; of two symbols that must
            agree, the later one changes.
    """

    def __init__(self, choices: Mapping[str, Sequence[int]]) -> None:
        self._choices = choices
        self._symbols: dict[Demand, set[str]] = {}

    def add(self, demand: Demand) -> bool:
        """Add a demand; return whether it is a new one, about open sizes."""
        symbols = demand.symbols & self._choices.keys()
        if demand in self._symbols or not symbols:
            return False
        self._symbols[demand] = symbols
        return True

    def excess(self, assignment: Assignment, of: Collection[str] | None = None) -> float:
        """Return by how much the demands are broken, or those that depend on some symbols."""
        values = Values(assignment.sizes, assignment.values)
        concerned = self._symbols.items()
        return sum(d.excess(values) for d, s in concerned if of is None or not s.isdisjoint(of))

    def least(self, symbol: str) -> int:
        """Return the least size of a symbol that meets the demands on it alone."""
        sizes = range(1, max(self._choices[symbol]) + 1)
        return next((s for s in sizes if not self.excess(Assignment({symbol: s}), [symbol])), 1)

    def tries(self, symbol: str, size: int) -> Iterator[int]:
        """Yield other sizes for a symbol: those it may have, and some that are far larger or less."""
        steps = [step for power in range(_POWERS) for step in (1 << power, -(1 << power))]
        sizes = dict.fromkeys((*self._choices[symbol], *(size + step for step in steps)))
        yield from (s for s in sizes if s > 0 and s != size)

    def settled(self, assignment: Assignment, keep: Collection[str] = ()) -> Assignment:
        """Return an assignment with other sizes, but those of `keep`, that meets more demands.

        One size changes after the other, or two together, while fewer demands are broken, or by less.
        """
        while True:
            broken = self._broken(assignment)
            better = (self._improved(assignment, demand, keep) for demand in broken)
            by_two = (self._improved_by_two(assignment, demand, keep) for demand in broken)
            every = itertools.chain(better, by_two)
            improved = next((each for each in every if each is not None), None)
            if improved is None:
                return assignment
            assignment = improved

    def forces(self, assignment: Assignment, symbol: str) -> bool:
        """Tell whether every other size of a symbol breaks a demand that no change of another mends."""
        for size in self.tries(symbol, assignment.sizes[symbol]):
            changed: Assignment | None = assignment.resized({symbol: size})
            while changed is not None:
                broken = self._broken(changed)
                if not broken:
                    return False
                changed = self._improved(changed, broken[0], [symbol])
        return True

    def _broken(self, assignment: Assignment) -> list[Demand]:
        values = Values(assignment.sizes, assignment.values)
        return [demand for demand in self._symbols if demand.excess(values) > 0]

    def _improved(
        self, assignment: Assignment, demand: Demand, keep: Collection[str]
    ) -> Assignment | None:
        """Return an assignment with another size that breaks all demands together by less."""
        gain, best = _LEAST_GAIN, None
        for symbol in self._open(demand, keep):
            before = self.excess(assignment, [symbol])
            for size in self.tries(symbol, assignment.sizes[symbol]):
                changed = assignment.resized({symbol: size})
                after = self.excess(changed, [symbol])
                if before - after > gain:
                    gain, best = before - after, changed
                if not after:
                    return changed
        return best

    def _improved_by_two(
        self, assignment: Assignment, demand: Demand, keep: Collection[str]
    ) -> Assignment | None:
        """Return an assignment with two other sizes that meets the demand of a Reshape."""
        if demand.rule is not same_count:
            return None
        for pair in itertools.combinations(self._open(demand, keep), 2):
            before = self.excess(assignment, pair)
            for sizes in itertools.product(*(sorted(self._choices[s]) for s in pair)):
                changed = assignment.resized(dict(zip(pair, sizes, strict=True)))
                met = not demand.excess(Values(changed.sizes, changed.values))
                if met and self.excess(changed, pair) < before - _LEAST_GAIN:
                    return changed
        return None

    def _open(self, demand: Demand, keep: Collection[str]) -> list[str]:
        """Return the symbols that may change to meet a demand, the last ones first."""
        return [
            s for s in reversed(list(self._choices)) if s in self._symbols[demand] and s not in keep
        ]


# Nodes


class ModelDemands:
    """What the nodes of a model demand of its open sizes.

    Args:
        model: the model, without functions; each open dim of its inputs has a name.
        infos: its spatial operators.
    """

    def __init__(self, model: onnx.ModelProto, infos: Sequence[OperatorInfo]) -> None:
        self._infos = infos
        inferred = analysis.inferred(model, infos)
        self._outputs = [value.name for value in inferred.graph.output]
        self._graphs = [
            (graph.node, SymbolicValues(scope, self._output_dims))
            for scope, graph in constant_folding.scopes(inferred)
        ]

    def of_operators(self) -> Iterator[Demand]:
        """Yield what spatial operators demand, and that the outputs of the model have elements."""
        for nodes, sizes in self._graphs:
            for node in nodes:
                if (info := self._info(node)) is not None:
                    yield from _of_operator(node, info, sizes)
        for name in self._outputs:
            yield from _elements(name, self._graphs[0][1])

    def of_node(self, label: str) -> list[Demand]:
        """Return what a standard node demands of the sizes that it meets."""
        return [
            demand
            for nodes, sizes in self._graphs
            for node in nodes
            if traversal.label(node) == label and self._info(node) is None
            for demand in _of_node(node, sizes)
        ]

    def of_elements(self, name: str, most: float) -> Demand:
        """Return the demand that an input of the model has not too many elements."""
        return Demand(tuple(self._graphs[0][1].dims(name) or ()), at_most, (most,))

    def dims(self, info: OperatorInfo) -> Sequence[Polynomial] | None:
        """Return the dims of the data of a spatial operator; None if its rank is unknown."""
        for nodes, sizes in self._graphs:
            for node in nodes:
                if self._info(node) is info:
                    return sizes.dims(node.input[0])
        return None

    def _info(self, node: onnx.NodeProto) -> OperatorInfo | None:
        is_probe = node.domain == shape_inference.DOMAIN
        return self._infos[number_of(node).i] if is_probe else None

    def _output_dims(
        self, node: onnx.NodeProto, dims: _Formulas | None, entries: Sequence[_Formulas | None]
    ) -> _Formulas | None:
        """Return the dims of the output of a spatial operator; the rule of `SymbolicValues`."""
        info = self._info(node)
        if info is None or info.call is None or dims is None:
            return None
        parameters = _parameters(info.call, [None, *entries])
        if parameters is None or (info.call.rank or len(dims)) != len(dims):
            return None
        return info.call.output_dims(_Arithmetic(), dims, *parameters)


class _Arithmetic:
    """The arithmetic of formulas."""

    add = staticmethod(operator.add)
    sub = staticmethod(operator.sub)
    mul = staticmethod(operator.mul)
    div = staticmethod(lambda a, b: quotient(_formula(a), _formula(b)))
    max = staticmethod(lambda a, b: maximum([_formula(a), _formula(b)]))
    product = staticmethod(lambda sizes: reduce(operator.mul, sizes, Polynomial.of(1)))


def _formula(size: Polynomial | int) -> Polynomial:
    return Polynomial.of(size) if isinstance(size, int) else size


def _parameters(call: Call, entries: Sequence[_Formulas | None]) -> list[_Formulas] | None:
    """Return the parameters of an operator, by the elements of its inputs; None if one is unknown."""
    parameters: list[_Formulas] = []
    for vector in (parameter.vector for parameter in call.parameters):
        if vector.values is not None:
            parameters.append([Polynomial.of(value) for value in vector.values])
            continue
        elements = entries[vector.input] if vector.input is not None else None
        if elements is None:
            return None
        parameters.append(elements[vector.start :: vector.step][: vector.length])
    return parameters


def _of_operator(
    node: onnx.NodeProto, info: OperatorInfo, sizes: SymbolicValues
) -> Iterator[Demand]:
    call, dims = info.call, sizes.dims(node.input[0])
    if call is None or dims is None:
        return
    parameters = _parameters(call, [sizes.entries(name) for name in node.input])
    for axis, size in enumerate(dims):
        if call.operator is not None:
            yield Demand((size,), legal, (call.operator, len(dims), axis))
        elif parameters is not None:
            entries = itertools.chain.from_iterable(parameters)
            yield Demand((size, *entries), legal_block, (call.kind, len(dims), axis))


def _elements(name: str, sizes: SymbolicValues) -> Iterator[Demand]:
    """Yield that a value has elements."""
    for size in sizes.dims(name) or ():
        if size.constant is None:
            yield Demand((size,), at_least, (1,))


def _of_node(node: onnx.NodeProto, sizes: SymbolicValues) -> Iterator[Demand]:
    inputs = [sizes.dims(name) if name else None for name in node.input]
    given = attributes(node) or {}
    if node.op_type == "Reshape" and inputs[0] is not None:
        yield from _of_reshape(inputs[0], sizes.entries(node.input[1]), given)
    if node.op_type == "Expand" and len(inputs) > 1:
        inputs[1] = sizes.entries(node.input[1])
    rule = broadcast if node.op_type in {*BROADCAST, "Expand"} else equal
    for a, b in _equal_sizes(node.op_type, given, inputs):
        yield Demand((a, b), rule)
    for name in node.output:
        yield from _elements(name, sizes)


def _of_reshape(
    data: _Formulas, shape: _Formulas | None, given: Mapping[str, Any]
) -> Iterator[Demand]:
    """Yield the demand of a Reshape; one with a computed 0 or -1 in its shape demands nothing."""
    if shape is None:
        return
    copies = not given.get("allowzero", 0)
    dims = [
        data[axis] if size.constant == 0 and copies and axis < len(data) else size
        for axis, size in enumerate(shape)
    ]
    rest = [axis for axis, size in enumerate(dims) if size.constant == -1]
    known = [size for axis, size in enumerate(dims) if axis not in rest]
    yield Demand((*data, *known), divided if rest else same_count, (len(data),))


def _equal_sizes(
    op_type: str, given: Mapping[str, Any], inputs: Sequence[_Formulas | None]
) -> Iterator[tuple[Polynomial, Polynomial]]:
    """Yield pairs of sizes that a node needs to be equal; of broadcast inputs also 1 and any size."""
    dims = {number: known for number, known in enumerate(inputs) if known}
    if op_type in ("LSTM", "GRU", "RNN"):
        batch = 0 if given.get("layout", 0) else 1
        for state in (5, 6):  # initial_h, initial_c
            if len(dims.get(state, ())) == 3 and {0, 2} <= dims.keys():
                yield dims[state][1 - batch], dims[2][0]  # directions
                yield dims[state][batch], dims[0][batch]
                yield dims[state][2], dims[2][2]  # R is [directions, gates, hidden]
    if not {0, 1} <= dims.keys():
        return
    first, second = dims[0], dims[1]
    if op_type == "Conv" and min(len(first), len(second)) > 1:
        yield first[1], second[1] * given.get("group", 1)
    elif (op_type == "ConvTranspose" and len(first) > 1) or (
        op_type == "BatchNormalization" and len(first) > 1
    ):
        yield first[1], second[0]
    elif op_type == "Gemm" and len(first) == len(second) == 2:
        yield first[1 - given.get("transA", 0)], second[given.get("transB", 0)]
    elif op_type == "MatMul":
        yield first[-1], second[max(len(second) - 2, 0)]
        yield from zip(first[-3::-1], second[-3::-1], strict=False)
    elif op_type in {*BROADCAST, "Expand"}:
        for other in (dims[number] for number in dims if number):
            yield from zip(first[::-1], other[::-1], strict=False)
    elif op_type == "Concat":
        axis = given.get("axis", 0) % len(first)
        for other in (dims[number] for number in dims if number):
            pairs = enumerate(zip(first, other, strict=False))
            yield from (pair for number, pair in pairs if number != axis)
