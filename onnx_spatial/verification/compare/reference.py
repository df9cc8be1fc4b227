"""What a part of the original must give: in double precision where that can be computed.

The spatial operators and Conv run in numpy, the rest in onnxruntime, or in onnx's reference evaluator
where onnxruntime has no kernel in double. Where a part cannot run in double (quantised, with whole
numbers made of reals) the original in its own types is what it must give.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
import onnx

from onnx_spatial.errors import ModelFileError
from onnx_spatial.model import op_traits, traversal
from onnx_spatial.verification.arrays import Array, dtype_name, is_float
from onnx_spatial.verification.compare import exactness, to_float64
from onnx_spatial.verification.compare.bitwise import bitwise
from onnx_spatial.verification.compare.error_bounds import magnitudes
from onnx_spatial.verification.compare.exactness import Exactness
from onnx_spatial.verification.compare.outputs import RTOL, compare
from onnx_spatial.verification.report import Check
from onnx_spatial.verification.runtime.numpy_ops import KERNELS
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.runtime.sessions import RunFailure

#: Units in the last place of its magnitude that an element may be wrong by, for each node that
#: computes with reals, and for the reals that go in.
ULPS = 16.0
#: The same for the square root of how many products are summed. Measured on onnxruntime 1.31, all of
#: one sign: 6 units for 18,432 products, 27 where they are summed one after the other.
ULPS_PER_ROOT = 0.5

#: Seconds that double precision may take for all parts of a model.
SECONDS = 40.0

#: Elements that may go in and come out; double precision takes some 30 bytes for each.
MOST_ELEMENTS = 2**24

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Expected:
    """What a part must give, and how exactly.

    Attributes:
        own: what the original gives in its own types.
        exactness: what had a part in it.
        precise: the same in double precision; None where that could not be computed. An element
            that is far from the original's own is not known to be more right, and is not used.
        unit: what a unit in the last place is, for each element or all of them.
        ulps: how many of them an element may be wrong by.
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
    ) -> Check:
        """Compare what the converted model gives; `actual` may be why it gives nothing.

        Args:
            how, optimised: see `Check`.
            x: what goes in.
            actual: what came out.
            same_kernels: whether onnxruntime ran all other nodes of the original.
        """
        if isinstance(actual, str) or not self.exactness.arithmetic:
            check = bitwise(how, optimised, x, self.own, actual)
            return replace(check, exact=not self.exactness.arithmetic)
        what = (how, optimised, dtype_name(x), x.shape, self.own.size)
        (found,) = compare(
            "", 0, optimised, self.own, actual, self.exactness, same_kernels=same_kernels
        )
        check = Check(
            *what,
            found.mismatches,
            None if found.passed else found.reason,
            exact=False,
            max_relative_error=found.max_relative_error,
        )
        if self.precise is None or found.dtype != dtype_name(actual) or found.shape != actual.shape:
            return check
        return self._within(check, actual)

    def _within(self, check: Check, actual: Array) -> Check:
        """A comparison with what was computed in double precision instead."""
        errors, ulps = self._errors(actual)
        known = self._known
        largest = self._largest
        allowed = np.where(known, self.ulps, RTOL.get(dtype_name(self.own), 0.0) * largest)
        amounts = np.where(known, ulps, errors)
        worst = float(errors.max()) if errors.size else 0.0
        count = int((~(amounts <= allowed)).sum())
        most = float(ulps[known].max()) if known.any() else 0.0
        relative = worst / largest if largest else (np.inf if worst else 0.0)
        reason = None
        if count:
            reason = (
                f"{count} of {check.elements} elements differ, by at most {relative:.2g} of the largest "
                f"value and {most:.3g} units in the last place where {self.ulps:.3g} are allowed"
            )
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
        """What each element is compared with: in double precision where that is known."""
        precise = self._rounded
        own = self.own.astype(np.float64)
        return np.where(self._known, precise, own)

    @cached_property
    def _rounded(self) -> Doubles:
        """What was computed in double precision; what is too large for the type is infinite in it."""
        assert self.precise is not None
        with np.errstate(all="ignore"):
            too_large = np.isinf(self.precise.astype(self.own.dtype).astype(np.float64))
            return np.where(too_large, np.copysign(np.inf, self.precise), self.precise)

    @cached_property
    def _known(self) -> npt.NDArray[np.bool_]:
        """Where double precision gives what the original gives in its own."""
        with np.errstate(all="ignore"):
            found = _distances(self._rounded, self.own.astype(np.float64))
            return np.asarray(np.where(found > 0, found / self.unit, 0.0) <= self.ulps)

    @cached_property
    def _largest(self) -> float:
        finite = np.abs(self._target[np.isfinite(self._target)])
        return float(finite.max()) if finite.size else 0.0

    def _errors(self, actual: Array) -> tuple[Doubles, Doubles]:
        with np.errstate(all="ignore"):
            errors = _distances(self._target, actual.astype(np.float64))
            return errors, np.where(errors > 0, errors / self.unit, 0.0)

    @property
    def has_magnitudes(self) -> bool:
        """Whether a unit is that of each element's own magnitude."""
        return isinstance(self.unit, np.ndarray)

    @property
    def agrees(self) -> bool:
        """Whether some element is known in double precision."""
        return not self.own.size or bool(self._known.any())


