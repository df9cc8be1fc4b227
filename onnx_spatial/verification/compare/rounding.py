"""Measure how far rounding alone moves the outputs of a model.

    original    x -> [Conv] -> a -> [Sin] -> y
    perturbed   x * (1 + r) -> [Conv] -> a * (1 + r) -> [Sin] -> y * (1 + r)

Two right forms of one model round differently: other kernels, another order of sums, fused nodes. A
net may amplify that without bound (a sharp Softmax, Sin of large numbers, 1 / x, GridSample), or jump
(ArgMax, TopK, QuantizeLinear), so no fixed tolerance fits all. The original itself tells: it runs again
with every computed real off by a few units in the last place at random, and with onnxruntime's
optimisations on. As far as its outputs move then, those of another right form may move too.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from onnx_spatial.errors import ModelFileError
from onnx_spatial.model import traversal
from onnx_spatial.model.io import reader
from onnx_spatial.verification.arrays import Array, is_float
from onnx_spatial.verification.compare import exactness
from onnx_spatial.verification.compare.error_metrics import NOT_NUMBERS, errors
from onnx_spatial.verification.compare.perturbed import perturbed
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure, Session

#: Runs with perturbed reals, for each set of inputs.
RUNS = 3
#: Seconds after which no further run is begun; there is always one.
SECONDS = 6.0
#: A difference may be so many times as large as what was measured; up to the second factor it is
#: left undecided.
ACCEPTED, UNDECIDED = 4.0, 16.0
#: So many elements may be further off than that, but none by this many times as much.
FEW, FAR = 4, 16.0
#: An element that rounding moves by this share of itself tells nothing.
WILD = 0.25

_Errors = npt.NDArray[np.floating[Any]]


class Verdict(Enum):
    """What measured rounding says of a difference."""

    ACCEPTED = "rounding explains it"
    UNDECIDED = "it may be rounding, or not"
    DIFFERS = "rounding does not explain it"


class Movement:
    """How far an output moved in runs that round differently.

    Of whole numbers (labels, steps, and reals that are all whole) the share counts that changed.

    Args:
        expected: the original's output.

    Attributes:
        runs: how many there were.
        changed: largest share of elements that became others.
        largest: the largest distance between numbers.
        optimised: the output with onnxruntime's optimisations; None if it was not measured.
    """

    def __init__(self, expected: Array) -> None:
        self._expected = expected
        self._distances: list[_Distance] = []
        self.optimised: Array | None = None

    def add(self, actual: Array) -> None:
        """Take note of another run."""
        self._distances = [*self._distances, _Distance(self._expected, actual)]

    @property
    def runs(self) -> int:
        """How many runs there were."""
        return len(self._distances)

    @property
    def largest(self) -> float:
        """See `Movement`."""
        return max((d.largest for d in self._distances), default=0.0)

    @property
    def changed(self) -> float:
        """See `Movement`."""
        return max((d.changed for d in self._distances), default=0.0)

    @property
    def amount(self) -> str:
        """The movement in words, to stand behind "by"."""
        if all(d.whole for d in self._distances):
            return f"{self.changed:.2g} of the elements"
        with np.errstate(all="ignore"):
            sizes = np.abs(self._expected[np.isfinite(self._expected)])
        largest = float(sizes.max()) if sizes.size else 0.0
        return f"{self.largest / largest if largest else 0.0:.2g} of the largest value"

    def verdict(self, actual: Array, *, each: bool = False) -> Verdict:
        """Whether rounding explains the difference between the output and another form's.

        Args:
            actual: the other form's output.
            each: whether elements that move less than most are held to their own movement, too.
        """
        found = _Distance(self._expected, actual)
        if found.whole and all(d.whole for d in self._distances):
            is_noise, explains = self.changed > 0.5, self._explains_steps
        else:
            is_noise = self._is_noise

            def explains(found: _Distance, factor: float) -> bool:
                return self._explains(found, factor, each)

        if explains(found, ACCEPTED):
            return Verdict.UNDECIDED if is_noise else Verdict.ACCEPTED
        return Verdict.UNDECIDED if explains(found, UNDECIDED) else Verdict.DIFFERS

    @property
    def _is_noise(self) -> bool:
        """Whether rounding leaves so little of the output that it tells nothing."""
        with np.errstate(all="ignore"):
            sizes = np.abs(self._expected.astype(np.float64))
            sizes = sizes[np.isfinite(sizes)]
        p99 = max((d.p99 for d in self._distances), default=0.0)
        return bool(sizes.size) and ACCEPTED * p99 > np.quantile(sizes, 0.99)

    def _explains_steps(self, found: _Distance, factor: float) -> bool:
        """The same share of elements jumps, and steps of 8 bits no further on the mean."""
        if found.changed > min(factor * self.changed, (1 + self.changed) / 2):
            return False
        are_steps = self._expected.dtype.kind in "iu" and self._expected.dtype.itemsize == 1
        return not are_steps or found.mean <= factor * max(d.mean for d in self._distances)

    def _explains(self, found: _Distance, factor: float, each: bool) -> bool:
        measured = self._distances
        if found.strange > factor * max(d.strange for d in measured):
            return False
        p50, p99 = max(d.p50 for d in measured), max(d.p99 for d in measured)
        if found.p50 > factor * p50 or found.p99 > factor * p99:
            return False
        # Behind 1 / x few elements move by far the most: each is compared with its own movement.
        least = 0.0 if each else p50
        moved = [d.each for d in measured]
        own = np.maximum(np.maximum.reduce(moved), least)
        with np.errstate(all="ignore"):
            steady = ~(own >= WILD * np.abs(self._expected.astype(np.float64)))
        for times, free in ((ACCEPTED, FEW), (FAR * ACCEPTED, 0)):
            limit = times * factor / ACCEPTED * own
            beyond = int((steady & (found.each > limit)).sum())
            usual = max(_beyond(moved, k, times, least, steady) for k in range(len(moved)))
            if beyond > ACCEPTED * usual + free:
                return False
        return True


def _beyond(
    moved: list[_Errors], number: int, times: float, least: float, steady: npt.NDArray[np.bool_]
) -> int:
    """How many elements one run moves that much further than the others do."""
    others = [each for k, each in enumerate(moved) if k != number]
    if not others:
        return 0
    limit = times * np.maximum(np.maximum.reduce(others), least)
    return int((steady & (moved[number] > limit)).sum())


class _Distance:
    """How far two arrays of one shape and type are apart.

    Attributes:
        whole: whether all elements are whole numbers, or of a type without distances.
        changed: share of elements that are others.
        strange: share of elements of which one is finite and the other is not.
        each: distance of each element; 0 where there is none.
        mean, p50, p99, largest: of the distances.
    """

    def __init__(self, expected: Array, actual: Array) -> None:
        self.changed = self.strange = self.mean = self.p50 = self.p99 = self.largest = 0.0
        self.each: _Errors = np.zeros(expected.shape, np.float32)
        self.whole = expected.dtype.kind in NOT_NUMBERS or (
            _is_whole(expected) and _is_whole(actual)
        )
        if not expected.size:
            return
        if expected.dtype.kind in NOT_NUMBERS:
            self.changed = float((expected != actual).mean())
            return
        found, _ = errors(expected, actual)
        finite = np.isfinite(found)
        near = found[finite]
        self.each = np.where(finite, found, 0)
        self.changed = float((found > 0).mean())
        self.strange = float(1.0 - finite.mean())
        if near.size:
            p50, p99 = np.quantile(near, (0.5, 0.99), method="higher")
            self.mean, self.p50, self.p99 = float(near.mean()), float(p50), float(p99)
            self.largest = float(near.max())


def _is_whole(array: Array) -> bool:
    if not is_float(array.dtype):
        return True
    with np.errstate(all="ignore"):
        return bool((array == np.rint(array.astype(np.float64))).all())


def is_comparable(actual: Any, expected: Any) -> TypeGuard[Array]:
    """Whether a value is an array of the shape and type of another."""
    return (
        isinstance(expected, np.ndarray)
        and isinstance(actual, np.ndarray)
        and expected.shape == actual.shape
        and expected.dtype == actual.dtype
    )


class Rounding:
    """What rounding does to the outputs of a model; measured when it is asked for.

    Args:
        program: the model.
        source: the same as a file that onnxruntime loads as it is; None if it has operators that
            onnxruntime lacks, or is a part of a model.
        seconds: after which no further run is begun.

    Attributes:
        obstacle: why it could not be measured, the last time that this happened; None if never.
    """

    def __init__(
        self, program: Program, source: reader.Source | None = None, seconds: float = SECONDS
    ) -> None:
        self.obstacle: str | None = None
        self._program = program
        self._source = source
        self._seconds = seconds
        self._types: Mapping[str, int] | None = None
        self._programs: dict[bool, Program] = {}
        self._feeds: Mapping[str, Array] | None = None
        self._measured: dict[bool, dict[str, Movement]] = {}

    def of(
        self, feeds: Mapping[str, Array], outputs: Mapping[str, Any], *, optimised: bool
    ) -> Mapping[str, Movement]:
        """How far each output moves, by name; nothing where it cannot be measured.

        Args:
            feeds, outputs: of a run of the original.
            optimised: whether optimisations may have their part in it.
        """
        if feeds is not self._feeds:
            self._feeds, self._measured = feeds, {}
        if optimised not in self._measured:
            self._measured[optimised] = self._measure(feeds, outputs, optimised)
        return self._measured[optimised]

    def _measure(
        self, feeds: Mapping[str, Array], outputs: Mapping[str, Any], optimised: bool
    ) -> dict[str, Movement]:
        quantised = optimised and self._quantises
        found: dict[str, Movement] = {}
        if optimised and not quantised:
            plain = self.of(feeds, outputs, optimised=False)
            found = {name: copy.copy(movement) for name, movement in plain.items()}
        kinds = [_Run.OPTIMISED] * optimised + [_Run.PERTURBED] * (0 if found else RUNS)
        started = time.monotonic()
        for kind in kinds:
            try:
                if kind is _Run.OPTIMISED:
                    again = self._optimised(feeds)
                else:
                    again = self._perturbed(quantised).run(feeds)
            except (RunFailure, ModelFileError, MemoryError) as error:
                self.obstacle = str(error) or "it takes too much memory"
                continue
            for name, expected in outputs.items():
                actual = again.get(name)
                if is_comparable(actual, expected):
                    movement = found.setdefault(name, Movement(expected))
                    movement.add(actual)
                    if kind is _Run.OPTIMISED:
                        movement.optimised = actual
            if time.monotonic() - started > self._seconds:
                break
        return found

    @property
    def _quantises(self) -> bool:
        return any(n.op_type == "QuantizeLinear" for _, _, n in traversal.nodes(self._program.flat))

    def _optimised(self, feeds: Mapping[str, Array]) -> Mapping[str, Any]:
        """Run the original with onnxruntime's optimisations, as a whole or in parts."""
        program = self._program
        if self._source is not None:
            data = self._source.data or reader.serialize(self._source.proto, self._source.name)
            return Session(data, optimise=True, folder=self._source.folder).run(feeds)
        again = Program(program.flat, program.positions(), program.folder, optimise=True)
        try:
            return again.run(feeds)
        finally:
            again.close()

    def _perturbed(self, quantised: bool) -> Program:
        if quantised not in self._programs:
            if self._types is None:
                self._types = exactness.element_types(self._program)
            model, sites = perturbed(self._program, self._types, quantised=quantised)
            self._programs[quantised] = Program(model, sites, self._program.folder)
        return self._programs[quantised]

    def close(self) -> None:
        """Let go of the sessions."""
        for program in self._programs.values():
            program.close()
        self._programs.clear()
        self._feeds, self._measured = None, {}


class _Run(Enum):
    """How a run differs from the original's."""

    OPTIMISED = "onnxruntime may optimise"
    PERTURBED = "computed reals are off at random"
