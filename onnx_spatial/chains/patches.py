"""Find the parts of paths that are patches: windows of an image or volume, moved to other axes.

    y[n, i, j, k; l; c] = x[n, i*s + k*r - p, j*s + l*r - p, c]    channels last, places before channels
    y[n, c; k; l, i; j] = x[n, c, i*s + k*r - p, j*s + l*r - p]    torch.nn.Unfold

1. What patches are: a digit of the output's index (`Tensor.axes`) is the image, a window or a place in
   the window along one axis, or the channel. The output may have them in any order, joined to axes in
   any way.
2. Reading: a guess from one case, the likeliest first, which is proven for all sizes.
3. The search around a one-hot Conv, or Gathers of windows: the longest part of a path that is patches is
   taken, if all of its nodes can go.

       x -> Transpose -> Conv, one-hot -> Transpose -> y                       Keras 3
       x -> Transpose -> Reshape [N*C, 1, H, W] -> Conv, one-hot -> ... -> y   tf2onnx
       x -> Pad -> Gather rows -> Gather columns -> Transpose -> Reshape -> y  torch.nn.Unfold (im2col)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import onnx

from onnx_spatial.chains.chain_map import ChainMap, GraphScope
from onnx_spatial.chains.paths import DataGraph, Path
from onnx_spatial.chains.pricing import dims_for_sizes, estimate_dims, price_node
from onnx_spatial.chains.reading import IN, MAX_READINGS, OUT, Access, Digit, Readings
from onnx_spatial.lowering import cost_model, transpose_cost
from onnx_spatial.lowering.request import itemsize_of
from onnx_spatial.lowering.sizes import typical_sides
from onnx_spatial.maps import operators
from onnx_spatial.maps.cases import Case
from onnx_spatial.maps.facts import Budget
from onnx_spatial.maps.polynomial import ONE, ZERO, Polynomial
from onnx_spatial.maps.rules_reshape import rearranged, transposed
from onnx_spatial.maps.rules_select import padded
from onnx_spatial.maps.tensor import Tensor
from onnx_spatial.operators import Dim, ExtractPatches
from onnx_spatial.operators.patches import AutoPad, Layout
from onnx_spatial.operators.spellings.call import TYPICAL_FACTOR

#: The largest kernel along an axis, stride, rate and pad that are tried.
_MAX_WINDOW_PARAMETER = 1 << 12


@dataclass(frozen=True)
class Patches:
    """ExtractPatches behind a Transpose and a Pad, and how its digits are arranged behind it.

    A digit has a number: 0 the image, 1 .. d the windows along each spatial axis, d + 1 .. 2*d the
    places in a window along each, 2*d + 1 the channel.

    Attributes:
        operator: the operator; its output has digits in the order of its layout and of its `major`.
        before: permutation of the axes in front of it.
        pads: zeros in front of and behind each spatial axis, beside those of the operator.
        groups: for each axis of the result the digits that it joins.
        channels: number of input channels; None if only the run knows it.
    """

    operator: ExtractPatches
    before: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    groups: tuple[tuple[int, ...], ...]
    channels: int | None

    @property
    def axes(self) -> int:
        """Number of spatial axes."""
        return len(self.operator.kernel)

    @property
    def digits(self) -> tuple[tuple[int, ...], ...]:
        """The digits of each axis of the operator's output."""
        windows = [(1 + i,) for i in range(self.axes)]
        places, channel = tuple(range(self.axes + 1, 2 * self.axes + 1)), 2 * self.axes + 1
        by_place = self.operator.major == "place"
        depth = (*places, channel) if by_place else (channel, *places)
        if self.operator.layout == "channels_last":
            return ((0,), *windows, depth)
        return ((0,), depth, *windows)

    def channels_last(self) -> Patches:
        """Return the same patches by an operator with channels last, between Transposes if need be."""
        if self.operator.layout == "channels_last":
            return self
        images, channel, *spatial = self.before
        operator = replace(self.operator, layout="channels_last")
        return replace(self, operator=operator, before=(images, *spatial, channel))

    @property
    def fills_batches(self) -> bool:
        """Whether a place of each window and the image share an axis, as behind SpaceToBatch."""
        places = {*range(self.axes + 1, 2 * self.axes + 1)}
        return any(0 in group and not places.isdisjoint(group) for group in self.groups)

    @property
    def order(self) -> tuple[int, ...]:
        """The digits in the order of the result; those of size 1 may be missing."""
        return tuple(digit for group in self.groups for digit in group)

    def divisions(self, case: Case, chain: ChainMap) -> None:
        """Divide no size; that a window fits may be assumed."""

    def expected(self, case: Case, chain: ChainMap) -> Tensor:
        """Return the map of the result of the patches of a chain's data."""
        op = self.operator
        x = transposed(case, chain.x, self.before)
        pads = {
            axis: (Polynomial.of(begin), Polynomial.of(end))
            for axis, (begin, end) in zip(op.spatial_axes, self.pads, strict=True)
        }
        x = padded(case, x, {axis: pair for axis, pair in pads.items() if pair != (ZERO, ZERO)})
        y = operators.apply(case, ExtractPatches, op, x)
        extents = [x.dims[0], *(y.dims[axis] for axis in op.spatial_axes)]
        extents += [*map(Polynomial.of, op.kernel), x.dims[op.channel_axis]]
        for digit in {*range(len(extents))}.difference(self.order):
            case.require_equal(extents[digit], ONE, "a digit is missing")
        axes = [[digit for digit in axis if digit in self.order] for axis in self.digits]
        return rearranged(case, y, dict(enumerate(extents)), axes, self.groups)


