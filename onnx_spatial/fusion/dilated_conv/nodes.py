"""What a node on t = SpaceToBatch(u) is on u.

    op(SpaceToBatch(u), c) = SpaceToBatch(op(u, c))
    Conv(SpaceToBatch(u, D), dilations d, pads p) = SpaceToBatch(Conv(u, dilations D d, pads D p), D)

SpaceToBatch takes elements from the blocked axes into the batch axis: these axes are *taken*, all others
are free. An operator commutes with it if

1. it looks at single elements, and its other operands c are the same at all places and in all images;
2. it looks along free axes (`fusion.layout`);
3. it changes the layout: then the layout of its output says where the taken axes are.
4. A convolution looks along taken axes, with stride 1 along those that are split; an axis that is only
   padded (block 1) may have any stride. The pads P of SpaceToBatch and the crops Q of BatchToSpace go
   into its own pads: P + D p - Q, or P + p - s Q for a stride s. The same holds for ConvTranspose with
   stride 1: it is a Conv with the flipped kernel and pads r - p, where r = (kernel size - 1) * dilation,
   and that is how its pads are counted here.

Outside of what is computed of u lies its *border*: SpaceToBatch pads with zeros, and most operators
turn a known number into a known number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import TensorProto

from onnx_spatial.errors import OperatorError
from onnx_spatial.fusion.dilated_conv.amounts import ZERO, Amount, Bounds, Pairs, number
from onnx_spatial.fusion.layout import CHANGES, NAMED, QUANTIZING, Layout, axes_of, change_of
from onnx_spatial.fusion.rules import Reason
from onnx_spatial.fusion.views import NodeInfo
from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.operators import AutoPad, ExtractPatches

#: The number that fills the border of a value; None if it is no single known number.
Border = float | None

_UNARY = op_traits.having(Trait.UNARY)
_BROADCASTS = op_traits.having(Trait.BROADCASTS)
_REDUCTIONS = op_traits.having(Trait.REDUCES)
_KEEPS_ZERO = op_traits.having(Trait.KEEPS_ZERO)
_ACROSS = op_traits.having(Trait.ACROSS)
_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
#: A Slice up to this end or beyond keeps the rest of an axis: tf2onnx writes 10^9, others 2^31 or more.
_OPEN_END = 10**9


@dataclass(frozen=True)
class Blocked:
    """Layout of a *value in blocks*: t = SpaceToBatch(u) with these blocks and without pads.

    Attributes:
        axes: the axes of t, and of u, that SpaceToBatch splits or pads, in the order in which their
            blocks lie in the batch axis.
        blocks: block of each; 1 for an axis that is only padded.
        batch: the batch axis.
        rank: number of dims.
    """

    axes: tuple[int, ...]
    blocks: tuple[int, ...]
    batch: int
    rank: int

    @property
    def taken(self) -> tuple[int, ...]:
        """Batch and blocked axes: no operator may mix elements along them, or tell them apart."""
        return (self.batch, *self.axes)

    @property
    def order(self) -> tuple[tuple[int, int], ...]:
        """(axis, block) of the axes that lie in the batch axis, the outermost first."""
        return tuple((a, b) for a, b in zip(self.axes, self.blocks, strict=True) if b > 1)

    @property
    def unsplit(self) -> tuple[int, ...]:
        """The axes that are only padded or cropped."""
        return tuple(a for a, b in zip(self.axes, self.blocks, strict=True) if b == 1)

    def is_free(self, *axes: int) -> bool:
        """Return whether axes, possibly negative, are neither batch nor blocked."""
        return all(axis % self.rank not in self.taken for axis in axes)

    def may_vary(self, dims: Sequence[Polynomial]) -> bool:
        """Return whether a value of these dims may vary along a taken axis when broadcast."""
        first = self.rank - len(dims)
        return any(dims[axis - first].constant != 1 for axis in self.taken if axis >= first)

    def after_change(self, change: Layout) -> Blocked | None:
        """Return the layout behind a change; None if a taken axis is removed."""
        if set(change.removed).intersection(self.taken):
            return None
        batch, *axes = map(change.place, self.taken)
        return Blocked(tuple(axes), self.blocks, batch, len(change.axes))

    def with_new_axes(self, rank: int) -> Blocked:
        """Return the layout with new axes in front, as broadcasting adds them."""
        more = rank - self.rank
        return Blocked(tuple(a + more for a in self.axes), self.blocks, self.batch + more, rank)


@dataclass(frozen=True)
class Commuted:
    """A node as it is written on u.

    Attributes:
        layout: of all outputs.
        border: of the outputs, from the borders of the inputs in blocks.
        form: the change of layout that replaces it; None if it is written as it is.
    """

    layout: Blocked
    border: Callable[[Sequence[Border]], Border]
    form: Layout | None = None


def _unknown(_: Sequence[Border]) -> Border:
    return None


def _same(borders: Sequence[Border]) -> Border:
    """Keep the number: operators that only move elements."""
    return borders[0] if all(border == borders[0] for border in borders) else None


def _zero_border(borders: Sequence[Border]) -> Border:
    """Keep zeros: operators that map zeros to zero."""
    return 0 if all(border == 0 for border in borders) else None


def commute_node(node: NodeInfo, layouts: Sequence[Blocked | None]) -> Commuted | Reason:
    """Write a node on u, or say why that is impossible.

    Args:
        node: the node on t.
        layouts: of its inputs, None for one that is not in blocks.
    """
    op_type = node.op_type
    if op_type in _BROADCASTS:
        return _commute_broadcast(node, layouts)
    if op_type in _POOLS:
        return f"a dilated {op_type} gives NaN in other places, and is slow"
    if op_type in _UNARY:
        rule = _commute_unary
    elif op_type == "MatMul":
        rule = _commute_matmul
    elif op_type in CHANGES:
        rule = _commute_change
    elif op_type in NAMED or op_type == "BatchNormalization":
        rule = _commute_slice if op_type == "Slice" else _commute_along
    elif op_type in _ACROSS:
        return f"{op_type} needs neighbours along the blocked axes"
    else:
        return f"{op_type} is not known to be position-independent"
    data, *parameters = layouts
    if op_type == "Concat":
        if data is None or any(layout != data for layout in parameters):
            return "Concat joins a value in blocks with others"
    elif data is None or any(layout is not None for layout in parameters):
        return f"a parameter of {op_type} is a value in blocks"
    return rule(node, data)


# 1. Single elements


def _commute_unary(node: NodeInfo, data: Blocked) -> Commuted | Reason:
    """Write a function of single elements; whether it keeps zeros may depend on its parameters."""
    keeps_zero = node.op_type in _KEEPS_ZERO
    if "Cast" in node.op_type:
        types = node.graph.element_types(node.output_names[0]) or {node.integer("to", 0)}
        keeps_zero = not types & {0, None, TensorProto.STRING}
    if node.op_type == "Clip":
        low, high = _clip_bound(node, 1, "min"), _clip_bound(node, 2, "max")
        keeps_zero = low is not None and high is not None and low <= 0 <= high
    if node.op_type == "Dropout":
        training = node.known(2)
        if node.has(2) and (training is None or training.any()):
            return "Dropout may be in training mode"
        if len(node.output_names) > 1:
            return "Dropout gives a mask as well"
    return Commuted(data, _zero_border if keeps_zero else _unknown)


def _clip_bound(node: NodeInfo, index: int, name: str) -> float | None:
    """Return a bound of Clip, an input or attribute; 0 without one, which keeps zeros."""
    known = node.known(index)
    if known is not None and known.size == 1:
        return float(known.reshape(-1)[0])
    value = None if node.has(index) else node.attributes.get(name, 0)
    return float(value) if isinstance(value, int | float) else None


def _commute_broadcast(node: NodeInfo, layouts: Sequence[Blocked | None]) -> Commuted | Reason:
    """Write a function of several inputs, of which those in blocks must be blocked alike.

    All others must be the same along the taken axes, which are those of the output.
    """
    if node.opset < 7 or "axis" in node.attributes:
        return f"{node.op_type} broadcasts by the rules of opset 6"
    if node.op_type == "PRelu" and layouts[0] is None:
        return "the slope of PRelu is a value in blocks"
    names = node.input_names
    sizes = [node.graph.dims(name) for name in names]
    for name, layout, dims in zip(names, layouts, sizes, strict=True):
        if layout is None and dims is None:
            return f"the rank of {name!r} is unknown"
    pairs = list(zip(layouts, sizes, strict=True))
    rank = max(layout.rank if layout else len(dims or ()) for layout, dims in pairs)
    (first, first_dims), *others = (
        (layout.with_new_axes(rank), dims) for layout, dims in pairs if layout
    )
    for other, dims in others:
        if other != first:
            return f"the inputs of {node.op_type} are blocked in different ways"
        if first_dims is None or dims is None or not _equal_sizes(first, first_dims, dims):
            return f"the inputs of {node.op_type} may be of different sizes, which broadcast"
    for name, layout, dims in zip(names, layouts, sizes, strict=True):
        if layout is None and first.may_vary(dims or ()):
            return f"{name!r} may differ between positions or images"
    operands = [node.known(i) for i, layout in enumerate(layouts) if layout is None]
    keeps_zero = node.op_type in _KEEPS_ZERO and not operands
    if node.op_type in ("Mul", "PRelu"):
        # A negative number makes -0 of 0, which a reciprocal tells from it.
        keeps_zero |= all(
            k is not None and bool((np.isfinite(k) & ~np.signbit(k)).all()) for k in operands
        )
    return Commuted(first, _zero_border if keeps_zero else _unknown)


def _equal_sizes(layout: Blocked, a: Sequence[Polynomial], b: Sequence[Polynomial]) -> bool:
    """Return whether two values have provably equal sizes along the blocked axes.

    The batch axes must be equal where they are a product of blocks, else the original does not run.
    """
    pairs = list(zip(layout.axes, layout.blocks, strict=True))
    if not layout.order:
        pairs.append((layout.batch, 1))
    return all(a[axis - layout.rank] == b[axis - layout.rank] for axis, _ in pairs)


# 2. Along free axes


def _commute_along(node: NodeInfo, data: Blocked) -> Commuted | Reason:
    """Look along free axes; a reduction may drop them."""
    op_type, axes = node.op_type, axes_of(node, data.rank)
    if isinstance(axes, str):
        return axes
    if any(node.output_names[1:]) and op_type != "Split":
        return f"{op_type} gives more than one output"
    if not data.is_free(*axes.axes):
        is_batch = data.is_free(*(a for a in axes.axes if a != data.batch))
        return f"{op_type} runs along {'the batch' if is_batch else 'a blocked axis'}"
    layout: Blocked | None = data
    if op_type in _REDUCTIONS and not node.integer("keepdims", 1):
        kept = (axis for axis in range(data.rank) if axis not in axes.axes)
        layout = data.after_change(Layout(data.rank, tuple(kept)))
    assert layout is not None
    if op_type in QUANTIZING:
        return Commuted(layout, _quantized_border(node))
    return Commuted(layout, _same if op_type in ("Concat", "Split") else _unknown)


def _quantized_border(node: NodeInfo) -> Callable[[Sequence[Border]], Border]:
    """Return what becomes of a border: zero becomes the zero point, or back."""
    zero, scale = node.known(2), node.known(1)
    point: int | None = None if node.has(2) else 0
    if zero is not None and zero.size and bool((zero == zero.reshape(-1)[0]).all()):
        point = int(zero.reshape(-1)[0])
    is_sane = scale is not None and bool((np.isfinite(scale) & (scale != 0)).all())
    before, behind = (0, point) if node.op_type == "QuantizeLinear" else (point, 0)

    def border(borders: Sequence[Border]) -> Border:
        return behind if is_sane and before is not None and borders[0] == before else None

    return border


def _commute_slice(node: NodeInfo, data: Blocked) -> Commuted | Reason:
    """Cut free axes, and keep all of the blocked ones."""
    axes = node.axes(3)
    if axes is None and node.has(3):
        return "the axes of Slice are unknown"
    if axes is not None and data.is_free(*axes):
        return Commuted(data, _same)
    starts, ends, dims = node.sizes("starts", 1), node.sizes("ends", 2), node.dims(0)
    steps = node.known(4) if node.has(4) else np.array(1)
    reason = "Slice cuts a blocked axis, or may do so"
    if starts is None or ends is None or dims is None or steps is None or (steps != 1).any():
        return reason
    cut = axes or range(len(starts))
    if not len(cut) == len(starts) == len(ends):
        return "Slice has other numbers of axes, starts and ends"
    kinds = set()
    for axis, start, end in zip(cut, starts, ends, strict=True):
        is_whole = start.constant == 0 and end == dims[axis]
        is_open = start.constant == 0 and (end.constant or 0) >= _OPEN_END
        kinds.add("whole" if is_whole else "open" if is_open or data.is_free(axis) else "cut")
    if kinds <= {"whole"}:  # up to a size, which is another one on u
        return Commuted(data, _same, Layout.identity(data.rank))
    return Commuted(data, _same) if kinds == {"open"} else reason


def padding_of(node: NodeInfo, rank: int) -> list[tuple[Polynomial, Polynomial]] | None:
    """Return what a Pad adds at both ends of each axis; None if it is unknown."""
    pads = node.sizes("pads", 1)
    axes = node.axes(3) if node.has(3) else tuple(range(rank))
    if pads is None or axes is None or len(pads) != 2 * len(axes):
        return None
    amounts = [(Polynomial.of(0), Polynomial.of(0))] * rank
    for axis, begin, end in zip(axes, pads, pads[len(axes) :], strict=False):
        amounts[axis] = begin, end
    return amounts


def pads_with_zeros(node: NodeInfo) -> bool:
    """Return whether a Pad is known to write zeros, none of them negative."""
    value = node.known(2) if node.has(2) else np.array(node.attributes.get("value", 0.0))
    if value is None or value.dtype.kind == "c" or value.any():
        return False
    is_zero = value.dtype.kind in "OSU" or not np.signbit(value).any()  # "" is the zero of strings
    return is_zero and node.attributes.get("mode", "constant") == "constant"


def _commute_matmul(node: NodeInfo, data: Blocked) -> Commuted | Reason:
    """Multiply the last axis with a matrix."""
    dims = node.dims(1)
    if dims is None or len(dims) != 2 or data.rank < 3 or not data.is_free(-1):
        return "MatMul mixes along a blocked axis, or multiplies by no matrix"
    return Commuted(data, _unknown)


# 3. Axes that move


def _commute_change(node: NodeInfo, data: Blocked) -> Commuted | Reason:
    """Follow the taken axes. The sizes that a Reshape names are those of t: it is written anew."""
    change = change_of(node, data.rank)
    if isinstance(change, str):
        return change
    layout = data.after_change(change)
    if layout is None:
        return f"{node.op_type} takes a blocked axis away"
    return Commuted(layout, _same, change if node.op_type == "Reshape" else None)


# 4. Convolutions

#: Convolutions that may become dilated. The offsets of a DeformConv differ between positions.
CONVOLUTIONS = {n for n, o in op_traits.OPERATORS.items() if o.weight is not None} - {"DeformConv"}

#: Values of auto_pad that depend on the size of the input, as `ExtractPatches` calls them.
_SAME: dict[object, AutoPad] = {"SAME_UPPER": "same_upper", "SAME_LOWER": "same_lower"}


@dataclass(frozen=True)
class Axis:
    """A spatial axis of a convolution.

    Attributes:
        stride, dilation: along it.
        pads: at its two ends.
        reach: (kernel size - 1) * dilation; None if unknown.
    """

    stride: int
    dilation: int
    pads: tuple[int, int]
    reach: int | None

    def without_blocks(self, block: int) -> Axis:
        """Return the axis on u for one on t that is split into blocks."""
        begin, end = (pad * block for pad in self.pads)
        reach = None if self.reach is None else self.reach * block
        return Axis(self.stride, self.dilation * block, (begin, end), reach)


@dataclass(frozen=True)
class Convolution:
    """A convolution of a value in blocks, written on u.

    Attributes:
        layout: of its input and output.
        axes: its spatial axes, on u.
        pad_value: the number it pads with; None if unknown.
        is_transposed: whether it is a ConvTranspose, of which `axes` holds the pads of the Conv.

    In its methods an `output_crop` is what nobody needs of the output at its ends, a `crop` what the
    input lacks of u there, and `lengths` are those of the axes of t, None where unknown.
    """

    layout: Blocked
    axes: tuple[Axis, ...]
    pad_value: Border
    is_transposed: bool = False

    @property
    def _taken(self) -> list[Axis]:
        return [self.axes[axis - 2] for axis in self.layout.axes]

    def net_pads(self, crop: Pairs, output_crop: Pairs) -> Pairs:
        """Compute the pads of the input per axis of the layout, the convolution's own included."""
        pads = []
        for axis, before, behind in zip(self._taken, crop, output_crop, strict=True):
            begin, end = (
                before[side] + axis.pads[side] - behind[side] * axis.stride for side in (0, 1)
            )
            pads.append((begin, end))
        return tuple(pads)

    def input_crop(
        self, output_crop: Pairs, lengths: Sequence[int | None], bounds: Bounds
    ) -> Pairs:
        """Compute what nobody needs of the input at its ends.

        An axis is left whole where possibly nothing would be left of it: all that is needed may lie
        in the pads.
        """
        result = []
        for i, (axis, crop) in enumerate(zip(self._taken, output_crop, strict=True)):
            rests = [crop[side] * axis.stride - axis.pads[side] for side in (0, 1)]
            begin, end = (rest if bounds.is_at_least(rest) else ZERO for rest in rests)
            fits = bounds.is_below(begin + end, self._least_length(i, lengths))
            result.append((begin, end) if fits else (ZERO, ZERO))
        return tuple(result)

    def _least_length(self, index: int, lengths: Sequence[int | None]) -> int:
        """Return the least length of an axis of u: each block holds something."""
        length = lengths[index]
        return self.layout.blocks[index] * (1 if length is None else length)

    def growth(self, of_input: Sequence[Amount | None]) -> tuple[Amount | None, ...]:
        """Return how much larger the output is than the image, along the axes of the layout."""
        return tuple(
            growth + (sum(axis.pads) - axis.reach)
            if growth is not None and axis.reach is not None and axis.stride == 1
            else None
            for growth, axis in zip(of_input, self._taken, strict=True)
        )

    def shelter_crop(
        self,
        crop: Pairs,
        growth: Sequence[Amount | None],
        lengths: Sequence[int | None],
        bounds: Bounds,
    ) -> Pairs:
        """Reduce the crop of the output to axes of which something is provably left.

        BatchToSpace may crop everything away, and onnxruntime fails on a convolution with an empty
        result. `growth` and `lengths` are those of the output.
        """
        kept = []
        for i, (pair, more) in enumerate(zip(crop, growth, strict=True)):
            total = pair[0] + pair[1]
            is_safe = more is not None and bounds.is_at_least(more - total)
            is_safe |= bounds.is_below(total, self._least_length(i, lengths))
            kept.append(pair if is_safe else (ZERO, ZERO))
        return tuple(kept)

    def own_pads(self, net: Pairs, lengths: Sequence[int | None]) -> Pairs:
        """Select the part of the pads that the convolution takes itself: known ones.

        None along an axis that is cropped at one end, if more may be cropped there than is left
        before the other end is padded.
        """
        pads = []
        for axis, pair, length in zip(self._taken, net, lengths, strict=True):
            known = [amount.constant for amount in pair]
            own = [max(n or 0, 0) for n in known]
            smallest = min(-math.inf if n is None else n for n in known)
            too_large = self.is_transposed and max(own) > (axis.reach or 0)
            if too_large or (smallest < 0 and -smallest > (length or 0)):
                own = [0, 0]
            pads.append((number(own[0]), number(own[1])))
        return tuple(pads)

    def attributes(self, own: Pairs) -> dict[str, list[int]]:
        """Return the attributes that change on u, with these pads, all of them known."""
        pads = [axis.pads for axis in self.axes]
        for axis, (begin, end) in zip(self.layout.axes, own, strict=True):
            pads[axis - 2] = (begin.constant or 0, end.constant or 0)
        if self.is_transposed:
            reaches = [axis.reach or 0 for axis in self.axes]
            pads = [(r - begin, r - end) for r, (begin, end) in zip(reaches, pads, strict=True)]
        changed = {"pads": [*(begin for begin, _ in pads), *(end for _, end in pads)]}
        if any(axis.dilation > 1 for axis in self.axes):
            changed["dilations"] = [axis.dilation for axis in self.axes]
        return changed


