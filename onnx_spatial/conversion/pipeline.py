"""From a model to the converted model, in whatever form is asked for, and what was done with each site.

    lower       standard nodes in the place of the operator
    function    the operator stays, a local function says what it means (`wrapping`)
    custom-op   a Python operator with what it needs around it (a writer that the caller brings)

Whatever form a model has already is undone first: any form becomes any other. What else onnxruntime
would refuse to run, and an edit puts right, is put right in all of them (`add_explicit_pads`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from pkgutil import resolve_name

import onnx
from google.protobuf.message import DecodeError

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.conversion import report
from onnx_spatial.conversion.changes import KINDS, diff_models
from onnx_spatial.conversion.local_functions import (
    STRATEGY,
    WithoutForm,
    add_functions,
    inlined,
    without_earlier_form,
)
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.conversion.replace import Writer, replace_operators
from onnx_spatial.conversion.report import Site, refusals
from onnx_spatial.conversion.same_padding.explicit_pads import add_explicit_pads
from onnx_spatial.errors import ModelFileError, UsageError
from onnx_spatial.fusion import Rewritten
from onnx_spatial.lowering import Lowered, Request, lower_preferring
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph import patch_proto
from onnx_spatial.operators.spellings import python_ops

__all__ = [
    "Plan",
    "Site",
    "Writer",
    "freeze",
    "make_plan",
    "refusals",
]

Progress = Callable[[str], None]

#: The `Writer` of a mode whose module is in a row above this one, as "module:attribute".
WRITERS = {"custom-op": "onnx_spatial.custom_ops.prepared:write"}


@dataclass
class Plan:
    """A model with every operator converted that can be.

    Attributes:
        sites: all operators found, and convolutions that onnxruntime refuses, in the order of the
            file.
        model: the converted model; None if nothing was to do.
        touched: what differs from the original, by kind.
    """

    sites: list[Site]
    model: onnx.ModelProto | None = None
    touched: dict[str, list[str]] = field(default_factory=dict)

    def refused(self, *, strict: bool = False) -> list[Site]:
        """Sites that cannot be converted; with `strict` also those left in a form not asked for."""
        return [s for s in self.sites if s.action == "refuse" or (strict and s.left_over)]


def make_plan(
    proto: onnx.ModelProto,
    options: ConvertOptions | None = None,
    *,
    choose: Writer | None = None,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Convert the operators of `proto`, which stays as it is.

    Args:
        proto: the model.
        options: how they are converted; None for the defaults.
        choose: chooses the lowerings of mode "lower" in the place of the estimated costs; raises
            ConversionError where there is none.
        folder: where external data lies.
        progress: called with a line of text now and then.

    Raises:
        ModelFileError: the graph contradicts itself.
    """
    options = options or ConvertOptions()
    try:
        before = without_earlier_form(proto, groups_too=options.mode != "custom-op")
        infos = analysis.find(before.model, before.domains.union(options.domains), folder)
        if options.action == "function":
            plan = _with_functions(proto, before, infos, options)
        else:
            write = _writer(options, before, choose)
            plan = _spliced(proto, before, infos, write, options, folder, progress)
        return _legal(plan, proto, before, infos, folder)
    except UnicodeDecodeError:
        raise ModelFileError("the model is damaged: a name in it is not UTF-8 text") from None
    except DecodeError as error:  # protobuf copies by writing and reading
        raise ModelFileError(
            f"the model is damaged: a message in it is no legal one: {error}"
        ) from None


def _writer(options: ConvertOptions, before: WithoutForm, choose: Writer | None) -> Writer:
    """How an operator is written in nodes."""
    if options.action in WRITERS:
        found: Writer = resolve_name(WRITERS[options.action])
        return found

    def lower(request: Request, info: OperatorInfo) -> Lowered:
        body = before.functions.get(info.index) if options.inline else None
        if body is not None:
            return inlined(body, info.node, request.inputs, request.opset)
        if choose is not None:
            return choose(request, info)
        return lower_preferring(request, options.strategy, options.max_rank)

    return lower


