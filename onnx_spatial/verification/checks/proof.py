"""Prove for all sizes that the nodes in the place of an operator compute the same.

proven for all sizes    by index maps (`index_maps`): then runs only test onnxruntime
disproved               by sizes at which the maps differ, confirmed by a run (`counterexample`)
proven for these sizes  the sizes are static: by index maps, or by a run on data that is all distinct
sampled                 neither; compared in runs at several sizes
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import thread_time

import numpy as np
import onnx

from onnx_spatial.errors import ModelFileError, OperatorError
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators.spellings import python_ops
from onnx_spatial.verification.arrays import STRING, dtype_of, is_native, same_bits
from onnx_spatial.verification.checks import counterexample, index_maps, region_keys, region_maps
from onnx_spatial.verification.checks.context import Context
from onnx_spatial.verification.checks.findings import OperatorCheck, Proof
from onnx_spatial.verification.checks.index_maps import MAX_SECONDS
from onnx_spatial.verification.checks.replacement import (
    MAX_ELEMENTS,
    Replacement,
    ReplacementRuns,
)
from onnx_spatial.verification.match.graphs import Part
from onnx_spatial.verification.report import Counterexample
from onnx_spatial.verification.sizes import operator_shapes
from onnx_spatial.verification.subgraphs.matched_parts import MatchingRegion, Upstream

#: Assumptions of every proof for all sizes.
STANDING = (
    "every size, of results too, is at least 1 and below 2^27",
    "every tensor has fewer than 2^31 elements",
)


def check(context: Context) -> None:
    """Prove each operator and each refused convolution, before anything is compared."""
    operators = (*context.findings.operators, *context.findings.convolutions)
    for number, operator in enumerate(operators, start=1):
        context.request.progress(f"proof {number}/{len(operators)}: {operator.result.node}")
        proof = _prove(operator, context)
        if isinstance(proof, Counterexample):
            operator.disprove(proof)
        else:
            operator.keep(proof)


def _prove(operator: OperatorCheck, context: Context) -> Proof | Counterexample:
    """Prove an operator, or return an input for which it is wrong."""
    if operator.result.refused:
        return _prove_regions(operator, context)
    if operator.info.call is None:
        return Proof("sampled", reason=operator.info.error or "its domain is not accepted")
    replacements = context.replacements(operator.info)
    if isinstance(replacements, str):
        return _prove_regions(operator, context)
    proofs = []
    for replacement in replacements:
        proof = _prove_replacement(replacement, operator, context)
        if isinstance(proof, Counterexample):
            return proof
        proofs.append(proof)
    proof = _joined(proofs)
    if proof.scope == "sampled" and not all(
        context.parameters_are_free(replacement.chain) for replacement in replacements
    ):
        # It may be right for the values that the model computes.
        together = _prove_regions(operator, context)
        return proof if together.scope == "sampled" else together
    return proof


def _joined(proofs: Iterable[Proof]) -> Proof:
    """Return the proof of all parts of an operator: the weakest one."""
    proofs = list(proofs)
    unproven = next((p for p in proofs if p.scope == "sampled"), None)
    if unproven is not None:
        return unproven
    static = any(p.scope == "these sizes" for p in proofs)
    assumptions = tuple(dict.fromkeys(a for p in proofs for a in p.assumptions))
    return Proof("these sizes" if static else "all sizes", assumptions)


def _prove_regions(operator: OperatorCheck, context: Context) -> Proof:
    """Prove an operator or a convolution by the regions that it was merged into."""
    regions = context.regions.around(operator.info)
    if isinstance(regions, str):
        return Proof("sampled", reason=regions)
    for region in regions:
        if region.key not in context.region_proofs:
            context.region_proofs[region.key] = prove_region(region, context)
    return _joined(context.region_proofs[region.key] for region in regions)


def prove_region(region: MatchingRegion, context: Context) -> Proof:
    """Prove that both parts of a region sum the same products, for all sizes and values."""
    if reason := _replaceable(region.after, context):
        return Proof("sampled", reason=reason)
    upstream = context.regions.upstream(region)
    try:
        weights = region_keys.common_weights(region, context.models.original.folder)
    except ModelFileError as error:
        return Proof("sampled", reason=str(error))
    key = region_keys.digest(region, upstream, context.regions.sites, weights)
    shared = context.shared_proofs
    if key is not None and (known := shared.get(key)) is not None:
        return known
    if key in shared or not weights:  # the first of its kind is proven with its own weights
        proof = _compare_region(region, upstream, context, weights)
        if key is not None and proof.scope != "sampled" and not _mentions_names(proof, region):
            shared[key] = proof
        if proof.scope != "sampled" or not weights:
            return proof
    if key is not None:
        shared[key] = None
    return _compare_region(region, upstream, context)


def _mentions_names(proof: Proof, region: MatchingRegion) -> bool:
    """Tell whether assumptions name a value or a size, which other regions do not have."""
    dims = (shape_inference.dims(known) or () for known in region.inputs.values())
    names = [*region.inputs, *(d for sizes in dims for d in sizes if isinstance(d, str))]
    own = set(proof.assumptions) - set(STANDING)
    return any(name in text for name in names for text in own)


def _compare_region(
    region: MatchingRegion,
    upstream: Upstream,
    context: Context,
    weights: Mapping[str, onnx.TypeProto] | None = None,
) -> Proof:
    """Compare the maps of a region, with any numbers in some weights."""
    started = thread_time()
    seconds = min(MAX_SECONDS, context.proof_seconds)
    try:
        comparison = region_maps.prove_region(
            region, upstream, context.reference.infos, context.models, seconds, weights
        )
    except (OperatorError, ModelFileError) as error:
        return Proof("sampled", reason=str(error))
    finally:
        context.proof_seconds -= thread_time() - started
    if not comparison.equal:
        sizes = region_maps.differing_sizes(region, comparison)
        wider = context.regions.widened(region) if sizes and not region.settled else None
        widened = None
        if isinstance(wider, MatchingRegion) and wider.settled:
            widened = prove_region(wider, context)
        return Proof("sampled", reason=comparison.reason, sizes=sizes, widened=widened)
    if region.is_static:
        return Proof("these sizes")
    return Proof("all sizes", (*comparison.assumptions, *STANDING))


def _replaceable(part: Part, context: Context) -> str | None:
    """Return why a part cannot be proven: the caller of the model may replace one of its constants."""
    names = [t.name for t in part.stored if t.name in context.converted.overridable]
    return f"the caller of the model may replace {names[0]!r}" if names else None


def _prove_replacement(
    replacement: Replacement, operator: OperatorCheck, context: Context
) -> Proof | Counterexample:
    """Prove a replacement, or find an input for which it is wrong. Equal ones are proven once."""
    if reason := _replaceable(replacement.part, context):
        return Proof("sampled", reason=reason)
    key = replacement.key
    if key in context.proofs:
        return context.proofs[key]
    proof = _attempt(replacement, operator, context)
    if isinstance(proof, Proof):
        context.proofs[key] = proof
    return proof


def _attempt(
    replacement: Replacement, operator: OperatorCheck, context: Context
) -> Proof | Counterexample:
    if replacement.obstacle is not None:
        return Proof("sampled", reason=replacement.obstacle)
    if any(node.domain == python_ops.DOMAIN for node in replacement.part.nodes):
        return Proof("sampled", reason="it stays one operator, which Python computes in the run")
    source, started = context.models.converted, thread_time()
    try:
        attempt = index_maps.prove(
            replacement.chain,
            replacement.part,
            source.proto.functions,
            source.folder,
            min(MAX_SECONDS, context.proof_seconds),
        )
    except (OperatorError, ModelFileError) as error:
        return Proof("sampled", reason=str(error))
    finally:
        context.proof_seconds -= thread_time() - started
    comparison = attempt.comparison
    if comparison.equal:
        if replacement.is_static:
            return Proof("these sizes", comparison.assumptions)
        return Proof("all sizes", (*comparison.assumptions, *STANDING))
    if comparison.differences and context.parameters_are_free(replacement.chain):
        found = counterexample.find(replacement, attempt, operator, source.folder, context.request)
        if found is not None:
            return found
    if replacement.is_static and _moves_distinct(replacement, operator, source.folder):
        return Proof("these sizes")
    return Proof("sampled", reason=comparison.reason)


def _moves_distinct(replacement: Replacement, operator: OperatorCheck, folder: Path | None) -> bool:
    """Tell whether nodes that only move data move data that is all distinct as the operator does.

    Such nodes move all data of these sizes alike. No element is 0, the value of padding; the two runs
    share no element, so that no constant of the nodes passes for an element of both.
    """
    if not replacement.only_moves:
        return False
    facts = replacement.chain.head.facts
    sample = operator_shapes.draw_sample(facts, np.random.default_rng(0), 0)
    if sample is None or sample.elements > MAX_ELEMENTS:
        return False
    shape = replacement.chain.source_shape(sample.shape)
    count = math.prod(shape)
    wide = [t for t in sorted(operator.info.element_types) if _has_values(t, 2 * count)]
    if not wide:
        return False
    runs, dtype = ReplacementRuns(replacement, folder), dtype_of(wide[0])
    for start in (1, 1 + count):
        bits = np.arange(start, start + count, dtype=f"u{dtype.itemsize}")
        outcome = next(runs.run(sample, bits.view(dtype).reshape(shape)))
        if isinstance(outcome.actual, str) or not same_bits(outcome.expected, outcome.actual):
            return False
    return True


def _has_values(element_type: int, count: int) -> bool:
    """Tell whether a type has so many values beside 0."""
    if element_type == STRING:
        return False
    dtype = dtype_of(element_type)
    return is_native(dtype) and dtype.kind in "fiu" and count < 2 ** (8 * dtype.itemsize)
