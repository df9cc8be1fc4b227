"""Define the options of a validation run, and write the command line that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from onnx_spatial.conversion.options import MODES, ConvertOptions
from onnx_spatial.errors import UsageError

#: Allowed difference from recorded outputs behind floating-point arithmetic, relative to the largest
#: value of the output: other frameworks sum in another order, with other kernels.
RECORDED_RTOL = {"float64": 1e-7, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}


@dataclass(frozen=True)
class Options:
    """Options that determine the result of a model.

    Attributes:
        modes: modes to convert each model in.
        fuse, max_rank, strategy, domains: see `onnx_spatial.convert`.
        static: sizes of symbolic dims; ignored for models without a dim of that name.
        shapes: shapes of inputs to verify with; ignored for models without an input of that name.
        seed: seed of generated data.
        oracles: other runtimes to compare each operator with (`verification.oracles`).
        strict: whether a model that could not be verified counts as failed.
        strict_proof: whether a model fails if one of its operators is not proven.
        rtol: allowed difference from recorded outputs, relative to the largest value of an output;
            None: `RECORDED_RTOL`. Outputs of pure data movement must have equal bits.

    Raises:
        UsageError: a mode or strategy does not exist, or a number is out of range.
    """

    modes: tuple[str, ...] = ("lower",)
    fuse: bool = True
    max_rank: int | None = None
    strategy: str | None = None
    domains: tuple[str, ...] = ()
    static: tuple[tuple[str, int], ...] = ()
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    seed: int = 0
    oracles: tuple[str, ...] = ()
    strict: bool = False
    strict_proof: bool = False
    rtol: float | None = None

    def __post_init__(self) -> None:
        if not self.modes or not set(self.modes) <= set(MODES):
            raise UsageError(f"modes must be one or more of {', '.join(MODES)}, not {self.modes}")
        ConvertOptions(strategy=self.strategy)  # raises an error if there is no such strategy
        if self.seed < 0:
            raise UsageError(f"seed must be 0 or more, not {self.seed}")
        if self.rtol is not None and not 0 <= self.rtol < 1:
            raise UsageError(f"rtol must be at least 0 and below 1, not {self.rtol}")

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes by name, ready for JSON."""
        return {**asdict(self), "static": dict(self.static), "shapes": dict(self.shapes)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Options:
        """Make options of what `to_dict` returned, also after a way through JSON."""
        known = {f.name: values[f.name] for f in fields(cls) if f.name in values}
        for name in ("modes", "domains", "oracles"):
            known[name] = tuple(known[name])
        known["static"] = tuple((n, int(d)) for n, d in known["static"].items())
        known["shapes"] = tuple((n, tuple(s)) for n, s in known["shapes"].items())
        return cls(**known)

    def command(self, paths: Sequence[str]) -> str:
        """Return the command line that validates models with these options."""
        words = ["onnx-spatial", "validate"]
        words += [p if not p.startswith("-") else f"./{p}" for p in paths]
        words += ["--seed", str(self.seed)]
        if self.modes != ("lower",):
            words += [w for mode in self.modes for w in ("--mode", mode)]
        words += [] if self.fuse else ["--no-fuse"]
        for option, value in (
            ("--max-rank", self.max_rank),
            ("--prefer", self.strategy),
            ("--rtol", self.rtol),
        ):
            words += [] if value is None else [option, str(value)]
        words += [w for name in self.oracles for w in ("--oracle", name)]
        words += [w for name in self.domains for w in ("--domain", name)]
        words += [w for name, dim in self.static for w in ("--static", f"{name}={dim}")]
        for name, shape in self.shapes:
            words += ["--shape", f"{name}={','.join(map(str, shape))}"]
        words += ["--strict"] if self.strict else []
        words += ["--strict-proof"] if self.strict_proof else []
        return shlex.join(words)
