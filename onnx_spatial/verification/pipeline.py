"""Prove that a converted model is the original: site by site, then end to end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx

from onnx_spatial import analysis
from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.conversion.local_functions import without_earlier_form
from onnx_spatial.errors import ModelFileError, OperatorError, UsageError
from onnx_spatial.model import traversal
from onnx_spatial.model.io import reader
from onnx_spatial.verification import interface
from onnx_spatial.verification import oracles as references
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.checks import (
    end_to_end,
    other_nodes,
    same_padding_conv,
    unchanged,
)
from onnx_spatial.verification.checks.end_to_end import EndToEnd
from onnx_spatial.verification.checks.fused import FusedSites
from onnx_spatial.verification.checks.in_place import InPlace
from onnx_spatial.verification.checks.isolated import OperatorCheck, check_isolated
from onnx_spatial.verification.checks.roles import Roles
from onnx_spatial.verification.diagnosis import advice
from onnx_spatial.verification.oracles import Oracle
from onnx_spatial.verification.report import Status, Verification
from onnx_spatial.verification.sizes.model_inputs import graph_inputs, named_dims
from onnx_spatial.verification.sizes.reference_runs import MANY_SIZES, NAMED, RunRequest
from onnx_spatial.verification.subgraphs.converted_part import Converted
from onnx_spatial.verification.subgraphs.matching_region import MatchingRegions
from onnx_spatial.verification.subgraphs.transpose_chain import Original
from onnx_spatial.verification.subgraphs.types import KnownTypes

Model = reader.Model | reader.Source


def verify(
    original: Model,
    converted: Model,
    *,
    inputs: Mapping[str, Array] | None = None,
    seed: int = 0,
    shapes: Mapping[str, Sequence[int]] | None = None,
    domains: Iterable[str] = (),
    oracles: Iterable[str] = (),
    save_reproducer: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Verification:
    """Compare a converted model with its original, and say what differs first.

    Every operator node of the original is compared bit for bit with what stands for it in the
    converted model, on its own and inside the model; one that became part of a convolution is
    compared together with that, within a tolerance. Then both models run on the same data, the
    original by the numpy kernels, the converted one in onnxruntime with optimisations off and on.

    Args:
        original: path, bytes, onnx.ModelProto, onnx_ir.Model, or a model read before. Not changed.
        converted: likewise.
        inputs: data to run both models with, by input name, instead of made-up data.
        seed: of the made-up data, 0 or more.
        shapes: sizes of inputs, by input name, where the model leaves them open.
        domains: operator domains of the user's own that hold spatial operators.
        oracles: other runtimes to compare the numpy kernel of each operator with, bit for bit, where
            they are known to be right: "tensorflow", "openvino".
        save_reproducer: folder for two small models, their data and a script that shows the first
            difference, if there is one.
        progress: called with a line of text now and then.

    Raises:
        UsageError: `inputs` or `shapes` do not fit the model, or an oracle is not installed.
        ModelFileError: a model cannot be read.
        OperatorError: an operator of the original breaks its own rules, whatever it is fed.
    """
    if seed < 0:
        raise UsageError(f"seed must be 0 or more, not {seed}")
    if inputs is not None and shapes:
        raise UsageError("give either inputs or shapes; the data has its own shapes")
    before = original if isinstance(original, reader.Source) else reader.read(original)
    after = _read_converted(converted, before)
    request = RunRequest(inputs, shapes or {}, seed, progress or (lambda _: None))
    kernels = references.get(oracles)
    try:
        folder = None if save_reproducer is None else Path(save_reproducer)
        before, after = reader.resolved(before), reader.resolved(after)
        return _verify(before, after, request, frozenset(domains), kernels, folder)
    except MemoryError:
        reason = "running the models takes more memory than there is; give smaller --shape sizes"
        return Verification("unverified", f"unverified: {reason}", [reason])


def _read_converted(converted: Model, original: reader.Source) -> reader.Source:
    if isinstance(converted, reader.Source):
        return converted
    try:
        return reader.read(converted)
    except ModelFileError:
        # A model in memory whose weights still lie beside the file that it was made from.
        if isinstance(converted, onnx.ModelProto) and original.path is not None:
            return reader.Source(converted, original.path)
        raise


def _verify(
    before: reader.Source,
    after: reader.Source,
    request: RunRequest,
    domains: frozenset[str],
    kernels: dict[str, Oracle],
    folder: Path | None,
) -> Verification:
    roles = Roles(before, after, domains)
    unwrapped = without_earlier_form(before.proto)
    before = before.holding(unwrapped.model) if unwrapped.model is not before.proto else before
    domains = unwrapped.domains.union(domains)
    inputs = graph_inputs(before.proto)
    named = named_dims(before.proto, inputs)
    infos = analysis.find(named, domains, before.folder)
    original = Original(named, infos)
    sites = [OperatorCheck.of(f) for f in infos]
    known = [f for f in infos if f.known_domain]
    model = Converted(after.proto)
    beside = after.folder or before.folder
    regions = MatchingRegions(before.proto, model, infos, lambda: KnownTypes(named, infos))
    merged = FusedSites(regions, before, after, domains, request.seed)
    for number, site in enumerate(sites, start=1):
        request.progress(f"operator {number}/{len(sites)}: {site.result.node}")
        check_isolated(site, original, model, beside, request.seed)
        if site.merged:
            merged.check(site)
        references.check(site, kernels, request.seed)
    refused = same_padding_conv.find(named, infos, before.folder)
    if refused:
        held = Converted(named)
        for site in refused:
            request.progress(f"convolution {site.result.node}")
            same_padding_conv.check(site, held, model, beside, request.seed)
    failures = interface.differences(before.proto, after.proto)
    if failures:
        whole = EndToEnd(failures=failures)
    else:
        proven = {f.index for f in known}.union(*(s.replaced for s in sites))
        proven |= {s.info.index for s in refused if s.result.checks}
        elsewhere = {s.info.index for s in refused}
        others = other_nodes.compare(before, after, model, merged, proven, elsewhere)
        watched = [(other, other.proof) for other in others.nodes if other.proof is not None]
        if others.sizes:  # what mixes up two sizes is right wherever a stride makes them alike
            request = replace(request, more_sizes=MANY_SIZES)
        in_place = InPlace(sites, original, model, [*merged.left, *watched])
        whole = end_to_end.run(before, after, inputs, known, in_place, request)
        whole.failures += interface.misdeclared(before.proto, after.proto, whole.outputs)
        for other in others.nodes:
            if other.difference is not None:
                whole.fail(other.difference.message, other.difference)
            elif other.gap is not None:
                whole.gaps.append(other.gap)
    _check_rules(known, whole)
    sites = sorted([*sites, *refused], key=lambda site: site.info.index)
    result = _conclude(sites, whole)
    if result.sites_only:
        # Nothing was run end to end: then the rest must be the original's, message by message.
        proven = {f.index for f in known}.union(*(s.replaced for s in sites))
        found = list(unchanged.differences(before, after, proven))
        if found:
            result.sites_only = False
            result.rest = found
            result.problems += found
            result.message += f"; and the rest of the model differs: {found[0]}"
    if result.status == "failed":
        indices = [f.index for f in known]
        advice.add(result, before, after, indices, whole.difference, domains, folder)
        roles.explain(result)
    return result


def _check_rules(infos: Sequence[OperatorInfo], whole: EndToEnd) -> None:
    """An operator that seems to break a rule and has not run: there is nothing to compare with.

    Raises:
        OperatorError: there is one.
    """
    for info in infos:
        if info.error is not None and info.index not in whole.executed:
            where = f"{info.node.op_type} node {traversal.label(info.node)!r} ({info.place})"
            raise OperatorError(f"{where}: {info.error}")


def _conclude(sites: Sequence[OperatorCheck], whole: EndToEnd) -> Verification:
    compared = bool(whole.outputs) and not whole.failures
    for site in sites:
        site.result.end_to_end = compared and site.info.index in whole.executed
    broken = [s for s in sites if s.difference is not None]
    unproven = [s.result for s in sites if not s.result.compared and not s.result.end_to_end]
    failures = [s.difference.message for s in broken if s.difference is not None] + whole.failures
    gaps = [
        *(f"the whole model was not compared end to end: {r}" for r in whole.obstacles),
        *whole.gaps,
        *whole.undecided,
        *(
            f"{s.result.op_type} node {s.result.node!r} ({s.result.graph}): {s.undecided}"
            for s in sites
            if s.undecided is not None and not s.result.compared
        ),
        *(
            f"{r.op_type} node {r.node!r} ({r.graph}): {r.reason or 'not compared'}"
            for r in unproven
        ),
    ]
    status: Status = "failed" if failures else "unverified" if gaps else "passed"
    result = Verification(
        status,
        _message(status, failures or gaps, sites, whole),
        failures + gaps,
        whole.outputs,
        [s.result for s in sites],
        whole.runs,
        whole.forced,
        broken[0].difference if broken else whole.difference,
        unsteady=whole.unsteady,
    )
    ours = [s for s in sites if s.info.known_domain]
    proven = all(s.result.passed for s in ours)
    result.sites_only = status == "unverified" and proven and not whole.gaps
    return result


def _message(
    status: Status, problems: Sequence[str], sites: Sequence[OperatorCheck], whole: EndToEnd
) -> str:
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return f"{status}: {problems[0]}{more}"
    names = dict.fromkeys(o.name for o in whole.outputs)
    operators = [s.result for s in sites if not s.result.refused]
    refused = [s.result for s in sites if s.result.refused]
    alone = sum(1 for r in operators if r.exact)
    close = sum(1 for r in operators if r.compared) - alone
    of_all = f" of {_count(len(operators), 'operator')}"
    ways = []
    if alone or not (close or refused):
        ways.append(f"{alone}{of_all} bit for bit on their own")
    if close:
        ways.append(f"{close}{'' if ways else of_all} within tolerance as parts of convolutions")
    # One that is part of a region was compared with it.
    checked = sum(1 for r in refused if r.checks)
    if checked or (refused and not close):
        ways.append(f"{checked} of {_count(len(refused), 'convolution')} on their own")
    text = (
        f"passed: {', '.join(ways)}, "
        f"{_count(len(names), 'output')} in {_count(len(whole.runs), 'run')} with optimisations "
        "off and on"
    )
    errors = [o.max_relative_error for o in whole.outputs if o.max_relative_error is not None]
    if all(o.equal_bits for o in whole.outputs):
        text += ", equal in every bit"
    elif errors:
        text += f", at most {max(errors):.1e} of the largest value apart"
        if any(o.accepted is not None for o in whole.outputs):
            text += ", no more than rounding moves the original"
    if whole.forced:
        sizes = ", ".join(f"{n} = {s}" for n, s in whole.forced.items())
        if len(whole.forced) > NAMED:
            sizes = f"{len(whole.forced)} dims of the inputs"
        text += f"; only one size found for {sizes}"
    return text


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
