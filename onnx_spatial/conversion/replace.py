"""Replace spatial operators by standard nodes, the body of a function, or a Python operator.

    SpaceToBatch -> Conv -> BatchToSpace    dilated Conv        by `fusion.dilated_conv`, first
    SpaceToBatch -> Transpose               one lowering        by the other rules of `fusion`
    SpaceToBatch                            its nodes

Operators of a region stay for the next step if other nodes read their output too, or if the region
cannot be written; the reasons are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import onnx_ir as ir

from onnx_spatial.analysis import Analysis, OperatorInfo
from onnx_spatial.conversion import report
from onnx_spatial.conversion.graph_editor import GraphEditor, ModelEditor, improve_layouts
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.conversion.report import EditResult
from onnx_spatial.errors import Code, ConversionError
from onnx_spatial.fusion import RULES, MatchedOp, Matcher, Reason, Rewrite, Rule, Writer
from onnx_spatial.fusion.dilated_conv import RegionEdit, Regions, fuse_regions
from onnx_spatial.fusion.dilated_conv.region import End
from onnx_spatial.lowering import MIN_OPSET, Request
from onnx_spatial.lowering.nodes import SINCE
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators import BatchToSpace, SpaceToBatch


def replace_operators(
    analysis: Analysis,
    infos: Sequence[OperatorInfo],
    write: Writer,
    options: ConvertOptions,
    *,
    opset: int,
    progress: Callable[[str], None],
) -> EditResult:
    """Replace every operator that can be converted by what `write` makes of it.

    If the options fuse, dilated convolutions are fused first, and then the rules of `fusion` are tried
    before `write`.

    Args:
        analysis: the model, which stays as it is, and its spatial operators.
        infos: those of them to replace.
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
    model = ModelEditor(analysis, subject)
    result = model.result
    if rules:
        progress("converting 2/3: dilated convolutions")
        fuse_dilated_convs(model)
    is_edited = bool(result.operator_at)
    nodes_of_fusion: dict[int, list[ir.Node]] = {}
    for count, info in enumerate(infos, start=1):
        progress(f"lowering {count}/{len(infos)}: {traversal.label(info.node)}")
        matched = model.subjects.get(info.index)
        if info.index in result.operator_at or matched is None:
            result.operator_at.setdefault(info.index, report.left(info))
            continue
        try:
            new_nodes = _replace_one(matched, model, write, rules, options.mode)
        except ConversionError as error:
            info.refuse(error)
            result.operator_at[info.index] = report.left(info)
            continue
        is_edited = True
        if result.operator_at[info.index].action == "fuse":
            nodes_of_fusion[info.index] = new_nodes
    for index, new_nodes in nodes_of_fusion.items():
        model.matcher.adopt_nodes(new_nodes, model.nodes[index])
    progress("converting 3/3: layouts")
    improve_layouts(model, nodes_of_fusion)
    return model.finish() if is_edited else result


def _replace_one(
    subject: MatchedOp,
    model: ModelEditor,
    write: Writer,
    rules: Sequence[Rule],
    mode: report.Action,
) -> list[ir.Node]:
    """Replace one operator, report what was done, and return the new nodes.

    Raises:
        ConversionError: it cannot be converted; nothing is changed.
    """
    info, operator_at = subject.info, model.result.operator_at
    rewrite, declined = _find_rewrite(subject, model.matcher, write, rules)
    if (reason := _refuse_constants(subject, rewrite)) is not None:
        raise ConversionError(reason, code=Code.OPSET_TOO_OLD)
    absorbed = tuple(traversal.label(node) for node in rewrite.absorbed)
    nodes = _carry_out(rewrite, model)
    lowering = rewrite.name or rewrite.lowered.lowering
    action: report.Action = "fuse" if rewrite.name else mode
    considered = rewrite.lowered.considered if action == "lower" else ()
    for other in rewrite.subjects[1:]:
        operator_at[other.info.index] = report.converted(
            other.info, action, lowering, 0, considered=considered
        )
    operator_at[info.index] = report.converted(
        info,
        action,
        lowering,
        len(nodes),
        absorbed=absorbed,
        declined=(*model.result.declined.get(info.index, ()), *declined),
        considered=considered,
        notes=rewrite.lowered.notes,
    )
    return nodes


