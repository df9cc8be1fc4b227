"""Rewrite chains of standard nodes that are spatial operators, or that only move data (`chains`).

The operators are put in the place of their chains in memory, and converted with those of the file. A
chain is only rewritten where its operator became part of something else (a dilated convolution, a region
without blocks, a pair that cancels), where its price is clearly better (`chains.pricing`), or where a
tensor of it exceeds the rank limit. All other chains stay as they are, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx

from onnx_spatial import analysis
from onnx_spatial.chains import (
    DOMAIN,
    NOTE,
    NOTE_OF_SUMS,
    Chain,
    Movement,
    find,
    find_movements,
    op_type_of,
    with_legal_patches,
    with_operators,
)
from onnx_spatial.conversion import report
from onnx_spatial.conversion.limits import LimitReport
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.conversion.pipeline import Progress, convert_operators
from onnx_spatial.conversion.report import EditResult, OperatorReport
from onnx_spatial.model import traversal
from onnx_spatial.model.graph.remove_unused import remove_unused
from onnx_spatial.operators import Rearrange

#: A chain is replaced by its operator alone if the estimated time is shorter by this factor.
_MARGIN = 1.5

#: Why chains stay.
_ALONE = "it does not fuse with other nodes, and alone nothing is gained"
_HINDERS = "rewritten, it would keep other operators from fusing"


@dataclass
class OptimizeResult:
    """Result of an optimization.

    Attributes:
        edit: the edited model, and what was done with the operators of the file.
        plain: what `convert` does: the model with its chains as they are.
        chains: each chain of standard nodes that is a spatial operator, is rewritten or exceeds the rank
            limit, and what was done with it.
        nodes: number of nodes in all graphs of the plain result, and of this one.
        layouts: number of nodes before and after that change the layout of a value, where some of them
            were removed or moved beside convolutions that no chain became part of; else 0 and 0.
        limits: the nodes of the result above the rank limit of the options; None without one.
        rewritten: the chains that were rewritten, apart from those that only move data.
        notes: where the search for chains stopped at its limits.
    """

    edit: EditResult
    plain: EditResult
    chains: list[OperatorReport] = field(default_factory=list)
    nodes: tuple[int, int] = (0, 0)
    layouts: tuple[int, int] = (0, 0)
    limits: LimitReport | None = None
    rewritten: list[Chain] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def rewrite_chains(
    proto: onnx.ModelProto,
    alone: OptimizeResult,
    options: ConvertOptions,
    folder: Path | None,
    progress: Progress | None,
) -> OptimizeResult:
    """Convert the chains, too, where that is better than the operators `alone`."""
    legal, notes = with_legal_patches(proto, folder).model, list[str]()
    infos = analysis.find(legal, options.domains, folder)

    def rewritten(chains: Sequence[Chain | Movement]) -> OptimizeResult | None:
        return _rewritten(proto, chains, alone, options, folder, progress)

    every = find(legal, infos, folder, notes)
    best = rewritten(every) or alone
    if options.mode != "lower":
        return replace(best, notes=notes)
    if best.nodes[1] >= alone.nodes[1]:  # then only what is faster with as many nodes
        best = rewritten([chain for chain in every if chain.cost]) or alone
    moves = _movements(legal, infos, folder, options, every, best, notes)
    best = _with_movements(moves, best, every, rewritten)
    chains = [*best.chains, *_remaining(every, moves, best)]
    return replace(best, chains=chains, notes=notes)


def _key(chain: Chain | Movement) -> tuple[str, str]:
    return str(chain.place), chain.output


def _done(result: OptimizeResult) -> set[tuple[str, str]]:
    """Return the keys of the chains that were rewritten."""
    return {(operator.graph, operator.output) for operator in result.chains}


def _movements(
    proto: onnx.ModelProto,
    infos: Sequence[analysis.OperatorInfo],
    folder: Path | None,
    options: ConvertOptions,
    chains: Sequence[Chain],
    best: OptimizeResult,
    notes: list[str],
) -> list[Movement]:
    """Find the chains that only move data, apart from those that became part of something else."""
    done, taken = _done(best), dict[traversal.Place, set[str]]()
    for chain in chains:
        if _key(chain) in done:
            outputs = (name for node in chain.nodes for name in node.output)
            taken.setdefault(chain.place, set()).update(outputs)
    if best.edit.model is not None:  # so are nodes that became part of operators
        left = {place: _computed(graph) for place, graph in traversal.graphs(best.edit.model)}
        for place, graph in traversal.graphs(proto):
            taken.setdefault(place, set()).update(_computed(graph) - left.get(place, set()))
    return find_movements(
        proto,
        infos,
        folder,
        max_rank=options.max_rank,
        taken=taken,
        notes=notes,
    )


def _computed(graph: traversal.GraphLike) -> set[str]:
    return {name for node in graph.node for name in node.output if name}


def _with_movements(
    moves: Sequence[Movement],
    best: OptimizeResult,
    chains: Sequence[Chain],
    rewritten: Callable[[Sequence[Chain | Movement]], OptimizeResult | None],
) -> OptimizeResult:
    """Rewrite movements too, unless other operators fuse less then, or changes of layout stay."""
    fused = [chain for chain in chains if _key(chain) in _done(best)]
    ready = [move for move in moves if move.operator is not None]
    freed = {_key(move): move.freed for move in ready}
    for some in (ready, [move for move in ready if move.required]):
        more = rewritten([*fused, *some]) if some else None
        if more is None or not _fused(best) <= _fused(more):
            continue
        operators = {(operator.graph, operator.output): operator for operator in more.chains}
        added = sum(
            operators[key].nodes_after - freed[key] for key in freed.keys() & operators.keys()
        )
        if some is not ready or more.nodes[1] <= best.nodes[1] + added:
            return more
    return best


def _fused(result: OptimizeResult) -> set[tuple[str, str, str | None]]:
    """Return the operators that became part of something else."""
    return {
        (operator.graph, operator.output, operator.lowering)
        for operator in (*result.edit.operators, *result.chains)
        if operator.action == "fuse"
    }


def _remaining(
    chains: Sequence[Chain], moves: Sequence[Movement], result: OptimizeResult
) -> Iterator[OperatorReport]:
    """Report the chains that stay, except those a part of which was rewritten."""
    done = _done(result)
    listed = {id(n) for move in moves if move.required or _key(move) in done for n in move.nodes}
    for chain in chains:
        if _key(chain) not in done and not any(id(node) in listed for node in chain.nodes):
            yield _left(chain, op_type_of(chain), _ALONE)
    for move in moves:
        if move.required and _key(move) not in done:
            yield _left(move, Rearrange.name, move.reason or _HINDERS)


def _rewritten(
    proto: onnx.ModelProto,
    chains: Sequence[Chain | Movement],
    alone: OptimizeResult,
    options: ConvertOptions,
    folder: Path | None,
    progress: Progress | None,
) -> OptimizeResult | None:
    """Convert chains with the operators of the file where that pays; None if it does for none."""
    options = replace(options, domains=(*options.domains, DOMAIN))
    while chains:
        named, outputs = with_operators(with_legal_patches(proto, folder).model, chains)
        edit = convert_operators(named, options, folder=folder, progress=progress)
        operators = {
            (operator.graph, operator.output): operator
            for operator in edit.operators
            if operator.domain == DOMAIN
        }
        of = [operators.get((str(c.place), name)) for c, name in zip(chains, outputs, strict=True)]
        is_good = _is_better if options.mode == "lower" else lambda chain, operator: True
        good = [c for c, operator in zip(chains, of, strict=True) if is_good(c, operator)]
        if len(good) < len(chains):
            chains = good
            continue
        edit.operator_at = {i: s for i, s in edit.operator_at.items() if s.domain != DOMAIN}
        rewritten = [
            _described(c, s) if s else _vanished(c) for c, s in zip(chains, of, strict=True)
        ]
        after = edit.model or named
        _remove_unread(after, named, proto)
        edit.model = after
        nodes = (alone.nodes[0], traversal.number_of_nodes(after))
        found = [chain for chain in chains if isinstance(chain, Chain)]
        return OptimizeResult(edit, alone.plain, rewritten, nodes, rewritten=found)
    return None


def _remove_unread(
    model: onnx.ModelProto, named: onnx.ModelProto, original: onnx.ModelProto
) -> None:
    """Remove what only nodes read that are gone, and new nodes that nothing reads.

    Gone are the nodes of chains and those that computed pads. A new node of one chain may be unread as
    the next one was rewritten, too.
    """
    names: dict[traversal.Place, set[str]] = {}
    for before in (named, original):
        for place, graph in traversal.graphs(before):
            read = (name for node in graph.node for name in traversal.needs(node))
            names.setdefault(place, set()).update(read)
    old = {
        place: {n for node in g.node for n in node.output}
        for place, g in traversal.graphs(original)
    }
    for place, graph in traversal.graphs(model):
        made = {name for node in graph.node for name in node.output}
        names.setdefault(place, set()).update(made - old.get(place, set()))
    remove_unused(model, names)


def _is_better(chain: Chain | Movement, operator: OperatorReport | None) -> bool:
    """Return whether the operator in the place of a chain became part of something, or pays."""
    if operator is None:
        return isinstance(chain, Movement) and chain.vanishes
    if operator.action == "fuse":
        return True
    if isinstance(chain, Chain):
        return operator.estimated_us is not None and _MARGIN * operator.estimated_us < chain.cost
    if chain.operator is not None and chain.operator.is_identity:
        return operator.converted
    return operator.estimated_us is not None and chain.pays(
        operator.estimated_us, operator.nodes_after
    )


def _described(chain: Chain | Movement, operator: OperatorReport) -> OperatorReport:
    """Describe a chain by the report of the operator that took its place."""
    labels, before = _labels(chain), None
    op_type, notes = operator.op_type, tuple[str, ...]()
    if isinstance(chain, Movement):
        before = chain.before_us
        if chain.operator is not None and chain.operator.is_identity:
            operator = replace(
                operator, action="fuse", lowering="cancelled", estimated_us=chain.after_us
            )
    else:
        before, op_type = chain.cost or None, op_type_of(chain)
        if chain.one_hot:
            notes = (NOTE if operator.action == "lower" else NOTE_OF_SUMS,)
    return replace(
        operator,
        node=labels[-1],
        domain="",
        dialect=report.CHAIN,
        output=chain.output,
        absorbed=tuple(labels[:-1]),
        nodes_before=len(labels) + len(operator.between),
        op_type=op_type,
        notes=notes,
        before_us=before,
    )


def _labels(chain: Chain | Movement) -> list[str]:
    """Return the labels of the nodes of a chain that move data."""
    nodes = chain.moving if isinstance(chain, Movement) else chain.nodes
    return [traversal.label(node) for node in nodes]


def _vanished(chain: Chain | Movement) -> OperatorReport:
    """Report a chain of which only functions of single elements are left."""
    operator = _left(chain, Rearrange.name, None)
    return replace(operator, action="fuse", lowering="cancelled", nodes_after=0, estimated_us=0.0)


def _left(chain: Chain | Movement, op_type: str, reason: str | None) -> OperatorReport:
    """Report a chain that stays as it is."""
    labels = _labels(chain)
    known = chain.element_type
    return OperatorReport(
        node=labels[-1],
        graph=str(chain.place),
        op_type=op_type,
        domain="",
        dialect=report.CHAIN,
        action="leave",
        reason=reason,
        lowering=None,
        element_type=analysis.dtype_name(known) if known else None,
        input_shape=chain.input_shape,
        output_shape=chain.output_shape,
        output=chain.output,
        nodes_before=len(labels),
        nodes_after=len(labels),
        absorbed=tuple(labels[:-1]),
        before_us=chain.before_us if isinstance(chain, Movement) else None,
    )
