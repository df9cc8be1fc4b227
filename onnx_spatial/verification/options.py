"""Say how two models are compared. Nothing heavy is imported here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnx_spatial.errors import UsageError
from onnx_spatial.verification.compare.tolerance import Bound, Tolerances

if TYPE_CHECKING:
    from onnx_spatial.verification.arrays import Array

#: Seconds of processor time that a verification may take: a last resort, since runs are bounded by
#: their work (`run.time_limit`).
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
                "strict_proof and outputs_only cannot be combined: operators are not proven"
            )
        Tolerances.of(self.rtol, self.atol)

    @property
    def tolerances(self) -> Tolerances:
        """The tolerances of the outputs."""
        return Tolerances.of(self.rtol, self.atol)
