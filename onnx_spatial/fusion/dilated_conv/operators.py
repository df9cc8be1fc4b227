"""What an operator on t = SpaceToBatch(u) is on u: the same, if it looks along other axes only.

    op(SpaceToBatch(u), c) = SpaceToBatch(op(u, c))

SpaceToBatch takes elements from the blocked axes into the batch axis: these axes are *taken*, all others
are free. An operator commutes with it if

1. it looks at single elements, and its other operands c are the same at all places and in all images;
2. it looks along free axes (`ALONG` says which);
3. it moves axes: then the layout of its output says where the taken axes are.

Outside of what is computed of u lies its *border*: SpaceToBatch pads with zeros, and most operators
turn a known number into a known number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations, islice, permutations
from operator import mul

import numpy as np
from onnx import TensorProto

from onnx_spatial.fusion.dilated_conv.graph_view import Array, NodeView
from onnx_spatial.fusion.rule import Reason
from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

#: The number that fills the border of a value; None if it is no single known number.
Border = float | None

_UNARY = op_traits.having(Trait.UNARY)
_BROADCASTS = op_traits.having(Trait.BROADCASTS)
_REDUCTIONS = op_traits.having(Trait.REDUCES)
_KEEPS_ZERO = op_traits.having(Trait.KEEPS_ZERO)
_ACROSS = op_traits.having(Trait.ACROSS)
_TRUTHS = op_traits.having(Trait.TRUTH)
_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
#: Operators that look, before opset 13, along all axes from `axis` on, by default the second.
FLATTENING = frozenset({"Hardmax", "LogSoftmax", "Softmax"})
#: Operators whose results may be of another type than their data.
RETYPING = _TRUTHS | {
    *("ArgMax", "ArgMin", "BitCast", "Cast", "CastLike", "ConvInteger", "DequantizeLinear"),
    *("OneHot", "QLinearConv", "QuantizeLinear", "TopK", "Where"),
}
#: A Slice up to this end or beyond keeps the rest of an axis: tf2onnx writes 10^9, others 2^31 or more.
_TO_THE_END = 10**9
#: Most ways to pair axes of size 1 that are tried.
_MOST_PLACEMENTS = 1000


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

    def moved(self, places: Sequence[int], rank: int) -> Blocked:
        """Return the layout with each axis at another place, -1 if it is dropped."""
        return Blocked(tuple(places[a] for a in self.axes), self.blocks, places[self.batch], rank)

    def without(self, axes: Sequence[int]) -> Blocked:
        """Return the layout without some free axes."""
        gone = {axis % self.rank for axis in axes}
        kept = [axis for axis in range(self.rank) if axis not in gone]
        return self.moved([-1 if a in gone else kept.index(a) for a in range(self.rank)], len(kept))

    def with_new(self, axes: Sequence[int]) -> Blocked:
        """Return the layout with new free axes at these places of the result."""
        rank = self.rank + len(axes)
        new = {axis % rank for axis in axes}
        return self.moved([place for place in range(rank) if place not in new], rank)

    def freed(self, axes: Sequence[int]) -> Blocked:
        """Return the layout in which some of the unsplit axes are free."""
        pairs = zip(self.axes, self.blocks, strict=True)
        kept = [(axis, block) for axis, block in pairs if block > 1 or axis not in axes]
        return replace(self, axes=tuple(a for a, _ in kept), blocks=tuple(b for _, b in kept))


@dataclass(frozen=True)
class Form:
    """A node on u that differs from the node on t.

    Attributes:
        op_type: operator.
        attributes: of the new node, INTS or STRING.
        operands: inputs behind the data: constants, or positions of inputs of the node on t.
    """

    op_type: str
    attributes: dict[str, tuple[int, ...] | str]
    operands: tuple[Array | int, ...] = ()


@dataclass(frozen=True)
class Commuted:
    """A node as it is written on u.

    Attributes:
        layout: of all outputs.
        border: of the outputs, from the borders of the inputs in blocks.
        forms: nodes that replace it, one behind the other; None if it is written as it is.
        others: alternatives with other layouts.
    """

    layout: Blocked
    border: Callable[[Sequence[Border]], Border]
    forms: tuple[Form, ...] | None = None
    others: tuple[Commuted, ...] = ()


def _unknown(_: Sequence[Border]) -> Border:
    return None


def _same(borders: Sequence[Border]) -> Border:
    """Keep the number: operators that only move elements."""
    return borders[0] if all(border == borders[0] for border in borders) else None


def _zero(borders: Sequence[Border]) -> Border:
    """Keep zeros: operators that map zeros to zero."""
    return 0 if all(border == 0 for border in borders) else None


def commuted(node: NodeView, layouts: Sequence[Blocked | None]) -> Commuted | Reason:
    """Write a node on u, or say why that is impossible.

    Args:
        node: the node on t.
        layouts: of its inputs, None for one that is not in blocks.
    """
    op_type = node.op_type
    if op_type in _BROADCASTS:
        return _broadcast(node, layouts)
    rule = _unary if op_type in _UNARY else _along if op_type in ALONG else _RULES.get(op_type)
    if op_type in _POOLS:
        return f"runtimes compute {op_type} with dilations otherwise (NaN), and slowly"
    if rule is None and op_type in _ACROSS:
        return f"{op_type} needs neighbours along the blocked axes"
    if rule is None:
        return f"{op_type} is not known to be position-independent"
    data, *parameters = layouts
    if op_type == "Concat":
        data = next(layout for layout in layouts if layout is not None)
        if any(layout != data for layout in layouts):
            return "Concat joins a value in blocks with others"
    elif data is None or any(layout is not None for layout in parameters):
        return f"a parameter of {op_type} is a value in blocks"
    return rule(node, data)


# 1. Single elements


def _unary(node: NodeView, data: Blocked) -> Commuted | Reason:
    keeps_zero = node.op_type in _KEEPS_ZERO
    if "Cast" in node.op_type:
        types = node.view.element_types(node.message.output[0]) or {node.integer("to", 0)}
        keeps_zero = not types & {0, None, TensorProto.STRING}
    if node.op_type == "Clip":
        low, high = _bound(node, 1, "min"), _bound(node, 2, "max")
        keeps_zero = low is not None and high is not None and low <= 0 <= high
    if node.op_type == "Dropout":
        training = node.known(2)
        if node.input(2) and (training is None or training.any()):
            return "Dropout may be in training mode"
        if len(node.message.output) > 1:
            return "Dropout gives a mask as well"
    return Commuted(data, _zero if keeps_zero else _unknown)


def _bound(node: NodeView, index: int, name: str) -> float | None:
    """Return a bound of Clip, an input or attribute; 0 without one, which keeps zeros."""
    known = node.known(index)
    if known is not None and known.size == 1:
        return float(known.reshape(-1)[0])
    value = None if node.input(index) else node.attributes.get(name, 0)
    return float(value) if isinstance(value, int | float) else None


def _broadcast(node: NodeView, layouts: Sequence[Blocked | None]) -> Commuted | Reason:
    if node.view.opset < 7 or "axis" in node.attributes:
        return f"{node.op_type} broadcasts by the rules of opset 6"
    if node.op_type == "PRelu" and layouts[0] is None:
        return "the slope of PRelu is a value in blocks"
    names = node.message.input
    sizes = [node.view.dims(name) for name in names]
    for name, layout, dims in zip(names, layouts, sizes, strict=True):
        if layout is None and dims is None:
            return f"the rank of {name!r} is unknown"
    pairs = list(zip(layouts, sizes, strict=True))
    rank = max(layout.rank if layout else len(dims or ()) for layout, dims in pairs)
    (first, own), *others = (
        (layout.with_new(range(rank - layout.rank)), dims) for layout, dims in pairs if layout
    )
    for other, dims in others:
        if other != first:
            return f"the inputs of {node.op_type} are blocked in different ways"
        if own is None or dims is None or not _equal_sizes(node, first, own, dims):
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
    return Commuted(first, _zero if keeps_zero else _unknown)


def _equal_sizes(
    node: NodeView, layout: Blocked, a: Sequence[Polynomial], b: Sequence[Polynomial]
) -> bool:
    """Return whether two values have provably equal sizes along the blocked axes.

    The batch axes must be equal where they are a product of blocks, else the original does not run.
    """
    pairs = list(zip(layout.axes, layout.blocks, strict=True))
    if not layout.order:
        pairs.append((layout.batch, 1))
    return all(
        node.view.are_equal(a[axis - layout.rank], b[axis - layout.rank], block)
        for axis, block in pairs
    )


# 2. Along free axes


@dataclass(frozen=True)
class Along:
    """The axes that an operator looks along: those of its attribute `axis` or `axes`, or of input 1.

    Attributes:
        axis: default of `axis`.
        axes: default of `axes`; empty if there is no such attribute.
        by_input: whether they are in `axes` or, in newer opsets, in input 1.
        to_the_end: whether it looks along all axes from `axis` on.
        border: what it makes of a border.
    """

    axis: int = 0
    axes: tuple[int, ...] = ()
    by_input: bool = False
    to_the_end: bool = False
    border: Callable[[Sequence[Border]], Border] = _unknown


ALONG = {
    **dict.fromkeys(op_traits.having(Trait.REDUCES), Along(by_input=True)),
    **dict.fromkeys(("CumProd", "CumSum"), Along(by_input=True)),
    **dict.fromkeys(("ArgMax", "ArgMin"), Along()),
    **dict.fromkeys(("Concat", "Split"), Along(border=_same)),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "LpNormalization", "Softmax", "TopK"), Along(-1)),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), Along(-1, to_the_end=True)),
    **dict.fromkeys(("BatchNormalization", "LRN"), Along(axes=(1,))),
    "MeanVarianceNormalization": Along(axes=(0, 2, 3)),
}


def _along(node: NodeView, data: Blocked) -> Commuted | Reason:
    """Look along the axes of `ALONG`."""
    op_type, row = node.op_type, ALONG[node.op_type]
    outputs = node.message.output[1:]
    if op_type == "TopK" and node.integer("sorted", 1) != 1:
        return "TopK gives its elements in any order"
    if any(outputs) and op_type not in ("Split", "TopK"):
        return f"{op_type} gives more than one output"
    if node.integer("training_mode", 0):
        return f"{op_type} is in training mode"
    for name in node.message.input[1:] if row.to_the_end else ():  # scale and bias
        dims = node.view.dims(name) if name else ()
        if dims is None or data.may_vary(dims):
            return f"{name!r} may differ between positions or images"
    if row.by_input:
        axes = node.axes(1)
        if not axes:
            unknown = axes is None and node.input(1)
            return f"the axes of {op_type} are unknown" if unknown else f"{op_type} names no axes"
    elif row.axes:
        axes = node.integers("axes", row.axes) or ()
    else:
        flattens = op_type in FLATTENING and node.view.opset < 13
        axis = node.integer("axis", 1 if flattens else row.axis) or 0
        axes = tuple(range(axis % data.rank, data.rank)) if flattens or row.to_the_end else (axis,)
    return _on(node, data, axes, row.border)


def _on(
    node: NodeView,
    data: Blocked,
    axes: Sequence[int],
    border: Callable[[Sequence[Border]], Border],
) -> Commuted | Reason:
    """Write a node as it is, if it looks along free axes; a reduction may drop them."""
    if not data.is_free(*axes):
        is_batch = data.is_free(*(a for a in axes if a % data.rank != data.batch))
        return f"{node.op_type} runs along {'the batch' if is_batch else 'a blocked axis'}"
    if node.op_type in _REDUCTIONS and not node.integer("keepdims", 1):
        return Commuted(data.without(axes), border)
    return Commuted(data, border)


def _quantize(node: NodeView, data: Blocked) -> Commuted | Reason:
    """Quantise per tensor, or per channel along a free axis; zero becomes the zero point, or back."""
    scale = node.view.dims(node.input(1))
    if scale is None:
        return f"the rank of the scale of {node.op_type} is unknown"
    if len(scale) > 1 or node.integer("block_size", 0) != 0:
        return f"{node.op_type} is neither per tensor nor per channel"
    is_per_channel = len(scale) == 1 and scale[0].constant != 1
    if is_per_channel and not data.is_free(node.integer("axis", 1) or 0):
        return f"{node.op_type} is per channel along a blocked axis"
    zero, known = node.known(2), node.known(1)
    point: int | None = None if node.input(2) else 0
    if zero is not None and zero.size and bool((zero == zero.reshape(-1)[0]).all()):
        point = int(zero.reshape(-1)[0])
    is_sane = known is not None and bool((np.isfinite(known) & (known != 0)).all())
    before, behind = (0, point) if node.op_type == "QuantizeLinear" else (point, 0)

    def border(borders: Sequence[Border]) -> Border:
        return behind if is_sane and before is not None and borders[0] == before else None

    return Commuted(data, border)


def _matmul(node: NodeView, data: Blocked) -> Commuted | Reason:
    dims, known = node.view.dims(node.input(1)), node.known(1)
    if dims is None:
        return f"the rank of {node.input(1)!r} is unknown"
    if len(dims) != 2:
        return f"MatMul multiplies by {node.input(1)!r}, which is no matrix"
    if not data.is_free(-1) or data.rank < 3:
        return "MatMul mixes along a blocked axis"
    is_finite = known is not None and bool(np.isfinite(known).all())
    return Commuted(data, _zero if is_finite else _unknown)


def _tile(node: NodeView, data: Blocked) -> Commuted | Reason:
    repeats = node.view.sizes.entries(node.input(1))
    if repeats is None or len(repeats) != data.rank:
        return "the repeats of Tile are unknown"
    repeated = [axis for axis, times in enumerate(repeats) if times.constant != 1]
    return _on(node, data, repeated, _same)


def _sizes(node: NodeView, name: str, index: int) -> tuple[Polynomial, ...] | None:
    """Return integers, an attribute of older opsets and an input of newer ones; None if unknown."""
    if name in node.attributes:
        listed = node.integers(name, ())
        return None if listed is None else tuple(map(Polynomial.of, listed))
    return node.view.sizes.entries(node.input(index))


def _slice(node: NodeView, data: Blocked) -> Commuted | Reason:
    """Cut free axes, and keep all of the blocked ones."""
    axes = node.axes(3)
    if axes is None and node.input(3):
        return "the axes of Slice are unknown"
    if axes is not None and data.is_free(*axes):
        return Commuted(data, _same)
    starts, ends = _sizes(node, "starts", 1), _sizes(node, "ends", 2)
    dims, steps = node.view.dims(node.input(0)), node.known(4)
    if starts is None or ends is None or dims is None or (node.input(4) and steps is None):
        return "Slice cuts a blocked axis, or may do so"
    forwards = steps is None or bool((steps == 1).all())
    cut, listed = list[int](), tuple(range(len(starts))) if axes is None else axes
    for axis, start, end in zip(listed, starts, ends, strict=True):
        is_open = end.constant is not None and end.constant >= _TO_THE_END
        if not (forwards and start.constant == 0 and (is_open or end == dims[axis])):
            cut.append(axis)
    if not cut:
        return Commuted(data, _same, ())
    sized = [a for a, e in zip(listed, ends, strict=True) if (e.constant or 0) < _TO_THE_END]
    if not data.is_free(*cut, *sized):  # a size on t is another one on u
        return "Slice cuts a blocked axis, or may do so"
    return Commuted(data, _same)


def padding_of(node: NodeView, rank: int) -> list[tuple[Polynomial, Polynomial]] | None:
    """Return what a Pad adds at both ends of each axis; None if it is unknown."""
    pads = _sizes(node, "pads", 1)
    axes = node.axes(3) if node.input(3) else tuple(range(rank))
    if pads is None or axes is None or len(pads) != 2 * len(axes):
        return None
    amounts = [(Polynomial.of(0), Polynomial.of(0))] * rank
    for axis, begin, end in zip(axes, pads, pads[len(axes) :], strict=False):
        amounts[axis] = begin, end
    return amounts


def pads_with_zeros(node: NodeView) -> bool:
    """Return whether a Pad is known to write zeros, none of them negative."""
    number = node.known(2) if node.input(2) else np.array(node.attributes.get("value", 0.0))
    is_zero = number is not None and not number.any() and not np.signbit(number).any()
    return is_zero and node.attributes.get("mode", "constant") == "constant"


def _pad(node: NodeView, data: Blocked) -> Commuted | Reason:
    """Pad free axes."""
    amounts = padding_of(node, data.rank)
    if amounts is None:
        return "the pads of Pad are unknown"
    for axis, (begin, end) in enumerate(amounts):
        if (begin.constant != 0 or end.constant != 0) and not data.is_free(axis):
            return f"Pad pads axis {axis}, which is the batch or blocked, or may be"
    mode, forms = str(node.attributes.get("mode", "constant")), None
    whole = [amount.constant for side in zip(*amounts, strict=True) for amount in side]
    if node.input(3) and None not in whole:
        # With the pads of all axes: onnxruntime (1.23 to 1.32) moves a Transpose across a Pad as if
        # it listed all, and fails.
        value = (2,) if node.input(2) else ()
        forms = (Form("Pad", {"mode": mode}, (np.array(whole, np.int64), *value)),)
    keeps_zero = mode != "constant" or pads_with_zeros(node)
    return Commuted(data, _zero if keeps_zero else _unknown, forms)


# 3. Axes that move


def _transpose(node: NodeView, data: Blocked) -> Commuted | Reason:
    perm = node.integers("perm", tuple(reversed(range(data.rank))))
    if perm is None or sorted(perm) != list(range(data.rank)):
        return "the permutation of Transpose is unknown"
    return Commuted(data.moved([perm.index(a) for a in range(data.rank)], data.rank), _same)


def _unsqueeze(node: NodeView, data: Blocked) -> Commuted | Reason:
    axes = node.axes(1)
    return (
        "the axes of Unsqueeze are unknown"
        if axes is None
        else Commuted(data.with_new(axes), _same)
    )


def _squeeze(node: NodeView, data: Blocked) -> Commuted | Reason:
    axes = node.axes(1)
    if not axes:
        return "the axes of Squeeze are unknown"
    if not data.is_free(*axes):
        return "Squeeze takes a blocked axis away"
    return Commuted(data.without(axes), _same)


def _gather(node: NodeView, data: Blocked) -> Commuted | Reason:
    indices, axis = node.view.dims(node.input(1)), (node.integer("axis", 0) or 0) % data.rank
    if not data.is_free(axis):
        return "Gather takes from a blocked axis"
    if indices is None:
        return "the rank of the indices of Gather is unknown"
    shift = len(indices) - 1
    places = [a if a < axis else a + shift for a in range(data.rank)]
    return Commuted(data.moved(places, data.rank + shift), _same)


def _one_hot(node: NodeView, data: Blocked) -> Commuted | Reason:
    return Commuted(data.with_new([node.integer("axis", -1) or 0]), _unknown)


def _expand(node: NodeView, data: Blocked) -> Commuted | Reason:
    """Repeat along free axes."""
    dims, target = node.view.dims(node.input(0)), node.view.sizes.entries(node.input(1))
    if dims is None or target is None:
        return "the shape that Expand gives is unknown"
    rank = max(data.rank, len(target))
    repeats = []
    for place in range(rank):
        axis, index = place - (rank - data.rank), place - (rank - len(target))
        size = target[index] if index >= 0 else Polynomial.of(1)
        is_kept = size.constant == 1 or (axis >= 0 and size == dims[axis])
        if axis >= 0 and axis in data.taken and not is_kept:
            return "Expand repeats along a blocked axis"
        if not is_kept and size.constant is None:
            return "the shape that Expand gives is unknown"
        repeats.append(1 if is_kept else size.constant)
    form = Form("Expand", {}, (np.array(repeats, np.int64),))
    return Commuted(data.with_new(range(rank - data.rank)), _same, (form,))


def _reshape(node: NodeView, data: Blocked) -> Commuted | Reason:
    """Move, add and drop axes of size 1: Squeeze, Transpose, Unsqueeze.

    Such axes look alike: each way to pair them gives the same values. Only one way may suit the nodes
    behind, so every way that blocks other axes is an alternative. Sizes are compared as polynomials:
    what is not provably the same counts as different.
    """
    dims = node.view.dims(node.input(0))
    if node.op_type == "Flatten":
        at = node.integer("axis", 1) or 0
        parts = () if dims is None else (dims[:at], dims[at:])
        target: Sequence[Polynomial] | None = [reduce(mul, p, Polynomial.of(1)) for p in parts]
    else:
        target = node.view.sizes.entries(node.input(1)) if node.view.opset >= 5 else None
    if dims is None or target is None:
        return f"the shape that {node.op_type} gives is unknown"
    if not node.integer("allowzero", 0):
        target = [dims[i] if t.constant == 0 and i < len(dims) else t for i, t in enumerate(target)]
    ways: dict[Blocked, Commuted] = {}
    for places in islice(_placements(dims, target, data), _MOST_PLACEMENTS):
        layout = data.moved(places, len(target))
        way = Commuted(layout, _same, _forms(places, len(target), node))
        if layout not in ways or _effort(way) < _effort(ways[layout]):
            ways[layout] = way
    if not ways:
        is_known = all(size.constant is not None for size in (*dims, *target))
        return f"{node.op_type} splits or joins axes{'' if is_known else ', or may do so'}"
    first, *others = sorted(ways.values(), key=_effort)
    return replace(first, others=tuple(others))


def _placements(
    dims: Sequence[Polynomial], target: Sequence[Polynomial], data: Blocked
) -> Iterator[list[int]]:
    """Yield places of the axes in a shape that differs only in axes of size 1; -1 drops an axis.

    A size of -1 is inferred: it is 1 if the other sizes are those of all longer axes.
    """
    large = [axis for axis, size in enumerate(dims) if size.constant != 1]
    slots = [place for place, size in enumerate(target) if size.constant != 1]
    if len(slots) == len(large) + 1:
        slots = [place for place in slots if target[place].constant != -1]
    if len(slots) != len(large) or any(
        target[place] != dims[axis] and target[place].constant != -1
        for axis, place in zip(large, slots, strict=True)
    ):
        return
    ones = [axis for axis in range(len(dims)) if axis not in large]
    free = [place for place in range(len(target)) if place not in slots]
    for kept in combinations(ones, min(len(ones), len(free))):
        if any(axis in data.taken for axis in ones if axis not in kept):
            continue
        for chosen in permutations(free, len(kept)):
            places = [-1] * len(dims)
            for axis, place in (*zip(large, slots, strict=True), *zip(kept, chosen, strict=True)):
                places[axis] = place
            yield places


def _forms(places: Sequence[int], rank: int, node: NodeView) -> tuple[Form, ...]:
    """Write the nodes that bring axes to these places."""
    gone = [axis for axis, place in enumerate(places) if place == -1]
    kept = [place for place in places if place != -1]
    perm = tuple(sorted(range(len(kept)), key=kept.__getitem__))
    added = [place for place in range(rank) if place not in kept]
    forms = []
    for op_type, axes in (("Squeeze", gone), ("Transpose", perm), ("Unsqueeze", added)):
        if op_type == "Transpose":
            forms += [Form(op_type, {"perm": perm})] if list(perm) != sorted(perm) else []
        elif axes and node.view.opset < 13:
            forms.append(Form(op_type, {"axes": tuple(axes)}))
        elif axes:
            forms.append(Form(op_type, {}, (np.array(axes, np.int64),)))
    return tuple(forms)


def _effort(way: Commuted) -> tuple[object, ...]:
    """Rank ways: first without a move, then with the channels moved to an end, which cancels best."""
    perms = [form.attributes["perm"] for form in way.forms or () if "perm" in form.attributes]
    to_an_end = all(
        perm in ((0, len(perm) - 1, *range(1, len(perm) - 1)), (0, *range(2, len(perm)), 1))
        for perm in perms
    )
    return (len(perms), not to_an_end, perms, way.layout.axes)


#: The rule for each operator that is not in `ALONG`, nor on single elements.
_RULES: dict[str, Callable[[NodeView, Blocked], Commuted | Reason]] = {
    "DequantizeLinear": _quantize,
    "Expand": _expand,
    "Flatten": _reshape,
    "Gather": _gather,
    "MatMul": _matmul,
    "OneHot": _one_hot,
    "Pad": _pad,
    "QuantizeLinear": _quantize,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
