"""Convert a model, and its chains of standard nodes that are spatial operators (`chains`).

The operators are put in the place of their chains in memory, and converted with those of the file. A
chain is only rewritten where its operator became part of something else: a dilated convolution, a region
without blocks, a pair that cancels. All other chains stay as they are, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx

from onnx_spatial import analysis
from onnx_spatial.chains import DOMAIN, OP_TYPES, Chain, find, with_operators
from onnx_spatial.conversion import report
from onnx_spatial.conversion.changes import diff_models
from onnx_spatial.conversion.limits import LimitReport, check_limits
from onnx_spatial.conversion.options import STRATEGY_NAMES, ConvertOptions
from onnx_spatial.conversion.pipeline import Progress, convert_operators
from onnx_spatial.conversion.report import EditResult, Site
from onnx_spatial.model import traversal
from onnx_spatial.model.graph.remove_unused import remove_unused


@dataclass
class OptimizeResult:
    """Result of an optimization.

    Attributes:
        edit: the edited model, and what was done with the operators of the file.
        plain: what `convert` does: the model with its chains as they are.
        chains: each chain of standard nodes that is a spatial operator, and what was done with it.
        named: the model with operators in the place of the chains that were rewritten; None if none.
        nodes: number of nodes in all graphs before and after.
        limits: the nodes of the result that the limits of the options do not admit; None without limits.
    """

    edit: EditResult
    plain: EditResult
    chains: list[Site] = field(default_factory=list)
    named: onnx.ModelProto | None = None
    nodes: tuple[int, int] = (0, 0)
    limits: LimitReport | None = None


def optimize_operators(
    proto: onnx.ModelProto,
    options: ConvertOptions | None = None,
    *,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> OptimizeResult:
    """Convert the operators of `proto`, and its chains where that pays; `proto` stays as it is.

    Args:
        proto: the model.
        options: how it is converted, in mode "lower" with fusion.
        folder: where external data lies.
        progress: called with a line of text now and then.

    Raises:
        ModelFileError: the graph contradicts itself.
    """
    options = options or ConvertOptions()
    plain = convert_operators(proto, options, folder=folder, progress=progress)
    before = _number_of_nodes(proto)
    alone = OptimizeResult(plain, plain, nodes=(before, _number_of_nodes(plain.model or proto)))
    if plain.refused():
        return alone
    infos = analysis.find(proto, options.domains, folder)
    every = find(proto, infos, folder)
    best = _rewritten(proto, every, plain, options, folder, progress) or alone
    if best.nodes[1] >= alone.nodes[1]:
        best = alone
    done = {(site.graph, site.output) for site in best.chains}
    left = [_left(c) for c in every if (str(c.place), c.output) not in done]
    limits = options.limits
    if limits is not None:
        model = best.edit.model or proto
        best = replace(best, limits=check_limits(model, limits, options.domains, folder))
    return replace(best, chains=[*best.chains, *left])


def _rewritten(
    proto: onnx.ModelProto,
    chains: Sequence[Chain],
    plain: EditResult,
    options: ConvertOptions,
    folder: Path | None,
    progress: Progress | None,
) -> OptimizeResult | None:
    """Convert the chains that fuse, with the operators of the file; None if no chain does."""
    options = replace(options, domains=(*options.domains, DOMAIN))
    while chains:
        named, outputs = with_operators(proto, chains)
        edit = convert_operators(named, options, folder=folder, progress=progress)
        sites = {(site.graph, site.output): site for site in edit.sites if site.domain == DOMAIN}
        of = [sites.get((str(c.place), name)) for c, name in zip(chains, outputs, strict=True)]
        fused = [c for c, site in zip(chains, of, strict=True) if site and _is_fused(site)]
        if len(fused) < len(chains):
            chains = fused
            continue
        edit.site_at = {i: s for i, s in edit.site_at.items() if s.domain != DOMAIN}
        rewritten = [_described(c, s) for c, s in zip(chains, of, strict=True) if s]
        after = edit.model or named
        _remove_unread(after, named, proto)
        result = EditResult(after, edit.site_at | dict(enumerate(rewritten, 1 << 30)))
        result.types, result.lost = edit.types, edit.lost
        edit.touched = diff_models(proto, result)
        edit.model = after
        nodes = (_number_of_nodes(proto), _number_of_nodes(after))
        return OptimizeResult(edit, plain, rewritten, named, nodes)
    return None


def _remove_unread(
    model: onnx.ModelProto, named: onnx.ModelProto, original: onnx.ModelProto
) -> None:
    """Remove what only nodes read that are gone: those of chains, and those that computed pads."""
    read: dict[traversal.Place, set[str]] = {}
    for before in (named, original):
        for place, graph in traversal.graphs(before):
            names = (name for node in graph.node for name in traversal.needs(node))
            read.setdefault(place, set()).update(names)
    remove_unused(model, read)


def _is_fused(site: Site) -> bool:
    return site.converted and site.strategy not in STRATEGY_NAMES


def _number_of_nodes(model: onnx.ModelProto) -> int:
    return sum(1 for _ in traversal.nodes(model))


def _described(chain: Chain, site: Site) -> Site:
    """Describe a chain by the report of the operator that took its place."""
    labels = [traversal.label(node) for node in chain.nodes]
    return replace(
        site,
        node=labels[-1],
        domain="",
        dialect=report.CHAIN,
        output=chain.output,
        absorbed=tuple(labels[:-1]),
        nodes_before=len(labels) + len(site.between),
    )


def _left(chain: Chain) -> Site:
    """Report a chain that stays as it is."""
    labels = [traversal.label(node) for node in chain.nodes]
    known = chain.element_type
    return Site(
        node=labels[-1],
        graph=str(chain.place),
        op_type=OP_TYPES[chain.blocks.kind][0],
        domain="",
        dialect=report.CHAIN,
        action="leave",
        reason="it does not fuse with other nodes, and alone nothing is gained",
        strategy=None,
        element_type=analysis.dtype_name(known) if known else None,
        input_shape=chain.input_shape,
        output_shape=chain.output_shape,
        output=chain.output,
        nodes_before=len(labels),
        nodes_after=len(labels),
        absorbed=tuple(labels[:-1]),
    )
