"""Compute the windows and the padding of ExtractPatches, where sizes may be known at run time only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor
from onnx_spatial.lowering.core.padding import pad
from onnx_spatial.operators import ExtractPatches


def windows_and_pads(
    emit: Emitter, op: ExtractPatches, x: Tensor
) -> tuple[list[Size], list[tuple[Size, Size]]]:
    """Return the number of windows along each spatial axis, and the zeros around each axis of `x`.

    Negative amounts of zeros cut elements off.
    """
    counts: list[Size] = []
    pads: list[tuple[Size, Size]] = [(0, 0)] * x.rank
    for number, axis in enumerate(op.spatial_axes):
        count, begin, end = op.windows(emit, number, x.dims[axis])
        counts.append(count)
        pads[axis] = (begin, end)
    return counts, pads


def padded(
    emit: Emitter,
    op: ExtractPatches,
    x: Tensor,
    element_types: frozenset[int],
    pad_value: npt.NDArray[np.generic] | None = None,
) -> tuple[Tensor, list[Size]]:
    """Return `x` with the padding of the operator, and the windows along each spatial axis."""
    counts, pads = windows_and_pads(emit, op, x)
    return pad(emit, x, pads, element_types, pad_value, signed=op.signed_pads), counts
