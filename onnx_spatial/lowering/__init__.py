"""Operators to standard nodes: one strategy per module, `choose.lower` picks.

Every strategy is exact, bit for bit, for every request that it accepts. To add one, write a module
with a class like `request.Strategy` and list it in `choose.STRATEGIES`.
"""

from onnx_spatial.lowering.choose import (
    MIN_OPSET,
    STRATEGIES,
    Candidate,
    Lowered,
    Ranking,
    candidates,
    lower,
    lower_preferring,
    rank,
    transpose_cost,
)
from onnx_spatial.lowering.emit import Emitter
from onnx_spatial.lowering.request import Request, Strategy
from onnx_spatial.lowering.rules import are_open

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
    "candidates",
    "lower",
    "lower_preferring",
    "rank",
    "transpose_cost",
]
