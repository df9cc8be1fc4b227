"""Check operators whose nodes only move data but read other values, too, bit for bit.

    original    x -> [Tanh] -> u -> [SpaceToBatch] -> y
    converted   x -> [Tanh] -> u -> [Reshape] -> y        to a shape that is computed from x

These nodes cannot be cut out between u and y. They run in the region that leads to y, from x on, and y
is compared with what the numpy kernel makes of u in the same run.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import onnx

from onnx_spatial.errors import ModelFileError, OperatorError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.verification.arrays import Array, constant_value
from onnx_spatial.verification.checks.context import Context
from onnx_spatial.verification.checks.findings import OperatorCheck
from onnx_spatial.verification.compare.bitwise import bitwise
from onnx_spatial.verification.match.graphs import Part
from onnx_spatial.verification.runtime.sessions import CONVERTED, RunFailure, Session
from onnx_spatial.verification.sizes.trial_runs import Trial
from onnx_spatial.verification.subgraphs.matched_parts import MatchingRegion
from onnx_spatial.verification.subgraphs.transpose_chain import TransposeChain

_SIZES = op_traits.having(Trait.SIZES)


def chains(operator: OperatorCheck, context: Context) -> list[TransposeChain]:
    """Return a chain for each nearest value behind an operator that its data is moved to.

    None if another value is computed from other data, as in a convolution that the operator is part of.
    """
    info, found = operator.info, []
    for alternatives in context.chains.stretches(
        info, lambda name: context.converted.computes(name, info.place)
    ):
        chain = next((c for c in alternatives if _is_moved(c, context)), None)
        if chain is None:
            return []
        found.append(chain)
    return found


def check(operator: OperatorCheck, chains: Sequence[TransposeChain], context: Context) -> bool:
    """Compare an operator in runs of the regions that lead to the sinks of its chains.

    Returns whether that was possible: a difference at sizes that may never occur says nothing.
    """
    replaced: set[int] = set()
    for chain in chains:
        region = context.regions.at(chain.head.place, chain.sink)
        reason = region if isinstance(region, str) else _compare(operator, chain, region, context)
        differs = operator.difference is not None
        if isinstance(region, MatchingRegion) and differs and not region.settled:
            operator.withdraw("it differs at sizes that may never occur in the model")
            region = context.regions.widened(region)
            if isinstance(region, str) or not region.settled:
                return False
            reason = _compare(operator, chain, region, context)
        if isinstance(region, str) or reason is not None:
            operator.withdraw(str(reason))
            return False
        replaced |= region.replaced
    operator.replaced |= replaced
    if operator.difference is None:
        operator.result.reason = None
    return True


def _compare(
    operator: OperatorCheck, chain: TransposeChain, region: MatchingRegion, context: Context
) -> str | None:
    """Compare an operator in runs of a region; return why that is impossible."""
    with closing(context.region_results.comparison(region)) as comparison:
        trials = comparison.trials()
    if isinstance(trials, str):
        return trials
    runs = _Runs(operator, chain, region, context.models.converted.folder)
    try:
        for trial in trials:
            runs.compare(trial)
    except (OperatorError, ModelFileError) as error:
        return str(error)
    never_ran = runs.never_ran and len(trials) > 1
    return "it ran with none of the sizes that were tried" if never_ran else None


def _is_moved(chain: TransposeChain, context: Context) -> bool:
    """Tell whether elements of the chain's source, and not only its sizes, reach the sink."""
    place, source = chain.head.place, chain.source
    part = context.converted.part(place, chain.sink, lambda name, _: name == source)
    if not isinstance(part, Part):
        return False
    reached, before = {source}, 0
    while len(reached) > before:  # files need not be in topological order
        before = len(reached)
        for node in part.nodes:
            sizes = op_traits.is_standard(node) and node.op_type in _SIZES
            if not sizes and not reached.isdisjoint(traversal.needs(node)):
                reached.update(name for name in node.output if name)
    return chain.sink in reached


class _Runs:
    """The converted part of a region, which also returns the source and the parameters of a chain."""

    def __init__(
        self,
        operator: OperatorCheck,
        chain: TransposeChain,
        region: MatchingRegion,
        folder: Path | None,
    ) -> None:
        self._operator, self._chain, self._region = operator, chain, region
        known = [fact.value if fact is not None else None for fact in chain.head.facts.inputs]
        names = [chain.source, *chain.head.node.input[1:]]
        self._inputs = [(n, None if i == 0 else known[i]) for i, n in enumerate(names)]
        self._stored = {
            t.name: constant_value(t, folder) for t in region.after.stored if t.name in names
        }
        computed = {name for node in region.after.nodes for name in node.output} & set(names)
        self._outputs = list(dict.fromkeys([region.output, *sorted(computed)]))
        model = region.converted()
        model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in self._outputs[1:])
        self._model, self._folder = model.SerializeToString(), folder
        self._sessions: dict[bool, Session] = {}
        self.never_ran = True

    def compare(self, trial: Trial) -> None:
        """Compare without and with optimisations.

        Raises:
            OperatorError: the values break a rule of the operator.
        """
        own = trial.outputs[self._region.output]
        for optimised in (False, True):
            try:
                values = {**trial.feeds, **self._stored, **self._run(trial.feeds, optimised)}
            except RunFailure as failure:
                reason = f"it does not {failure.stage}: {failure}"
                check = bitwise("isolated", optimised, own, own, reason)
                self._operator.record(check, trial.feeds, self._chain.sink)
                continue
            self.never_ran = False
            arrays: list[Array | None] = [
                (values.get(name) if value is None else value) if name else None
                for name, value in self._inputs
            ]
            x = arrays[0]
            if x is None:
                raise OperatorError(f"the value {self._chain.source!r} is not in the region")
            actual = values[self._chain.sink]
            check = bitwise("isolated", optimised, x, self._chain.run(arrays), actual)
            self._operator.record(check, trial.feeds, self._chain.sink)

    def _run(self, feeds: dict[str, Array], optimised: bool) -> dict[str, Array]:
        if optimised not in self._sessions:
            self._sessions[optimised] = Session(
                self._model, optimise=optimised, folder=self._folder, threads=1, of=CONVERTED
            )
        session = self._sessions[optimised]
        names = {*session.inputs, *session.overridable}
        return session.run({n: a for n, a in feeds.items() if n in names}, self._outputs)
