"""Check each operator on its own, bit for bit: the numpy kernel against the nodes that replace it.

These nodes are cut out of the converted model and run on all-distinct data of every element type that
the operator may see, NaN payloads, -0.0 and infinities included, at several legal sizes, with
onnxruntime's optimisations off and on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx.helper import make_tensor_type_proto

from onnx_spatial.analysis import dtype_name
from onnx_spatial.errors import OperatorError
from onnx_spatial.operators.shapes import is_countable
from onnx_spatial.verification.arrays import Array, element_type_of, extremes, patterns, type_of
from onnx_spatial.verification.checks.context import Context
from onnx_spatial.verification.checks.findings import OperatorCheck
from onnx_spatial.verification.compare.bitwise import bitwise
from onnx_spatial.verification.runtime.sessions import BothLevels
from onnx_spatial.verification.runtime.spatial_kernels import MAX_RANK
from onnx_spatial.verification.sizes import operator_shapes
from onnx_spatial.verification.sizes.edge_shapes import edge_samples
from onnx_spatial.verification.sizes.operator_shapes import ShapeSample
from onnx_spatial.verification.subgraphs.transpose_chain import TransposeChain
from onnx_spatial.verification.subgraphs.value_graph import Graphs, Part

#: Larger data than this (128 MiB of float32) is compared inside the model only.
MAX_ELEMENTS = 2**25
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
    info, converted = operator.info, context.converted
    if info.call is None:
        domain = info.node.domain
        unknown = f"domain {domain!r} is not accepted for this operator; use --domain {domain}"
        operator.result.reason = unknown if not info.known_domain else info.error
        return

    def computes(name: str) -> bool:
        return converted.computes(name, info.place)

    ways = context.chains.stretches(info, computes)
    parts = []
    for chains in ways or context.chains.stretches(info, lambda _: True):
        part = _part(chains, converted)
        if isinstance(part, str):
            operator.merged = True
            operator.result.reason = f"not compared on its own: {part}"
            return
        parts.append(part)
    data = info.facts.inputs[0]
    if data is not None and data.shape is not None and len(data.shape) > MAX_RANK:
        operator.withdraw(_TOO_MANY_DIMS)
        return
    folder = context.models.converted.folder
    for chain, replacement in parts:
        if not _compare(operator, chain, replacement, folder, context.seed):
            return
        operator.replaced |= chain.replaced(computes)


def _part(chains: Sequence[TransposeChain], converted: Graphs) -> tuple[TransposeChain, Part] | str:
    """Return the shortest chain that can be cut out with its replacement, or why none can."""
    nearest: tuple[TransposeChain, Part] | str | None = None
    for chain in chains:
        stops = {chain.source, *chain.parameters}
        known = {name for name, value in chain.parameters.items() if value is not None}
        part = converted.slice(chain.head.place, chain.sink, stops, known)
        if isinstance(part, Part) and chain.source in part.read:
            return chain, part
        nearest = nearest or (part if isinstance(part, str) else (chain, part))
    assert nearest is not None
    return nearest


def _compare(
    operator: OperatorCheck,
    chain: TransposeChain,
    part: Part,
    folder: Path | None,
    seed: int,
) -> bool:
    """Compare one chain through an operator at several sizes; return whether that was possible."""
    info, index = chain.head, operator.info.index
    samples = [
        sample
        for sample in _samples(chain, np.random.default_rng([seed, index]))
        if is_countable(sample.shape) and sample.elements <= MAX_ELEMENTS
    ]
    if not samples:
        operator.withdraw("no legal sizes were found, or only very large ones")
        return False
    if max(len(s.shape) for s in samples) > MAX_RANK:
        operator.withdraw(_TOO_MANY_DIMS)
        return False
    # Run-time parameters that the part does not read: any but the model's own may be wrong.
    parameters = dict.fromkeys(info.node.input[i] for s in samples for i in s.parameters)
    if ignored := [repr(name) for name in parameters if name not in part.read]:
        operator.result.reason = (
            f"not compared on its own: no node of the converted model reads {', '.join(ignored)}"
        )
        return False
    types = sorted(info.element_types) or [onnx.TensorProto.FLOAT]
    for element_type in types:
        if element_type in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128):
            operator.result.reason = f"onnxruntime has no {dtype_name(element_type)} tensors"
            continue
        comparison = _Comparison(operator, chain, part, element_type, folder)
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


def _samples(chain: TransposeChain, rng: np.random.Generator) -> Iterator[ShapeSample]:
    """Yield the sizes that are legal for the whole chain, each once."""
    seen = set()
    for sample in _head_samples(chain, rng):
        key = (sample.shape, tuple((i, v.tobytes()) for i, v in sample.parameters.items()))
        try:
            chain.check(sample.shape, _inputs(chain, sample))
        except OperatorError:  # legal for the head, but not for what follows
            continue
        if key not in seen:
            seen.add(key)
            yield sample


def _head_samples(chain: TransposeChain, rng: np.random.Generator) -> Iterator[ShapeSample]:
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
        yield from edge_samples(facts, first, chain.head.opset or 0)


def _inputs(chain: TransposeChain, sample: ShapeSample) -> list[Array | None]:
    """Return the known inputs of the head of a chain, parameters of the sample included."""
    known = [fact.value if fact is not None else None for fact in chain.head.facts.inputs]
    return [sample.parameters.get(index, value) for index, value in enumerate(known)]


@dataclass
class _Comparison:
    """The nodes that replace one operator, for one element type."""

    operator: OperatorCheck
    chain: TransposeChain
    part: Part
    element_type: int
    folder: Path | None
    never_ran: bool = True
    _sessions: dict[object, BothLevels] = field(default_factory=dict)

    def run(self, sample: ShapeSample, rng: np.random.Generator) -> None:
        """Compare at one size, on distinct data and then on extreme values.

        Raises:
            OperatorError: the operator does not accept this size after all.
        """
        shape = self.chain.source_shape(sample.shape)
        self._compare(sample, patterns(self.element_type, shape, rng))
        if sample.large:  # an error that depends on the size shows on any data
            return
        everywhere = extremes(self.element_type, shape, rng)
        if everywhere is not None and self.operator.difference is None:
            self._compare(sample, everywhere)

    def _compare(self, sample: ShapeSample, x: Array) -> None:
        chain, node = self.chain, self.chain.head.node
        inputs = {n: v for n, v in chain.parameters.items() if v is not None}
        inputs[chain.source] = x
        inputs |= {node.input[i]: value for i, value in sample.parameters.items()}
        expected = chain.run([x, *_inputs(chain, sample)[1:]])
        run_time = {chain.source, *(node.input[i] for i in sample.parameters)}
        for optimised, actual, failure in self._session(inputs, run_time).run(inputs):
            self.never_ran &= failure is not None and failure.stage == "run"
            check = bitwise("isolated", optimised, x, expected, actual)
            self.operator.record(check, inputs, chain.sink)

    def _session(self, inputs: Mapping[str, Array], run_time: Iterable[str]) -> BothLevels:
        read = {n: a for n, a in sorted(inputs.items()) if n in self.part.read}
        fed = {n: a for n, a in read.items() if n in run_time}
        key = tuple((n, a.ndim) for n, a in fed.items())
        if key not in self._sessions:
            types = {n: type_of(a) for n, a in fed.items()}
            for name in fed.keys() - {self.chain.source}:  # a parameter of a fixed shape
                types[name] = make_tensor_type_proto(element_type_of(fed[name]), fed[name].shape)
            known = (onnx.numpy_helper.from_array(a, n) for n, a in read.items() if n not in fed)
            model = self.part.model(types, self.chain.sink, known)
            self._sessions[key] = BothLevels(model, self.chain.sink, self.folder)
        return self._sessions[key]
