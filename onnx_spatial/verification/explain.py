"""Complete a failed verification: where the models part, what causes it, what to do, and what shows it.

The first cause that applies is put in front of the problems:

    wrong models       one that is not converted, or two that are swapped: nothing else is said
    other precision    float16 or int8: the error of the outputs says whether it is right
    edited             nodes and constants that no conversion changes
    none               then advice follows from the kind of the difference

Converted models keep the names of the original's values. So both run once more with every value that
both compute as an output, and these are compared in the order in which the original computes them:

    a, b, c agree,  d differs     the nodes between a, b, c and d are wrong

    DIR/original.onnx     the part of the original that leads to the first value that differs
    DIR/converted.onnx    the part of the converted model that leads there
    DIR/inputs.npz        data on which they differ, by input name
    DIR/reproduce.py      compares both on this data, and exits with 1 while they differ

Each pair of parts runs before it is saved, and differs; where no part does, the whole models are saved.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from onnx_spatial import analysis
from onnx_spatial.errors import Code, ModelFileError, SpatialError
from onnx_spatial.model import traversal
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.io import external_data, reader
from onnx_spatial.model.traversal import Place
from onnx_spatial.operators.spellings.python_ops import DOMAIN
from onnx_spatial.verification.evidence import Difference, FirstValue, Verification, first_of
from onnx_spatial.verification.match.graphs import (
    MAIN,
    Graphs,
    GrowingPart,
    NoPartError,
    Producer,
    is_computed,
)
from onnx_spatial.verification.options import Array, Tolerance, VerifyOptions
from onnx_spatial.verification.pair import ModelPair
from onnx_spatial.verification.run.run_error import RunError
from onnx_spatial.verification.run.side_by_side import run_with_inner_values
from onnx_spatial.verification.values import (
    REALS,
    Kind,
    dtype_name,
    find_mismatch,
    is_native,
    type_of,
)

#: Changes that are named; a model that differs in more is another model.
_MAX_CHANGES = 8
#: Error relative to the largest value from which on another precision does not explain it.
_MAX_OF_PRECISION = 0.25


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
    edits: Sequence[str] = (),
) -> None:
    """Complete a failed verification, in place.

    Args:
        result: the verification.
        models: the original and the converted model.
        options: tolerances, and the folder of the reproducer.
        verify: compares the models of a reproducer, as its script will.
        of_run: the first difference in a run of both models; the result's may be of a part.
        edits: nodes that somebody edited, in one line each.
    """
    difference, divergence, tolerance = result.first_difference, None, None
    if of_run is not None:
        tolerance = options.tolerances.of_output(of_run.name)
        divergence = find_first_value(models, of_run, tolerance)
        result.first_value = None if divergence is None else divergence.first
    cause = (
        wrong_models(models)
        or other_precision(models, result)
        or (None if difference is None else edited_nodes(edits))
        or Cause((), next_step(result, divergence))
    )
    others = () if cause.alone else result.problems
    result.problems = list(dict.fromkeys((*cause.problems, *others)))
    result.message = f"failed: {first_of(result.problems)}"
    result.advice = cause.advice
    if options.reproducer is None or difference is None:
        return
    try:
        folder = Path(options.reproducer)
        allowed = tolerance if difference is of_run else None  # it is about outputs of the whole
        result.reproducer = save_reproducer(folder, models, difference, divergence, verify, allowed)
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
    if worst <= _MAX_OF_PRECISION:
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
    now, was = (", ".join(sorted(REALS[t] for t in each)) for each in (after - before, before))
    return f"the second model computes in {now}, the first in {was}"


def _real_types(model: onnx.ModelProto) -> set[int]:
    """Return the types of the reals that a model is fed, stores or casts to."""
    types = {tensor.data_type for tensor in traversal.tensors(model)}
    types |= {shape_inference.element_type(value.type) or 0 for value in model.graph.input}
    casts = (node for _, _, node in traversal.nodes(model) if node.op_type == "Cast")
    types |= {a.i for node in casts for a in node.attribute if a.name == "to"}
    return types & REALS.keys()


def _quantising_types(model: onnx.ModelProto) -> set[str]:
    """Return the operators that compute with quantised numbers."""
    kinds = {node.op_type for _, _, node in traversal.nodes(model)}
    words = ("quantize", "integer", "qlinear")
    return {kind for kind in kinds if any(word in kind.lower() for word in words)}


def edited_nodes(edits: Sequence[str]) -> Cause | None:
    """Name the nodes that were edited; None if there are none, or too many for the same model."""
    advice = (
        "use the model as `onnx-spatial convert` wrote it, or find the tool that edited it later: the "
        "conversion does not change this"
    )
    return Cause(tuple(edits), advice) if 0 < len(edits) <= _MAX_CHANGES else None


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


# The first value that differs

#: Bytes of a model that is copied to give it more outputs.
_MAX_BYTES = 2**28


@dataclass(frozen=True)
class Divergence:
    """Where the values of two models part in a run.

    Attributes:
        first: the first value that differs; None if those that both compute agree.
        agreed: tensors that agree and come before it, the inputs included, by name.
        grows: whether both models compute it by the same node from the same values: then that node
            amplifies a difference that rounding makes.
    """

    first: FirstValue | None
    agreed: Mapping[str, Array]
    grows: bool = False


def find_first_value(
    models: ModelPair, difference: Difference, tolerance: Tolerance | None
) -> Divergence | None:
    """Find the first value of the main graph that differs; None if the models cannot be run so.

    Args:
        models: the original and the converted model.
        difference: of a run of both, with its data.
        tolerance: that the caller sets for the output that differs.
    """
    original, converted = models.original.proto, models.converted.proto
    if max(original.ByteSize(), converted.ByteSize()) > _MAX_BYTES:
        return None
    made = {name: node for node in converted.graph.node for name in node.output if name}
    makers = {
        name: node
        for node in traversal.in_order(original.graph)
        for name in node.output
        if name in made
    }
    feeds, optimised = difference.inputs, difference.optimised
    try:
        expected, actual = run_with_inner_values(models, [*makers], feeds, optimise=optimised)
    except (RunError, SpatialError):
        return None
    kinds, agreed = models.kinds.of_values(), dict(feeds)
    for name, node in makers.items():
        value, kind = expected[name], kinds.get(name, Kind())
        mismatch = None if kind.random else find_mismatch(value, actual[name], kind, tolerance)
        if mismatch is not None:
            first = FirstValue(
                name,
                traversal.label(node),
                node.op_type,
                str(MAIN),
                dtype_name(value) if isinstance(value, np.ndarray) else type(value).__name__,
                np.shape(value),
                optimised,
                str(mismatch.reason),
            )
            return Divergence(first, agreed, _computation(node) == _computation(made[name]))
        if isinstance(value, np.ndarray):
            agreed[name] = value
    return Divergence(None, agreed)


def _computation(node: onnx.NodeProto) -> tuple[object, ...]:
    """Return what tells nodes of different results apart, beside the values that they read."""
    attributes = sorted(a.SerializeToString(deterministic=True) for a in node.attribute)
    return node.domain, node.op_type, *node.input, *attributes


# The two small models

_SCRIPT = '''"""{message}