def _refuse_constants(subject: MatchedOp, rewrite: Rewrite) -> Reason | None:
    """Say why constants of a rewrite cannot be Constant nodes, as in functions; None if they can."""
    if subject.takes_constants or not rewrite.lowered.emitted.constants:
        return None
    return (
        f"the opset of its function is {subject.request.opset}; integer constants in a function need "
        f"{SINCE['integers in Constant']} (inline the function first with "
        "onnx.inliner.inline_local_functions)"
    )


def _find_rewrite(
    subject: MatchedOp,
    matcher: Matcher,
    write: Writer,
    rules: Sequence[Rule],
) -> tuple[Rewrite, tuple[Reason, ...]]:
    """Apply the first rule that does not decline, else lower the operator on its own."""
    # Its inputs may have changed since the operators were listed.
    request = replace(subject.request, inputs=tuple(subject.node.inputs))
    subject = replace(subject, request=request)
    declined: list[Reason] = []
    for rule in rules:
        answer = rule(subject, matcher, lambda request: write(request, subject.info))
        if isinstance(answer, Rewrite):
            reason = _refuse_constants(subject, answer)
            if reason is None:
                return answer, tuple(declined)
            answer = reason
        if answer is not None:
            declined.append(answer)
    return Rewrite.lower_alone(write(subject.request, subject.info), subject), tuple(declined)


def _carry_out(rewrite: Rewrite, model: ModelEditor) -> list[ir.Node]:
    """Edit the graph, note the values that are new or lost, and return the new nodes."""
    edit = rewrite.edit
    first = rewrite.subjects[0].info
    outputs = [value.name for value in rewrite.outputs if value.name]
    kept = {value.name for draft in edit.drafts for value in draft.results}
    removed = [*(draft.node for draft in edit.drafts), *edit.removed]
    names = {value.name for node in removed for value in node.outputs if value.name}
    model.result.note_outputs(first, outputs, rewrite.shape)
    model.result.lost.setdefault(first.place, set()).update(names - kept)
    replacements = model.patch.edit(edit, first.place)
    return [node for nodes in replacements.values() for node in nodes]


#: Reported in the place of a lowering, for a region with a convolution and for one without.
DILATED = "dilated convolution"
UNBLOCKED = "unblocked"


def fuse_dilated_convs(model: ModelEditor) -> None:
    """Write every region of a model without blocks.

    `model.result` says which operators are gone, and why others are not.
    """
    kinds = {subject.request.call.kind for subject in model.subjects.values()}
    if not {SpaceToBatch, BatchToSpace} <= kinds:
        return
    for editor in model.editors():
        if editor.view.opset < MIN_OPSET:
            continue
        regions, edit = fuse_regions(editor.message, editor.view)
        for node, reasons in regions.declined.items():
            subject = model.matcher.subject(node)
            assert subject is not None
            model.result.declined[subject.info.index] = tuple(reasons)
        if edit.drafts:
            _carry_out_region(regions, edit, editor, model)


def _carry_out_region(
    regions: Regions, edit: RegionEdit, editor: GraphEditor, model: ModelEditor
) -> None:
    """Edit one graph, and note what was done with its operators and values."""
    between = regions.between()
    # The edit moves their names to new nodes.
    labels = [tuple(map(traversal.label, nodes)) for nodes in between]
    graph = regions.exits[0].subject.node.graph
    editor.apply(edit)
    if edit.elements and graph is not None:
        # Nodes that compute a crop may stand behind the convolution that reads it now.
        graph.sort()
    editor.improve_layouts()
    editor.fold_biases()
    reported = {*regions.shared}
    position = {name: n for n, name in enumerate(regions.entries)}
    for end, nodes, names in zip(regions.exits, between, labels, strict=True):
        begun = (regions.origins[end.name] - reported) & position.keys()
        entries = tuple(sorted(begun, key=position.__getitem__))
        reported.update(entries)
        _report_exit(end, list(zip(names, nodes, strict=True)), entries, edit, editor, model.result)
    _report_entries(regions, edit, model.result)
    editor.note_values()


