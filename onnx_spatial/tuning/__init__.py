"""How long lowerings take on this machine: measure them, remember it, choose by it.

`harness_model` puts the nodes of a lowering between two others, as in a real model;
`interleaved_timing` runs several models in turn and takes their times; `measure` joins the two. `sizes`
chooses the data for each site, `cache` keeps the times in a file, `tuner` chooses.
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
