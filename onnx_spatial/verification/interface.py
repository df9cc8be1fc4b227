"""Compare how two models are used: names, order, types and shapes of their inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators.shapes import Dim, show
from onnx_spatial.verification.compare.tolerance import Tolerances
from onnx_spatial.verification.pair import ModelPair

_REALS = frozenset(
    {
        onnx.TensorProto.DOUBLE,
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.BFLOAT16,
    }
)


@dataclass
class Interface:
    """What differs in the inputs and outputs of two models, one line each.

    Attributes:
        blocking: what keeps both from running on the same data; a failure.
        types: inputs and outputs that are reals of another type; a failure, but both can run.
        narrowed: inputs with a fixed size where any size was legal: no run shows it.
        notes: what a tolerance of the caller allows, and metadata that is lost.
    """

    blocking: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    narrowed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def compare(models: ModelPair, tolerances: Tolerances) -> Interface:
    """Compare the declared inputs and outputs of two models.

    With a tolerance for outputs other types of reals are allowed: of the inputs, and of these outputs.
    """
    original, converted = models.original.proto, models.converted.proto
    found = Interface()
    for what, before, after in (
        ("input", _required(original), _required(converted)),
        ("output", original.graph.output, converted.graph.output),
    ):
        found.blocking += _names(what, before, after)
        for name, was, now in _other_types(before, after):
            old, new = map(shape_inference.type_name, (was, now))
            line = f"{what} {name!r} is declared as {new}, not {old}"
            if not {was, now} <= _REALS:
                found.blocking.append(line)
            elif tolerances if what == "input" else tolerances.of_output(name):
                found.notes.append(f"{line}; the tolerance allows it")
            else:
                found.types.append(line)
    for name, was_dims, now_dims in _input_shapes(original, converted):
        line = f"input {name!r} is declared as {show(now_dims)}, not {show(was_dims)}"
        if len(was_dims) != len(now_dims) or any(map(_contradict, was_dims, now_dims)):
            found.blocking.append(line)
        elif any(map(_is_narrower, was_dims, now_dims)):
            found.narrowed.append(line)
    kept = {v.name for v in converted.graph.input}
    found.blocking += (
        f"initializer {name!r} can no longer be overridden"
        for name in _defaults(original)
        if name not in kept
    )
    keys = {p.key for p in converted.metadata_props}
    lost = [p.key for p in original.metadata_props if p.key not in keys]
    if lost:
        found.notes.append(f"metadata of the model is lost: {', '.join(map(repr, lost))}")
    return found


def wrong_declarations(models: ModelPair, shapes: Iterable[tuple[str, Sequence[int]]]) -> list[str]:
    """Return a line for each output that has another shape in a run than it is declared with.

    Only where the original's own declaration is right.

    Args:
        models: the models.
        shapes: names and shapes of the original's outputs in runs.
    """
    before, after = (
        {v.name: v.type for v in source.proto.graph.output}
        for source in (models.original, models.converted)
    )
    wrong: dict[str, str] = {}
    for name, shape in shapes:
        was, now = (shape_inference.dims(types.get(name)) for types in (before, after))
        if now is not None and not _fits(now, shape) and _fits(was, shape):
            wrong.setdefault(
                name, f"output {name!r} is declared as {show(now)}, but has shape {show(shape)}"
            )
    return list(wrong.values())


def _required(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    stored = {t.name for t in model.graph.initializer}
    return [v for v in model.graph.input if v.name not in stored]


def _defaults(model: onnx.ModelProto) -> list[str]:
    """Return the names of the inputs that have an initializer for a default."""
    if model.ir_version < 4:  # every initializer was listed as an input; none could be fed
        return []
    stored = {t.name for t in model.graph.initializer}
    return [v.name for v in model.graph.input if v.name in stored]


def _names(
    what: str, before: Sequence[onnx.ValueInfoProto], after: Sequence[onnx.ValueInfoProto]
) -> list[str]:
    old, new = [v.name for v in before], [v.name for v in after]
    lines = [f"{what} {n!r} is missing in the converted model" for n in old if n not in new]
    lines += [
        f"{what} {n!r} of the converted model is not in the original" for n in new if n not in old
    ]
    if not lines and old != new:
        lines.append(f"the {what}s are in another order: {', '.join(new)}, not {', '.join(old)}")
    return lines


def _other_types(
    before: Sequence[onnx.ValueInfoProto], after: Sequence[onnx.ValueInfoProto]
) -> Iterator[tuple[str, int, int]]:
    """Yield name, old and new element type of each value that has another one."""
    types: Mapping[str, onnx.TypeProto] = {v.name: v.type for v in after}
    for value in before:
        was, now = (shape_inference.element_type(t) for t in (value.type, types.get(value.name)))
        if was is not None and now is not None and was != now:
            yield value.name, was, now


def _input_shapes(
    original: onnx.ModelProto, converted: onnx.ModelProto
) -> Iterator[tuple[str, Sequence[Dim], Sequence[Dim]]]:
    """Yield name and declared shapes of each input that both models declare with a shape."""
    after = {v.name: v.type for v in converted.graph.input}
    for value in original.graph.input:
        was, now = (shape_inference.dims(t) for t in (value.type, after.get(value.name)))
        if was is not None and now is not None:
            yield value.name, was, now


def _contradict(was: Dim, now: Dim) -> bool:
    return isinstance(was, int) and isinstance(now, int) and was != now


def _is_narrower(was: Dim, now: Dim) -> bool:
    return isinstance(now, int) and not isinstance(was, int)


def _fits(declared: Sequence[Dim] | None, shape: Sequence[int]) -> bool:
    if declared is None:
        return True
    return len(declared) == len(shape) and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(declared, shape, strict=True)
    )
