"""Ask the prover about each operator of a converted model, and run what it proves.

The nodes that replace an operator are cut out of the converted model as `verify` cuts them. A proof says
that they equal the operator for all sizes, so one legal size where they differ, or fail, refutes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
import running

from onnx_spatial.errors import OperatorError
from onnx_spatial.verification.arrays import patterns
from onnx_spatial.verification.checks import index_maps, isolated
from onnx_spatial.verification.checks.context import Context
from onnx_spatial.verification.checks.findings import OperatorCheck
from onnx_spatial.verification.checks.model_pair import ModelPair
from onnx_spatial.verification.sizes.reference_runs import RunRequest
from onnx_spatial.verification.subgraphs.transpose_chain import TransposeChain
from onnx_spatial.verification.subgraphs.value_graph import Part

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Replaced:
    """An operator of the original, and the nodes that replace it.

    Attributes:
        operator: the operator with its findings.
        chain: the operator with the nodes that it is compared with.
        part: the nodes of the converted model.
        functions: local functions of the converted model.
    """

    operator: OperatorCheck
    chain: TransposeChain
    part: Part
    functions: list[onnx.FunctionProto] = field(repr=False)

    @property
    def key(self) -> tuple[int, str]:
        """The operator by its position, and the value that is compared."""
        return self.operator.info.index, self.chain.sink

    def content(self) -> bytes:
        """Return the nodes and constants as bytes."""
        messages = (*self.part.nodes, *self.part.stored, *self.part.sparse, *self.functions)
        return b"".join(m.SerializeToString(deterministic=True) for m in messages)

    def proof(self) -> index_maps.Comparison:
        """Return what the prover says."""
        return index_maps.prove(self.chain, self.part, self.functions, None)

    def refutation(self, inputs: Arrays) -> str | None:
        """Return how the nodes differ from the operator for some inputs, None if they do not.

        Args:
            inputs: data and run-time parameters by name.

        Raises:
            OperatorError: the operator does not accept them.
        """
        chain, node = self.chain, self.chain.head.node
        facts = list(zip(node.input, chain.head.facts.inputs, strict=False))
        given = [
            f.value if f is not None and f.value is not None else inputs.get(n) for n, f in facts
        ]
        expected = chain.run([inputs[chain.source], *given[1:]])
        known = {n: v for n, v in chain.parameters.items() if v is not None and n in self.part.read}
        fed = {n: a for n, a in inputs.items() if n in self.part.read}
        types = {n: _type_of(a) for n, a in fed.items()}
        stored = (onnx.numpy_helper.from_array(a, n) for n, a in known.items())
        model = self.part.model(types, chain.sink, stored)
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

    def refuted(self, seed: int = 0) -> str | None:
        """Return how the nodes differ from the operator at sampled sizes, None if they do not."""
        rng = np.random.default_rng([seed, self.operator.info.index])
        types = sorted(self.chain.head.element_types) or [onnx.TensorProto.FLOAT]
        for sample in isolated._samples(self.chain, rng):
            if sample.elements > 1 << 20:
                continue
            shape = self.chain.source_shape(sample.shape)
            inputs = {self.chain.source: patterns(types[0], shape, rng)}
            inputs |= {self.chain.head.node.input[i]: v for i, v in sample.parameters.items()}
            try:
                difference = self.refutation(inputs)
            except OperatorError:
                continue
            if difference is not None:
                return difference
        return None


def replaced(original: onnx.ModelProto, converted: onnx.ModelProto) -> Iterator[Replaced]:
    """Yield each operator that can be cut out of the converted model with its replacement."""
    pair = ModelPair.read(original, converted, ()).resolved()
    context = Context(pair.without_earlier_form(), RunRequest(None, {}, 0, lambda _: None), {})
    for operator in context.findings.operators:
        info = operator.info
        if info.call is None:
            continue

        def computes(name: str, place=info.place) -> bool:
            return context.converted.computes(name, place)

        ways = context.chains.stretches(info, computes)
        for chains in ways or context.chains.stretches(info, lambda _: True):
            part = isolated._part(chains, context.converted)
            if not isinstance(part, str):
                yield Replaced(operator, *part, list(pair.converted.proto.functions))


def _type_of(array: np.ndarray) -> onnx.TypeProto:
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_type_proto(kind, [None] * array.ndim)
