"""Name what a conversion can be asked for; imports nothing, so that help texts are shown at once."""

from __future__ import annotations

MODES = ("lower", "function", "custom-op")

#: Names of `lowering.STRATEGIES`, in their order.
STRATEGY_NAMES = (
    "identity",
    "empty",
    "transpose",
    "staged",
    "gather",
    "interleave",
    "space-to-depth",
    "row-gather",
    "slices",
    "separable-gather",
    "planes",
    "taps",
    "tap-concat",
)

#: Names of the runtimes in `verification.oracles`.
ORACLE_NAMES = ("tensorflow", "openvino")
