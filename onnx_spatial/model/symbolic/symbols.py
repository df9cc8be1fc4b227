"""Atoms for what a graph leaves to the run: elements of tensors, and dims."""

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
    """Key of the atom that is one element of a tensor, as the run computes it."""

    scope: constant_folding.ConstantScope
    name: str
    index: int


@dataclass(frozen=True, slots=True)
class DimKey:
    """Key of the atom that is one dim of a value."""

    scope: constant_folding.ConstantScope
    name: str
    axis: int


@dataclass(frozen=True, slots=True)
class NamedDimKey:
    """Key of the atom that is every dim of the name among the inputs of the main graph."""

    scope: constant_folding.ConstantScope
    name: str


def static(known: onnx.TypeProto | None) -> tuple[int, ...] | None:
    """The dims of a tensor type, if all are known numbers."""
    dims = shape_inference.dims(known)
    sizes = [d for d in dims or () if isinstance(d, int)]
    return tuple(sizes) if dims is not None and len(sizes) == len(dims) else None


def named_dims(
    scope: constant_folding.ConstantScope,
    name: str,
    found: Sequence[Polynomial | None] | None = None,
) -> tuple[Polynomial, ...] | None:
    """The dims of a value of `scope`, with an atom for each that is unknown.

    Args:
        scope: the graph that the value belongs to.
        name: its name there.
        found: what the caller knows of its dims; what is declared of them as numbers comes first.

    Returns:
        None if not even the rank is known.
    """
    declared = shape_inference.dims(scope.type(name))
    if declared is None:
        if found is None:
            return None
        declared = (None,) * len(found)
    if found is None or len(found) != len(declared):
        found = (None,) * len(declared)
    dims = []
    for axis, (stated, size) in enumerate(zip(declared, found, strict=True)):
        if isinstance(stated, int):
            dims.append(Polynomial.of(stated))
        elif size is not None:
            dims.append(size)
        elif stated is not None and scope.is_fed(name):  # elsewhere nobody vouches for names
            dims.append(Polynomial.atom(NamedDimKey(scope, stated), nonnegative=True))
        else:
            dims.append(Polynomial.atom(DimKey(scope, name, axis), nonnegative=True))
    return tuple(dims)


def opaque_entries(scope: constant_folding.ConstantScope, name: str) -> SymbolicTensor | None:
    """A small tensor of `scope` as an atom for each of its elements; None if its shape is unknown."""
    known = scope.type(name)
    shape, element_type = static(known), shape_inference.element_type(known)
    if shape is None or element_type is None or math.prod(shape) > MAX_ENTRIES:
        return None
    atoms = [Polynomial.atom(ElementKey(scope, name, i)) for i in range(math.prod(shape))]
    return SymbolicTensor(element_type, table(atoms, shape))
