"""Conv in numpy, in the precision of its inputs: onnxruntime has no kernel in double precision.

    y[n, m, o] = b[m] + sum over c, k of w[m, c, k] * x[n, c0(m) + c, o * stride + k * dilation - pad]

where c0(m) is the first channel of the group of m. Deliberately independent of the package's lowerings
and fusions, which it helps to verify.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from onnx_spatial import analysis
from onnx_spatial.errors import OperatorError
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.runtime.windows import pads, tap_slices, vector

#: Products of one Conv, about a second; of a larger Conv a sample of the output channels is computed.
MAX_PRODUCTS = 2**31
#: Elements of its output: 1 GiB.
MAX_ELEMENTS = 2**27


def run_node(node: onnx.NodeProto, arrays: Sequence[Array | None]) -> Array:
    """Compute a Conv node. Output channels of a large one may be left out: they are NaN.

    Arrays are the data [N, C, D1..], the weights [M, C / group, k1..], and the bias [M] or None.

    Raises:
        OperatorError: the inputs or attributes do not fit, or the Conv is too large.
    """
    x, w, b = (*arrays, None, None)[:3]
    if x is None or w is None or x.ndim < 3 or w.ndim != x.ndim:
        raise OperatorError("Conv: data and weights must have the same rank, at least 3")
    conv = _Conv.of(node, x.shape[2:], w.shape[2:])
    (group,) = vector(analysis.attributes(node), "group", 1, 1)
    outputs = w.shape[0]
    if group < 1 or x.shape[1] != w.shape[1] * group or outputs % group:
        raise OperatorError(f"Conv: weights {list(w.shape)} do not match {x.shape[1]} channels")
    if min(conv.sizes) < 1:
        raise OperatorError(f"Conv: the kernel {list(w.shape[2:])} does not fit the data")
    products = x.shape[0] * math.prod(conv.sizes) * w.size
    if products <= MAX_PRODUCTS:
        return conv(x, w, b, group)
    # Whole groups, or channels where there is one group only.
    parts = group if group > 1 else outputs
    count = parts * MAX_PRODUCTS // products
    if count < 1 or x.shape[0] * outputs * math.prod(conv.sizes) > MAX_ELEMENTS:
        raise OperatorError("Conv: its result is too large to be compared")
    sample = np.unique(np.linspace(0, parts - 1, count).astype(np.int64))
    maps = (sample[:, None] * (outputs // parts) + np.arange(outputs // parts)).ravel()
    if group > 1:
        x = x[:, (sample[:, None] * w.shape[1] + np.arange(w.shape[1])).ravel()]
        group = len(sample)
    y = np.full((x.shape[0], outputs, *conv.sizes), np.nan, x.dtype)
    y[:, maps] = conv(x, w[maps], None if b is None else b[maps], group)
    return y


@dataclass(frozen=True)
class _Conv:
    """Geometry of a Conv, one entry for each spatial axis; negative pads crop."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: list[tuple[int, int]]
    sizes: list[int]

    @classmethod
    def of(cls, node: onnx.NodeProto, data: Sequence[int], kernel: Sequence[int]) -> _Conv:
        given, rank = analysis.attributes(node), len(kernel)
        strides, dilations = (vector(given, name, 1, rank) for name in ("strides", "dilations"))
        if "kernel_shape" in given and vector(given, "kernel_shape", 0, rank) != tuple(kernel):
            raise OperatorError("Conv: kernel_shape differs from the shape of the weights")
        extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        padding = pads(given, data, extents, strides)
        axes = zip(data, padding, extents, strides, strict=True)
        sizes = [(size + low + high - extent) // s + 1 for size, (low, high), extent, s in axes]
        return cls(strides, dilations, padding, sizes)

    def __call__(self, x: Array, w: Array, b: Array | None, group: int) -> Array:
        outputs = w.shape[0]
        # numpy's pad takes no negative amounts: those are cropped first.
        crops = [
            slice(max(0, -lo), max(0, size + min(0, hi)))
            for size, (lo, hi) in zip(x.shape[2:], self.pads, strict=True)
        ]
        padded = np.pad(
            x[(slice(None), slice(None), *crops)],
            [(0, 0), (0, 0), *((max(0, lo), max(0, hi)) for lo, hi in self.pads)],
        )
        y = np.zeros((x.shape[0], group, outputs // group, math.prod(self.sizes)), x.dtype)
        grouped = w.reshape(group, outputs // group, w.shape[1], *w.shape[2:])
        for tap in itertools.product(*map(range, w.shape[2:])):
            window = tap_slices(tap, self.dilations, self.strides, self.sizes)
            columns = padded[(slice(None), slice(None), *window)]
            columns = columns.reshape(x.shape[0], group, w.shape[1], -1)
            taps: tuple[slice | int, ...] = (slice(None), slice(None), slice(None), *tap)
            weights = np.ascontiguousarray(grouped[taps])  # else matmul leaves BLAS
            # Depthwise: a product of single numbers, for which matmul is slow.
            y += weights * columns if w.shape[1] == 1 else np.matmul(weights, columns)
        result: Array = y.reshape(x.shape[0], outputs, *self.sizes)
        if b is not None:
            result += b.reshape(-1, *(1 for _ in self.sizes))
        return result
