"""Cut the nodes that replace an operator out of the converted model, and run them.

original    u -> [Transpose] -> [SpaceToBatch] -> y      the chain, computed by the numpy kernels
converted   u -> [Reshape] -> [Transpose] -> ... -> y    the part, run in onnxruntime
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx
from onnx.helper import make_tensor_type_proto

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.arrays import Array, element_type_of, type_of
from onnx_spatial.verification.match.graphs import Graphs, Part
from onnx_spatial.verification.runtime.both_levels import BothLevels
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.runtime.shared_sessions import SharedSessions
from onnx_spatial.verification.sizes.operator_shapes import ShapeSample
from onnx_spatial.verification.subgraphs.transpose_chain import Original, Transpose, TransposeChain

#: Larger data than this (128 MiB of float32) is compared inside the model only.
MAX_ELEMENTS = 2**25

#: Operators that read the sizes of a value and not its elements.
_SIZES = op_traits.having(Trait.SIZES)
_RANDOM = op_traits.having(Trait.RANDOM)


@dataclass(frozen=True)
class Replacement:
    """A chain of the original through an operator, and the part of the converted model in its place."""

    chain: TransposeChain
    part: Part

    @property
    def is_static(self) -> bool:
        """Whether all sizes of the data and all parameters are known before a run."""
        data = self.chain.head.facts.inputs[0]
        if data is None or data.shape is None or not data.ranked:
            return False
        known = all(value is not None for value in self.chain.parameters.values())
        return known and all(isinstance(dim, int) for dim in data.shape)

    @property
    def obstacle(self) -> str | None:
        """Why only the model's own values of the unknown parameters may be right; None if all are."""
        call, node = self.chain.head.call, self.chain.head.node
        vectors = [p.vector for p in call.parameters] if call is not None else []
        empty = {node.input[v.input] for v in vectors if v.input is not None and not v.length}
        ignored = [
            name
            for name, value in self.chain.parameters.items()
            if value is None and name not in self.part.read and name not in empty
        ]
        names = ", ".join(map(repr, ignored))
        return f"no node of the converted model reads {names}" if ignored else None

    @property
    def only_moves(self) -> bool:
        """Whether no node of the part looks at an element of the data: all of them only move it."""
        if any(not op_traits.is_standard(n) or n.op_type in _RANDOM for n in self._nodes()):
            return False
        moved = {self.chain.source}
        before = 0
        while len(moved) > before:  # files need not be in topological order
            before = len(moved)
            for node in self.part.nodes:
                standard = op_traits.is_standard(node)
                if moved.isdisjoint(traversal.needs(node)) or (standard and node.op_type in _SIZES):
                    continue
                positions = op_traits.moved_inputs(node) if standard else ()
                read = {i for i, name in enumerate(node.input) if name in moved}
                if not read or not read <= set(
                    positions
                ):  # it computes, or a graph inside reads it
                    return False
                moved.update(name for name in node.output if name)
        return True

    def _nodes(self) -> Iterator[onnx.NodeProto]:
        """Yield the nodes of the part, those inside graphs too."""
        for node in self.part.nodes:
            yield node
            yield from traversal.inner_nodes(node)

    @cached_property
    def key(self) -> bytes:
        """Digest that is equal where a proof for one is a proof for the other.

        Names of values and the metadata of nodes, which names the replaced node, do not count. Names
        of unknown sizes and of run-time parameters do: they are in the assumptions.
        """
        names = {self.chain.source: "source"}
        names |= {n: f"parameter {i}" for i, n in enumerate(self.chain.parameters)}
        nested = any(True for node in self.part.nodes for _ in traversal.subgraphs(node))
        digest = hashlib.sha256()

        def add(*values: object) -> None:
            digest.update(repr(values).encode())

        for node in self.part.nodes:
            for name in (*node.input, *node.output):
                names.setdefault(name, f"value {len(names)}" if name else "")
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            for field in ("name", "doc_string", "metadata_props"):
                copy.ClearField(field)
            if not nested:  # the graphs inside read outer values by name
                copy.input[:] = [names[n] for n in node.input]
                copy.output[:] = [names[n] for n in node.output]
            digest.update(copy.SerializeToString(deterministic=True))
        stored = {t.name if nested else names[t.name]: t for t in self.part.stored}
        for name in sorted(stored, key=repr):
            content = onnx.TensorProto()
            content.CopyFrom(stored[name])
            content.name = name
            digest.update(content.SerializeToString(deterministic=True))
        for sparse in self.part.sparse:
            digest.update(sparse.SerializeToString(deterministic=True))
        add(
            names.get(self.chain.sink, self.chain.sink),
            nested and (self.chain.source, self.chain.sink),
            sorted(self.chain.head.element_types),
            sorted(self.part.imports.opsets.items(), key=repr),
        )
        for step in (*self.chain.turns, self.chain.head, *self.chain.rest):
            if isinstance(step, Transpose):
                add(step.perm)
                continue
            facts = step.facts
            add(facts.op_type, facts.domain, sorted(facts.attributes.items(), key=repr))
            for index, fact in enumerate(facts.inputs):
                if fact is None:
                    add(None)
                    continue
                add(fact.dtype, fact.shape, fact.ranked)
                if fact.value is not None:
                    add(fact.value.tolist())
                elif index:
                    add(step.node.input[index])
        return digest.digest()


