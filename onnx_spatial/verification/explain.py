"""Complete a failed verification: where the models part, what causes it, and what to do.

The first cause that applies is put in front of the problems:

    wrong models       one that is not converted, or two that are swapped: nothing else is said
    other precision    float16 or int8: the error of the outputs says whether it is right
    edited             nodes and constants that no conversion changes
    none               then advice follows from the kind of the difference

    original    x -> [Conv, w, pads = 1] -> c
    converted   x -> [Conv, w, pads = 0] -> c      it has another 'pads': [0, 0], not [1, 1]

A conversion gives new names to what it computes. So what keeps its name and reads the same values, but
differs, was edited.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnxruntime

from onnx_spatial import analysis
from onnx_spatial.errors import ModelFileError
from onnx_spatial.model import traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.io import external_data
from onnx_spatial.model.traversal import Place
from onnx_spatial.operators.operator import show
from onnx_spatial.operators.spellings.python_ops import DOMAIN
from onnx_spatial.verification import reproducer
from onnx_spatial.verification.arrays import constant_value
from onnx_spatial.verification.comparison import describe_element, find_mismatch
from onnx_spatial.verification.evidence import Difference, Verification, first_of
from onnx_spatial.verification.kinds import Kind
from onnx_spatial.verification.match.definitions import Definitions
from onnx_spatial.verification.match.graphs import Graphs, described
from onnx_spatial.verification.options import VerifyOptions
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.reproducer import Divergence

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


def add_explanation(
    result: Verification,
    models: ModelPair,
    options: VerifyOptions,
    verify: Callable[..., Verification],
    *,
    of_run: Difference | None = None,
) -> None:
    """Complete a failed verification, in place.

    Args:
        result: the verification.
        models: the original and the converted model.
        options: tolerances, and the folder of the reproducer.
        verify: compares the models of a reproducer, as its script will.
        of_run: the first difference in a run of both models; the result's may be of a part.
    """
    original, converted = (Graphs(each.proto) for each in (models.original, models.converted))
    definitions = Definitions(original, converted, models.folders)
    difference, divergence = result.first_difference, None
    tolerance = None if of_run is None else options.tolerances.of_output(of_run.name)
    if of_run is not None:
        divergence = reproducer.find_first_value(
            models,
            definitions,
            of_run.inputs,
            optimised=of_run.optimised,
            tolerance=tolerance,
        )
        result.first_value = None if divergence is None else divergence.first
    cause = (
        wrong_models(models)
        or other_precision(models, result)
        or (None if difference is None else _edited_nodes(models, definitions))
        or Cause((), next_step(result, divergence))
    )
    result.problems = [*cause.problems, *([] if cause.alone else result.problems)]
    result.message = f"failed: {first_of(result.problems)}"
    result.advice = cause.advice
    if options.reproducer is None or difference is None:
        return
    try:
        folder = Path(options.reproducer)
        allowed = tolerance if difference is of_run else None  # it is about outputs of the whole
        result.reproducer = reproducer.save_reproducer(
            folder, models, difference, divergence, verify, allowed
        )
    except ModelFileError as error:
        result.problems.append(f"no reproducer: {error}")


def wrong_models(models: ModelPair) -> Cause | None:
    """Say that the models are not an original and its conversion, in this order; None if they are."""
    original, converted = (
        sum(i.known_domain and i.node.domain != DOMAIN for i in found)
        for found in (
            analysis.find(source.proto, models.domains, source.folder)
            for source in (models.original, models.converted)
        )
    )
    if not converted:
        return None
    count = f"{converted} spatial operator{'' if converted == 1 else 's'}"
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
    worst, shown = max(errors), [p for p in result.problems if p.startswith("output ")]
    outputs = () if result.outputs_only else shown
    if worst <= _MOST_OF_PRECISION:
        headline = f"outputs are at most {worst:.1e} of the largest value apart: {change}"
        allowed = all(o.passed is not False for o in result.outputs)
        # The power of ten from twice the error on.
        rtol = 10.0 ** math.ceil(math.log10(2 * worst)) if worst else 0.0
        words = "--outputs-only" if allowed else f"--rtol {min(rtol, 0.5):g} --outputs-only"
        advice = f"to accept another precision, compare the outputs alone: {words}"
    else:
        amount = f"{worst:.1e} of the largest value" if math.isfinite(worst) else "NaN or infinity"
        headline = f"outputs differ by up to {amount}: {change}"
        advice = (
            "this is more than another precision explains: look for values that overflow (65504 is the "
            "largest float16), for ranges of the calibration that do not fit, and for nodes that "
            "should keep their precision"
        )
    return Cause((headline, *outputs), advice, alone=True)


def _change_of_precision(original: onnx.ModelProto, converted: onnx.ModelProto) -> str | None:
    quantised = _quantising_types(converted) - _quantising_types(original)
    if quantised and not _quantising_types(original):
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


def _quantising_types(model: onnx.ModelProto) -> set[str]:
    """Return the operators that compute with quantised numbers."""
    kinds = {node.op_type for _, _, node in traversal.nodes(model)}
    words = ("quantize", "integer", "qlinear")
    return {kind for kind in kinds if any(word in kind.lower() for word in words)}


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
    if not result.operators:
        return (
            "no conversion by onnx-spatial explains this: whatever wrote the second model changed what "
            "it computes. Report the first line above there, with the folder that --reproducer DIR saves"
        )
    return (
        "convert again with --no-fuse, and if that differs too, with --prefer transpose. Use a form "
        "that passes, and report the first line above with the folder that --reproducer DIR saves"
    )


# What was edited

#: Changes that are named; a model that differs in more is another model.
_MOST_CHANGES = 8
#: Bytes of a constant whose elements are compared.
_MOST_BYTES = 2**28
#: Characters of an attribute's value that are shown.
_MOST_CHARACTERS = 40


def _edited_nodes(models: ModelPair, definitions: Definitions) -> Cause | None:
    """Name each node and constant that was edited; None if there are none, or too many.

    Spatial operators of the original are none: a conversion replaces them.
    """
    replaced = {info.index for info in models.infos if info.known_domain}
    lines: list[str] = []
    for index, (place, _, node) in enumerate(traversal.nodes(models.original.proto)):
        edits = [] if index in replaced else list(_find_edits(models, definitions, place, node))
        more = f" (and {len(edits) - 1} more changes)" if len(edits) > 1 else ""
        lines += [f"{described(node, place)} was changed: {edit}{more}" for edit in edits[:1]]
    advice = (
        "use the model as `onnx-spatial convert` wrote it, or find the tool that edited it later: the "
        "conversion does not change this"
    )
    return Cause(tuple(lines), advice) if 0 < len(lines) <= _MOST_CHANGES else None


def _find_edits(
    models: ModelPair, definitions: Definitions, place: Place, before: onnx.NodeProto
) -> Iterator[str]:
    """Yield what was changed in a node of the original, as ends of sentences."""
    original, converted = definitions.original, definitions.converted
    stored = (onnx.TensorProto, onnx.SparseTensorProto)

    def computed_inputs(graphs: Graphs, node: onnx.NodeProto) -> list[str]:
        """Return the inputs of a node that are no constants."""
        return sorted(n for n in node.input if not isinstance(graphs.find(n, place), stored))

    output = next(filter(None, before.output), "")
    after = converted.find(output, place) if definitions.is_shared(output, place) else None
    if definitions.defined_alike(output, place) or not isinstance(after, onnx.NodeProto):
        after = None
    if after is not None and computed_inputs(original, before) != computed_inputs(converted, after):
        after = None
    if after is not None and (was := _type_of(before)) != (now := _type_of(after)):
        yield f"it is {now}, not {was}"
        return
    for old, new in zip(before.input, (after or before).input, strict=False):
        tensors = original.find(old, place), converted.find(new, place)
        if change := _compare_tensors(models, *tensors):
            words = f"its constant {new!r} differs"
            yield f"{words if after is None else f'it reads another constant {new!r}'}: {change}"
    if after is not None:
        yield from _changed_attributes(models, before, after)
        if sorted(before.input) == sorted(after.input) and list(before.input) != list(after.input):
            yield f"it reads its inputs in another order: {', '.join(after.input)}"


def _type_of(node: onnx.NodeProto) -> str:
    return ".".join(filter(None, (node.domain, node.op_type)))


def _changed_attributes(
    models: ModelPair, before: onnx.NodeProto, after: onnx.NodeProto
) -> Iterator[str]:
    old, new = ({a.name: a for a in node.attribute} for node in (before, after))
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was is None or now is None:
            yield f"it has {'no' if now is None else 'a new'} attribute {name!r}"
        elif was.HasField("t") and now.HasField("t"):
            if change := _compare_tensors(models, was.t, now.t):
                yield f"it has another {name!r}: {change}"
        elif (texts := (_show_attribute(now), _show_attribute(was)))[0] != texts[1]:
            yield f"it has another {name!r}: {texts[0]}, not {texts[1]}"


def _compare_tensors(models: ModelPair, was: object, now: object) -> str | None:
    """Say how two tensors differ; None if their values are the same, or they are no tensors."""
    if not isinstance(was, onnx.TensorProto) or not isinstance(now, onnx.TensorProto):
        return None
    folders = models.folders
    if external_data.are_same(was, folders[0], now, folders[1]):
        return None
    if max(was.ByteSize(), now.ByteSize()) > _MOST_BYTES:
        return "its bytes differ"
    try:
        before, after = constant_value(was, folders[0]), constant_value(now, folders[1])
    except ModelFileError as error:
        return str(error)
    mismatch = find_mismatch(before, after, Kind())
    if mismatch is None or mismatch.element is None:
        return None if mismatch is None else mismatch.reason
    element = describe_element(before, after, mismatch.element, {})
    return f"{mismatch.reason}; {show(mismatch.element)} {element}"


def _show_attribute(attribute: onnx.AttributeProto) -> str:
    """Show the value of an attribute; graphs are all alike, as their nodes are named by themselves."""
    if attribute.ref_attr_name:
        return f"attribute {attribute.ref_attr_name!r} of the function"
    if attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
        return "a graph"
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    text = str(value if isinstance(value, str | int | float) else list(value))
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."
