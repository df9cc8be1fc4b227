"""Define ReorgYolo: OpenVINO's reorganisation of feature maps, from darknet.

For stride s on x[N, C, H, W], C >= s*s, with q = C // (s*s) and y[N, C, H, W] in the order of memory:

    y[n, c, h, w] = x at flat index ((n*q + c%q) * H*s + h*s + o//s) * W*s + w*s + o%s,   o = c // q

and the output is y reshaped to [N, C*s*s, H/s, W/s]. If s*s divides C, this is space-to-depth of the
data reshaped to [N, q, H*s, W*s]; if not, the remaining channels read on in memory, beyond their image.
Either way it is not space-to-depth of [N, C, H, W]. Checked against OpenVINO 2026.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnx_spatial.errors import Code, OperatorError
from onnx_spatial.operators.operator import INT32_MAX, Arithmetic, Dim, FixedOperator, Size, show
from onnx_spatial.operators.strided_copies import Copies, Plan, View


@dataclass(frozen=True)
class ReorgYolo(FixedOperator):
    """Move the positions inside cells of s x s elements to the channels, in the order of memory.

    Attributes:
        stride: s >= 1, which divides height and width.

    Raises:
        OperatorError: the stride breaks a rule.
    """

    stride: int

    name = "ReorgYolo"
    noun = "reorg"
    positions_of = "cells"
    rank = 4

    def __post_init__(self) -> None:
        if type(self.stride) is not int or not 1 <= self.stride <= INT32_MAX:
            raise OperatorError(
                f"{self.name}: stride is {self.stride!r}; it must be an integer, at least 1 and of 32 "
                "bits at most",
                code=Code.OUT_OF_RANGE,
            )

    @property
    def positions(self) -> tuple[int, ...]:
        """Elements of a cell along each axis."""
        return (self.stride, self.stride)

    @property
    def is_identity(self) -> bool:
        """Whether cells have one element."""
        return self.stride == 1

    def check(self, shape: Sequence[Dim]) -> None:
        """Check that the rank is 4, that there are s*s channels, and that s divides H and W."""
        if len(shape) != self.rank:
            raise OperatorError(
                f"{self.name}: the input must have rank 4, [N, C, H, W], not {show(shape)}",
                code=Code.RANK,
            )
        s, (_, channels, *image) = self.stride, shape
        if isinstance(channels, int) and channels < s * s:
            raise OperatorError(
                f"{self.name}: {channels} channels; there must be stride * stride = {s * s} or more"
            )
        for axis, size in enumerate(image, start=2):
            if isinstance(size, int) and size % s:
                raise OperatorError(
                    f"{self.name}: axis {axis}: size {size} is not divisible by the stride, {s}",
                    code=Code.NOT_DIVISIBLE,
                )

    def plan(self, shape: tuple[int, ...]) -> Copies:
        """Return the copies for an input [N, C, H, W]; nothing is padded."""
        out = self.output_sizes(shape)
        s, (n, c, h, w) = self.stride, shape
        q, remainder = divmod(c, s * s)
        if remainder:
            return _Gather(self, out)
        order = (0, 3, 5, 1, 2, 4)
        return Plan(out, View((n, q, h, s, w, s), order), View((n, s, s, q, h, w)))

    def index(self, shape: Sequence[int]) -> list[npt.NDArray[np.int64]]:
        """Return the summands, along each axis, of the flat index that y[n, c, h, w] is read from."""
        s, (n, c, h, w) = self.stride, shape
        q = c // (s * s)
        offset, image = np.divmod(np.arange(c), q)
        channel = image * (s * s * h * w) + offset // s * (s * w) + offset % s
        batch, row = np.arange(n) * (q * s * s * h * w), np.arange(h) * (s * s * w)
        return [batch, channel, row, np.arange(w) * s]

    def output_dims(self, sizes: Arithmetic, dims: Sequence[Size]) -> list[Size]:
        """Compute [N, C*s*s, H/s, W/s] for [N, C, H, W]."""
        s, (batch, channels, *image) = self.stride, dims
        return [batch, sizes.mul(channels, s * s), *(sizes.div(size, s) for size in image)]

    def constraints(self, sizes: Arithmetic, dims: Sequence[Size]) -> list[Size]:
        """Return sizes that are negative for too few channels, or a size that s does not divide."""
        s, (_, channels, *image) = self.stride, dims
        if s == 1:
            return [sizes.sub(channels, 1)]
        minus_remainders = [sizes.sub(sizes.mul(sizes.div(size, s), s), size) for size in image]
        return [sizes.sub(channels, s * s), *minus_remainders]


@dataclass(frozen=True)
class _Gather:
    """Reads each element by its flat index: blocks of channels that overlap are no strided copies."""

    operator: ReorgYolo
    shape: tuple[int, ...]

    def run(self, x: npt.NDArray[np.generic], pad_value: object = None) -> npt.NDArray[np.generic]:
        """Return the output, see `Operator.__call__`."""
        out: npt.NDArray[np.generic] = np.empty(self.shape, x.dtype)
        if out.size:
            batch, channel, row, column = self.operator.index(x.shape)
            index = batch[:, None, None, None] + channel[:, None, None] + row[:, None] + column
            out.reshape(x.shape)[...] = x.reshape(-1)[index]
        return out
