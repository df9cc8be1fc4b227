"""A permutation as one Gather of whole rows, with a cheap Transpose before or behind it.

    SpaceToBatch, NCHW    Reshape [.., bw] -> T[1,0] -> Reshape [rows, Wb] -> Gather -> Reshape
    BatchToSpace, NCHW    Reshape [rows, Wb] -> Gather -> Reshape [bw, ..] -> T[1,0] -> Reshape

A Gather brings rows into any order in one parallel pass; crops of rows are left out of its index.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_spatial.lowering.core.builder import Emitter
from onnx_spatial.lowering.core.strategy import Request
from onnx_spatial.lowering.permutation import factored_axes, stages


class GatheredRows:
    """Transposes and one Gather."""

    name = "gather"
    accepts = factored_axes.OPERATORS

    def absorbs(self, request: Request) -> bool:
        """Transposes around it are part of the permutation."""
        return True

    def refuse(self, request: Request) -> str | None:
        """Only what is one permutation of factors."""
        return factored_axes.refusal(request)

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Write it."""
        return stages.lowered(request, emit, ("transpose", "gather"), ("gather",))
