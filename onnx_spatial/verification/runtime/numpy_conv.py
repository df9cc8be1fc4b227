"""Conv in numpy, in whatever precision its inputs have: onnxruntime has none in double.

    y[n, m, o] = b[m] + sum over c, k of w[m, c, k] * x[n, c0(m) + c, o * stride + k * dilation - pad]

where c0(m) is the first channel of the group of m.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx

from onnx_spatial.errors import OperatorError
from onnx_spatial.verification.arrays import Array

#: Products of one Conv, a second's worth; of larger ones a sample of the output channels is computed.
MAX_PRODUCTS = 2**31
#: Elements of its output: 1 GiB.
MAX_ELEMENTS = 2**27


@dataclass(frozen=True)
class ConvAttributes:
    """The attributes of a Conv whose kernel is known; one entry for each spatial axis.

    Attributes:
        strides, dilations: in elements, 1 or more.
        pads: (begin, end); negative ones crop.
        group: number of groups.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    group: int

    @classmethod
    def of(cls, node: onnx.NodeProto, data: Sequence[int], kernel: Sequence[int]) -> ConvAttributes:
        """That of a node.

        Args:
            node: a Conv.
            data: the spatial dims of its data.
            kernel: those of its weights.

        Raises:
            OperatorError: its attributes do not fit these.
        """
        rank = len(kernel)
        given = {a.name: a for a in node.attribute}

        def vector(name: str, default: int, length: int) -> tuple[int, ...]:
            values = tuple(given[name].ints) if name in given else (default,) * length
            if len(values) != length:
                raise OperatorError(f"Conv: {name} has {len(values)} entries, not {length}")
            return values

        strides, dilations = vector("strides", 1, rank), vector("dilations", 1, rank)
        if "kernel_shape" in given and tuple(given["kernel_shape"].ints) != tuple(kernel):
            raise OperatorError("Conv: kernel_shape is not that of the weights")
        mode = given["auto_pad"].s.decode("ascii", "replace") if "auto_pad" in given else "NOTSET"
        if mode in ("", "NOTSET"):
            flat = vector("pads", 0, 2 * rank)
            pads = tuple(zip(flat[:rank], flat[rank:], strict=True))
        elif mode == "VALID":
            pads = ((0, 0),) * rank
        elif mode in ("SAME_UPPER", "SAME_LOWER"):
            pads = tuple(
                same_pads(size, (k - 1) * d + 1, s, upper=mode == "SAME_UPPER")
                for size, k, d, s in zip(data, kernel, dilations, strides, strict=True)
            )
        else:
            raise OperatorError(f"Conv: auto_pad is {mode!r}")
        return cls(strides, dilations, pads, given["group"].i if "group" in given else 1)

    def __call__(self, x: Array, w: Array, b: Array | None = None) -> Array:
        """Convolve. A large one is computed for some output channels; the others are NaN.

        Args:
            x: [N, C, D1..].
            w: [M, C / group, k1..].
            b: [M].

        Raises:
            OperatorError: the shapes do not fit, or it is too large to be computed here.
        """
        group, channels, outputs = self.group, x.shape[1], w.shape[0]
        if group < 1 or channels != w.shape[1] * group or outputs % group:
            raise OperatorError(f"Conv: weights {list(w.shape)} and {channels} channels do not fit")
        sizes = [
            (size + low + high - (k - 1) * d - 1) // s + 1
            for size, (low, high), k, d, s in zip(
                x.shape[2:], self.pads, w.shape[2:], self.dilations, self.strides, strict=True
            )
        ]
        if min(sizes, default=1) < 1:
            raise OperatorError(f"Conv: the kernel {list(w.shape[2:])} does not fit the data")
        products = x.shape[0] * math.prod(sizes) * w.size
        if products <= MAX_PRODUCTS:
            return self._all(x, w, b, sizes)
        # Whole groups, or channels where there is one group only.
        parts = group if group > 1 else outputs
        count = parts * MAX_PRODUCTS // products
        if count < 1 or x.shape[0] * outputs * math.prod(sizes) > MAX_ELEMENTS:
            raise OperatorError("Conv: it is too large to be computed for a comparison")
        chosen = np.unique(np.linspace(0, parts - 1, count).astype(np.int64))
        maps = (chosen[:, None] * (outputs // parts) + np.arange(outputs // parts)).ravel()
        if group > 1:
            x = x[:, (chosen[:, None] * w.shape[1] + np.arange(w.shape[1])).ravel()]
        some = replace(self, group=len(chosen) if group > 1 else 1)
        y = np.full((x.shape[0], outputs, *sizes), np.nan, x.dtype)
        y[:, maps] = some._all(x, w[maps], None if b is None else b[maps], sizes)
        return y

    def _all(self, x: Array, w: Array, b: Array | None, sizes: Sequence[int]) -> Array:
        group, outputs = self.group, w.shape[0]
        # numpy's pad takes no negative amounts: those are cropped first.
        crops = [
            slice(max(0, -lo), max(0, size + min(0, hi)))
            for size, (lo, hi) in zip(x.shape[2:], self.pads, strict=True)
        ]
        padded = np.pad(
            x[(slice(None), slice(None), *crops)],
            [(0, 0), (0, 0), *((max(0, lo), max(0, hi)) for lo, hi in self.pads)],
        )
        y = np.zeros((x.shape[0], group, outputs // group, math.prod(sizes)), x.dtype)
        grouped = w.reshape(group, outputs // group, w.shape[1], *w.shape[2:])
        for tap in itertools.product(*map(range, w.shape[2:])):
            window = tuple(
                slice(k * d, k * d + (n - 1) * s + 1, s)
                for k, d, s, n in zip(tap, self.dilations, self.strides, sizes, strict=True)
            )
            cut = padded[(slice(None), slice(None), *window)]
            columns = cut.reshape(x.shape[0], group, w.shape[1], -1)
            taps: tuple[slice | int, ...] = (slice(None), slice(None), slice(None), *tap)
            weights = np.ascontiguousarray(grouped[taps])  # else matmul leaves BLAS
            # Depthwise: a product of single numbers, for which matmul is slow.
            y += weights * columns if w.shape[1] == 1 else np.matmul(weights, columns)
        result: Array = y.reshape(x.shape[0], outputs, *sizes)
        if b is not None:
            result += b.reshape(-1, *(1 for _ in sizes))
        return result


def run_node(node: onnx.NodeProto, arrays: Sequence[Array | None]) -> Array:
    """The output of a Conv node; a missing bias is None.

    Raises:
        OperatorError: it breaks a rule on this data, or is too large.
    """
    x, w, *rest = arrays
    if x is None or w is None or x.ndim < 3 or w.ndim != x.ndim:
        raise OperatorError("Conv: the data and weights have no common rank of 3 or more")
    return ConvAttributes.of(node, x.shape[2:], w.shape[2:])(x, w, rest[0] if rest else None)


def same_pads(size: int, extent: int, stride: int, *, upper: bool) -> tuple[int, int]:
    """Return the padding (begin, end) of auto_pad SAME along one axis."""
    total = max(0, (-(-size // stride) - 1) * stride + extent - size)
    low, high = total // 2, total - total // 2
    return (low, high) if upper else (high, low)
