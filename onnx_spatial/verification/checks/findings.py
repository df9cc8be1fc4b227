"""Collect the findings of the checks: of each operator, of other nodes, of runs of the whole models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.model import traversal
from onnx_spatial.operators.shapes import show
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.report import (
    Check,
    Counterexample,
    Difference,
    OutputResult,
    ProofScope,
    Run,
    SiteResult,
)


class Recorder(Protocol):
    """A node that keeps the comparisons made of it."""

    def record(self, check: Check, inputs: Mapping[str, Array], value: str) -> None:
        """Keep a comparison of a value."""


@dataclass(frozen=True)
class Proof:
    """What is proven of an operator; see `SiteResult`.

    Attributes:
        scope: sizes that it is proven for; "sampled": for none.
        assumptions: what a proof for all sizes assumes.
        reason: why it is not proven.
    """

    scope: ProofScope
    assumptions: tuple[str, ...] = ()
    reason: str | None = None


@dataclass
class OperatorCheck:
    """An operator of the original while it is checked.

    Attributes:
        info: analysis of the node.
        result: what is known so far.
        difference: the first comparison that failed, with its inputs.
        merged: whether its output in the converted model is computed together with other nodes.
        undecided: difference of the region that it was fused into, which may be rounding or not.
        replaced: nodes of the original that were compared together with it, by their position in
            `traversal.nodes`.
    """

    info: OperatorInfo
    result: SiteResult
    difference: Difference | None = None
    merged: bool = False
    undecided: str | None = None
    replaced: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, info: OperatorInfo, *, refused: bool = False) -> OperatorCheck:
        """Begin the check of an operator; nothing is compared yet."""
        node, graph = info.node, str(info.place)
        result = SiteResult(
            traversal.label(node), graph, node.op_type, node.domain, refused=refused
        )
        return cls(info, result)

    @property
    def output(self) -> str:
        """Name of the node's output."""
        return str(self.info.node.output[0])

    def record(self, check: Check, inputs: Mapping[str, Array], value: str) -> None:
        """Keep a comparison of a value; the first that failed with its inputs."""
        self.result.checks.append(check)
        if check.passed or self.difference is not None:
            return
        result = self.result
        mode = "on" if check.optimised else "off"
        result.reason = message = (
            f"{result.label}, {check.how}, {check.dtype} "
            f"{show(check.shape)}, optimisations {mode}: {check.reason}"
        )
        self.difference = Difference(
            "site",
            result.node,
            result.graph,
            message,
            dict(inputs),
            value,
            self.info.place,
            check.optimised,
        )

    @property
    def is_proven(self) -> bool:
        """Whether the nodes that replace it are proven: comparisons only test onnxruntime."""
        return self.result.proven in ("all sizes", "these sizes")

    def keep(self, proof: Proof) -> None:
        """Keep what is proven."""
        result = self.result
        result.proven, result.assumptions = proof.scope, proof.assumptions
        result.proof_reason = proof.reason

    def disprove(self, counterexample: Counterexample) -> None:
        """Keep an input for which the nodes that replace the operator are wrong."""
        result = self.result
        result.counterexample = counterexample
        result.reason = message = f"{result.label}: {counterexample.message}"
        self.difference = Difference(
            "site",
            result.node,
            result.graph,
            message,
            counterexample.inputs,
            counterexample.value or self.output,
            self.info.place,
            counterexample.optimised,
        )

    def withdraw(self, reason: str) -> None:
        """Discard the comparisons made so far."""
        self.result.checks.clear()
        self.replaced.clear()
        self.result.reason = f"not compared on its own: {reason}"
        self.difference = None


@dataclass
class ChangedNode:
    """A node of the original, not a spatial operator, that the converted model changes.

    It has the first comparison that failed, or why it could not be compared, where it has to be.
    """

    node: onnx.NodeProto
    place: traversal.Place
    difference: Difference | None = None
    gap: str | None = None

    def record(self, check: Check, inputs: Mapping[str, Array], value: str) -> None:
        """Keep the first comparison of its value that failed."""
        if check.passed or self.difference is not None:
            return
        message = f"{self._label} was changed, and its output differs: {check.reason}"
        graph = str(self.place)
        self.difference = Difference(
            "value", value, graph, message, dict(inputs), value, self.place, check.optimised
        )

    def leave(self, reason: str) -> None:
        """Note that it could not be compared."""
        self.gap = f"{self._label} was changed and could not be compared: {reason}"

    @property
    def _label(self) -> str:
        return f"{self.node.op_type} node {traversal.label(self.node)!r} ({self.place})"


@dataclass
class Findings:
    """The results of the checks of a converted model so far.

    Attributes:
        operators: the spatial operators of the original, in the order of `traversal.nodes`.
        convolutions: its convolutions that onnxruntime refuses, likewise.
        changed: its other nodes that the converted model changes.
        computes_sizes_otherwise: whether it has further changed nodes, which compute sizes: these are
            right if all runs are.
        interface: differences between the inputs and outputs of the two models.
        failures: everything else that is wrong with the model as a whole.
        gaps: what could not be compared, because no sizes were found for it.
        obstacles: what could not be compared, because of what is in the model.
        undecided: differences that may be rounding or not.
        difference: the first output that differs, or run that fails, with its inputs.
        executed: positions of the operators that took part in a run of the whole model.
        feeds: inputs of the first run of the whole model; None if there is none.
        runs, outputs, forced, unsteady, rest, sampled: see `Verification`.
    """

    operators: list[OperatorCheck] = field(default_factory=list)
    convolutions: list[OperatorCheck] = field(default_factory=list)
    changed: list[ChangedNode] = field(default_factory=list)
    computes_sizes_otherwise: bool = False
    interface: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    difference: Difference | None = None
    executed: set[int] = field(default_factory=set)
    feeds: Mapping[str, Array] | None = None
    runs: list[Run] = field(default_factory=list)
    outputs: list[OutputResult] = field(default_factory=list)
    forced: dict[str, int] = field(default_factory=dict)
    unsteady: list[str] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)
    sampled: list[str] = field(default_factory=list)

    @property
    def compared(self) -> set[int]:
        """Nodes that were compared with what replaces them, by position in `traversal.nodes`."""
        known = {o.info.index for o in self.operators if o.info.known_domain}
        convolutions = {c.info.index for c in self.convolutions if c.result.checks}
        return known.union(convolutions, *(o.replaced for o in self.operators))

    def fail(self, message: str, difference: Difference | None = None) -> None:
        """Add a failure, and the inputs that show it."""
        self.failures.append(message)
        self.difference = self.difference or difference
