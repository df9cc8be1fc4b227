"""A permutation as two or three cheap Transposes of low rank.

    NCHW    Reshape [N*C*Hb, bh, W] -> T[1,0,2] -> Reshape [.., bw] -> T[1,0] -> Reshape

A Transpose that moves one axis past another is several times faster than one that moves more, and its
rank is 3 at most.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_spatial.lowering.core.builder import Emitter
from onnx_spatial.lowering.core.strategy import Request
from onnx_spatial.lowering.permutation import factored_axes, stages


class StagedTransposes:
    """Transposes alone, as many as pay."""

    name = "staged"
    accepts = factored_axes.OPERATORS

    def absorbs(self, request: Request) -> bool:
        """Transposes around it are part of the permutation."""
        return True

    def refuse(self, request: Request) -> str | None:
        """Only what is one permutation of factors."""
        return factored_axes.refusal(request)

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Write it."""
        return stages.lowered(request, emit, ("transpose",), ("transpose",))
