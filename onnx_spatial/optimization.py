"""Optimize models: convert them, and the chains of standard nodes that are spatial operators."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_spatial import chains
from onnx_spatial.api import (
    Conversion,
    Progress,
    check,
    check_verification,
    finish,
    inspection_of,
    note_opset,
    output_file,
    read_source,
    with_opset,
)
from onnx_spatial.conversion.optimize import OptimizeResult, optimize_operators
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.conversion.pipeline import refusals
from onnx_spatial.errors import ConversionError, UsageError
from onnx_spatial.model.io import reader
from onnx_spatial.verification import Bound, Tolerances, Verification
from onnx_spatial.verification import verify as run_verification

logger = logging.getLogger(__name__)

#: The verdicts, the worst first.
_STATUSES = ("failed", "unverified", "passed")


def optimize(
    model: reader.Model | reader.Source,
    output: str | os.PathLike[str] | None = None,
    *,
    max_rank: int | None = None,
    opset: int | None = None,
    verify: bool = True,
    seed: int = 0,
    static: Mapping[str, int] | None = None,
    domains: Iterable[str] = (),
    inputs: Mapping[str, npt.NDArray[np.generic]] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    strict: bool = False,
    strict_proof: bool = False,
    rtol: Bound = None,
    atol: Bound = None,
    outputs_only: bool = False,
    strategy: str | None = None,
    in_place: bool = False,
    save_as_external_data: bool = False,
    save_reproducer: str | os.PathLike[str] | None = None,
    isolate: bool = False,
    memory: int | None = None,
    progress: Progress | None = None,
) -> Conversion:
    """Convert a model, and rewrite chains of standard nodes that are spatial operators in disguise.

    A chain is a part of the graph that only moves data: Pad, Reshape, Transpose, Slice, SpaceToDepth and
    others. Where its index map is that of SpaceToBatch or BatchToSpace, for all sizes, it is treated as
    that operator, and becomes part of a dilated convolution by the rules of `convert`. Chains that do
    not become part of something stay as they are.

    Args:
        model: path, bytes, onnx.ModelProto, onnx_ir.Model, or a model read before; it is not changed.
        output: file for the result, written atomically and only if nothing failed; None: no file.
        max_rank: largest rank of new tensors.
        verify: run the original and the result, and compare them. Each chain is proven to be its
            operator in any case.
        opset, seed, static, domains, inputs, shapes, strict, strict_proof, rtol, atol, outputs_only,
            strategy, in_place, save_as_external_data, save_reproducer, isolate, memory, progress: as in
            `convert`.

    Returns:
        The conversion; `inspection.chains` has each chain and what was done with it.

    Raises:
        UsageError: an argument is invalid, or two arguments cannot be combined.
        ModelFileError: the model cannot be read, or the result cannot be written.
        ConversionError: a named operator breaks its rules or cannot be converted.
        VerificationError: original and result differ, or (strict) verification could not decide.
    """
    if save_as_external_data and (in_place or output is None):
        raise UsageError("save_as_external_data requires output")
    tolerances = Tolerances.of(rtol, atol)
    check_verification(tolerances, verify, strict_proof=strict_proof, outputs_only=outputs_only)
    options = ConvertOptions(max_rank=max_rank, strategy=strategy, domains=tuple(domains))
    source = read_source(model, static, data=verify or in_place or output is not None)
    logger.debug("%s: read, IR %d", source.name, source.proto.ir_version)
    progress = progress or (lambda _: None)
    progress("converting")
    before = with_opset(source, opset)
    tolerances.check_names([value.name for value in source.proto.graph.output])
    target = output_file(source, output, in_place=in_place)
    result = optimize_operators(before.proto, options, folder=source.folder, progress=progress)
    note_opset(result.edit, source, before)
    inspection = inspection_of(source, result.edit, result)
    if refused := result.edit.refused(strict=strict):
        error = ConversionError(f"{source.name}: {refusals(refused)}")
        error.inspection = inspection
        raise error
    changed = result.edit.model is not None or before is not source
    converted = before if result.edit.model is None else source.holding(result.edit.model)
    verification = None
    if verify and changed:
        verification = _verified(
            source,
            converted,
            result,
            inputs=inputs,
            seed=seed,
            shapes=shapes,
            domains=(*options.domains, chains.DOMAIN),
            rtol=rtol,
            atol=atol,
            outputs_only=outputs_only,
            save_reproducer=save_reproducer,
            isolate=isolate,
            memory=memory,
            progress=progress,
        )
        if strict or strict_proof or verification.status == "failed" or verification.rest:
            check(source.name, verification, strict=strict, strict_proof=strict_proof)
    conversion = Conversion(
        converted, inspection, verification, changed, result.edit.touched, original=source
    )
    conversion.ir_original = model if isinstance(model, ir.Model) else None
    return finish(
        conversion,
        target,
        frozen=bool(static),
        in_place=in_place,
        external=save_as_external_data,
        progress=progress,
    )


def _verified(
    source: reader.Source, converted: reader.Source, result: OptimizeResult, **arguments: Any
) -> Verification:
    """Compare the operators of the chains with the result, and the original with the result.

    That a chain is its operator is proven where it is found (`chains.proof`).
    """
    if result.named is None or arguments["outputs_only"]:
        return run_verification(source, converted, **arguments)
    operators = run_verification(source.holding(result.named), converted, **arguments)
    if operators.status == "failed":
        return _described(operators)
    outputs = run_verification(source, converted, **{**arguments, "outputs_only": True})
    if outputs.status == "failed":
        return outputs
    worse = min(operators, outputs, key=lambda each: _STATUSES.index(each.status))
    with_chains = outputs.message.removeprefix(f"{outputs.status}: ").partition(";")[0]
    joined = replace(
        operators,
        status=worse.status,
        message=worse.message,
        problems=list(dict.fromkeys([*operators.problems, *outputs.problems])),
        outputs=[*operators.outputs, *outputs.outputs],
        runs=[*operators.runs, *outputs.runs],
        unsteady=list(dict.fromkeys([*operators.unsteady, *outputs.unsteady])),
        notes=[*operators.notes, f"with the chains as they are: {with_chains}"],
    )
    return _described(joined)


def _described(verification: Verification) -> Verification:
    """Give the operators in the place of chains the domain of the chains' nodes."""
    sites = [
        replace(site, domain="") if site.domain == chains.DOMAIN else site
        for site in verification.sites
    ]
    return replace(verification, sites=sites)
