"""Prove that both sides of a changed part compute the same, for all sizes and values.

    1  both sides as formulas, in every case of sizes, parameters and indices     `formulas`
    2  the formulas are compared, case by case                                    `maps.compare`
    3  parts that differ in names and weights only share a proof                  `_digest_part`
    4  where formulas differ: in words, and at which sizes to try it              `proof`

The work is counted in steps: the same files get the same verdict on every machine, however busy it is.

Parts that differ in names, and in the numbers of weights, have one proof:

    block 1    a -> [Conv, w1] -> b        block 2    c -> [Conv, w2] -> d

A deep net is proven once for each kind of block: for any finite numbers in the weights that both sides
of a part read as they are.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.errors import ModelFileError, OperatorError
from onnx_spatial.maps.budget import Budget
from onnx_spatial.maps.cases import Case, IllegalError, UndecidedError
from onnx_spatial.maps.compare import NEVER_RUNS, Comparison, compare
from onnx_spatial.maps.constants import Stored
from onnx_spatial.maps.expressions import product
from onnx_spatial.maps.graph import GraphMaps
from onnx_spatial.maps.tensor import Tensor
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.io import external_data
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.operators import Dim
from onnx_spatial.verification.match.graphs import Part
from onnx_spatial.verification.match.matches import ChangedPart, Matches, Upstream
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.prove.formulas import Formulas, opset_of, value_read
from onnx_spatial.verification.prove.proof import Proof, difference_in_words, trials_of
from onnx_spatial.verification.values import constant_value

#: Assumptions of every proof for all sizes.
STANDING = (
    "every size, of results too, is at least 1 and below 2^27",
    "every tensor has fewer than 2^31 elements",
    "no integer that the original computes is beyond the range of its type",
)

#: Steps of one comparison, and of all of a model. benchmarks/proofs.py counts them: of the exports of
#: nets, a dilated convolution that tf2onnx wrote in standard nodes takes up to 80,000.
PART_STEPS, MODEL_STEPS = 100_000, 300_000

#: The largest rank that is tried where a rank is unknown.
MAX_RANK = 8

#: How often parts are looked for, each time with fewer names that both models have.
_MOST_MATCHES = 4

#: Differences that are looked for: where two functions have different names, they may be the same.
_MAX_DIFFERENCES = 6


class Prover:
    """Prove changed parts of two models.

    Args:
        models: the models.
        matches: how parts go on in front of them.
    """

    def __init__(self, models: ModelPair, matches: Matches) -> None:
        converted = models.converted.holding(matches.converted.model)
        before, after = matches.holders
        self._before = Formulas(models.original, models.domains, True, models.infos, before)
        self._after = Formulas(converted, models.domains, False, None, after)
        self._matches = matches
        self._budget = Budget(MODEL_STEPS)
        #: By `_digest_part`: the proof for any finite weights; None if there is none to share.
        self._shared: dict[bytes, Proof | None] = {}

    @property
    def steps(self) -> int:
        """Steps that all proofs took so far."""
        return self._budget.spent

    def prove_all(self, progress: Callable[[str], None]) -> tuple[Matches, list[Proof]]:
        """Prove all changed parts; return them with their proofs.

        A name may mean another value in the converted model: tools use names again. So values that are
        not proven are taken for different ones, and what reads them is compared by what computes them.
        """
        first: tuple[Matches, list[Proof]] | None = None
        matches: Matches | None = self._matches
        for _ in range(_MOST_MATCHES):
            if matches is None:
                break
            self._follow(matches)
            proofs = []
            for number, part in enumerate(matches.changed, start=1):
                progress(f"proof {number}/{len(matches.changed)}: {part.output}")
                proofs.append(self._assuming(part, self._prove_once(part)))
            pairs = zip(matches.changed, proofs, strict=True)
            unproven = [part for part, proof in pairs if proof.scope is None]
            if not unproven and not matches.unmatched and not matches.rest:
                return matches, proofs
            first = first or (matches, proofs)
            matches = matches.renaming(unproven)
        assert first is not None
        matches, proofs = first
        self._follow(matches)
        pairs = zip(matches.changed, proofs, strict=True)
        return matches, [self._assuming(part, self._extended(part, proof)) for part, proof in pairs]

    def _follow(self, matches: Matches) -> None:
        self._matches = matches
        self._before.holders, self._after.holders = matches.holders

    def prove(self, part: ChangedPart) -> Proof:
        """Prove that both sides of a part compute the same, or say what was found instead."""
        return self._assuming(part, self._extended(part, self._prove_once(part)))

    def _assuming(self, part: ChangedPart, proof: Proof) -> Proof:
        """Return a proof with what is assumed of the nodes of the converted model."""
        if proof.scope is None:
            return proof
        added = sorted(self._matches.assumptions(part) - {*proof.assumptions})
        return replace(proof, assumptions=(*proof.assumptions, *added))

    def _extended(self, part: ChangedPart, proof: Proof) -> Proof:
        """Return the proof of a part, or else of one that reaches back to the inputs of its graph."""
        if proof.scope is not None or part.fed:
            return proof
        has_values = any(trial.values for trial in proof.trials)
        if not proof.trials or part.may_be_fed(values=has_values):
            return proof
        # What the part reads may never have these sizes or values in the model: its inputs can.
        wider = self._matches.widened(part)
        if isinstance(wider, ChangedPart):
            of_wider = self._prove_once(wider)
            if of_wider.scope is not None:
                return of_wider
            if of_wider.trials:
                return replace(proof, find_trials=lambda: of_wider.trials, wider=wider)
        return replace(proof, find_trials=tuple) if has_values else proof

    def _prove_once(self, part: ChangedPart) -> Proof:
        """Prove a part, or give it the proof of an equal one."""
        try:
            weights = _common_weights(part, self._before.source.folder, self._after.source.folder)
            upstream = self._matches.upstream(part)
        except ModelFileError as error:
            return _gave_up(str(error))
        operators = (self._before.operator, self._after.operator)
        key = _digest_part(part, upstream, operators, weights)
        if key is None:  # graphs inside its nodes read outer values by name
            return self._compare_sides(part, upstream, {})
        if key not in self._shared:
            proof = replace(self._compare_sides(part, upstream, weights), digest=key)
            proven = proof.scope is not None
            self._shared[key] = proof if proven and not _mentions_names(proof, part) else None
            if proven or not weights:
                return proof
        shared = self._shared[key]
        if shared is None:
            shared = replace(self._compare_sides(part, upstream, {}), digest=key)
        return shared

    def _compare_sides(
        self, part: ChangedPart, upstream: Upstream, weights: Mapping[str, onnx.TypeProto]
    ) -> Proof:
        """Compare the formulas of both sides, with any finite numbers in some weights."""
        try:
            comparison, ranked = self._of_all_ranks(part, upstream, weights)
        except (OperatorError, ModelFileError, UndecidedError) as error:
            return _gave_up(str(error))
        if comparison.equal:
            if part.is_static:
                return Proof("these sizes", comparison.assumptions)
            return Proof("all sizes", (*comparison.assumptions, *STANDING))
        if not comparison.differences:
            tried = partial(trials_of, ranked, comparison.failures)
            return replace(_gave_up(comparison.reason or ""), find_trials=tried)
        reason = difference_in_words(comparison.differences[0])
        tried = partial(trials_of, ranked, comparison.differences)
        return Proof(None, found="other formula", reason=reason, find_trials=tried)

    def _of_all_ranks(
        self, part: ChangedPart, upstream: Upstream, weights: Mapping[str, onnx.TypeProto]
    ) -> tuple[Comparison, ChangedPart]:
        """Compare a part at every rank that it may have; return the first difference, else the last.

        Returns:
            The comparison, and the part at its rank.
        """
        unknown = [n for n, t in part.inputs.items() if shape_inference.dims(t) is None]
        if not unknown:
            return self._at_rank(part, upstream, weights), part
        if upstream.names.issuperset(unknown):  # what computes them knows their ranks
            comparison = self._following(part, upstream, upstream.names, weights)
            if comparison.equal:
                return comparison, part
        if len(unknown) > 1:
            raise UndecidedError(f"the ranks of {unknown[0]!r} and {unknown[1]!r} are unknown")
        (name,) = unknown
        ranks = self._likely_ranks(part, name)
        equal: Comparison | None = None
        for rank in ranks:
            ranked = _with_rank(part, name, rank)
            comparison = self._at_rank(ranked, upstream, weights)
            if comparison.equal:
                equal = comparison
            elif comparison.reason != NEVER_RUNS:
                return comparison, ranked
        comparison = equal or comparison
        assumptions = comparison.assumptions
        if isinstance(ranks, range):
            assumptions = (*assumptions, f"the rank is from {ranks[0]} to {ranks[-1]}")
        return replace(comparison, assumptions=assumptions), ranked

    def _likely_ranks(self, part: ChangedPart, name: str) -> list[int] | range:
        """Return the rank that a value has, by the nodes that read it; else a range of usual ones."""
        least = 1
        for node in part.before.nodes:
            if not node.input or node.input[0] != name:
                continue
            info = self._before.operator(node, part.place)
            if info is not None and info.call is not None:
                if info.call.rank:
                    return [info.call.rank]
                least = max(least, info.call.axes)
            perm = [a.ints for a in node.attribute if a.name == "perm"]
            if node.op_type == "Transpose" and op_traits.is_standard(node) and perm:
                return [len(perm[0])]
        return range(least, max(least, MAX_RANK) + 1)

    def _at_rank(
        self, part: ChangedPart, upstream: Upstream, weights: Mapping[str, onnx.TypeProto]
    ) -> Comparison:
        """Compare a part with free values; then with those that depend on sizes, or on each other."""
        comparison = self._following(part, upstream, (), weights)
        if comparison.equal or comparison.reason == NEVER_RUNS or not upstream.names:
            return comparison
        return self._following(part, upstream, upstream.names, weights)

    def _following(
        self,
        part: ChangedPart,
        upstream: Upstream,
        names: Collection[str],
        weights: Mapping[str, onnx.TypeProto],
    ) -> Comparison:
        """Compare a part with some of the values that it reads as the original computes them."""
        case = Case(Budget(PART_STEPS, within=self._budget))
        # Sums of products that became copies of elements are one-hot convolutions.
        case.copies = _count_sums(part.before) != _count_sums(part.after)
        return compare(
            case, partial(self._maps_of_sides, part, upstream, names, weights), _MAX_DIFFERENCES
        )

    def _maps_of_sides(
        self,
        part: ChangedPart,
        upstream: Upstream,
        followed: Collection[str],
        weights: Mapping[str, onnx.TypeProto],
        case: Case,
    ) -> tuple[Tensor, Tensor] | None:
        """Return the formulas of both sides; None where the original fails."""
        place, opset = part.place, opset_of(part.before)
        parameters = self._before.parameters(part.before.nodes, place)

        def free(types: Mapping[str, onnx.TypeProto]) -> dict[str, Tensor]:
            return {n: value_read(case, n, t, parameters.get(n)) for n, t in types.items()}

        computed: dict[str, Tensor | None] = {}
        if followed:
            read = free({n: part.inputs.get(n, t) for n, t in upstream.inputs.items()})
            ahead = self._before.of(case, upstream.nodes, upstream.stored, read, place, opset)
            computed = {name: _formula_of(ahead, name) for name in followed}
        inputs = {name: t for name, t in computed.items() if t is not None and name in part.inputs}
        inputs |= free({n: t for n, t in part.inputs.items() if n not in inputs})
        stored = free(weights)
        case.finite.update(stored)
        own = inputs | stored
        case.counts = [product(t.dims) for t in inputs.values() if not t.whole]
        original = self._before.of(case, part.before.nodes, part.before.stored, own, place, opset)
        try:
            before = original.value(part.output)
        except IllegalError:
            return None
        case.counts += [product(t.dims) for t in (before,) if not t.whole]
        after = self._after.of(
            case, part.after.nodes, part.after.stored, own, place, opset_of(part.after)
        ).value(part.output)
        return before, after


def _formula_of(formulas: GraphMaps, name: str) -> Tensor | None:
    """Return the formula of a value; None if it has none."""
    try:
        return formulas.value(name)
    except UndecidedError:
        return None


def _count_sums(side: Part) -> int:
    """Return how many nodes of a side are sums of products."""
    return sum(Trait.PRODUCTS in op_traits.of(node).traits for node in side.nodes)


def _gave_up(reason: str) -> Proof:
    return Proof(None, found="gave up", reason=f"gave up: {reason}")


def _with_rank(part: ChangedPart, name: str, rank: int) -> ChangedPart:
    """Return a part with unknown sizes for the value of an unknown rank."""
    element_type = shape_inference.element_type(part.inputs[name]) or 0
    known = onnx.helper.make_tensor_type_proto(element_type, [None] * rank)
    return replace(part, inputs=part.inputs | {name: known})


def _mentions_names(proof: Proof, part: ChangedPart) -> bool:
    """Tell whether assumptions name a value or a size, which equal parts do not have."""
    dims = (shape_inference.dims(known) or () for known in part.inputs.values())
    names: Iterable[str] = [
        *part.inputs,
        *(d for sizes in dims for d in sizes if isinstance(d, str)),
    ]
    own = set(proof.assumptions) - set(STANDING)
    return any(name in text for name in names for text in own)


# Parts that have one proof

_REALS = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
    onnx.TensorProto.DOUBLE,
)
#: The fewest elements of a weight; a smaller constant may be a table, a mask, a bound.
_MIN_WEIGHT_ELEMENTS = 32

#: Returns the spatial operator that a node of a graph is, None for other nodes.
_Operators = Callable[[onnx.NodeProto, traversal.Place], OperatorInfo | None]


def _common_weights(
    part: ChangedPart, folder: Path | None, after_folder: Path | None
) -> dict[str, onnx.TypeProto]:
    """Return the types of the finite weights that both sides of a part read as they are, by name.

    Args:
        part: the part.
        folder: of the external data of the original.
        after_folder: of that of the converted model.
    """
    after = {tensor.name: tensor for tensor in part.after.stored}
    return {
        tensor.name: onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
        for tensor in part.before.stored
        if tensor.data_type in _REALS
        and math.prod(tensor.dims) >= _MIN_WEIGHT_ELEMENTS
        and tensor.name not in part.inputs
        and tensor.name in after
        and external_data.are_same(tensor, folder, after[tensor.name], after_folder)
        and Stored(constant_value(tensor, folder)).finite
    }


def _digest_part(
    part: ChangedPart,
    upstream: Upstream,
    operators: tuple[_Operators, _Operators],
    weights: Iterable[str] = (),
) -> bytes | None:
    """Return a digest that is equal where a proof of one part is a proof of another.

    Args:
        part: the part.
        upstream: how the original computes some of the values that it reads.
        operators: of the original and of the converted model.
        weights: constants whose numbers do not count.

    Returns:
        None if nodes have graphs inside, which read outer values by name.
    """
    groups = (upstream.nodes, part.before.nodes, part.after.nodes)
    if any(True for nodes in groups for node in nodes for _ in traversal.subgraphs(node)):
        return None
    names: dict[str, str] = {"": ""}
    sizes: dict[str, str] = {}
    result = hashlib.sha256()

    def add(*values: object) -> None:
        result.update(repr(values).encode())

    def renamed(values: Iterable[str]) -> list[str]:
        return [names.setdefault(name, f"value {len(names)}") for name in values]

    def shape(dims: Sequence[Dim] | None) -> list[Dim] | None:
        if dims is None:
            return None
        return [d if not isinstance(d, str) else sizes.setdefault(d, f"{len(sizes)}") for d in dims]

    for nodes in groups:
        add(len(nodes))
        for node in nodes:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.input[:], copy.output[:] = renamed(node.input), renamed(node.output)
            for field in ("name", "doc_string", "metadata_props"):
                copy.ClearField(field)
            result.update(copy.SerializeToString(deterministic=True))
    for stored in (upstream.stored, part.before.stored, part.after.stored):
        add("stored", len(stored))
        for tensor in sorted(stored, key=lambda t: renamed([t.name])):
            add(*renamed([tensor.name]), tensor.data_type, tuple(tensor.dims))
            if tensor.name not in weights:
                content = onnx.TensorProto()
                content.CopyFrom(tensor)
                content.ClearField("name")
                result.update(content.SerializeToString(deterministic=True))
    for sparse in (*part.before.sparse, *part.after.sparse):
        result.update(sparse.SerializeToString(deterministic=True))
    for types in (upstream.inputs, part.inputs):
        for name in sorted(types, key=lambda n: renamed([n])):
            known = types[name]
            add(*renamed([name]), shape_inference.element_type(known), known.WhichOneof("value"))
            add(shape(shape_inference.dims(known)))
    for read in (upstream.names, part.before.read, part.after.read):
        add("names", sorted(names.get(name, name) for name in read))
    add(renamed([part.output]), part.place.function)
    for side in (part.before, part.after):
        add(sorted(side.imports.opsets.items(), key=repr))
    for nodes, operator in zip(groups, (operators[0], *operators), strict=True):
        for position, node in enumerate(nodes):
            info = operator(node, part.place)
            if info is None:
                continue
            facts = info.facts
            add("operator", position, facts.op_type, facts.domain, info.error)
            add(sorted(facts.attributes.items(), key=repr))
            for fact in facts.inputs:
                if fact is None:
                    add(None)
                    continue
                add(fact.dtype, shape(fact.shape))
                add(None if fact.value is None else fact.value.tolist())
    return result.digest()
