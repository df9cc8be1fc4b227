"""Confirm by a run that two index maps differ, at sizes and parameters of the case in which they do."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.errors import OperatorError
from onnx_spatial.index_map.expressions import PARAMETER
from onnx_spatial.operators.shapes import is_countable, show
from onnx_spatial.verification.arrays import (
    Array,
    differing_bits,
    dtype_name,
)
from onnx_spatial.verification.checks import case_values
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
from onnx_spatial.verification.run.data import patterns
from onnx_spatial.verification.sizes import operator_shapes
from onnx_spatial.verification.sizes.operator_shapes import ShapeSample
from onnx_spatial.verification.sizes.reference_runs import RunRequest

#: The most sizes that are run.
_MOST_RUNS = 3


def find(
    replacement: Replacement,
    attempt: Attempt,
    operator: OperatorCheck,
    folder: Path | None,
    request: RunRequest,
) -> Counterexample | None:
    """Return an input for which a replacement is wrong, or None if no run shows one."""
    chain, rng = replacement.chain, np.random.default_rng(request.seed)
    types = sorted(operator.info.element_types) or [onnx.TensorProto.FLOAT]
    runs = ReplacementRuns(replacement, folder)
    for sample in _samples(replacement, attempt):
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


def _samples(replacement: Replacement, attempt: Attempt) -> Iterator[ShapeSample]:
    """Yield some legal sizes and parameters at which two maps may differ, the smallest first."""
    chain = replacement.chain
    samples: dict[object, ShapeSample] = {}
    for symbols in case_values.solutions(attempt.comparison.differences[0]):
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
