"""Inspect, convert and verify models: the functions of the package.

    file -> Source -> convert_operators or optimize_operators -> verify -> file

`convert` and the command line differ in a few arguments of `edit_model` only.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from onnx_spatial.conversion.options import ConvertOptions, Mode, domain_names
from onnx_spatial.conversion.pipeline import convert_operators
from onnx_spatial.conversion.report import EditResult, refusal
from onnx_spatial.errors import UsageError, VerificationError, of_model
from onnx_spatial.model.io import reader
from onnx_spatial.model.io import writer as writing
from onnx_spatial.model.io.reader import read_source
from onnx_spatial.report.results import Conversion, Inspection
from onnx_spatial.verification import Verification, VerifyOptions
from onnx_spatial.verification import verify as compare
from onnx_spatial.verification.evidence import check_verified

Progress = Callable[[str], None]

logger = logging.getLogger(__name__)


def inspect(
    model: reader.Model,
    *,
    chains: bool = True,
    prefer: str | None = None,
    max_rank: int | None = None,
    domains: Iterable[str] = (),
    static: Mapping[str, int] | None = None,
) -> Inspection:
    """List the spatial operators of a model, and what `convert` would do with each.

    Args:
        model: path, bytes, onnx.ModelProto or onnx_ir.Model; it is not changed.
        chains: also list the chains of standard nodes that are spatial operators, with what
            `optimize` would do.
        prefer: take this lowering wherever it applies, instead of the cheapest.
        max_rank: largest rank of new tensors.
        domains: operator domains to accept beside the ones that converters are known to use.
        static: sizes of symbolic dims, by name.

    Raises:
        UsageError: there is no lowering or symbolic dim of that name.
        SpatialError: the model cannot be read.
    """
    options = ConvertOptions(
        chains=chains, prefer=prefer, max_rank=max_rank, domains=domain_names(domains)
    )
    return inspect_model(model, options, static)


def inspect_model(
    model: reader.Model,
    options: ConvertOptions,
    static: Mapping[str, int] | None = None,
    progress: Progress | None = None,
) -> Inspection:
    """Do what `inspect` does, and call `progress` with lines of text."""
    source = read_source(model, static)
    with of_model(source.name):
        plain = convert_source(source, replace(options, chains=False), progress)
        has_chains = options.chains and not plain.refused()
        optimized = convert_source(source, options, progress) if has_chains else None
        return Inspection.of(source, plain, optimized)


def convert(
    model: reader.Model,
    output: str | os.PathLike[str] | None = None,
    *,
    mode: Mode = "lower",
    fuse: bool = True,
    chains: bool = False,
    prefer: str | None = None,
    max_rank: int | None = None,
    checked: bool = False,
    domains: Iterable[str] = (),
    static: Mapping[str, int] | None = None,
    verify: bool | VerifyOptions = True,
    external_data: bool = False,
    progress: Progress | None = None,
) -> Conversion:
    """Rewrite the spatial operators of a model as standard operators, and verify the result.

    Args:
        model: path, bytes, onnx.ModelProto or onnx_ir.Model; it is not changed. Files of external data
            may be missing if the result is neither verified nor written.
        output: file for the result, written atomically and only if nothing failed; None: no file.
        mode: "lower" (standard operators), "function" (calls of local functions whose bodies are
            standard operators; an IR version below 8 is raised to 8, the first that has them) or
            "custom-op" (Python operators that `custom_ops.register` provides).
        fuse: in mode "lower", also rewrite neighbouring nodes: convolutions between the operators
            become dilated, Transposes become part of a lowering, inverse operators cancel each
            other (`onnx_spatial.fusion`).
        chains: also rewrite chains of standard nodes that are spatial operators, as `optimize` does. In
            the other modes each of them becomes its operator first.
        prefer: take this lowering wherever it applies, instead of the cheapest.
        max_rank: largest rank of new tensors.
        checked: make every run fail if sizes or parameters break a rule of an operator. Without it
            some such runs give a tensor without elements (docs/operators.md); mode "custom-op"
            always fails.
        domains: operator domains to accept beside the ones that converters are known to use.
        static: sizes of symbolic dims, by name; they are fixed in the result.
        verify: prove that the result computes the same, and run both; `VerifyOptions` say how.
        external_data: write the initializers of 1 KiB and more to a file OUTPUT.data. A model
            with nothing to convert is copied all the same.
        progress: called with lines of text.

    Returns:
        The conversion. A result that could not be verified is written, with `verification.status`
        "unverified". With `chains` and `max_rank`, `inspection.limits` has the nodes that still exceed
        the rank.

    Raises:
        UsageError: an argument is invalid (unknown mode, output equals input, ...), or two arguments
            cannot be combined.
        ModelFileError: the model cannot be read, or the result cannot be written.
        ConversionError: an operator breaks its rules or cannot be converted.
        VerificationError: original and result differ, or `VerifyOptions` ask for more than was shown.
    """
    options = ConvertOptions(mode, fuse, chains, prefer, max_rank, checked, domain_names(domains))
    return edit_model(
        model,
        options,
        static=static,
        verify=verify,
        output=output,
        external_data=external_data,
        progress=progress,
    )


def optimize(
    model: reader.Model,
    output: str | os.PathLike[str] | None = None,
    *,
    mode: Mode = "lower",
    fuse: bool = True,
    prefer: str | None = None,
    max_rank: int | None = None,
    checked: bool = False,
    domains: Iterable[str] = (),
    static: Mapping[str, int] | None = None,
    verify: bool | VerifyOptions = True,
    external_data: bool = False,
    progress: Progress | None = None,
) -> Conversion:
    """Convert a model, and rewrite chains of standard nodes that are spatial operators in disguise.

    A chain is a part of the graph that only moves data: Pad, Reshape, Transpose, Slice, SpaceToDepth and
    others. Where its index map is that of SpaceToBatch or BatchToSpace, for all sizes, it is treated as
    that operator, and becomes part of a dilated convolution by the rules of `convert`. One-hot
    convolutions and Gathers that are patches become part of a strided convolution, or a lowering that
    is faster. Chains that only permute parts of axes become other nodes where these are clearly faster
    by their estimated time, or where a tensor exceeds `max_rank`. All others stay as they are. Changes
    of layout between convolutions are removed.

    The arguments are those of `convert`, which does the same with `chains=True`.
    """
    return convert(
        model,
        output,
        mode=mode,
        fuse=fuse,
        chains=True,
        prefer=prefer,
        max_rank=max_rank,
        checked=checked,
        domains=domains,
        static=static,
        verify=verify,
        external_data=external_data,
        progress=progress,
    )


def verify(
    original: reader.Model,
    converted: reader.Model,
    options: VerifyOptions = VerifyOptions(),  # noqa: B008 - it is frozen
    *,
    domains: Iterable[str] = (),
    static: Mapping[str, int] | None = None,
) -> Verification:
    """Prove that a converted model computes what its original does, and run both.

    Each part in which the two differ is proven from their nodes, for all sizes if possible; all other
    nodes must be identical. Each operator and both models run on generated data, the original with its
    spatial operators in Python, the converted model with onnxruntime's optimisations off and on.

    Args:
        original: path, bytes, onnx.ModelProto or onnx_ir.Model; it is not changed.
        converted: likewise.
        options: how they are compared.
        domains: operator domains of your own that hold spatial operators.
        static: sizes of symbolic dims of the original, by name, which `converted` has fixed.

    Returns:
        The verdict; true if passed. `evidence` says whether every part is proven, or some only ran.

    Raises:
        UsageError: data, shapes or a tolerance do not fit the model.
        ModelFileError: a model cannot be read.
        OperatorError: an operator of the original breaks its own rules on any data.
        VerificationError: with `strict` or `strict_proof`, the models differ, or less was shown than
            these ask for.
    """
    before = read_source(original, static)
    result = compare(before, converted, options, domains=domains)
    if options.strict or options.strict_proof:
        check_verified(before.name, result, options)
    return result


def edit_model(
    model: reader.Model | reader.Source,
    options: ConvertOptions,
    *,
    static: Mapping[str, int] | None = None,
    verify: bool | VerifyOptions | None = None,
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
        verify: how the result is compared with the original; False or None: not at all.
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
    verify = VerifyOptions() if verify is True else verify or None
    if not isinstance(verify, VerifyOptions | None):
        raise UsageError(f"verify must be True, False or VerifyOptions, not {verify!r}")
    if external_data and (in_place or output is None):
        raise UsageError("external_data requires output")
    needs_data = verify is not None or in_place or output is not None
    source = read_source(model, static, data=needs_data)
    logger.debug("%s: read, IR %d", source.name, source.proto.ir_version)
    progress("converting")
    if verify is not None:
        verify.tolerances.check_names([value.name for value in source.proto.graph.output])
    target = _output_file(source, output, in_place=in_place)
    with of_model(source.name):
        result = convert_source(source, options, progress)
    inspection = Inspection.of(source, result)
    if refused := result.refused(strict=strict or (verify is not None and verify.strict)):
        error = refusal(source.name, refused)
        error.inspection = inspection
        raise error
    ir_original = model if isinstance(model, ir.Model) else None
    conversion = Conversion(inspection, chains=result.rewritten, ir_original=ir_original)
    if verify is not None and conversion.changed:
        conversion.verification = verify_conversion(conversion, verify, options.domains, progress)
        try:
            check_verified(source.name, conversion.verification, verify)
        except VerificationError as error:
            error.conversion = conversion
            raise
    if in_place or logger.isEnabledFor(logging.INFO):
        _log_conversion(conversion)
    if target is not None:
        progress(f"writing: {target}")
        _write_conversion(
            conversion, target, static, progress, in_place=in_place, external=external_data
        )
    return conversion


def convert_source(
    source: reader.Source, options: ConvertOptions, progress: Progress | None
) -> EditResult:
    """Convert the operators of a model, with `options.chains` its chains too."""
    if not options.chains:
        return convert_operators(source.proto, options, folder=source.folder, progress=progress)
    from onnx_spatial.conversion.optimize import optimize_operators  # `convert` does without chains

    return optimize_operators(source.proto, options, folder=source.folder, progress=progress)


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
    target = None if output is None else Path(output)
    if in_place:
        if source.path is None:
            raise UsageError("in_place requires a model path")
        if target is not None and not (target.exists() and target.samefile(source.path)):
            raise UsageError("output and in_place cannot be combined")
        target = source.path
    if target is not None:
        writing.check(target, source, in_place=in_place)
    return target


def _log_conversion(conversion: Conversion) -> None:
    """Log what was done; the summary is cached before a conversion in place replaces the original."""
    summary = conversion.summary
    parts = ["nothing to convert" if summary is None else summary.text]
    if conversion.verification is not None:
        parts.append(conversion.verification.message)
    logger.info("%s: %s", conversion.result.name, "; ".join(parts))


def _write_conversion(
    conversion: Conversion,
    target: Path,
    static: Mapping[str, int] | None,
    progress: Progress,
    *,
    in_place: bool,
    external: bool,
) -> None:
    """Write the result, and set `output` and `backup`.

    An unchanged model is copied byte for byte, unless symbolic dims were fixed.
    """
    result = conversion.result
    if not conversion.changed and not static:
        if in_place:
            return
        writing.copy_model(result, target, progress)
    elif in_place:
        conversion.backup = writing.replace(result, target, keep=not conversion.verification)
    else:
        writing.write(result, target, external=external, progress=progress)
    conversion.output = target


def _silent(text: str) -> None:
    pass
