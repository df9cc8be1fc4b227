"""A permutation whose small factors are taken apart by Split and put together by Concat.

    BatchToSpace, NCHW    one Gather of rows for each column offset -> Concat along the columns
    BatchToSpace, NHWC    the same with runs of C
    SpaceToBatch          Split the columns -> Concat -> Transpose or Gather of rows

Concat writes short runs faster than Transpose and Gather do, and with all threads.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_spatial.lowering.core.builder import Emitter
from onnx_spatial.lowering.core.strategy import Request
from onnx_spatial.lowering.permutation import factored_axes, stages


class Interleaved:
    """Split and Concat in the place of a Transpose."""

    name = "interleave"
    accepts = factored_axes.OPERATORS

    def absorbs(self, request: Request) -> bool:
        """Transposes around it are part of the permutation."""
        return True

    def refuse(self, request: Request) -> str | None:
        """Only what is one permutation of factors."""
        return factored_axes.refusal(request)

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Write it."""
        return stages.lowered(
            request,
            emit,
            ("transpose", "gather", "interleave", "deinterleave"),
            ("interleave", "deinterleave"),
        )