def may_pad(pad_value: Border, border: Border, net: Pairs, crop: Pairs) -> bool:
    """Return whether a convolution may pad its input itself: with the number that u holds there."""
    if border is not None and border == pad_value:
        return True
    return all(
        lack.constant == 0 or (amount.constant is not None and amount.constant <= 0)
        for amounts, lacks in zip(net, crop, strict=True)
        for amount, lack in zip(amounts, lacks, strict=True)
    )


def commute_convolution(node: NodeInfo, layouts: Sequence[Blocked | None]) -> Convolution | Reason:
    """Write a convolution on u, or say why that is impossible."""
    layout, op_type = layouts[0], node.op_type
    if layout is None or any(other is not None for other in layouts[1:]):
        return f"the kernel or the bias of {op_type} is a value in blocks"
    if layout.batch != 0:
        return f"the batch axis is not the first axis of {op_type}"
    if 1 in layout.axes:
        is_padded = 1 in layout.unsplit
        return f"the channels of {op_type} are {'padded, or may be' if is_padded else 'blocked'}"
    axes = _spatial_axes(node, layout.rank - 2)
    if isinstance(axes, str):
        return axes
    is_transposed = op_type == "ConvTranspose"
    if is_transposed:
        transposed = _as_conv(node, axes)
        if isinstance(transposed, str):
            return transposed
        axes = transposed
    for axis, block in zip(layout.axes, layout.blocks, strict=True):
        if block > 1 and axes[axis - 2].stride != 1:
            return f"{op_type} has stride {axes[axis - 2].stride} on a blocked axis"
        axes[axis - 2] = axes[axis - 2].without_blocks(block)
    pad_value: Border = 0
    if op_type not in ("Conv", "ConvTranspose") and node.has(2):  # the zero point of the data
        point = node.known(2)
        pad_value = None if point is None or point.size != 1 else int(point.reshape(-1)[0])
    return Convolution(layout, tuple(axes), pad_value, is_transposed)


