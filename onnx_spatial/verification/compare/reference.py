"""Compute the expected output of a part of the original, in double precision where that is possible.

The spatial operators and Conv run in numpy, the rest in onnxruntime, or in onnx's reference evaluator
where onnxruntime has no kernel in double. Where a part cannot run in double (it is quantised, or makes
whole numbers of reals) the output of the original in its own types is the expected one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from onnx_spatial.errors import ModelFileError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.verification.arrays import Array, dtype_name, is_float
from onnx_spatial.verification.compare import exactness, to_float64
from onnx_spatial.verification.compare.bitwise import bitwise
from onnx_spatial.verification.compare.error_bounds import magnitudes
from onnx_spatial.verification.compare.error_metrics import errors, largest_finite
from onnx_spatial.verification.compare.exactness import Exactness
from onnx_spatial.verification.compare.outputs import RTOL, within_tolerance
from onnx_spatial.verification.report import Check
from onnx_spatial.verification.runtime.numpy_ops import KERNELS
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure
from onnx_spatial.verification.runtime.stopwatch import Stopwatch
from onnx_spatial.verification.sizes.rare_numbers import BEYOND_ARITHMETIC

#: Units in the last place of its magnitude that an element may be off by, for each node that computes
#: with reals, and for the real inputs.
ULPS = 16.0
#: The same for the square root of the number of products in a sum. Measured on onnxruntime 1.31, all of
#: one sign: 6 units for 18,432 products, 27 where they are summed one after the other.
ULPS_PER_ROOT = 0.5

#: Seconds for double precision, for all parts of a model.
SECONDS = 40.0

#: Elements of inputs and outputs; double precision takes some 30 bytes for each.
MOST_ELEMENTS = 2**24

#: A larger ratio of errors says nothing more.
_MOST_TIMES = 1000

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Expected:
    """The expected output of a part, and the bounds of rounding.

    Attributes:
        own: output of the original in its own types.
        exactness: of the output.
        precise: the output in double precision; None where that is unknown. Elements far from those of
            `own` are not trusted, and not used.
        unit: the unit in the last place, of each element or of all.
        ulps: how many units an element may be off by.
    """

    own: Array
    exactness: Exactness
    precise: Doubles | None = None
    unit: Doubles | float = 0.0
    ulps: float = 0.0

    def check(
        self,
        how: Literal["isolated", "in place"],
        optimised: bool,
        x: Array,
        actual: Array | str,
        *,
        same_kernels: bool = True,
        converted: Callable[[], Doubles | None] = lambda: None,
        spread: str | None = None,
    ) -> Check:
        """Compare the output of the converted model on `x`; it may be the reason why there is none.

        Args:
            how, optimised, x, actual: see `Check`.
            same_kernels: whether onnxruntime ran all standard nodes of the original.
            converted: computes the output of the converted model in double precision.
            spread: how the data was made.
        """
        own, mark = self.own, self.exactness
        check = bitwise(how, optimised, x, own, actual)
        if isinstance(actual, str) or not mark.arithmetic:
            return replace(check, exact=not mark.arithmetic)
        check = within_tolerance(check, own, actual, mark, same_kernels=same_kernels)
        same_type = (dtype_name(own), own.shape) == (dtype_name(actual), actual.shape)
        if self.precise is None or not same_type:
            return check
        return self._in_float64(check, actual, converted, spread)

    def only(self, kept: npt.NDArray[np.bool_]) -> Expected:
        """Return the same with zeros for all other elements."""
        own = np.where(kept, self.own, np.zeros((), self.own.dtype))
        precise = None if self.precise is None else np.where(kept, self.precise, 0.0)
        return replace(self, own=own, precise=precise)

    def _in_float64(
        self,
        check: Check,
        actual: Array,
        converted: Callable[[], Doubles | None],
        spread: str | None,
    ) -> Check:
        """Judge a comparison by double precision."""
        with np.errstate(all="ignore"):
            apart, largest = errors(self._target, actual.astype(np.float64))
            ulps = np.where(apart > 0, apart / self.unit, 0.0)
        known = self._trusted
        allowed = np.where(known, self.ulps, RTOL.get(dtype_name(self.own), 0.0) * largest)
        amounts = np.where(known, ulps, apart)
        differs = ~(amounts <= allowed)
        if differs.any():
            differs &= ~self._overflows(actual, converted, spread)
        counted = differs | (amounts <= allowed)
        worst = float(apart.max(initial=0.0, where=counted))
        count = int(differs.sum())
        most = float(ulps.max(initial=0.0, where=counted & known))
        relative = worst / largest if largest else (np.inf if worst else 0.0)
        reason = None
        if count:
            reason = f"{count} of {check.elements} elements differ, {_amount(relative)}"
            if self.ulps and self.ulps < most < np.inf:
                reason += f": {_times(most / self.ulps)} the error that rounding can make"
        return replace(
            check,
            mismatches=count,
            reason=reason,
            max_ulps=most,
            max_relative_error=relative,
            allowed_ulps=self.ulps,
        )

    @cached_property
    def _target(self) -> Doubles:
        """The value that each element is compared with: in double precision where that is trusted."""
        return np.where(self._trusted, self._rounded, self.own.astype(np.float64))

    @cached_property
    def _rounded(self) -> Doubles:
        """The values in double precision; infinite where they exceed the type of `own`."""
        assert self.precise is not None
        with np.errstate(all="ignore"):
            too_large = np.isinf(self.precise.astype(self.own.dtype).astype(np.float64))
            return np.where(too_large, np.copysign(np.inf, self.precise), self.precise)

    @cached_property
    def _trusted(self) -> npt.NDArray[np.bool_]:
        """Elements of which double precision and the original agree."""
        with np.errstate(all="ignore"):
            apart, _ = errors(self._rounded, self.own.astype(np.float64))
            return np.asarray(np.where(apart > 0, apart / self.unit, 0.0) <= self.ulps)

    def _overflows(
        self, actual: Array, converted: Callable[[], Doubles | None], spread: str | None
    ) -> npt.NDArray[np.bool_]:
        """Return elements that say nothing: numbers that are too large for one order of operations."""
        assert self.precise is not None
        result = ~self._trusted & self._is_right(actual)  # the original's own
        if spread in BEYOND_ARITHMETIC:
            other = converted()
            if other is not None and other.shape == result.shape:
                result |= self._is_right(other)
        return np.asarray(result)

    def _is_right(self, values: Array) -> npt.NDArray[np.bool_]:
        """Return which values are those in double precision."""
        assert self.precise is not None
        with np.errstate(all="ignore"):
            apart, _ = errors(self.precise, values.astype(np.float64))
            return np.asarray(np.where(apart > 0, apart / self.unit, 0.0) <= self.ulps)

    @cached_property
    def own_error(self) -> float:
        """Largest error of the original itself, relative to the largest element."""
        return self.check("in place", False, self.own, self.own).max_relative_error or 0.0

    @property
    def has_magnitudes(self) -> bool:
        """Whether each element has a unit of its own magnitude."""
        return isinstance(self.unit, np.ndarray)

    @property
    def agrees(self) -> bool:
        """Whether double precision is trusted for some element."""
        return not self.own.size or bool(self._trusted.any())


class Budget:
    """Seconds left for double precision, shared by the parts of a model."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.left = seconds