Compares converted.onnx with original.onnx on inputs.npz, and exits with 1 while they differ.
"""

import sys
from pathlib import Path

import numpy as np

import onnx_spatial

here = Path(__file__).parent
with np.load(here / "inputs.npz") as inputs:
    options = onnx_spatial.VerifyOptions(inputs=dict(inputs), outputs_only=True{tolerance})
result = onnx_spatial.verify(here / "original.onnx", here / "converted.onnx", options{domains})
print(result.message)
for output in result.outputs:
    for worst in output.worst_elements:
        element = f"{{output.name}}{{list(worst.index)}}"
        print(f"{{element}} is {{worst.converted}} instead of {{worst.original}}")
sys.exit(not result)
'''


#: An original, its conversion, and data of their inputs.
_SmallPair = tuple[onnx.ModelProto, onnx.ModelProto, Mapping[str, Array]]


def save_reproducer(
    folder: Path,
    models: ModelPair,
    difference: Difference,
    divergence: Divergence | None,
    verify: Callable[..., Verification],
    tolerance: Tolerance | None = None,
) -> Path:
    """Write a reproducer of the first difference and return the path of its script.

    Args:
        folder: where it is written.
        models: the original and the converted model.
        difference: the first one that was found.
        divergence: the first value that differs in a run of both models, if that is known.
        verify: compares two models, as the script will.
        tolerance: that the caller sets for the output that differs.

    Raises:
        ModelFileError: nothing that can be saved shows the difference, or it cannot be written.
    """
    rtol, atol = (None, None) if tolerance is None else (tolerance.rtol, tolerance.atol)
    for pair in _candidate_pairs(models, difference, divergence):
        options = VerifyOptions(inputs=pair[2], outputs_only=True, rtol=rtol, atol=atol)
        with suppress(OSError, ValueError, SpatialError):  # a larger one can stand alone
            for proto, outer in zip(pair[:2], models.folders, strict=True):
                external_data.embed_all(proto, outer)
            result = verify(*pair[:2], options, domains=models.domains)
            files = [reader.serialize(proto) for proto in pair[:2]]
            if result.status == "failed":
                break
    else:
        raise ModelFileError(
            "not saved: no part of the models shows the difference on its own",
            code=Code.NO_REPRODUCER,
        )
    script = _SCRIPT.format(
        message=difference.message.replace("\\", "/").replace('"""', "'''"),
        tolerance="" if tolerance is None else f", rtol={rtol!r}, atol={atol!r}",
        domains=f", domains={sorted(models.domains)!r}" if models.domains else "",
    )
    path = folder / "reproduce.py"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in zip(("original", "converted"), files, strict=True):
            (folder / f"{name}.onnx").write_bytes(content)
        with zipfile.ZipFile(folder / "inputs.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, array in pair[2].items():  # np.savez takes no array called "file"
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, _plain_array(array), allow_pickle=False)
        path.write_text(script, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise ModelFileError(
            f"{os.fspath(folder)}: cannot be written: {reason}", code=Code.UNWRITABLE
        ) from None
    return path


def _candidate_pairs(
    models: ModelPair, difference: Difference, divergence: Divergence | None
) -> Iterator[_SmallPair]:
    """Yield pairs of models that may show the difference, the smallest first."""
    cuts = []
    if difference.value is not None and difference.place is not None:
        cuts.append((difference.place, difference.value, difference.inputs))
    if divergence is not None and divergence.first is not None:
        cuts.append((MAIN, divergence.first.name, divergence.agreed))
    for cut in cuts:
        with suppress(NoPartError):
            if (pair := _cut_out(models, *cut)) is not None:
                yield pair
    if difference.kind in ("output", "model"):
        original, converted = onnx.ModelProto(), onnx.ModelProto()
        original.CopyFrom(models.original.proto)
        converted.CopyFrom(models.converted.proto)
        yield original, converted, difference.inputs


def _cut_out(
    models: ModelPair, place: Place, output: str, known: Mapping[str, Array]
) -> _SmallPair | None:
    """Cut out what leads from known values to an output; None if it needs other values.

    Raises:
        NoPartError: nothing computes the output, or its nodes cannot be taken out of a function.
    """

    def stops_at(name: str, producer: Producer | None) -> bool:
        return name in known and (producer is None or is_computed(producer))

    parts = []
    for source in (models.original, models.converted):
        growing = GrowingPart(Graphs(source.proto), place, stops_at)
        growing.include(output)
        parts.append(growing.part())
    read = sorted(parts[0].read | parts[1].read)
    if not known.keys() >= set(read):
        return None
    types = {name: type_of(known[name]) for name in read}
    original, converted = (part.model(types, output) for part in parts)
    return original, converted, {name: known[name] for name in read}


def _plain_array(array: Array) -> Array:
    """Return an array without Python objects; of a type that numpy lacks, its bits."""
    if array.dtype.kind == "O":
        return array.astype(np.str_)
    return array if is_native(array.dtype) else array.view(f"V{array.dtype.itemsize}")
