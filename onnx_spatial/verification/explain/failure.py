"""Complete a failed verification: where the models part, what causes it, and what to do.

The first cause that applies is put in front of the problems:

    wrong models       one that is not converted, or two that are swapped: nothing else is said
    other precision    float16 or int8: the error of the outputs says whether it is right
    edited             nodes and constants that no conversion changes
    none               then advice follows from the kind of the difference
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnxruntime

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.errors import ModelFileError
from onnx_spatial.model import traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators.spellings.python_ops import DOMAIN
from onnx_spatial.verification.compare.kinds import Kinds
from onnx_spatial.verification.evidence import Difference, Verification
from onnx_spatial.verification.explain import changes, first_value, reproducer
from onnx_spatial.verification.explain.first_value import Divergence
from onnx_spatial.verification.match.definitions import Definitions
from onnx_spatial.verification.match.graphs import Graphs
from onnx_spatial.verification.options import VerifyOptions
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.run.sessions import Report, no_report

#: Reals whose precision users choose, by element type.
_REALS: dict[int, str] = {
    onnx.TensorProto.DOUBLE: "float64",
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.FLOAT16: "float16",
    onnx.TensorProto.BFLOAT16: "bfloat16",
}
#: Error relative to the largest value from which on another precision does not explain it.
_MOST_OF_PRECISION = 0.25


@dataclass(frozen=True)
class Cause:
    """What explains a failed verification.

    Attributes:
        problems: in one line each; they come before all others.
        advice: what to do.
        alone: whether all other problems follow from it.
    """

    problems: tuple[str, ...]
    advice: str
    alone: bool = False


def add(
    result: Verification,
    models: ModelPair,
    infos: Sequence[OperatorInfo],
    kinds: Kinds,
    options: VerifyOptions,
    report: Report = no_report,
    *,
    of_run: Difference | None = None,
) -> None:
    """Complete a failed verification, in place.

    Args:
        result: the verification.
        models: the original and the converted model.
        infos: the spatial operators of the original.
        kinds: of the original's values.
        options: tolerances, and the folder of the reproducer.
        report: gets a line of progress before each load and run.
        of_run: the first difference in a run of both models, where the first one is of a part.
    """
    original, converted = (Graphs(each.proto) for each in (models.original, models.converted))
    definitions = Definitions(original, converted, models.folders)
    difference, divergence = result.first_difference, None
    if difference is not None and difference.kind in ("output", "model"):
        of_run = difference
    tolerance = None if of_run is None else options.tolerances.of_output(of_run.name)
    if of_run is not None:
        divergence = first_value.find(
            models,
            definitions,
            kinds,
            of_run.inputs,
            optimised=of_run.optimised,
            tolerance=tolerance,
            report=report,
        )
        result.first_value = None if divergence is None else divergence.first
    cause = (
        wrong_models(models)
        or other_precision(models, result)
        or _edited(changes.find(models, definitions, infos) if difference is not None else [])
        or Cause((), next_step(result, divergence))
    )
    result.problems = [*cause.problems, *([] if cause.alone else result.problems)]
    more = f" (and {len(result.problems) - 1} more)" if len(result.problems) > 1 else ""
    result.message = f"failed: {result.problems[0]}{more}"
    result.advice = cause.advice
    if options.reproducer is None or difference is None:
        return
    try:
        folder = Path(options.reproducer)
        allowed = tolerance if difference is of_run else None  # it is about outputs of the whole
        result.reproducer = reproducer.save(folder, models, difference, divergence, allowed)
    except ModelFileError as error:
        result.problems.append(f"no reproducer: {error}")


def wrong_models(models: ModelPair) -> Cause | None:
    """Say that the models are not an original and its conversion, in this order; None if they are."""
    original, converted = (
        [i for i in found if i.known_domain and i.node.domain != DOMAIN]
        for found in (
            analysis.find(source.proto, models.domains, source.folder)
            for source in (models.original, models.converted)
        )
    )
    if not converted:
        return None
    count = f"{len(converted)} spatial operator{'' if len(converted) == 1 else 's'}"
    problem = f"the second model still holds {count}, the first none: are the arguments swapped?"
    if original:
        problem = f"the second model is not converted: it still holds {count}"
    advice = "pass the original first, then the result of `onnx-spatial convert` on it"
    return Cause((problem,), advice, alone=True)


def other_precision(models: ModelPair, result: Verification) -> Cause | None:
    """Say that the converted model computes in another precision; None if it does not.

    Such a model differs in every node. Its outputs say whether it is right.
    """
    change = _change_of_precision(models.original.proto, models.converted.proto)
    errors = [o.max_relative_error for o in result.outputs if o.max_relative_error is not None]
    if change is None or not errors:
        return None
    worst = max(errors)
    outputs = (
        () if result.outputs_only else tuple(p for p in result.problems if p.startswith("output "))
    )
    if not worst <= _MOST_OF_PRECISION:
        amount = f"{worst:.1e} of the largest value" if math.isfinite(worst) else "NaN or infinity"
        advice = (
            "this is more than another precision explains: look for values that overflow (65504 is the "
            "largest float16), for ranges of the calibration that do not fit, and for nodes that "
            "should keep their precision"
        )
        return Cause((f"outputs differ by up to {amount}: {change}", *outputs), advice, alone=True)
    headline = f"outputs are at most {worst:.1e} of the largest value apart: {change}"
    allowed = all(o.passed is not False for o in result.outputs)
    # The power of ten from twice the error on.
    rtol = 10.0 ** math.ceil(math.log10(2 * worst)) if worst else 0.0
    words = "--outputs-only" if allowed else f"--rtol {min(rtol, 0.5):g} --outputs-only"
    advice = f"to accept another precision, compare the outputs alone: {words}"
    return Cause((headline, *outputs), advice, alone=True)


def _change_of_precision(original: onnx.ModelProto, converted: onnx.ModelProto) -> str | None:
    quantised = _quantisers(converted) - _quantisers(original)
    if quantised and not _quantisers(original):
        return f"the second model is quantised ({', '.join(sorted(quantised)[:3])})"
    before, after = _real_types(original), _real_types(converted)
    if not before or not after - before:
        return None
    now, was = (", ".join(sorted(_REALS[t] for t in each)) for each in (after - before, before))
    return f"the second model computes in {now}, the first in {was}"


def _real_types(model: onnx.ModelProto) -> set[int]:
    """Return the types of the reals that a model is fed, stores or casts to."""
    types = {tensor.data_type for tensor in traversal.tensors(model)}
    types |= {shape_inference.element_type(value.type) or 0 for value in model.graph.input}
    casts = (node for _, _, node in traversal.nodes(model) if node.op_type == "Cast")
    types |= {a.i for node in casts for a in node.attribute if a.name == "to"}
    return types & _REALS.keys()


def _quantisers(model: onnx.ModelProto) -> set[str]:
    """Return the operators that compute with quantised numbers."""
    kinds = {node.op_type for _, _, node in traversal.nodes(model)}
    words = ("quantize", "integer", "qlinear")
    return {kind for kind in kinds if any(word in kind.lower() for word in words)}


def _edited(lines: Sequence[str]) -> Cause | None:
    advice = (
        "use the model as `onnx-spatial convert` wrote it, or find the tool that edited it later: the "
        "conversion does not change this"
    )
    return Cause(tuple(lines), advice) if lines else None


def next_step(result: Verification, divergence: Divergence | None) -> str:
    """Say what to do about a difference without a known cause."""
    difference, version = result.first_difference, onnxruntime.__version__
    if difference is None:
        return (
            "the inputs and outputs of the second model must be those of the first: same names, order, "
            "types and shapes. Convert the first model again, or mend the tool that changed them"
        )
    plain = [output.passed for output in result.outputs if not output.optimised]
    if difference.optimised and plain and False not in plain:
        return (
            "nothing differs with onnxruntime's optimisations off: convert with --prefer transpose or "
            "--prefer slices and use the form that passes, or run the model with "
            "graph_optimization_level ORT_DISABLE_ALL (for a quantised model the session option "
            "session.disable_quant_qdq = 1 may be enough)"
        )
    if difference.kind == "model" and "does not load" in difference.message:
        return (
            f"onnxruntime {version} has to load the second model: convert operators that it lacks, and "
            "use an opset and an IR version that it knows; "
            "onnx.checker.check_model(path, full_check=True) may say more"
        )
    if divergence is not None and divergence.grows and divergence.first is not None:
        return (
            f"both models compute {divergence.first.name!r} by the same {divergence.first.op_type} node "
            "from values that agree, so this node amplifies rounding: allow more with --rtol"
        )
    return (
        "convert again with --no-fuse, and if that differs too, with --prefer transpose. Use a form "
        "that passes, and report the first line above with the folder that --reproducer DIR saves"
    )
