"""Index maps of small models, and what they give at concrete sizes.

A model is written as text (`onnx.parser`) or built in code; inputs of int32 are parameters (0 or more),
all others are data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Any

import definitions
import numpy as np
import onnx
import running
from onnx import TensorProto, numpy_helper
from parsing import model

from onnx_spatial import analysis
from onnx_spatial.maps import compare as comparison
from onnx_spatial.maps import operators
from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.facts import Budget
from onnx_spatial.maps.graph import GraphMaps
from onnx_spatial.maps.polynomial import Atom, Index, LiteralKey, OperationKey, Polynomial, Symbol
from onnx_spatial.maps.tensor import Tensor, input_map
from onnx_spatial.maps.tensor import product as product_of

Sizes = Mapping[str, int]
Values = dict[str, np.ndarray]


def parse(text: str, opset: int = 18) -> onnx.ModelProto:
    """The model of a text as of `parsing.model`, of the opset that most maps are written for."""
    return model(text, opset, running.ir_version_of(opset))


def dims_of(model: onnx.ModelProto) -> dict[str, tuple[int | str, ...]]:
    """Declared dims of each input."""
    return {
        v.name: tuple(d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim)
        for v in model.graph.input
    }


def mapped(
    case: Case,
    model: onnx.ModelProto,
    *,
    legal: bool = False,
    parameters: Mapping[str, Tensor] = MappingProxyType({}),
) -> Tensor:
    """The map of the model's only output; `legal`: only sizes at which it runs are in question."""
    inputs = dict(parameters)
    for value in model.graph.input:
        if value.name in inputs:
            continue
        dims = sizes_of(case, model, value.name)
        element_type = value.type.tensor_type.elem_type
        whole = element_type == TensorProto.INT32
        inputs[value.name] = input_map(case, value.name, dims, whole=whole, type=element_type)
    constants = {t.name: (lambda t=t: numpy_helper.to_array(t)) for t in model.graph.initializer}
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    opset = next(item.version for item in model.opset_import if not item.domain)
    graph = GraphMaps(
        case,
        model.graph.node,
        inputs,
        constants,
        functions,
        lambda *_: None,
        opset=opset,
        legal=legal,
    )
    return graph.value(model.graph.output[0].name)


def sizes_of(case: Case, model: onnx.ModelProto, name: str) -> list[Polynomial]:
    """The dims of an input."""
    dims = dims_of(model)[name]
    return [Polynomial.of(d) if isinstance(d, int) else case.symbol(d) for d in dims]


def operator_map(case: Case, model: onnx.ModelProto) -> tuple[Tensor, dict[str, Tensor]]:
    """The map of the only node of a model, a spatial operator, from its definition; its parameters.

    Entries of parameters that the operator does not read, of the batch, have their only legal value.
    """
    (info,) = analysis.find(model)
    call = info.call
    assert call is not None
    x = input_map(case, "x", sizes_of(case, model, "x"))
    parameters, tables = [], {}
    for parameter in call.parameters:
        vector = parameter.vector
        if vector.values is not None:
            parameters.append([Polynomial.of(v) for v in vector.values])
            continue
        name = info.node.input[vector.input]
        shape = [int(d) for d in dims_of(model)[name]]
        known = input_map(
            case, name, [Polynomial.of(d) for d in shape], whole=True, type=TensorProto.INT32
        )
        places = [tuple(map(Polynomial.of, place)) for place in np.ndindex(*shape)]
        read = places[vector.start :: vector.step][: vector.length]
        for place in read:
            case.assume(known.at(place) - parameter.least)
        parameters.append([known.at(place) for place in read])
        whole = len(shape) > 1 or len(read) == len(places)
        tables[name] = known if whole else _neutral(case, known, read, parameter.least)
    result = operators.apply(case, call.kind, call.operator, x, *parameters)
    case.counts = [product_of(x.dims), product_of(result.dims)]
    return result, tables


def _neutral(case: Case, known: Tensor, read: list[Index], least: int) -> Tensor:
    def at(index: Index) -> Polynomial:
        return known.at(index) if index in read else Polynomial.of(least)

    return Tensor(case, known.dims, at, whole=True, type=known.type)


