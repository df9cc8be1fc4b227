"""Inspect and convert models: `inspect` reports, `convert` rewrites, verifies and writes."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from onnx_spatial.analysis.unknown_operators import UnknownOperator, unknown_operators
from onnx_spatial.conversion.optimize import OptimizeResult, optimize_operators
from onnx_spatial.conversion.options import ConvertOptions, Mode
from onnx_spatial.conversion.pipeline import (
    EditResult,
    Site,
    convert_operators,
    freeze,
    refusals,
)
from onnx_spatial.conversion.raise_opset import raise_opset
from onnx_spatial.conversion.summary import Summary, summarize
from onnx_spatial.errors import ConversionError, UsageError, VerificationError
from onnx_spatial.model import op_traits
from onnx_spatial.model.graph import rebuild_ir
from onnx_spatial.model.io import reader
from onnx_spatial.model.io import writer as writing
from onnx_spatial.tuning import Cache, Effort, Sizes, Tuner, default_path
from onnx_spatial.verification import Bound, Tolerances, Verification
from onnx_spatial.verification import verify as run_verification

Progress = Callable[[str], None]
logger = logging.getLogger(__name__)


@dataclass
class Inspection:
    """The spatial operators of a model, and what `convert` would do with each.

    Attributes:
        model: name of the model.
        ir_version, opset: of the file; opset is None if the default domain is not imported.
        sites: the spatial operators, in the order of the file.
        chains: the chains of standard nodes that are spatial operators, and what `optimize` does with
            each; `Site.node` is the last node of a chain, `absorbed` the others.
        nodes: number of nodes before and after `optimize`.
        remaining: the operators that onnxruntime lacks also after a conversion.
    """

    model: str
    ir_version: int
    opset: int | None
    sites: list[Site] = field(default_factory=list)
    chains: list[Site] = field(default_factory=list)
    nodes: tuple[int, int] = (0, 0)
    remaining: list[UnknownOperator] = field(default_factory=list)

    @property
    def summary(self) -> str | None:
        """What `optimize` does with the chains, in one line; None if there are none."""
        if not self.chains:
            return None
        kinds = Counter(site.strategy for site in self.chains)
        left = kinds.pop(None, 0)
        parts = [_became(kind or "", number) for kind, number in kinds.items()]
        parts += [f"{_chains(left)} left, with nothing to gain"] if left else []
        before, after = self.nodes
        return ", ".join(parts) + (f": {before} -> {after} nodes" if kinds else "")

    def to_dict(self) -> dict[str, object]:
        """version 1: the attributes, `summary`, and each `Site` and `UnknownOperator` as a dict."""
        return {
            "version": 1,
            "model": self.model,
            "ir_version": self.ir_version,
            "opset": self.opset,
            "sites": [site.to_dict() for site in self.sites],
            "chains": [site.to_dict() for site in self.chains],
            "nodes": list(self.nodes),
            "summary": self.summary,
            "remaining": [dict(vars(each)) for each in self.remaining],
        }


def _chains(number: int) -> str:
    return f"{number} chain{'' if number == 1 else 's'}"


def _became(strategy: str, number: int) -> str:
    """Say what some chains become, by `Site.strategy`."""
    if strategy == "dilated convolution":
        one = number == 1
        return (
            f"{_chains(number)} {'is a dilated convolution' if one else 'are dilated convolutions'}"
        )
    return f"{_chains(number)} {strategy}"


@dataclass
class Conversion:
    """A converted model and its verification.

    Attributes:
        result: the converted model as it will be written; its large weights may still be in the
            file that was read.
        inspection: its operators and what was done with each.
        verification: result of the verification; None if `verify` was False or nothing changed.
        changed: whether the converted model differs from the original.
        touched: what differs from the original: nodes_replaced (each operator, followed by the
            nodes that were fused with it), nodes_added, initializers_added, initializers_removed,
            value_info_changed, functions_added, functions_removed, opset_imports_added,
            opset_imports_removed; ir_version and opset ("7 -> 8") if raised. In mode "function"
            nodes_replaced are the nodes that now call functions.
        output: the file that was written; None if none was.
        backup: the original of a conversion in place, if it was kept.
        original: the model that was read, as `result`; None if it is not known.
        ir_original: the model that was passed, if it was an onnx_ir.Model.
    """

    result: reader.Source
    inspection: Inspection
    verification: Verification | None
    changed: bool
    touched: dict[str, list[str]]
    output: Path | None = None
    backup: Path | None = None
    original: reader.Source | None = None
    ir_original: ir.Model | None = None

    @cached_property
    def summary(self) -> Summary | None:
        """Nodes, sizes and ranks before and after; None if nothing changed."""
        if not self.changed or self.original is None:
            return None
        rewritten = [site for site in self.inspection.chains if site.converted]
        return summarize(self.original, self.result, [*self.inspection.sites, *rewritten])

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The converted model with its embedded weights; the original if nothing changed.

        Raises:
            ModelFileError: the file that was read has been changed.
        """
        return self.result.whole()

    @cached_property
    def ir_model(self) -> ir.Model:
        """The converted model as a new onnx_ir.Model, also if nothing changed.

        If an onnx_ir.Model was converted, the result shares its tensors, and keeps names and `meta` of
        everything that the conversion did not touch. External tensors are not read.

        Raises:
            ModelFileError: onnx_ir cannot hold the model, or the file that was read has been changed.
        """
        if self.ir_original is None or self.original is None:
            return rebuild_ir.to_ir(self.model, self.result.folder)
        proto = self.original.proto
        return rebuild_ir.to_ir(self.result.proto, self.result.folder, self.ir_original, proto)

    def to_dict(self) -> dict[str, object]:
        """version 1: changed, output, backup, touched, summary, inspection, verification (or null)."""
        return {
            "version": 1,
            "changed": self.changed,
            "output": None if self.output is None else str(self.output),
            "backup": None if self.backup is None else str(self.backup),
            "touched": self.touched,
            "summary": None if self.summary is None else self.summary.to_dict(),
            "inspection": self.inspection.to_dict(),
            "verification": None if self.verification is None else self.verification.to_dict(),
        }


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
    tune: bool = False,
    tune_cache: str | os.PathLike[str] | None = None,
    tune_threads: int = 0,
    in_place: bool = False,
    save_as_external_data: bool = False,
    save_reproducer: str | os.PathLike[str] | None = None,
    isolate: bool = False,
    memory: int | None = None,
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
        isolate, memory: verify in a child process, with a limit of memory in bytes; see `verify`.
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
    options = ConvertOptions(
        mode=mode,
        inline=inline,
        fuse=fuse,
        max_rank=max_rank,
        strategy=strategy,
        raise_ir_version=raise_ir_version,
        checked=checked,
        domains=tuple(domains),
    )
    source = read_source(model, static, data=verify or in_place or output is not None)
    logger.debug("%s: read, IR %d", source.name, source.proto.ir_version)
    progress = progress or (lambda _: None)
    progress("converting")
    before = with_opset(source, opset)
    tolerances.check_names([value.name for value in source.proto.graph.output])
    target = output_file(source, output, in_place=in_place)
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
        choose = _tuner(sizes, options, tune_cache, tune_threads, target, progress).choose
    elif tune_cache is not None or tune_threads:
        raise UsageError("tune_cache and tune_threads require tune=True")
    result = convert_operators(
        before.proto, options, choose=choose, folder=source.folder, progress=progress
    )
    note_opset(result, source, before)
    inspection = inspection_of(source, result)
    if refused := result.refused(strict=strict):
        error = ConversionError(f"{source.name}: {refusals(refused)}")
        error.inspection = inspection
        raise error
    changed = result.model is not None or before is not source
    converted = before if result.model is None else source.holding(result.model)
    verification = None
    if verify and changed:
        verification = run_verification(
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
            progress=progress,
        )
        if strict or strict_proof or verification.status == "failed" or verification.rest:
            check(source.name, verification, strict=strict, strict_proof=strict_proof)
    conversion = Conversion(
        converted, inspection, verification, changed, result.touched, original=source
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
        frozen: whether symbolic dims were fixed. Else a model in which nothing changed is copied byte
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


def check(
    name: str, verification: Verification, *, strict: bool = False, strict_proof: bool = False
) -> None:
    """Raise unless the models were compared, as far as they can be run, and are equal.

    Raises:
        VerificationError: they differ, or could not be compared, or (strict) not end to end, or
            (strict_proof) an operator is not proven.
    """
    if not verification and (strict or not verification.sites_only):
        raise VerificationError(f"{name}: {verification.message}", verification)
    if strict_proof and (unproven := verification.unproven):
        more = f" (and {len(unproven) - 1} more)" if len(unproven) > 1 else ""
        raise VerificationError(f"{name}: {unproven[0]}{more}", verification)


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
        raise UsageError(f"{cache_file}: output and tune_cache must be different files")
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
    if optimized is not None:
        found.chains, found.nodes = optimized.chains, optimized.nodes
    return found
