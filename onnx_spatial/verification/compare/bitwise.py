"""Compare the output of a site with the expected one, bit by bit."""

from __future__ import annotations

from typing import Literal

from onnx_spatial.operators.shapes import show
from onnx_spatial.verification.arrays import Array, differing_bits, dtype_name
from onnx_spatial.verification.report import Check


def bitwise(
    how: Literal["isolated", "in place"],
    optimised: bool,
    x: Array,
    expected: Array,
    actual: Array | str,
) -> Check:
    """Compare an output bit by bit; `actual` may be the reason why there is none."""
    count, reason = expected.size, None
    if isinstance(actual, str):
        reason = actual
    elif dtype_name(actual) != dtype_name(expected):
        reason = f"the output is {dtype_name(actual)}, not {dtype_name(expected)}"
    elif actual.shape != expected.shape:
        reason = f"the output has shape {show(actual.shape)}, not {show(expected.shape)}"
    elif count := int(differing_bits(expected, actual).sum()):
        reason = f"{count} of {expected.size} elements differ in their bits"
    return Check(how, optimised, dtype_name(x), x.shape, expected.size, count, reason)
