"""Inspect and convert models: `inspect` reports, `convert` rewrites, verifies and writes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_spatial.analysis.unknown_operators import unknown_operators
from onnx_spatial.conversion.optimize import optimize_operators
from onnx_spatial.conversion.options import ConvertOptions, Mode
from onnx_spatial.conversion.pipeline import (
    EditResult,
    convert_operators,
    freeze,
    refusal,
)
from onnx_spatial.conversion.raise_opset import raise_opset
from onnx_spatial.conversion.rewrite_chains import NamedChains, OptimizeResult
from onnx_spatial.errors import Code, UsageError, VerificationError
from onnx_spatial.lowering import priced_for
from onnx_spatial.model import op_traits
from onnx_spatial.model.io import reader
from onnx_spatial.model.io import writer as writing
from onnx_spatial.report.results import Conversion, Inspection
from onnx_spatial.tuning import Cache, Effort, Sizes, Tuner, default_path
from onnx_spatial.verification import Bound, Tolerances, Verification
from onnx_spatial.verification import verify as run_verification
from onnx_spatial.verification.runtime.time_limit import SECONDS

Progress = Callable[[str], None]
logger = logging.getLogger(__name__)


def inspect(
    model: reader.Model,
    *,
    domains: Iterable[str] = (),
    static: Mapping[str, int] | None = None,
    max_rank: int | None = None,
    target: str | None = None,
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
        target: runtime for devices that the result is for, as in `optimize`.
        strategy: lower with this strategy wherever it applies, instead of the cheapest.
        progress: called with lines of text.

    Raises:
        UsageError: there is no strategy, target or symbolic dim of that name.
        SpatialError: the model cannot be read.
    """
    options = ConvertOptions(
        max_rank=max_rank, target=target, strategy=strategy, domains=tuple(domains)
    )
    source = read_source(model, static)
    result = optimize_operators(source.proto, options, folder=source.folder, progress=progress)
    return inspection_of(source, result.plain, result)


