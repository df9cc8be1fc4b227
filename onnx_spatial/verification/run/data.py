"""Make the data that a model is fed, or take it from the user.

    x      float [N, H, W, 3]       N = 2, H = 40, W = 24: reals in -1.5 .. 1.5, of a seed
    pads   int32 [2, 2]             a parameter of an operator: drawn until the operator accepts it
    w      float [3] = {1, -2, 3}   its default

Data for a whole model is `usual`. An operator that only moves data gets `patterns`: any bits, all of
them different while the type has enough.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from onnx_spatial.errors import Code, UsageError
from onnx_spatial.model import traversal
from onnx_spatial.model.graph.strip import strip_weights
from onnx_spatial.model.inference import shape_inference
from onnx_spatial.operators import Dim
from onnx_spatial.operators.operator import show
from onnx_spatial.verification.options import Array
from onnx_spatial.verification.values import BOOL, STRING, bits_of, dtype_name, dtype_of

#: Ways to fill integers, in the order in which they are tried: a model that uses them as indices, sizes
#: or classes only runs with some.
INTEGER_MODES = ("wide", "ids", "few", "binary", "ones")

#: Types of reals with infinities, NaNs and subnormals.
_IEEE = tuple(map(np.dtype, (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)))

#: At most so many integers are more likely sizes, counts or steps than data: they are 2 or more.
MAX_SIZE_INTEGERS = 8


@dataclass(frozen=True)
class GraphInput:
    """One input of a model.

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

    @property
    def symbols(self) -> list[str]:
        """The symbols among its dims."""
        return [dim for dim in self.dims or () if isinstance(dim, str)]


def graph_inputs(model: onnx.ModelProto) -> list[GraphInput]:
    """Return the inputs of a model; unknown dims without a name get one like "x[2]"."""
    initializers = {t.name: t for t in model.graph.initializer}
    declared = {d for v in model.graph.input for d in shape_inference.dims(v.type) or ()}
    inputs = []
    for value in model.graph.input:
        default = initializers.get(value.name)
        if default is not None and not traversal.has_defaults(model):
            continue
        known = shape_inference.dims(value.type)
        dims = None
        if known is not None:
            dims = tuple(_symbol_of(value.name, axis, d, declared) for axis, d in enumerate(known))
        element_type = shape_inference.element_type(value.type)
        inputs.append(GraphInput(value.name, element_type, dims, default))
    return inputs


def _symbol_of(name: str, axis: int, dim: Dim, declared: Container[Dim]) -> int | str:
    """Return a dim, or a name for an unknown one that no other dim has."""
    if dim is not None and not (isinstance(dim, int) and dim < 0):  # some exporters write -1
        return dim
    symbol = f"{name}[{axis}]"
    while symbol in declared:
        symbol += "'"
    return symbol


def named_dims(
    model: onnx.ModelProto, inputs: Sequence[GraphInput], folder: Path | None = None
) -> onnx.ModelProto:
    """Copy a model without its weights, and name every unknown input dim by its symbol.

    Sizes that are external data are read from `folder`.
    """
    copy = strip_weights(model, folder)
    dims = {i.name: i.dims for i in inputs}
    for value in copy.graph.input:
        known = dims.get(value.name)
        if known is not None:
            shape = value.type.tensor_type.shape
            if not value.type.tensor_type.HasField("shape"):  # the rank follows from an operator
                shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in known)
            for target, dim in zip(shape.dim, known, strict=True):
                if isinstance(dim, str):
                    target.dim_param = dim
    return copy


# Data and shapes from the user


