"""Ask the prover about each operator of a converted model, and run what it proves.

A proof says that the nodes that replace an operator equal it for all sizes, so one legal size where they
differ, or fail, refutes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import onnx
import running

from onnx_spatial import OperatorError
from onnx_spatial.verification.checks import isolated, proof
from onnx_spatial.verification.checks.context import Context
from onnx_spatial.verification.checks.findings import OperatorCheck
from onnx_spatial.verification.checks.replacement import Replacement
from onnx_spatial.verification.match.graphs import Part
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.run.data import patterns
from onnx_spatial.verification.sizes.reference_runs import RunRequest

Arrays = Mapping[str, np.ndarray]

#: Larger data is not run.
_MAX_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class Answer:
    """What the prover says of an operator.

    Attributes:
        proven: whether it calls the operator proven.
        disproved: whether it calls the operator wrong.
        reason: why it is not proven.
    """

    proven: bool
    disproved: bool
    reason: str


@dataclass
class Replaced:
    """An operator of the original, and what replaces it in the converted model."""

    operator: OperatorCheck
    context: Context = field(repr=False)

    @cached_property
    def replacements(self) -> list[Replacement]:
        """The nodes in place of the operator; none if it was merged with other nodes."""
        found = self.context.replacements(self.operator.info)
        return [] if isinstance(found, str) else found

    @property
    def content(self) -> bytes:
        """The nodes and constants that were compared, as bytes."""
        parts = [replacement.part for replacement in self.replacements]
        if not parts:
            regions = self.context.regions.around(self.operator.info)
            parts = [] if isinstance(regions, str) else [region.after for region in regions]
        functions = self.context.models.converted.proto.functions
        return b"".join(map(_content, parts)) + b"".join(f.SerializeToString() for f in functions)

    def answer(self) -> Answer:
        """Return what the prover said."""
        operator, result = self.operator, self.operator.result
        wrong = operator.difference is not None
        proven = result.proven in ("all sizes", "these sizes") and not wrong
        return Answer(proven, wrong, result.proof_reason or "")

    def refutation(self, inputs: Arrays) -> str | None:
        """Return how the nodes differ from the operator for some inputs, None if they do not.

        Args:
            inputs: data and run-time parameters by name.

        Raises:
            OperatorError: the operator does not accept them.
        """
        found = (_refutation(replacement, inputs) for replacement in self.replacements)
        return next((each for each in found if each is not None), None)

    def refuted(self, seed: int = 0) -> str | None:
        """Return how the nodes differ from the operator at sampled sizes, None if they do not."""
        if not self.replacements:
            return self._refuted_regions()
        for number, replacement in enumerate(self.replacements):
            rng = np.random.default_rng([seed, self.operator.info.index, number])
            chain = replacement.chain
            types = sorted(chain.head.element_types) or [onnx.TensorProto.FLOAT]
            for sample in isolated._samples(replacement, rng, proven=False):
                if sample.elements > _MAX_ELEMENTS or 0 in sample.shape:  # no proof is about
                    continue
                shape = chain.source_shape(sample.shape)
                inputs = {chain.source: patterns(types[0], shape, rng)}
                inputs |= {chain.head.node.input[i]: v for i, v in sample.parameters.items()}
                try:
                    difference = _refutation(replacement, inputs)
                except OperatorError:
                    continue
                if difference is not None:
                    return difference
        return None

    def _refuted_regions(self) -> str | None:
        regions = self.context.regions.around(self.operator.info)
        for region in [] if isinstance(regions, str) else regions:
            compared = self.context.region_results.of(region)
            for each in [] if isinstance(compared, str) else compared:
                if not each.check.passed:
                    return f"the region of {region.output!r} differs"
        return None


def proven(original: onnx.ModelProto, converted: onnx.ModelProto) -> list[Replaced]:
    """Return the operators of a conversion, after the prover was asked about them."""
    found = list(replaced(original, converted))
    if found:
        proof.check(found[0].context)
    return found


def replaced(original: onnx.ModelProto, converted: onnx.ModelProto) -> Iterator[Replaced]:
    """Yield the operators of a conversion."""
    pair = ModelPair.read(original, converted, ()).resolved()
    context = Context(pair.without_earlier_form(), RunRequest(None, {}, 0, lambda _: None), {})
    for operator in context.findings.operators:
        if operator.info.call is not None:
            yield Replaced(operator, context)


def _content(part: Part) -> bytes:
    messages = (*part.nodes, *part.stored, *part.sparse)
    return b"".join(message.SerializeToString(deterministic=True) for message in messages)


def _refutation(replacement: Replacement, inputs: Arrays) -> str | None:
    chain, part = replacement.chain, replacement.part
    facts = list(zip(chain.head.node.input, chain.head.facts.inputs, strict=False))
    known = [f.value if f is not None and f.value is not None else inputs.get(n) for n, f in facts]
    expected = chain.run([inputs[chain.source], *known[1:]])
    fed = {n: a for n, a in inputs.items() if n in part.read}
    constants = {n: v for n, v in chain.parameters.items() if v is not None and n in part.read}
    stored = (onnx.numpy_helper.from_array(a, n) for n, a in constants.items())
    model = part.model({n: _type_of(a) for n, a in fed.items()}, chain.sink, stored)
    for level in running.LEVELS:
        try:
            (actual,) = running.run_session(running.session(model, level), dict(fed))
        except Exception as error:  # whatever onnxruntime raises
            return f"does not run: {str(error)[-200:]}"
        if actual.shape != expected.shape:
            return f"shape {actual.shape}, not {expected.shape}"
        if not running.same_bits(expected, actual):
            return f"other elements at {[a.shape for a in inputs.values()]}"
    return None


def _type_of(array: np.ndarray) -> onnx.TypeProto:
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_type_proto(kind, [None] * array.ndim)
