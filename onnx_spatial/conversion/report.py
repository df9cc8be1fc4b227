"""Report what an edit did with a model (`EditResult`) and with each of its operators (`Site`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.lowering import Candidate, Lowered, Request
from onnx_spatial.model import traversal
from onnx_spatial.operators import Dim
from onnx_spatial.operators.shapes import show

#: Refused sites that one message names.
_SHOWN = 10

#: `Site.reason` of a node that mode "custom-op" has nothing to do with.
PREPARED = "it is in the form that the registered operators run"

#: `Site.dialect` of a convolution that ONNX allows and onnxruntime refuses (`legalise`).
AUTO_PAD = "onnx auto_pad"


#: Writes an operator as nodes. Raises ConversionError where that cannot be done.
Writer = Callable[[Request, OperatorInfo], Lowered]


@dataclass(frozen=True)
class Site:
    """One spatial operator of a model, or a convolution that onnxruntime refuses to run.

    Attributes:
        node: name of the node, or <its output> if it has none.
        graph: graph that holds it, in words.
        op_type, domain: as in the file.
        dialect: which spelling it is; None if it is not converted. `AUTO_PAD` for a convolution with
            auto_pad SAME and dilations, whose action is "lower" in all modes.
        action: the mode of the conversion: "lower", "function" (a local function says what it means)
            or "custom-op" (a Python operator runs it); or "refuse" (it breaks a rule or cannot be
            expressed) or "leave" (its domain is not known to hold these operators, it stands in a
            function that nothing calls, or it is in the form asked for).
        reason: why it is refused or left; None if it is converted.
        strategy: which lowering was taken, "cancelled" for two opposite operators, "strided convolution"
            for patches that became one, "explicit-pads" for a convolution that is refused; None if it
            is not converted.
        element_type: of the data, numpy's name; None if unknown or not one.
        input_shape, output_shape: as far as they are known.
        output: name of the value it gives.
        nodes_before, nodes_after: nodes that stand for it, those of its function's body and those in
            `absorbed` included. Of operators that are written as one the first has all nodes_after.
        function: local function of ours that it calls, as domain:name, before or after; None if it
            calls none. op_type and domain are those that it had before it called one.
        estimated_us: what the lowering that was taken should take in one run, in microseconds; None
            where none was chosen (refused, left, modes other than "lower").
        measured_us: what it took on this machine; None unless that was asked for, and where it could
            not be measured.
        candidates: the lowerings that there were to choose from, cheapest estimate first.
        absorbed: labels of the nodes around it that became part of it: Transposes, and what made sums
            of patches.
        declined: why what stands around it did not, one line for each rule of `fusion`.
        between: of the end of a region that works without the blocks now, labels of the nodes of the
            region; they count in `nodes_before` and `nodes_after`.
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
    measured_us: float | None = None
    candidates: tuple[Candidate, ...] = ()
    absorbed: tuple[str, ...] = ()
    declined: tuple[str, ...] = ()
    between: tuple[str, ...] = ()

    @property
    def spatial(self) -> bool:
        """Whether it is a spatial operator, and not a convolution."""
        return self.dialect != AUTO_PAD

    @property
    def converted(self) -> bool:
        """Whether something else stands in its place now."""
        return self.strategy is not None

    @property
    def unknown_domain(self) -> bool:
        """Whether it is left because its domain is not known to hold these operators."""
        return self.action == "leave" and self.reason == _unknown(self.domain)

    @property
    def left_over(self) -> bool:
        """Whether nothing stands in its place although it is not in the form asked for."""
        return self.action == "leave" and self.reason != PREPARED

    def to_dict(self) -> dict[str, object]:
        """The attributes, tuples as lists, None for unknown dims, candidates as dicts."""
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


def left(info: OperatorInfo, *, done: str | None = None, function: str | None = None) -> Site:
    """A site that stays as it is: refused, in an unknown domain, or in the form asked for.

    Args:
        info: the operator.
        done: why nothing is to do; None if something is wrong with it.
        function: local function of ours that it calls.
    """
    domain = info.node.domain
    if not info.known_domain:
        reason: str | None = _unknown(domain)
    elif done is not None:
        reason = done
    elif info.error is not None and info.dead:
        reason = f"the function is never called, and {info.error}"
    else:
        return _site(info, "refuse", info.error, function=function)
    return _site(info, "leave", reason, function=function)


def _unknown(domain: str) -> str:
    return f"domain {domain!r} is not known to hold this operator; accept it with --domain {domain}"


def converted(
    info: OperatorInfo,
    action: str,
    strategy: str,
    nodes: int,
    function: str | None = None,
    *,
    absorbed: tuple[str, ...] = (),
    declined: tuple[str, ...] = (),
    between: tuple[str, ...] = (),
    considered: Sequence[Candidate] = (),
) -> Site:
    """A site that something else stands for now.

    Args:
        info: the operator.
        action: the mode of the conversion.
        strategy: which lowering was taken.
        nodes: how many nodes stand for it.
        function: local function that it calls or called.
        absorbed: labels of the nodes around it that became part of it.
        declined: why others did not.
        between: labels of the nodes of a region that it ends.
        considered: the lowerings that there were to choose from.
    """
    found = _site(info, action, None, strategy, nodes, function)
    taken = next((c for c in considered if c.strategy == strategy), None)
    return replace(
        found,
        nodes_before=found.nodes_before + len(absorbed) + len(between),
        absorbed=absorbed,
        between=between,
        declined=declined,
        estimated_us=None if taken is None else taken.estimated_us,
        measured_us=None if taken is None else taken.measured_us,
        candidates=() if taken is None else tuple(considered),
    )


def _site(
    info: OperatorInfo,
    action: str,
    reason: str | None,
    strategy: str | None = None,
    nodes: int = 1,
    function: str | None = None,
) -> Site:
    node = info.node
    data = info.facts.inputs[0] if info.facts.inputs else None
    return Site(
        node=traversal.label(node),
        graph=str(info.place),
        op_type=node.op_type,
        domain=node.domain,
        dialect=info.call.dialect if info.call is not None else None,
        action=action,
        reason=reason,
        strategy=strategy,
        element_type=data.dtype if data is not None else None,
        input_shape=data.shape if data is not None else None,
        output_shape=info.output_shape,
        output=node.output[0] if node.output else "",
        nodes_before=1,
        nodes_after=nodes,
        function=function,
    )


def refusals(sites: Iterable[Site]) -> str:
    """One line that names each refused site and the reason."""
    every = list(sites)
    parts = []
    for site in every[:_SHOWN]:
        shape = "" if site.input_shape is None else f" on {show(site.input_shape)}"
        parts.append(f"{site.op_type} {site.node!r} in {site.graph}{shape}: {site.reason}")
    if len(every) > _SHOWN:
        parts.append(f"and {len(every) - _SHOWN} more")
    return "; ".join(parts)
