"""Edit a model: read it, let `convert` or `optimize` edit it, verify the result and write it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_spatial.analysis.unknown_operators import unknown_operators
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.conversion.pipeline import EditResult, freeze, refusal
from onnx_spatial.errors import UsageError, VerificationError
from onnx_spatial.model import op_traits
from onnx_spatial.model.io import reader
from onnx_spatial.model.io import writer as writing
from onnx_spatial.report.results import Conversion, Inspection
from onnx_spatial.verification import Bound, Tolerances, Verification
from onnx_spatial.verification.report import check_verified

if TYPE_CHECKING:
    from onnx_spatial.conversion.rewrite_chains import NamedChains, OptimizeResult

Progress = Callable[[str], None]
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EditOptions:
    """How a model is read, and the result verified and written; see `onnx_spatial.convert`.

    Raises:
        UsageError: two of them cannot be combined, or a tolerance is out of range.
    """

    output: str | os.PathLike[str] | None
    verify: bool
    seed: int
    static: Mapping[str, int] | None
    inputs: Mapping[str, npt.NDArray[np.generic]] | None
    shapes: Mapping[str, Sequence[int]] | None
    strict: bool
    strict_proof: bool
    rtol: Bound
    atol: Bound
    outputs_only: bool
    in_place: bool
    save_as_external_data: bool
    save_reproducer: str | os.PathLike[str] | None
    isolate: bool
    memory: int | None
    time_limit: float | None
    progress: Progress

    def __post_init__(self) -> None:
        if self.save_as_external_data and (self.in_place or self.output is None):
            raise UsageError("save_as_external_data requires output")
        tolerances = self.tolerances
        if self.strict_proof and not self.verify:
            raise UsageError("strict_proof requires verify=True")
        if (tolerances or self.outputs_only) and not self.verify:
            raise UsageError("rtol, atol and outputs_only require verify=True")
        if self.strict_proof and self.outputs_only:
            raise UsageError(
                "strict_proof and outputs_only cannot be combined: operators are not proven"
            )

    @property
    def tolerances(self) -> Tolerances:
        """The tolerances of the outputs."""
        return Tolerances.of(self.rtol, self.atol)

    def of_verification(self, options: ConvertOptions) -> dict[str, Any]:
        """Return the arguments of `verification.verify` beside the models."""
        return {
            "inputs": self.inputs,
            "seed": self.seed,
            "shapes": self.shapes,
            "domains": options.domains,
            "rtol": self.rtol,
            "atol": self.atol,
            "outputs_only": self.outputs_only,
            "save_reproducer": self.save_reproducer,
            "isolate": self.isolate,
            "memory": self.memory,
            "time_limit": self.time_limit,
            "progress": self.progress,
        }


@dataclass(frozen=True)
class Edit:
    """The edit of a model by `convert` or `optimize`, from reading to writing.

    Attributes:
        model: as the caller gives it.
        options: how it is read, verified and written.
        source: as read, with fixed sizes.
        target: file for the result, if any.
    """

    model: reader.Model | reader.Source
    options: EditOptions
    source: reader.Source
    target: Path | None

    @classmethod
    def begin(cls, model: reader.Model | reader.Source, options: EditOptions) -> Edit:
        """Read a model, and check what the result is to be.

        Raises:
            ModelFileError: the model cannot be read.
            UsageError: a name is not in the model, or the output cannot be written.
        """
        data = options.verify or options.in_place or options.output is not None
        source = read_source(model, options.static, data=data)
        logger.debug("%s: read, IR %d", source.name, source.proto.ir_version)
        options.progress("converting")
        options.tolerances.check_names([value.name for value in source.proto.graph.output])
        target = output_file(source, options.output, in_place=options.in_place)
        return cls(model, options, source, target)

    def end(
        self,
        result: EditResult,
        options: ConvertOptions,
        compare: Callable[..., Verification],
        *,
        optimized: OptimizeResult | None = None,
        named: NamedChains | None = None,
    ) -> Conversion:
        """Verify a result, and write it if it may be.

        Args:
            result: of the edit.
            options: of the edit.
            compare: verifies the result with the original, by the arguments of `verification.verify`.
            optimized, named: what `optimize` found, and the chains that it rewrote.

        Raises:
            ConversionError: an operator cannot be converted.
            VerificationError: as `check_verified`, with the conversion.
        """
        strict = self.options.strict
        inspection = inspection_of(self.source, result, optimized)
        if refused := result.refused(strict=strict):
            error = refusal(self.source.name, refused)
            error.inspection = inspection
            raise error
        changed = result.model is not None
        converted = self.source if result.model is None else self.source.holding(result.model)
        verification = None
        if self.options.verify and changed:
            arguments = self.options.of_verification(options)
            verification = compare(self.source, converted=converted, **arguments)
        conversion = Conversion(
            converted,
            inspection,
            verification,
            changed,
            result.touched,
            original=self.source,
            named=named,
            ir_original=self.model if isinstance(self.model, ir.Model) else None,
        )
        check_conversion(conversion, strict=strict, strict_proof=self.options.strict_proof)
        return finish(conversion, self.target, self.options)


def output_file(
    source: reader.Source, output: str | os.PathLike[str] | None, *, in_place: bool
) -> Path | None:
    """Return the file that a result goes to, if any.

    Raises:
        UsageError: it cannot be written there.
    """
    if in_place:
        if source.path is None:
            raise UsageError("in_place requires a model path")
        other = None if output is None else Path(output)
        if other is not None and not (other.exists() and other.samefile(source.path)):
            raise UsageError("output and in_place cannot be combined")
    target = source.path if in_place else None if output is None else Path(output)
    if target is not None:
        writing.check(target, source, in_place=in_place)
    return target


def finish(conversion: Conversion, target: Path | None, options: EditOptions) -> Conversion:
    """Log what was done, and write the result if there is a target.

    An unchanged model is copied byte for byte, unless symbolic dims were fixed.

    Args:
        conversion: the conversion; its `output` and `backup` are set.
        target: the file.
        options: how it is written.
    """
    in_place = options.in_place
    # It is cached: a conversion in place is about to replace the original.
    summary = conversion.summary if in_place or logger.isEnabledFor(logging.INFO) else None
    if logger.isEnabledFor(logging.INFO):
        parts = ["nothing to convert" if summary is None else summary.text]
        parts += [] if conversion.verification is None else [conversion.verification.message]
        logger.info("%s: %s", conversion.result.name, "; ".join(parts))
    if target is None:
        return conversion
    options.progress(f"writing: {target}")
    if not conversion.changed and not options.static:
        if in_place:
            return conversion
        writing.copy(conversion.result, target)
    elif in_place:
        conversion.backup = writing.replace(
            conversion.result, target, keep=not conversion.verification
        )
    else:
        writing.write(conversion.result, target, external=options.save_as_external_data)
    conversion.output = target
    return conversion


def check_conversion(conversion: Conversion, *, strict: bool, strict_proof: bool) -> None:
    """Raise if the result of a conversion may not be written.

    Raises:
        VerificationError: as `check_verified`, with the conversion.
    """
    found = conversion.verification
    if found is None or not (strict or strict_proof or found.status == "failed" or found.rest):
        return
    try:
        check_verified(conversion.result.name, found, strict=strict, strict_proof=strict_proof)
    except VerificationError as error:
        error.conversion = conversion
        raise


def read_source(
    model: reader.Model | reader.Source, static: Mapping[str, int] | None, *, data: bool = True
) -> reader.Source:
    """Read a model and fix symbolic dims by name; with `data`, the files of external data must exist.

    Raises:
        ModelFileError: the model cannot be read.
        UsageError: the model has no dim of that name.
    """
    source = reader.read(model, data=data)
    return source.holding(freeze(source.proto, static)) if static else source


def inspection_of(
    source: reader.Source, result: EditResult, optimized: OptimizeResult | None = None
) -> Inspection:
    """Return the inspection of a model, from the result of its conversion, and of its optimization."""
    opset = op_traits.opset_of(source.proto.opset_import)
    model = source.proto if result.model is None else result.model
    spatial = {
        (operator.domain, operator.op_type)
        for operator in result.operators
        if operator.unknown_domain
    }
    refused = {
        (operator.domain, operator.op_type)
        for operator in result.operators
        if operator.action == "refuse"
    }
    unknown = unknown_operators(model, spatial)
    remaining = [each for each in unknown if (each.domain, each.op_type) not in refused]
    found = Inspection(source.name, source.proto.ir_version, opset, result.operators)
    found.remaining = remaining
    found.original = source
    found.result = None if result.model is None else source.holding(result.model)
    if optimized is not None:
        found.chains, found.nodes = optimized.chains, optimized.nodes
        found.notes = optimized.notes
        found.layouts = optimized.layouts
        found.limits = optimized.limits
    return found
