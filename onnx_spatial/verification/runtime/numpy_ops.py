"""Operators in numpy, in whatever precision their inputs have, that onnxruntime has not in double.

onnx's reference evaluator has all of them, in Python loops over elements: minutes for one image.
Conv is in `numpy_conv`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import onnx

from onnx_spatial.analysis import attributes
from onnx_spatial.errors import OperatorError
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.runtime import numpy_conv

#: A node in numpy: from the node and its inputs (None for those left out) to its output.
Kernel = Callable[[onnx.NodeProto, Sequence[Array | None]], Array]

_Index = npt.NDArray[np.int64]
_ALL = slice(None)


def conv_transpose(node: onnx.NodeProto, arrays: Sequence[Array | None]) -> Array:
    """Compute ConvTranspose: y[n, m, i * stride + k * dilation - pad] += w[c, m, k] * x[n, c, i].

    Raises:
        OperatorError: its inputs or attributes do not fit, or it is too large.
    """
    x, w, b = (*arrays, None, None)[:3]
    if x is None or w is None or x.ndim < 3 or w.ndim != x.ndim:
        raise OperatorError("ConvTranspose: the data and weights have no common rank of 3 or more")
    given = attributes(node)
    rank = x.ndim - 2
    (group,) = _vector(given, "group", 1, 1)
    if group < 1 or x.shape[1] != w.shape[0] or x.shape[1] % group:
        raise OperatorError(f"ConvTranspose: weights {list(w.shape)} do not fit the channels")
    if math.prod(x.shape) * math.prod(w.shape[1:]) > numpy_conv.MAX_PRODUCTS:
        raise OperatorError("ConvTranspose: it is too large to be computed for a comparison")
    strides = _vector(given, "strides", 1, rank)
    dilations = _vector(given, "dilations", 1, rank)
    extra = _vector(given, "output_padding", 0, rank)
    extents = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    full = [
        (n - 1) * s + e + o for n, s, e, o in zip(x.shape[2:], strides, extents, extra, strict=True)
    ]
    begins, sizes = _cut(given, full, [n * s for n, s in zip(x.shape[2:], strides, strict=True)])
    maps = w.shape[1]
    room = [max(f, b + n) for f, b, n in zip(full, begins, sizes, strict=True)]
    y = np.zeros((x.shape[0], group, maps, *room), x.dtype)
    columns = x.reshape(x.shape[0], group, x.shape[1] // group, -1)
    weights = w.reshape(group, x.shape[1] // group, *w.shape[1:])
    for tap in itertools.product(*map(range, w.shape[2:])):
        one = np.ascontiguousarray(np.swapaxes(weights.T[tap[::-1]].T, 1, 2))
        product = np.matmul(one, columns).reshape(x.shape[0], group, maps, *x.shape[2:])
        y[(_ALL, _ALL, _ALL, *_windows(tap, dilations, strides, x.shape[2:]))] += product
    y = y.reshape(x.shape[0], group * maps, *room)
    cut: Array = y[(_ALL, _ALL, *(slice(b, b + n) for b, n in zip(begins, sizes, strict=True)))]
    return cut if b is None else cut + b.reshape(-1, *[1] * rank)


def average_pool(node: onnx.NodeProto, arrays: Sequence[Array | None]) -> Array:
    """Compute AveragePool; what `ceil_mode` adds behind the padding counts as no element.

    Raises:
        OperatorError: its attributes do not fit.
    """
    x = arrays[0]
    given = attributes(node)
    if x is None or x.ndim < 3 or "kernel_shape" not in given:
        raise OperatorError("AveragePool: it has no data of rank 3 or more, or no kernel_shape")
    rank = x.ndim - 2
    kernel = _vector(given, "kernel_shape", 1, rank)
    strides, dilations = (_vector(given, name, 1, rank) for name in ("strides", "dilations"))
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads, sizes = [], []
    for axis, (size, extent, stride) in enumerate(zip(x.shape[2:], extents, strides, strict=True)):
        low, high = _pads(given, axis, rank, size, extent, stride)
        steps = (size + low + high - extent) / stride
        count = (math.ceil(steps) if given.get("ceil_mode") else math.floor(steps)) + 1
        if given.get("ceil_mode") and (count - 1) * stride >= size + low:
            count -= 1  # a window must begin in the data or in front of it
        if count < 1:
            raise OperatorError("AveragePool: the kernel does not fit the data")
        pads.append((low, high))
        sizes.append(count)
    # How much counts in each window: the data, or with its padding.
    inside = np.ones(x.shape[2:], x.dtype)
    if given.get("count_include_pad"):
        inside = np.pad(inside, pads, constant_values=1)
    else:
        inside = np.pad(inside, pads)
    data = np.pad(x, [(0, 0), (0, 0), *pads])
    beyond = [
        max(0, (n - 1) * s + e - size)
        for n, s, e, size in zip(sizes, strides, extents, data.shape[2:], strict=True)
    ]
    data = np.pad(data, [(0, 0), (0, 0), *((0, more) for more in beyond)])
    inside = np.pad(inside, [(0, more) for more in beyond])
    total = np.zeros((*x.shape[:2], *sizes), x.dtype)
    counted = np.zeros(sizes, x.dtype)
    for tap in itertools.product(*map(range, kernel)):
        window = _windows(tap, dilations, strides, sizes)
        total += data[(_ALL, _ALL, *window)]
        counted += inside[window]
    with np.errstate(divide="ignore", invalid="ignore"):
        result: Array = total / counted
    return result


def grid_sample(node: onnx.NodeProto, arrays: Sequence[Array | None]) -> Array:
    """Compute GridSample of images and volumes: nearest, linear and cubic.

    Raises:
        OperatorError: its inputs or attributes do not fit.
    """
    x, grid = (*arrays, None)[:2]
    if x is None or grid is None or x.ndim < 3 or grid.ndim != x.ndim:
        raise OperatorError("GridSample: the data and the grid have no common rank of 3 or more")
    if grid.shape[-1] != x.ndim - 2 or grid.shape[0] != x.shape[0]:
        raise OperatorError("GridSample: the grid does not fit the data")
    given = attributes(node)
    mode = str(given.get("mode", "linear"))
    padding = str(given.get("padding_mode", "zeros"))
    corners = bool(given.get("align_corners", 0))
    batch, channels, *sizes = x.shape
    points = grid.reshape(batch, -1, len(sizes))[..., ::-1]  # the last axis of the data comes first
    first, weights = [], []
    for axis, size in enumerate(sizes):
        position = points[..., axis].astype(np.float64)
        scaled = (position + 1) / 2 * (size - 1) if corners else ((position + 1) * size - 1) / 2
        if mode == "nearest":
            scaled = np.rint(scaled)
        if padding == "reflection":
            scaled = _inside(scaled, size, padding, corners)
        start, factors = _taps(scaled, mode)
        first.append(start)
        weights.append(factors)
    flat = x.reshape(batch, channels, -1)
    total = np.zeros((batch, channels, points.shape[1]), x.dtype)
    for tap in itertools.product(*(range(len(factors)) for factors in weights)):
        place = np.zeros(points.shape[:2], np.int64)
        weight = np.ones(points.shape[:2], np.float64)
        for start, factors, size, k in zip(first, weights, sizes, tap, strict=True):
            index = start + k
            if padding == "zeros":
                weight = weight * ((index >= 0) & (index < size))
            else:
                index = np.rint(_inside(index.astype(np.float64), size, padding, corners))
            place = place * size + np.clip(index, 0, size - 1).astype(np.int64)
            weight = weight * factors[k]
        taken = np.take_along_axis(flat, place[:, None, :], axis=2)
        with np.errstate(invalid="ignore"):
            total += np.where(weight[:, None] == 0, 0, taken * weight[:, None].astype(x.dtype))
    return total.reshape(batch, channels, *grid.shape[1:-1])


def _taps(position: Array, mode: str) -> tuple[_Index, list[Array]]:
    """Index of the first element that counts along one axis, and the weights from there on."""
    if mode == "nearest":
        return np.nan_to_num(position).astype(np.int64), [np.ones_like(position)]
    base = np.floor(position)
    t = position - base
    start = np.nan_to_num(base).astype(np.int64)
    if mode in ("linear", "bilinear"):
        return start, [1 - t, t]
    if mode not in ("cubic", "bicubic"):
        raise OperatorError(f"GridSample: mode is {mode!r}")
    a = -0.75
    distances = (t + 1, t, 1 - t, 2 - t)
    near = [((a + 2) * d - (a + 3)) * d * d + 1 for d in distances[1:3]]
    far = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in (distances[0], distances[3])]
    return start - 1, [far[0], *near, far[1]]


def _inside(position: Array, size: int, padding: str, corners: bool) -> Array:
    """Positions along an axis moved into the data: to its border, or reflected there."""
    if padding == "border":
        return np.clip(position, 0, size - 1)
    if padding != "reflection":
        raise OperatorError(f"GridSample: padding_mode is {padding!r}")
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
    span = high - low
    if span <= 0:
        return np.zeros_like(position)
    folded = np.mod(position - low, 2 * span)
    return low + np.minimum(folded, 2 * span - folded)


def _windows(
    tap: Sequence[int], dilations: Sequence[int], strides: Sequence[int], sizes: Sequence[int]
) -> tuple[slice, ...]:
    """What one element of a kernel meets, one slice for each axis."""
    return tuple(
        slice(k * d, k * d + (n - 1) * s + 1, s)
        for k, d, s, n in zip(tap, dilations, strides, sizes, strict=True)
    )


def _pads(
    given: Mapping[str, object], axis: int, rank: int, size: int, extent: int, stride: int
) -> tuple[int, int]:
    mode = given.get("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        return numpy_conv.same_pads(size, extent, stride, upper=mode == "SAME_UPPER")
    if mode == "VALID":
        return 0, 0
    flat = _vector(given, "pads", 0, 2 * rank)
    return flat[axis], flat[rank + axis]


def _cut(
    given: Mapping[str, object], full: Sequence[int], same: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Where the output of ConvTranspose begins in the sum of all windows, and its sizes."""
    rank, mode = len(full), given.get("auto_pad", "NOTSET")
    wanted = list(_vector(given, "output_shape", 0, rank)) if "output_shape" in given else None
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [min(f, n) for f, n in zip(full, same, strict=True)]
    if wanted is None:
        flat = (0,) * (2 * rank) if mode == "VALID" else _vector(given, "pads", 0, 2 * rank)
        sizes = [f - flat[a] - flat[rank + a] for a, f in enumerate(full)]
        return list(flat[:rank]), sizes
    total = [f - n for f, n in zip(full, wanted, strict=True)]
    less = [max(0, t) // 2 for t in total]
    upper = mode == "SAME_UPPER"
    return [n if upper else max(0, t) - n for n, t in zip(less, total, strict=True)], wanted


def _vector(given: Mapping[str, object], name: str, default: int, length: int) -> tuple[int, ...]:
    values = given.get(name)
    values = [values] if isinstance(values, int) else values
    found = tuple(values) if isinstance(values, Sequence) else (default,) * length
    if len(found) != length:
        raise OperatorError(f"{name} has {len(found)} entries, not {length}")
    return found


#: By operator type of the default domain.
KERNELS: Mapping[str, Kernel] = MappingProxyType(
    {
        "AveragePool": average_pool,
        "Conv": numpy_conv.run_node,
        "ConvTranspose": conv_transpose,
        "GridSample": grid_sample,
    }
)
