"""Inspect, convert and verify models: the functions of the package."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from onnx_spatial.conversion.options import ConvertOptions, Mode
from onnx_spatial.edit import Progress, convert_source, edit_model, inspection_of
from onnx_spatial.errors import of_model
from onnx_spatial.model.io import reader
from onnx_spatial.model.io.reader import read_source
from onnx_spatial.report.results import Conversion, Inspection
from onnx_spatial.verification import Verification, VerifyOptions
from onnx_spatial.verification import verify as run_verification
from onnx_spatial.verification.evidence import check_verified


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
        chains=chains, prefer=prefer, max_rank=max_rank, domains=tuple(domains)
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
        result, optimized = convert_source(source, options, progress)
    return inspection_of(source, result if optimized is None else optimized.plain, optimized)


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
    options = ConvertOptions(mode, fuse, chains, prefer, max_rank, checked, tuple(domains))
    return edit_model(
        model,
        options,
        static=static,
        verify=VerifyOptions() if verify is True else verify or None,
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
    result = run_verification(before, converted, options, domains=domains)
    if options.strict or options.strict_proof:
        check_verified(before.name, result, options)
    return result
