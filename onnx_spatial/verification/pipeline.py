"""Verify a converted model: load both models, run every check, explain what differs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from onnx_spatial.errors import UsageError
from onnx_spatial.model.io import reader
from onnx_spatial.verification import oracles as references
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.checks import (
    end_to_end,
    fused,
    interface,
    isolated,
    other_nodes,
    proof,
    same_padding_conv,
    unchanged,
)
from onnx_spatial.verification.checks.conclude import conclude
from onnx_spatial.verification.checks.context import Context, ModelCheck
from onnx_spatial.verification.checks.model_pair import ModelPair
from onnx_spatial.verification.diagnosis import advice, inner_names, roles
from onnx_spatial.verification.report import Verification
from onnx_spatial.verification.sizes.reference_runs import RunRequest

Model = reader.Model | reader.Source


def _check_oracles(context: Context) -> None:
    for operator in context.findings.operators:
        references.check(operator, dict(context.oracles), context.seed)


#: The checks of a converted model, in this order. A further check is a further line here.
CHECKS: tuple[ModelCheck, ...] = (
    ModelCheck("convolutions", same_padding_conv.find),
    ModelCheck("proof", proof.check, needs=("convolutions",)),
    ModelCheck("isolated", isolated.check, needs=("proof",)),
    ModelCheck("fused", fused.check, needs=("isolated",)),
    ModelCheck("oracles", _check_oracles, needs=("fused",)),  # which may discard comparisons
    ModelCheck("same_padding_conv", same_padding_conv.check, needs=("proof",)),
    ModelCheck("interface", interface.check),
    ModelCheck(
        "other_nodes",
        other_nodes.check,
        needs=("fused", "same_padding_conv", "interface"),
        when=lambda findings: not findings.interface,
    ),
    ModelCheck(
        "end_to_end",
        end_to_end.check,
        needs=("interface", "other_nodes"),
        when=lambda findings: not findings.interface,
    ),
    ModelCheck("declarations", interface.check_declarations, needs=("end_to_end",)),
    ModelCheck(
        "unchanged",
        unchanged.check,
        needs=("fused", "same_padding_conv", "end_to_end"),
        when=lambda findings: conclude(findings).sites_only,
    ),
)


def _compared(context: Context) -> tuple[Context, Verification]:
    """Run all checks; run them again without names that mean other values, if a value differs."""
    first, verdict = context, _checked(context)
    names = None if verdict.status == "passed" else inner_names.apart(context)
    if names is None:
        return context, verdict
    context = Context(names.models, context.request, context.oracles)
    for name in names.hidden:
        context.findings.undecided.append(f"value {name!r} differs, but no output shows it")
    again = _checked(context)
    if again.status == "failed":
        return first, verdict
    return context, again


def _checked(context: Context) -> Verification:
    for check in CHECKS:
        if check.when(context.findings):
            check.run(context)
    return conclude(context.findings)


def verify(
    original: Model,
    converted: Model,
    *,
    inputs: Mapping[str, Array] | None = None,
    seed: int = 0,
    shapes: Mapping[str, Sequence[int]] | None = None,
    domains: Iterable[str] = (),
    oracles: Iterable[str] = (),
    save_reproducer: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Verification:
    """Compare a converted model with its original, and report the first difference.

    Every operator node of the original is compared bit for bit with the nodes that replace it in the
    converted model, on its own and inside the model; one that became part of a convolution is
    compared together with that, within a tolerance. Then both models run on the same data, the
    original by the numpy kernels, the converted one in onnxruntime with optimisations off and on.

    Args:
        original: path, bytes, onnx.ModelProto, onnx_ir.Model, or a model read before. Not changed.
        converted: likewise.
        inputs: data to run both models with, by input name, instead of generated data.
        seed: of the generated data, 0 or more.
        shapes: sizes of inputs, by input name, where the model leaves them open.
        domains: operator domains of the user's own that hold spatial operators.
        oracles: other runtimes to compare the numpy kernel of each operator with, bit for bit, where
            they are known to be right: "tensorflow", "openvino".
        save_reproducer: folder for two small models, their data and a script that shows the first
            difference, if there is one.
        progress: called with a line of text now and then.

    Raises:
        UsageError: `inputs` or `shapes` do not fit the model, or an oracle is not installed.
        ModelFileError: a model cannot be read.
        OperatorError: an operator of the original breaks its own rules on any data.
    """
    if seed < 0:
        raise UsageError(f"seed must be 0 or more, not {seed}")
    if inputs is not None and shapes:
        raise UsageError("inputs and shapes cannot be combined: the data has its own shapes")
    given = ModelPair.read(original, converted, domains)
    request = RunRequest(inputs, shapes or {}, seed, progress or (lambda _: None))
    kernels = references.get(oracles)
    folder = None if save_reproducer is None else Path(save_reproducer)
    try:
        given = given.resolved()
        context, result = _compared(Context(given.without_earlier_form(), request, kernels))
        if result.status == "failed":
            operators = [info.index for info in context.reference.known_infos]
            advice.add(result, context.models, operators, context.findings.difference, folder)
            roles.explain(result, given)
        return result
    except MemoryError:
        reason = "not enough memory to run the models; use smaller sizes (--shape)"
        return Verification("unverified", f"unverified: {reason}", [reason])
