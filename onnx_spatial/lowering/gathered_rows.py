"""A permutation as one Gather of whole rows, with a cheap Transpose before or behind it.

    SpaceToBatch, NCHW    Reshape [.., bw] -> T[1,0] -> Reshape [rows, Wb] -> Gather -> Reshape
    BatchToSpace, NCHW    Reshape [rows, Wb] -> Gather -> Reshape [bw, ..] -> T[1,0] -> Reshape

A Gather brings rows into any order in one parallel pass; crops of rows are left out of its index.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_spatial.lowering import movement, rearrange
from onnx_spatial.lowering.emit import Emitter
from onnx_spatial.lowering.request import Request


class GatheredRows:
    """Transposes and one Gather."""

    name = "gather"

    def absorbs(self, request: Request) -> bool:
        """Transposes around it are part of the permutation."""
        return True

    def refuse(self, request: Request) -> str | None:
        """Only what is one permutation of factors."""
        return rearrange.refusal(request)

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Write it."""
        return movement.lowered(request, emit, ("transpose", "gather"), ("gather",))
