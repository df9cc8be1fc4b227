"""Collect the findings of the checks: of each operator, of other nodes, of runs of the whole models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.model import traversal
from onnx_spatial.operators.shapes import show
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.report import (
    Check,
    Counterexample,
    Difference,
    OperatorResult,
    OutputResult,
    Run,
)

if TYPE_CHECKING:
    from onnx_spatial.conversion.report import ProofScope

#: Ways of a comparison, as messages name them.
_HOW = {
    "isolated": "on its own",
    "in place": "in place",
}


class Recorder(Protocol):
    """A node that keeps the comparisons made of it."""

    def record(self, check: Check, inputs: Mapping[str, Array], value: str) -> None:
        """Keep a comparison of a value."""


@dataclass(frozen=True)
class Proof:
    """What is proven of an operator; see `OperatorResult`.

    Attributes:
        scope: sizes that it is proven for; "sampled": for none.
        assumptions: what a proof for all sizes assumes.
        reason: why it is not proven.
        sizes: shapes of inputs, by name, at which both parts of a region may differ.
        widened: what is proven of such a region from the model's inputs on, where the sizes of its own
            inputs may not occur in the model.
    """

    scope: ProofScope
    assumptions: tuple[str, ...] = ()
    reason: str | None = None
    sizes: tuple[Mapping[str, tuple[int, ...]], ...] = ()
    widened: Proof | None = None


@dataclass
class OperatorCheck:
    """An operator of the original while it is checked.

    Attributes:
        info: analysis of the node.
        result: what is known so far.
        difference: the first comparison that failed, with its inputs.
        merged: whether its output in the converted model is computed together with other nodes.
        cause: the reason of that comparison, without the place.
        undecided: difference of the region that it was fused into, which may be rounding or not.
        replaced: nodes of the original that were compared together with it, by their position in
            `traversal.nodes`.
        products: labels of the convolutions and matrix products among them.
    """

    info: OperatorInfo
    result: OperatorResult
    difference: Difference | None = None
    merged: bool = False
    cause: str = ""
    undecided: str | None = None
    replaced: set[int] = field(default_factory=set)
    products: tuple[str, ...] = ()

    @classmethod
    def of(cls, info: OperatorInfo, *, refused: bool = False) -> OperatorCheck:
        """Begin the check of an operator; nothing is compared yet."""
        node, graph = info.node, str(info.place)
        result = OperatorResult(
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
        together = f"together with {self.products[0]}" if self.products else _HOW[check.how]
        result.reason = message = (
            f"{result.label} {together}, on {check.dtype} {show(check.shape)}, "
            f"optimisations {mode}: {check.reason}"
        )
        self.cause = str(check.reason)
        self.difference = Difference(
            "operator",
            result.node,
            result.graph,
            message,
            dict(inputs),
            value,
            self.info.place,
            check.optimised,
        )

    @property
    def convolved(self) -> bool:
        """Whether it was compared together with a convolution."""
        return any("Conv" in product for product in self.products)

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
        self.cause = counterexample.message
        self.difference = Difference(
            "operator",
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


@dataclass(frozen=True)
class NodeChange:
    """What is changed in a node.

    Attributes:
        text: the rest of a sentence with the node as subject.
        inside: whether the node reads the same values as before: the change is in the node itself.
        is_data: whether only numbers or strings that the node holds are changed, and not by rounding.
    """

    text: str
    inside: bool
    is_data: bool = False


@dataclass
class ChangedNode:
    """A node of the original, not a spatial operator, that the converted model changes.

    Attributes:
        node, place: the node, and the graph that holds it.
        change: what is changed in it; None if other nodes take its place.
        difference: the first comparison of its output that failed.
        cause: the reason of that comparison.
        doubt: a difference that may not matter.
        left: why it could not be compared; it may be compared in a run of the whole model later.
        compared: whether its output was compared or proven.
        proven: whether its output was proven.
    """

    node: onnx.NodeProto
    place: traversal.Place
    change: NodeChange | None = None
    difference: Difference | None = None
    cause: str = ""
    doubt: str | None = None
    left: str | None = None
    compared: bool = False
    proven: bool = False

    def record(self, check: Check, inputs: Mapping[str, Array], value: str) -> None:
        """Keep the first comparison of its value that failed."""
        self.compared = True
        if check.passed or self.difference is not None:
            return
        self.cause = str(check.reason)
        graph = str(self.place)
        self.difference = Difference(
            "value", value, graph, self.message, dict(inputs), value, self.place, check.optimised
        )

    @property
    def gap(self) -> str | None:
        """Why nothing is known of it; None if it was compared."""
        reason = self.doubt or (None if self.compared else self.left)
        return reason if self.difference is None else None

    @property
    def message(self) -> str:
        """What was changed, and how the output differs, in one line."""
        what = f": it {self.change.text}" if self.change is not None else ""
        return f"{self.label} was changed{what}; its output differs: {self.cause}"

    @property
    def explained(self) -> bool:
        """Whether the change is in the node itself: a weight, an attribute."""
        return self.change is not None and self.change.inside

    @property
    def label(self) -> str:
        """The node in messages: its type, name and graph."""
        return f"{self.node.op_type} node {traversal.label(self.node)!r} ({self.place})"


def gaps_of(changed: Sequence[ChangedNode]) -> list[str]:
    """Return one line for each doubt, and one that counts the changed nodes that were not compared."""
    lines = [f"{n.label} was changed: {n.doubt}" for n in changed if n.gap and n.doubt]
    left = [node for node in changed if node.gap and not node.doubt]
    if len(left) > 1:
        text = f"{len(left)} changed nodes were not compared, the first is {left[0].label}"
        lines.append(f"{text}: {left[0].left}")
    if len(left) == 1:
        lines.append(f"{left[0].label} was changed and could not be compared: {left[0].left}")
    return lines


@dataclass
class Findings:
    """The results of the checks of a converted model so far.

    Attributes:
        operators: the spatial operators of the original, in the order of `traversal.nodes`.
        convolutions: its convolutions that onnxruntime refuses, likewise.
        changed: its other nodes that the converted model changes.
        computes_sizes_otherwise: whether it has further changed nodes, which compute sizes: these are
            right if all runs are.
        differing_shapes: shapes of the model's inputs at which these sizes may differ.
        outputs_only: whether nothing but outputs is compared.
        interface: differences between the inputs and outputs of the two models that keep both from
            running on the same data.
        types: inputs and outputs that are reals of other types.
        failures: everything else that is wrong with the model as a whole.
        gaps: what could not be compared, because no sizes were found for it.
        obstacles: what could not be compared, because of what is in the model.
        undecided: differences that may be rounding or not.
        out_of_time: whether the limit of time ended the checks.
        aborted: how the converted model does not load or run, and onnxruntime's message; with
            optimisations or without.
        difference: the first output that differs, or run that fails, with its inputs.
        executed: positions of the operators that took part in a run of the whole model.
        feeds: inputs of the first run of the whole model; None if there is none.
        lost_metadata: keys of the original's metadata that the converted model does not have.
        runs, outputs, forced, unsteady, rest, sampled, notes: see `Verification`.
    """

    operators: list[OperatorCheck] = field(default_factory=list)
    convolutions: list[OperatorCheck] = field(default_factory=list)
    changed: list[ChangedNode] = field(default_factory=list)
    computes_sizes_otherwise: bool = False
    differing_shapes: list[Mapping[str, tuple[int, ...]]] = field(default_factory=list)
    outputs_only: bool = False
    interface: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    out_of_time: bool = False
    aborted: dict[tuple[str, str], set[bool]] = field(default_factory=dict)
    difference: Difference | None = None
    executed: set[int] = field(default_factory=set)
    feeds: Mapping[str, Array] | None = None
    runs: list[Run] = field(default_factory=list)
    outputs: list[OutputResult] = field(default_factory=list)
    forced: dict[str, int] = field(default_factory=dict)
    unsteady: list[str] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)
    sampled: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lost_metadata: list[str] = field(default_factory=list)

    @property
    def compared(self) -> set[int]:
        """Nodes that were compared with what replaces them, by position in `traversal.nodes`."""
        known = {o.info.index for o in self.operators if o.info.known_domain}
        convolutions = {c.info.index for c in self.convolutions if c.result.checks}
        return known.union(convolutions, *(o.replaced for o in self.operators))

    @property
    def differs(self) -> bool:
        """Whether some node or output differs."""
        operators = any(o.difference is not None for o in (*self.operators, *self.convolutions))
        changed = any(node.difference is not None for node in self.changed)
        return operators or changed or self.model_differs

    @property
    def model_differs(self) -> bool:
        """Whether an output differs, or the converted model does not run."""
        outputs = any(output.passed is False for output in self.outputs)
        return outputs or bool(self.failures or self.aborted)

    def fail(self, message: str, difference: Difference | None = None) -> None:
        """Add a failure, and the inputs that show it."""
        self.failures.append(message)
        self.difference = self.difference or difference
