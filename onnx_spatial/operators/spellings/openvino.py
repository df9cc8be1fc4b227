"""OpenVINO's spellings.

    SpaceToBatch-2  data, block_shape[R], pads_begin[R], pads_end[R]     R = rank of data
    BatchToSpace-2  data, block_shape[R], crops_begin[R], crops_end[R]
    ExtractImagePatches-3  data[N,C,H,W]  sizes strides rates auto_pad
    ReorgYolo-1  data[N,C,H,W]  stride, an integer or a list of which the first one counts

Entry 0 of the first two stands for the batch and must be 1, 0, 0: the runtimes return garbage for
anything else. The printed permutation of BatchToSpace-2 is off by one; the operators here are what it
computes.
"""

from __future__ import annotations

from dataclasses import replace

from onnx_spatial.errors import OperatorError
from onnx_spatial.operators import (
    AutoPad,
    BatchToSpace,
    ExtractPatches,
    ReorgYolo,
    SpaceToBatch,
)
from onnx_spatial.operators.shapes import show
from onnx_spatial.operators.spellings.block_call import BlockCall
from onnx_spatial.operators.spellings.call import FixedCall, NodeFacts, Vector
from onnx_spatial.operators.spellings.parameters import ANY_INTEGER, vector

_AUTO_PAD: dict[str, AutoPad] = {
    "valid": "valid",
    "same_upper": "same_upper",
    "same_lower": "same_lower",
}


def block(node: NodeFacts) -> BlockCall:
    """SpaceToBatch / BatchToSpace with one entry per dim, the batch included."""
    kind: type[SpaceToBatch] | type[BatchToSpace] = (
        SpaceToBatch if node.op_type.startswith("SpaceToBatch") else BatchToSpace
    )
    amounts = "pads" if kind is SpaceToBatch else "crops"
    data = node.inputs[0] if node.inputs else None
    shape = data.shape if data is not None else None
    names = ("block_shape", f"{amounts}_begin", f"{amounts}_end")
    known_lengths = [len(shape)] if shape is not None else []
    for index, name in enumerate(names, start=1):
        fact = node.inputs[index] if index < len(node.inputs) else None
        if fact is not None and fact.shape is not None and len(fact.shape) == 1:
            known_lengths += [d for d in fact.shape if isinstance(d, int)]
        elif fact is None and name in node.attributes:
            known_lengths.append(len(node.integers(name)))
    length = known_lengths[0] if known_lengths else None
    found = [vector(node, name, i, ANY_INTEGER, length) for i, name in enumerate(names, start=1)]
    rank = found[0].length
    for name, entries in zip(names, found, strict=True):
        if entries.length != rank:
            raise OperatorError(f"{name} has {entries.length} entries, block_shape has {rank}")
    if shape is not None and len(shape) != rank:
        raise OperatorError(
            f"block_shape has {rank} entries but data has rank {len(shape)}, {show(shape)}"
        )
    if rank < 2:
        raise OperatorError(f"data must have rank 2 or more, not {rank}")
    block_shape, begins, ends = (
        _without_batch(name, entries, neutral)
        for name, entries, neutral in zip(names, found, (1, 0, 0), strict=True)
    )
    return BlockCall(kind, block_shape, begins, ends, "openvino", rank=rank)


def _without_batch(name: str, entries: Vector, neutral: int) -> Vector:
    if entries.values is None:
        return replace(entries, length=entries.length - 1, start=1)
    if entries.values[0] != neutral:
        raise OperatorError(
            f"{name}[0] is {entries.values[0]}; the entry of the batch axis must be {neutral}"
        )
    for axis, value in enumerate(entries.values):
        if value < neutral:
            rule = "be at least 1" if neutral else "not be negative"
            raise OperatorError(f"{name}[{axis}] is {value}; it must {rule}")
    return Vector(entries.length - 1, entries.values[1:])


def patches(node: NodeFacts) -> FixedCall:
    """ExtractImagePatches with `sizes` and `auto_pad`, channels first."""
    kernel, strides, rates = (_positive(node, name) for name in ("sizes", "strides", "rates"))
    auto_pad = node.string("auto_pad").lower()
    if auto_pad not in _AUTO_PAD:
        raise OperatorError(
            f"attribute auto_pad must be valid, same_upper or same_lower, not {auto_pad!r}"
        )
    operator = ExtractPatches(
        kernel, strides, rates, _AUTO_PAD[auto_pad], "channels_first", clamp_negative=True
    )
    return FixedCall(operator, "openvino")


def reorg(node: NodeFacts) -> FixedCall:
    """ReorgYolo; of a list of strides OpenVINO reads the first."""
    strides = node.attributes.get("stride")
    if not isinstance(strides, tuple):
        stride = node.integer("stride")
    elif strides:
        stride = node.integers("stride")[0]
    else:
        raise OperatorError("attribute stride is an empty list; it must hold an integer")
    return FixedCall(ReorgYolo(stride), "openvino")


def _positive(node: NodeFacts, name: str) -> tuple[int, ...]:
    values = node.integers(name, 2)
    for axis, value in enumerate(values):
        if value < 1:
            raise OperatorError(f"attribute {name}[{axis}] is {value}; it must be at least 1")
    return values
