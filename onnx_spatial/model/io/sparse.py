"""Read sparse tensors as dense arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import onnx

Array = npt.NDArray[np.generic]


def dense_array(
    sparse: onnx.SparseTensorProto, read: Callable[[onnx.TensorProto], Array | None]
) -> Array | None:
    """Return the array of a sparse tensor; None if one of its two tensors is not read.

    Args:
        sparse: the tensor, whose indices count elements or have one column per axis.
        read: converts a tensor message to an array.

    Raises:
        ValueError: the indices do not fit the values or the shape.
    """
    values, indices = read(sparse.values), read(sparse.indices)
    if values is None or indices is None:
        return None
    return scatter_values(values, indices, sparse.dims)


def scatter_values(values: Array, indices: Array, dims: Sequence[int]) -> Array:
    """Return an array of zeros, or empty strings, with some values in it.

    Args:
        values: 1-D.
        indices: the number of the element for each value, or its position on each axis.
        dims: shape of the array.

    Raises:
        ValueError: the indices do not fit the values or the shape.
    """
    shape, positions = tuple(dims), np.asarray(indices, np.int64)
    if positions.ndim == 2:
        positions = np.ravel_multi_index(tuple(positions.T), shape)
    size = math.prod(shape)
    if positions.shape != values.shape or np.any((positions < 0) | (positions >= size)):
        raise ValueError("indices of a sparse tensor do not fit its values and its shape")
    array: Array = np.full(size, "" if values.dtype.kind in "OSU" else 0, values.dtype)
    array[positions] = values
    return array.reshape(shape)