def fixed_sizes(
    inputs: Sequence[GraphInput], shapes: Mapping[str, Sequence[int]]
) -> tuple[list[GraphInput], dict[str, int]]:
    """Apply shapes from the user: return the inputs with their ranks, and the sizes of symbols.

    Raises:
        UsageError: there is no such input, or it cannot have that shape.
    """
    by_name = {known.name: known for known in inputs}
    sizes: dict[str, int] = {}
    for name, given in shapes.items():
        if name not in by_name:
            names = ", ".join(map(repr, by_name)) or "none"
            unknown = f"the model has no input {name!r}; it has {names}"
            raise UsageError(unknown, code=Code.UNKNOWN_NAME)
        shape, dims = tuple(int(d) for d in given), by_name[name].dims
        if dims is None:
            dims = tuple(f"{name}[{axis}]" for axis in range(len(shape)))
            by_name[name] = replace(by_name[name], dims=dims)
        wrong = f"input {name!r} must have shape {show(dims)}, not {show(shape)}"
        if len(dims) != len(shape):
            raise UsageError(wrong, code=Code.INPUT_DATA)
        for dim, size in zip(dims, shape, strict=True):
            if size < 0 or (isinstance(dim, int) and dim != size):
                raise UsageError(wrong, code=Code.INPUT_DATA)
            if isinstance(dim, str) and sizes.setdefault(dim, size) != size:
                other = f"{wrong}: dim {dim} is {sizes[dim]} in another place"
                raise UsageError(other, code=Code.INPUT_DATA)
    return list(by_name.values()), sizes


def check_user_data(inputs: Sequence[GraphInput], values: Mapping[str, Any]) -> dict[str, Array]:
    """Check arrays from the user against the inputs of the model, and return them.

    Raises:
        UsageError: an input is missing, unknown, or of another type or shape than the model's.
    """
    arrays = {name: np.asarray(value) for name, value in values.items()}
    fixed_sizes(inputs, {name: array.shape for name, array in arrays.items()})
    missing = [i.name for i in inputs if i.default is None and i.name not in values]
    if missing:
        lacking = f"there is no data for input {', '.join(map(repr, missing))}"
        raise UsageError(lacking, code=Code.INPUT_DATA)
    types = {known.name: known.element_type for known in inputs}
    for name, array in arrays.items():
        if array.dtype.kind in "UST":
            array = array.astype(object)
        if (element_type := types[name]) is not None:
            wanted = dtype_of(element_type)
            if array.dtype.type is np.void and array.dtype.itemsize == wanted.itemsize:
                array = array.view(wanted)  # .npz files keep only the bits of a bfloat16
            if array.dtype != wanted:
                type_name = onnx.TensorProto.DataType.Name(element_type).lower()
                other = f"input {name!r} must be {type_name}, not {dtype_name(array)}"
                raise UsageError(other, code=Code.INPUT_DATA)
        arrays[name] = array
    return arrays


# Generated data


@dataclass(frozen=True)
class Assignment:
    """What the inputs of a run are made of, beside the parameters of operators.

    Attributes:
        sizes: of every symbol.
        mode: how integers are filled, see `usual`.
        number: part of the seed: runs of other numbers have other data.
    """

    sizes: Mapping[str, int]
    mode: str = INTEGER_MODES[0]
    number: int = 0

    def shape(self, graph_input: GraphInput) -> tuple[int, ...]:
        """Return the shape of an input."""
        assert graph_input.dims is not None
        return tuple(d if isinstance(d, int) else self.sizes[d] for d in graph_input.dims)

    def resized(self, sizes: Mapping[str, int]) -> Assignment:
        """Return the assignment with other sizes of some symbols."""
        return replace(self, sizes={**self.sizes, **sizes})

    def doubled(self, *groups: Sequence[str]) -> Assignment:
        """Return the assignment with twice the sizes of some symbols."""
        return self.resized({symbol: 2 * self.sizes[symbol] for each in groups for symbol in each})


def make_feeds(
    inputs: Sequence[GraphInput], assignment: Assignment, values: Mapping[str, Array], seed: int
) -> dict[str, Array]:
    """Make the inputs of one run, by name; initializers keep their default unless `values` has one."""
    arrays: dict[str, Array] = {}
    flags = 0
    for position, graph_input in enumerate(inputs):
        name, element_type = graph_input.name, graph_input.element_type
        if name in values:
            arrays[name] = values[name]
        elif graph_input.default is None:
            assert element_type is not None
            rng = np.random.default_rng([seed, assignment.number, position])
            array = usual(element_type, assignment.shape(graph_input), rng, assignment.mode)
            if element_type == BOOL and array.size == 1:
                # Both branches of an If, not one by luck; of two of them all four.
                array[...] = (assignment.number >> flags) % 2 == 0
                flags += 1
            arrays[name] = array
    return arrays


