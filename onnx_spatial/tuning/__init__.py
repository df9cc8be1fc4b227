"""Measure lowerings on this machine, keep the times, and choose the fastest.

`harness_model` builds a small model around a lowering, `interleaved_timing` times models in turn, and
`measure` joins the two. `sizes` chooses the data for each operator, `cache` keeps the times in a file,
and `tuner` chooses.
"""

from onnx_spatial.tuning.cache import Cache, default_path
from onnx_spatial.tuning.harness_model import HarnessData
from onnx_spatial.tuning.machine import machine
from onnx_spatial.tuning.measure import Effort, lowerings, models
from onnx_spatial.tuning.sizes import Sizes
from onnx_spatial.tuning.tuner import MARGIN, Tuner

__all__ = [
    "MARGIN",
    "Cache",
    "Effort",
    "HarnessData",
    "Sizes",
    "Tuner",
    "default_path",
    "lowerings",
    "machine",
    "models",
]