def compare(
    original: onnx.ModelProto, converted: onnx.ModelProto, steps: int = 500_000
) -> comparison.Comparison:
    """The prover's judgement of two models with the same inputs."""
    is_operator = any(node.domain for node in original.graph.node)

    def both(case: Case) -> tuple[Tensor, Tensor]:
        if is_operator:
            expected, parameters = operator_map(case, original)
            return expected, mapped(case, converted, parameters=parameters)
        expected = mapped(case, original, legal=True)
        sizes = sizes_of(case, original, original.graph.input[0].name)
        case.counts = [product_of(sizes), product_of(expected.dims)]
        return expected, mapped(case, converted)

    return comparison.compare(Case(Budget(steps)), both)


# ---------------------------------------------------------------- brute force


def names_of(model: onnx.ModelProto) -> list[str]:
    """Names of the symbolic sizes of a model's inputs."""
    dims = (dim for each in dims_of(model).values() for dim in each if isinstance(dim, str))
    return [*dict.fromkeys(dims)]


def up_to(bound: int, names: Sequence[str]) -> Iterator[Sizes]:
    """All sizes from 1 to a bound."""
    return assignments(dict.fromkeys(names, range(1, bound + 1)))


def _reference(model: onnx.ModelProto) -> Callable[[Values], np.ndarray]:
    """What computes a model: the definition of a spatial operator, or onnxruntime."""
    node = model.graph.node[0]
    if not node.domain or len(model.graph.node) > 1:
        session = running.session(model, running.LEVELS[0])
        return lambda given: session.run(None, given)[0]
    stored = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    return lambda given: definitions.node(
        node.op_type, [(given | stored)[n] for n in node.input], attributes
    )


def first_difference(
    original: onnx.ModelProto, converted: onnx.ModelProto, sizes: Iterable[Sizes]
) -> Sizes | None:
    """The first sizes at which the converted model fails or gives something else, or None.

    Sizes at which the original fails do not count. All elements of the data differ, and none is 0: nodes
    that only move data are equal for all values if they are for these.
    """
    wanted_of = _reference(original)
    try:
        session = running.session(converted, running.LEVELS[0])
    except Exception:  # onnxruntime's errors have no common class
        return {}
    for each in sizes:
        given = feeds_of(original, each, {})
        try:
            wanted = wanted_of(given)
        except Exception:
            continue
        if not wanted.size and original.graph.node[0].domain:
            continue
        try:
            (found,) = session.run(None, given)
        except Exception:
            return each
        if not running.same_bits(found, wanted):
            return each
    return None


def run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
    """The output of onnxruntime."""
    (output,) = running.session(model, running.LEVELS[0]).run(None, dict(feeds))
    return np.asarray(output)


def feeds_of(model: onnx.ModelProto, sizes: Sizes, parameters: Mapping[str, Any]) -> Values:
    """All-distinct data, and parameters, at some sizes."""
    feeds: Values = {}
    start = 1000
    for value in model.graph.input:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if value.name in parameters:
            feeds[value.name] = np.asarray(parameters[value.name], dtype)
            continue
        shape = [d if isinstance(d, int) else sizes[d] for d in dims_of(model)[value.name]]
        count = int(np.prod(shape))
        feeds[value.name] = np.arange(start, start + count).astype(dtype).reshape(shape)
        start += count
    return feeds


@dataclass(frozen=True)
class Outcome:
    """A case, and what was computed in it."""

    facts: tuple[Polynomial, ...]
    pins: Mapping[Atom, Polynomial]
    results: tuple[Polynomial, ...]


def explored(
    compute: Callable[[Case], tuple[Polynomial, ...]], steps: int = 500_000
) -> list[Outcome]:
    """What is computed in every case.

    Raises:
        UndecidedError: it cannot be followed in one of them.
    """
    case = Case(Budget(steps))
    obligations: dict[str, None] = {}
    outcomes = []
    try:
        for results in case.all(lambda: compute(case)):
            outcomes.append(Outcome(tuple(case.facts), dict(case._replaced), results))
            obligations |= dict.fromkeys(case.obligations)
        for node in obligations:
            for _ in case.all(lambda node=node: _fulfil(case, compute, node)):
                pass
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        raise UndecidedError(f"{type(error).__name__}: {error}") from error
    return outcomes


