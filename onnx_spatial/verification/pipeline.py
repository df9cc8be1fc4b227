"""Verify a converted model: load both models, run every check, explain what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from onnx_spatial.model.io import reader
from onnx_spatial.verification import one_hot
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
from onnx_spatial.verification.diagnosis import advice, changes, inner_names, precision, roles
from onnx_spatial.verification.options import VerifyOptions
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.process import child
from onnx_spatial.verification.report import Verification
from onnx_spatial.verification.runtime import time_limit
from onnx_spatial.verification.runtime.time_limit import TimeLimitError
from onnx_spatial.verification.sizes.reference_runs import RunRequest

Model = reader.Model | reader.Source

#: Copies of the weights that onnxruntime may hold at a time: as read, and packed for its kernels.
_LOADED = 2


#: The checks of a converted model, in this order. A further check is a further line here.
CHECKS: tuple[ModelCheck, ...] = (
    ModelCheck("convolutions", same_padding_conv.find),
    ModelCheck("proof", proof.check, needs=("convolutions",)),
    ModelCheck("isolated", isolated.check, needs=("proof",)),
    ModelCheck("fused", fused.check, needs=("isolated",)),
    ModelCheck("same_padding_conv", same_padding_conv.check, needs=("proof",)),
    ModelCheck("interface", interface.check, of_outputs=True),
    ModelCheck(
        "other_nodes",
        other_nodes.check,
        needs=("fused", "same_padding_conv", "interface"),
        when=lambda findings: not (findings.interface or findings.types),
    ),
    ModelCheck(
        "end_to_end",
        end_to_end.check,
        needs=("interface", "other_nodes"),
        when=lambda findings: not findings.interface,
        of_outputs=True,
    ),
    ModelCheck(
        "declarations", interface.check_declarations, needs=("end_to_end",), of_outputs=True
    ),
    ModelCheck(
        "unchanged",
        unchanged.check,
        needs=("fused", "same_padding_conv", "end_to_end"),
        when=lambda findings: conclude(findings).operators_only,
    ),
)


def _compared(context: Context) -> tuple[Context, Verification]:
    """Run all checks; run them again without names that mean other values, if a value differs."""
    first, verdict = context, _checked(context)
    names = None
    if verdict.status != "passed" and not context.findings.out_of_time:
        with suppress(TimeLimitError):
            names = inner_names.apart(context)
    if names is None:
        return context, verdict
    context = Context(names.models, context.request, context.tolerances)
    for name in names.hidden:
        context.findings.undecided.append(f"value {name!r} differs, but no output shows it")
    again = _checked(context)
    if again.status == "failed" or context.findings.out_of_time:
        return first, verdict
    return context, again


def _checked(context: Context) -> Verification:
    findings = context.findings
    for check in CHECKS:
        if (check.of_outputs or not findings.outputs_only) and check.when(findings):
            try:
                check.run(context)
            except TimeLimitError as over:
                findings.out_of_time = True
                left = [v.name for v in context.models.original.proto.graph.output]
                left = [n for n in left if all(result.name != n for result in findings.outputs)]
                rest = f"; outputs not compared: {', '.join(map(repr, left[:3]))}" if left else ""
                findings.undecided.insert(0, f"{over}{rest}")
                break
    return conclude(context.findings)


def verify(
    original: Model,
    converted: Model,
    options: VerifyOptions | None = None,
    *,
    domains: Iterable[str] = (),
    progress: Callable[[str], None] | None = None,
) -> Verification:
    """Compare a converted model with its original, and report the first difference.

    Args:
        original: path, bytes, onnx.ModelProto, onnx_ir.Model, or a model read before. Not changed.
        converted: likewise.
        options: how they are compared; what is good enough (`strict`) is for the caller to check.
        domains: operator domains of the user's own that hold spatial operators.
        progress: called with a line of text now and then.

    Raises:
        UsageError: `inputs`, `shapes` or a tolerance do not fit the model.
        ModelFileError: a model cannot be read.
        OperatorError: an operator of the original breaks its own rules on any data.
    """
    options = options or VerifyOptions()
    models = ModelPair.read(original, converted, domains)
    options.tolerances.check_names([value.name for value in models.original.proto.graph.output])
    work, progress = _Work(models, options), progress or _silent
    if options.memory is None:
        return work(progress)
    weights = _LOADED * models.weight_bytes()
    try:
        return child.run(work, progress, child.Bounds(options.memory, weights))
    except child.Died as death:
        return Verification(death.status, f"{death.status}: {death}", [str(death)])


def _silent(text: str) -> None:
    pass


@dataclass(frozen=True)
class _Work:
    """The comparison of two models, with the arguments of `verify`."""

    models: ModelPair
    options: VerifyOptions

    def __call__(self, progress: Callable[[str], None]) -> Verification:
        """Run every check and explain what differs."""
        with time_limit.allowing(self.options.time_limit):
            return self._compare(progress)

    @staticmethod
    def _noted(progress: Callable[[str], None]) -> Callable[[str], None]:
        def noted(text: str) -> None:
            time_limit.note(text)
            progress(text)

        return noted

    def _compare(self, progress: Callable[[str], None]) -> Verification:
        note, options = self._noted(progress), self.options
        request = RunRequest(options.inputs, options.shapes or {}, options.seed, note)
        reproducer = None if options.reproducer is None else Path(options.reproducer)
        try:
            models = self.models.resolved()
            pair = models.without_earlier_form().with_original_names()
            copied = one_hot.replaced(pair)
            if not options.outputs_only:
                pair = one_hot.with_patches(pair, copied)
            context = Context(pair, request, options.tolerances)
            context.findings.outputs_only = options.outputs_only
            context, result = _compared(context)
            if result.status == "failed":
                with suppress(TimeLimitError):
                    advice.add(result, context, reproducer)
                    if not precision.explain(result, context.models, options.tolerances):
                        changes.explain(result, context)
                        roles.explain(result, models)
            if copied:
                result = one_hot.describe(result, copied)
                result.notes += one_hot.notes(copied, result)
            return result
        except MemoryError:
            reason = f"the verification {child.lack_of_memory()}"
            return Verification("unverified", f"unverified: {reason}", [reason])
