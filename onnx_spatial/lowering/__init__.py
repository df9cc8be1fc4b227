"""Lower operators to standard nodes: `select.lower` picks the cheapest strategy.

Every strategy is exact, bit for bit, for every request that it does not refuse. To add one, write a
function that builds it, in a module of its own, and list it in `select.STRATEGIES`.
"""

from onnx_spatial.lowering.emitter import Emitter
from onnx_spatial.lowering.request import Request, Strategy, are_open
from onnx_spatial.lowering.select import (
    MIN_OPSET,
    STRATEGIES,
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
    "STRATEGIES",
    "Candidate",
    "Emitter",
    "Lowered",
    "Ranking",
    "Request",
    "Strategy",
    "are_open",
    "lower",
    "lower_preferring",
    "rank",
    "transpose_cost",
]
