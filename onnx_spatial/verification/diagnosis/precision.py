"""Tell a wrong conversion from a version of the model in another precision: float16, int8.

Such a version differs in every node. Its outputs say whether it is right, so they come first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import onnx

from onnx_spatial.model import traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.verification.compare.tolerance import Tolerances
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.report import Verification

_NAMES: dict[int, str] = {
    onnx.TensorProto.DOUBLE: "float64",
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.FLOAT16: "float16",
    onnx.TensorProto.BFLOAT16: "bfloat16",
}
_SHORT = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
#: Larger errors, relative to the largest value, are those of another model.
_MOST = 0.25
#: Tolerances to suggest: the first that is twice the error.
_STEPS = ("1e-5", "1e-4", "1e-3", "1e-2", "1e-1", "0.2", "0.5")


def explain(result: Verification, models: ModelPair, tolerances: Tolerances) -> bool:
    """Lead a failed verification with the error of the outputs, if the precision is another one.

    Return whether it is.
    """
    change = _change(models.original.proto, models.converted.proto)
    errors = [o.max_relative_error for o in result.outputs if o.max_relative_error is not None]
    if change is None or not errors:
        return False
    worst = max(errors)
    names = tuple(
        f"output {output.name!r}{end}" for output in result.outputs for end in (":", " with")
    )
    outputs = [line for line in result.problems if line.startswith(names)]
    others = len(result.problems) - len(outputs)
    if not math.isfinite(worst) or worst > _MOST:
        amount = f"{worst:.1e} of the largest value" if math.isfinite(worst) else "NaN or infinity"
        headline = f"outputs differ by up to {amount}: {change}"
        result.advice = (
            "this is more than another precision explains: look for values that overflow (65504 is the "
            "largest float16), for ranges of the calibration that do not fit, and for nodes that "
            "should keep their precision"
        )
    else:
        apart = f"outputs are at most {worst:.1e} of the largest value apart"
        within = tolerances and not outputs
        headline = f"{apart}{', within the tolerance' if within else ''}: {change}"
        rtol = next(r for r in _STEPS if float(r) >= 2 * worst)
        options = "--outputs-only" if within else f"--rtol {rtol} --outputs-only"
        result.advice = f"to accept another precision, compare the outputs alone: {options}"
    if result.outputs_only:
        others = 0
    result.problems = [headline, *outputs]
    if others:
        result.problems.append(
            f"{others} more differences of types, operators and other nodes, as in any model of another "
            "precision"
        )
    result.message = f"failed: {headline}"
    result.first_value = None
    return True


def _change(original: onnx.ModelProto, converted: onnx.ModelProto) -> str | None:
    """Say in which precision the converted model computes; None if in that of the original."""
    quantised = _quantisers(converted)
    if quantised and not _quantisers(original):
        return f"the second model is quantised ({', '.join(sorted(quantised)[:3])})"
    before, after = set(_real_types(original)), set(_real_types(converted))
    added = (after - before) & (_SHORT | _weight_types(converted) - _weight_types(original))
    if not before or not added:
        return None
    names = (", ".join(sorted(_NAMES[t] for t in types)) for types in (added, before))
    return "the second model computes in {}, the first in {}".format(*names)


def _weight_types(model: onnx.ModelProto) -> set[int]:
    return {t.data_type for t in model.graph.initializer if t.data_type in _NAMES}


def _real_types(model: onnx.ModelProto) -> Iterator[int]:
    """Yield the types of the reals in a model: of its inputs, its constants and its Casts."""
    for value in (*model.graph.input, *model.graph.output):
        if (element_type := shape_inference.element_type(value.type)) in _NAMES:
            yield element_type
    for _, graph in traversal.graphs(model):
        for tensor in getattr(graph, "initializer", ()):
            if tensor.data_type in _NAMES:
                yield tensor.data_type
    for _, _, node in traversal.nodes(model):
        for attribute in node.attribute:
            kind = attribute.t.data_type if attribute.HasField("t") else attribute.i
            if (attribute.HasField("t") or attribute.name == "to") and kind in _NAMES:
                yield kind


def _quantisers(model: onnx.ModelProto) -> set[str]:
    """Return the operators that compute with quantised numbers."""
    kinds = {node.op_type for _, _, node in traversal.nodes(model)}
    words = ("quantize", "integer", "qlinear")
    return {kind for kind in kinds if any(word in kind.lower() for word in words)}
