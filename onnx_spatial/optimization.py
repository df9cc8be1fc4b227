"""Optimize models: convert them, and the chains of standard nodes that are spatial operators."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from onnx_spatial import analysis, chains
from onnx_spatial.conversion.optimize import optimize_operators
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.conversion.rewrite_chains import KeptFunction, NamedChains
from onnx_spatial.edit import Edit, EditOptions, Progress
from onnx_spatial.errors import of_model
from onnx_spatial.model import traversal
from onnx_spatial.model.io import reader
from onnx_spatial.report.results import Conversion
from onnx_spatial.verification import Bound, Verification, one_hot
from onnx_spatial.verification import verify as run_verification
from onnx_spatial.verification.runtime.time_limit import SECONDS

#: Operator type of a node, and names and values of its attributes.
_Definition = tuple[str, tuple[tuple[str, str], ...]]

#: The verdicts, the worst first.
_STATUSES = ("failed", "unverified", "passed")


def optimize(
    model: reader.Model | reader.Source,
    output: str | os.PathLike[str] | None = None,
    *,
    max_rank: int | None = None,
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
    """Convert a model, and rewrite chains of standard nodes that are spatial operators in disguise.

    A chain is a part of the graph that only moves data: Pad, Reshape, Transpose, Slice, SpaceToDepth and
    others. Where its index map is that of SpaceToBatch or BatchToSpace, for all sizes, it is treated as
    that operator, and becomes part of a dilated convolution by the rules of `convert`. One-hot
    convolutions and Gathers that are patches become part of a strided convolution, or a lowering that
    is faster. Chains that only permute parts of axes become other nodes where these are clearly faster
    by their estimated time, or where a tensor exceeds `max_rank`. All others stay as they are. Changes
    of layout between convolutions are removed.

    Args:
        model: path, bytes, onnx.ModelProto, onnx_ir.Model, or a model read before; it is not changed.
        output: file for the result, written atomically and only if nothing failed; None: no file.
        max_rank: largest rank of new tensors.
        verify: run the original and the result, and compare them. Each chain is proven to be its
            operator in any case.
        seed, static, domains, inputs, shapes, strategy: as in `convert`.
        strict, strict_proof, rtol, atol, outputs_only, save_reproducer: as in `convert`.
        in_place, save_as_external_data, isolate, memory, time_limit, progress: as
            in `convert`.

    Returns:
        The conversion; `inspection.chains` has each chain and what was done with it, and
        `inspection.limits` the nodes that are still beyond max_rank. They
        are no error: the result is written.

    Raises:
        UsageError: an argument is invalid, or two arguments cannot be combined.
        ModelFileError: the model cannot be read, or the result cannot be written.
        ConversionError: a named operator breaks its rules or cannot be converted.
        VerificationError: original and result differ, or (strict) verification could not decide.
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
        max_rank=max_rank,
        strategy=strategy,
        domains=tuple(domains),
    )
    edit = Edit.begin(model, edit_options)
    source, proto = edit.source, edit.source.proto
    with of_model(source.name):
        result = optimize_operators(
            proto, options, folder=source.folder, progress=edit_options.progress
        )
    named = None
    if result.named is not None:
        named = NamedChains(
            source.holding(result.named), tuple(result.named_chains), tuple(result.kept_functions)
        )
    compare = partial(verify_with_chains, named=named)
    return edit.end(result.edit, options, compare, optimized=result, named=named)


def verify_with_chains(
    source: reader.Source,
    named: NamedChains | None,
    converted: reader.Source,
    **arguments: Any,
) -> Verification:
    """Compare the operators of the chains with the result, and the original with the result.

    That a chain is its operator is proven where it is found (`chains.proof`).

    Args:
        source: the original.
        named: its chains that were rewritten; None if there are none.
        converted: the result.
        arguments: see `verification.verify`.
    """
    arguments["domains"] = (*arguments["domains"], chains.DOMAIN)
    if named is None or arguments["outputs_only"]:
        return run_verification(source, converted, **arguments)
    lost = _lost_functions(named.kept_functions, source.proto, converted.proto)
    if lost:
        return Verification("failed", f"failed: {lost[0]}", lost)
    operators = run_verification(named.source, converted, **arguments)
    if operators.status == "failed":
        return one_hot.describe(operators, named.chains)
    if not operators.operators:  # all chains vanish
        return run_verification(source, converted, **{**arguments, "outputs_only": True})
    outputs = run_verification(source, converted, **{**arguments, "outputs_only": True})
    if outputs.status == "failed":
        return outputs
    worse = min(operators, outputs, key=lambda each: _STATUSES.index(each.status))
    with_chains = outputs.message.removeprefix(f"{outputs.status}: ").partition(";")[0]
    second = [replace(each, run=each.run + len(operators.runs)) for each in outputs.outputs]
    joined = replace(
        operators,
        status=worse.status,
        message=worse.message,
        problems=list(dict.fromkeys([*operators.problems, *outputs.problems])),
        outputs=[*operators.outputs, *second],
        runs=[*operators.runs, *outputs.runs],
        unsteady=list(dict.fromkeys([*operators.unsteady, *outputs.unsteady])),
        notes=[*operators.notes, f"with the chains as they are: {with_chains}"],
    )
    return one_hot.describe(joined, named.chains)


def _lost_functions(
    kept: Sequence[KeptFunction], original: onnx.ModelProto, converted: onnx.ModelProto
) -> list[str]:
    """Return a line for each function inside a chain that the result lacks, or has otherwise.

    Outputs alone do not show it: ordinary data never reaches the limits of Clip(x, -1000, 1000). Nodes
    without attributes are not counted: Add of a number may become part of a Conv.
    """
    op_types = {node.op_type for _, node in kept if node.attribute}
    before = [n for _, _, n in traversal.nodes(original) if n.op_type in op_types]
    after = [n for _, _, n in traversal.nodes(converted) if n.op_type in op_types]
    kept_ids = {id(node) for _, node in kept}
    outside = Counter((n.output[0], _definition(n)) for n in before if id(n) not in kept_ids)
    present = Counter((n.output[0], _definition(n)) for n in after)
    candidates = Counter[_Definition]()
    for (_, definition), number in (present - outside).items():
        candidates[definition] += number
    lost = []
    for place, node in kept:
        if node.attribute and candidates[_definition(node)] <= 0:
            label = f"{node.op_type} node {traversal.label(node)!r} ({place})"
            lost.append(f"{label} is not in the result with the same attributes")
        candidates[_definition(node)] -= 1
    return lost


def _definition(node: onnx.NodeProto) -> _Definition:
    known = sorted((name, repr(value)) for name, value in analysis.attributes(node).items())
    return node.op_type, tuple(known)
