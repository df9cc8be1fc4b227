"""From findings to an edited model: lower every operator that can be, say of each what was done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from onnx_spatial import facts
from onnx_spatial.errors import ConversionError, ModelFileError, UsageError
from onnx_spatial.graph import edit, patch, value_info, walk
from onnx_spatial.graph.names import Names
from onnx_spatial.graph.outline import outline
from onnx_spatial.lowering import Request, lower
from onnx_spatial.ops import Dim
from onnx_spatial.ops.shapes import show

#: The opset that a model gets that imports none, with the first IR version that goes with it.
_DEFAULT_OPSETS = ((8, 17), (7, 13), (6, 11))


#: Refused sites that one message names.
_SHOWN = 10


@dataclass(frozen=True)
class Site:
    """One spatial operator of a model: where it is, what it asks for, what is done with it.

    Attributes:
        node: name of the node, or <its output> if it has none.
        graph: graph that holds it, in words.
        op_type, domain: as in the file.
        dialect: which spelling it is; None if it is not converted.
        action: "lower", "refuse" (it breaks a rule or cannot be expressed) or "leave" (its domain
            is not known to hold these operators, or it stands in a function that nothing calls).
        reason: why it is refused or left; None if it is lowered.
        strategy: which lowering was taken.
        element_type: of the data, numpy's name; None if unknown or not one.
        input_shape, output_shape: as far as they are known.
        output: name of the value it gives.
        nodes_before, nodes_after: nodes in the model that stand for it.
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

    def to_dict(self) -> dict[str, object]:
        """The attributes, shapes as lists with None for unknown dims."""
        result: dict[str, object] = dict(vars(self))
        for key in ("input_shape", "output_shape"):
            shape = getattr(self, key)
            result[key] = None if shape is None else list(shape)
        return result


@dataclass
class Plan:
    """A model with every operator lowered that can be.

    Attributes:
        sites: all operators found, in the order of the file.
        model: the converted model; None if nothing was to do.
        touched: what differs from the original, by kind.
    """

    sites: list[Site]
    model: onnx.ModelProto | None = None
    touched: dict[str, list[str]] = field(default_factory=dict)

    def refused(self, *, strict: bool = False) -> list[Site]:
        """Sites that cannot be converted; with `strict` also those that are left alone."""
        actions = {"refuse", "leave"} if strict else {"refuse"}
        return [s for s in self.sites if s.action in actions]


