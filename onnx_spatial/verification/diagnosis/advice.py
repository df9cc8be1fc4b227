"""Complete a failed verification: the first value that differs, what to do, a reproducer."""

from __future__ import annotations

import re
from pathlib import Path

import onnxruntime

from onnx_spatial.errors import ModelFileError
from onnx_spatial.verification.checks.context import Context
from onnx_spatial.verification.diagnosis import reproducer
from onnx_spatial.verification.diagnosis.bisect import Bisection, bisect
from onnx_spatial.verification.report import Verification

#: Where a node or constant differs that the conversion keeps.
UNCHANGED = (
    "use the model as `onnx-spatial convert` wrote it, or find the tool that edited it later: "
    "the conversion does not change {}"
)
#: onnxruntime's messages for data of a shape that an input does not have.
_OTHER_INPUT = re.compile("Got invalid dimensions for input|Invalid rank for input")
NOT_LOADED = "the converted model does not load"


def add(result: Verification, context: Context, folder: Path | None) -> None:
    """Add the first value that differs, advice and a reproducer to a failed verification.

    Without a folder no reproducer is saved.
    """
    models, shown = context.models, context.findings.difference
    bisection: Bisection | None = None
    if shown is not None and shown.kind in ("output", "model"):
        operators = [info.index for info in context.reference.known_infos]
        tolerance = context.tolerances.of_output(shown.name)
        bisection = bisect(
            models, operators, shown.inputs, optimised=shown.optimised, tolerance=tolerance
        )
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
        return (
            "the inputs and outputs of the second model must be those of the first: same names, order, "
            "types and shapes. Convert the first model again, or mend the tool that changed them"
        )
    if difference.kind == "value":
        return UNCHANGED.format("this node")
    if difference.kind in ("model", "output") and difference.optimised and _right_as_it_is(result):
        return (
            "this is an error in onnxruntime's optimizer: nothing differs with optimisations off. "
            "Convert with --prefer transpose or --prefer slices and use the form that passes; or "
            "write the model with --no-verify and run it with graph_optimization_level "
            "ORT_DISABLE_ALL (for a quantised model the session option session.disable_quant_qdq = 1 "
            "may be enough)"
        )
    if difference.kind == "model" and NOT_LOADED in difference.message:
        return _load_advice(difference.message)
    if difference.kind == "model" and _OTHER_INPUT.search(difference.message):
        return (
            "the second model declares another shape for this input: convert the first model again, or "
            "mend the tool that changed it"
        )
    return (
        "convert again with --no-fuse, and if that differs too, with --prefer transpose. Use a form "
        "that passes, and report the first line above with the folder that --reproducer DIR saves"
    )


def _load_advice(message: str) -> str:
    """Say what to do where onnxruntime does not load the converted model."""
    version = onnxruntime.__version__
    if "is not a registered function/op" in message or "No opset import for domain" in message:
        return (
            f"the second model has an operator that onnxruntime {version} lacks: convert it, or replace "
            "it by standard operators"
        )
    if "opset" in message.lower():
        return (
            f"onnxruntime {version} does not know this opset: use an older opset or a newer release"
        )
    if "IR version" in message:
        return (
            f"onnxruntime {version} does not know this IR version: lower it or use a newer release"
        )
    return (
        "the second model is not valid for onnxruntime "
        f"{version}: onnx.checker.check_model(path, full_check=True) may say more; convert the first "
        "model again if the second was edited"
    )


def _right_as_it_is(result: Verification) -> bool:
    """Return whether neither outputs nor operators differ without onnxruntime's optimisations."""
    plain = [output.passed for output in result.outputs if not output.optimised]
    checks = (check for site in result.operators for check in site.checks if not check.optimised)
    return bool(plain) and all(plain) and all(check.passed for check in checks)