def usual(
    element_type: int, shape: Sequence[int], rng: np.random.Generator, mode: str = INTEGER_MODES[0]
) -> Array:
    """Make data for a whole model: reals in -1.5 .. 1.5, truth values, strings, integers by `mode`.

    Integers are "wide", different ones around 0; "ids", different ones from 0 on; "few", below 10;
    "binary", 0 and 1; "ones". A `MAX_SIZE_INTEGERS` of the first two kinds begin at 2.
    """
    count = math.prod(shape)
    if element_type == STRING:
        return _make_strings(count, rng).reshape(shape)
    if element_type == BOOL:
        return _make_booleans(count, rng).reshape(shape)
    dtype = dtype_of(element_type)
    if dtype.kind in "iu" or "int" in dtype.name:
        # Short types wrap around.
        return _make_integers(count, rng, mode).astype(dtype).reshape(shape)
    values: Array = np.linspace(-1.5, 1.4375, count) if count > 1 else np.full(count, 0.8125)
    values = rng.permutation(values)
    if dtype == ml_dtypes.float8_e8m0fnu:  # which has no sign
        values = np.abs(values)
    if dtype.kind == "c":
        values = values + 1j * rng.permutation(values)
    return values.astype(dtype).reshape(shape)


def patterns(element_type: int, shape: Sequence[int], rng: np.random.Generator) -> Array:
    """Make data for operators that only move it: any bits, distinct while the type has enough.

    Reals have -0.0, infinities, NaNs with payloads, subnormals and extremes among them.
    """
    count = math.prod(shape)
    if element_type in (STRING, BOOL):
        return usual(element_type, shape, rng)
    dtype = dtype_of(element_type)
    unit = np.dtype(f"u{min(dtype.itemsize, 8)}")
    count *= dtype.itemsize // unit.itemsize
    # An odd step modulo 2^bits: distinct numbers all over the range, in any order.
    start, step = rng.integers(0, 2 ** (8 * unit.itemsize), 2, unit)
    raw = rng.permutation(count).astype(unit) * (step | unit.type(1)) + start
    raw &= unit.type(2 ** min(bits_of(dtype), 64) - 1)
    if dtype in _IEEE:
        infinity, nan = (int(np.array(v, dtype).view(unit)) for v in (np.inf, np.nan))
        sign = 1 << (8 * unit.itemsize - 1)
        special = [0, 1, infinity - 1, infinity, infinity | 1, nan & ~sign, nan & ~sign | 0x2A]
        special = [bits | s for s in (sign, 0) for bits in special][: count // 2]
        raw[rng.permutation(count)[: len(special)]] = special
    if dtype == np.float16:
        # onnxruntime's float16 kernels of Pad, Tile, Where and SpaceToDepth go through float32, which
        # sets the quiet bit of a signalling NaN; measured on 1.31: all other patterns survive.
        raw[np.isnan(raw.view(dtype))] |= 0x0200
    return np.asarray(raw.view(dtype).reshape(shape))


def _make_strings(count: int, rng: np.random.Generator) -> Array:
    values = np.empty(count, object)
    values[:] = [f"{i} é" for i in rng.permutation(count)]
    if count > 1:
        values[rng.integers(count)] = ""  # the padding of strings, too
    return values


def _make_booleans(count: int, rng: np.random.Generator) -> Array:
    values = rng.integers(0, 2, count).astype(np.bool_)
    if count > 1 and values.all() == values.any():
        values[rng.integers(count)] ^= True
    return values


def _make_integers(count: int, rng: np.random.Generator, mode: str) -> Array:
    if mode == "ones":
        return np.ones(count, np.int64)
    if mode == "binary":
        return _make_booleans(count, rng).astype(np.int64)
    if mode == "few":
        return rng.integers(0, 10, count)
    if count <= MAX_SIZE_INTEGERS:
        return rng.permutation(np.arange(2, 2 + count))
    return rng.permutation(np.arange(count)) - (count // 2 if mode == "wide" else 0)
