"""How long lowerings take on this machine: measure them, remember it, choose by it.

`net` puts the nodes that stand for an operator between two others, as in a real model; `rounds` runs
several models in turn and takes their times; `measure` joins the two. `sizes` says which data each
site is measured with, `cache` keeps what was measured in a file, `tuner` chooses.
"""

from onnx_spatial.timing.cache import Cache, default_path
from onnx_spatial.timing.machine import machine
from onnx_spatial.timing.measure import Effort, lowerings, models
from onnx_spatial.timing.net import Given
from onnx_spatial.timing.sizes import Sizes
from onnx_spatial.timing.tuner import MARGIN, Tuner

__all__ = [
    "MARGIN",
    "Cache",
    "Effort",
    "Given",
    "Sizes",
    "Tuner",
    "default_path",
    "lowerings",
    "machine",
    "models",
]
