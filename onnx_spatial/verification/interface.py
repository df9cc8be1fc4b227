"""How models are used: names, order and types of inputs and outputs, as they declare them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx

from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators.shapes import Dim, show
from onnx_spatial.verification.compare.outputs import OutputResult


def differences(original: onnx.ModelProto, converted: onnx.ModelProto) -> list[str]:
    """One line for each way in which the converted model is used differently."""
    found = []
    for what, before, after in (
        ("input", _required(original), _required(converted)),
        ("output", list(original.graph.output), list(converted.graph.output)),
    ):
        found += _compare(what, before, after)
    fed = {v.name for v in converted.graph.input}
    for value in overridable(original):
        if value.name not in fed:
            found.append(f"initializer {value.name!r} can no longer be overridden")
    return found


def misdeclared(
    original: onnx.ModelProto, converted: onnx.ModelProto, outputs: Iterable[OutputResult]
) -> list[str]:
    """One line for each output whose declaration a run contradicts, where the original's fits."""
    before, after = ({v.name: v.type for v in m.graph.output} for m in (original, converted))
    found: dict[str, str] = {}
    for output in outputs:
        was, now = (shape_inference.dims(types.get(output.name)) for types in (before, after))
        if now is not None and not _fits(now, output.shape) and _fits(was, output.shape):
            declared = f"output {output.name!r} is declared as {show(now)}"
            found.setdefault(output.name, f"{declared}, and gives {show(output.shape)}")
    return list(found.values())


def _fits(declared: Sequence[Dim] | None, shape: Sequence[int]) -> bool:
    if declared is None:
        return True
    return len(declared) == len(shape) and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(declared, shape, strict=True)
    )


def _compare(
    what: str, before: Sequence[onnx.ValueInfoProto], after: Sequence[onnx.ValueInfoProto]
) -> list[str]:
    old, new = [v.name for v in before], [v.name for v in after]
    found = [f"{what} {n!r} is missing in the converted model" for n in old if n not in new]
    found += [
        f"{what} {n!r} of the converted model is not in the original" for n in _extra(old, new)
    ]
    if not found and old != new:
        found.append(f"the {what}s are in another order: {', '.join(new)}, not {', '.join(old)}")
    types = {v.name: v.type for v in after}
    for value in before:
        a, b = (shape_inference.element_type(t) for t in (value.type, types.get(value.name)))
        if a is not None and b is not None and a != b:
            names = (onnx.TensorProto.DataType.Name(t).lower() for t in (b, a))
            found.append("{} {!r} is declared as {}, not {}".format(what, value.name, *names))
    return found


def _extra(old: Sequence[str], new: Sequence[str]) -> list[str]:
    return [n for n in new if n not in old]


def _required(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    stored = {t.name for t in model.graph.initializer}
    return [v for v in model.graph.input if v.name not in stored]


def overridable(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Inputs that have an initializer to fall back on."""
    if model.ir_version < 4:  # every initializer was listed as an input, and none could be fed
        return []
    stored = {t.name for t in model.graph.initializer}
    return [v for v in model.graph.input if v.name in stored]
