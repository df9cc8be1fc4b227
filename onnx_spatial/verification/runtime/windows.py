"""Attributes and windows of convolutions and pools.

Deliberately independent of the package's own arithmetic of padding (`conversion.same_padding`,
`operators`), which the verifier checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx_spatial.errors import OperatorError


def vector(
    attributes: Mapping[str, object], name: str, default: int, length: int
) -> tuple[int, ...]:
    """Return an attribute of `length` integers.

    Raises:
        OperatorError: it has another length.
    """
    value = attributes.get(name)
    value = [value] if isinstance(value, int) else value
    result = tuple(value) if isinstance(value, Sequence) else (default,) * length
    if len(result) != length:
        raise OperatorError(f"{name} has {len(result)} entries, not {length}")
    return result


def pads(
    attributes: Mapping[str, object],
    sizes: Sequence[int],
    extents: Sequence[int],
    strides: Sequence[int],
) -> list[tuple[int, int]]:
    """Padding (begin, end) of each spatial axis, by `pads` or `auto_pad`; negative amounts crop.

    Sizes are the spatial dims of the data, extents those of a window, dilations included.

    Raises:
        OperatorError: the attributes do not fit.
    """
    rank, mode = len(sizes), attributes.get("auto_pad") or "NOTSET"
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        upper = mode == "SAME_UPPER"
        axes = zip(sizes, extents, strides, strict=True)
        return [same_pads(*axis, upper=upper) for axis in axes]
    if mode not in ("VALID", "NOTSET"):
        raise OperatorError(f"auto_pad is {mode!r}")
    flat = (0,) * (2 * rank) if mode == "VALID" else vector(attributes, "pads", 0, 2 * rank)
    return list(zip(flat[:rank], flat[rank:], strict=True))


def same_pads(size: int, extent: int, stride: int, *, upper: bool) -> tuple[int, int]:
    """Padding (begin, end) of auto_pad SAME along one axis."""
    total = max(0, (-(-size // stride) - 1) * stride + extent - size)
    low, high = total // 2, total - total // 2
    return (low, high) if upper else (high, low)


def tap_slices(
    tap: Sequence[int], dilations: Sequence[int], strides: Sequence[int], sizes: Sequence[int]
) -> tuple[slice, ...]:
    """Return elements that one tap of a kernel meets in all windows, one slice for each axis."""
    return tuple(
        slice(k * d, k * d + (n - 1) * s + 1, s)
        for k, d, s, n in zip(tap, dilations, strides, sizes, strict=True)
    )
