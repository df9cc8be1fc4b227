"""Find the parts of paths that are patches: around a one-hot Conv, or around Gathers of windows.

    x -> Transpose -> Conv, one-hot -> Transpose -> y                       Keras 3
    x -> Transpose -> Reshape [N*C, 1, H, W] -> Conv, one-hot -> ... -> y   tf2onnx
    x -> Pad -> Gather rows -> Gather columns -> Transpose -> Reshape -> y  torch.nn.Unfold (im2col)

The longest part of a path around these nodes is taken whose map is that of patches.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import onnx

from onnx_spatial.chains.chain_map import ChainMap, GraphScope
from onnx_spatial.chains.patches import Likely, Patches, is_patches, read
from onnx_spatial.chains.paths import Path
from onnx_spatial.lowering.core import cost_model
from onnx_spatial.lowering.core.padding import numpy_dtype
from onnx_spatial.lowering.core.sizes import typical_sides
from onnx_spatial.maps.budget import Budget
from onnx_spatial.maps.cases import Case, UndecidedError
from onnx_spatial.maps.graph import RULES
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.operators.spellings.call import TYPICAL_BATCH

#: The most cases in which patches are read, and the most guesses that are proven for a part.
_CASES, _GUESSES = 16, 24

#: Steps (`Budget`) for reading patches, for a proof, and for a path.
_READ_STEPS, _PROOF_STEPS, _PATH_STEPS = 40_000, 80_000, 200_000

#: The nodes that read each value of a graph; None for an output of the graph.
Readers = Mapping[str, list[onnx.NodeProto | None]]

_SIZES = op_traits.having(Trait.SIZES)

#: The most nodes in front of the Conv or the Gathers, and behind them.
_FAR = 8

#: Microseconds of a Conv in onnxruntime with one thread: for the node, for an image, for an element of
#: the windows that it gathers, and for a multiplication and addition. Fitted to 16 one-hot Convs of 5 to
#: 7,000 microseconds, within 20 %, and scaled to the machine of `lowering.core.cost_model`.
_CONV, _IMAGE, _GATHERED, _PRODUCT = 1.5, 0.05, 0.00018, 0.000006


@dataclass(frozen=True)
class PatchesPart:
    """A part of a path that is patches.

    Attributes:
        path: the path.
        start, end: positions of its first and its last value.
        patches: the patches.
        one_hot: whether a one-hot Conv is in it.
        cost: estimated microseconds of its Conv, Gathers and Transposes in a run, less those of
            Transposes that the patches need.
    """

    path: Path
    start: int
    end: int
    patches: Patches
    one_hot: bool
    cost: float


def find_patches(
    graph: GraphScope, paths: Collection[Path], readers: Readers, budget: Budget
) -> list[PatchesPart]:
    """Return the parts of the paths of a graph that are patches.

    Args:
        graph: the graph.
        paths: its paths, through one-hot Convs too.
        readers: the nodes that read each value, None for an output of the graph.
        budget: of the search.
    """
    parts: dict[str, PatchesPart] = {}
    for path in paths:
        for first, last in _cores(graph, path):
            core = path.values[last]
            if core not in parts:
                share = Budget(_PATH_STEPS, within=budget)
                part = _Search(graph, path, readers, share).longest(first, last)
                if part is not None:
                    parts[core] = part
    return list(parts.values())


def _cores(graph: GraphScope, path: Path) -> Iterator[tuple[int, int]]:
    """Yield the values in front of and behind one-hot Convs, and behind Gathers of windows."""
    gathers: list[int] = []
    for step, nodes in enumerate(path.nodes):
        if any(name in graph.one_hot for node in nodes for name in node.output):
            yield step, step + 1
        if len(nodes) == 1 and _gathers_windows(graph, nodes[0]):
            gathers.append(step)
    if gathers and len(gathers) <= 3:
        yield gathers[0], gathers[-1] + 1


def _gathers_windows(graph: GraphScope, node: onnx.NodeProto) -> bool:
    """Return whether a Gather has a table of indices: the places of each window."""
    if node.op_type != "Gather" or len(node.input) < 2:
        return False
    dims = graph.dims(node.input[1])
    return dims is not None and len(dims) == 2


class _Search:
    """The search along one path, within a budget."""

    def __init__(self, graph: GraphScope, path: Path, readers: Readers, budget: Budget) -> None:
        self._graph, self._path, self._readers = graph, path, readers
        self._budget = budget

    def longest(self, first: int, last: int) -> PatchesPart | None:
        """Return the longest part around a core that is patches; None if there is none."""
        values = self._path.values
        most = last
        while most + 1 < len(values) and most < last + _FAR and self._goes(most):
            most += 1
        if not all(map(self._goes, range(first + 1, last))):
            return None
        parts = [
            (start, end)
            for start in range(max(0, first - _FAR), first + 1)
            for end in range(last, most + 1)
        ]
        for start, end in sorted(parts, key=lambda part: (part[0] - part[1], part[0])):
            if self._budget.is_exhausted:
                return None
            if len(self._path.nodes[end - 1][0].output) != 1:
                continue
            for patches in self._guesses(start, end):
                if is_patches(patches, partial(self._map, start, end), self._case(_PROOF_STEPS)):
                    return self._part(start, end, first, patches)
        return None

    def _goes(self, position: int) -> bool:
        """Return whether nothing but the path reads a value, so that nodes up to it can go."""
        return self._serves(
            self._path.values[position], {id(n) for n in self._path.nodes[position]}
        )

    def _serves(self, name: str, ends: Collection[int], far: int = _FAR) -> bool:
        """Return whether a value only leads to some nodes, and by its sizes to nodes of the path."""
        inside = {id(node) for step in self._path.nodes for node in step}
        for node in self._readers.get(name, ()):
            if node is None or not far:
                return False
            if id(node) in ends:
                continue
            sizes = node.op_type in _SIZES if far == _FAR else node.op_type in RULES
            if not sizes or not all(self._serves(o, inside, far - 1) for o in node.output):
                return False
        return True

    def _case(self, steps: int) -> Case:
        return Case(Budget(steps, within=self._budget))

    def _map(self, start: int, end: int, case: Case) -> ChainMap:
        return ChainMap(case, self._graph, self._path, start, end)

    def _likely(self, start: int, end: int) -> Likely | None:
        """Return what the one-hot Conv of a part says of the patches; None if there is none."""
        for node in (node for nodes in self._path.nodes[start:end] for node in nodes):
            copying = self._graph.one_hot.get(node.output[0])
            if copying is not None:
                lists = {a.name: tuple(a.ints) for a in copying.attribute}
                kernel = lists["kernel_shape"]
                strides = lists.get("strides", (1,) * len(kernel))
                return Likely(kernel, strides, lists.get("pads", ())[len(kernel) :])
        return None

    def _guesses(self, start: int, end: int) -> list[Patches]:
        """Return what a part may be, read in several cases."""
        dims = self._graph.dims(self._path.values[start])
        if dims is None or 0 in dims:
            return []
        case, likely = self._case(_READ_STEPS), self._likely(start, end)

        def body() -> list[Patches]:
            chain = self._map(start, end, case)
            return list(read(case, chain.source, chain.x, chain.y, likely))

        guesses: dict[Patches, None] = {}
        try:
            for found in islice(case.all(body), _CASES):
                guesses.update(dict.fromkeys(found))
                if found:
                    break
        except (UndecidedError, ArithmeticError, LookupError, TypeError, ValueError):
            pass
        return list(guesses)[:_GUESSES]

    def _part(self, start: int, end: int, first: int, patches: Patches) -> PatchesPart:
        values = self._path.values
        dtype = numpy_dtype(self._graph.element_type(values[start]))
        itemsize = 4 if dtype is None else dtype.itemsize
        dims = self._sizes(values[start])
        extents = _extents(patches, dims)
        cost = -_arrangement(patches, dims, extents, itemsize)
        one_hot = self._likely(start, end) is not None
        if one_hot:
            cost += self._one_hot_cost(start, end, first, itemsize)
            # The Conv fails where no window fits; Gathers give nothing then.
            patches = replace(patches, operator=replace(patches.operator, clamp_negative=False))
        else:
            cost += _gathers_cost(patches, dims, extents, itemsize)
        return PatchesPart(self._path, start, end, patches, one_hot, max(cost, 0.0))

    def _one_hot_cost(self, start: int, end: int, conv: int, itemsize: int) -> float:
        """Estimate the microseconds of a one-hot Conv, and of the Transposes around it."""
        cost, behind = 0.0, list[float]()
        for step in range(start, end):
            source, result = (self._sizes(name) for name in self._path.values[step : step + 2])
            for node in self._path.nodes[step]:
                copying = self._graph.one_hot.get(node.output[0])
                if copying is not None:
                    cost += _conv_cost(copying, result)
                elif node.op_type == "Transpose":
                    perm = next((a.ints for a in node.attribute if a.name == "perm"), None)
                    order = tuple(reversed(range(len(source)))) if perm is None else tuple(perm)
                    work = cost_model.transpose(source, order, itemsize)
                    if step > conv:
                        behind.append(work.nanoseconds / 1000)
                    else:
                        cost += work.nanoseconds / 1000
        if len(behind) > 1:  # onnxruntime merges them to one, element by element
            count = math.prod(self._sizes(self._path.values[conv + 1]))
            return cost + cost_model.elementwise(count, count * itemsize).nanoseconds / 1000
        return cost + sum(behind)

    def _sizes(self, name: str) -> tuple[int, ...]:
        """Return the dims of a value; an estimate for those that are unknown."""
        dims = self._graph.dims(name) or ()
        typical = [typical_sides(dims)[0] if axis else TYPICAL_BATCH for axis in range(len(dims))]
        return tuple(d if isinstance(d, int) else t for d, t in zip(dims, typical, strict=True))


def _extents(patches: Patches, dims: Sequence[int]) -> list[int]:
    """Return the extent of each digit of patches."""
    op, image = patches.operator, [dims[axis] for axis in patches.before]
    windows = [
        max(1, op.output_size(i, max(image[axis] + sum(patches.pads[i]), op.extent(i))))
        for i, axis in enumerate(op.spatial_axes)
    ]
    return [image[0], *windows, *op.kernel, image[op.channel_axis]]


def _arrangement(
    patches: Patches, dims: Sequence[int], extents: Sequence[int], itemsize: int
) -> float:
    """Estimate the microseconds of the Transposes around the operator."""
    split = [d for axis in patches.digits for d in axis if d in patches.order]
    sizes, perm = [extents[d] for d in split], [split.index(d) for d in patches.order]
    works = (
        cost_model.transpose(tuple(shape), tuple(order), itemsize)
        for shape, order in ((dims, patches.before), (sizes, perm))
        if list(order) != sorted(order)
    )
    return sum(work.nanoseconds for work in works) / 1000


def _gathers_cost(
    patches: Patches, dims: Sequence[int], extents: Sequence[int], itemsize: int
) -> float:
    """Estimate the microseconds of a Gather for each spatial axis, and of the Transpose behind them."""
    op, axes = patches.operator, patches.axes
    sizes = [extents[0], extents[-1], *(dims[patches.before[axis]] for axis in op.spatial_axes)]
    order = [0, 1]
    cost = 0.0
    for number in range(axes):
        sizes[2 + number] = extents[1 + number] * op.kernel[number]
        count = math.prod(sizes)
        row = math.prod(sizes[3 + number :])
        cost += cost_model.gather(count // max(1, row), count * itemsize).nanoseconds
        order.append(2 + 2 * number)
    order += [place + 1 for place in order[2:]]
    split = [extents[0], extents[-1]]
    for number in range(axes):
        split += [op.kernel[number], extents[1 + number]]
    return (cost + cost_model.transpose(tuple(split), tuple(order), itemsize).nanoseconds) / 1000


def _conv_cost(copying: onnx.NodeProto, result: Sequence[int]) -> float:
    """Estimate the microseconds of a one-hot Conv with a result of these dims."""
    known = {a.name: onnx.helper.get_attribute_value(a) for a in copying.attribute}
    group = int(known["group"])
    outputs = int(math.prod(known["kernel_shape"]) * known["channels"] // group)
    return _CONV + _IMAGE * result[0] * group + (_GATHERED + _PRODUCT * outputs) * math.prod(result)
