"""Dims of a node's output where the map of the node is open: those that are known all the same.

Slice([n, h, w], start = p, axis 1)     [n, ?, w]       p is a parameter of the run
Conv(auto_pad SAME, stride 2)           [n, m, floor((h + 1) / 2), ...]       for all pads
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx_spatial.maps.division import exact
from onnx_spatial.maps.expressions import ONE, ZERO, product
from onnx_spatial.maps.node import NodeView, axes_of
from onnx_spatial.maps.open_case import OpenCase
from onnx_spatial.maps.polynomial import Polynomial
from onnx_spatial.maps.tensor import Tensor
from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait

#: Dims of which some may be unknown.
Partial = Sequence[Polynomial | None]

#: Operators whose output has the dims of its first input.
SAME_SHAPE = op_traits.having(Trait.SAME_SHAPE)
_BROADCASTS = op_traits.having(Trait.BROADCASTS) - SAME_SHAPE
_REDUCES = op_traits.having(Trait.REDUCES)


def known_dims(case: OpenCase, node: NodeView) -> Partial | None:
    """Return the dims of the first output of a legal node, of Split of all; None if none are known.

    Raises:
        Exception: of any type, if parameters are unknown or the node breaks its operator's rules.
    """
    if node.op_type in _BROADCASTS and not (node.has("axis") or node.has("broadcast")):
        return broadcast_dims([i.dims for i in node.inputs()])
    if node.op_type == "Concat":
        return _concatenated(node)
    if node.op_type in SAME_SHAPE or node.op_type in _BROADCASTS:
        return node.input(0).dims
    if node.op_type in _REDUCES:
        return _reduced(node, node.input(0))
    rule = _RULES.get(node.op_type)
    return rule(case, node, node.input(0)) if rule is not None else None


def broadcast_dims(shapes: Sequence[Partial]) -> Partial:
    """Return the dims that shapes which fit are broadcast to, as far as they are known."""
    rank = max(map(len, shapes))
    columns = [
        [s[a - rank + len(s)] for s in shapes if a - rank + len(s) >= 0] for a in range(rank)
    ]
    return [_aligned(column) for column in columns]


def _aligned(sizes: Partial) -> Polynomial | None:
    others = {size: None for size in sizes if size != ONE}
    numbers = (size for size in others if size is not None and size.constant is not None)
    # The others are equal to a number that is not 1, or 1.
    return next(numbers, next(iter(others), ONE) if len(others) < 2 else None)


def _concatenated(node: NodeView) -> Partial | None:
    parts = [part for i in range(node.count) if (part := node.optional(i)) is not None]
    if not parts:
        return None
    (axis,) = axes_of([node.get("axis", 1)], parts[0].rank)
    # Along the other axes all parts have the same size: take it from one where it is a number.
    columns = zip(*(part.dims for part in parts), strict=True)
    dims: list[Polynomial | None] = [
        min(column, key=lambda size: size.constant is None) for column in columns
    ]
    total = sum((part.dims[axis] for part in parts), ZERO)
    dims[axis] = total if len(parts) == node.count else None
    return dims


def _reduced(node: NodeView, x: Tensor) -> Partial:
    listed = node.get("axis", 0 if node.op_type.startswith("Arg") else None)
    axes = node.reduced_axes(x.rank) if listed is None else axes_of([listed], x.rank)
    if node.get("keepdims", 1):
        return [ONE if axis in axes else size for axis, size in enumerate(x.dims)]
    return [size for axis, size in enumerate(x.dims) if axis not in axes]


def _sliced(_: OpenCase, node: NodeView, x: Tensor) -> Partial | None:
    axes = node.axes(3, x.rank)
    return None if axes is None else [None if a in axes else d for a, d in enumerate(x.dims)]


def _split(_: OpenCase, node: NodeView, x: Tensor) -> Partial:
    axes = axes_of([node.get("axis", 0)], x.rank)
    return [None if a in axes else d for a, d in enumerate(x.dims)]


def _squeezed(_: OpenCase, node: NodeView, x: Tensor) -> Partial | None:
    axes = node.axes(1, x.rank)
    return [size for a, size in enumerate(x.dims) if a not in axes] if axes else None


def _reshaped(case: OpenCase, node: NodeView, x: Tensor) -> Partial:
    """Return the sizes that a Reshape asks for: 0 copies the dim of the input, -1 takes what is left."""
    target = node.sizes("shape", 1)
    copies = not node.get("allowzero", 0)
    dims = [
        x.dims[axis] if copies and size == ZERO else size if case.surely(size) else None
        for axis, size in enumerate(target)
    ]
    if target.count(-ONE) == 1 and dims.count(None) == 1:
        left, others = list(x.dims), list[Polynomial]()
        for size in dims:
            if size in left:
                left.remove(size)
            elif size is not None:
                others.append(size)
        dims[target.index(-ONE)] = exact(product(left), product(others))
    return dims


def _expanded(_: OpenCase, node: NodeView, x: Tensor) -> Partial:
    return broadcast_dims([x.dims, node.sizes("shape", 1)])


def _padded(_: OpenCase, node: NodeView, x: Tensor) -> Partial:
    axes = node.axes(3, x.rank) or list(range(x.rank))
    amounts = node.sizes("pads" if node.has("pads") else "paddings", 1)
    dims = list(x.dims)
    for axis, begin, end in zip(axes, amounts[: len(axes)], amounts[len(axes) :], strict=True):
        dims[axis] = dims[axis] + begin + end
    return dims


def _gathered(_: OpenCase, node: NodeView, x: Tensor) -> Partial:
    (axis,) = axes_of([node.get("axis", 0)], x.rank)
    return [*x.dims[:axis], *node.input(1).dims, *x.dims[axis + 1 :]]


def _windows(case: OpenCase, node: NodeView, x: Tensor) -> Partial:
    """Return the dims behind a convolution, also one of an unknown weight, or a pool."""
    position = op_traits.OPERATORS[node.op_type].weight
    weight = None if position is None else node.optional(position)
    count = x.rank - 2
    channels = x.dims[1] if position is None else None if weight is None else weight.dims[0]
    listed = node.get("kernel_shape", None)
    kernel: Partial = [None] * count if weight is None else weight.dims[2:]
    kernel = kernel if listed is None else list(map(Polynomial.of, listed))
    strides, dilations = (node.get(a, [1] * count) for a in ("strides", "dilations"))
    auto = node.get("auto_pad", b"NOTSET")
    pads = node.get("pads", [0] * 2 * count) if auto == b"NOTSET" else [0] * 2 * count
    dims: list[Polynomial | None] = [x.dims[0], channels]
    for axis in range(count):
        size, width, stride = x.dims[axis + 2], kernel[axis], Polynomial.of(strides[axis])
        if auto in (b"SAME_UPPER", b"SAME_LOWER"):
            dims.append(case.floor_div(size + (stride - 1), stride))
        elif width is None or node.get("ceil_mode", 0) or auto not in (b"NOTSET", b"VALID"):
            dims.append(None)  # with ceil_mode, runtimes disagree on windows in the padding
        else:
            room = size + pads[axis] + pads[axis + count] - (width - 1) * dilations[axis] - 1
            dims.append(case.floor_div(room, stride) + 1)
    return dims


def _transposed_windows(_: OpenCase, node: NodeView, x: Tensor) -> Partial:
    weight, count = node.optional(1), x.rank - 2
    channels = None if weight is None else weight.dims[1] * node.get("group", 1)
    kernel: Partial = [None] * count if weight is None else weight.dims[2:]
    strides, dilations = (node.get(a, [1] * count) for a in ("strides", "dilations"))
    added = node.get("output_padding", [0] * count)
    auto = node.get("auto_pad", b"NOTSET")
    pads = node.get("pads", [0] * 2 * count) if auto == b"NOTSET" else [0] * 2 * count
    explicit = auto in (b"NOTSET", b"VALID") and not node.has("output_shape")
    dims: list[Polynomial | None] = [x.dims[0], channels]
    for axis in range(count):
        width = kernel[axis]
        if width is None or not explicit:
            dims.append(None)
            continue
        whole = (x.dims[axis + 2] - 1) * strides[axis] + (width - 1) * dilations[axis] + 1
        dims.append(whole + (added[axis] - pads[axis] - pads[axis + count]))
    return dims


_RULES: dict[str, Callable[[OpenCase, NodeView, Tensor], Partial | None]] = {
    **dict.fromkeys(op_traits.having(Trait.WINDOWS), _windows),
    "ConvTranspose": _transposed_windows,
    "Expand": _expanded,
    "Gather": _gathered,
    "Pad": _padded,
    "Reshape": _reshaped,
    "Slice": _sliced,
    "Split": _split,
    "Squeeze": _squeezed,
}
#: Operators with a rule.
OPERATORS = SAME_SHAPE | _BROADCASTS | _REDUCES | _RULES.keys() | {"Concat"}
