"""Choose the lowering of each site by what it takes on this machine."""

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

#: How many times as long, and how many microseconds on top, the lowering that is estimated to be the
#: fastest may take before another one is preferred: repeated measurements differ by less.
MARGIN = 1.05
MARGIN_US = 0.5

#: Data of more elements is not made up; a string takes 300 bytes, and is copied for each run.
MAX_ELEMENTS = 2**25
MAX_STRINGS = 2**16

#: Measures the lowerings of a request; see `measure.lowerings`.
Measure = Callable[
    [Request, Sequence[Lowered], HarnessData, int, Effort],
    Sequence[float | None],
]


class Tuner:
    """Measures the lowerings of sites; the same request is measured once.

    Args:
        sizes: the data to measure with.
        max_rank: largest rank that new tensors may have.
        effort: how much to measure.
        cache: what was measured before, and where to keep what is measured now.
        progress: called with a line of text now and then.
        measure: to measure with.
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
        #: What each site was measured with, by its graph in words and the name of its output.
        self.given: dict[tuple[str, str], HarnessData] = {}

    def choose(self, request: Request, info: OperatorInfo) -> Lowered:
        """The fastest lowering of a site.

        Raises:
            ConversionError: there is none.
        """
        there = self.candidates(request, info)
        name = fastest(there).strategy if there else None
        try:
            lowered = lower(request, strategy=name, max_rank=self._max_rank)
        except ConversionError:
            if name is None:
                raise
            lowered = lower(request, max_rank=self._max_rank)
        return replace(lowered, considered=there)

    def candidates(self, request: Request, info: OperatorInfo) -> tuple[Candidate, ...]:
        """Every lowering with its estimated time, and its measured one where it can be measured."""
        request = request.apart()
        ways = candidates(request, max_rank=self._max_rank)
        listed = rank(request, max_rank=self._max_rank).fitting
        given = self._sizes.of(info, request)
        if not ways or given is None:
            return listed
        axes = _output_rank(request, given)
        if axes is None:
            return listed
        self.given[str(info.place), info.node.output[0]] = given
        description = self._describe(request, ways, given, axes)
        figures = self._cache.get(description)
        if figures is None or set(figures) != {way.strategy for way in ways}:
            self._progress(f"measuring {info.node.op_type} {info.node.name}")
            try:
                taken = self._measure(request, ways, given, axes, self._effort)
            except MemoryError:  # there may be more next time
                return listed
            figures = {w.strategy: t for w, t in zip(ways, taken, strict=True)}
            if any(us is not None for us in taken):
                figures = self._cache.put(description, figures)
        return tuple(replace(c, measured_us=figures[c.strategy]) for c in listed)

    def _describe(
        self, request: Request, ways: Sequence[Lowered], given: HarnessData, rank: int
    ) -> dict[str, object]:
        """Everything that the figures depend on. The nets say it all; the rest is for a reader."""
        return {
            "operator": request.call.kind.name,
            "declared_shape": _dims(request.shape),
            "shape": list(given.shape),
            "element_type": dtype_name(given.element_type),
            "parameters": [None if p is None else p.tolist() for p in given.parameters],
            "opset": request.opset,
            "max_rank": self._max_rank,
            "nets": {way.strategy: _digest(request, way, given, rank) for way in ways},
            "threads": self._effort.threads,
            **machine(),
        }


def fastest(there: Sequence[Candidate]) -> Candidate:
    """The one that is estimated to be, unless another one is measured to be beyond noise."""
    first = there[0]
    best = min(there, key=lambda c: math.inf if c.measured_us is None else c.measured_us)
    if best.measured_us is None:
        return first
    most = best.measured_us * MARGIN + MARGIN_US
    slow = first.measured_us is None or first.measured_us > most
    return best if slow else first


def _dims(shape: Sequence[object] | None) -> list[object] | None:
    """Known dims of a shape, None for the others: their names do not matter."""
    return None if shape is None else [d if isinstance(d, int) else None for d in shape]


def _digest(request: Request, way: Lowered, given: HarnessData, rank: int) -> str:
    data = harness_model.net(request, given, way, rank).SerializeToString(deterministic=True)
    return hashlib.sha256(data).hexdigest()[:16]


def _output_rank(request: Request, given: HarnessData) -> int | None:
    """Rank of the output; None if there is nothing to measure: no data, or far too much of it."""
    try:
        operator = request.call.bind((None, *given.parameters))
        shape = operator.output_shape(given.shape)
    except OperatorError:
        return None
    sizes = [math.prod(given.shape), math.prod(d for d in shape if isinstance(d, int))]
    most = MAX_STRINGS if given.element_type == STRING else MAX_ELEMENTS
    return len(shape) if min(sizes) > 0 and max(sizes) <= most else None
