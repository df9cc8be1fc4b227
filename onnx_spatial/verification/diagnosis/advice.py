"""Complete a failed verification: the first value that differs, what to do, a reproducer."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from onnx_spatial.errors import ModelFileError
from onnx_spatial.verification.checks.model_pair import ModelPair
from onnx_spatial.verification.diagnosis import reproducer
from onnx_spatial.verification.diagnosis.bisect import Bisection, bisect
from onnx_spatial.verification.report import Difference, Verification


def add(
    result: Verification,
    models: ModelPair,
    operators: Collection[int],
    shown: Difference | None,
    folder: Path | None,
) -> None:
    """Add the first value that differs, advice and a reproducer to a failed verification.

    `operators` are those of the original by position, `shown` is the difference in a run of the whole
    models, if there was one. Without a folder no reproducer is saved.
    """
    bisection: Bisection | None = None
    if shown is not None and shown.kind in ("output", "model"):
        sources = (models.original, models.converted)
        bisection = bisect(*sources, operators, shown.inputs, optimised=shown.optimised)
        if bisection is not None:
            result.first_value = bisection.first
    result.advice = _advice(result)
    if folder is None or result.first_difference is None:
        return
    try:
        result.reproducer = reproducer.save(folder, models, result.first_difference, bisection)
    except ModelFileError as error:
        result.problems.append(f"no reproducer: {error}")


def _advice(result: Verification) -> str:
    difference = result.first_difference
    if difference is None:
        return "compare the names, types and shapes of the inputs and outputs of the two models"
    if difference.kind == "value":
        return (
            "use the model as `onnx-spatial convert` wrote it, or find the tool that edited it later: "
            "the conversion does not change this node"
        )
    if difference.kind in ("model", "output") and difference.optimised and _right_as_it_is(result):
        return (
            "this is an error in onnxruntime's optimizer: nothing differs with optimisations off. "
            "Convert with --prefer transpose or --prefer slices and use the form that passes; or "
            "write the model with --no-verify and run it with graph_optimization_level "
            "ORT_DISABLE_ALL (for a quantised model the session option session.disable_quant_qdq = 1 "
            "may be enough)"
        )
    return (
        "convert again with --no-fuse, and if that differs too, with --prefer transpose. Use a form "
        "that passes, and report the first line above with the folder that --reproducer DIR saves"
    )


def _right_as_it_is(result: Verification) -> bool:
    """Return whether neither outputs nor operators differ without onnxruntime's optimisations."""
    plain = [output.passed for output in result.outputs if not output.optimised]
    checks = (check for site in result.sites for check in site.checks if not check.optimised)
    return bool(plain) and all(plain) and all(check.passed for check in checks)
