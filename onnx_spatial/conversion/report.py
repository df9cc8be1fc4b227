"""Report what an edit did with a model (`EditResult`) and with each of its operators (`Site`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.errors import Code, ConversionError
from onnx_spatial.lowering import Candidate
from onnx_spatial.model import traversal
from onnx_spatial.operators import Dim, Rearrange
from onnx_spatial.operators.shapes import show
from onnx_spatial.operators.spellings import InputFacts

#: Most refused operators that one message names.
_SHOWN = 10

#: `Site.reason` of a node that mode "custom-op" leaves as it is.
PREPARED = "it is in the form that the registered operators run"

#: `Site.dialect` of a convolution that ONNX allows and onnxruntime refuses (`same_padding`).
AUTO_PAD = "onnx auto_pad"

#: `Site.dialect` of a chain of standard nodes that is a spatial operator (`onnx_spatial.chains`).
CHAIN = "standard nodes"


@dataclass(frozen=True)
class Site:
    """Report of a spatial operator, or of a convolution that onnxruntime refuses to run.

    Attributes:
        node: name of the node, or <its output> if it has none.
        graph: graph that holds it, in words.
        op_type, domain: as in the file.
        dialect: its spelling; None if unknown. `AUTO_PAD` for a convolution with auto_pad SAME and
            dilations, whose action is "lower" in all modes.
        action: the mode of the conversion: "lower", "function" (a local function defines it) or
            "custom-op" (a Python operator runs it); "refuse" (it breaks a rule or cannot be
            expressed); "leave" (its domain is not accepted for these operators, nothing calls the
            function around it, or it is in the form of the mode already).
        reason: why it is refused or left; None if it is converted.
        strategy: the lowering, or the name of a fusion rule ("dilated convolution", "unblocked",
            "cancelled", "strided convolution"), or "explicit-pads"; None if it is not converted.
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
        notes: what differs from the original, for which inputs, one sentence each.
    """

    node: str
    graph: str
    op_type: str
    domain: str
    dialect: str | None
    action: str
    reason: str | None
    strategy: str | None
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
    notes: tuple[str, ...] = ()
    code: Code | None = None

    @property
    def spatial(self) -> bool:
        """Whether it is a spatial operator, and not a convolution."""
        return self.dialect != AUTO_PAD

    @property
    def converted(self) -> bool:
        """Whether it is replaced."""
        return self.strategy is not None

    @property
    def unknown_domain(self) -> bool:
        """Whether it is left because its domain is not accepted for its operator."""
        return self.action == "leave" and self.reason == _unknown(self.domain)

    @property
    def left_over(self) -> bool:
        """Whether it is left although it is not in the form of the mode."""
        return self.action == "leave" and self.reason != PREPARED

    @property
    def above_limit(self) -> bool:
        """Whether it is a chain that stays although a limit asks for another one."""
        return self.dialect == CHAIN and self.op_type == Rearrange.name and not self.converted

    def to_dict(self) -> dict[str, object]:
        """Return the attributes, tuples as lists, None for unknown dims, candidates as dicts."""
        result = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(self).items()}
        result["candidates"] = [dict(vars(candidate)) for candidate in self.candidates]
        return result


@dataclass
class EditResult:
    """Result of an edit of a model, as onnx_ir's PassResult: the model, if it changed, and a report.

    Attributes:
        model: the edited model; None if nothing changed.
        site_at: each operator and what was done with it, by its position in `traversal.nodes`.
        touched: what differs from the model before the edit, by kind (`changes.KINDS`).
        declined: why fusion rules left an operator as it is, by position.
        types: types of the values that new nodes compute, by graph and name.
        lost: names of the values that no node computes any more, by graph.
    """

    model: onnx.ModelProto | None = None
    site_at: dict[int, Site] = field(default_factory=dict)
    touched: dict[str, list[str]] = field(default_factory=dict)
    declined: dict[int, tuple[str, ...]] = field(default_factory=dict)
    types: dict[traversal.Place, dict[str, onnx.TypeProto]] = field(default_factory=dict)
    lost: dict[traversal.Place, set[str]] = field(default_factory=dict)

    @property
    def sites(self) -> list[Site]:
        """The operators in the order of the file."""
        return [self.site_at[index] for index in sorted(self.site_at)]

    def refused(self, *, strict: bool = False) -> list[Site]:
        """Sites that cannot be converted; with `strict` also those left in a form not asked for."""
        return [s for s in self.sites if s.action == "refuse" or (strict and s.left_over)]

    def note_outputs(
        self, info: OperatorInfo, names: Iterable[str], shape: tuple[Dim, ...] | None
    ) -> None:
        """Note the values that new nodes compute in the place of an operator, and their type."""
        declared = onnx.TypeProto()
        if len(info.element_types) == 1:
            (element_type,) = info.element_types
            declared = onnx.helper.make_tensor_type_proto(element_type, shape)
        self.types.setdefault(info.place, {}).update(dict.fromkeys(names, declared))


def left(info: OperatorInfo, *, done: str | None = None, code: Code | None = None) -> Site:
    """Report an operator that stays: refused, in an unknown domain, or for the reason `done`.

    `code` is the code of `done`.
    """
    if not info.known_domain:
        return _site(info, "leave", _unknown(info.node.domain), Code.UNKNOWN_DOMAIN)
    if done is not None:
        return _site(info, "leave", done, code)
    if info.error is not None and info.dead:
        reason = f"the function is never called, and {info.error}"
        return _site(info, "leave", reason, info.error_code)
    return _site(info, "refuse", info.error, info.error_code)


def _unknown(domain: str) -> str:
    return f"domain {domain!r} is not accepted for this operator; use --domain {domain}"


def converted(
    info: OperatorInfo,
    action: str,
    strategy: str | None,
    nodes: int,
    function: str | None = None,
    *,
    absorbed: tuple[str, ...] = (),
    declined: tuple[str, ...] = (),
    between: tuple[str, ...] = (),
    considered: Sequence[Candidate] = (),
) -> Site:
    """Report an operator that is replaced by a number of nodes; see `Site` for the other arguments.

    `considered` are the possible lowerings.
    """
    chosen = next((c for c in considered if c.strategy == strategy), None)
    return replace(
        _site(info, action, None),
        strategy=strategy,
        nodes_before=1 + len(absorbed) + len(between),
        nodes_after=nodes,
        function=function,
        absorbed=absorbed,
        between=between,
        declined=declined,
        estimated_us=None if chosen is None else chosen.estimated_us,
        candidates=() if chosen is None else tuple(considered),
    )


def _site(info: OperatorInfo, action: str, reason: str | None, code: Code | None = None) -> Site:
    node = info.node
    data = (info.facts.inputs[0] if info.facts.inputs else None) or InputFacts()
    return Site(
        node=traversal.label(node),
        graph=str(info.place),
        op_type=node.op_type,
        domain=node.domain,
        dialect=info.call.dialect if info.call is not None else None,
        action=action,
        reason=reason,
        strategy=None,
        element_type=data.dtype,
        input_shape=data.shape,
        output_shape=info.output_shape,
        output=node.output[0] if node.output else "",
        nodes_before=1,
        nodes_after=1,
        code=code,
    )


def refusal(name: str, sites: Sequence[Site]) -> ConversionError:
    """Return the error for operators that cannot be converted; its code is that of the first one."""
    return ConversionError(f"{name}: {refusals(sites)}", code=sites[0].code)


def refusals(sites: Iterable[Site]) -> str:
    """Name each refused operator and the reason, in one line."""
    every, parts = list(sites), []
    for site in every[:_SHOWN]:
        shape = "" if site.input_shape is None else f" on {show(site.input_shape)}"
        parts.append(f"{site.op_type} {site.node!r} in {site.graph}{shape}: {site.reason}")
    if len(every) > _SHOWN:
        parts.append(f"and {len(every) - _SHOWN} more")
    return "; ".join(parts)


def decisions(site: Site) -> Iterator[str]:
    """Yield what was decided about an operator and why, one line each, for logs."""
    name = f"{site.op_type} {site.node!r} ({site.graph})"
    if site.reason is not None:
        yield f"{name}: {site.action}: {site.reason}"
    else:
        nodes = f"{site.nodes_before} -> {site.nodes_after} nodes"
        yield f"{name}: {site.action}: {site.strategy or site.function}, {nodes}"
    if len(site.candidates) > 1:
        costs = (f"{c.strategy} {c.estimated_us:.1f} us" for c in site.candidates)
        yield f"{name}: considered {', '.join(costs)}"
    for reason in site.declined:
        yield f"{name}: not fused: {reason}"
    for note in site.notes:
        yield f"{name}: {note}"
