"""Find sizes for a region, and data: as for a whole model, and sizes at which every tap meets data.

A convolution whose outer taps only ever meet padding could have any weights there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import onnx

from onnx_spatial.analysis import OperatorInfo
from onnx_spatial.model.io import reader
from onnx_spatial.operators.spellings import BlockCall
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.sizes.candidate_sizes import Candidates
from onnx_spatial.verification.sizes.model_inputs import GraphInput
from onnx_spatial.verification.sizes.size_search import Search
from onnx_spatial.verification.sizes.trial_runs import Trial
from onnx_spatial.verification.subgraphs.value_graph import Part

#: Seconds of a search for sizes.
SECONDS = 2.0
#: Upper bound of the sizes that are asked for so that windows fit.
_LARGEST = 2048
#: Upper bound of the elements of an input (128 MiB of float32); more is compared in the model only.
_MOST_ELEMENTS = 2**25


def unknown(inputs: Sequence[GraphInput]) -> str | None:
    """Return why inputs cannot be generated; None if they can."""
    no_rank = [i.name for i in inputs if i.dims is None and i.default is None]
    if no_rank:
        return f"the rank of {no_rank[0]!r} is not known here"
    sizes = [math.prod(d for d in i.dims or () if isinstance(d, int)) for i in inputs]
    return "its inputs are very large" if max(sizes, default=0) > _MOST_ELEMENTS else None


def find(
    program: Program,
    source: reader.Source,
    part: Part,
    inputs: Sequence[GraphInput],
    infos: Sequence[OperatorInfo],
    seed: int,
) -> tuple[Search, list[Trial]] | str:
    """Run the original's part of a region on generated data; or return why there are no sizes.

    Args:
        program: the part, ready to run.
        source: the part as a model of its own.
        part: the part as nodes.
        inputs, infos: its inputs and its spatial operators.
        seed: of the data.
    """
    candidates = Candidates(source.proto, inputs, infos, source.folder)
    search = Search(
        program,
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
        return f"no sizes were found for the nodes that it was fused with{reason}"
    trials = [first, *search.others(first), *search.corners(first)]
    return search, [*trials, *search.larger(first, _size_with_all_taps(part, infos))]


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
    if node.op_type not in ("Conv", "ConvTranspose", "MaxPool", "AveragePool"):
        return 0
    attributes = {a.name: list(a.ints) for a in node.attribute}
    kernel = attributes.get("kernel_shape") or list(stored.get((*node.input, "", "")[1], ()))[2:]
    dilations = attributes.get("dilations") or [1] * len(kernel)
    return max(((k - 1) * d for k, d in zip(kernel, dilations, strict=False)), default=0)