def convert(
    model: reader.Model | reader.Source,
    output: str | os.PathLike[str] | None = None,
    *,
    mode: Mode = "lower",
    inline: bool = False,
    fuse: bool = True,
    max_rank: int | None = None,
    raise_ir_version: bool = False,
    checked: bool = False,
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
    threads: int | None = None,
    finite: bool = False,
    tune: bool = False,
    tune_cache: str | os.PathLike[str] | None = None,
    tune_threads: int = 0,
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
        inline: replace calls of functions that an earlier conversion added by the functions' bodies,
            and lower the other operators.
        fuse: in mode "lower", also rewrite neighbouring nodes: convolutions between the operators
            become dilated, Transposes become part of a lowering, inverse operators cancel each
            other (`onnx_spatial.fusion`).
        max_rank: largest rank of new tensors.
        raise_ir_version: in mode "function", raise an IR version below 8 to 8, the first that has
            local functions.
        checked: make every run fail if sizes or parameters break a rule of an operator. Without it
            some such runs give a tensor without elements (docs/operators.md); mode "custom-op"
            always fails.
        opset: raise the default domain to this version, with onnx's version converter; a newer
            version is kept. None: leave it.
        verify: run the original and the result, and compare them.
        seed: seed of generated data.
        static: sizes of symbolic dims, by name; they are fixed in the result.
        domains: operator domains to accept beside the ones that converters are known to use.
        inputs: data to run the model on, by input name, in place of generated data.
        shapes: shapes of inputs, by input name, that the model does not fix.
        strict: also fail if verification cannot decide, if the whole model cannot be run end to end,
            or if operators are left.
        strict_proof: also fail if an operator is not proven, only compared at sampled sizes
            (`verification.SiteResult.proven`); requires `verify`.
        rtol, atol, outputs_only: tolerance for outputs, and whether only outputs are compared; see
            `verify`. They require `verify`.
        strategy: lower with this strategy wherever it applies, instead of the cheapest.
        threads: choose lowerings by their estimated time with this number of threads within a node;
            None: by the geometric mean of one thread and two, which is good with both.
        finite: declare that the data of patches holds no NaN, no infinity and no -0.0. Then they may
            become a one-hot Conv where that is faster, and the verification takes it for granted.
        tune: measure the lowerings of every operator on this machine and use the fastest; only in
            mode "lower". `inputs`, `shapes` and `seed` give the sizes that the model leaves open.
        tune_cache: file that keeps the measured times; the same file gives the same model, byte for
            byte. None: tune.json in the user's cache folder.
        tune_threads: number of threads to measure with; 0: onnxruntime's choice.
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
    if save_as_external_data and (in_place or output is None):
        raise UsageError("save_as_external_data requires output")
    tolerances = Tolerances.of(rtol, atol)
    check_verification(tolerances, verify, strict_proof=strict_proof, outputs_only=outputs_only)
    progress = progress or (lambda _: None)
    options = ConvertOptions(
        mode=mode,
        inline=inline,
        fuse=fuse,
        max_rank=max_rank,
        strategy=strategy,
        raise_ir_version=raise_ir_version,
        checked=checked,
        domains=tuple(domains),
        threads=threads,
        finite=finite,
    )
    edit = Edit.begin(
        model,
        output,
        static=static,
        opset=opset,
        verify=verify,
        tolerances=tolerances,
        in_place=in_place,
        progress=progress,
    )
    source = edit.source
    choose = None
    if tune:
        sizes = Sizes(
            source,
            domains=options.domains,
            inputs=inputs,
            shapes=shapes,
            seed=seed,
            progress=progress,
        )
        choose = _tuner(sizes, options, tune_cache, tune_threads, edit.target, progress).choose
    elif tune_cache is not None or tune_threads:
        raise UsageError("tune_cache and tune_threads require tune=True")
    with priced_for(options.threads):
        result = convert_operators(
            edit.before.proto, options, choose=choose, folder=source.folder, progress=progress
        )

    def compare(converted: reader.Source) -> Verification:
        return run_verification(
            source,
            converted,
            inputs=inputs,
            seed=seed,
            shapes=shapes,
            domains=options.domains,
            rtol=rtol,
            atol=atol,
            outputs_only=outputs_only,
            save_reproducer=save_reproducer,
            isolate=isolate,
            memory=memory,
            time_limit=time_limit,
            finite=finite,
            progress=progress,
        )

    return edit.end(
        result,
        compare if verify else None,
        strict=strict,
        strict_proof=strict_proof,
        external=save_as_external_data,
    )


@dataclass(frozen=True)
class Edit:
    """The edit of a model by `convert` or `optimize`, from reading to writing.

    Attributes:
        model: as the caller gives it.
        source: as read, with fixed sizes.
        before: the same with its opset raised: what is edited.
        target: file for the result, if any.
        frozen, in_place, progress: see `finish`.
    """

    model: reader.Model | reader.Source
    source: reader.Source
    before: reader.Source
    target: Path | None
    frozen: bool
    in_place: bool
    progress: Progress

    @classmethod
    def begin(
        cls,
        model: reader.Model | reader.Source,
        output: str | os.PathLike[str] | None,
        *,
        static: Mapping[str, int] | None,
        opset: int | None,
        verify: bool,
        tolerances: Tolerances,
        in_place: bool,
        progress: Progress,
    ) -> Edit:
        """Read a model, and check what the result is to be.

        Raises:
            ModelFileError: the model cannot be read.
            UsageError: a name is not in the model, or the output cannot be written.
            ConversionError: the model cannot be raised to the opset.
        """
        source = read_source(model, static, data=verify or in_place or output is not None)
        logger.debug("%s: read, IR %d", source.name, source.proto.ir_version)
        progress("converting")
        before = with_opset(source, opset)
        tolerances.check_names([value.name for value in source.proto.graph.output])
        target = output_file(source, output, in_place=in_place)
        return cls(model, source, before, target, bool(static), in_place, progress)

    def end(
        self,
        result: EditResult,
        compare: Callable[[reader.Source], Verification] | None,
        *,
        optimized: OptimizeResult | None = None,
        named: NamedChains | None = None,
        strict: bool,
        strict_proof: bool,
        external: bool,
    ) -> Conversion:
        """Verify a result, and write it if it may be.

        Args:
            result: of the edit.
            compare: verifies the result; None: it is not verified.
            optimized, named: what `optimize` found, and the chains that it rewrote.
            strict, strict_proof: as in `convert`.
            external: see `finish`.

        Raises:
            ConversionError: an operator cannot be converted.
            VerificationError: as `check`, with the conversion.
        """
        note_opset(result, self.source, self.before)
        inspection = inspection_of(self.source, result, optimized)
        if refused := result.refused(strict=strict):
            error = refusal(self.source.name, refused)
            error.inspection = inspection
            raise error
        changed = result.model is not None or self.before is not self.source
        converted = self.before if result.model is None else self.source.holding(result.model)
        conversion = Conversion(
            converted,
            inspection,
            compare(converted) if compare is not None and changed else None,
            changed,
            result.touched,
            original=self.source,
            named=named,
            ir_original=self.model if isinstance(self.model, ir.Model) else None,
        )
        check_conversion(conversion, strict=strict, strict_proof=strict_proof)
        return finish(
            conversion,
            self.target,
            frozen=self.frozen,
            in_place=self.in_place,
            external=external,
            progress=self.progress,
        )


def check_verification(
    tolerances: Tolerances, verify: bool, *, strict_proof: bool, outputs_only: bool
) -> None:
    """Check that arguments of the verification fit to each other.

    Raises:
        UsageError: there is no verification, or nothing is proven in it.
    """
    if strict_proof and not verify:
        raise UsageError("strict_proof requires verify=True")
    if (tolerances or outputs_only) and not verify:
        raise UsageError("rtol, atol and outputs_only require verify=True")
    if strict_proof and outputs_only:
        raise UsageError(
            "strict_proof and outputs_only cannot be combined: operators are not proven"
        )


def with_opset(source: reader.Source, opset: int | None) -> reader.Source:
    """Return a model with at least this version of the default domain; `source` itself if it has it.

    Raises:
        UsageError: onnx does not know the version.
        ConversionError: the model cannot be converted to it.
    """
    if opset is None or (raised := raise_opset(source.proto, opset)) is source.proto:
        return source
    return source.holding(raised)


def note_opset(result: EditResult, source: reader.Source, raised: reader.Source) -> None:
    """Add the opset to what an edit touched, if it was raised before."""
    if raised is not source:
        versions = [op_traits.opset_of(each.proto.opset_import) for each in (source, raised)]
        result.touched["opset"] = [f"{versions[0]} -> {versions[1]}"]


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


def finish(
    conversion: Conversion,
    target: Path | None,
    *,
    frozen: bool,
    in_place: bool,
    external: bool,
    progress: Progress,
) -> Conversion:
    """Log what was done, and write the result if there is a target.

    Args:
        conversion: the conversion; its `output` and `backup` are set.
        target: the file.
        frozen: whether symbolic dims were fixed. Otherwise an unchanged model is copied byte
            for byte.
        in_place: whether the target is the file that was read.
        external: whether large initializers are written to a file of external data.
        progress: called with a line of text.
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
    if not conversion.changed and not frozen:
        if in_place:
            return conversion
        writing.copy(conversion.result, target)
    elif in_place:
        conversion.backup = writing.replace(
            conversion.result, target, keep=not conversion.verification
        )
        if conversion.result.weights is not None:
            conversion.result = reader.read(target)
    else:
        writing.write(conversion.result, target, external=external)
    conversion.output = target
    return conversion


def check_conversion(conversion: Conversion, *, strict: bool, strict_proof: bool) -> None:
    """Raise if the result of a conversion may not be written.

    Raises:
        VerificationError: as `check`, with the conversion.
    """
    found = conversion.verification
    if found is None or not (strict or strict_proof or found.status == "failed" or found.rest):
        return
    try:
        check(conversion.result.name, found, strict=strict, strict_proof=strict_proof)
    except VerificationError as error:
        error.conversion = conversion
        raise


def check(
    name: str, verification: Verification, *, strict: bool = False, strict_proof: bool = False
) -> None:
    """Raise unless the models were compared, as far as they can be run, and are equal.

    Raises:
        VerificationError: they differ, or could not be compared, or (strict) not end to end, or
            (strict_proof) an operator is not proven.
    """
    if not verification and (strict or not verification.sites_only):
        message = f"{name}: {verification.message}"
        raise VerificationError(message, verification, code=verification.code)
    if strict_proof and (unproven := verification.unproven):
        more = f" (and {len(unproven) - 1} more)" if len(unproven) > 1 else ""
        message = f"{name}: {unproven[0]}{more}"
        raise VerificationError(message, verification, code=Code.NOT_PROVEN)


def _tuner(
    sizes: Sizes,
    options: ConvertOptions,
    cache_file: str | os.PathLike[str] | None,
    threads: int,
    target: Path | None,
    progress: Progress | None,
) -> Tuner:
    """Return the tuner of a conversion, with the times that earlier conversions measured.

    Raises:
        UsageError: the options choose no lowering or a fixed one, or the cache file is the output.
        ModelFileError: the cache file cannot be read or written.
    """
    if options.mode != "lower":
        raise UsageError(
            f"tune requires mode 'lower', not {options.mode!r}: only that chooses lowerings"
        )
    if options.strategy is not None:
        raise UsageError("strategy and tune cannot be combined")
    if threads < 0:
        raise UsageError(f"tune_threads must be 0 or more, not {threads}")
    if cache_file is None:
        cache = Cache(default_path(), required=False)
    elif target is not None and Path(cache_file).resolve() == target.resolve():
        raise UsageError(
            f"{cache_file}: output and tune_cache must be different files", code=Code.SAME_FILE
        )
    else:
        cache = Cache(cache_file)
    return Tuner(
        sizes, max_rank=options.max_rank, effort=Effort(threads), cache=cache, progress=progress
    )


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
    spatial = {(site.domain, site.op_type) for site in result.sites if site.unknown_domain}
    refused = {(site.domain, site.op_type) for site in result.sites if site.action == "refuse"}
    unknown = unknown_operators(model, spatial)
    remaining = [each for each in unknown if (each.domain, each.op_type) not in refused]
    found = Inspection(source.name, source.proto.ir_version, opset, result.sites)
    found.remaining = remaining
    found.original = source
    found.result = None if result.model is None else source.holding(result.model)
    if optimized is not None:
        found.chains, found.nodes = optimized.chains, optimized.nodes
        found.notes = optimized.notes
        found.layouts = optimized.layouts
        found.limits = optimized.limits
    return found
