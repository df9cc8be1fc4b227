"""Say how a model is converted, and name the choices.

Nothing heavy is imported here, so that the command line shows its help at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Literal, get_args

from onnx_spatial.errors import UsageError

#: What becomes of the operators.
Mode = Literal["lower", "function", "custom-op"]
MODES: tuple[Mode, ...] = get_args(Mode)

#: Names of the lowerings, in the order of `lowering.LOWERINGS`.
LOWERING_NAMES = (
    "identity",
    "empty",
    "transpose",
    "gather",
    "space-to-depth",
    "row-gather",
    "element-gather",
    "slices",
    "planes",
)


def domain_names(domains: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of domains; a text is one name, not one for each letter."""
    return (domains,) if isinstance(domains, str) else tuple(domains)


@dataclass(frozen=True)
class ConvertOptions:
    """The options of a conversion; see `onnx_spatial.convert`.

    Attributes:
        mode: "lower", "function" or "custom-op".
        fuse: whether mode "lower" also rewrites nodes around the operators.
        chains: whether chains of standard nodes that are spatial operators are rewritten too.
        prefer: the lowering to use wherever it applies; None for the cheapest.
        max_rank: largest rank of any new tensor; None for no bound.
        checked: whether every run that breaks a rule of an operator fails.
        domains: operator domains to accept beside the ones that converters are known to use.

    Raises:
        UsageError: there is no such mode, lowering or rank.
    """

    mode: Mode = "lower"
    fuse: bool = True
    chains: bool = False
    prefer: str | None = None
    max_rank: int | None = None
    checked: bool = False
    domains: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UsageError(f"mode must be one of {', '.join(MODES)}, not {self.mode!r}")
        if self.prefer is not None and self.prefer not in LOWERING_NAMES:
            names = ", ".join(LOWERING_NAMES)
            raise UsageError(f"prefer must be one of {names}, not {self.prefer!r}")
        limit = self.max_rank
        if limit is not None and (
            not isinstance(limit, Integral) or isinstance(limit, bool) or limit < 1
        ):
            raise UsageError(f"max_rank must be 1 or more, not {limit!r}")

    @property
    def fuses(self) -> bool:
        """Whether nodes around the operators are rewritten with them."""
        return self.fuse and self.mode == "lower"
