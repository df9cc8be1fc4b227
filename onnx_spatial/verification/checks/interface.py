"""Check how the model is used: names, order and types of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx

from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators.shapes import Dim, show
from onnx_spatial.verification.checks.context import Context
from onnx_spatial.verification.pair import ModelPair

_REALS = frozenset(
    {
        onnx.TensorProto.DOUBLE,
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.BFLOAT16,
    }
)


def check(context: Context) -> None:
    """Compare the names, order and types of inputs and outputs, and the fixed sizes of inputs.

    Models whose inputs and outputs are reals of other types can be run and compared all the same. With
    a tolerance for outputs such types are allowed: of the inputs, and of these outputs. Metadata that
    is lost is only mentioned.
    """
    original, converted = context.models.original.proto, context.models.converted.proto
    findings, tolerances = context.findings, context.tolerances
    differences = findings.interface
    for what, before, after in (
        ("input", _required(original), _required(converted)),
        ("output", original.graph.output, converted.graph.output),
    ):
        differences += _names(what, before, after)
        for name, was, now in _other_types(before, after):
            old_type, new_type = map(shape_inference.type_name, (was, now))
            line = f"{what} {name!r} is declared as {new_type}, not {old_type}"
            if not {was, now} <= _REALS:
                differences.append(line)
            elif tolerances if what == "input" else tolerances.of_output(name):
                findings.notes.append(f"{line}; the tolerance allows it")
            else:
                findings.types.append(line)
    for name, old, new in _input_shapes(context.models):
        sizes = list(zip(old, new, strict=False))
        if len(old) != len(new) or any(
            isinstance(a, int) and isinstance(b, int) and a != b for a, b in sizes
        ):
            differences.append(f"input {name!r} is declared as {show(new)}, not {show(old)}")
    keys = {p.key for p in converted.metadata_props}
    lost = (p.key for p in original.metadata_props if p.key not in keys)
    findings.lost_metadata = list(lost)
    inputs = {v.name for v in converted.graph.input}
    differences += (
        f"initializer {i.name!r} can no longer be overridden"
        for i in context.reference.inputs
        if i.default is not None and i.name not in inputs
    )


def check_declarations(context: Context) -> None:
    """Compare the declared shape of each output with its shapes in the runs.

    An output fails only where the original's own declaration is right.
    """
    before, after = (
        {v.name: v.type for v in source.proto.graph.output}
        for source in (context.models.original, context.models.converted)
    )
    wrong: dict[str, str] = {}
    for output in context.findings.outputs:
        was, now = (shape_inference.dims(types.get(output.name)) for types in (before, after))
        if now is not None and not _fits(now, output.shape) and _fits(was, output.shape):
            declared = f"output {output.name!r} is declared as {show(now)}"
            wrong.setdefault(output.name, f"{declared}, but has shape {show(output.shape)}")
    context.findings.failures += wrong.values()


def narrowed(models: ModelPair) -> list[str]:
    """Return the inputs that the converted model declares with a fixed size where any size was legal."""
    return [
        f"input {name!r} is declared as {show(now)}, not {show(was)}"
        for name, was, now in _input_shapes(models)
        if len(was) == len(now)
        and any(
            isinstance(b, int) and not isinstance(a, int) for a, b in zip(was, now, strict=True)
        )
    ]


def _input_shapes(models: ModelPair) -> Iterator[tuple[str, Sequence[Dim], Sequence[Dim]]]:
    """Yield name and declared shapes of each input that both models declare with a shape."""
    after = {v.name: v.type for v in models.converted.proto.graph.input}
    for value in models.original.proto.graph.input:
        was, now = (shape_inference.dims(t) for t in (value.type, after.get(value.name)))
        if was is not None and now is not None:
            yield value.name, was, now


def _fits(declared: Sequence[Dim] | None, shape: Sequence[int]) -> bool:
    if declared is None:
        return True
    return len(declared) == len(shape) and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(declared, shape, strict=True)
    )


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
    types = {v.name: v.type for v in after}
    for value in before:
        was, now = (shape_inference.element_type(t) for t in (value.type, types.get(value.name)))
        if was is not None and now is not None and was != now:
            yield value.name, was, now


def _required(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    stored = {t.name for t in model.graph.initializer}
    return [v for v in model.graph.input if v.name not in stored]
