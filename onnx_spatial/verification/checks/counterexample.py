"""Find sizes and parameters for which two index maps differ, and confirm the difference by a run.

The prover compares maps case by case. Where it cannot show that they are equal in a case, small values
of the case's symbols are tried, near the constants in its facts:

    1001 <= H, 1000 <= i < H        H = 1001, i = 1000: both sides run on an image of 1001 rows
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.errors import OperatorError
from onnx_spatial.index_map.cases import PARAMETER
from onnx_spatial.index_map.compare import Difference
from onnx_spatial.index_map.expressions import FLOOR, Symbol, bases_of
from onnx_spatial.index_map.grids import Values, evaluate
from onnx_spatial.model.symbolic.polynomial import Atom, OperationKey, Polynomial
from onnx_spatial.operators.shapes import is_countable, show
from onnx_spatial.verification.arrays import Array, differing_bits, dtype_name, patterns
from onnx_spatial.verification.checks.findings import OperatorCheck
from onnx_spatial.verification.checks.index_maps import Attempt, parameter_dims, size_symbol
from onnx_spatial.verification.checks.replacement import (
    MAX_ELEMENTS,
    Outcome,
    Replacement,
    ReplacementRuns,
    known_inputs,
)
from onnx_spatial.verification.compare.bitwise import bitwise
from onnx_spatial.verification.report import Counterexample
from onnx_spatial.verification.sizes import operator_shapes
from onnx_spatial.verification.sizes.operator_shapes import ShapeSample

#: All values of a symbol below this are tried, and the most with those near constants.
_SMALL, _MOST_VALUES = 7, 96
#: The most combinations of values that are kept, and sizes that are run.
_MOST_ROWS, _MOST_RUNS = 1 << 13, 3


def find(
    replacement: Replacement,
    attempt: Attempt,
    operator: OperatorCheck,
    folder: Path | None,
    seed: int,
) -> Counterexample | None:
    """Return an input for which a replacement is wrong, or None if no run shows one."""
    assert attempt.comparison.difference is not None
    chain, rng = replacement.chain, np.random.default_rng(seed)
    types = sorted(operator.info.element_types) or [onnx.TensorProto.FLOAT]
    runs = ReplacementRuns(replacement, folder)
    for sample in _samples(replacement, attempt, attempt.comparison.difference):
        x = patterns(types[0], chain.source_shape(sample.shape), rng)
        try:
            outcomes = list(runs.run(sample, x))
        except OperatorError:  # the sizes are not legal after all
            continue
        for outcome in outcomes:
            check = bitwise("isolated", outcome.optimised, x, outcome.expected, outcome.actual)
            too_large = outcome.failure is not None and outcome.failure.out_of_memory
            if check.passed or too_large:
                continue
            if outcome.failure is not None and not _runs_elsewhere(
                replacement, runs, types[0], rng
            ):
                return None  # perhaps valid only for the sizes that occur in the whole model
            operator.record(check, outcome.inputs, chain.sink)
            return _counterexample(outcome, chain.source, x, chain.sink)
    return None


def _runs_elsewhere(
    replacement: Replacement, runs: ReplacementRuns, element_type: int, rng: np.random.Generator
) -> bool:
    """Tell whether a part runs at a usual size."""
    chain = replacement.chain
    sample = operator_shapes.draw_sample(chain.head.facts, rng, 0)
    if sample is None or sample.elements > MAX_ELEMENTS:
        return False
    try:
        outcomes = list(
            runs.run(sample, patterns(element_type, chain.source_shape(sample.shape), rng))
        )
    except OperatorError:
        return False
    return all(outcome.failure is None for outcome in outcomes)


def _counterexample(outcome: Outcome, source: str, x: Array, sink: str) -> Counterexample:
    """Describe a run in which the two sides differ."""
    expected, actual, element = outcome.expected, outcome.actual, None
    if isinstance(actual, str):
        reason = f"cannot be computed: {actual}"
    elif dtype_name(actual) != dtype_name(expected):
        reason = f"has type {dtype_name(actual)} instead of {dtype_name(expected)}"
    elif actual.shape != expected.shape:
        reason = f"has shape {show(actual.shape)} instead of {show(expected.shape)}"
    else:
        first = int(np.flatnonzero(differing_bits(expected, actual))[0])
        element = tuple(int(i) for i in np.unravel_index(first, expected.shape))
        names = (_place(a.reshape(-1)[first : first + 1], source, x) for a in (actual, expected))
        reason = " instead of ".join(names)
        reason = f"is {reason}"
    parameters = {n: a.tolist() for n, a in outcome.inputs.items() if n != source}
    inputs = {source: x} | outcome.inputs
    return Counterexample(inputs, parameters, element, reason, sink, outcome.optimised)


def _place(value: Array, source: str, x: Array) -> str:
    """Format a value: as the only element of the data with its bits, else as a number."""
    same = ~differing_bits(x.reshape(-1), np.broadcast_to(value, x.size))
    places = np.flatnonzero(same)
    if len(places) != 1:
        return str(value[0])
    return f"{source}{show([int(i) for i in np.unravel_index(places[0], x.shape)])}"


def _samples(
    replacement: Replacement, attempt: Attempt, difference: Difference
) -> Iterator[ShapeSample]:
    """Yield some legal sizes and parameters at which two maps may differ, the smallest first."""
    chain, case = replacement.chain, attempt.case
    pinned = {
        (atom.key.kind, atom.key.name): case.replaced(Polynomial({(atom,): 1}))
        for atom in case.symbols
        if isinstance(atom.key, Symbol)
    }
    try:
        rows = _solutions(difference, pinned.values())
        count = max((len(values) for values in rows.values()), default=0)
        values = {n: np.broadcast_to(evaluate(p, rows), count) for n, p in pinned.items()}
    except OverflowError:  # the facts hold numbers too large to search
        return
    samples: dict[object, ShapeSample] = {}
    for row in range(count):
        symbols: dict[Hashable, int] = {name: int(c[row]) for name, c in values.items()}
        shape = tuple(
            dim if isinstance(dim, int) else symbols.get(size_symbol(axis, dim), 1)
            for axis, dim in enumerate(attempt.dims)
        )
        parameters = _parameters(chain.head, symbols)
        key = (shape, *(a.tobytes() for a in parameters.values()))
        if key in samples or min(shape, default=1) < 0 or not is_countable(shape):
            continue
        elements = int(np.prod(shape, dtype=np.int64))
        samples[key] = ShapeSample(shape, parameters, elements)
    legal = 0
    for sample in sorted(samples.values(), key=lambda s: s.elements):
        if sample.elements > MAX_ELEMENTS or legal == _MOST_RUNS:
            return
        try:
            chain.check(sample.shape, known_inputs(chain, sample))
        except OperatorError:
            continue
        legal += 1
        yield sample


def _parameters(head: OperatorInfo, symbols: Mapping[Hashable, int]) -> dict[int, Array]:
    """Return the values of the run-time parameters of an operator, by the number of the input."""
    assert head.call is not None
    least = {p.vector.input: p.least for p in head.call.parameters}
    parameters = {}
    for index, fact in enumerate(head.facts.inputs):
        if not index or fact is None or fact.value is not None or index not in least:
            continue
        name = head.node.input[index]
        dims = parameter_dims(head, name, fact.shape)
        places = itertools.product(*map(range, dims))
        names = (f"{name}[{','.join(map(str, place))}]" for place in places)
        elements = [symbols.get((PARAMETER, n), least[index]) for n in names]
        parameters[index] = np.array(elements, fact.dtype or np.int64).reshape(dims)
    return parameters


def _solutions(difference: Difference, sizes: Iterable[Polynomial]) -> dict[Atom, Values]:
    """Return values of the symbols, a column for each, for which a case holds and its sides differ.

    The search is not exhaustive: it combines small values and those near constants.
    """
    facts = [f for f in difference.case if _is_computable(f)]
    parts = [*facts, *_coordinates(difference.left), *_coordinates(difference.right), *sizes]
    atoms = sorted({a for p in parts for a in bases_of(p)}, key=lambda atom: atom.serial)
    atoms = [a for a in atoms if isinstance(a.key, Symbol)]
    rng = np.random.default_rng(len(atoms))
    rows: dict[Atom, Values] = {}
    count = 1
    for atom in atoms:
        column = _values_near(atom, facts)
        rows = {a: np.repeat(values, len(column)) for a, values in rows.items()}
        rows[atom] = np.tile(column, count)
        keep = np.ones(count * len(column), bool)
        for fact in facts:
            bases = bases_of(fact)
            if atom in bases and bases <= rows.keys():
                keep &= np.broadcast_to(_evaluated(fact, rows) >= 0, keep.shape)
        chosen = np.flatnonzero(keep)
        if len(chosen) > _MOST_ROWS:
            chosen = np.sort(rng.choice(chosen, _MOST_ROWS, replace=False))
        rows = {a: values[chosen] for a, values in rows.items()}
        count = len(chosen)
    if not rows:
        return rows
    differs = _differ(difference, rows, count)
    return {a: values[differs] for a, values in rows.items()} if differs.any() else rows


def _values_near(atom: Atom, facts: Sequence[Polynomial]) -> Values:
    """Return the values to try for a symbol: small ones, and those at which a fact begins to hold."""
    values = dict.fromkeys(range(_SMALL))
    for fact in facts:
        constant = abs(fact.terms.get((), 0))
        if constant < _SMALL or atom not in bases_of(fact):
            continue
        factors = {1, *(abs(f) for product, f in fact.terms.items() if atom in product)}
        for factor in factors:
            values.update(dict.fromkeys(constant // factor + d for d in (0, 1, -1, 2)))
    return np.array([v for v in values if v <= MAX_ELEMENTS][:_MOST_VALUES], np.int64)


def _differ(
    difference: Difference, rows: Mapping[Atom, Values], count: int
) -> npt.NDArray[np.bool_]:
    """Tell for each row of values whether the two sides of a difference are different there."""
    left, right = _coordinates(difference.left), _coordinates(difference.right)
    if len(left) != len(right) or not all(map(_is_computable, (*left, *right))):
        return np.ones(count, np.bool_)
    differs = np.zeros(count, np.bool_)
    for a, b in zip(left, right, strict=True):
        differs |= _evaluated(a, rows) != _evaluated(b, rows)
    return differs


def _coordinates(p: Polynomial) -> tuple[Polynomial, ...]:
    """Return the coordinates of an element of the data, or a number itself."""
    atom = p.lone_atom
    if atom is not None and isinstance(atom.key, OperationKey) and atom.key.operator != FLOOR:
        return tuple(q for q in atom.key.operands if isinstance(q, Polynomial))
    return (p,)


def _is_computable(p: Polynomial) -> bool:
    return all(isinstance(atom.key, Symbol) for atom in bases_of(p))


def _evaluated(p: Polynomial, rows: Mapping[Atom, Values]) -> Values:
    with np.errstate(divide="ignore"):
        return evaluate(p, rows)
