"""Find sizes for a region, and data: as for a whole model, and sizes at which every tap meets data.

A convolution whose outer taps only ever meet padding could have any weights there.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence

import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.operators.spellings import BlockCall
from onnx_spatial.verification.checks.findings import Proof
from onnx_spatial.verification.evaluate import ReferenceModel
from onnx_spatial.verification.match.graphs import Part
from onnx_spatial.verification.sizes import reference_runs
from onnx_spatial.verification.sizes.candidate_sizes import Candidates, stored_integers
from onnx_spatial.verification.sizes.large_sizes import TooLargeError
from onnx_spatial.verification.sizes.size_search import Search
from onnx_spatial.verification.sizes.trial_runs import Trial
from onnx_spatial.verification.subgraphs.matched_parts import MatchingRegion

#: Seconds of a search for sizes.
SECONDS = 2.0
#: Smaller limits than this are of usual sizes, or seen at them.
_ALL_BELOW = 17
#: Upper bound of the sizes that are asked for so that windows fit.
_LARGEST = 2048
#: Sizes behind larger strides are not varied.
_LARGEST_STRIDE = 32
#: Upper bound of the elements of an input (128 MiB of float32); more is compared in the model only.
_MOST_ELEMENTS = 2**25


def find(original: ReferenceModel, seed: int) -> tuple[Search, Trial] | str:
    """Run the original's part of a region on generated data; or return why that is impossible.

    Raises:
        RunFailure: something in the part cannot be run at all.
    """
    infos = original.known_infos
    inputs = [reference_runs.with_rank(i, infos) for i in original.inputs]
    if unknown := [i.name for i in inputs if i.dims is None and i.default is None]:
        return f"the rank of {unknown[0]!r} is unknown"
    sizes = [math.prod(d for d in i.dims or () if isinstance(d, int)) for i in inputs]
    if max(sizes, default=0) > _MOST_ELEMENTS:
        return "its inputs are very large"
    candidates = Candidates(original.source.proto, inputs, infos, original.source.folder)
    search = Search(
        original.program,
        inputs,
        {},
        candidates,
        seed,
        lambda _: None,
        SECONDS,
        large=False,  # that is compared in the model only
    )
    first = search.first()
    if first is None:
        reason = f": {search.last_failure}" if search.last_failure is not None else ""
        return f"no legal sizes were found for the fused nodes{reason}"
    return search, first


def further(
    search: Search, first: Trial, region: MatchingRegion, infos: Sequence[OperatorInfo]
) -> list[Trial]:
    """Run the original's part at further sizes: usual ones, large ones, one of each remainder."""
    trials = [*search.others(first), *search.corners(first)]
    trials += search.larger(first, _size_with_all_taps(region.before, infos))
    large = search.large()
    nodes = (*region.before.nodes, *region.after.nodes)
    sums = any(op_traits.of(node).traits & (Trait.PRODUCTS | Trait.WINDOWS) for node in nodes)
    trials += large.long(first, sums=sums)
    before, after = (
        set(stored_integers(part.stored, part.nodes)) for part in (region.before, region.after)
    )
    trials += large.beyond(first, sorted(after - before), _ALL_BELOW)
    if not _depends_on_sizes(region):
        return trials
    strides = _strides(region.before.nodes) | _strides(region.after.nodes)
    return trials + large.remainders(first, strides)


def differing(search: Search, first: Trial, proof: Proof | None) -> tuple[list[Trial], str | None]:
    """Run the original's part at the sizes at which the prover found a difference.

    Returns:
        the runs, and why a difference is left open: sizes that are too large to run.
    """
    trials: list[Trial] = []
    too_large = False
    large = search.large()
    for shapes in proof.sizes if proof is not None else ():
        try:
            trial = large.at(first, shapes)
        except TooLargeError:
            too_large = True
            continue
        trials += [trial] if trial is not None else []
    if proof is None or not too_large:
        return trials, None
    return trials, f"at sizes that are too large to run, {proof.reason}"


def _depends_on_sizes(region: MatchingRegion) -> bool:
    """Return whether a part reads sizes, or has strides, which leave remainders of them."""
    for node in (*region.before.nodes, *region.after.nodes):
        traits = op_traits.of(node).traits
        if Trait.SIZES in traits or (Trait.WINDOWS in traits and _stride(node) > 1):
            return True
    return bool(region.sites)


def _strides(nodes: Iterable[onnx.NodeProto]) -> set[int]:
    """Return the strides of values from the first one on, if all nodes lie behind each other."""
    strides = itertools.accumulate(map(_stride, nodes), operator.mul)
    return {stride for stride in strides if 1 < stride <= _LARGEST_STRIDE}


def _stride(node: onnx.NodeProto) -> int:
    return max((n for a in node.attribute if a.name == "strides" for n in a.ints), default=1)


def _size_with_all_taps(part: Part, infos: Sequence[OperatorInfo]) -> int:
    """Return a size at which all taps of all windows meet data."""
    step = 1
    for info in infos:
        if isinstance(info.call, BlockCall) and info.call.block.values is not None:
            step = math.lcm(step, *info.call.block.values)
    shapes = {t.name: t.dims for t in part.stored}
    return min(_LARGEST, step * (2 + sum(_reach(node, shapes) for node in part.nodes)))


def _reach(node: onnx.NodeProto, stored: Mapping[str, Iterable[int]]) -> int:
    """Return the distance between the first and the last element of one window of a node."""
    known = op_traits.of(node)
    if Trait.WINDOWS not in known.traits:
        return 0
    attributes = {a.name: list(a.ints) for a in node.attribute}
    weight = "" if known.weight is None else (*node.input, *[""] * 4)[known.weight]
    kernel = attributes.get("kernel_shape") or list(stored.get(weight, ()))[2:]
    dilations = attributes.get("dilations") or [1] * len(kernel)
    return max(((k - 1) * d for k, d in zip(kernel, dilations, strict=False)), default=0)
