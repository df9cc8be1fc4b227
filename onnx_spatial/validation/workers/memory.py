"""Find the least memory that a process needs, by trying: it depends on libraries and machine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import onnx

from onnx_spatial.errors import UsageError
from onnx_spatial.validation.options import Options
from onnx_spatial.validation.workers.job import Job
from onnx_spatial.validation.workers.process_pool import ProcessSlot

#: A model whose validation takes hardly more memory than the libraries loaded for any model.
_SMALLEST = """<ir_version: 8, opset_import: ["" : 13, "ai.onnx.converters.tensorflow" : 1]>
smallest (float[1,2,2,1] x) => (float[4,1,1,1] y)
<int64[2] block = {2, 2}, int64[2,2] pads = {0, 0, 0, 0}> {
    y = ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, pads)
}
"""
#: Seconds that one try may take: a library may wait forever for a thread that could not be started.
_SECONDS = 30.0
#: Granularity of the sizes, the largest one, and how often the recommended size has to suffice.
_STEP = 16 * 2**20
_MOST = 2**40
_TIMES = 3


def check(memory: int, options: Options, slot: ProcessSlot) -> None:
    """Check that the smallest model can be validated within a memory limit.

    Args:
        memory: bytes of private memory that a process may have.
        options: options of the run; only modes and oracles matter.
        slot: process slot to try it in.

    Raises:
        UsageError: it is too little; the message names a size that suffices.
    """
    plain = Options(modes=options.modes, oracles=options.oracles).to_dict()
    with tempfile.TemporaryDirectory(prefix="onnx-spatial-") as folder:
        path = Path(folder, "model.onnx")
        path.write_bytes(onnx.parser.parse_model(_SMALLEST).SerializeToString())

        def status(size: int | None) -> str:
            return slot.validate(Job(str(path), folder, plain, _SECONDS, size)).status

        limited = status(memory)
        if limited == "passed":
            return
        expected = status(None)  # "unverified" if a library is missing
        enough = None if limited == expected else _least(memory, lambda s: status(s) == expected)
    if enough is not None:
        raise UsageError(
            f"memory must be at least {enough // 2**20}M, which the smallest model takes here, "
            f"not {memory / 2**20:.3g}M"
        )


def _least(too_little: int, is_enough: Callable[[int], bool]) -> int | None:
    """Find the least sufficient size above one that is too little, plus one step; None if none is."""
    low, high = too_little // _STEP, too_little // _STEP + 1
    while not is_enough(high * _STEP):
        low, high = high, 2 * high
        if high * _STEP > _MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle * _STEP) else (middle, high)
    while not all(is_enough(high * _STEP) for _ in range(_TIMES)):
        high += 1
    return (high + 1) * _STEP
