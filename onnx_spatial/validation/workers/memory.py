"""How little memory a process can do with, found by trying: libraries and machines are not alike."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import onnx

from onnx_spatial.errors import UsageError
from onnx_spatial.validation.options import Options
from onnx_spatial.validation.workers.job import Job
from onnx_spatial.validation.workers.process_pool import ProcessSlot

#: Looking at it takes hardly more than what is loaded for any model.
_SMALLEST = """<ir_version: 8, opset_import: ["" : 13, "ai.onnx.converters.tensorflow" : 1]>
smallest (float[1,2,2,1] x) => (float[4,1,1,1] y)
<int64[2] block = {2, 2}, int64[2,2] pads = {0, 0, 0, 0}> {
    y = ai.onnx.converters.tensorflow.SpaceToBatchND(x, block, pads)
}
"""
#: Seconds that one try may take; where a thread cannot be started another may wait for it forever.
_SECONDS = 30.0
#: Sizes that are tried, and how often the one that is named has to do.
_STEP = 16 * 2**20
_MOST = 2**40
_TIMES = 3


def check(memory: int, options: Options, lane: ProcessSlot) -> None:
    """Refuse a bound within which not even the smallest model can be looked at.

    Args:
        memory: bytes that a process may have of its own.
        options: what models go through; those that a model may fail for have no part in it.
        lane: to try it in.

    Raises:
        UsageError: it is too little; says what is enough.
    """
    plain = Options(modes=options.modes, oracles=options.oracles).to_dict()
    with tempfile.TemporaryDirectory(prefix="onnx-spatial-") as folder:
        path = Path(folder, "model.onnx")
        path.write_bytes(onnx.parser.parse_model(_SMALLEST).SerializeToString())

        def status(size: int | None) -> str:
            return lane.validate(Job(str(path), folder, plain, _SECONDS, size)).status

        found = status(memory)
        if found == "passed":
            return
        expected = status(None)  # "unverified" where a library is missing
        enough = None if found == expected else _least(memory, lambda s: status(s) == expected)
    if enough is not None:
        raise UsageError(
            f"memory must be at least {enough // 2**20}M, which the smallest model takes here, "
            f"not {memory / 2**20:.3g}M"
        )


def _least(too_little: int, is_enough: Callable[[int], bool]) -> int | None:
    """The least size above one that does not do, with a step to spare; None if none does."""
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