class Reference:
    """The part of the original that a region replaces, ready to run in double precision.

    Args:
        program, output: the part in its own types, and the name of its output.
        epsilon: of the shortest type of reals in it or in its replacement; None: there are none.
        budget: of the model that it is part of.

    Attributes:
        epsilon: as given.
        obstacle: why it was not computed in double precision; None if it was.
    """

    def __init__(
        self, program: Program, output: str, epsilon: float | None, budget: Budget | None = None
    ) -> None:
        self._budget = budget or Budget()
        self._program = program
        self._output = output
        self.epsilon = epsilon
        self._exactness = exactness.of_outputs(program)[output]
        self._precise: Program | None = None
        self._magnitude: Program | None = None
        self.obstacle = to_float64.obstacle(program.flat)
        if epsilon is None or not self._exactness.arithmetic:
            self.obstacle = "it does not compute with floats"
        self._prepared = self.obstacle is not None

    def _prepare(self) -> None:
        self._prepared = True
        program, sites = self._program, self._program.positions()
        self._ulps = _allowed(program)
        try:
            model = to_float64.doubled(program.flat, program.folder)
            self._precise = Program(model, sites, program.folder, KERNELS)
            magnitude = magnitudes(model, sites)
            if magnitude is not None:
                self._magnitude = Program(*magnitude, program.folder, KERNELS)
        except (ModelFileError, RunFailure) as error:
            self.obstacle = str(error)

    @property
    def random(self) -> bool:
        """Whether its output depends on a random operator."""
        return self._exactness.random

    @property
    def computes(self) -> bool:
        """Whether its output is made by arithmetic, and not by data movement alone."""
        return self._exactness.arithmetic

    def in_own_types(self, own: Array) -> Expected:
        """Return the original's `own` output as the expected one, without double precision."""
        return Expected(own, self._exactness)

    def expected(self, feeds: Mapping[str, Array], own: Array) -> Expected:
        """Compute the expected output beside the `own` one of the original in its own types."""
        result = self.in_own_types(own)
        if not self._prepared:
            self._prepare()
        if self._precise is None or self._budget.left <= 0 or not is_float(own.dtype):
            return result
        if own.size + sum(array.size for array in feeds.values()) > MOST_ELEMENTS:
            self.obstacle = "its data is very large"
            return result
        wide = _widened(feeds)
        precise = self._run(self._precise, wide)
        if precise is None or precise.shape != own.shape:
            return result
        unit, ulps = self._unit(wide, precise, RTOL.get(dtype_name(own), 0.0))
        in_float64 = replace(result, precise=precise, unit=unit, ulps=ulps)
        return in_float64 if in_float64.agrees else result

    def in_float64(self, feeds: Mapping[str, Array]) -> Doubles | None:
        """Compute the output in double precision; None where that is impossible."""
        if not self._prepared:
            self._prepare()
        return None if self._precise is None else self._run(self._precise, _widened(feeds))

    def _unit(
        self, wide: Mapping[str, Array], precise: Doubles, rtol: float
    ) -> tuple[Doubles | float, float]:
        """Return the unit in the last place of each element's magnitude, and how many units are allowed.

        Without magnitudes, the unit of the largest element, and at least `rtol` of that element.
        """
        assert self.epsilon is not None
        largest = largest_finite(precise)
        if self._magnitude is not None:
            positive = {n: np.abs(a) if is_float(a.dtype) else a for n, a in wide.items()}
            sizes = self._run(self._magnitude, positive)
            if sizes is not None and sizes.shape == precise.shape:
                # An element may be finite although its magnitude is not: behind Tanh.
                sizes = np.where(np.isfinite(sizes), np.abs(sizes), largest)
                sizes = np.maximum(sizes, to_float64.least(self.epsilon))
                return self.epsilon * sizes, self._ulps
        return self.epsilon * largest, max(rtol / self.epsilon, self._ulps)

    def _run(self, program: Program, feeds: Mapping[str, Array]) -> Doubles | None:
        program.stopwatch, program.seconds = Stopwatch(), self._budget.left
        try:
            with np.errstate(all="ignore"):
                output = program.run(feeds)[self._output]
        except (RunFailure, MemoryError) as failure:
            self.obstacle = str(failure)
            return None
        finally:
            self._budget.left -= program.stopwatch.seconds
        doubles = isinstance(output, np.ndarray) and output.dtype == np.float64
        return output if doubles else None

    def close(self) -> None:
        """Release the sessions."""
        for program in (self._program, self._precise, self._magnitude):
            if program is not None:
                program.close()