def cut(info: OperatorInfo, chains: Original, converted: Graphs) -> list[Replacement] | str:
    """Cut out the replacements of an operator, one for each nearest value behind it; or say why not.

    Where the operator's own values are gone from the converted model, the chain holds the Transposes
    and operators around it, too (`transpose_chain`).
    """

    def computes(name: str) -> bool:
        return converted.computes(name, info.place)

    replacements = []
    for alternatives in chains.stretches(info, computes) or chains.stretches(info, lambda _: True):
        replacement = _shortest(alternatives, converted)
        if isinstance(replacement, str):
            return replacement
        replacements.append(replacement)
    return replacements


def _shortest(chains: Sequence[TransposeChain], converted: Graphs) -> Replacement | str:
    """Return the shortest chain that can be cut out with its part, or why none can."""
    nearest: Replacement | str | None = None
    for chain in chains:
        stops = {chain.source, *chain.parameters}
        known = {name for name, value in chain.parameters.items() if value is not None}
        part = converted.slice(chain.head.place, chain.sink, stops, known)
        if isinstance(part, Part) and chain.source in part.read:
            return Replacement(chain, part)
        nearest = nearest or (part if isinstance(part, str) else Replacement(chain, part))
    assert nearest is not None
    return nearest


@dataclass(frozen=True)
class Outcome:
    """The output of both sides on the same data.

    Attributes:
        inputs: data and parameters, by name.
        expected: output of the chain.
        optimised: whether onnxruntime's optimisations were on.
        actual: output of the part, or in words why there is none.
        failure: the error of the part, if there is no output.
    """

    inputs: dict[str, Array]
    expected: Array
    optimised: bool
    actual: Array | str
    failure: RunFailure | None


class ReplacementRuns:
    """Both sides of a replacement, ready to run.

    Args:
        replacement: the chain and the part.
        folder: folder of the external data of the part.
        shared: sessions of other parts, which may be equal.
    """

    def __init__(
        self, replacement: Replacement, folder: Path | None, shared: SharedSessions | None = None
    ) -> None:
        self._chain, self._part = replacement.chain, replacement.part
        self._folder, self._shared = folder, shared or SharedSessions()
        self._sessions: dict[object, BothLevels] = {}

    def run(self, sample: ShapeSample, x: Array) -> Iterator[Outcome]:
        """Yield the outcomes without and with onnxruntime's optimisations.

        Raises:
            OperatorError: the operator does not accept this data.
        """
        chain, node = self._chain, self._chain.head.node
        inputs = {n: v for n, v in chain.parameters.items() if v is not None}
        inputs[chain.source] = x
        inputs |= {node.input[i]: value for i, value in sample.parameters.items()}
        expected = chain.run([x, *known_inputs(chain, sample)[1:]])
        run_time = {chain.source, *(node.input[i] for i in sample.parameters)}
        for optimised, actual, failure in self._session(inputs, run_time).run(inputs):
            yield Outcome(inputs, expected, optimised, actual, failure)

    def _session(self, inputs: Mapping[str, Array], run_time: Iterable[str]) -> BothLevels:
        read = {n: a for n, a in sorted(inputs.items()) if n in self._part.read}
        fed = {n: a for n, a in read.items() if n in run_time}
        key = tuple((n, a.dtype, a.ndim) for n, a in fed.items())
        if key not in self._sessions:
            types = {n: type_of(a) for n, a in fed.items()}
            for name in fed.keys() - {self._chain.source}:  # a parameter of a fixed shape
                types[name] = make_tensor_type_proto(element_type_of(fed[name]), fed[name].shape)
            known = (onnx.numpy_helper.from_array(a, n) for n, a in read.items() if n not in fed)
            model = self._part.model(types, self._chain.sink, known)
            self._sessions[key] = self._shared.both_levels(model, self._chain.sink, self._folder)
        return self._sessions[key]


def known_inputs(chain: TransposeChain, sample: ShapeSample) -> list[Array | None]:
    """Return the known inputs of the head of a chain, parameters of the sample included."""
    known = [fact.value if fact is not None else None for fact in chain.head.facts.inputs]
    return [sample.parameters.get(index, value) for index, value in enumerate(known)]
