"""Check each operator on its own, bit for bit: the numpy kernel against the nodes that replace it.

These nodes are cut out of the converted model and run on all-distinct data of every element type that
the operator may see, NaN payloads, -0.0 and infinities included, at several legal sizes, with
onnxruntime's optimisations off and on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx

from onnx_spatial.analysis import dtype_name
from onnx_spatial.errors import OperatorError
from onnx_spatial.operators.shapes import is_countable
from onnx_spatial.verification.arrays import Array, extremes
from onnx_spatial.verification.checks.context import Context
from onnx_spatial.verification.checks.findings import OperatorCheck
from onnx_spatial.verification.checks.replacement import (
    MAX_ELEMENTS,
    Replacement,
    ReplacementRuns,
    known_inputs,
)
from onnx_spatial.verification.compare.bitwise import bitwise
from onnx_spatial.verification.run.data import patterns
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.runtime.spatial_kernels import MAX_RANK
from onnx_spatial.verification.sizes import operator_shapes
from onnx_spatial.verification.sizes.candidate_sizes import stored_integers
from onnx_spatial.verification.sizes.edge_shapes import edge_samples, remainder_samples
from onnx_spatial.verification.sizes.operator_shapes import ShapeSample
from onnx_spatial.verification.subgraphs.transpose_chain import TransposeChain

#: Usual sizes at which an operator is compared that is proven for all sizes.
SIZES_OF_PROVEN = 1

_TOO_MANY_DIMS = f"numpy has no more than {MAX_RANK} dims"


def check(context: Context) -> None:
    """Compare every operator with the nodes that replace it.

    Where the operator's own values are gone from the converted model, it is compared together with
    the Transposes and operators around it (`transpose_chain`).
    """
    operators = context.findings.operators
    for number, operator in enumerate(operators, start=1):
        context.request.progress(f"operator {number}/{len(operators)}: {operator.result.node}")
        _check(operator, context)


def _check(operator: OperatorCheck, context: Context) -> None:
    info = operator.info
    if operator.difference is not None:  # disproved
        return
    if info.call is None:
        domain = info.node.domain
        unknown = f"domain {domain!r} is not accepted for this operator; use --domain {domain}"
        operator.result.reason = unknown if not info.known_domain else info.error
        return
    replacements = context.replacements(info)
    if isinstance(replacements, str):
        operator.merged = True
        operator.result.reason = f"not compared on its own: {replacements}"
        return
    data = info.facts.inputs[0]
    if data is not None and data.shape is not None and len(data.shape) > MAX_RANK:
        operator.withdraw(_TOO_MANY_DIMS)
        return
    for replacement in replacements:
        try:
            if not _compare_once(operator, replacement, context):
                return
        except RunFailure as failure:
            if operator.difference is None:
                operator.withdraw(str(failure))
                label = operator.result.label
                context.findings.gaps.append(f"{label} was not compared at all sizes: {failure}")
            return
        if operator.difference is not None and not context.parameters_are_free(replacement.chain):
            # Compared as a region, with the values that the model computes.
            operator.withdraw("its parameters are computed, and may not take every value")
            operator.merged = True
            return
        operator.replaced |= replacement.chain.replaced(
            lambda name: context.converted.computes(name, info.place)
        )


def _compare_once(operator: OperatorCheck, replacement: Replacement, context: Context) -> bool:
    """Compare a chain like `_compare`, or take the checks of an equal one that passed.

    Only what is proven: its comparisons test onnxruntime, and equal nodes are one model to that. Values
    of unknown parameters are drawn for each operator.

    Raises:
        RunFailure: as `_compare`.
    """
    chain, result = replacement.chain, operator.result
    if not operator.is_proven or any(value is None for value in chain.parameters.values()):
        return _compare(operator, replacement, context)
    key = replacement.key, chain.head.opset
    if key in context.passed:
        result.checks += context.passed[key]
        return True
    before = len(result.checks)
    compared = _compare(operator, replacement, context)
    if compared and operator.difference is None and result.reason is None:
        context.passed[key] = result.checks[before:]
    return compared


def _compare(operator: OperatorCheck, replacement: Replacement, context: Context) -> bool:
    """Compare one chain through an operator at several sizes; return whether that was possible.

    Raises:
        RunFailure: the nodes need more memory than there is.
    """
    chain, index, seed = replacement.chain, operator.info.index, context.seed
    info = chain.head
    samples = [
        sample
        for sample in _samples(
            replacement, np.random.default_rng([seed, index]), proven=operator.is_proven
        )
        if is_countable(sample.shape) and sample.elements <= MAX_ELEMENTS
    ]
    if not samples:
        operator.withdraw("no legal sizes were found, or only very large ones")
        return False
    if max(len(s.shape) for s in samples) > MAX_RANK:
        operator.withdraw(_TOO_MANY_DIMS)
        return False
    if replacement.obstacle is not None:
        operator.result.reason = f"not compared on its own: {replacement.obstacle}"
        return False
    types = sorted(info.element_types) or [onnx.TensorProto.FLOAT]
    for element_type in types:
        if element_type in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128):
            operator.result.reason = f"onnxruntime has no {dtype_name(element_type)} tensors"
            continue
        runs = ReplacementRuns(replacement, context.models.converted.folder, context.sessions)
        comparison = _Comparison(operator, replacement, element_type, runs)
        try:
            for number, sample in enumerate(samples):
                if sample.large and element_type != types[0]:
                    continue
                if sample.unusual and comparison.never_ran:
                    continue
                comparison.run(sample, np.random.default_rng([seed, index, number]))
        except OperatorError as error:
            operator.withdraw(str(error))
            return False
        if len(samples) > 1 and comparison.never_ran:
            # Nothing is fixed here that shape inference could see, yet no size at all runs: made
            # for the one size that the whole model has at this place. The whole model will tell.
            operator.withdraw("it ran with none of the sizes that were tried")
            return False
    return True


def _samples(
    replacement: Replacement, rng: np.random.Generator, *, proven: bool
) -> Iterator[ShapeSample]:
    """Yield the sizes that are legal for the whole chain, each once.

    What is proven holds for all sizes of 1 or more. One usual size shows that onnxruntime computes it,
    and no images are not part of the proof.
    """
    chain, part = replacement.chain, replacement.part
    limits = () if proven else sorted(set(stored_integers(part.stored, part.nodes)))
    seen = set()
    usual = 0
    for sample in _head_samples(chain, rng, limits, proven=proven):
        if proven and (0 not in sample.shape if sample.unusual else usual == SIZES_OF_PROVEN):
            continue
        key = (sample.shape, tuple((i, v.tobytes()) for i, v in sample.parameters.items()))
        try:
            chain.check(sample.shape, known_inputs(chain, sample))
        except OperatorError:  # legal for the head, but not for what follows
            continue
        if key not in seen:
            seen.add(key)
            usual += not sample.unusual
            yield sample


def _head_samples(
    chain: TransposeChain, rng: np.random.Generator, limits: Iterable[int], *, proven: bool
) -> Iterator[ShapeSample]:
    """Yield usual sizes for the head of a chain, then unusual ones."""
    facts, call = chain.head.facts, chain.head.call
    assert call is not None
    first = None
    for number in range(call.number_of_samples):
        sample = operator_shapes.draw_sample(facts, rng, number)
        if sample is None:
            break
        first = first or sample
        yield sample
    if first is not None:
        yield from edge_samples(facts, first, chain.head.opset or 0, limits)
    if first is not None and not proven:
        yield from remainder_samples(facts, first)


@dataclass
class _Comparison:
    """The nodes that replace one operator, for one element type."""

    operator: OperatorCheck
    replacement: Replacement
    element_type: int
    runs: ReplacementRuns
    never_ran: bool = True

    def run(self, sample: ShapeSample, rng: np.random.Generator) -> None:
        """Compare at one size, on distinct data and then on extreme values.

        Raises:
            OperatorError: the operator does not accept this size after all.
            RunFailure: the nodes need more memory than there is.
        """
        shape = self.replacement.chain.source_shape(sample.shape)
        self._compare(sample, patterns(self.element_type, shape, rng))
        if sample.large:  # an error that depends on the size shows on any data
            return
        everywhere = extremes(self.element_type, shape, rng)
        if everywhere is not None and self.operator.difference is None:
            self._compare(sample, everywhere)

    def _compare(self, sample: ShapeSample, x: Array) -> None:
        for outcome in self.runs.run(sample, x):
            if outcome.failure is not None and outcome.failure.out_of_memory:
                raise outcome.failure
            if outcome.failure is not None and _cannot_infer(str(outcome.failure)):
                continue  # there are no elements to compare
            self.never_ran &= outcome.failure is not None and outcome.failure.stage == "run"
            check = bitwise("isolated", outcome.optimised, x, outcome.expected, outcome.actual)
            self.operator.record(check, outcome.inputs, self.replacement.chain.sink)


def _cannot_infer(failure: str) -> bool:
    """Tell whether a Reshape refuses a -1 because another size is 0: it could be any number."""
    requested = re.search(r"requested shape:\{([^}]*)\}", failure)
    return requested is not None and {"0", "-1"} <= set(requested[1].split(","))