def _amount(relative: float) -> str:
    """Describe the largest error, relative to the largest value."""
    if np.isinf(relative):
        return "some by NaN or infinity, or where all values should be 0"
    return f"by at most {relative:.2g} of the largest value"


def _times(factor: float) -> str:
    if factor > _MOST_TIMES:
        return f"more than {_MOST_TIMES} times"
    return f"{factor:.{1 if factor < 10 else 0}f} times"


def _widened(feeds: Mapping[str, Array]) -> dict[str, Array]:
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        return {n: a.astype(np.float64) if is_float(a.dtype) else a for n, a in feeds.items()}


def _allowed(program: Program) -> float:
    """Units in the last place of its magnitude that an element may be off by."""
    model = program.flat
    data = to_float64.reached(model.graph, to_float64.reals(model))
    dims = {t.name: tuple(t.dims) for t in model.graph.initializer}
    allowed = ULPS
    for node in model.graph.node:
        moves = program.site_of(node) is not None or op_traits.is_bitwise(node)
        if moves or node.op_type in to_float64.SIZES or data.isdisjoint(traversal.needs(node)):
            continue
        allowed += ULPS
        weights = dims.get(node.input[1], ()) if len(node.input) > 1 else ()
        if node.op_type == "Conv":
            allowed += ULPS_PER_ROOT * math.sqrt(math.prod(weights[1:]))
        elif node.op_type in ("ConvTranspose", "Gemm", "MatMul"):
            allowed += ULPS_PER_ROOT * math.sqrt(
                math.prod(weights) / max(1, min(weights, default=1))
            )
    return allowed