def _spliced(
    given: onnx.ModelProto,
    before: WithoutForm,
    infos: list[OperatorInfo],
    write: Writer,
    options: ConvertOptions,
    folder: Path | None,
    progress: Progress | None,
) -> Plan:
    custom = options.action == "custom-op"
    done = report.PREPARED if custom else None
    ready = [f for f in infos if custom and f.node.domain == python_ops.DOMAIN and f.error is None]
    todo = [f for f in infos if f not in ready]
    if not any(f.known_domain for f in todo):
        return Plan([report.left(f, done=done if f in ready else None) for f in infos])
    opset = _default_opset(given)
    spliced = replace_operators(
        before.model,
        todo,
        write,
        options,
        opset=opset,
        folder=folder,
        progress=progress or (lambda _: None),
    )
    by_index = {f.index: s for f, s in zip(todo, spliced.sites, strict=True)}
    by_index |= {f.index: report.left(f, done=done) for f in ready}
    functions = {i: _name(f) for i, f in before.functions.items()}
    plan = Plan([replace(by_index[f.index], function=functions.get(f.index)) for f in infos])
    if spliced.model is None:
        return plan
    changed = [f for f in todo if by_index[f.index].converted]
    if custom:
        patch_proto.import_where_used(spliced.model, python_ops.DOMAIN)
    return _finished(plan, given, spliced.model, changed, opset, spliced.rewritten)


def _with_functions(
    given: onnx.ModelProto,
    before: WithoutForm,
    infos: list[OperatorInfo],
    options: ConvertOptions,
) -> Plan:
    todo = (f for f in infos if f.known_domain and f.index not in before.functions)
    # Dead functions may hold operators that only their callers could complete: they are left.
    asked = options.max_rank is not None or options.strategy is not None or options.checked
    if all(f.dead and f.error for f in todo) and not asked:
        return Plan([_called(f, before) for f in infos])
    model = onnx.ModelProto()
    model.CopyFrom(before.model)
    opset = _default_opset(given)
    attached = add_functions(model, infos, options, opset=opset)
    plan = Plan([])
    for info in infos:
        found = attached.get(info.index)
        plan.sites.append(
            report.left(info)
            if found is None
            else report.converted(info, "function", found.strategy, found.nodes, found.function)
        )
    changed = [f for f in infos if f.index in attached]
    if not changed:
        return plan
    finished = _finished(plan, given, model, changed, opset)
    return Plan(plan.sites) if before.removed and model == given else finished


def _called(info: OperatorInfo, before: WithoutForm) -> Site:
    """A site of a model that has its functions already."""
    function = before.functions.get(info.index)
    if function is None:
        return report.left(info)
    found = report.converted(info, "function", STRATEGY, len(function.node), _name(function))
    return replace(found, strategy=None)


def _legal(
    plan: Plan,
    given: onnx.ModelProto,
    before: WithoutForm,
    infos: Sequence[OperatorInfo],
    folder: Path | None,
) -> Plan:
    """The plan with the convolutions put right that onnxruntime refuses."""
    opset = _default_opset(given)
    made = add_explicit_pads(given if plan.model is None else plan.model, opset, folder)
    if not made.sites:
        return plan
    positions = {
        (place, tuple(node.output)): index
        for index, (place, _, node) in enumerate(traversal.nodes(before.model))
    }
    last = len(positions)
    found = [(f.index, s) for f, s in zip(infos, plan.sites, strict=True)]
    found += [(positions.get(where, last), s) for where, s in made.sites.items()]
    plan.sites = [s for _, s in sorted(found, key=lambda pair: pair[0])]
    if made.model is not None:
        patch_proto.adjust_imports(made.model, (), opset)
        plan.model = made.model
        touched = {kind: list[str]() for kind in KINDS} | plan.touched
        touched["nodes_changed"] += made.replaced
        touched["nodes_added"] += made.nodes
        touched["initializers_added"] += made.initializers
        plan.touched = touched
    return plan


def _finished(
    plan: Plan,
    given: onnx.ModelProto,
    model: onnx.ModelProto,
    changed: list[OperatorInfo],
    opset: int,
    rewritten: Sequence[Rewritten] = (),
) -> Plan:
    """The plan with its model, whose imports and declared types are brought up to date."""
    patch_proto.adjust_imports(model, [(f.place, f.node.domain) for f in changed], opset)
    plan.touched = diff_models(given, model, changed, rewritten)
    plan.model = model
    return plan


def _name(function: onnx.FunctionProto) -> str:
    return f"{function.domain}:{function.name}"


def _default_opset(proto: onnx.ModelProto) -> int:
    imported = op_traits.opset_of(proto.opset_import)
    return op_traits.assumed_opset(proto.ir_version) if imported is None else imported


def freeze(proto: onnx.ModelProto, sizes: Mapping[str, int]) -> onnx.ModelProto:
    """A copy with the named symbolic dims fixed.

    Raises:
        UsageError: the model has no dim of that name.
    """
    copy, missing = patch_proto.freeze(proto, dict(sizes))
    if missing:
        names = ", ".join(sorted(missing))
        raise UsageError(f"the model has no symbolic dim named {names}")
    return copy
