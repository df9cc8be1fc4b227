"""Make atoms for dims and tensor elements that are unknown until run time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from onnx_spatial.model.inference import constant_folding, shape_inference
from onnx_spatial.model.symbolic.polynomial import Polynomial
from onnx_spatial.model.symbolic.symbolic_tensor import MAX_ENTRIES, SymbolicTensor, table


@dataclass(frozen=True, slots=True)
class ElementKey:
    """Key of the atom for one element of a tensor."""

    scope: constant_folding.ConstantScope
    name: str
    index: int


@dataclass(frozen=True, slots=True)
class DimKey:
    """Key of the atom for one dim of a value."""

    scope: constant_folding.ConstantScope
    name: str
    axis: int


@dataclass(frozen=True, slots=True)
class NamedDimKey:
    """Key of the atom for all dims of one name among the inputs of the main graph."""

    scope: constant_folding.ConstantScope
    name: str


def static(known: onnx.TypeProto | None) -> tuple[int, ...] | None:
    """Return the dims of a tensor type, if all are known numbers."""
    dims = shape_inference.dims(known)
    sizes = [d for d in dims or () if isinstance(d, int)]
    return tuple(sizes) if dims is not None and len(sizes) == len(dims) else None


def named_dims(
    scope: constant_folding.ConstantScope,
    name: str,
    computed: Sequence[Polynomial | None] | None = None,
) -> tuple[Polynomial, ...] | None:
    """Return the dims of a value, with an atom for each unknown one; None if the rank is unknown.

    Args:
        scope: the graph that the value belongs to.
        name: its name there.
        computed: its dims, as far as the caller knows them; declared numbers take precedence.
    """
    declared = shape_inference.dims(scope.type(name))
    if declared is None:
        if computed is None:
            return None
        declared = (None,) * len(computed)
    if computed is None or len(computed) != len(declared):
        computed = (None,) * len(declared)
    dims = []
    for axis, (dim, size) in enumerate(zip(declared, computed, strict=True)):
        if isinstance(dim, int):
            dims.append(Polynomial.of(dim))
        elif size is not None:
            dims.append(size)
        elif dim is not None and scope.is_fed(name):  # names of other values are not reliable
            dims.append(Polynomial.atom(NamedDimKey(scope, dim), nonnegative=True))
        else:
            dims.append(Polynomial.atom(DimKey(scope, name, axis), nonnegative=True))
    return tuple(dims)


def opaque_entries(scope: constant_folding.ConstantScope, name: str) -> SymbolicTensor | None:
    """Return an atom for each element of a small tensor; None if its shape is unknown."""
    known = scope.type(name)
    shape, element_type = static(known), shape_inference.element_type(known)
    if shape is None or element_type is None or math.prod(shape) > MAX_ENTRIES:
        return None
    atoms = [Polynomial.atom(ElementKey(scope, name, i)) for i in range(math.prod(shape))]
    return SymbolicTensor(element_type, table(atoms, shape))