def _as_conv(node: NodeInfo, axes: Sequence[Axis]) -> list[Axis] | Reason:
    """Return the axes of the Conv with flipped kernel and other pads that a ConvTranspose on t is."""
    added = node.integers("output_padding", ())
    if added is None or any(added) or "output_shape" in node.attributes:
        return "ConvTranspose has output_shape or output_padding"
    result = []
    for axis in axes:
        if axis.stride != 1:
            return "ConvTranspose has stride 2 or more, which spreads the input"
        if axis.reach is None:
            return "the kernel size of ConvTranspose is unknown"
        begin, end = (axis.reach - pad for pad in axis.pads)
        if min(begin, end) < 0:
            return "ConvTranspose has pads larger than its kernel"
        result.append(replace(axis, pads=(begin, end)))
    return result


def _spatial_axes(node: NodeInfo, spatial: int) -> list[Axis] | Reason:
    """Read the spatial axes of a convolution on t and resolve its auto_pad."""
    op_type, ones = node.op_type, (1,) * spatial
    strides, dilations = node.integers("strides", ones), node.integers("dilations", ones)
    pads = node.integers("pads", (0,) * 2 * spatial)
    if strides is None or dilations is None or pads is None:
        return f"attributes of {op_type} depend on the callers of its function"
    if (len(strides), len(dilations), len(pads)) != (spatial, spatial, 2 * spatial):
        return f"{op_type} has strides, dilations or pads that do not fit the rank of its input"
    auto = node.attributes.get("auto_pad", "NOTSET")
    kernel = _kernel_sizes(node, spatial)
    if auto in _SAME:
        if kernel is None:
            return f"the kernel size of {op_type} is unknown, and auto_pad needs it"
        same = _same_pads(node, kernel, strides, dilations, _SAME[auto])
        if isinstance(same, str):
            return same
        pads = same
    elif auto == "VALID":
        pads = (0,) * 2 * spatial
    elif auto != "NOTSET":
        return f"auto_pad of {op_type} depends on the callers of its function"
    if min(pads, default=0) < 0:
        return f"{op_type} has negative pads"
    reaches = [None if kernel is None else (kernel[i] - 1) * dilations[i] for i in range(spatial)]
    return [
        Axis(strides[i], dilations[i], (pads[i], pads[i + spatial]), reaches[i])
        for i in range(spatial)
    ]


