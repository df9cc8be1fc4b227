"""Define the options of a validation run, and write the command line that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from onnx_spatial.conversion.options import MODES, ConvertOptions, Mode
from onnx_spatial.errors import UsageError


@dataclass(frozen=True)
class Options:
    """Options that determine the result of a model.

    Attributes:
        modes: modes to convert each model in.
        optimize: whether chains of standard nodes are rewritten too, see `onnx_spatial.optimize`.
        fuse, checked, max_rank, prefer, domains: see `onnx_spatial.convert`.
        static: sizes of symbolic dims; ignored for models without a dim of that name.
        shapes: shapes of inputs to verify with; ignored for models without an input of that name.
        seed: seed of generated data.
        strict: whether a model that could not be verified counts as failed.
        strict_proof: whether a model fails if one of its operators is not proven.

    Raises:
        UsageError: a mode or lowering does not exist, or a number is out of range.
    """

    modes: tuple[Mode, ...] = ("lower",)
    optimize: bool = False
    fuse: bool = True
    checked: bool = False
    max_rank: int | None = None
    prefer: str | None = None
    domains: tuple[str, ...] = ()
    static: tuple[tuple[str, int], ...] = ()
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    seed: int = 0
    strict: bool = False
    strict_proof: bool = False

    def __post_init__(self) -> None:
        if not self.modes or not set(self.modes) <= set(MODES):
            raise UsageError(f"modes must be one or more of {', '.join(MODES)}, not {self.modes}")
        ConvertOptions(prefer=self.prefer)  # raises an error if there is no such strategy
        if self.seed < 0:
            raise UsageError(f"seed must be 0 or more, not {self.seed}")

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes by name, ready for JSON."""
        return {**asdict(self), "static": dict(self.static), "shapes": dict(self.shapes)}

    def command(self, paths: Sequence[str]) -> str:
        """Return the command line that validates models with these options."""
        words = ["onnx-spatial", "validate"]
        words += [p if not p.startswith("-") else f"./{p}" for p in paths]
        words += ["--seed", str(self.seed)]
        if self.modes != ("lower",):
            words += [w for mode in self.modes for w in ("--mode", mode)]
        words += ["--optimize"] if self.optimize else []
        words += [] if self.fuse else ["--no-fuse"]
        words += ["--checked"] if self.checked else []
        words += [] if self.max_rank is None else ["--max-rank", str(self.max_rank)]
        words += [] if self.prefer is None else ["--prefer", self.prefer]
        words += [w for name in self.domains for w in ("--domain", name)]
        words += [w for name, dim in self.static for w in ("--static", f"{name}={dim}")]
        for name, shape in self.shapes:
            words += ["--shape", f"{name}={','.join(map(str, shape))}"]
        words += ["--strict"] if self.strict else []
        words += ["--strict-proof"] if self.strict_proof else []
        return shlex.join(words)
