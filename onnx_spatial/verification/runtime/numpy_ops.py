"""Kernels in numpy, in the precision of their inputs, of operators that onnxruntime lacks in double.

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

from onnx_spatial import analysis
from onnx_spatial.errors import OperatorError
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.runtime import numpy_conv
from onnx_spatial.verification.runtime.windows import pads, tap_slices, vector

#: Computes the output of a node from the node and its inputs; None for inputs that are left out.
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
        raise OperatorError("ConvTranspose: data and weights must have the same rank, at least 3")
    attributes = analysis.attributes(node)
    rank = x.ndim - 2
    (group,) = vector(attributes, "group", 1, 1)
    if group < 1 or x.shape[1] != w.shape[0] or x.shape[1] % group:
        raise OperatorError(f"ConvTranspose: weights {list(w.shape)} do not match the channels")
    if math.prod(x.shape) * math.prod(w.shape[1:]) > numpy_conv.MAX_PRODUCTS:
        raise OperatorError("ConvTranspose: its result is too large to be compared")
    strides = vector(attributes, "strides", 1, rank)
    dilations = vector(attributes, "dilations", 1, rank)
    extra = vector(attributes, "output_padding", 0, rank)
    extents = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    full = [
        (n - 1) * s + e + o for n, s, e, o in zip(x.shape[2:], strides, extents, extra, strict=True)
    ]
    begins, sizes = _output_window(
        attributes, full, [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
    )
    maps = w.shape[1]
    room = [max(f, b + n) for f, b, n in zip(full, begins, sizes, strict=True)]
    y = np.zeros((x.shape[0], group, maps, *room), x.dtype)
    columns = x.reshape(x.shape[0], group, x.shape[1] // group, -1)
    weights = w.reshape(group, x.shape[1] // group, *w.shape[1:])
    for tap in itertools.product(*map(range, w.shape[2:])):
        one = np.ascontiguousarray(np.swapaxes(weights.T[tap[::-1]].T, 1, 2))
        product = np.matmul(one, columns).reshape(x.shape[0], group, maps, *x.shape[2:])
        y[(_ALL, _ALL, _ALL, *tap_slices(tap, dilations, strides, x.shape[2:]))] += product
    y = y.reshape(x.shape[0], group * maps, *room)
    cut: Array = y[(_ALL, _ALL, *(slice(b, b + n) for b, n in zip(begins, sizes, strict=True)))]
    return cut if b is None else cut + b.reshape(-1, *[1] * rank)


def average_pool(node: onnx.NodeProto, arrays: Sequence[Array | None]) -> Array:
    """Compute AveragePool; what `ceil_mode` adds behind the padding counts as no element.

    Raises:
        OperatorError: its attributes do not fit.
    """
    x = arrays[0]
    attributes = analysis.attributes(node)
    if x is None or x.ndim < 3 or "kernel_shape" not in attributes:
        raise OperatorError(
            "AveragePool: data must have rank 3 or more, and kernel_shape is required"
        )
    rank = x.ndim - 2
    kernel = vector(attributes, "kernel_shape", 1, rank)
    strides, dilations = (vector(attributes, name, 1, rank) for name in ("strides", "dilations"))
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    padding = pads(attributes, x.shape[2:], extents, strides)
    sizes = []
    for size, (low, high), extent, stride in zip(
        x.shape[2:], padding, extents, strides, strict=True
    ):
        steps = (size + low + high - extent) / stride
        count = (math.ceil(steps) if attributes.get("ceil_mode") else math.floor(steps)) + 1
        if attributes.get("ceil_mode") and (count - 1) * stride >= size + low:
            count -= 1  # a window must begin in the data or in front of it
        if count < 1:
            raise OperatorError("AveragePool: the kernel does not fit the data")
        sizes.append(count)
    # The elements that a window counts: of the data, or of its padding, too.
    inside = np.ones(x.shape[2:], x.dtype)
    inside = np.pad(inside, padding, constant_values=int(bool(attributes.get("count_include_pad"))))
    data = np.pad(x, [(0, 0), (0, 0), *padding])
    beyond = [
        max(0, (n - 1) * s + e - size)
        for n, s, e, size in zip(sizes, strides, extents, data.shape[2:], strict=True)
    ]
    data = np.pad(data, [(0, 0), (0, 0), *((0, more) for more in beyond)])
    inside = np.pad(inside, [(0, more) for more in beyond])
    total = np.zeros((*x.shape[:2], *sizes), x.dtype)
    counted = np.zeros(sizes, x.dtype)
    for tap in itertools.product(*map(range, kernel)):
        window = tap_slices(tap, dilations, strides, sizes)
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
        raise OperatorError("GridSample: data and grid must have the same rank, at least 3")
    if grid.shape[-1] != x.ndim - 2 or grid.shape[0] != x.shape[0]:
        raise OperatorError("GridSample: the shape of the grid does not match the data")
    attributes = analysis.attributes(node)
    mode = str(attributes.get("mode", "linear"))
    padding = str(attributes.get("padding_mode", "zeros"))
    corners = bool(attributes.get("align_corners", 0))
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
    """Return positions along an axis moved into the data: to its border, or reflected there."""
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


def _output_window(
    attributes: Mapping[str, object], full: Sequence[int], same: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Begin and sizes of the output of ConvTranspose in the sum of all windows, which has `full` sizes.

    By auto_pad SAME the output has the sizes `same`.
    """
    rank, mode = len(full), attributes.get("auto_pad", "NOTSET")
    if "output_shape" in attributes:
        sizes = list(vector(attributes, "output_shape", 0, rank))
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        sizes = [min(f, n) for f, n in zip(full, same, strict=True)]
    else:
        flat = (0,) * (2 * rank) if mode == "VALID" else vector(attributes, "pads", 0, 2 * rank)
        return list(flat[:rank]), [f - flat[a] - flat[rank + a] for a, f in enumerate(full)]
    totals = [max(0, f - n) for f, n in zip(full, sizes, strict=True)]
    return [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in totals], sizes


#: By operator type of the default domain.
KERNELS: Mapping[str, Kernel] = MappingProxyType(
    {
        "AveragePool": average_pool,
        "Conv": numpy_conv.run_node,
        "ConvTranspose": conv_transpose,
        "GridSample": grid_sample,
    }
)
