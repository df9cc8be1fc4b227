"""Tell numbers that exceed the range of their type in one order of operations from other differences."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from onnx_spatial.verification.arrays import FLOATS, Array


def unlimited(own: Array, actual: Array | str) -> Array | str:
    """Return an output with the largest number of its type and infinity as the original has them.

    onnxruntime's Clip without a limit returns the largest number where Relu returns infinity.
    """
    if isinstance(actual, str) or actual.dtype != own.dtype or actual.shape != own.shape:
        return actual
    if own.dtype not in FLOATS:
        return actual
    limit = np.nextafter(np.array(np.inf, own.dtype), np.zeros((), own.dtype))
    same_sign = np.signbit(own) == np.signbit(actual)
    either, least = np.isinf(own) | np.isinf(actual), np.minimum(np.abs(own), np.abs(actual))
    return np.where(either & same_sign & (least == limit), own, actual)


def not_overflowed(feeds: Mapping[str, Array], own: Array, actual: Array) -> npt.NDArray[np.bool_]:
    """Return the elements where both outputs are numbers, and finite if all inputs are.

    NaN that is made of numbers, and infinity that is made of finite ones, follow from the order of
    operations; all others follow from the data.
    """
    reals = [a for a in feeds.values() if a.dtype in FLOATS]
    if own.dtype not in FLOATS or any(np.isnan(a).any() for a in reals):
        return np.ones(own.shape, bool)
    if all(np.isfinite(a).all() for a in reals):
        return np.isfinite(own) & np.isfinite(actual)
    return ~(np.isnan(own) | np.isnan(actual))
