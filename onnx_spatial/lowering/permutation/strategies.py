"""Lower a permutation of factors, by one Transpose or by stages of several kinds; here for NCHW.

transpose     Pad -> Reshape [N, D1/b1, b1, .., rest] -> Transpose -> Reshape -> Slice
              the textbook form, of rank 2M + 2 at most; fast where the last axis stays, otherwise
              onnxruntime walks element by element
staged        Reshape [N*C*Hb, bh, W] -> T[1,0,2] -> Reshape [.., bw] -> T[1,0] -> Reshape
              two or three Transposes of rank 3 that each move one axis past another
gather        SpaceToBatch  Reshape [.., bw] -> T[1,0] -> Reshape [rows, Wb] -> Gather -> Reshape
              BatchToSpace  Reshape [rows, Wb] -> Gather -> Reshape [bw, ..] -> T[1,0] -> Reshape
              one Gather orders the rows in one parallel pass; its index leaves out cropped rows
interleave    BatchToSpace  one Gather of rows for each column offset -> Concat along the columns
              SpaceToBatch  Split the columns -> Concat -> Transpose or Gather of rows
              Concat writes short runs faster than Transpose and Gather do, and with all threads
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_spatial.errors import ConversionError
from onnx_spatial.lowering.core.builder import Emitter
from onnx_spatial.lowering.core.strategy import Request, Strategy
from onnx_spatial.lowering.permutation import factored_axes, stages
from onnx_spatial.lowering.permutation.factored_axes import Rearrangement
from onnx_spatial.lowering.permutation.stage_plan import Kind


class FactorPermutation(Strategy):
    """A strategy for operators that permute the factors of their axes."""

    accepts = factored_axes.OPERATORS
    majors = frozenset({"place", "channel"})

    def absorbs(self, request: Request) -> bool:
        """Include the Transposes in the permutation."""
        return True

    def refuse(self, request: Request) -> str | None:
        """Refuse everything that is no permutation of factors."""
        return factored_axes.refusal(request)


class SingleTranspose(FactorPermutation):
    """One Transpose, at any price."""

    name = "transpose"

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Emit the nodes and return the operator's output."""
        r = Rearrangement.of(request, emit)
        x, cropped = stages.emit_transpose(emit, r, r.padded(emit), r.before, r.after)
        return r.finished(emit, x, cropped)


@dataclass(frozen=True)
class Stages(FactorPermutation):
    """The cheapest stages of some kinds.

    Attributes:
        name: of the strategy.
        needed: kinds of which one must be used.
        kinds: kinds that may be used.
    """

    name: str
    needed: frozenset[Kind]
    kinds: frozenset[Kind]

    def build(self, request: Request, emit: Emitter) -> ir.Value:
        """Emit the nodes and return the operator's output.

        Raises:
            ConversionError: there are no such stages.
        """
        r = Rearrangement.of(request, emit)
        plan = stages.cheapest(r, emit, self.kinds, self.needed)
        if plan is None:
            raise ConversionError("no sequence of such steps is needed or fits")
        x, cropped = stages.emit_stages(emit, r, r.padded(emit), plan)
        return r.finished(emit, x, cropped)


_TRANSPOSE: frozenset[Kind] = frozenset({"transpose"})
_GATHER: frozenset[Kind] = frozenset({"gather"})
_PARTS: frozenset[Kind] = frozenset({"interleave", "deinterleave"})

#: In the order of `select.STRATEGIES`.
STRATEGIES: tuple[Strategy, ...] = (
    SingleTranspose(),
    Stages("staged", _TRANSPOSE, _TRANSPOSE),
    Stages("gather", _GATHER, _TRANSPOSE | _GATHER),
    Stages("interleave", _PARTS, _TRANSPOSE | _GATHER | _PARTS),
)
