"""Define the options of a validation run, and write the command line that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from onnx_spatial.conversion.options import MODES, ConvertOptions, Mode
from onnx_spatial.errors import UsageError

if TYPE_CHECKING:  # what compares arrays takes time to import
    from onnx_spatial.verification import Bound

#: Allowed difference from recorded outputs behind floating-point arithmetic, relative to the largest
#: value of the output: other frameworks sum in another order, with other kernels.
RECORDED_RTOL = {"float64": 1e-7, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}


@dataclass(frozen=True)
class Options:
    """Options that determine the result of a model.

    Attributes:
        modes: modes to convert each model in.
        optimize: whether chains of standard nodes are rewritten too, see `onnx_spatial.optimize`.
        fuse, max_rank, strategy, domains: see `onnx_spatial.convert`.
        static: sizes of symbolic dims; ignored for models without a dim of that name.
        shapes: shapes of inputs to verify with; ignored for models without an input of that name.
        inputs: folder or .npz with data to verify with; None: it is generated.
        seed: seed of generated data.
        oracles: other runtimes to compare each operator with (`verification.oracles`).
        strict: whether a model that could not be verified counts as failed.
        strict_proof: whether a model fails if one of its operators is not proven.
        rtol, atol: tolerance for outputs, in comparisons with the original and with recorded data; see
            `verification.verify`. Names that a model lacks are ignored. None: the rules of the
            package, and `RECORDED_RTOL` for recorded data.
        outputs_only: whether nothing but outputs is compared with the original.

    Raises:
        UsageError: a mode or strategy does not exist, a number is out of range, or two options cannot
            be combined.
    """

    modes: tuple[Mode, ...] = ("lower",)
    optimize: bool = False
    fuse: bool = True
    max_rank: int | None = None
    strategy: str | None = None
    domains: tuple[str, ...] = ()
    static: tuple[tuple[str, int], ...] = ()
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    inputs: str | None = None
    seed: int = 0
    oracles: tuple[str, ...] = ()
    strict: bool = False
    strict_proof: bool = False
    rtol: Bound = None
    atol: Bound = None
    outputs_only: bool = False

    def __post_init__(self) -> None:
        if not self.modes or not set(self.modes) <= set(MODES):
            raise UsageError(f"modes must be one or more of {', '.join(MODES)}, not {self.modes}")
        if self.optimize and (self.modes != ("lower",) or not self.fuse):
            raise UsageError("optimize requires mode lower, with fusion")
        ConvertOptions(strategy=self.strategy)  # raises an error if there is no such strategy
        if self.seed < 0:
            raise UsageError(f"seed must be 0 or more, not {self.seed}")
        if (self.rtol, self.atol) != (None, None):
            from onnx_spatial.verification import Tolerances

            Tolerances.of(self.rtol, self.atol)  # raises an error if a number is out of range
        for name, value in (("strict_proof", self.strict_proof), ("oracles", self.oracles)):
            if value and self.outputs_only:
                raise UsageError(f"{name} and outputs_only cannot be combined")

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
        from onnx_spatial.verification.compare.tolerance import tolerance_words

        words = ["onnx-spatial", "validate"]
        words += [p if not p.startswith("-") else f"./{p}" for p in paths]
        words += ["--seed", str(self.seed)]
        if self.modes != ("lower",):
            words += [w for mode in self.modes for w in ("--mode", mode)]
        words += ["--optimize"] if self.optimize else []
        words += [] if self.fuse else ["--no-fuse"]
        for option, value in (
            ("--max-rank", self.max_rank),
            ("--prefer", self.strategy),
            ("--inputs", self.inputs),
        ):
            words += [] if value is None else [option, str(value)]
        words += tolerance_words(self.rtol, self.atol, outputs_only=self.outputs_only)
        words += [w for name in self.oracles for w in ("--oracle", name)]
        words += [w for name in self.domains for w in ("--domain", name)]
        words += [w for name, dim in self.static for w in ("--static", f"{name}={dim}")]
        for name, shape in self.shapes:
            words += ["--shape", f"{name}={','.join(map(str, shape))}"]
        words += ["--strict"] if self.strict else []
        words += ["--strict-proof"] if self.strict_proof else []
        return shlex.join(words)
