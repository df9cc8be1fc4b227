"""SpaceToBatch, BatchToSpace and patches that tile the image as one Transpose: the textbook form.

    Pad -> Reshape [N, D1/b1, b1, .., rest] -> Transpose -> Reshape -> Slice

Axes that stay neighbours are one, so the Transpose has the lowest rank that this form allows (2M + 2
at most). Fast where the last axis stays; otherwise onnxruntime walks element by element.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_spatial.lowering import movement, rearrange
from onnx_spatial.lowering.emit import Emitter
from onnx_spatial.lowering.factoring import Stage
from onnx_spatial.lowering.request import Request


class SingleTranspose:
    """One Transpose, whatever it costs."""

    name = "transpose"

    def absorbs(self, request: Request) -> bool:
        """Transposes around it are part of the permutation."""
        return True

    def refuse(self, request: Request) -> str | None:
        """Only what is one permutation of factors."""
        return rearrange.refusal(request)

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Write it."""
        r = rearrange.Rearrangement.of(request, emit)
        plan = [] if r.before == r.after else [Stage("transpose", r.before, r.after)]
        x, done = movement.moved(emit, r, r.padded(emit), plan)
        return r.finished(emit, x, done)