def _report_exit(
    end: End,
    between: Sequence[tuple[str, ir.Node]],
    entries: tuple[str, ...],
    edit: RegionEdit,
    editor: GraphEditor,
    result: EditResult,
) -> None:
    """Report a BatchToSpace with the nodes between, by their labels, and the entries that it ends."""
    info = end.subject.info
    convolutions = tuple(
        (label, _describe_convolution(new, editor))
        for label, old in between
        if op_traits.of(old).weight is not None
        for new in editor.results(old)[:1]
        if new.op_type == old.op_type
    )
    operator = report.converted(
        info,
        "fuse",
        DILATED if end.name in edit.convolved else UNBLOCKED,
        sum(len(editor.results(node)) for node in (end.subject.node, *(n for _, n in between))),
        between=tuple(label for label, _ in between),
        declined=result.declined.get(info.index, ()),
    )
    operator = replace(operator, convolutions=convolutions, entries=entries)
    result.operator_at[info.index] = operator
    output = [name for name in info.node.output[:1] if name not in editor.lost[editor.place]]
    result.note_outputs(info, output, info.output_shape)


def _report_entries(regions: Regions, edit: RegionEdit, result: EditResult) -> None:
    """Report each SpaceToBatch that is gone."""
    convolved = regions.common_origins(edit.convolved & regions.origins.keys())
    for name, entry in regions.entries.items():
        if name not in regions.shared:
            info = entry.subject.info
            lowering = DILATED if name in convolved else UNBLOCKED
            declined = result.declined.get(info.index, ())
            operator = report.converted(info, "fuse", lowering, 0, declined=declined)
            result.operator_at[info.index] = operator


def _describe_convolution(node: ir.Node, editor: GraphEditor) -> str:
    """Describe a convolution: "depthwise 3x3, dilation 4, 960 channels"."""
    position = op_traits.of(node).weight
    assert position is not None
    value = node.inputs[position] if len(node.inputs) > position else None
    weight = () if value is None else _stored_shape(value, editor)
    kernel = node.attributes.get_ints("kernel_shape") or weight[2:]
    # None: its value is an attribute of the function.
    dilations = node.attributes.get_ints("dilations") or [1]
    dilation = f"dilation {_join_sizes(dilations[:1] if len({*dilations}) == 1 else dilations)}"
    if len(weight) < 2:
        return f"{f'{node.op_type} {_join_sizes(kernel)}'.strip()}, {dilation}"
    group = node.attributes.get_int("group") or 1
    inputs, outputs = weight[1] * group, weight[0]
    if node.op_type == "ConvTranspose":
        inputs, outputs = weight[0], weight[1] * group
    depthwise = group == inputs > 1
    kind = node.op_type
    if depthwise:
        kind = "depthwise" if kind == "Conv" else f"depthwise {kind}"
    groups = f", {group} groups" if group > 1 and not depthwise else ""
    channels = f"{inputs}" if inputs == outputs else f"{inputs} -> {outputs}"
    return f"{kind} {_join_sizes(kernel)}, {dilation}, {channels} channels{groups}"


def _stored_shape(value: ir.Value, editor: GraphEditor) -> tuple[int, ...]:
    """Return the shape of a weight, new or of the model; () if it is not known."""
    if value.const_value is not None:
        return tuple(value.const_value.shape.numpy())
    dims = shape_inference.dims(editor.view.scope.type(value.name or "")) or ()
    sizes = tuple(dim for dim in dims if isinstance(dim, int))
    return sizes if len(sizes) == len(dims) else ()


def _join_sizes(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))
