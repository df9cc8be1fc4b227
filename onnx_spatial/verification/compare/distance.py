"""Measure how far two arrays of one shape and type are apart."""

from __future__ import annotations

import numpy as np

from onnx_spatial.verification.arrays import Array, is_float
from onnx_spatial.verification.compare.error_metrics import NOT_NUMBERS, Errors, errors


class Distance:
    """The distance of two arrays of one shape and type.

    Attributes:
        whole: whether all elements are whole numbers, or of a type without distances.
        changed: share of elements that differ.
        strange: share of elements that are finite on one side only.
        each: distance of each element; 0 for those.
        mean, p50, p99, largest: of the distances.
    """

    def __init__(self, expected: Array, actual: Array) -> None:
        self.changed = self.strange = self.mean = self.p50 = self.p99 = self.largest = 0.0
        self.each: Errors = np.zeros(expected.shape, np.float32)
        self.whole = expected.dtype.kind in NOT_NUMBERS or (
            _is_whole(expected) and _is_whole(actual)
        )
        if not expected.size:
            return
        if expected.dtype.kind in NOT_NUMBERS:
            self.changed = float((expected != actual).mean())
            return
        distances, _ = errors(expected, actual)
        finite = np.isfinite(distances)
        near = distances[finite]
        self.each = np.where(finite, distances, 0)
        self.changed = float((distances > 0).mean())
        self.strange = float(1.0 - finite.mean())
        if near.size:
            p50, p99 = np.quantile(near, (0.5, 0.99), method="higher")
            self.mean, self.p50, self.p99 = float(near.mean()), float(p50), float(p99)
            self.largest = float(near.max())


def _is_whole(array: Array) -> bool:
    if not is_float(array.dtype):
        return True
    with np.errstate(all="ignore"):
        return bool((array == np.rint(array.astype(np.float64))).all())