def _fulfil(case: Case, compute: Callable[[Case], object], node: str) -> None:
    compute(case)
    check = case.obligations.get(node)
    if check is not None:
        check()


def _made(case: Case, make: Callable[[Case], Tensor]) -> Tensor:
    def anew() -> Tensor:
        case.obligations.clear()
        return make(case)

    return case.once("maps", anew)


class Explored:
    """The map of a model in all its cases.

    Raises:
        UndecidedError: it cannot be followed.
    """

    def __init__(self, make: Callable[[Case], Tensor], steps: int = 500_000) -> None:
        def dims(case: Case) -> tuple[Polynomial, ...]:
            return _made(case, make).dims

        def element(case: Case) -> tuple[Polynomial, ...]:
            tensor = _made(case, make)
            index = tuple(case.index(f"i{axis}", dim) for axis, dim in enumerate(tensor.dims))
            return (tensor.at(index),)

        self.dims = explored(dims, steps)
        self.elements = explored(element, steps)

    @classmethod
    def of(cls, model: onnx.ModelProto, steps: int = 500_000) -> Explored:
        """The map of a model's output."""
        return cls(lambda case: mapped(case, model), steps)

    def shape(self, symbols: Sizes) -> tuple[int, ...]:
        """The output's shape; exactly one case is that of these sizes."""
        scalars = {name: np.asarray([value]) for name, value in symbols.items()}
        found = [tuple(int(v[0]) for v in values) for _, values in _apply(self.dims, scalars, {})]
        assert len(found) == 1, f"{len(found)} cases for {symbols}"
        return found[0]

    def array(self, symbols: Sizes, data: Values) -> np.ndarray:
        """The output; each of its elements is in exactly one case."""
        shape = self.shape(symbols)
        count = int(np.prod(shape))
        if not count:
            return np.zeros(shape, np.int64)
        index = np.unravel_index(np.arange(count), shape) if shape else ()
        columns = {name: np.full(count, value) for name, value in symbols.items()}
        columns |= {f"i{axis}": place for axis, place in enumerate(index)}
        result, times = np.zeros(count, np.int64), np.zeros(count, int)
        for places, (values,) in _apply(self.elements, columns, data):
            result[places] = values
            times[places] += 1
        assert (times == 1).all(), f"{times} cases for each element at {symbols}"
        return result.reshape(shape)


