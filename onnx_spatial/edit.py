"""Edit a model: read it, convert its operators (and chains), verify the result and write it.

    file -> Source -> convert_operators or optimize_operators -> verify -> file

`onnx_spatial.convert` and the command line differ in a few arguments of `edit_model` only.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_spatial.analysis.unknown_operators import unknown_operators
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.conversion.pipeline import EditResult, convert_operators, refusal
from onnx_spatial.errors import UsageError, VerificationError, of_model
from onnx_spatial.model import op_traits
from onnx_spatial.model.io import reader
from onnx_spatial.model.io import writer as writing
from onnx_spatial.model.io.reader import read_source
from onnx_spatial.report.results import Conversion, Inspection
from onnx_spatial.verification import Verification, VerifyOptions
from onnx_spatial.verification import verify as compare
from onnx_spatial.verification.evidence import check_verified

if TYPE_CHECKING:
    from onnx_spatial.conversion.rewrite_chains import OptimizeResult

Progress = Callable[[str], None]

logger = logging.getLogger(__name__)


def edit_model(
    model: reader.Model | reader.Source,
    options: ConvertOptions,
    *,
    static: Mapping[str, int] | None = None,
    verify: VerifyOptions | None = None,
    strict: bool = False,
    output: str | os.PathLike[str] | None = None,
    in_place: bool = False,
    external_data: bool = False,
    progress: Progress | None = None,
) -> Conversion:
    """Convert a model, verify the result, and write it if there is an output.

    Args:
        model: as in `onnx_spatial.convert`, or a model read before.
        options: what becomes of the operators.
        static: sizes of symbolic dims, by name.
        verify: how the result is compared with the original; None: not at all.
        strict: refuse operators that are left.
        output: file for the result.
        in_place: replace the file `model`. The original is kept beside it, as NAME.orig, until the
            result is verified, written and read back. It stays if the result was not verified or
            verification could not decide.
        external_data: write the initializers of 1 KiB and more to a file OUTPUT.data.
        progress: called with a line of text now and then.

    Raises:
        UsageError, ModelFileError, ConversionError, VerificationError: as `onnx_spatial.convert`.
    """
    progress = progress or _silent
    if external_data and (in_place or output is None):
        raise UsageError("external_data requires output")
    data = verify is not None or in_place or output is not None
    source = read_source(model, static, data=data)
    logger.debug("%s: read, IR %d", source.name, source.proto.ir_version)
    progress("converting")
    if verify is not None:
        verify.tolerances.check_names([value.name for value in source.proto.graph.output])
    target = _output_file(source, output, in_place=in_place)
    with of_model(source.name):
        result, optimized = convert_source(source, options, progress)
    inspection = inspection_of(source, result, optimized)
    if refused := result.refused(strict=strict or (verify is not None and verify.strict)):
        error = refusal(source.name, refused)
        error.inspection = inspection
        raise error
    converted = source if result.model is None else source.holding(result.model)
    conversion = Conversion(
        converted,
        inspection,
        None,
        result.model is not None,
        original=source,
        chains=() if optimized is None else optimized.rewritten,
        ir_original=model if isinstance(model, ir.Model) else None,
    )
    if verify is not None and conversion.changed:
        conversion.verification = verify_conversion(conversion, verify, options.domains, progress)
        try:
            check_verified(converted.name, conversion.verification, verify)
        except VerificationError as error:
            error.conversion = conversion
            raise
    return _finish(conversion, target, static, progress, in_place, external_data)


def convert_source(
    source: reader.Source, options: ConvertOptions, progress: Progress | None
) -> tuple[EditResult, OptimizeResult | None]:
    """Convert the operators of a model, with `options.chains` its chains too."""
    if not options.chains:
        plain = convert_operators(source.proto, options, folder=source.folder, progress=progress)
        return plain, None
    from onnx_spatial.conversion.optimize import optimize_operators  # `convert` does without chains

    optimized = optimize_operators(source.proto, options, folder=source.folder, progress=progress)
    return optimized.edit, optimized


def verify_conversion(
    conversion: Conversion, options: VerifyOptions, domains: Iterable[str], progress: Progress
) -> Verification:
    """Compare a conversion with its original, and report chains that were rewritten like operators."""
    return compare(
        conversion.original,
        conversion.result,
        options,
        domains=domains,
        progress=progress,
        chains=conversion.chains,
    )


def _output_file(
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


def _finish(
    conversion: Conversion,
    target: Path | None,
    static: Mapping[str, int] | None,
    progress: Progress,
    in_place: bool,
    external_data: bool,
) -> Conversion:
    """Log what was done, and write the result if there is a target; set `output` and `backup`.

    An unchanged model is copied byte for byte, unless symbolic dims were fixed.
    """
    # It is cached: a conversion in place is about to replace the original.
    summary = conversion.summary if in_place or logger.isEnabledFor(logging.INFO) else None
    if logger.isEnabledFor(logging.INFO):
        parts = ["nothing to convert" if summary is None else summary.text]
        parts += [] if conversion.verification is None else [conversion.verification.message]
        logger.info("%s: %s", conversion.result.name, "; ".join(parts))
    if target is None:
        return conversion
    progress(f"writing: {target}")
    if not conversion.changed and not static:
        if in_place:
            return conversion
        writing.copy(conversion.result, target)
    elif in_place:
        conversion.backup = writing.replace(
            conversion.result, target, keep=not conversion.verification
        )
    else:
        writing.write(conversion.result, target, external=external_data)
    conversion.output = target
    return conversion


def _silent(text: str) -> None:
    pass


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
        found.operators += optimized.chains
        found.nodes = optimized.nodes
        found.notes = optimized.notes
        found.layouts = optimized.layouts
        found.limits = optimized.limits
    return found
