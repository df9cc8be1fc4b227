"""Say what is proven of a changed part, or what the prover found instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.match.changed_part import ChangedPart

#: Sizes that a proof holds for: all, or those of the file, which are static.
Scope = Literal["all sizes", "these sizes"]
#: What the prover found instead of a proof: nothing, or another formula.
Found = Literal["gave up", "other formula"]


@dataclass(frozen=True)
class Trial:
    """Sizes and whole numbers at which the formulas of two parts differ.

    Attributes:
        shapes: of the inputs of the part, by name.
        values: of those inputs that are parameters, by name.
    """

    shapes: Mapping[str, tuple[int, ...]]
    values: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Proof:
    """What the prover found out of one changed part.

    Attributes:
        scope: sizes for which it is proven; None if it is not.
        assumptions: what the proof assumes, one sentence each.
        found: what was found instead of a proof; None if it is proven.
        reason: why it is not proven: "gave up: ...", or which formula differs.
        trials: where the formulas differ, the smallest first; a run there decides.
        wider: the part that the trials are of, up to the inputs of the graph; None: the part itself.
        digest: equal for parts that differ in names and in the numbers of weights; None if unknown.
    """

    scope: Scope | None
    assumptions: tuple[str, ...] = ()
    found: Found | None = None
    reason: str = ""
    trials: tuple[Trial, ...] = ()
    wider: ChangedPart | None = None
    digest: bytes | None = None
