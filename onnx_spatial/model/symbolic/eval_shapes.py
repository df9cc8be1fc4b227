"""Infer the dims of a node's output from the symbolic dims of its inputs.

    x: [n, c, h, w]  ->  Conv(kernel 3, pads 1, 1)  ->  [n, m, h, w]  ->  Pad 1  ->  [n, m, h+2, w+2]

onnx's shape inference needs dims that are numbers; here they are polynomials. A rule returns None for
an unknown dim, or for an unknown rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import mul

from onnx import TensorProto

from onnx_spatial.model import op_traits
from onnx_spatial.model.op_traits import Trait
from onnx_spatial.model.symbolic.eval_movement import parameter
from onnx_spatial.model.symbolic.polynomial import Polynomial, quotient
from onnx_spatial.model.symbolic.symbolic_tensor import (
    MAX_ENTRIES,
    Attributes,
    SymbolicTensor,
    table,
)

Dims = tuple[Polynomial, ...]
#: Dims of which some may be unknown.
Partial = tuple[Polynomial | None, ...]
_Inputs = Sequence[SymbolicTensor | None]

#: Operators whose first output has the shape of their first input.
SAME = op_traits.having(Trait.SAME_SHAPE)
#: Operators whose inputs are broadcast to each other.
BROADCAST = op_traits.having(Trait.BROADCASTS) - SAME
_WINDOWS = op_traits.having(Trait.WINDOWS)
_REDUCE = op_traits.having(Trait.REDUCES)

#: Operators of the default domain with a rule.
OPERATORS = (
    SAME
    | BROADCAST
    | _WINDOWS
    | _REDUCE
    | {"Concat", "Gather", "MatMul", "Pad", "Reshape", "Slice", "Split", "Squeeze", "Transpose"}
    | {"Unsqueeze"}
)
#: Shape and Size.
MEASURING = op_traits.having(Trait.SIZES)
#: Positions of the inputs that are parameters of a rule.
PARAMETERS = {
    **dict.fromkeys(_REDUCE, (1,)),
    "Pad": (1, 3),
    "Reshape": (1,),
    "Slice": (3,),
    "Squeeze": (1,),
    "Unsqueeze": (1,),
}


def measure(operator: str, attributes: Attributes, dims: Dims) -> SymbolicTensor | None:
    """Return the output of Shape or Size for a tensor of these dims; None if it is too large."""
    if operator == "Size":
        count = reduce(mul, dims, Polynomial.of(1))
        return SymbolicTensor(TensorProto.INT64, table([count], ()))
    sizes = dims[attributes.get("start", 0) : attributes.get("end", len(dims))]
    if len(sizes) > MAX_ENTRIES:
        return None
    return SymbolicTensor(TensorProto.INT64, table(sizes, [len(sizes)]))


def follow(
    operator: str, attributes: Attributes, dims: Sequence[Dims | None], entries: _Inputs
) -> Partial | None:
    """Return the dims of the first output of one of `OPERATORS`; None if the rank is unknown.

    `entries` has the inputs in `PARAMETERS` as symbolic tensors; None for omitted inputs and others.

    Raises:
        Exception: of any type, if axes are unknown or the node breaks its operator's rules.
    """
    first = dims[0]
    if operator in BROADCAST and not {"axis", "broadcast"} & attributes.keys():
        return _broadcast(dims)
    if first is None:
        return None
    # Before opset 7, inputs are broadcast to the first one.
    if operator in SAME or operator in BROADCAST:
        return first
    if operator in _WINDOWS:
        weight = op_traits.OPERATORS[operator].weight
        if weight is None:
            return _pooled(attributes, first)
        if operator == "ConvTranspose":
            return _transposed_convolved(attributes, first, dims[weight])
        return _convolved(attributes, first, dims[weight])
    if operator == "Concat":
        return _concatenated(attributes["axis"], dims)
    if operator == "Gather":
        return _gathered(attributes.get("axis", 0), first, dims[1])
    if operator == "MatMul":
        return (*first[:-1], dims[1][-1]) if dims[1] is not None and len(dims[1]) == 2 else None
    if operator in _REDUCE:
        return _reduced(attributes, first, entries)
    return _RULES[operator](attributes, first, entries)


def _broadcast(dims: Sequence[Dims | None]) -> Partial | None:
    known = [d for d in dims if d is not None]
    if len(known) < len(dims):
        return None
    rank = max(map(len, known))
    return tuple(
        _aligned([d[i - rank + len(d)] for d in known if i - rank + len(d) >= 0])
        for i in range(rank)
    )


def _aligned(sizes: Sequence[Polynomial]) -> Polynomial | None:
    """Return the size that aligned sizes are broadcast to; None if it depends on their values."""
    distinct = {size for size in sizes if size.constant != 1}
    for size in distinct:
        if size.constant is not None:  # the others are equal to it, or 1
            return size
    if len(distinct) > 1:
        return None
    return next(iter(distinct), Polynomial.of(1))


def _concatenated(axis: int, dims: Sequence[Dims | None]) -> Partial | None:
    known = [d for d in dims if d is not None]
    if not known:
        return None
    axis %= len(known[0])
    # Along the other axes all inputs have the same size: take it from one where it is a number.
    sizes: list[Polynomial | None] = [
        min(column, key=lambda size: size.constant is None) for column in zip(*known, strict=True)
    ]
    total = sum((d[axis] for d in known), Polynomial.of(0))
    sizes[axis] = total if len(known) == len(dims) else None
    return tuple(sizes)


def _gathered(axis: int, first: Dims, indices: Dims | None) -> Partial | None:
    axis = _axis(axis, len(first))
    return None if indices is None else (*first[:axis], *indices, *first[axis + 1 :])


def _reduced(attributes: Attributes, first: Dims, entries: _Inputs) -> Partial:
    listed = attributes.get("axis")
    axes = parameter(attributes, "axes", entries, 1) if listed is None else [listed]
    if not axes:  # all axes or none, as the operator and its opset say
        raise ValueError("no axes")
    gone = {_axis(axis, len(first)) for axis in axes}
    if attributes.get("keepdims", 1):
        return tuple(Polynomial.of(1) if i in gone else size for i, size in enumerate(first))
    return tuple(size for i, size in enumerate(first) if i not in gone)


def _sliced(attributes: Attributes, first: Dims, entries: _Inputs) -> Partial:
    """Keep the dims of the axes that a Slice does not name."""
    axes = parameter(attributes, "axes", entries, 3)
    if axes is None:
        raise ValueError("no axes")
    cut = {_axis(axis, len(first)) for axis in axes}
    return tuple(None if i in cut else size for i, size in enumerate(first))


def _split(attributes: Attributes, first: Dims, _: _Inputs) -> Partial:
    cut = _axis(attributes.get("axis", 0), len(first))
    return tuple(None if i == cut else size for i, size in enumerate(first))


def _reshaped(attributes: Attributes, first: Dims, entries: _Inputs) -> Partial:
    """Return the target of a Reshape, in which 0 stands for a dim of the input and -1 for the rest."""
    target = entries[1] if len(entries) > 1 else None
    if target is None:
        raise ValueError("no shape, or an attribute of an old opset")
    copies = not attributes.get("allowzero", 0)
    sizes: list[Polynomial | None] = [
        first[axis] if copies and size.constant == 0 else size if size.nonnegative else None
        for axis, size in enumerate(target.elements)
    ]
    rest = [axis for axis, size in enumerate(target.elements) if size.constant == -1]
    if len(rest) == 1 and sizes.count(None) == 1:
        sizes[rest[0]] = _rest([size for size in sizes if size is not None], first)
    return tuple(sizes)


def _rest(sizes: Sequence[Polynomial], dims: Dims) -> Polynomial | None:
    """Divide the product of dims by that of sizes; None if the quotient is not known."""
    left = list(dims)
    divisor = Polynomial.of(1)
    for size in sizes:
        if size in left:
            left.remove(size)
        else:
            divisor *= size
    count = reduce(mul, left, Polynomial.of(1))
    return (
        quotient(count, divisor) if divisor.constant and count.divisible(divisor.constant) else None
    )


def _transposed(attributes: Attributes, first: Dims, _: _Inputs) -> Partial:
    order = attributes.get("perm") or range(len(first))[::-1]
    if sorted(order) != list(range(len(first))):
        raise ValueError("not a permutation")
    return tuple(first[axis] for axis in order)


def _unsqueezed(attributes: Attributes, first: Dims, entries: _Inputs) -> Partial:
    axes = parameter(attributes, "axes", entries, 1)
    if axes is None:
        raise ValueError("no axes")
    rank = len(first) + len(axes)
    new = {_axis(axis, rank) for axis in axes}
    old = iter(first)
    return tuple(Polynomial.of(1) if i in new else next(old) for i in range(rank))


def _squeezed(attributes: Attributes, first: Dims, entries: _Inputs) -> Partial:
    axes = parameter(attributes, "axes", entries, 1)
    if not axes:  # all axes of size 1, which is unknown until run time
        raise ValueError("no axes")
    gone = {_axis(axis, len(first)) for axis in axes}
    return tuple(size for i, size in enumerate(first) if i not in gone)


def _padded(attributes: Attributes, first: Dims, entries: _Inputs) -> Partial | None:
    axes = parameter({}, "axes", entries, 3)
    axes = [_axis(a, len(first)) for a in axes] if axes is not None else list(range(len(first)))
    amounts = attributes.get("pads", attributes.get("paddings"))
    if amounts is not None:
        pads = [Polynomial.of(p) for p in amounts]
    else:
        pads = list(entries[1].elements) if entries[1] is not None else []
    if len(pads) != 2 * len(axes):
        return None
    sizes = list(first)
    for axis, begin, end in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        sizes[axis] = sizes[axis] + begin + end
    return tuple(sizes)


def _convolved(attributes: Attributes, first: Dims, weight: Dims | None) -> Partial:
    spatial = len(first) - 2
    if "kernel_shape" in attributes:
        kernel: Partial = tuple(map(Polynomial.of, attributes["kernel_shape"]))
    else:
        kernel = weight[2:] if weight is not None else (None,) * spatial
    channels = weight[0] if weight is not None else None
    return (first[0], channels, *_windows(attributes, first[2:], kernel))


def _transposed_convolved(attributes: Attributes, first: Dims, weight: Dims | None) -> Partial:
    """Follow a ConvTranspose with explicit pads."""
    spatial = len(first) - 2
    explicit = attributes.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID")
    kernel: Partial = (None,) * spatial if weight is None else weight[2:]
    channels = None if weight is None else weight[1] * attributes.get("group", 1)
    strides = attributes.get("strides") or [1] * spatial
    dilations = attributes.get("dilations") or [1] * spatial
    added = attributes.get("output_padding") or [0] * spatial
    pads = attributes.get("pads") or [0] * (2 * spatial)
    if attributes.get("auto_pad") == b"VALID":
        pads = [0] * (2 * spatial)
    sizes: list[Polynomial | None] = []
    for axis, (size, width) in enumerate(zip(first[2:], kernel, strict=True)):
        if width is None or not explicit or "output_shape" in attributes:
            sizes.append(None)
            continue
        whole = (size - 1) * strides[axis] + (width - 1) * dilations[axis] + 1 + added[axis]
        sizes.append(whole - pads[axis] - pads[axis + spatial])
    return (first[0], channels, *sizes)


def _pooled(attributes: Attributes, first: Dims) -> Partial:
    kernel = tuple(map(Polynomial.of, attributes["kernel_shape"]))
    if attributes.get("ceil_mode", 0):  # runtimes disagree on windows that start in the padding
        return (*first[:2], *[None] * len(kernel))
    return (*first[:2], *_windows(attributes, first[2:], kernel))


def _windows(attributes: Attributes, sizes: Dims, kernel: Partial) -> Partial:
    """Return the number of windows along each spatial axis."""
    strides = attributes.get("strides") or [1] * len(sizes)
    dilations = attributes.get("dilations") or [1] * len(sizes)
    pads = attributes.get("pads") or [0] * (2 * len(sizes))
    auto_pad = attributes.get("auto_pad", b"NOTSET")
    if auto_pad in (b"SAME_UPPER", b"SAME_LOWER"):
        return tuple(
            quotient(size + stride - 1, Polynomial.of(stride))
            for size, stride in zip(sizes, strides, strict=True)
        )
    if auto_pad not in (b"NOTSET", b"VALID"):
        raise ValueError("unknown auto_pad")
    if auto_pad == b"VALID":
        pads = [0] * (2 * len(sizes))
    result: list[Polynomial | None] = []
    for axis, (size, width) in enumerate(zip(sizes, kernel, strict=True)):
        if width is None:
            result.append(None)
            continue
        room = size + pads[axis] + pads[axis + len(sizes)] - dilations[axis] * (width - 1) - 1
        result.append(quotient(room, Polynomial.of(strides[axis])) + 1)
    return tuple(result)


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ValueError("no such axis")
    return axis % rank


_RULES: dict[str, Callable[[Attributes, Dims, _Inputs], Partial | None]] = {
    "Pad": _padded,
    "Reshape": _reshaped,
    "Slice": _sliced,
    "Split": _split,
    "Squeeze": _squeezed,
    "Transpose": _transposed,
    "Unsqueeze": _unsqueezed,
}
