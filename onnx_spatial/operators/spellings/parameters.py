"""Integer parameters of a node: from an input or, where an exporter put them there, an attribute."""

from __future__ import annotations

import numpy as np

from onnx_spatial.errors import OperatorError
from onnx_spatial.operators.shapes import Dim, show
from onnx_spatial.operators.spellings.call import NodeFacts, Vector

TF_TYPES = ("int32", "int64")
ANY_INTEGER = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def vector(
    node: NodeFacts, name: str, index: int, types: tuple[str, ...], length: int | None = None
) -> Vector:
    """The 1-D parameter `name`: input number `index`, or an INTS attribute of that name.

    Raises:
        OperatorError: it is missing, of another type or rank, or its length is nowhere to be seen.
    """
    values, known = _values(node, name, index, types)
    if values is not None:
        if values.ndim != 1:
            raise OperatorError(f"{name} must be 1-D, not of shape {show(values.shape)}")
        return Vector(len(values), tuple(int(v) for v in values))
    if known is not None and len(known) != 1:
        raise OperatorError(f"{name} must be 1-D, not of shape {show(known)}")
    size = known[0] if known is not None and isinstance(known[0], int) else length
    if size is None:
        raise OperatorError(
            f"{name} is computed at run time and its length is unknown; how many axes are blocked has "
            "to be known before: declare its shape, with --static NAME=N where the dim has a name"
        )
    return Vector(size, None, index)


def pairs(
    node: NodeFacts, name: str, index: int, types: tuple[str, ...], length: int
) -> tuple[Vector, Vector]:
    """The [length, 2] parameter `name` as its two columns, from an input or a flat attribute."""
    values, known = _values(node, name, index, types, columns=2)
    shape = values.shape if values is not None else known
    if shape is not None and not _fits(shape, (length, 2)):
        raise OperatorError(f"{name} must have shape [{length}, 2], not {show(shape)}")
    if values is None:
        return Vector(length, None, index, 0, 2), Vector(length, None, index, 1, 2)
    columns = [tuple(int(v) for v in values[:, column]) for column in (0, 1)]
    return Vector(length, columns[0]), Vector(length, columns[1])


def length_of_pairs(node: NodeFacts, index: int) -> int | None:
    """M as the shape [M, 2] of input number `index` tells it, if it does."""
    fact = node.inputs[index] if index < len(node.inputs) else None
    if fact is None or fact.shape is None or len(fact.shape) != 2:
        return None
    return fact.shape[0] if isinstance(fact.shape[0], int) else None


def _fits(shape: tuple[Dim, ...], wanted: tuple[int, ...]) -> bool:
    return len(shape) == len(wanted) and all(
        not isinstance(d, int) or d == w for d, w in zip(shape, wanted, strict=True)
    )


def _values(
    node: NodeFacts, name: str, index: int, types: tuple[str, ...], columns: int = 0
) -> tuple[np.ndarray | None, tuple[Dim, ...] | None]:
    """(value if it is known before the run, else None; shape as far as it is known)."""
    fact = node.inputs[index] if index < len(node.inputs) else None
    if fact is None:
        if name not in node.attributes:
            raise OperatorError(f"{name} is missing: neither input {index} nor an attribute")
        flat = np.asarray(node.integers(name), np.int64)
        if columns and flat.size % columns:
            raise OperatorError(
                f"attribute {name} must hold {columns} entries per blocked axis, row by row, "
                f"not {flat.size} entries"
            )
        return (flat.reshape(-1, columns) if columns else flat), None
    if fact.dtype is not None and fact.dtype not in types:
        allowed = "an integer type" if types == ANY_INTEGER else " or ".join(types)
        raise OperatorError(f"{name} must be {allowed}, not {fact.dtype}")
    return fact.value, fact.shape
