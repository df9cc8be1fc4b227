"""Replace spatial operators by standard nodes, the body of a function, or a Python operator.

Rules of `fusion` may rewrite the nodes around an operator with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import onnx
import onnx_ir as ir

from onnx_spatial.analysis import Analysis, OperatorInfo
from onnx_spatial.conversion import report
from onnx_spatial.conversion.dilated_conv import fuse_dilated_convs
from onnx_spatial.conversion.graph_editor import ModelEditor
from onnx_spatial.conversion.graph_layouts import improve_layouts
from onnx_spatial.conversion.local_functions import INTEGER_CONSTANT
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.conversion.report import EditResult
from onnx_spatial.errors import Code, ConversionError
from onnx_spatial.fusion import RULES, MatchedOp, Matcher, Reason, Rewrite, Rule, Writer
from onnx_spatial.lowering import Lowered, Request
from onnx_spatial.model import traversal
from onnx_spatial.model.graph import replace_nodes


def replace_operators(
    proto: onnx.ModelProto,
    known: Analysis,
    infos: Sequence[OperatorInfo],
    write: Writer,
    options: ConvertOptions,
    *,
    opset: int,
    progress: Callable[[str], None],
) -> EditResult:
    """Replace every operator that can be converted by what `write` makes of it; `proto` stays as it is.

    If the options fuse, dilated convolutions are fused first, and then the rules of `fusion` are tried
    before `write`.

    Args:
        proto: the model.
        known: its spatial operators.
        infos: those to replace.
        write: writes one on its own.
        options: how the model is converted.
        opset: version of the default domain where it is not imported.
        progress: called with a line of text for each operator.

    Returns:
        What was done. The edited model has the old opset imports and declared types; there is none if no
        operator could be replaced.

    Raises:
        ModelFileError: the graph contradicts itself.
    """

    def subject(info: OperatorInfo, node: ir.Node) -> MatchedOp | None:
        call, facts = info.call, info.facts
        if call is None:
            return None
        version = info.opset or opset
        request = Request.of(call, facts, node.inputs, info.element_types, version)
        return MatchedOp(info, node, replace(request, checked=options.checked))

    rules = RULES if options.fuses else ()
    model = ModelEditor(proto, known, subject)
    result = model.result
    if rules:
        progress("converting 2/3: dilated convolutions")
        fuse_dilated_convs(model)
    edited, fused = bool(result.operator_at), dict[int, list[ir.Node]]()
    for count, info in enumerate(infos, start=1):
        progress(f"lowering {count}/{len(infos)}: {traversal.label(info.node)}")
        matched = model.subjects.get(info.index)
        if info.index in result.operator_at or matched is None:
            result.operator_at.setdefault(info.index, report.left(info))
            continue
        try:
            made = _replace_one(matched, model, write, rules, options.mode)
        except ConversionError as error:
            info.refuse(error)
            result.operator_at[info.index] = report.left(info)
            continue
        edited = True
        if result.operator_at[info.index].action == "fuse":
            fused[info.index] = made
    for index, made in fused.items():
        model.matcher.adopt_nodes(made, model.nodes[index])
    progress("converting 3/3: layouts")
    improve_layouts(model, fused)
    return model.finish() if edited else result


def _replace_one(
    subject: MatchedOp,
    model: ModelEditor,
    write: Writer,
    rules: Sequence[Rule[Any]],
    mode: report.Action,
) -> list[ir.Node]:
    """Replace one operator, report what was done, and return the new nodes.

    Raises:
        ConversionError: it cannot be converted; nothing is changed.
    """
    info, operator_at = subject.info, model.result.operator_at
    rewrite, declined = _find_rewrite(subject, model.matcher, write, rules)
    _check_constants(info, subject, rewrite.lowered)
    absorbed = tuple(traversal.label(node) for node in rewrite.absorbed)
    made = _carry_out(rewrite, model)
    lowering = rewrite.lowered.strategy
    action: report.Action = "fuse" if any(rule.name == lowering for rule in rules) else mode
    considered = rewrite.lowered.considered if action == "lower" else ()
    for part in rewrite.subjects[1:]:
        operator_at[part.info.index] = report.converted(
            part.info, action, lowering, 0, considered=considered
        )
    operator_at[info.index] = report.converted(
        info,
        action,
        lowering,
        len(made),
        absorbed=absorbed,
        declined=(*model.result.declined.get(info.index, ()), *declined),
        considered=considered,
    )
    return made


def _check_constants(info: OperatorInfo, subject: MatchedOp, lowered: Lowered) -> None:
    """Check that the constants of a lowering can be Constant nodes if the operator is in a function.

    Raises:
        ConversionError: they cannot.
    """
    opset = subject.request.opset
    if info.place.function and opset < INTEGER_CONSTANT and lowered.emitted.constants:
        raise ConversionError(
            f"the opset of its function is {opset}; integer constants in a function need "
            f"{INTEGER_CONSTANT} (inline the function first with onnx.inliner.inline_local_functions)",
            code=Code.OPSET_TOO_OLD,
        )


def _find_rewrite(
    subject: MatchedOp,
    matcher: Matcher,
    write: Writer,
    rules: Sequence[Rule[Any]],
) -> tuple[Rewrite, tuple[Reason, ...]]:
    """Apply the first rule that does not decline, else lower the operator on its own."""
    # Its inputs may have changed since the operators were listed.
    request = replace(subject.request, inputs=tuple(subject.node.inputs))
    subject = replace(subject, request=request)
    declined: list[Reason] = []
    for rule in rules:
        answer = rule.apply_to(subject, matcher, lambda request: write(request, subject.info))
        if isinstance(answer, Rewrite):
            return answer, tuple(declined)
        if answer is not None:
            declined.append(answer)
    return Rewrite.lower_alone(write(subject.request, subject.info), subject), tuple(declined)


def _carry_out(rewrite: Rewrite, model: ModelEditor) -> list[ir.Node]:
    """Edit the graph, note the values that are new or lost, and return the new nodes."""
    edit, first = rewrite.edit, rewrite.subjects[0].info
    outputs = [value.name for value in rewrite.outputs if value.name]
    kept = {value.name for draft in edit.drafts for value in draft.results}
    gone = [*(draft.node for draft in edit.drafts), *edit.removed]
    old = {v.name for node in gone for v in node.outputs if v.name}
    model.result.note_outputs(first, outputs, rewrite.shape)
    model.result.lost.setdefault(first.place, set()).update(old - kept)
    initializers = model.has_initializers(first.place)
    made = replace_nodes.apply_edit(edit, model.names, initializers=initializers)
    return [node for nodes in made.values() for node in nodes]
