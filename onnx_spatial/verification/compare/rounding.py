"""Measure how far rounding alone moves the outputs of a model.

    original    x -> [Conv] -> a -> [Sin] -> y
    perturbed   x * (1 + r) -> [Conv] -> a * (1 + r) -> [Sin] -> y * (1 + r)

Two correct forms of one model round differently: other kernels, another order of sums, fused nodes. A
net may amplify that without bound (a sharp Softmax, Sin of large numbers, 1 / x, GridSample), or jump
(ArgMax, TopK, QuantizeLinear), so no fixed tolerance fits all. The bound is measured on the original: it
runs again with every computed real off by a few units in the last place at random, and with
onnxruntime's optimisations on. Outputs of another correct form may move as far.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from onnx_spatial.errors import ModelFileError
from onnx_spatial.model import traversal
from onnx_spatial.model.io import reader
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.compare import exactness
from onnx_spatial.verification.compare.error_metrics import Distance, Errors, largest_finite
from onnx_spatial.verification.compare.outputs import DISCRETE_SHARE
from onnx_spatial.verification.compare.perturbed import perturbed
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure, Session
from onnx_spatial.verification.runtime.stopwatch import Stopwatch

#: Runs with perturbed reals for each set of inputs.
RUNS = 3
#: Seconds after which no further run begins; there is always one.
SECONDS = 6.0
#: A difference up to the first factor times the measured movement is accepted, up to the second
#: undecided.
ACCEPTED, UNDECIDED = 4.0, 16.0
#: Number of elements that may exceed that, and the factor by which none may exceed it.
FEW, FAR = 4, 16.0
#: An element that rounding moves by this share of itself is not judged.
WILD = 0.25


class Verdict(Enum):
    """The verdict on a difference by the measured rounding."""

    ACCEPTED = "rounding explains it"
    UNDECIDED = "rounding may explain it"
    DIFFERS = "rounding does not explain it"


@dataclass(eq=False)
class Movement:
    """The movement of an output in runs that round differently.

    For whole numbers (labels, quantised steps, reals that are all whole) it is the share that changed.

    Attributes:
        expected: the original's output.
        optimised: the output with onnxruntime's optimisations; None if it was not measured.
    """

    expected: Array
    optimised: Array | None = None
    _distances: Sequence[Distance] = ()

    def add(self, actual: Array) -> None:
        """Add the output of another run."""
        self._distances = [*self._distances, Distance(self.expected, actual)]

    @property
    def runs(self) -> int:
        """Number of runs."""
        return len(self._distances)

    @property
    def largest(self) -> float:
        """Largest distance of an element."""
        return max((d.largest for d in self._distances), default=0.0)

    @property
    def changed(self) -> float:
        """Largest share of elements that changed."""
        return max((d.changed for d in self._distances), default=0.0)

    @property
    def amount(self) -> str:
        """The movement in words, to follow "by"."""
        if all(d.whole for d in self._distances):
            return f"{self.changed:.2g} of the elements"
        largest = largest_finite(self.expected)
        return f"{self.largest / largest if largest else 0.0:.2g} of the largest value"

    def verdict(self, actual: Array, *, each: bool = False) -> Verdict:
        """Decide whether rounding explains the difference from the output of another form.

        If `each`, elements that move less than most are held to their own movement, and only those
        that became NaN or infinite in a run may do so.
        """
        distance = Distance(self.expected, actual)
        whole = distance.whole and all(d.whole for d in self._distances)

        def explains(factor: float) -> bool:
            if whole:
                return self._explains_steps(distance, factor)
            return self._explains_reals(distance, factor, each)

        if explains(ACCEPTED):
            is_noise = self.changed > 0.5 if whole else self._is_noise
            return Verdict.UNDECIDED if is_noise else Verdict.ACCEPTED
        return Verdict.UNDECIDED if explains(UNDECIDED) else Verdict.DIFFERS

    @property
    def _is_noise(self) -> bool:
        """Whether rounding moves most elements by their own size."""
        with np.errstate(all="ignore"):
            sizes = np.abs(self.expected.astype(np.float64))
            sizes = sizes[np.isfinite(sizes)]
        p99 = max((d.p99 for d in self._distances), default=0.0)
        return bool(sizes.size) and ACCEPTED * p99 > np.quantile(sizes, 0.99)

    @property
    def _unit(self) -> Errors:
        """Unit in the last place of each element; 0 where it is not finite."""
        with np.errstate(all="ignore"):
            unit = np.spacing(np.abs(self.expected)).astype(np.float64)
        return np.where(np.isfinite(unit), unit, 0.0)

    def _explains_steps(self, distance: Distance, factor: float) -> bool:
        """Return whether no larger share of elements jumps, and 8-bit steps no further on average."""
        few = DISCRETE_SHARE * factor / ACCEPTED
        if distance.changed <= few and distance.changed * self.expected.size <= FEW:
            return True
        if distance.changed > min(factor * self.changed, (1 + self.changed) / 2):
            return False
        are_steps = self.expected.dtype.kind in "iu" and self.expected.dtype.itemsize == 1
        return not are_steps or distance.mean <= factor * max(d.mean for d in self._distances)

    def _explains_reals(self, distance: Distance, factor: float, each: bool) -> bool:
        measured = self._distances
        became_strange = [d.strange for d in measured]
        if distance.strange.sum() > factor * max(strange.sum() for strange in became_strange):
            return False
        if each and (distance.strange & ~np.logical_or.reduce(became_strange)).any():
            return False
        p50, p99 = max(d.p50 for d in measured), max(d.p99 for d in measured)
        if distance.p50 > factor * p50 or distance.p99 > factor * p99:
            return False
        # Behind 1 / x a few elements move by far the most: each is compared with its own movement.
        least = 0.0 if each else p50
        moved = [d.each for d in measured]
        own = np.maximum(np.maximum.reduce(moved), least)
        # In a few runs an element may not move by chance, as one is off by a few units at most.
        seen = np.maximum(least, self._unit)
        with np.errstate(all="ignore"):
            steady = ~(own >= WILD * np.abs(self.expected.astype(np.float64)))
            for times, free in ((ACCEPTED, FEW), (FAR * ACCEPTED, 0)):
                limit = times * factor / ACCEPTED * own
                beyond = int((steady & (distance.each > limit)).sum())
                usual = max(_beyond(moved, k, times, seen, steady) for k in range(len(moved)))
                if beyond > ACCEPTED * usual + free:
                    return False
        # A run that moves an element alone, by ever so little, moves it many times as far as the others.
        return distance.largest <= FAR * factor * self.largest


def _beyond(
    moved: list[Errors], number: int, times: float, least: Errors, steady: npt.NDArray[np.bool_]
) -> int:
    """Number of elements that one run moves further than `times` the others do, at least `least`."""
    others = [each for k, each in enumerate(moved) if k != number]
    if not others:
        return 0
    limit = times * np.maximum(np.maximum.reduce(others), least)
    return int((steady & (moved[number] > limit)).sum())


def is_comparable(actual: Any, expected: Any) -> TypeGuard[Array]:
    """Return whether a value is an array of the shape and type of another."""
    return (
        isinstance(expected, np.ndarray)
        and isinstance(actual, np.ndarray)
        and expected.shape == actual.shape
        and expected.dtype == actual.dtype
    )


@dataclass(eq=False)
class Rounding:
    """The effect of rounding on the outputs of a model; measured on request.

    Attributes:
        program: the model.
        source: the same as a file that onnxruntime loads; None if onnxruntime lacks operators, or it is
            a part of a model.
        seconds: after which no further run begins.
        obstacle: why the last run that failed did; None if none did.
    """

    program: Program
    source: reader.Source | None = None
    seconds: float = SECONDS
    obstacle: str | None = None
    _programs: dict[bool, Program] = field(default_factory=dict)
    _feeds: Mapping[str, Array] | None = None
    _measured: dict[bool, dict[str, Movement]] = field(default_factory=dict)

    def of(
        self, feeds: Mapping[str, Array], outputs: Mapping[str, Any], *, optimised: bool
    ) -> Mapping[str, Movement]:
        """Return the movement of each output of a run, by name, where it can be measured.

        If `optimised`, a run with optimisations is included.
        """
        if feeds is not self._feeds:
            self._feeds, self._measured = feeds, {}
        if optimised not in self._measured:
            self._measured[optimised] = self._measure(feeds, outputs, optimised)
        return self._measured[optimised]

    def _measure(
        self, feeds: Mapping[str, Array], outputs: Mapping[str, Any], optimised: bool
    ) -> dict[str, Movement]:
        nodes = traversal.nodes(self.program.flat)
        quantised = optimised and any(n.op_type == "QuantizeLinear" for _, _, n in nodes)
        movements: dict[str, Movement] = {}
        if optimised and not quantised:
            plain = self.of(feeds, outputs, optimised=False)
            movements = {name: copy.copy(movement) for name, movement in plain.items()}
        perturbed_runs = 0 if movements else RUNS
        stopwatch = Stopwatch()
        for is_optimised in [True] * optimised + [False] * perturbed_runs:
            run = self._optimised if is_optimised else lambda x: self._perturbed(quantised).run(x)
            try:
                again = run(feeds)
            except (RunFailure, ModelFileError, MemoryError) as error:
                self.obstacle = str(error) or "it takes too much memory"
                continue
            for name, expected in outputs.items():
                actual = again.get(name)
                if is_comparable(actual, expected):
                    movement = movements.setdefault(name, Movement(expected))
                    movement.add(actual)
                    if is_optimised:
                        movement.optimised = actual
            if stopwatch.exceeds(self.seconds):
                break
        return movements

    def _optimised(self, feeds: Mapping[str, Array]) -> Mapping[str, Any]:
        """Run the original with onnxruntime's optimisations, as a whole or in parts."""
        program = self.program
        if self.source is not None:
            data = self.source.data or reader.serialize(self.source.proto, self.source.name)
            return Session(data, optimise=True, folder=self.source.folder).run(feeds)
        again = Program(program.flat, program.positions(), program.folder, optimise=True)
        try:
            return again.run(feeds)
        finally:
            again.close()

    @cached_property
    def _types(self) -> Mapping[str, int]:
        return exactness.element_types(self.program)

    def _perturbed(self, quantised: bool) -> Program:
        if quantised not in self._programs:
            model, sites = perturbed(self.program, self._types, quantised=quantised)
            self._programs[quantised] = Program(model, sites, self.program.folder)
        return self._programs[quantised]

    def close(self) -> None:
        """Release the sessions."""
        for program in self._programs.values():
            program.close()
        self._programs.clear()
        self._feeds, self._measured = None, {}