@dataclass(frozen=True)
class _Window:
    """A spatial axis: the digits of windows and places, and the parameters."""

    axis: int
    window: Digit | None
    place: Digit | None
    kernel: int
    stride: int
    rate: int
    begin: Polynomial


class _PatchReader:
    """Reads patches from an access form.

    Args:
        form: the form.
        known: the attributes of the Conv that moves the data: kernel_shape, strides and pads say what is
            likely. Without them windows side by side are, or small ones.
    """

    def __init__(self, form: Access, known: Mapping[str, tuple[int, ...]]) -> None:
        self._form, self._dims = form, form.dims[IN]
        self._kernel = known.get("kernel_shape", ())
        self._strides = known.get("strides", (1,) * len(self._kernel))
        self._ends = known.get("pads", ())[len(self._kernel) :]

    def patches(self) -> Iterator[Patches]:
        """Yield the patches that the form may be, the likeliest first."""
        rank = len(self._dims)
        if rank not in (3, 4, 5):  # signals, images and volumes
            return
        needed = {axis for axis in range(rank) if not self._is_plain(axis)}
        rows = [
            (layout, row)
            for layout, spatial in self._likely_layouts(needed, rank)
            for row in itertools.product(
                *(list(self._likely_windows(*each)) for each in enumerate(spatial))
            )
        ]
        for layout, row in sorted(rows, key=lambda each: self._windows_rank(each[1])):
            yield from self._with_pads(layout, row)

    def _windows_rank(self, row: Sequence[_Window]) -> tuple[bool, bool, int]:
        """Return how likely windows are, the likeliest first."""
        kernel = tuple(w.kernel for w in row)
        apart = any((w.stride, w.rate) != (w.kernel, 1) for w in row)
        return kernel != self._kernel, apart, math.prod(kernel)

    def _is_plain(self, axis: int) -> bool:
        """Return whether the index along an axis is that of a digit."""
        factors = [d.factors[IN] for d in self._form.digits_along(IN, axis)]
        plain = factors == [ONE] or (not factors and self._dims[axis] == ONE)
        return plain and self._form.rests[IN][axis] == ZERO

    @staticmethod
    def _likely_layouts(needed: set[int], rank: int) -> Iterator[tuple[Layout, tuple[int, ...]]]:
        """Yield layouts and spatial axes: those of the usual layouts, else any with a Transpose."""
        first, last = tuple(range(2, rank)), tuple(range(1, rank - 1))
        usual = [
            (name, axes)
            for name, axes in (("channels_first", first), ("channels_last", last))
            if needed <= set(axes)
        ]
        yield from usual  # type: ignore[misc]
        if not usual and len(needed) == rank - 2:
            yield "channels_last", tuple(sorted(needed))

    def _likely_windows(self, number: int, axis: int) -> Iterator[_Window]:
        """Yield what the digits along spatial axis number `number` may be."""
        row = self._form.digits_along(IN, axis)
        steps = [d.factors[IN].constant or 0 for d in row]
        if len(row) > 2 or any(not 0 < step <= _MAX_WINDOW_PARAMETER for step in steps):
            return
        # With one digit it is a window, or a place in the only window.
        digits: list[tuple[Digit | None, int]] = [*zip(row, steps, strict=True)]
        digits += [(None, 0)] * (2 - len(row))
        for (window, step), (place, rate) in itertools.permutations(digits):
            kernel = 1 if place is None else place.extent.constant
            if kernel is None or kernel > _MAX_WINDOW_PARAMETER:
                continue
            # Where there is one window, no stride shows.
            size = self._dims[axis]
            known = (*self._strides[number : number + 1], size.constant or 1)
            alone = 1 if kernel == 1 and size == ONE else known[0]
            stride = alone if window is None else step
            begin = -self._form.rests[IN][axis]
            yield _Window(axis, window, place, kernel, stride, rate or 1, begin)

    def _with_pads(self, layout: Layout, windows: Sequence[_Window]) -> Iterator[Patches]:
        """Yield the patches with these windows, and with every padding that is likely."""
        spatial = [w.axis for w in windows]
        images, channel = (axis for axis in range(len(self._dims)) if axis not in spatial)
        if not (self._is_plain(images) and self._is_plain(channel)):
            return
        groups = self._groups_of_digits(images, channel, windows)
        order = [digit for group in groups for digit in group]
        depth = [digit for digit in order if digit > len(windows)]
        has_windows = any(0 < digit <= len(windows) for digit in order)
        if has_windows and order[-len(depth) :] == depth:
            layout = "channels_last"  # a Transpose of the data is cheaper than one of the patches
        is_last = layout == "channels_last"
        before = (images, *spatial, channel) if is_last else (images, channel, *spatial)
        by_channel = len(depth) > 1 and depth[0] == 2 * len(windows) + 1
        operator = ExtractPatches(
            tuple(w.kernel for w in windows),
            tuple(w.stride for w in windows),
            tuple(w.rate for w in windows),
            "valid",
            layout,
            clamp_negative=True,
            major="channel" if by_channel else "place",
        )
        none = ((0, 0),) * len(windows)
        patches = Patches(operator, before, none, groups, self._dims[channel].constant)
        begins = [w.begin.constant for w in windows]
        if begins == [0] * len(windows):
            yield patches
        same: tuple[AutoPad, ...] = ("same_upper", "same_lower")
        for auto_pad in same:
            if any(b is None or b for b in begins) or operator.kernel != operator.strides:
                yield replace(patches, operator=replace(operator, auto_pad=auto_pad))
        known = [b for b in begins if b is not None and 0 <= b <= _MAX_WINDOW_PARAMETER]
        if len(known) == len(windows):
            for pads in self._likely_pads(operator, windows, known):
                yield replace(patches, pads=pads)

    def _groups_of_digits(
        self, images: int, channel: int, windows: Sequence[_Window]
    ) -> tuple[tuple[int, ...], ...]:
        """Return the numbers of the digits along each axis of the output, see `Patches`."""
        number_of: dict[Digit | None, int] = {}
        for i, window in enumerate(windows):
            number_of |= {window.window: 1 + i, window.place: 1 + len(windows) + i}
        for axis, number in ((images, 0), (channel, 2 * len(windows) + 1)):
            number_of.update(dict.fromkeys(self._form.digits_along(IN, axis), number))
        axes = (self._form.digits_along(OUT, axis) for axis in range(len(self._form.dims[OUT])))
        return tuple(tuple(number_of[digit] for digit in axis) for axis in axes)

    def _likely_pads(
        self, operator: ExtractPatches, row: Sequence[_Window], begins: Sequence[int]
    ) -> Iterator[tuple[tuple[int, int], ...]]:
        """Yield pads: at the end as many as are known, as the windows need, or as at the begin."""
        ends: list[list[int]] = []
        for i, (w, begin) in enumerate(zip(row, begins, strict=True)):
            size = self._dims[w.axis].constant
            extent = 1 if w.window is None else w.window.extent.constant
            if size is not None and extent is not None:
                needed = (extent - 1) * w.stride + operator.extent(i) - size - begin
                behind = [needed] if 0 <= needed <= _MAX_WINDOW_PARAMETER else [0]
            else:
                behind = [*self._ends[i : i + 1], begin, 0]
            ends.append(list(dict.fromkeys(behind)))
        for row_of_ends in itertools.product(*ends):
            pads = tuple(zip(begins, row_of_ends, strict=True))
            if any(map(any, pads)):
                yield pads


