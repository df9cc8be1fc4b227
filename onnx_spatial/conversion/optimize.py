"""Convert a model, and rewrite its standard nodes where that is faster or a rank limit asks for it.

    file -> chains become operators -> conversion -> chains that gained nothing become nodes again
         -> chains that only move data -> changes of layout between convolutions (`graph_editor`)
         -> what is still beyond the rank limit (`limits`)

The operators are put in the place of their chains in memory, and converted with those of the file. A
chain is only rewritten where its operator became part of something else (a dilated convolution, a region
without blocks, a pair that cancels), where its price is clearly better (`chains.pricing`), or where a
tensor of it exceeds the rank limit. All other chains stay as they are, byte for byte.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import onnx

from onnx_spatial import analysis
from onnx_spatial.chains.find_chains import Chain, list_chains, with_operators
from onnx_spatial.chains.illegal_reshapes import with_legal_patches
from onnx_spatial.chains.movements import Movement, find_movements
from onnx_spatial.chains.one_hot import NOTE, NOTE_OF_SUMS
from onnx_spatial.conversion import report
from onnx_spatial.conversion.graph_editor import number_of_changes, remove_layout_changes
from onnx_spatial.conversion.limits import check_limits
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.conversion.pipeline import Progress, convert_operators
from onnx_spatial.conversion.report import EditResult, OperatorReport
from onnx_spatial.model.graph.remove_unused import remove_unused
from onnx_spatial.model.traversal import Index, Place
from onnx_spatial.operators.spellings.chain_ops import DOMAIN

#: A chain is replaced by its operator alone if the estimated time is shorter by this factor. It is a
#: margin for the error of two estimates; that of a Conv alone is off by 20 % (`chains.pricing`).
_MIN_SPEEDUP = 1.5

#: Why chains stay.
_ALONE = "it does not fuse with other nodes, and alone nothing is gained"
_HINDERS = "rewritten, it would keep other operators from fusing"

#: A chain that is an operator, or one that only moves data.
_AnyChain = Chain | Movement

#: Converts a model with some of its chains.
_Convert = Callable[[Sequence[_AnyChain]], EditResult]


def optimize_operators(
    proto: onnx.ModelProto,
    options: ConvertOptions | None = None,
    *,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> EditResult:
    """Convert the operators of `proto`, and its chains where that pays; `proto` stays as it is.

    Args:
        proto: the model.
        options: how it is converted. In other modes than "lower" every chain becomes its operator, and
            what the mode makes of that.
        folder: where external data lies.
        progress: called with a line of text now and then.

    Raises:
        ModelFileError: the graph contradicts itself.
    """
    options = options or ConvertOptions(chains=True)
    if progress is not None:
        progress("converting 1/3: chains of standard nodes")
    legal = with_legal_patches(proto, folder).model
    notes: list[str] = []
    known = analysis.find(legal, options.domains, folder)
    chains = list_chains(legal, known, folder, notes)

    def convert(chains: Sequence[_AnyChain]) -> EditResult:
        """Drop chains without gain and convert again, until none is dropped."""
        while True:
            result, gaining = _convert_once(proto, legal, chains, options, folder, progress)
            if len(gaining) == len(chains):
                return result
            chains = gaining

    result = convert(chains)
    if result.refused():
        return convert(())
    if options.mode == "lower":
        taken = _taken_values(legal, chains, result)
        limit = options.max_rank
        moves = find_movements(legal, known, folder, max_rank=limit, taken=taken, notes=notes)
        result = _with_movements(moves, result, chains, convert)
        result.chains += _report_remaining(chains, moves, result)
    result.notes = notes
    if options.fuses:
        _remove_layout_changes(proto, result, folder)
    if options.max_rank is not None:
        left = [chain for chain in result.chains if not chain.converted]
        kept = {(s.graph, n): s.reason or "" for s in left for n in (s.node, *s.absorbed)}
        model = result.model or proto
        result.limits = check_limits(model, options.max_rank, options.domains, folder, kept=kept)
    return result


def _convert_once(
    proto: onnx.ModelProto,
    legal: onnx.ModelProto,
    chains: Sequence[_AnyChain],
    options: ConvertOptions,
    folder: Path | None,
    progress: Progress | None,
) -> tuple[EditResult, list[_AnyChain]]:
    """Convert the operators of a model with those of some chains; return also the chains that gain.

    The result is only complete if all of them do. `legal` is the model with operators in the place of
    patches that no runtime loads.
    """
    if not chains:
        return convert_operators(proto, options, folder=folder, progress=progress), []
    with_chains = replace(options, domains=(*options.domains, DOMAIN))
    named, outputs = with_operators(legal, chains)
    edit = convert_operators(named, with_chains, folder=folder, progress=progress)
    keys = [(str(chain.place), name) for chain, name in zip(chains, outputs, strict=True)]
    output_of = {key: chain.output for key, chain in zip(keys, chains, strict=True)}
    for index, operator in edit.operator_at.items():
        entries = tuple(output_of.get((operator.graph, name), name) for name in operator.entries)
        edit.operator_at[index] = replace(operator, entries=entries)
    reports = {(each.graph, each.output): each for each in edit.operators if each.domain == DOMAIN}
    pairs = [(chain, reports.get(key)) for chain, key in zip(chains, keys, strict=True)]
    is_good = _is_better if options.mode == "lower" else lambda chain, operator: True
    gaining = [chain for chain, result in pairs if is_good(chain, result)]
    if len(gaining) < len(chains):
        return edit, gaining
    edit.chains = [
        _describe_chain(chain, operator) if operator else _report_vanished(chain)
        for chain, operator in pairs
    ]
    edit.operator_at = {i: each for i, each in edit.operator_at.items() if each.domain != DOMAIN}
    edit.rewritten = [chain for chain in chains if isinstance(chain, Chain)]
    edit.model = edit.model or named
    _remove_unread(edit.model, named, proto)
    return edit, gaining


def _remove_layout_changes(proto: onnx.ModelProto, result: EditResult, folder: Path | None) -> None:
    """Remove changes of layout between convolutions that are not beside fused operators."""
    model = result.model or proto
    moved = remove_layout_changes(model, folder)
    if moved is not None:
        result.model = moved
        result.layouts = (number_of_changes(model), number_of_changes(moved))


def _rewritten_keys(result: EditResult) -> set[tuple[str, str]]:
    """Return the keys of the chains that were rewritten."""
    return {(operator.graph, operator.output) for operator in result.chains}


def _taken_values(
    proto: onnx.ModelProto, chains: Sequence[Chain], result: EditResult
) -> dict[Place, set[str]]:
    """Return the values that nodes compute which became part of an operator, by graph."""
    rewritten = _rewritten_keys(result)
    taken: dict[Place, set[str]] = {}
    for chain in chains:
        if chain.key in rewritten:
            outputs = (name for node in chain.nodes for name in node.output)
            taken.setdefault(chain.place, set()).update(outputs)
    if result.model is not None:
        before, after = Index(proto), Index(result.model)
        kept = {place: after.flow(graph).producers for place, graph in after.graphs}
        for place, graph in before.graphs:
            computed = before.flow(graph).producers.keys()
            taken.setdefault(place, set()).update(computed - kept.get(place, ()))
    return taken


def _with_movements(
    moves: Sequence[Movement],
    best: EditResult,
    chains: Sequence[Chain],
    convert: _Convert,
) -> EditResult:
    """Rewrite movements too, unless other operators fuse less then."""
    rewritten = _rewritten_keys(best)
    rewritten_chains = [chain for chain in chains if chain.key in rewritten]
    rewritable = [move for move in moves if move.operator is not None]
    required = [move for move in rewritable if move.required]
    for added in (rewritable, required) if len(required) < len(rewritable) else (rewritable,):
        result = convert([*rewritten_chains, *added]) if added else best
        if result.chains and _fused_operators(best) <= _fused_operators(result):
            return result
    return best


def _fused_operators(result: EditResult) -> set[tuple[str, str, str | None]]:
    """Return the operators that became part of something else."""
    return {
        (operator.graph, operator.output, operator.lowering)
        for operator in (*result.operators, *result.chains)
        if operator.action == "fuse"
    }


def _report_remaining(
    chains: Sequence[Chain], moves: Sequence[Movement], result: EditResult
) -> Iterator[OperatorReport]:
    """Report the chains that stay, except those a part of which was rewritten."""
    rewritten = _rewritten_keys(result)
    reported = {
        id(node) for move in moves if move.required or move.key in rewritten for node in move.nodes
    }
    for chain in chains:
        if chain.key not in rewritten and reported.isdisjoint(map(id, chain.nodes)):
            yield _report_left(chain, _ALONE)
    for move in moves:
        if move.required and move.key not in rewritten:
            yield _report_left(move, move.reason or _HINDERS)


def _remove_unread(
    model: onnx.ModelProto, named: onnx.ModelProto, original: onnx.ModelProto
) -> None:
    """Remove what only nodes read that are gone, and new nodes that nothing reads.

    Gone are the nodes of chains and those that computed pads. A new node of one chain may be unread as
    the next one was rewritten, too.
    """
    names = defaultdict[Place, set[str]](set)
    before, after = Index(original), Index(model)
    for index in (Index(named), before):
        for place, graph in index.graphs:
            names[place].update(index.flow(graph).readers)
    old = {place: before.flow(graph).producers for place, graph in before.graphs}
    for place, graph in after.graphs:
        names[place].update(after.flow(graph).producers.keys() - old.get(place, ()))
    remove_unused(after, names)


def _is_better(chain: _AnyChain, operator: OperatorReport | None) -> bool:
    """Return whether the operator in the place of a chain became part of something, or pays."""
    if operator is None:
        return isinstance(chain, Movement) and chain.vanishes
    if operator.action == "fuse":
        return True
    if isinstance(chain, Chain):
        return (
            operator.estimated_us is not None and _MIN_SPEEDUP * operator.estimated_us < chain.cost
        )
    if chain.operator is not None and chain.operator.is_identity:
        return operator.converted
    return operator.estimated_us is not None and chain.pays(
        operator.estimated_us, operator.nodes_after
    )


def _describe_chain(chain: _AnyChain, operator: OperatorReport) -> OperatorReport:
    """Describe a chain by the report of the operator that took its place."""
    labels = chain.labels
    notes: tuple[str, ...] = ()
    if isinstance(chain, Movement):
        before = chain.before_us
        if chain.operator is not None and chain.operator.is_identity:
            operator = replace(
                operator, action="fuse", lowering="cancelled", estimated_us=chain.after_us
            )
    else:
        before = chain.cost or None
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
        op_type=chain.op_type,
        notes=notes,
        before_us=before,
    )


def _report_vanished(chain: _AnyChain) -> OperatorReport:
    """Report a chain of which only functions of single elements are left."""
    operator = _report_left(chain, None)
    return replace(operator, action="fuse", lowering="cancelled", nodes_after=0, estimated_us=0.0)


def _report_left(chain: _AnyChain, reason: str | None) -> OperatorReport:
    """Report a chain that stays as it is."""
    labels, element_type = chain.labels, chain.element_type
    return OperatorReport(
        node=labels[-1],
        graph=str(chain.place),
        op_type=chain.op_type,
        domain="",
        dialect=report.CHAIN,
        action="leave",
        reason=reason,
        lowering=None,
        element_type=analysis.dtype_name(element_type) if element_type else None,
        input_shape=chain.input_shape,
        output_shape=chain.output_shape,
        output=chain.output,
        nodes_before=len(labels),
        nodes_after=len(labels),
        absorbed=tuple(labels[:-1]),
        before_us=chain.before_us if isinstance(chain, Movement) else None,
    )
