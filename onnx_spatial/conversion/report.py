"""Report what an edit did with a model (`EditResult`) and each operator (`OperatorReport`).

    SpaceToBatchND 's2b' (main graph): lower: transpose, 1 -> 3 nodes

That is the line of one operator in logs: node, graph, action, lowering.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.documents import Document
from onnx_spatial.errors import Code, ConversionError, first_lines
from onnx_spatial.lowering import Candidate
from onnx_spatial.model import traversal
from onnx_spatial.operators import Dim, Rearrange
from onnx_spatial.operators.operator import show
from onnx_spatial.operators.spellings import InputFacts

if TYPE_CHECKING:
    from onnx_spatial.chains.find_chains import Chain
    from onnx_spatial.conversion.limits import LimitReport

#: For which sizes an operator is proven: for all, or for those of the file, which are static.
ProofScope = Literal["all sizes", "these sizes"]

#: What is done with an operator; see `OperatorReport.action`.
Action = Literal["lower", "fuse", "function", "custom-op", "leave", "refuse"]

#: Most refused operators that one message names.
_MAX_NAMED_OPERATORS = 10

#: `OperatorReport.reason` of a node that mode "custom-op" leaves as it is.
PREPARED = "it is in the form that the registered operators run"

#: `OperatorReport.dialect` of a convolution that onnxruntime refuses (`onnxruntime_pads`).
AUTO_PAD = "onnx auto_pad"

#: `OperatorReport.dialect` of a chain: an operator that is spelled in standard nodes.
CHAIN = "standard nodes"


@dataclass(frozen=True)
class OperatorReport(Document):
    """What becomes of an operator: of a node, of a chain of standard nodes, or of a convolution.

    Attributes:
        node: name of the node, or <its output> if it has none; of a chain, of its last node.
        graph: graph that holds it, in words.
        op_type, domain: as in the file; of a chain, of the operator that it is, and "".
        dialect: its spelling; None if unknown. "standard nodes" for a chain. "onnx auto_pad" for a
            convolution that onnxruntime refuses, with auto_pad SAME and dilations.
        action: "lower" (standard nodes replace it), "fuse" (it becomes part of other nodes, or they
            cancel each other), "function" (a local function defines it), "custom-op" (a Python
            operator runs it), "refuse" (it breaks a rule or cannot be expressed) or "leave" (its
            domain is not accepted for these operators, nothing calls the function around it, it is
            in the form of the mode already, or, of a chain, nothing is gained).
        reason: why it is refused or left; None if it is converted.
        lowering: the lowering, or the fusion ("dilated convolution", "unblocked", "cancelled",
            "strided convolution"), or "explicit-pads"; None if it is not converted.
        element_type: element type of the data as numpy names it; None if it is not known.
        input_shape, output_shape: as far as they are known.
        output: name of the value it computes.
        nodes_before, nodes_after: nodes that compute it, those of its function's body and those in
            `absorbed` included. Of operators that are fused into one the first has all nodes_after.
        function: local function that it calls before or after, as domain:name; None if it calls none.
            op_type and domain are those from before it called one.
        estimated_us: estimated time of the lowering in one run, in microseconds; None in modes other
            than "lower", and if it is not converted.
        before_us: estimated time of the nodes that it replaces; None but for chains that only
            move data, and patches.
        candidates: the possible lowerings, cheapest estimate first.
        absorbed: labels of the nodes around it that became part of it.
        declined: why fusion rules left it alone, one line for each rule.
        code: code of the reason; None without one.
        between: at the end of a region, labels of the nodes inside, which work without the blocks now;
            they count in `nodes_before` and `nodes_after`.
        convolutions: those in `between`, with what each is now: "Conv 3x3, dilation 4, 8 channels".
        entries: outputs of the SpaceToBatch operators that the region begins with, and none before it.
        notes: what differs from the original, for which inputs, and why the preferred lowering was not
            taken, one sentence each.
        proven: for what it is proven to compute the same: "all sizes", or "these sizes" (of a file with
            static sizes); None if it is not proven, or was not verified.
        assumptions: what the proof assumes, one sentence each.
    """

    KEYS = (
        "node graph op_type domain dialect action reason lowering element_type input_shape "
        "output_shape output nodes_before nodes_after function estimated_us before_us candidates "
        "absorbed declined between notes code proven assumptions"
    )

    node: str
    graph: str
    op_type: str
    domain: str
    dialect: str | None
    action: Action
    reason: str | None
    lowering: str | None
    element_type: str | None
    input_shape: tuple[Dim, ...] | None
    output_shape: tuple[Dim, ...] | None
    output: str
    nodes_before: int
    nodes_after: int
    function: str | None = None
    estimated_us: float | None = None
    before_us: float | None = None
    candidates: tuple[Candidate, ...] = ()
    absorbed: tuple[str, ...] = ()
    declined: tuple[str, ...] = ()
    between: tuple[str, ...] = ()
    convolutions: tuple[tuple[str, str], ...] = ()
    entries: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    code: Code | None = None
    proven: ProofScope | None = None
    assumptions: tuple[str, ...] = ()

    @property
    def is_chain(self) -> bool:
        """Whether it is spelled in standard nodes."""
        return self.dialect == CHAIN

    @property
    def spatial(self) -> bool:
        """Whether it is a spatial operator, and not a convolution."""
        return self.dialect != AUTO_PAD

    @property
    def converted(self) -> bool:
        """Whether it is replaced."""
        return self.lowering is not None

    @property
    def unknown_domain(self) -> bool:
        """Whether it is left because its domain is not accepted for its operator."""
        return self.action == "leave" and self.reason == _unknown_domain(self.domain)

    @property
    def left_over(self) -> bool:
        """Whether it is left although it is not in the form of the mode."""
        return self.action == "leave" and self.reason != PREPARED

    @property
    def above_limit(self) -> bool:
        """Whether it is a chain that stays although a limit asks for another one."""
        return self.is_chain and self.op_type == Rearrange.name and not self.converted


@dataclass
class EditResult:
    """Result of an edit of a model, as onnx_ir's PassResult: the model, if it changed, and a report.

    Attributes:
        model: the edited model; None if nothing changed.
        operator_at: each operator and what was done with it, by its position in `traversal.nodes`.
        declined: why fusion rules left an operator as it is, by position.
        types: types of the values that new nodes compute, by graph and name.
        lost: names of the values that no node computes any more, by graph.
        chains: of an optimization, each chain of standard nodes that is a spatial operator, is rewritten
            or exceeds the rank limit, and what was done with it.
        rewritten: the chains that were rewritten, apart from those that only move data.
        layouts: number of nodes before and after that change the layout of a value, where some of them
            were removed or moved beside convolutions that no chain became part of; else 0 and 0.
        limits: the nodes of the result above the rank limit; None without one.
        notes: where the search for chains stopped at its limits.
    """

    model: onnx.ModelProto | None = None
    operator_at: dict[int, OperatorReport] = field(default_factory=dict)
    declined: dict[int, tuple[str, ...]] = field(default_factory=dict)
    types: dict[traversal.Place, dict[str, onnx.TypeProto]] = field(default_factory=dict)
    lost: dict[traversal.Place, set[str]] = field(default_factory=dict)
    chains: list[OperatorReport] = field(default_factory=list)
    rewritten: list[Chain] = field(default_factory=list)
    layouts: tuple[int, int] = (0, 0)
    limits: LimitReport | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def operators(self) -> list[OperatorReport]:
        """The operators in the order of the file."""
        return [self.operator_at[index] for index in sorted(self.operator_at)]

    def refused(self, *, strict: bool = False) -> list[OperatorReport]:
        """Return the operators that cannot be converted; with `strict` also those left over."""
        return [o for o in self.operators if o.action == "refuse" or (strict and o.left_over)]

    def note_outputs(
        self, info: OperatorInfo, names: Iterable[str], shape: tuple[Dim, ...] | None
    ) -> None:
        """Note the values that new nodes compute in the place of an operator, and their type."""
        value_type = onnx.TypeProto()
        if len(info.element_types) == 1:
            (element_type,) = info.element_types
            value_type = onnx.helper.make_tensor_type_proto(element_type, shape)
        self.types.setdefault(info.place, {}).update(dict.fromkeys(names, value_type))


def left(
    info: OperatorInfo, *, done: str | None = None, code: Code | None = None
) -> OperatorReport:
    """Report an operator that stays: refused, in an unknown domain, or for the reason `done`.

    Args:
        info: the operator.
        done: why nothing is to be done with it, "leave"; None: it could not be converted.
        code: of `done`.
    """
    if not info.known_domain:
        return _new_report(info, "leave", _unknown_domain(info.node.domain), Code.UNKNOWN_DOMAIN)
    if done is not None:
        return _new_report(info, "leave", done, code)
    if info.error is not None and info.dead:
        reason = f"the function is never called, and {info.error}"
        return _new_report(info, "leave", reason, info.error_code)
    return _new_report(info, "refuse", info.error, info.error_code)


def _unknown_domain(domain: str) -> str:
    return f"domain {domain!r} is not accepted for this operator; use --domain {domain}"


def converted(
    info: OperatorInfo,
    action: Action,
    lowering: str | None,
    nodes: int,
    function: str | None = None,
    *,
    absorbed: tuple[str, ...] = (),
    declined: tuple[str, ...] = (),
    between: tuple[str, ...] = (),
    considered: Sequence[Candidate] = (),
    notes: tuple[str, ...] = (),
) -> OperatorReport:
    """Report an operator that is replaced by a number of nodes.

    `considered` are the possible lowerings; see `OperatorReport` for the other arguments.
    """
    chosen = next((c for c in considered if c.lowering == lowering), None)
    return replace(
        _new_report(info, action, None),
        lowering=lowering,
        nodes_before=1 + len(absorbed) + len(between),
        nodes_after=nodes,
        function=function,
        absorbed=absorbed,
        between=between,
        declined=declined,
        notes=notes,
        estimated_us=None if chosen is None else chosen.estimated_us,
        candidates=() if chosen is None else tuple(considered),
    )


def _new_report(
    info: OperatorInfo, action: Action, reason: str | None, code: Code | None = None
) -> OperatorReport:
    node = info.node
    data = (info.facts.inputs[0] if info.facts.inputs else None) or InputFacts()
    return OperatorReport(
        node=traversal.label(node),
        graph=str(info.place),
        op_type=node.op_type,
        domain=node.domain,
        dialect=info.call.dialect if info.call is not None else None,
        action=action,
        reason=reason,
        lowering=None,
        element_type=data.dtype,
        input_shape=data.shape,
        output_shape=info.output_shape,
        output=node.output[0] if node.output else "",
        nodes_before=1,
        nodes_after=1,
        code=code,
    )


def refusal(name: str, operators: Sequence[OperatorReport]) -> ConversionError:
    """Return the error for operators that cannot be converted; its code is that of the first one."""
    return ConversionError(f"{name}: {name_refused(operators)}", code=operators[0].code)


def name_refused(operators: Iterable[OperatorReport]) -> str:
    """Name each refused operator and the reason, in one line."""
    reasons = []
    for operator in operators:
        shape = "" if operator.input_shape is None else f" on {show(operator.input_shape)}"
        where = f"{operator.op_type} {operator.node!r} in {operator.graph}{shape}"
        reasons.append(f"{where}: {operator.reason}")
    return "; ".join(first_lines(reasons, _MAX_NAMED_OPERATORS))


def describe_decisions(operator: OperatorReport) -> Iterator[str]:
    """Yield what was decided about an operator and why, one line each, for logs."""
    name = f"{operator.op_type} {operator.node!r} ({operator.graph})"
    if operator.reason is not None:
        yield f"{name}: {operator.action}: {operator.reason}"
    else:
        nodes = f"{operator.nodes_before} -> {operator.nodes_after} nodes"
        yield f"{name}: {operator.action}: {operator.lowering or operator.function}, {nodes}"
    if len(operator.candidates) > 1:
        costs = (f"{c.lowering} {c.estimated_us:.1f} us" for c in operator.candidates)
        yield f"{name}: considered {', '.join(costs)}"
    for reason in operator.declined:
        yield f"{name}: not fused: {reason}"
    for note in operator.notes:
        yield f"{name}: {note}"
