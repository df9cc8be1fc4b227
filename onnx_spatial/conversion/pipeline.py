"""Convert a model to one of three forms, and report what was done with each operator.

    lower       standard nodes replace the operator
    function    the operator stays, and a local function defines it (`local_functions`)
    custom-op   a Python operator replaces it (`python_ops`)

The form of an earlier conversion is undone first, so any form becomes any other. In every form
convolutions that onnxruntime refuses get explicit pads (`onnxruntime_pads`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from onnx_spatial import analysis
from onnx_spatial.analysis import Analysis, OperatorInfo
from onnx_spatial.chains.illegal_reshapes import ILLEGAL
from onnx_spatial.conversion import report
from onnx_spatial.conversion.graph_editor import finish
from onnx_spatial.conversion.local_functions import add_functions
from onnx_spatial.conversion.marked_functions import WithoutForm, without_earlier_form
from onnx_spatial.conversion.onnxruntime_pads import add_explicit_pads
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.conversion.replace import replace_operators
from onnx_spatial.conversion.report import EditResult, OperatorReport
from onnx_spatial.errors import Code, ModelFileError
from onnx_spatial.fusion import Writer
from onnx_spatial.lowering import Lowered, Request, lower_preferring
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.model.graph import imports
from onnx_spatial.model.traversal import Index
from onnx_spatial.operators.spellings import python_ops
from onnx_spatial.python_ops.write import write_python_op

Progress = Callable[[str], None]
logger = logging.getLogger(__name__)


def convert_operators(
    proto: onnx.ModelProto,
    options: ConvertOptions | None = None,
    *,
    folder: Path | None = None,
    progress: Progress | None = None,
    write: Writer | None = None,
) -> EditResult:
    """Convert the operators of `proto`, which stays as it is.

    Args:
        proto: the model.
        options: how they are converted; None for the defaults.
        folder: where external data lies.
        progress: called with a line of text now and then.
        write: writes an operator as nodes; None: as the mode says.

    Raises:
        ModelFileError: the graph contradicts itself, or its sizes do not let it run.
    """
    options = options or ConvertOptions()
    progress = progress or (lambda _: None)
    progress("converting 1/3: operators")
    try:
        groups_too = options.mode != "custom-op"
        original = Index(proto)
        before = without_earlier_form(original, groups_too=groups_too, folder=folder)
        domains = before.domains.union(options.domains)
        infos = analysis.find(before.index, domains, folder, runnable=True)
        if options.mode == "function":
            result = _with_functions(original, before, infos, options, folder)
        else:
            write = write or _node_writer(options)
            result = _replace_all(original, before, infos, write, options, folder, progress)
        for index, operator in result.operator_at.items():
            if (operator.graph, operator.output) in before.repaired:
                result.operator_at[index] = replace(operator, notes=(*operator.notes, ILLEGAL))
        result = _with_explicit_pads(result, original, before, folder)
    except UnicodeDecodeError:
        raise ModelFileError(
            "the model is damaged: a name in it is not UTF-8 text", code=Code.DAMAGED
        ) from None
    except DecodeError as error:  # protobuf copies by writing and reading
        raise ModelFileError(
            f"the model is damaged: a message in it is no legal one: {error}", code=Code.DAMAGED
        ) from None
    for line in (
        line for operator in result.operators for line in report.describe_decisions(operator)
    ):
        logger.debug("%s", line)
    return result


def _node_writer(options: ConvertOptions) -> Writer:
    """Return what writes an operator as nodes, in the mode of the options."""
    if options.mode == "custom-op":
        return write_python_op

    def lower(request: Request, info: OperatorInfo) -> Lowered:
        return lower_preferring(request, options.prefer, options.max_rank)

    return lower


def _replace_all(
    original: Index,
    before: WithoutForm,
    infos: Analysis,
    write: Writer,
    options: ConvertOptions,
    folder: Path | None,
    progress: Progress,
) -> EditResult:
    custom = options.mode == "custom-op"
    prepared = {
        f.index: report.left(f, done=report.PREPARED)
        for f in infos
        if write is write_python_op and f.node.domain == python_ops.DOMAIN and f.error is None
    }
    todo = [f for f in infos if f.index not in prepared]
    if not any(f.known_domain for f in todo):
        return EditResult(operator_at=prepared | {f.index: report.left(f) for f in todo})
    opset = _default_opset(original.model)
    result = replace_operators(infos, todo, write, options, opset=opset, progress=progress)
    result.operator_at |= prepared
    for index in result.operator_at.keys() & before.functions.keys():
        function = _function_name(before.functions[index])
        result.operator_at[index] = replace(result.operator_at[index], function=function)
    if result.model is not None:
        if custom:
            imports.import_where_used(result.model, python_ops.DOMAIN)
        finish(result, original, opset, _replaced_in(result, infos), folder=folder)
    return result


def _with_functions(
    original: Index,
    before: WithoutForm,
    infos: Analysis,
    options: ConvertOptions,
    folder: Path | None,
) -> EditResult:
    todo = (f for f in infos if f.known_domain and f.index not in before.functions)
    bound = options.max_rank is not None or options.prefer is not None or options.checked
    # Operators in functions that nothing calls may lack attributes of a caller: they are left.
    if all(f.dead and f.error for f in todo) and not bound:
        return EditResult(operator_at={f.index: _report_call(f, before) for f in infos})
    opset = _default_opset(original.model)
    result = add_functions(before.model, infos, options, opset=opset)
    if result.model is not None:
        finish(result, original, opset, _replaced_in(result, infos), folder=folder)
        if before.index is not original and result.model == original.model:
            return EditResult(operator_at=result.operator_at)
    return result


def _report_call(info: OperatorInfo, before: WithoutForm) -> OperatorReport:
    """Report an operator that calls its function already."""
    function = before.functions.get(info.index)
    if function is None:
        return report.left(info)
    return report.converted(info, "function", None, len(function.node), _function_name(function))


def _with_explicit_pads(
    result: EditResult, original: Index, before: WithoutForm, folder: Path | None
) -> EditResult:
    """Give the convolutions explicit pads that onnxruntime refuses, after all other edits."""
    opset = _default_opset(original.model)
    model = original if result.model is None else Index(result.model)
    padded = add_explicit_pads(model, opset, folder)
    if not padded.operator_at:
        return result
    positions = {
        (before.index.place(index), tuple(node.output)): index
        for index, node in enumerate(before.index.nodes)
    }
    for index, operator in padded.operator_at.items():
        key = model.place(index), tuple(model.nodes[index].output)
        result.operator_at[positions.get(key, len(positions) + index)] = operator
    if padded.model is not None:
        imports.adjust_imports(padded.model, (), opset)
        result.model = padded.model
    return result


def _replaced_in(result: EditResult, infos: Analysis) -> list[tuple[traversal.Place, str]]:
    """Return places and domains of the operators that were replaced."""
    return [(f.place, f.node.domain) for f in infos if result.operator_at[f.index].converted]


def _function_name(function: onnx.FunctionProto) -> str:
    return f"{function.domain}:{function.name}"


def _default_opset(proto: onnx.ModelProto) -> int:
    imported = op_traits.opset_of(proto.opset_import)
    return op_traits.assumed_opset(proto.ir_version) if imported is None else imported
