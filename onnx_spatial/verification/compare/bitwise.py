"""Compare what a site gives with what it must give, bit by bit."""

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
    """Compare what a site gives with what it must give; `actual` may be why it gives nothing."""
    what = (how, optimised, dtype_name(x), x.shape, expected.size)
    if isinstance(actual, str):
        return Check(*what, expected.size, actual)
    if dtype_name(actual) != dtype_name(expected):
        wrong = f"the output is {dtype_name(actual)}, not {dtype_name(expected)}"
        return Check(*what, expected.size, wrong)
    if actual.shape != expected.shape:
        wrong = f"the output has shape {show(actual.shape)}, not {show(expected.shape)}"
        return Check(*what, expected.size, wrong)
    count = int(differing_bits(expected, actual).sum())
    reason = f"{count} of {expected.size} elements differ in their bits" if count else None
    return Check(*what, count, reason)