def _kernel_sizes(node: NodeInfo, spatial: int) -> tuple[int, ...] | None:
    """Read the kernel sizes from kernel_shape, else from the weight; None if they are unknown."""
    declared = node.integers("kernel_shape", ())
    if declared:
        return declared if len(declared) == spatial else None
    weight = op_traits.of(node.node).weight
    dims = None if weight is None else node.dims(weight)
    if dims is None or len(dims) != spatial + 2:
        return None
    sizes = [dim.constant for dim in dims[2:]]
    return None if None in sizes else tuple(size for size in sizes if size is not None)


def _same_pads(
    node: NodeInfo,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    auto_pad: AutoPad,
) -> tuple[int, ...] | Reason:
    """Compute `pads` of the ONNX Conv, begins and then ends, that auto_pad gives for its input."""
    dims = node.dims(0)
    try:
        windows = ExtractPatches(kernel, strides, dilations, auto_pad)
    except OperatorError:
        return f"kernel, strides or dilations of {node.op_type} are not legal"
    pairs = []
    for axis, stride in enumerate(strides):
        # With stride 1 every size is padded alike.
        size = 1 if stride == 1 else dims[axis + 2].constant if dims is not None else None
        if size is None:
            return f"auto_pad of {node.op_type} depends on sizes that are not known"
        pairs.append(windows.padding(axis, size))
    return (*(begin for begin, _ in pairs), *(end for _, end in pairs))
