"""Compare a model whose one-hot Convs became patches: they differ for NaN, infinities and -0.0.

The Conv multiplies NaN and infinities by 0 and spreads them over the window; what copies does not. So
the original is compared with patches in the place of such a Conv, where the converted model has none.
That the Conv copies is proven by its weight; all that is left out is these values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import onnx

from onnx_spatial import analysis, chains
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.report import OperatorResult, Verification


def replaced(pair: ModelPair) -> list[chains.Chain]:
    """Return the patches of the original by a one-hot Conv that the converted model lacks."""
    original = pair.original
    one_hot = chains.find_one_hot(original.proto, original.folder)
    if not one_hot:
        return []
    # A Conv that is there has its output, or its weight if it became a dilated one.
    kept = {
        (place, name)
        for place, node in _convs(pair.converted.proto)
        for name in (*node.output, node.input[1])
    }
    gone = {
        (place, node.output[0])
        for place, node in _convs(original.proto)
        if node.output[0] in one_hot.get(place, ())
        and kept.isdisjoint({(place, node.output[0]), (place, node.input[1])})
    }
    if not gone:
        return []
    infos = analysis.find(original.proto, pair.domains, original.folder)
    return [
        chain
        for chain in chains.find(original.proto, infos, original.folder)
        if any((chain.place, name) in gone for node in chain.nodes for name in node.output)
    ]


def _convs(proto: onnx.ModelProto) -> Iterator[tuple[traversal.Place, onnx.NodeProto]]:
    for place, _, node in traversal.nodes(proto):
        if node.op_type == "Conv" and op_traits.is_standard(node) and len(node.input) > 1:
            yield place, node


def with_patches(pair: ModelPair, found: Sequence[chains.Chain]) -> ModelPair:
    """Return the pair with operators in the place of some chains of the original."""
    if not found:
        return pair
    named, _ = chains.with_operators(pair.original.proto, found)
    domains = pair.domains | {chains.DOMAIN}
    return replace(pair, original=pair.original.holding(named), domains=domains)


def describe(result: Verification, found: Iterable[chains.Chain]) -> Verification:
    """Return a result that names the chains as the original has them, and what their proofs assume."""
    of = {(str(chain.place), traversal.label(chain.nodes[-1])): chain for chain in found}
    return replace(result, operators=[_described(operator, of) for operator in result.operators])


def _described(operator: OperatorResult, of: dict[tuple[str, str], chains.Chain]) -> OperatorResult:
    chain = of.get((operator.graph, operator.node))
    if operator.domain != chains.DOMAIN or chain is None:
        return replace(operator, domain="") if operator.domain == chains.DOMAIN else operator
    assumptions = operator.assumptions
    if chain.one_hot and operator.proven in ("all sizes", "these sizes"):
        assumptions = (*assumptions, chains.ASSUMPTION)
    return replace(operator, domain="", op_type=chains.op_type_of(chain), assumptions=assumptions)


def notes(found: Sequence[chains.Chain], result: Verification) -> list[str]:
    """Say for which values one-hot Convs differ, which were compared as patches."""
    summed = {
        (operator.graph, operator.node) for operator in result.operators if not operator.exact
    }
    labels: dict[str, list[str]] = {}
    for chain in (chain for chain in found if chain.one_hot):
        label = traversal.label(chain.nodes[-1])
        text = chains.NOTE_OF_SUMS if (str(chain.place), label) in summed else chains.NOTE
        labels.setdefault(text, []).append(label)
    return [
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {text}"
        for text, names in labels.items()
    ]
