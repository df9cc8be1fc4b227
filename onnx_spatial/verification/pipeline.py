"""Verify a converted model: load both models, run every check, explain what differs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from onnx_spatial.errors import UsageError
from onnx_spatial.model.io import reader
from onnx_spatial.verification import one_hot
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
from onnx_spatial.verification.compare.tolerance import Bound, Tolerances
from onnx_spatial.verification.diagnosis import advice, changes, inner_names, precision, roles
from onnx_spatial.verification.process import child, limits, retries
from onnx_spatial.verification.report import Verification
from onnx_spatial.verification.runtime import time_limit
from onnx_spatial.verification.runtime.time_limit import SECONDS, TimeLimitError
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
    *,
    inputs: Mapping[str, Array] | None = None,
    seed: int = 0,
    shapes: Mapping[str, Sequence[int]] | None = None,
    domains: Iterable[str] = (),
    rtol: Bound = None,
    atol: Bound = None,
    outputs_only: bool = False,
    save_reproducer: str | os.PathLike[str] | None = None,
    isolate: bool = False,
    memory: int | None = None,
    time_limit: float | None = SECONDS,
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
        rtol, atol: tolerance for the outputs of the whole model, in place of the rules of this package:
            `|actual - expected| <= atol + rtol * max|expected|` for every element. A number is for all
            outputs of reals; a mapping has a number for each output by name, integers included, and
            for all others by the name "". The other one of the two keeps its default: rtol that of
            the type, atol 0. Reals may then be of another type.
        outputs_only: compare outputs only, not single operators and other nodes.
        save_reproducer: folder for two small models, their data and a script that shows the first
            difference, if there is one.
        isolate: run everything in a child process, so that a model that ends it (a division that
            traps, a failed assertion of onnxruntime) or takes too much memory becomes a verdict. On
            Linux the process is forked, which is not safe while other threads hold locks; elsewhere
            a new interpreter starts.
        memory: bytes that the verification may take beside the weights of the models; None: 4 GiB, or
            a quarter of a smaller machine. Without `isolate` only what can be estimated is bounded.
        time_limit: seconds of processor time after which the verification stops, and is unverified if
            it found no error; None: any time. Sizes and numbers of runs are bounded by their work in
            any case, so few models reach it.
        progress: called with a line of text now and then.

    Raises:
        UsageError: `inputs` or `shapes` do not fit the model, a tolerance is out of range or names no
            output, or arguments cannot be combined.
        ModelFileError: a model cannot be read.
        OperatorError: an operator of the original breaks its own rules on any data.
    """
    if seed < 0:
        raise UsageError(f"seed must be 0 or more, not {seed}")
    if inputs is not None and shapes:
        raise UsageError("inputs and shapes cannot be combined: the data has its own shapes")
    if memory is not None and memory <= 0:
        raise UsageError(f"memory must be more than 0 bytes, not {memory}")
    if time_limit is not None and not time_limit > 0:  # also NaN
        raise UsageError(f"time_limit must be more than 0 seconds, not {time_limit}")
    tolerances = Tolerances.of(rtol, atol)
    models = ModelPair.read(original, converted, domains)
    tolerances.check_names([value.name for value in models.original.proto.graph.output])
    folder = None if save_reproducer is None else Path(save_reproducer)
    work = _Work(
        models,
        inputs,
        shapes or {},
        seed,
        tolerances,
        outputs_only,
        folder,
        memory,
        time_limit,
    )
    progress = progress or _silent
    if not isolate:
        return work(progress)
    most = limits.default_memory() if memory is None else memory
    limit = child.MemoryLimit(most + _LOADED * models.weight_bytes(), limits.show_bytes(most))
    try:
        return retries.run(work, progress, limit)
    except retries.Ended as reason:
        return _undecided(str(reason))


def _silent(text: str) -> None:
    pass


@dataclass(frozen=True)
class _Work:
    """The comparison of two models, with the arguments of `verify`."""

    models: ModelPair
    inputs: Mapping[str, Array] | None
    shapes: Mapping[str, Sequence[int]]
    seed: int
    tolerances: Tolerances
    outputs_only: bool
    reproducer: Path | None
    memory: int | None
    seconds: float | None

    def __call__(self, progress: Callable[[str], None]) -> Verification:
        """Run every check and explain what differs."""
        with limits.allowing(self.memory), time_limit.allowing(self.seconds):
            return self._compare(progress)

    @staticmethod
    def _noted(progress: Callable[[str], None]) -> Callable[[str], None]:
        def noted(text: str) -> None:
            time_limit.note(text)
            progress(text)

        return noted

    def _compare(self, progress: Callable[[str], None]) -> Verification:
        note = self._noted(progress)
        request = RunRequest(self.inputs, self.shapes, self.seed, note)
        try:
            models = self.models.resolved()
            pair = models.without_earlier_form().with_original_names()
            copied = one_hot.replaced(pair)
            if not self.outputs_only:
                pair = one_hot.with_patches(pair, copied)
            context = Context(pair, request, self.tolerances)
            context.findings.outputs_only = self.outputs_only
            context, result = _compared(context)
            if result.status == "failed":
                with suppress(TimeLimitError):
                    advice.add(result, context, self.reproducer)
                    if not precision.explain(result, context.models, self.tolerances):
                        changes.explain(result, context)
                        roles.explain(result, models)
            if copied:
                result = one_hot.describe(result, copied)
                result.notes += one_hot.notes(copied, result)
            return result
        except MemoryError:
            return _undecided("not enough memory to run the models; use smaller sizes (--shape)")


def _undecided(reason: str) -> Verification:
    return Verification("unverified", f"unverified: {reason}", [reason])
