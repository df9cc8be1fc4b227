"""Verify a converted model: prove what differs from the original, run both once, say what is sampled.

1  interface   names, order, types and shapes of inputs and outputs are the same
2  match       the parts that differ are found from the definitions of both files
3  prove       each part: both formulas are the same, for all sizes
4  run         both models on the same data; the outputs agree
5  parts       operators on their own; sizes at which the prover found a difference
6  conclude    the verdict (`verdict`), and what explains a difference (`explain`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.conversion.same_padding.find import find as find_refused
from onnx_spatial.errors import OperatorError
from onnx_spatial.model import traversal
from onnx_spatial.model.io import reader
from onnx_spatial.verification import explain, interface, match, verdict
from onnx_spatial.verification.check import whole
from onnx_spatial.verification.check.parts import PartFinding, PartRuns
from onnx_spatial.verification.compare.kinds import Kinds
from onnx_spatial.verification.evidence import (
    UNCHANGED,
    OperatorResult,
    Unproven,
    Verification,
    undecided,
)
from onnx_spatial.verification.options import VerifyOptions
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.process import child
from onnx_spatial.verification.prove.prover import Prover
from onnx_spatial.verification.run import data, time_limit
from onnx_spatial.verification.verdict import Findings

if TYPE_CHECKING:
    from onnx_spatial.chains import Chain

Model = reader.Model | reader.Source

#: Copies of the weights that onnxruntime may hold at a time: as read, and packed for its kernels.
_LOADED_COPIES = 2


def verify(
    original: Model,
    converted: Model,
    options: VerifyOptions | None = None,
    *,
    domains: Iterable[str] = (),
    progress: Callable[[str], None] | None = None,
    chains: Iterable[Chain] = (),
) -> Verification:
    """Compare a converted model with its original, and report the first difference.

    Args:
        original: path, bytes, onnx.ModelProto, onnx_ir.Model, or a model read before. Not changed.
        converted: likewise.
        options: how they are compared; what is good enough (`strict`) is for the caller to check.
        domains: operator domains of the user's own that hold spatial operators.
        progress: called with a line of text now and then.
        chains: chains of standard nodes of the original to report like operators. What is proven does
            not depend on them.

    Raises:
        UsageError: `inputs`, `shapes` or a tolerance do not fit the model.
        ModelFileError: a model cannot be read.
        OperatorError: an operator of the original breaks its own rules on any data.
    """
    options = options or VerifyOptions()
    models = ModelPair.read(original, converted, domains)
    options.tolerances.check_names([value.name for value in models.original.proto.graph.output])
    work, progress = _Work(models, options, tuple(chains)), progress or _silent
    if options.memory is None:
        return work(progress)
    bounds = child.Bounds(options.memory, _LOADED_COPIES * models.weight_bytes())
    try:
        return child.run(work, progress, bounds)
    except child.Died as death:
        last = death
    if last.status == "failed":  # unless the original ends the process with optimisations on, too
        try:
            child.run(replace(work, both_optimised=True), progress, bounds)
        except child.Died as death:
            last = death
    return Verification(last.status, f"{last.status}: {last}", problems=[str(last)])


def _silent(text: str) -> None:
    pass


@dataclass(frozen=True)
class _Work:
    """The comparison of two models, with the arguments of `verify`.

    With `both_optimised` the original runs with optimisations on before the converted model does.
    """

    models: ModelPair
    options: VerifyOptions
    chains: tuple[Chain, ...]
    both_optimised: bool = False

    def __call__(self, progress: Callable[[str], None]) -> Verification:
        """Take all steps, and explain what differs."""
        models = self.models.resolved().without_earlier_form()
        steps = _Steps(models, self.options, progress, self.both_optimised)
        with time_limit.allowing(self.options.time_limit):
            try:
                steps.take(self.chains)
            except time_limit.TimeLimitError as over:
                steps.findings.out_of_time = str(over)
            except MemoryError:
                return undecided(f"the verification {child.lack_of_memory()}")
            result = verdict.conclude(steps.findings)
            if result.status == "failed":
                with suppress(time_limit.TimeLimitError):
                    explain.add(
                        result,
                        steps.models,
                        steps.infos,
                        steps.kinds,
                        self.options,
                        child.report,
                        of_run=steps.findings.whole.difference,
                    )
        return result


class _Steps:
    """The steps of a verification, and what they found so far."""

    def __init__(
        self,
        models: ModelPair,
        options: VerifyOptions,
        progress: Callable[[str], None],
        both_optimised: bool,
    ) -> None:
        self.models, self.options, self.progress = models, options, progress
        self.both_optimised = both_optimised
        self.findings = Findings(outputs_only=options.outputs_only)
        self.infos: list[OperatorInfo] = []

    def take(self, chains: Sequence[Chain]) -> None:
        """Compare, prove and run.

        Raises:
            TimeLimitError: the time is over; what was found so far stays.
        """
        models, findings, options = self.models, self.findings, self.options
        findings.interface = interface.compare(models, options.tolerances)
        original = models.original
        named = data.named_dims(original.proto, data.graph_inputs(original.proto))
        self.infos = analysis.find(named, models.domains, original.folder)
        self.facts = analysis.graph_facts(named, self.infos)
        self.kinds = Kinds(named, self.infos, self.facts)
        operators = self._operators(chains)
        if not options.outputs_only:
            self._prove(operators)
        if findings.interface.blocking:
            return
        self._run()
        if not options.outputs_only:
            self._run_parts()
            findings.operators = [self._result(operator) for operator in operators]

    def _prove(self, operators: Sequence[_Operator]) -> None:
        """Find the parts that differ, and prove each."""
        matches = match.find(self.models, self.infos, self.facts)
        prover = Prover(self.models, self.infos, matches)
        for number, part in enumerate(matches.changed, start=1):
            self.progress(f"proof {number}/{len(matches.changed)}: {part.output}")
            inside = {i: o.label for o in operators for i in o.positions & part.nodes}
            label = _label(part.before.nodes[-1], part.place)
            self.findings.parts.append(PartFinding(part, inside, label, prover.prove(part)))
        self._unmatched = matches.unmatched
        self.findings.unproven = [
            *(each for finding in self.findings.parts for each in finding.unproven),
            *(
                Unproven(f"value {u.output!r} ({u.place})", "gave up", u.reason)
                for u in matches.unmatched
            ),
            *(Unproven("the model", "other formula", line) for line in matches.rest),
            *(
                Unproven("the model", "other formula", line)
                for line in self.findings.interface.narrowed
            ),
        ]

    def _run(self) -> None:
        """Run both whole models.

        Raises:
            OperatorError: the original does not run, as an operator breaks its own rules on any data.
        """
        findings = self.findings
        watched = [
            finding.part.output
            for finding in findings.parts
            if finding.proof.scope is None and finding.part.place == traversal.Place()
        ]
        whole.check(
            self.models,
            self.infos,
            self.kinds,
            self.options,
            self.progress,
            found=findings.whole,
            proven=findings.is_proven,
            watched=watched,
            both_optimised=self.both_optimised,
        )
        if findings.whole.not_run is None:
            return
        for info in self.infos:
            if info.known_domain and info.error is not None:
                raise OperatorError(f"{_label(info.node, info.place)}: {info.error}")

    def _run_parts(self) -> None:
        """Run operators, and parts that are not proven, on their own."""
        findings = self.findings
        runs = PartRuns(self.models, self.infos, self.kinds, self.options)
        agree = findings.whole.not_run is None and not (
            findings.whole.broken or findings.whole.differences
        )
        grown = findings.is_proven and findings.whole.may_have_grown
        for finding in findings.parts:
            every = grown or bool(finding.operators)
            runs.check(finding, findings.whole.other_values, outputs_agree=agree, usual=every)
        if grown and all(finding.ran for finding in findings.parts):
            findings.whole.accept_growth()

    def _operators(self, chains: Sequence[Chain]) -> list[_Operator]:
        """Return the operators of the original in the order of the file, then the chains."""
        model = self.models.original.proto
        nodes = list(traversal.nodes(model))
        positions = {info.index for info in self.infos} | set(find_refused(model))
        # The nodes inside a node follow it.
        ends = {
            index: index + sum(1 for _ in traversal.inner_nodes(node))
            for index, (_, _, node) in enumerate(nodes)
            if any(traversal.subgraphs(node))
        }
        found = [
            _Operator.of(
                place,
                node,
                frozenset({index}),
                frozenset(outer for outer, end in ends.items() if outer < index <= end),
            )
            for index, (place, _, node) in enumerate(nodes)
            if index in positions
        ]
        makers = {
            (place, name): index
            for index, (place, _, node) in enumerate(nodes)
            for name in node.output
        }
        if chains:
            from onnx_spatial.chains import op_type_of  # a file without chains loads no lowering
        for chain in chains:
            inside = {makers.get((chain.place, n.output[0])) for n in chain.nodes} - {None}
            last = chain.nodes[-1]
            named = _Operator.of(chain.place, last, frozenset(i for i in inside if i is not None))
            found.append(replace(named, op_type=op_type_of(chain)))
        return found

    def _result(self, operator: _Operator) -> OperatorResult:
        """Join what was found of the parts that an operator is in."""
        result = OperatorResult(operator.node, operator.graph, operator.op_type, operator.domain)
        parts = [f for f in self.findings.parts if operator.positions & f.part.nodes]
        parts = parts or [f for f in self.findings.parts if operator.around & f.part.nodes]
        lost = [u for u in self._unmatched if operator.positions & u.nodes]
        result.ran = bool(parts) and all(finding.ran for finding in parts)
        result.reason = next((f.reason for f in parts if f.reason is not None), None)
        differing = next((f for f in parts if f.difference is not None), None)
        if differing is not None and differing.difference is not None:
            result.reason = differing.difference.message
            result.counterexample = differing.counterexample
        elif lost:
            result.unproven = Unproven(result.label, "gave up", lost[0].reason)
        elif not parts:
            result.reason = UNCHANGED
        else:
            unproven = next((f.proof for f in parts if f.proof.found is not None), None)
            if unproven is not None and unproven.found is not None:
                result.unproven = Unproven(result.label, unproven.found, unproven.reason)
                return result
            static = any(f.proof.scope == "these sizes" for f in parts)
            result.proven = "these sizes" if static else "all sizes"
            result.assumptions = tuple(dict.fromkeys(a for f in parts for a in f.proof.assumptions))
        return result


@dataclass(frozen=True)
class _Operator:
    """An operator of the original in reports, and positions in `traversal.nodes`.

    These are the positions of its nodes, and of the nodes around it, whose graphs hold it.
    """

    node: str
    graph: str
    op_type: str
    domain: str
    positions: frozenset[int]
    around: frozenset[int]

    @classmethod
    def of(
        cls,
        place: traversal.Place,
        node: onnx.NodeProto,
        positions: frozenset[int],
        around: frozenset[int] = frozenset(),
    ) -> _Operator:
        """Describe a node, which may be the last one of several."""
        return cls(traversal.label(node), str(place), node.op_type, node.domain, positions, around)

    @property
    def label(self) -> str:
        """The operator in messages: its type, name and graph."""
        return f"{self.op_type} node {self.node!r} ({self.graph})"


def _label(node: onnx.NodeProto, place: traversal.Place) -> str:
    """Return a node in messages: its type, name and graph."""
    return f"{node.op_type} node {traversal.label(node)!r} ({place})"
