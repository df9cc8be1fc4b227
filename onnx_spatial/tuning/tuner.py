"""Choose the lowering of each operator by its measured time on this machine."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from onnx_spatial.analysis import OperatorInfo, dtype_name
from onnx_spatial.errors import ConversionError, OperatorError
from onnx_spatial.lowering import Candidate, Lowered, Request, candidates, lower, rank
from onnx_spatial.tuning import harness_model
from onnx_spatial.tuning.cache import Cache
from onnx_spatial.tuning.harness_model import HarnessData
from onnx_spatial.tuning.machine import machine
from onnx_spatial.tuning.measure import Effort, lowerings
from onnx_spatial.tuning.sizes import Sizes
from onnx_spatial.verification.arrays import STRING

#: Factor and microseconds by which another lowering must be faster than the one with the least
#: estimate to be preferred: repeated measurements differ by less.
MARGIN = 1.05
MARGIN_US = 0.5

#: Largest data to measure with; a string takes 300 bytes, and is copied for each run.
MAX_ELEMENTS = 2**25
MAX_STRINGS = 2**16

#: See `measure.lowerings`.
Measure = Callable[
    [Request, Sequence[Lowered], HarnessData, int, Effort],
    Sequence[float | None],
]


class Tuner:
    """Measures the lowerings of operators; equal requests are measured once.

    Args:
        sizes: data to measure with.
        max_rank: largest rank of new tensors.
        effort: how much to measure.
        cache: times of earlier measurements, which new ones are added to.
        progress: called with lines of text.
        measure: function to measure with.
    """

    def __init__(
        self,
        sizes: Sizes,
        *,
        max_rank: int | None = None,
        effort: Effort | None = None,
        cache: Cache | None = None,
        progress: Callable[[str], None] | None = None,
        measure: Measure = lowerings,
    ) -> None:
        self._sizes = sizes
        self._max_rank = max_rank
        self._effort = effort or Effort()
        self._cache = cache or Cache()
        self._progress = progress or (lambda _: None)
        self._measure = measure
        #: The data that each operator was measured with, by its graph and the name of its output.
        self.data: dict[tuple[str, str], HarnessData] = {}

    def choose(self, request: Request, info: OperatorInfo) -> Lowered:
        """Return the fastest lowering of an operator.

        Raises:
            ConversionError: there is none.
        """
        measured = self.candidates(request, info)
        name = fastest(measured).strategy if measured else None
        try:
            lowered = lower(request, strategy=name, max_rank=self._max_rank)
        except ConversionError:
            if name is None:
                raise
            lowered = lower(request, max_rank=self._max_rank)
        return replace(lowered, considered=measured)

    def candidates(self, request: Request, info: OperatorInfo) -> tuple[Candidate, ...]:
        """Return every lowering with its estimated time, and the measured time where possible."""
        request = request.apart()
        lowered = candidates(request, max_rank=self._max_rank)
        estimated = rank(request, max_rank=self._max_rank).fitting
        data = self._sizes.of(info, request)
        output_rank = None if data is None else _output_rank(request, data)
        if not lowered or data is None or output_rank is None:
            return estimated
        self.data[str(info.place), info.node.output[0]] = data
        description = self._describe(request, lowered, data, output_rank)
        times = self._cache.get(description)
        if times is None or set(times) != {each.strategy for each in lowered}:
            self._progress(f"measuring {info.node.op_type} {info.node.name}")
            try:
                measured = self._measure(request, lowered, data, output_rank, self._effort)
            except MemoryError:  # not cached: memory may suffice next time
                return estimated
            times = {each.strategy: us for each, us in zip(lowered, measured, strict=True)}
            if any(us is not None for us in measured):
                times = self._cache.put(description, times)
        return tuple(replace(c, measured_us=times[c.strategy]) for c in estimated)

    def _describe(
        self, request: Request, lowered: Sequence[Lowered], data: HarnessData, rank: int
    ) -> dict[str, object]:
        """Return everything that the times depend on: "nets" covers it, the rest is for readers."""
        return {
            "operator": request.call.kind.name,
            "declared_shape": _dims(request.shape),
            "shape": list(data.shape),
            "element_type": dtype_name(data.element_type),
            "parameters": [None if p is None else p.tolist() for p in data.parameters],
            "opset": request.opset,
            "max_rank": self._max_rank,
            "nets": {each.strategy: _digest(request, each, data, rank) for each in lowered},
            "threads": self._effort.threads,
            **machine(),
        }


def fastest(candidates: Sequence[Candidate]) -> Candidate:
    """Return the first, which has the least estimate, unless another one is faster beyond noise."""
    first = candidates[0]
    best = min(candidates, key=lambda c: math.inf if c.measured_us is None else c.measured_us)
    if best.measured_us is None:
        return first
    most = best.measured_us * MARGIN + MARGIN_US
    slow = first.measured_us is None or first.measured_us > most
    return best if slow else first


def _dims(shape: Sequence[object] | None) -> list[object] | None:
    """Return the known dims of a shape, and None for the others, whose names do not matter."""
    return None if shape is None else [d if isinstance(d, int) else None for d in shape]


def _digest(request: Request, lowered: Lowered, data: HarnessData, rank: int) -> str:
    model = harness_model.build(request, data, lowered, rank)
    return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()[:16]


def _output_rank(request: Request, data: HarnessData) -> int | None:
    """Return the rank of the output; None if there is no data or too much of it to measure."""
    try:
        operator = request.call.bind((None, *data.parameters))
        shape = operator.output_shape(data.shape)
    except OperatorError:
        return None
    sizes = [math.prod(data.shape), math.prod(d for d in shape if isinstance(d, int))]
    most = MAX_STRINGS if data.element_type == STRING else MAX_ELEMENTS
    return len(shape) if min(sizes) > 0 and max(sizes) <= most else None
