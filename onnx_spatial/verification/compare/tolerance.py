"""Define the tolerances that a caller sets for outputs, in place of the rules of this package.

`|actual - expected| <= atol + rtol * max|expected|` must hold for every element. As everywhere in this
package, rtol is relative to the largest magnitude in the output, not to each element as in numpy's
`allclose`: an element near zero has an error of the size of its terms.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from onnx_spatial.errors import Code, UsageError

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

    def of_model(self, outputs: Collection[str]) -> Tolerances:
        """Return those for the outputs of one model of many: names that it lacks are left out."""
        return Tolerances(
            *(
                {name: n for name, n in numbers.items() if not name or name in outputs}
                for numbers in (self.rtol, self.atol)
            )
        )


def tolerance_words(rtol: Bound, atol: Bound, *, outputs_only: bool = False) -> list[str]:
    """Return the words of a command line that set these tolerances."""
    words = []
    for option, bound in (("--rtol", rtol), ("--atol", atol)):
        for name, number in _by_name(bound).items():
            words += [option, f"{name}={number}" if name else str(number)]
    return [*words, *(["--outputs-only"] if outputs_only else [])]


def _by_name(bound: Bound) -> dict[str, float]:
    if bound is None:
        return {}
    return dict(bound) if isinstance(bound, Mapping) else {"": float(bound)}