#: Steps (`Budget`) for a proof, and for a path.
_PROOF_STEPS, _PATH_STEPS = 80_000, 200_000

#: The most nodes in front of the Conv or the Gathers, and behind them.
_MAX_NODES_AROUND = 8


#: A part of a path, the patches that it is, whether a one-hot Conv is in it, and the estimated
#: microseconds of its nodes in a run, less those of Transposes that the patches need.
PatchesPart = tuple[Path, Patches, bool, float]


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
                MAX_READINGS,
            )
        )
        for patches, sizes in guesses.items():
            if readings.is_operator(part, patches):
                cost = _part_cost(graph, part, patches, sizes, conv)
                # The Conv fails where no window fits; Gathers give nothing then.
                operator = replace(patches.operator, clamp_negative=conv is None)
                return part, replace(patches, operator=operator), conv is not None, cost
    return None


def _read_patches(
    path: Path,
    dims: Sequence[Dim],
    conv: onnx.NodeProto | None,
    chain: ChainMap,
    form: Access,
) -> Iterator[tuple[Patches, Mapping[str, list[int]]]]:
    """Yield what a path may be, and typical dims of its values."""
    known = {} if conv is None else {a.name: tuple(a.ints) for a in conv.attribute}
    side = typical_sides(dims)[0]
    typical = estimate_dims(dims, (TYPICAL_FACTOR, side))
    for patches in _PatchReader(form, known).patches():
        yield patches, dims_for_sizes(chain, path, typical, side)


def _part_cost(
    graph: GraphScope,
    path: Path,
    patches: Patches,
    dims: Mapping[str, Sequence[int]],
    conv: onnx.NodeProto | None,
) -> float:
    """Estimate the microseconds of a part, less those of Transposes that the patches need."""
    itemsize = itemsize_of(graph.element_type(path.values[0]) or onnx.TensorProto.FLOAT)
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
    moves: list[tuple[Sequence[int], Sequence[int]]] = [(dims, patches.before), (sizes, perm)]
    return sum(
        transpose_cost(shape, order, itemsize)
        for shape, order in moves
        if list(order) != sorted(order)
    )
