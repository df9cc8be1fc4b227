"""What the dims of a value are, in terms of the dims of what it is computed from.

    x: [n, c, h, w]  ->  Conv(kernel 3, pads 1, 1)  ->  [n, m, h, w]  ->  Pad 1  ->  [n, m, h+2, w+2]

Shape inference knows such things of dims that are numbers; here they are expressions. A rule
answers None for a dim, or for all of them, where it cannot say.
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

#: Operators whose first output has the dims of their first input.
SAME = op_traits.having(Trait.SAME_SHAPE)
#: Operators whose inputs are broadcast to each other.
BROADCAST = op_traits.having(Trait.BROADCASTS) - SAME
_WINDOWS = op_traits.having(Trait.WINDOWS) - {"ConvTranspose"}

#: Operators of the default domain that there is a rule for.
OPERATORS = SAME | BROADCAST | _WINDOWS | {"Concat", "Pad", "Squeeze", "Transpose", "Unsqueeze"}
#: Operators that tell the dims of their input.
MEASURING = op_traits.having(Trait.SIZES)
#: Of these, the ones that take parameters, and which of their inputs those are.
PARAMETERS = {"Pad": (1, 3), "Squeeze": (1,), "Unsqueeze": (1,)}


def measure(operator: str, attributes: Attributes, dims: Dims) -> SymbolicTensor | None:
    """What Shape or Size, whichever `operator` is, gives for a tensor of these dims."""
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
    """The dims of the first output of one of `OPERATORS`; None if not even the rank is known.

    Args:
        operator: its type.
        attributes: its attributes.
        dims: the dims of its inputs, as far as they are known.
        entries: its inputs as small tensors, where they are `PARAMETERS`; None only for those that
            are left out.

    Raises:
        Exception: of any type, where axes are only known to the run, or the node breaks its
            operator's rules.
    """
    first = dims[0]
    if operator in BROADCAST and not {"axis", "broadcast"} & attributes.keys():
        return _broadcast(dims)
    if first is None:
        return None
    if (
        operator in SAME or operator in BROADCAST
    ):  # which before opset 7 fit themselves to the first
        return first
    if operator in _WINDOWS:
        weight = op_traits.OPERATORS[operator].weight
        if weight is None:
            return _pooled(attributes, first)
        return _convolved(attributes, first, dims[weight])
    if operator == "Concat":
        return _concatenated(attributes["axis"], dims)
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
    """What sizes that stand over each other are broadcast to, if that does not depend on the run."""
    distinct = {size for size in sizes if size.constant != 1}
    for size in distinct:
        if size.constant is not None:  # the others are the same, or 1
            return size
    if len(distinct) > 1:
        return None
    return next(iter(distinct), Polynomial.of(1))


def _concatenated(axis: int, dims: Sequence[Dims | None]) -> Partial | None:
    known = [d for d in dims if d is not None]
    if not known:
        return None
    axis %= len(known[0])
    # Along the other axes all inputs have the same size: the one that says most is taken.
    sizes: list[Polynomial | None] = [
        min(column, key=lambda size: size.constant is None) for column in zip(*known, strict=True)
    ]
    total = sum((d[axis] for d in known), Polynomial.of(0))
    sizes[axis] = total if len(known) == len(dims) else None
    return tuple(sizes)


def _transposed(attributes: Attributes, first: Dims, _: _Inputs) -> Partial:
    order = attributes.get("perm") or range(len(first))[::-1]
    if sorted(order) != list(range(len(first))):
        raise ValueError("not a permutation")
    return tuple(first[axis] for axis in order)


def _unsqueezed(attributes: Attributes, first: Dims, entries: _Inputs) -> Partial:
    axes = parameter(attributes, "axes", entries, 1)
    if axes is None:
        raise ValueError("no axes are given")
    rank = len(first) + len(axes)
    new = {_axis(axis, rank) for axis in axes}
    old = iter(first)
    return tuple(Polynomial.of(1) if i in new else next(old) for i in range(rank))


def _squeezed(attributes: Attributes, first: Dims, entries: _Inputs) -> Partial:
    axes = parameter(attributes, "axes", entries, 1)
    if not axes:  # all that are 1, which the run finds out
        raise ValueError("no axes are given")
    gone = {_axis(axis, len(first)) for axis in axes}
    return tuple(size for i, size in enumerate(first) if i not in gone)


def _padded(attributes: Attributes, first: Dims, entries: _Inputs) -> Partial | None:
    axes = parameter({}, "axes", entries, 3)
    at = [_axis(a, len(first)) for a in axes] if axes is not None else list(range(len(first)))
    held = attributes.get("pads", attributes.get("paddings"))
    if held is not None:
        pads = [Polynomial.of(p) for p in held]
    else:
        given = entries[1]
        pads = list(given.elements) if given is not None else []
    if len(pads) != 2 * len(at):
        return None
    sizes = list(first)
    for axis, begin, end in zip(at, pads[: len(at)], pads[len(at) :], strict=True):
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


def _pooled(attributes: Attributes, first: Dims) -> Partial:
    kernel = tuple(map(Polynomial.of, attributes["kernel_shape"]))
    if attributes.get("ceil_mode", 0):  # runtimes differ on windows that start in the padding
        return (*first[:2], *[None] * len(kernel))
    return (*first[:2], *_windows(attributes, first[2:], kernel))


def _windows(attributes: Attributes, sizes: Dims, kernel: Partial) -> Partial:
    """How many windows there are along each spatial axis."""
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
    "Squeeze": _squeezed,
    "Transpose": _transposed,
    "Unsqueeze": _unsqueezed,
}
