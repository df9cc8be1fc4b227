"""Hold the two models of a verification, and compare how they are used.

    original    x float [N, H, W, 3]    -> y float [N, 1000]
    converted   x float [N, 224, W, 3]  -> y float [N, 1000]    narrowed: no run shows it

The interface is names, order, types and shapes of the inputs and outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import Analysis, GraphFacts
from onnx_spatial.conversion.marked_functions import without_earlier_form
from onnx_spatial.conversion.options import domain_names
from onnx_spatial.errors import ModelFileError
from onnx_spatial.model import traversal
from onnx_spatial.model.graph import marks
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.model.io import reader
from onnx_spatial.operators.operator import Dim, show
from onnx_spatial.operators.spellings.python_ops import DOMAIN
from onnx_spatial.verification.match import foreign
from onnx_spatial.verification.options import Array, Tolerances
from onnx_spatial.verification.run import data
from onnx_spatial.verification.values import REALS, STRING, Kinds, dtype_of, is_float

_WITH_SIZE = frozenset(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED, STRING}


@dataclass(frozen=True)
class ModelPair:
    """An original, its conversion, and the user's own domains that hold spatial operators."""

    original: reader.Source
    converted: reader.Source
    domains: frozenset[str] = frozenset()

    @classmethod
    def read(
        cls,
        original: reader.Model | reader.Source,
        converted: reader.Model | reader.Source,
        domains: Iterable[str],
    ) -> ModelPair:
        """Read both models.

        Raises:
            ModelFileError: a model cannot be read.
        """
        before = original if isinstance(original, reader.Source) else reader.read(original)
        if isinstance(converted, reader.Source):
            return cls(before, converted, frozenset(domain_names(domains)))
        try:
            after = reader.read(converted)
        except ModelFileError:
            # A model in memory whose weights still lie beside the file that it was made from.
            if not isinstance(converted, onnx.ModelProto) or before.path is None:
                raise
            after = reader.Source(converted, before.path)
        return cls(before, after, frozenset(domain_names(domains)))

    def weight_bytes(self) -> int:
        """Return the bytes of the tensors in both models, wherever they are stored."""
        tensors = (t for m in (self.original, self.converted) for t in traversal.tensors(m.proto))
        known = (t for t in tensors if t.data_type in _WITH_SIZE)
        return sum(math.prod(t.dims) * dtype_of(t.data_type).itemsize for t in known)

    def prepared(self) -> ModelPair:
        """Return the pair with links resolved, and the original as it was before an earlier conversion.

        The converted model gets the original's folder of external data if it has none.
        """
        before, after = reader.resolved(self.original), reader.resolved(self.converted)
        if after.folder is None:
            after = replace(after, base=before.folder)
        unwrapped = without_earlier_form(before.proto, folder=before.folder)
        if unwrapped.model is not before.proto:
            before = before.holding(unwrapped.model)
        return ModelPair(before, after, self.domains | unwrapped.domains)

    @property
    def has_python_operators(self) -> bool:
        """Whether the converted model runs Python operators, as the original does."""
        return any(each.domain == DOMAIN for each in self.converted.proto.opset_import)

    @cached_property
    def readable(self) -> tuple[onnx.ModelProto, dict[str, str]]:
        """The converted model in standard nodes, with names of the original's values, and assumptions.

        What is assumed of its nodes is given by names of values.
        """
        model = marks.with_original_values(self.converted.proto)
        model, assumed = foreign.without_blocks(model, self.converted.folder)
        return foreign.with_names_of(self.original.proto, model), assumed

    @cached_property
    def named(self) -> onnx.ModelProto:
        """The original without its weights, and with a name for each open dim of its inputs."""
        proto = self.original.proto
        return data.named_dims(proto, data.graph_inputs(proto), self.original.folder)

    @cached_property
    def infos(self) -> Analysis:
        """The spatial operators of the original."""
        return analysis.find(self.named, self.domains, self.original.folder)

    @cached_property
    def facts(self) -> Sequence[GraphFacts]:
        """What is known of the graphs of the original, in the order of `traversal.graphs`."""
        return self.infos.facts

    @cached_property
    def kinds(self) -> Kinds:
        """How exactly the values of the original are determined."""
        return Kinds(self.named, self.infos, self.facts)

    def as_fed(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Return the data of a run of the original as the converted model declares it.

        Reals are rounded where its inputs are of a shorter type.
        """
        types = {
            value.name: shape_inference.element_type(value.type)
            for value in self.converted.proto.graph.input
        }
        return {name: _as_type(array, types.get(name)) for name, array in feeds.items()}

    @property
    def folders(self) -> tuple[Path | None, Path | None]:
        """The folders of the external data of both."""
        return self.original.folder, self.converted.folder


def _as_type(array: Array, element_type: int | None) -> Array:
    """Convert an array of reals to another type of reals; others stay as they are."""
    if element_type is None or not is_float(array.dtype):
        return array
    dtype = dtype_of(element_type)
    if dtype == array.dtype or not is_float(dtype):
        return array
    with np.errstate(all="ignore"):
        return array.astype(dtype)


# Inputs and outputs


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


def compare_interfaces(models: ModelPair, tolerances: Tolerances) -> Interface:
    """Compare the declared inputs and outputs of two models.

    With a tolerance for outputs other types of reals are allowed: of the inputs, and of these outputs.
    """
    original, converted = models.original.proto, models.converted.proto
    interface = Interface()
    for what, before, after in (
        ("input", traversal.required_inputs(original), traversal.required_inputs(converted)),
        ("output", original.graph.output, converted.graph.output),
    ):
        interface.blocking += _other_names(what, [v.name for v in before], [v.name for v in after])
        _compare_types(interface, what, before, after, tolerances)
    _compare_input_shapes(interface, original, converted)
    keys = {entry.key for entry in converted.metadata_props}
    lost = [entry.key for entry in original.metadata_props if entry.key not in keys]
    if lost:
        interface.notes.append(f"metadata of the model is lost: {', '.join(map(repr, lost))}")
    return interface


def _compare_types(
    interface: Interface,
    what: str,
    before: Iterable[onnx.ValueInfoProto],
    after: Iterable[onnx.ValueInfoProto],
    tolerances: Tolerances,
) -> None:
    """Note the inputs or outputs (`what`) with another element type."""
    new_types = {value.name: shape_inference.element_type(value.type) for value in after}
    for value in before:
        name, old_type = value.name, shape_inference.element_type(value.type)
        new_type = new_types.get(name)
        if old_type is None or new_type is None or old_type == new_type:
            continue
        old_name, new_name = map(shape_inference.type_name, (old_type, new_type))
        line = f"{what} {name!r} is declared as {new_name}, not {old_name}"
        if not {old_type, new_type} <= REALS.keys():
            interface.blocking.append(line)
        elif tolerances if what == "input" else tolerances.of_output(name):
            interface.notes.append(f"{line}; the tolerance allows it")
        else:
            interface.types.append(line)


def _compare_input_shapes(
    interface: Interface, original: onnx.ModelProto, converted: onnx.ModelProto
) -> None:
    """Note the inputs with another shape, and those that callers can no longer feed."""
    new_shapes = {v.name: shape_inference.dims(v.type) for v in converted.graph.input}
    for value in original.graph.input:
        old_dims, new_dims = shape_inference.dims(value.type), new_shapes.get(value.name)
        if new_dims is None:
            continue
        old = "without a shape" if old_dims is None else show(old_dims)
        line = f"input {value.name!r} is declared as {show(new_dims)}, not {old}"
        if not _fits_shape(old_dims, new_dims):
            interface.blocking.append(line)
        elif old_dims is None or any(
            isinstance(new, int) and new != old for old, new in zip(old_dims, new_dims, strict=True)
        ):
            interface.narrowed.append(line)
    if not traversal.has_defaults(original):
        return
    defaults = {tensor.name for tensor in original.graph.initializer}
    interface.blocking += (
        f"initializer {value.name!r} can no longer be overridden"
        for value in original.graph.input
        if value.name in defaults and value.name not in new_shapes
    )


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
        if now is not None and not _fits_shape(now, shape) and _fits_shape(was, shape):
            wrong.setdefault(
                name, f"output {name!r} is declared as {show(now)}, but has shape {show(shape)}"
            )
    return list(wrong.values())


def _other_names(what: str, old: Sequence[str], new: Sequence[str]) -> list[str]:
    lines = [f"{what} {n!r} is missing in the converted model" for n in old if n not in new]
    lines += [
        f"{what} {n!r} of the converted model is not in the original" for n in new if n not in old
    ]
    if not lines and old != new:
        lines.append(f"the {what}s are in another order: {', '.join(new)}, not {', '.join(old)}")
    return lines


def _fits_shape(declared: Sequence[Dim] | None, shape: Sequence[Dim]) -> bool:
    """Tell whether a shape, of which sizes may be unknown, does not contradict a declared one."""
    if declared is None:
        return True
    return len(declared) == len(shape) and all(
        dim == size or not isinstance(dim, int) or not isinstance(size, int)
        for dim, size in zip(declared, shape, strict=True)
    )
