"""Read integer parameters of a node from an input or an attribute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnx_spatial.errors import Code, OperatorError
from onnx_spatial.operators.shapes import Dim, show
from onnx_spatial.operators.spellings.call import NodeFacts, Vector

TF_TYPES = ("int32", "int64")
ANY_INTEGER = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def vector(
    node: NodeFacts, name: str, index: int, types: tuple[str, ...], length: int | None = None
) -> Vector:
    """Read the 1-D parameter `name` from input number `index`, or an INTS attribute of that name.

    Raises:
        OperatorError: it is missing, has another type or rank, or its length is unknown.
    """
    values, known = _value_and_shape(node, name, index, types)
    if values is not None:
        if values.ndim != 1:
            raise OperatorError(
                f"{name} must be 1-D, not of shape {show(values.shape)}", code=Code.PARAMETER
            )
        return Vector(len(values), tuple(int(v) for v in values))
    if known is not None and len(known) != 1:
        raise OperatorError(f"{name} must be 1-D, not of shape {show(known)}", code=Code.PARAMETER)
    size = known[0] if known is not None and isinstance(known[0], int) else length
    if size is None:
        raise OperatorError(
            f"{name} is computed at run time and its length is unknown; the number of blocked "
            "axes must be known: declare its shape, with --static NAME=N where the dim has a name",
            code=Code.PARAMETER,
        )
    return Vector(size, None, index)


def pairs(
    node: NodeFacts, name: str, index: int, types: tuple[str, ...], length: int
) -> tuple[Vector, Vector]:
    """Read the [length, 2] parameter `name` as two columns, from an input or a flat attribute."""
    values, known = _value_and_shape(node, name, index, types, columns=2)
    shape = values.shape if values is not None else known
    if shape is not None and not _fits_shape(shape, (length, 2)):
        raise OperatorError(
            f"{name} must have shape [{length}, 2], not {show(shape)}", code=Code.PARAMETER
        )
    if values is None:
        return Vector(length, None, index, 0, 2), Vector(length, None, index, 1, 2)
    columns = [tuple(int(v) for v in values[:, column]) for column in (0, 1)]
    return Vector(length, columns[0]), Vector(length, columns[1])


def length_of_pairs(node: NodeFacts, index: int) -> int | None:
    """Return M if input number `index` has the known shape [M, 2], else None."""
    fact = node.inputs[index] if index < len(node.inputs) else None
    if fact is None or fact.shape is None or len(fact.shape) != 2:
        return None
    return fact.shape[0] if isinstance(fact.shape[0], int) else None


def without_batch(name: str, entries: Vector, neutral: int) -> Vector:
    """Return a parameter with one entry for each axis without that of the batch.

    Raises:
        OperatorError: the entry of the batch is not `neutral`.
    """
    if not entries.length:
        raise OperatorError(
            f"{name} is empty; its first entry is that of the batch axis", code=Code.PARAMETER
        )
    if entries.values is None:
        start = entries.start + entries.step
        return replace(entries, length=entries.length - 1, start=start)
    if entries.values[0] != neutral:
        raise OperatorError(
            f"{name}[0] is {entries.values[0]}; the entry of the batch axis must be {neutral}",
            code=Code.OUT_OF_RANGE,
        )
    return Vector(entries.length - 1, entries.values[1:])


def _fits_shape(shape: tuple[Dim, ...], expected: tuple[int, ...]) -> bool:
    return len(shape) == len(expected) and all(
        not isinstance(d, int) or d == e for d, e in zip(shape, expected, strict=True)
    )


def _value_and_shape(
    node: NodeFacts, name: str, index: int, types: tuple[str, ...], columns: int = 0
) -> tuple[np.ndarray | None, tuple[Dim, ...] | None]:
    """Return the value if it is known, and the shape if it is known."""
    fact = node.inputs[index] if index < len(node.inputs) else None
    if fact is None:
        if name not in node.attributes:
            raise OperatorError(
                f"{name} is missing: neither input {index} nor an attribute", code=Code.PARAMETER
            )
        flat = np.asarray(node.integers(name), np.int64)
        if columns and flat.size % columns:
            raise OperatorError(
                f"attribute {name} must hold {columns} entries per blocked axis, row by row, "
                f"not {flat.size} entries",
                code=Code.ATTRIBUTE,
            )
        return (flat.reshape(-1, columns) if columns else flat), None
    if fact.dtype is not None and fact.dtype not in types:
        allowed = "an integer type" if types == ANY_INTEGER else " or ".join(types)
        raise OperatorError(f"{name} must be {allowed}, not {fact.dtype}", code=Code.PARAMETER)
    return fact.value, fact.shape
