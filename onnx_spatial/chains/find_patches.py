"""Find the parts of paths that are patches: around a one-hot Conv, or around Gathers of windows.

    x -> Transpose -> Conv, one-hot -> Transpose -> y                       Keras 3
    x -> Transpose -> Reshape [N*C, 1, H, W] -> Conv, one-hot -> ... -> y   tf2onnx
    x -> Pad -> Gather rows -> Gather columns -> Transpose -> Reshape -> y  torch.nn.Unfold (im2col)

The longest part of a path around these nodes is taken whose map is that of patches, if all of its nodes
can go.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import onnx

from onnx_spatial.chains import patches as definition
from onnx_spatial.chains.access import Access
from onnx_spatial.chains.chain_map import ChainMap, GraphScope
from onnx_spatial.chains.patches import Likely, Patches
from onnx_spatial.chains.paths import DataGraph, Path
from onnx_spatial.chains.pricing import dims_for_sizes, price_node
from onnx_spatial.chains.reading import Readings
from onnx_spatial.lowering.core import cost_model
from onnx_spatial.lowering.core.padding import numpy_dtype
from onnx_spatial.lowering.core.sizes import typical_sides
from onnx_spatial.maps.facts import Budget
from onnx_spatial.operators.spellings.call import TYPICAL_BATCH

#: The most guesses that are proven for a part.
_MAX_GUESSES = 24

#: Steps (`Budget`) for a proof, and for a path.
_PROOF_STEPS, _PATH_STEPS = 80_000, 200_000

#: The most nodes in front of the Conv or the Gathers, and behind them.
_MAX_NODES_AROUND = 8


@dataclass(frozen=True)
class PatchesPart:
    """A part of a path that is patches.

    Attributes:
        path: the part.
        patches: the patches.
        one_hot: whether a one-hot Conv is in it.
        cost: estimated microseconds of its nodes in a run, less those of Transposes that the patches
            need.
    """

    path: Path
    patches: Patches
    one_hot: bool
    cost: float


def paths_of_patches(data: DataGraph) -> list[Path]:
    """Return the paths of a graph that may hold patches: through one-hot Convs, or Gathers of tables."""

    def may_hold_them(node: onnx.NodeProto) -> bool:
        is_table = node.op_type == "Gather" and node.input[1] not in data.numbers
        return is_table or node.op_type == "Conv"

    every = data.longest_paths(lambda step: not step.changes)
    return [path for path in every if any(map(may_hold_them, path.lasts))]


def find_patches(
    graph: GraphScope, data: DataGraph, paths: Sequence[Path], budget: Budget
) -> Iterator[PatchesPart]:
    """Yield the parts of paths that are patches.

    Args:
        graph: the graph.
        data: its data.
        paths: its paths that may hold patches.
        budget: of the search.
    """
    cores = set[str]()
    for path in paths:
        for first, last in _find_cores(graph, path):
            if path.values[last] not in cores:
                share = Budget(_PATH_STEPS, within=budget)
                part = _longest_patches(graph, data, path, (first, last), share)
                if part is not None:
                    cores.add(path.values[last])
                    yield part


def _find_cores(graph: GraphScope, path: Path) -> Iterator[tuple[int, int]]:
    """Yield the values in front of and behind one-hot Convs, and behind Gathers of windows."""
    gathers: list[int] = []
    for number, node in enumerate(path.lasts):
        if node.output[0] in graph.one_hot:
            yield number, number + 1
        elif node.op_type == "Gather" and len(graph.dims(node.input[1]) or ()) == 2:
            gathers.append(number)  # a table: the places of each window
    if gathers and len(gathers) <= 3:
        yield gathers[0], gathers[-1] + 1


def _longest_patches(
    graph: GraphScope, data: DataGraph, path: Path, core: tuple[int, int], budget: Budget
) -> PatchesPart | None:
    """Return the longest part around a core that is patches; None if there is none."""
    first, last = core
    readings = Readings(graph, budget, _PROOF_STEPS)
    starts = range(max(0, first - _MAX_NODES_AROUND), first + 1)
    ends = range(last, min(len(path.steps), last + _MAX_NODES_AROUND) + 1)
    for start, end in sorted(itertools.product(starts, ends), key=lambda s: (s[0] - s[1], s)):
        part = path.part(start, end)
        dims = graph.dims(part.values[0])
        if budget.is_exhausted or dims is None or 0 in dims or len(part.lasts[-1].output) != 1:
            continue
        freed = {id(node) for node in data.freed_nodes(part)}
        if not all(id(node) in freed for node in path.part(first, end).nodes):
            continue
        conv = next((c for n in part.lasts if (c := graph.one_hot.get(n.output[0]))), None)
        guesses = dict(
            islice(
                readings.read_path(part, partial(_read_patches, part, dims, conv), None),
                _MAX_GUESSES,
            )
        )
        for patches, sizes in guesses.items():
            if readings.is_operator(part, definition, patches):
                cost = _part_cost(graph, part, patches, sizes, conv)
                # The Conv fails where no window fits; Gathers give nothing then.
                operator = replace(patches.operator, clamp_negative=conv is None)
                return PatchesPart(
                    part, replace(patches, operator=operator), conv is not None, cost
                )
    return None


def _read_patches(
    path: Path,
    dims: Sequence[object],
    conv: onnx.NodeProto | None,
    chain: ChainMap,
    form: Access,
) -> Iterator[tuple[Patches, Mapping[str, list[int]]]]:
    """Yield what a path may be, and typical dims of its values."""
    likely = Likely()
    if conv is not None:
        lists = {a.name: tuple(a.ints) for a in conv.attribute}
        kernel = lists["kernel_shape"]
        strides = lists.get("strides", (1,) * len(kernel))
        likely = Likely(kernel, strides, lists.get("pads", ())[len(kernel) :])
    side = typical_sides(dims)[0]
    typical = [
        d if isinstance(d, int) else side if axis else TYPICAL_BATCH for axis, d in enumerate(dims)
    ]
    for patches in definition.read(form, likely):
        yield patches, dims_for_sizes(chain, path, typical, side)


def _part_cost(
    graph: GraphScope,
    path: Path,
    patches: Patches,
    dims: Mapping[str, Sequence[int]],
    conv: onnx.NodeProto | None,
) -> float:
    """Estimate the microseconds of a part, less those of Transposes that the patches need."""
    dtype = numpy_dtype(graph.element_type(path.values[0]) or 1)
    itemsize = 4 if dtype is None else dtype.itemsize
    cost, behind = 0.0, list[float]()
    is_behind = False
    for step, source, result in zip(path.steps, path.values, path.values[1:], strict=False):
        node = graph.one_hot.get(step.last.output[0], step.last)
        time = price_node(node, dims[source], dims[result], itemsize)
        if is_behind and node.op_type == "Transpose":
            behind.append(time)
        elif node.op_type in ("Transpose", "Gather") or node is conv:
            cost += time
        is_behind = is_behind or node is conv
    if len(behind) > 1:  # onnxruntime merges them to one, element by element
        count = math.prod(dims[path.values[-1]])
        merged = cost_model.copies("transpose elements", count, count * itemsize)
        behind = [merged.nanoseconds / 1000]
    return max(
        0.0, cost + sum(behind) - _cost_of_transposes(patches, dims[path.values[0]], itemsize)
    )


def _cost_of_transposes(patches: Patches, dims: Sequence[int], itemsize: int) -> float:
    """Estimate the microseconds of the Transposes around the operator."""
    op, image = patches.operator, [dims[axis] for axis in patches.before]
    windows = [
        max(1, op.output_size(i, max(image[axis] + sum(patches.pads[i]), op.extent(i))))
        for i, axis in enumerate(op.spatial_axes)
    ]
    extents = [image[0], *windows, *op.kernel, image[op.channel_axis]]
    split = [d for axis in patches.digits for d in axis if d in patches.order]
    sizes, perm = [extents[d] for d in split], [split.index(d) for d in patches.order]
    works = (
        cost_model.transpose(tuple(shape), tuple(order), itemsize)
        for shape, order in ((dims, patches.before), (sizes, perm))
        if list(order) != sorted(order)
    )
    return sum(work.nanoseconds for work in works) / 1000