def make_plan(
    proto: onnx.ModelProto,
    *,
    domains: Iterable[str] = (),
    max_rank: int | None = None,
    strategy: str | None = None,
    folder: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> Plan:
    """Lower the operators of `proto`, which stays as it is.

    Args:
        proto: the model.
        domains: operator domains of the user's own.
        max_rank: largest rank of any new tensor.
        strategy: force this lowering wherever it applies.
        folder: where external data lies.
        progress: called with a line of text now and then.

    Raises:
        ModelFileError: the graph contradicts itself.
    """
    try:
        return _make_plan(proto, domains, max_rank, strategy, folder, progress or (lambda _: None))
    except UnicodeDecodeError:
        raise ModelFileError("the model is damaged: a name in it is not UTF-8 text") from None
    except DecodeError as error:  # protobuf copies by writing and reading
        raise ModelFileError(
            f"the model is damaged: a message in it is no legal one: {error}"
        ) from None


def _make_plan(
    proto: onnx.ModelProto,
    domains: Iterable[str],
    max_rank: int | None,
    strategy: str | None,
    folder: Path | None,
    progress: Callable[[str], None],
) -> Plan:
    findings = facts.find(proto, domains, folder)
    if not any(f.known_domain for f in findings):
        return Plan([_site(f) for f in findings])
    model = _deserialize(proto)
    paired = list(walk.ir_nodes(model))
    changes = patch.Patch(proto, model)
    names = Names(proto)
    opset = _default_opset(proto)
    sites = []
    for count, finding in enumerate(findings, start=1):
        progress(f"lowering {count}/{len(findings)}: {walk.label(finding.node)}")
        sites.append(
            _lower(finding, paired[finding.index], names, proto, opset, max_rank, strategy)
        )
    plan = Plan(sites)
    if not any(s.action == "lower" for s in sites):
        return plan
    try:
        plan.model = changes.apply()
    except ir.serde.SerdeError as error:
        raise ModelFileError(f"the graph cannot be written: {_cause(error)}") from None
    lowered = [f for f, s in zip(findings, sites, strict=True) if s.action == "lower"]
    dropped = patch.adjust_imports(plan.model, [(f.place, f.node.domain) for f in lowered], opset)
    plan.touched = _touched(proto, plan.model, lowered, dropped)
    return plan


def _deserialize(proto: onnx.ModelProto) -> ir.Model:
    try:
        return ir.from_proto(outline(proto))
    except UnicodeDecodeError:
        raise  # said in the words of `make_plan`
    except Exception as error:  # onnx_ir raises many types for graphs that contradict themselves
        raise ModelFileError(f"the graph cannot be read: {_cause(error)}") from None


def _cause(error: BaseException) -> str:
    """The first line of the innermost message; the outer ones quote whole graphs."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).splitlines() or [type(error).__name__])[0]


def _default_opset(proto: onnx.ModelProto) -> int:
    for imported in proto.opset_import:
        if imported.domain in ("", "ai.onnx"):
            return int(imported.version)
    return next(
        (opset for ir_version, opset in _DEFAULT_OPSETS if proto.ir_version >= ir_version), 11
    )


def _lower(
    finding: facts.Finding,
    node: ir.Node,
    names: Names,
    proto: onnx.ModelProto,
    opset: int,
    max_rank: int | None,
    strategy: str | None,
) -> Site:
    if finding.call is None:
        return _site(finding)
    request = Request(
        finding.call,
        tuple(node.inputs),
        _shape(finding),
        finding.element_types,
        tuple(_element_type(i.dtype if i is not None else None) for i in finding.facts.inputs),
        finding.opset or opset,
    )
    try:
        try:
            lowered = lower(request, max_rank=max_rank, strategy=strategy)
        except ConversionError:
            if strategy is None:
                raise
            lowered = lower(request, max_rank=max_rank)
    except ConversionError as error:
        finding.error = str(error)
        return _site(finding)
    emitted = lowered.emitted
    # Files older than IR 4 list every initializer as an input too; functions have none at all.
    initializers = proto.ir_version >= 4 and finding.place.function is None
    edit.splice(
        node, emitted.nodes, lowered.output, emitted.constants, names, initializers=initializers
    )
    count = len(emitted.nodes) + (0 if initializers else len(emitted.constants))
    return _site(finding, lowered.strategy, count)


def _shape(finding: facts.Finding) -> tuple[Dim, ...] | None:
    assert finding.call is not None
    data = finding.facts.inputs[0]
    if data is not None and data.shape is not None:
        return data.shape
    return None if finding.call.rank is None else (None,) * finding.call.rank


def _element_type(dtype: str | None) -> int | None:
    if dtype is None:
        return None
    return next(
        (t for t in onnx.TensorProto.DataType.values() if t and facts.dtype_name(t) == dtype), None
    )


def _site(finding: facts.Finding, strategy: str | None = None, nodes_after: int = 1) -> Site:
    node = finding.node
    if not finding.known_domain:
        action = "leave"
        reason: str | None = (
            f"domain {node.domain!r} is not known to hold this operator; "
            f"accept it with --domain {node.domain}"
        )
    elif finding.error is not None and finding.dead:
        action, reason = "leave", f"the function is never called, and {finding.error}"
    elif strategy is None:
        action, reason = "refuse", finding.error
    else:
        action, reason = "lower", None
    data = finding.facts.inputs[0] if finding.facts.inputs else None
    return Site(
        node=walk.label(node),
        graph=str(finding.place),
        op_type=node.op_type,
        domain=node.domain,
        dialect=finding.call.dialect if finding.call is not None else None,
        action=action,
        reason=reason,
        strategy=strategy,
        element_type=data.dtype if data is not None else None,
        input_shape=data.shape if data is not None else None,
        output_shape=finding.output_shape,
        output=node.output[0] if node.output else "",
        nodes_before=1,
        nodes_after=nodes_after,
    )


def _touched(
    original: onnx.ModelProto,
    converted: onnx.ModelProto,
    lowered: list[facts.Finding],
    dropped: list[str],
) -> dict[str, list[str]]:
    known: dict[walk.Place, dict[str, onnx.TypeProto]] = {}
    for finding in lowered:
        declared = onnx.TypeProto()
        if len(finding.element_types) == 1:
            (element_type,) = finding.element_types
            declared = onnx.helper.make_tensor_type_proto(element_type, finding.output_shape)
        known.setdefault(finding.place, {})[finding.node.output[0]] = declared
    given = {name for _, _, node in walk.nodes(original) for name in node.output}
    before = {t.name for _, g in walk.graphs(original) for t in getattr(g, "initializer", ())}
    named = {node.name for _, _, node in walk.nodes(original)}
    return {
        "nodes_replaced": [walk.label(f.node) for f in lowered],
        "nodes_added": [
            n.name
            for _, _, n in walk.nodes(converted)
            if n.name not in named and any(p.key == edit.ORIGIN for p in n.metadata_props)
        ],
        "initializers_added": [
            t.name
            for _, g in walk.graphs(converted)
            for t in getattr(g, "initializer", ())
            if t.name not in before
        ],
        "value_info_changed": value_info.renew(converted, known, given),
        "opset_imports_removed": dropped,
    }


def freeze(proto: onnx.ModelProto, sizes: Mapping[str, int]) -> onnx.ModelProto:
    """A copy with the named symbolic dims fixed.

    Raises:
        UsageError: the model has no dim of that name.
    """
    copy, missing = patch.freeze(proto, dict(sizes))
    if missing:
        names = ", ".join(sorted(missing))
        raise UsageError(f"the model has no symbolic dim named {names}")
    return copy


def refusals(sites: Iterable[Site]) -> str:
    """One line that names each refused site and the reason."""
    parts = []
    all_sites = list(sites)
    for site in all_sites[:_SHOWN]:
        shape = "" if site.input_shape is None else f" on {show(site.input_shape)}"
        parts.append(f"{site.op_type} {site.node!r} in {site.graph}{shape}: {site.reason}")
    if len(all_sites) > _SHOWN:
        parts.append(f"and {len(all_sites) - _SHOWN} more")
    return "; ".join(parts)