def _distances(expected: Doubles, actual: Doubles) -> Doubles:
    """Differences; infinite where NaN or an infinity is on one side only."""
    finite = np.isfinite(actual) & np.isfinite(expected)
    errors = np.where(finite, np.abs(actual - expected), np.inf)
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    return np.where(same, 0.0, errors)


class Budget:
    """Seconds that are left for double precision, shared by the parts of a model."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.left = seconds


class Reference:
    """The part of the original that a region replaces, ready to be run in double precision.

    Args:
        program: it, in its own types.
        output: name of what comes out.
        epsilon: of the shortest type of reals in it or in what stands for it; None: there are none.
        budget: of the model that it is part of.
    """

    def __init__(
        self, program: Program, output: str, epsilon: float | None, budget: Budget | None = None
    ) -> None:
        self._budget = budget or Budget()
        self._program = program
        self._output = output
        self._epsilon = epsilon
        self._exactness = exactness.of_outputs(program)[output]
        flat = program.flat
        self.obstacle = to_float64.obstacle(flat)
        if epsilon is None or not self._exactness.arithmetic:
            self.obstacle = "it does not compute with reals"
        self._precise: Program | None = None
        self._magnitude: Program | None = None
        if self.obstacle is None:
            self._prepare(flat)

    def _prepare(self, flat: onnx.ModelProto) -> None:
        program = self._program
        sites = program.positions()
        try:
            model = to_float64.doubled(flat, program.folder)
            self._precise = Program(model, sites, program.folder, KERNELS)
            found = magnitudes(model, sites)
            if found is not None:
                self._magnitude = Program(found[0], found[1], program.folder, KERNELS)
        except (ModelFileError, RunFailure) as error:
            self.obstacle = str(error)
        self._ulps = _allowed(flat, program)

    @property
    def random(self) -> bool:
        """Whether a random operator has a part in it."""
        return self._exactness.random

    def expected(self, feeds: Mapping[str, Array], own: Array) -> Expected:
        """What must come out.

        Args:
            feeds: what goes in, by name.
            own: what comes out of the original in its own types.
        """
        result = Expected(own, self._exactness)
        if self._precise is None or self._budget.left <= 0 or not is_float(own.dtype):
            return result
        if own.size + sum(array.size for array in feeds.values()) > MOST_ELEMENTS:
            self.obstacle = "its data is very large"
            return result
        with np.errstate(invalid="ignore"):  # of signalling NaNs
            wide = {n: a.astype(np.float64) if is_float(a.dtype) else a for n, a in feeds.items()}
        precise = self._run(self._precise, wide)
        if precise is None or precise.shape != own.shape:
            return result
        unit, ulps = self._unit(wide, precise, RTOL.get(dtype_name(own), 0.0))
        found = replace(result, precise=precise, unit=unit, ulps=ulps)
        return found if found.agrees else result

    def _unit(
        self, wide: Mapping[str, Array], precise: Doubles, rtol: float
    ) -> tuple[Doubles | float, float]:
        """A unit in the last place of the magnitude of each element, and how many are allowed.

        Where the magnitudes are not known, that of the largest element, and `rtol` of it.
        """
        assert self._epsilon is not None
        finite = np.abs(precise[np.isfinite(precise)])
        largest = float(finite.max()) if finite.size else 0.0
        if self._magnitude is not None:
            positive = {n: np.abs(a) if is_float(a.dtype) else a for n, a in wide.items()}
            found = self._run(self._magnitude, positive)
            if found is not None and found.shape == precise.shape:
                # Where infinities go in, an element may be finite all the same: behind Tanh.
                sizes = np.where(np.isfinite(found), np.abs(found), largest)
                return self._epsilon * np.maximum(
                    sizes, to_float64.least(self._epsilon)
                ), self._ulps
        return self._epsilon * largest, max(rtol / self._epsilon, self._ulps)

    def _run(self, program: Program, feeds: Mapping[str, Array]) -> Doubles | None:
        started = time.monotonic()
        program.deadline = started + self._budget.left
        try:
            with np.errstate(all="ignore"):
                found = program.run(feeds)[self._output]
        except (RunFailure, MemoryError) as failure:
            self.obstacle = str(failure)
            return None
        finally:
            self._budget.left -= time.monotonic() - started
        doubles = isinstance(found, np.ndarray) and found.dtype == np.float64
        return found if doubles else None

    def close(self) -> None:
        """Let go of the sessions."""
        for program in (self._program, self._precise, self._magnitude):
            if program is not None:
                program.close()


def _allowed(model: onnx.ModelProto, program: Program) -> float:
    """How many units in the last place of its magnitude an element may be wrong by."""
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
