"""How ExtractPatches samples its spatial axes, where sizes may be known at run time only."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_spatial.lowering.core.builder import Emitter, Size, Tensor
from onnx_spatial.operators import ExtractPatches


@dataclass(frozen=True)
class Sampling:
    """One spatial axis: how many windows, and the zeros around it (negative: elements cut off)."""

    count: Size
    begin: Size
    end: Size


def sampled(emit: Emitter, op: ExtractPatches, x: Tensor) -> list[Sampling]:
    """How each spatial axis is sampled; what depends on unknown sizes is computed at run time."""
    axes = enumerate(op.spatial_axes)
    return [Sampling(*op.windows(emit, number, x.dims[axis])) for number, axis in axes]
