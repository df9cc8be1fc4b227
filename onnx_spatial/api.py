"""Inspect and convert models: `inspect` reports, `convert` rewrites, verifies and writes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from onnx_spatial.conversion.options import ConvertOptions, Mode
from onnx_spatial.conversion.pipeline import convert_operators
from onnx_spatial.edit import Edit, EditOptions, Progress, inspection_of, read_source
from onnx_spatial.errors import of_model
from onnx_spatial.model.io import reader
from onnx_spatial.report.results import Conversion, Inspection
from onnx_spatial.verification import Bound
from onnx_spatial.verification import verify as run_verification
from onnx_spatial.verification.runtime.time_limit import SECONDS


def inspect(
    model: reader.Model,
    *,
    domains: Iterable[str] = (),
    static: Mapping[str, int] | None = None,
    max_rank: int | None = None,
    strategy: str | None = None,
    progress: Progress | None = None,
) -> Inspection:
    """List the spatial operators of a model, and what `convert` would do with each.

    Chains of standard nodes that are spatial operators are listed too, with what `optimize` would do.

    Args:
        model: path, bytes, onnx.ModelProto or onnx_ir.Model; it is not changed.
        domains: operator domains to accept beside the ones that converters are known to use.
        static: sizes of symbolic dims, by name.
        max_rank: largest rank of new tensors.
        strategy: lower with this strategy wherever it applies, instead of the cheapest.
        progress: called with lines of text.

    Raises:
        UsageError: there is no strategy or symbolic dim of that name.
        SpatialError: the model cannot be read.
    """
    options = ConvertOptions(max_rank=max_rank, strategy=strategy, domains=tuple(domains))
    from onnx_spatial.conversion.optimize import optimize_operators  # `convert` does without chains

    source = read_source(model, static)
    with of_model(source.name):
        result = optimize_operators(source.proto, options, folder=source.folder, progress=progress)
    return inspection_of(source, result.plain, result)


def convert(
    model: reader.Model | reader.Source,
    output: str | os.PathLike[str] | None = None,
    *,
    mode: Mode = "lower",
    fuse: bool = True,
    max_rank: int | None = None,
    checked: bool = False,
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
    time_limit: float | None = SECONDS,
    progress: Progress | None = None,
) -> Conversion:
    """Rewrite the spatial operators of a model as standard operators, and verify the result.

    Args:
        model: path, bytes, onnx.ModelProto, onnx_ir.Model, or a model read before; it is not changed.
            Files of external data may be missing if the result is neither verified nor written.
        output: file for the result, written atomically and only if nothing failed; None: no file.
        mode: "lower" (standard operators), "function" (calls of local functions whose bodies are
            standard operators) or "custom-op" (Python operators that `custom_ops.register` provides).
        fuse: in mode "lower", also rewrite neighbouring nodes: convolutions between the operators
            become dilated, Transposes become part of a lowering, inverse operators cancel each
            other (`onnx_spatial.fusion`).
        max_rank: largest rank of new tensors.
        checked: make every run fail if sizes or parameters break a rule of an operator. Without it
            some such runs give a tensor without elements (docs/operators.md); mode "custom-op"
            always fails.
        verify: run the original and the result, and compare them.
        seed: seed of generated data.
        static: sizes of symbolic dims, by name; they are fixed in the result.
        domains: operator domains to accept beside the ones that converters are known to use.
        inputs: data to run the model on, by input name, in place of generated data.
        shapes: shapes of inputs, by input name, that the model does not fix.
        strict: also fail if verification cannot decide, if the whole model cannot be run end to end,
            or if operators are left.
        strict_proof: also fail if an operator is not proven, only compared at sampled sizes
            (`verification.OperatorResult.proven`); requires `verify`.
        rtol, atol, outputs_only: tolerance for outputs, and whether only outputs are compared; see
            `verify`. They require `verify`.
        strategy: lower with this strategy wherever it applies, instead of the cheapest.
        in_place: replace the file `model` by the result. The original is kept beside it, as NAME.orig,
            until the result is verified, written and read back. It stays if the result was not
            verified or verification could not decide.
        save_as_external_data: write the initializers of 1 KiB and more to a file OUT.data beside
            `output`. A model with nothing to convert is copied all the same.
        save_reproducer: folder for two small models, their data and a script that shows the first
            difference, if verification finds one.
        isolate, memory, time_limit: verify in a child process, with limits of memory in bytes and of
            time in seconds; see `verify`.
        progress: called with lines of text.

    Raises:
        UsageError: an argument is invalid (unknown mode, output equals input, ...), or two arguments
            cannot be combined.
        ModelFileError: the model cannot be read, or the result cannot be written.
        ConversionError: an operator breaks its rules or cannot be converted.
        VerificationError: original and result differ, or (strict) verification could not decide.
            Without `strict`, an undecided result is written, with `verification.status` "unverified".
            With `strict_proof`, an operator is not proven.
    """
    edit_options = EditOptions(
        output=output,
        verify=verify,
        seed=seed,
        static=static,
        inputs=inputs,
        shapes=shapes,
        strict=strict,
        strict_proof=strict_proof,
        rtol=rtol,
        atol=atol,
        outputs_only=outputs_only,
        in_place=in_place,
        save_as_external_data=save_as_external_data,
        save_reproducer=save_reproducer,
        isolate=isolate,
        memory=memory,
        time_limit=time_limit,
        progress=progress or (lambda _: None),
    )
    options = ConvertOptions(
        mode=mode,
        fuse=fuse,
        max_rank=max_rank,
        strategy=strategy,
        checked=checked,
        domains=tuple(domains),
    )
    edit = Edit.begin(model, edit_options)
    with of_model(edit.source.name):
        result = convert_operators(
            edit.source.proto,
            options,
            folder=edit.source.folder,
            progress=edit_options.progress,
        )
    return edit.end(result, options, run_verification)
