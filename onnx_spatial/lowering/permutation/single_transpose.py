"""SpaceToBatch, BatchToSpace and patches that tile the image as one Transpose: the textbook form.

    Pad -> Reshape [N, D1/b1, b1, .., rest] -> Transpose -> Reshape -> Slice

Axes that stay neighbours are one, so the Transpose has the lowest rank that this form allows (2M + 2
at most). Fast where the last axis stays; otherwise onnxruntime walks element by element.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_spatial.lowering.core.builder import Emitter
from onnx_spatial.lowering.core.strategy import Request
from onnx_spatial.lowering.permutation import factored_axes, stages
from onnx_spatial.lowering.permutation.stage_plan import Stage


class SingleTranspose:
    """One Transpose, whatever it costs."""

    name = "transpose"
    accepts = factored_axes.OPERATORS

    def absorbs(self, request: Request) -> bool:
        """Transposes around it are part of the permutation."""
        return True

    def refuse(self, request: Request) -> str | None:
        """Only what is one permutation of factors."""
        return factored_axes.refusal(request)

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Write it."""
        r = factored_axes.Rearrangement.of(request, emit)
        plan = [] if r.before == r.after else [Stage("transpose", r.before, r.after)]
        x, done = stages.moved(emit, r, r.padded(emit), plan)
        return r.finished(emit, x, done)
