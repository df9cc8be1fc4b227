"""Read OpenVINO's spellings.

    SpaceToBatch-2  data, block_shape[R], pads_begin[R], pads_end[R]     R = rank of data
    BatchToSpace-2  data, block_shape[R], crops_begin[R], crops_end[R]
    ExtractImagePatches-3  data[N,C,H,W]  sizes strides rates auto_pad
    ReorgYolo-1  data[N,C,H,W]  stride, an integer or a list whose first entry counts

Entry 0 of the first two is that of the batch and must be 1, 0, 0: for anything else the runtimes return
garbage. The specification's permutation of BatchToSpace-2 is off by one; here it is as computed.
"""

from __future__ import annotations

from onnx_spatial.errors import Code, OperatorError
from onnx_spatial.operators import (
    AutoPad,
    ExtractPatches,
    ReorgYolo,
    SpaceToBatch,
)
from onnx_spatial.operators.operator import check_entries, show
from onnx_spatial.operators.spellings.call import (
    ANY_INTEGER,
    BLOCKS,
    BlockCall,
    FixedCall,
    NodeFacts,
    vector,
    without_batch,
)

_AUTO_PAD: dict[str, AutoPad] = {
    "valid": "valid",
    "same_upper": "same_upper",
    "same_lower": "same_lower",
}


def read_block(node: NodeFacts) -> BlockCall:
    """Read SpaceToBatch / BatchToSpace with one entry per dim, the batch included."""
    kind, _ = BLOCKS[node.op_type]
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
    vectors = [vector(node, name, i, ANY_INTEGER, length) for i, name in enumerate(names, start=1)]
    rank = vectors[0].length
    for name, entries in zip(names, vectors, strict=True):
        if entries.length != rank:
            raise OperatorError(
                f"{name} has {entries.length} entries, block_shape has {rank}", code=Code.PARAMETER
            )
    if shape is not None and len(shape) != rank:
        raise OperatorError(
            f"block_shape has {rank} entries but data has rank {len(shape)}, {show(shape)}",
            code=Code.RANK,
        )
    if rank < 2:
        raise OperatorError(f"data must have rank 2 or more, not {rank}", code=Code.RANK)
    # The entry of the batch axis is 1, 0 and 0; no other entry is less than that.
    neutral = (1, 0, 0)
    for name, entries, least in zip(names, vectors, neutral, strict=True):
        check_entries(name, (entries.values or ())[1:], least, start=1)
    block_shape, begins, ends = map(without_batch, names, vectors, neutral)
    return BlockCall(kind, block_shape, begins, ends, "openvino", rank=rank)


def read_patches(node: NodeFacts) -> FixedCall:
    """Read ExtractImagePatches with `sizes` and `auto_pad`, channels first."""
    names = ("sizes", "strides", "rates")
    kernel, strides, rates = (node.integers(name, 2) for name in names)
    for name, entries in zip(names, (kernel, strides, rates), strict=True):
        check_entries(f"attribute {name}", entries, 1)
    auto_pad = node.string("auto_pad").lower()
    if auto_pad not in _AUTO_PAD:
        raise OperatorError(
            f"attribute auto_pad must be valid, same_upper or same_lower, not {auto_pad!r}",
            code=Code.ATTRIBUTE,
        )
    operator = ExtractPatches(
        kernel, strides, rates, _AUTO_PAD[auto_pad], "channels_first", clamp_negative=True
    )
    return FixedCall(operator, "openvino")


def read_reorg(node: NodeFacts) -> FixedCall:
    """Read ReorgYolo; of a list of strides OpenVINO uses the first."""
    strides = node.attributes.get("stride")
    if not isinstance(strides, tuple):
        stride = node.integer("stride")
    elif strides:
        stride = node.integers("stride")[0]
    else:
        raise OperatorError(
            "attribute stride is an empty list; it must hold an integer", code=Code.OUT_OF_RANGE
        )
    return FixedCall(ReorgYolo(stride), "openvino")
