"""The inputs of a model: types and dims, data from the user, and made-up data."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx

from onnx_spatial.errors import Code, UsageError
from onnx_spatial.model.graph.strip_weights import strip_weights
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators import Dim
from onnx_spatial.operators.shapes import show
from onnx_spatial.verification.arrays import (
    BOOL,
    Array,
    constant_value,
    dtype_name,
    element_type_of,
    is_float,
    plain,
)

_BOTH = (True, False)


@dataclass(frozen=True)
class GraphInput:
    """One input of the original.

    Attributes:
        name: of the input.
        element_type: ONNX's; None if it is no dense tensor.
        dims: sizes, and symbols for unknown ones; None if the rank is unknown.
        default: initializer with its default value, if there is one.
    """

    name: str
    element_type: int | None
    dims: tuple[int | str, ...] | None
    default: onnx.TensorProto | None = None


def graph_inputs(model: onnx.ModelProto) -> list[GraphInput]:
    """Return the inputs of a model; unknown dims without a name get one like "x[2]"."""
    initializers = {t.name: t for t in model.graph.initializer}
    declared = {d for v in model.graph.input for d in shape_inference.dims(v.type) or ()}
    inputs = []
    for value in model.graph.input:
        default = initializers.get(value.name)
        if default is not None and model.ir_version < 4:
            continue  # all initializers were inputs, and none could be fed
        known = shape_inference.dims(value.type)
        dims = None
        if known is not None:
            dims = tuple(_symbol(value.name, axis, d, declared) for axis, d in enumerate(known))
        element_type = shape_inference.element_type(value.type)
        inputs.append(GraphInput(value.name, element_type, dims, default))
    return inputs


def _symbol(name: str, axis: int, dim: Dim, declared: Container[Dim]) -> int | str:
    """Return a dim, or a name for an unknown one that no other dim has."""
    if dim is not None and not (isinstance(dim, int) and dim < 0):  # some exporters write -1
        return dim
    symbol = f"{name}[{axis}]"
    while symbol in declared:
        symbol += "'"
    return symbol


def named_dims(model: onnx.ModelProto, inputs: Sequence[GraphInput]) -> onnx.ModelProto:
    """Copy a model without its weights, and name every unknown input dim by its symbol."""
    copy = strip_weights(model)
    dims = {i.name: i.dims for i in inputs}
    for value in copy.graph.input:
        known = dims.get(value.name)
        if known is not None:
            shape = value.type.tensor_type.shape
            if not value.type.tensor_type.HasField("shape"):  # a site fixes the rank
                shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in known)
            for target, dim in zip(shape.dim, known, strict=True):
                if isinstance(dim, str):
                    target.dim_param = dim
    return copy


def fixed_sizes(
    inputs: Sequence[GraphInput], given: Mapping[str, Sequence[int]]
) -> tuple[list[GraphInput], dict[str, int]]:
    """Apply shapes from the user: return the inputs with their ranks, and the sizes of symbols.

    Raises:
        UsageError: there is no such input, or it cannot have that shape.
    """
    by_name = _by_name(inputs, given)
    sizes: dict[str, int] = {}
    for name, shape in given.items():
        shape = tuple(int(d) for d in shape)
        dims = by_name[name].dims
        if dims is None:
            dims = tuple(f"{name}[{axis}]" for axis in range(len(shape)))
            by_name[name] = replace(by_name[name], dims=dims)
        _match(name, dims, shape, sizes)
    return list(by_name.values()), sizes


def _match(
    name: str, dims: Sequence[int | str], shape: Sequence[int], sizes: dict[str, int]
) -> None:
    wrong = f"input {name!r} must have shape {show(dims)}, not {show(shape)}"
    if len(dims) != len(shape):
        raise UsageError(wrong, code=Code.INPUT_DATA)
    for dim, size in zip(dims, shape, strict=True):
        if size < 0 or (isinstance(dim, int) and dim != size):
            raise UsageError(wrong, code=Code.INPUT_DATA)
        if isinstance(dim, str) and sizes.setdefault(dim, size) != size:
            raise UsageError(
                f"{wrong}: dim {dim} is {sizes[dim]} in another place", code=Code.INPUT_DATA
            )


def check_given(inputs: Sequence[GraphInput], given: Mapping[str, Array]) -> dict[str, Array]:
    """Check arrays from the user against the inputs of the model, and return them.

    Raises:
        UsageError: an input is missing, unknown, or of another type or shape than the model's.
    """
    by_name = _by_name(inputs, given)
    missing = [i.name for i in inputs if i.default is None and i.name not in given]
    if missing:
        raise UsageError(
            f"there is no data for input {', '.join(map(repr, missing))}", code=Code.INPUT_DATA
        )
    sizes: dict[str, int] = {}
    arrays = {}
    for name, value in given.items():
        array = np.asarray(value)
        array = array.astype(object) if array.dtype.kind in "UST" else array
        graph_input = by_name[name]
        element_type = graph_input.element_type
        if element_type is not None and element_type_of(array) != element_type:
            type_name = onnx.TensorProto.DataType.Name(element_type).lower()
            raise UsageError(
                f"input {name!r} must be {type_name}, not {dtype_name(array)}", code=Code.INPUT_DATA
            )
        if graph_input.dims is not None:
            _match(name, graph_input.dims, array.shape, sizes)
        arrays[name] = array
    return arrays


def _by_name(inputs: Sequence[GraphInput], given: Iterable[str]) -> dict[str, GraphInput]:
    """Return the inputs by name, which all names from the user must be among."""
    names = ", ".join(repr(i.name) for i in inputs) or "none"
    for name in given:
        if not any(name == i.name for i in inputs):
            raise UsageError(
                f"the model has no input {name!r}; it has {names}", code=Code.UNKNOWN_NAME
            )
    return {i.name: i for i in inputs}


@dataclass(frozen=True)
class Assignment:
    """The sizes and values that the inputs of a run are made of.

    Attributes:
        sizes: of every symbol.
        values: run-time parameters of sites, and overridden initializers.
        mode: how integers are filled, see `arrays`.
        number: part of the seed: runs of other numbers have other data.
    """

    sizes: Mapping[str, int]
    values: Mapping[str, Array] = field(default_factory=dict)
    mode: str = "wide"
    number: int = 0

    def shape(self, graph_input: GraphInput) -> tuple[int, ...]:
        """Return the shape of an input."""
        assert graph_input.dims is not None
        return tuple(d if isinstance(d, int) else self.sizes[d] for d in graph_input.dims)

    def resized(self, groups: Iterable[Sequence[str]], sizes: Iterable[int]) -> Assignment:
        """Return the assignment with another size for all symbols of each group."""
        changed = {s: size for symbols, size in zip(groups, sizes, strict=True) for s in symbols}
        return replace(self, sizes={**self.sizes, **changed})


def feeds(inputs: Sequence[GraphInput], assignment: Assignment, seed: int) -> dict[str, Array]:
    """Make the inputs of one run, by name; initializers keep their default unless assigned."""
    arrays: dict[str, Array] = {}
    flags = 0
    for position, graph_input in enumerate(inputs):
        name, element_type = graph_input.name, graph_input.element_type
        if name in assignment.values:
            arrays[name] = assignment.values[name]
        elif graph_input.default is None:
            assert element_type is not None
            rng = np.random.default_rng([seed, assignment.number, position])
            shape = assignment.shape(graph_input)
            array = plain(element_type, shape, rng, assignment.mode)
            if element_type == BOOL and array.size == 1:
                # Both branches of an If, not one by luck; of two of them all four.
                array[...] = _BOTH[(assignment.number >> flags) % 2]
                flags += 1
            arrays[name] = array
    return arrays


def overrides(
    inputs: Sequence[GraphInput], skip: set[str], folder: Path | None, seed: int
) -> dict[str, Array]:
    """Other values than the default for the float initializers that may be overridden."""
    values = {}
    for position, name, default in _defaults(inputs, skip, folder):
        if is_float(default.dtype):
            rng = np.random.default_rng([seed, position])
            # Of the magnitude of the default, so that a net with other weights still works.
            scale = float(np.abs(default.astype(np.float64)).max()) or 1.0
            noise = plain(onnx.TensorProto.DOUBLE, default.shape, rng) * (scale / 8)
            values[name] = (default.astype(np.float64) + noise).astype(default.dtype)
    return values


def whole_overrides(
    inputs: Sequence[GraphInput], skip: set[str], folder: Path | None
) -> dict[str, list[Array]]:
    """Return values to try for integers and bools that may be overridden; not every one is legal."""
    values = {}
    for _, name, default in _defaults(inputs, skip, folder):
        if default.dtype == np.bool_:
            values[name] = [np.asarray(~default)]
        elif default.dtype.kind in "iu":
            values[name] = [np.asarray(v, default.dtype) for v in (default + 1, default - 1)]
    return values


def _defaults(
    inputs: Sequence[GraphInput], skip: set[str], folder: Path | None
) -> Iterator[tuple[int, str, Array]]:
    """Yield position, name and default of the inputs that have one with elements."""
    for position, graph_input in enumerate(inputs):
        if graph_input.default is not None and graph_input.name not in skip:
            default = constant_value(graph_input.default, folder)
            if default.size:
                yield position, graph_input.name, default
