"""Lower operators to standard nodes: `select.lower` picks the cheapest.

Every lowering is exact, bit for bit, for every request that it does not refuse. To add one, write a
function that builds it, and list it in `select.LOWERINGS`.
"""

from onnx_spatial.lowering.emitter import Emitter
from onnx_spatial.lowering.request import Lowering, Request, are_open
from onnx_spatial.lowering.select import (
    LOWERINGS,
    MIN_OPSET,
    Candidate,
    Lowered,
    Ranking,
    lower,
    lower_preferring,
    rank,
    transpose_cost,
)

__all__ = [
    "MIN_OPSET",
    "LOWERINGS",
    "Candidate",
    "Emitter",
    "Lowered",
    "Ranking",
    "Request",
    "Lowering",
    "are_open",
    "lower",
    "lower_preferring",
    "rank",
    "transpose_cost",
]