def _apply(
    outcomes: list[Outcome], columns: Values, data: Values
) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Yield the places that are in each case, and the results there."""
    for outcome in outcomes:
        known, places = _solved(outcome, columns)
        if not len(places):
            continue
        for fact in outcome.facts:
            holds = np.broadcast_to(number(fact, known, {}) >= 0, places.shape)
            known, places = _rows(known, holds), places[holds]
            if not len(places):
                break
        if len(places):
            results = [
                np.broadcast_to(number(p, known, data), places.shape) for p in outcome.results
            ]
            yield places, results


def _rows(columns: Values, keep: np.ndarray) -> Values:
    return {name: column[keep] for name, column in columns.items()}


def _solved(outcome: Outcome, columns: Values) -> tuple[Values, np.ndarray]:
    """The values of all symbols, those included that others were replaced by, and where they fit."""
    known = dict(columns)
    places = np.arange(len(next(iter(columns.values()))) if columns else 1)
    for atom, p in outcome.pins.items():
        if _name(atom) not in columns:
            continue
        value = known[_name(atom)]
        unknown = sorted({n for n in _names(p) if n not in known})
        if len(unknown) == 1:
            zero = number(p, known | {unknown[0]: np.zeros_like(value)}, {})
            slope = number(p, known | {unknown[0]: np.ones_like(value)}, {}) - zero
            known[unknown[0]] = (value - zero) // slope
        assert len(unknown) < 2
    for atom, p in outcome.pins.items():
        if _name(atom) in known:
            keep = number(p, known, {}) == known[_name(atom)]
            known, places = _rows(known, np.broadcast_to(keep, places.shape)), places[keep]
    return known, places


def _name(atom: Atom) -> str:
    return atom.key.name if isinstance(atom.key, Symbol) else ""


def _names(p: Polynomial) -> set[str]:
    found = set()
    for term in p.terms:
        for atom in term:
            found.add(_name(atom))
            if isinstance(atom.key, OperationKey):
                found.update(*map(_names, atom.key.operands))
    return found - {""}


_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Abs": np.abs,
    "Sign": np.sign,
    "Max": lambda *row: np.maximum.reduce(np.broadcast_arrays(*row)),
    "Min": lambda *row: np.minimum.reduce(np.broadcast_arrays(*row)),
    "Sum": lambda *row: sum(row),
    "Equal": np.equal,
    "Less": np.less,
    "Greater": np.greater,
    "LessOrEqual": np.less_equal,
    "GreaterOrEqual": np.greater_equal,
    "Ceil": np.ceil,
    "Floor": np.floor,
    "Not": np.logical_not,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "Where": np.where,
}


def _computed(name: str, details: tuple[object, ...], row: list[np.ndarray]) -> np.ndarray:
    """An operator of elements; Div and Mod of integers round toward zero, unless Mod does not."""
    if name == "Cast":
        return np.asarray(row[0]).astype(onnx.helper.tensor_dtype_to_np_dtype(details[1]))
    if name in ("Div", "Mod") and np.asarray(row[0]).dtype.kind != "f":
        quotient = np.abs(row[0]) // np.abs(row[1]) * np.sign(row[0]) * np.sign(row[1])
        if name == "Div":
            return np.asarray(quotient)
        is_fmod = ("fmod", "1") in details
        return np.asarray(row[0] - row[1] * quotient if is_fmod else row[0] % row[1])
    return np.asarray({**_FUNCTIONS, "Div": np.divide}[name](*row))


def number(p: Polynomial, symbols: Values, data: Values) -> np.ndarray:
    """The value of a polynomial at many values of its symbols: an evaluator of the tests' own."""
    total = np.asarray(0)
    for term, factor in p.terms.items():
        value = np.asarray(factor)
        for atom in term:
            value = value * _value(atom, symbols, data)
        total = total + value
    return total


def _value(atom: Atom, symbols: Values, data: Values) -> np.ndarray:
    key = atom.key
    if isinstance(key, Symbol):
        assert key.name in symbols, f"{key.name!r} is neither a size nor a digit of the index"
        value = symbols[key.name]
    elif isinstance(key, LiteralKey):
        value = np.frombuffer(key.data, f"f{len(key.data)}")[0]
    elif not isinstance(key, OperationKey):
        value = np.asarray(symbols[key])
    else:
        row = [number(p, symbols, data) for p in key.operands]
        if key.operator == "Floor":
            value = np.asarray(row[0] // row[1])
        elif key.operator == "Element":
            assert all((i >= 0).all() for i in row), "read before the start"
            value = data[key.details[0]][tuple(row)]
        elif key.operator == "Mul" and isinstance(key.operands, frozenset) and len(row) == 1:
            value = row[0] * row[0]
        else:
            value = _computed(re.split("[.:]", key.operator)[-1], key.details, row)
    assert not atom.nonnegative or (value >= 0).all(), f"{atom} is flagged as 0 or more"
    return value


def assignments(bounds: Mapping[str, range]) -> Iterator[dict[str, int]]:
    """All combinations of values."""
    for values in product(*bounds.values()):
        yield dict(zip(bounds, values, strict=True))


def disagreement(
    model: onnx.ModelProto, sizes: Sequence[Sizes], parameters: Values | None = None
) -> str | None:
    """The first difference between the map and onnxruntime; None if there is none.

    Where onnxruntime fails at sizes of 1 or more, no map may be found.

    Raises:
        UndecidedError: there is no map.
    """
    explored = Explored.of(model, steps=150_000)
    for each in sizes:
        feeds = feeds_of(model, each, parameters or {})
        try:
            wanted = run(model, feeds)
        except Exception as error:  # onnxruntime's errors have no common class
            return f"{each}: there is a map, and onnxruntime fails: {error}"
        try:
            shape = explored.shape(each)
            if shape != wanted.shape:
                return f"{each}: the shape is {shape}, not {wanted.shape}"
            found = explored.array(each, feeds)
        except AssertionError as error:
            return f"{each}: {error}"
        if not np.array_equal(found, wanted):
            return f"{each}: {found.tolist()}, not {wanted.tolist()}"
    return None
