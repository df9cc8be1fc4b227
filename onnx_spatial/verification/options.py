"""Say how two models are compared, and how far their outputs may be apart.

    |actual - expected| <= atol + rtol * max|expected|

must hold for every element where a caller sets a tolerance, in place of the rules of this package. As
everywhere, rtol is relative to the largest magnitude in the output, not to each element as in numpy's
`allclose`: an element near zero has an error of the size of its terms.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from onnx_spatial.errors import Code, UsageError

Array = npt.NDArray[Any]
#: What a caller gives: a number for all outputs, or numbers by output name; "" is for all others.
Bound = float | Mapping[str, float] | None


@dataclass(frozen=True)
class Tolerance:
    """The tolerance of one output.

    Attributes:
        rtol: relative to the largest magnitude; None: the rule of the package for the type.
        atol: absolute.
        named: whether it was set for this output by name, so that it holds for integers too.
    """

    rtol: float | None = None
    atol: float = 0.0
    named: bool = False


@dataclass(frozen=True)
class Tolerances:
    """The tolerances of all outputs, by name; the name "" is for all others."""

    rtol: Mapping[str, float] = field(default_factory=dict)
    atol: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, rtol: Bound = None, atol: Bound = None) -> Tolerances:
        """Make tolerances of what a caller gives.

        Raises:
            UsageError: a number is negative, NaN or infinite, or rtol is not below 1.
        """
        tolerances = cls(_by_name(rtol), _by_name(atol))
        for what, numbers, most in (
            ("rtol", tolerances.rtol, 1.0),
            ("atol", tolerances.atol, math.inf),
        ):
            for name, number in numbers.items():
                if not 0 <= number < most:
                    of = f" of output {name!r}" if name else ""
                    limit = "below 1" if most == 1.0 else "finite"
                    raise UsageError(f"{what}{of} must be at least 0 and {limit}, not {number}")
        return tolerances

    def __bool__(self) -> bool:
        return bool(self.rtol or self.atol)

    def check_names(self, outputs: Collection[str]) -> None:
        """Check that the model has the outputs that are named.

        Raises:
            UsageError: it has no output of that name.
        """
        for what, numbers in (("rtol", self.rtol), ("atol", self.atol)):
            for name in numbers:
                if name and name not in outputs:
                    known = ", ".join(map(repr, outputs)) or "none"
                    raise UsageError(
                        f"{what}: the model has no output {name!r}; its outputs are {known}",
                        code=Code.UNKNOWN_NAME,
                    )

    def of_output(self, name: str) -> Tolerance | None:
        """Return the tolerance of an output; None: the rules of the package."""
        rtol, atol = (numbers.get(name, numbers.get("")) for numbers in (self.rtol, self.atol))
        if rtol is None and atol is None:
            return None
        return Tolerance(rtol, atol or 0.0, name in self.rtol or name in self.atol)


def _by_name(bound: Bound) -> dict[str, float]:
    if bound is None:
        return {}
    return dict(bound) if isinstance(bound, Mapping) else {"": float(bound)}


#: Seconds of processor time that a verification may take: a last resort, since runs are bounded by
#: their work (`process`).
TIME_LIMIT = 60.0


@dataclass(frozen=True)
class VerifyOptions:
    """Say how two models are compared, and which verdicts are good enough.

    Attributes:
        strict: refuse a result that could not be compared as a whole, and operators that are left.
        strict_proof: refuse an operator that is not proven, only compared at sampled sizes.
        inputs: data to run both models on, by input name, in place of generated data.
        shapes: shapes of inputs, by input name, where the model leaves sizes open.
        seed: of the generated data, 0 or more.
        rtol, atol: tolerance for the outputs of the whole model, in place of the rules of this package:
            `|actual - expected| <= atol + rtol * max|expected|` for every element. A number is for all
            outputs of reals; a mapping has a number for each output by name, integers included, and
            for all others by the name "". The other one of the two keeps its default: rtol that of
            the type, atol 0. Reals may then be of another type.
        outputs_only: compare outputs only, not single operators and other nodes.
        time_limit: seconds of processor time after which the verification stops, and is unverified if
            it found no error; None: any time.
        memory: bytes that the verification may take beside the weights of the models. It runs in a child
            process then, so that a model that ends it, or takes too much memory, becomes a verdict. On
            Linux the process is forked, which is not safe while other threads hold locks. None: no
            child process.
        reproducer: folder for two small models, their data and a script that show the first
            difference, if there is one.

    Raises:
        UsageError: a number is out of range, or two options cannot be combined.
    """

    strict: bool = False
    strict_proof: bool = False
    inputs: Mapping[str, Array] | None = field(default=None, repr=False)
    shapes: Mapping[str, Sequence[int]] | None = None
    seed: int = 0
    rtol: Bound = None
    atol: Bound = None
    outputs_only: bool = False
    time_limit: float | None = TIME_LIMIT
    memory: int | None = None
    reproducer: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise UsageError(f"seed must be 0 or more, not {self.seed}")
        if self.inputs is not None and self.shapes:
            raise UsageError("inputs and shapes cannot be combined: the data has its own shapes")
        if self.memory is not None and self.memory <= 0:
            raise UsageError(f"memory must be more than 0 bytes, not {self.memory}")
        if self.time_limit is not None and not self.time_limit > 0:  # also NaN
            raise UsageError(f"time_limit must be more than 0 seconds, not {self.time_limit}")
        if self.strict_proof and self.outputs_only:
            raise UsageError(
                "a strict proof and outputs only cannot be combined: nothing is proven"
            )
        Tolerances.of(self.rtol, self.atol)

    @property
    def tolerances(self) -> Tolerances:
        """The tolerances of the outputs."""
        return Tolerances.of(self.rtol, self.atol)
