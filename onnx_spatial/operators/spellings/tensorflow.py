"""Read TensorFlow's spellings, as tf2onnx, tflite2onnx and their users write them.

SpaceToBatch    x[N,H,W,C], paddings[2,2]        block_size          = ND with [b, b]
BatchToSpace    x[N,H,W,C], crops[2,2]           block_size
SpaceToBatchND  x, block_shape[M], paddings[M,2]
BatchToSpaceND  x, block_shape[M], crops[M,2]
SpaceToDepth / DepthToSpace with three inputs in the default domain: tf2onnx's names for
    SpaceToBatchND / BatchToSpaceND whose block_shape is not constant
ExtractImagePatches   x[N,H,W,C]    ksizes strides rates padding
ExtractVolumePatches  x[N,D,H,W,C]  ksizes strides padding
"""

from __future__ import annotations

from onnx_spatial.errors import Code, OperatorError
from onnx_spatial.operators import AutoPad, ExtractPatches
from onnx_spatial.operators.operator import check_entries
from onnx_spatial.operators.spellings.call import (
    BLOCKS,
    TF_TYPES,
    BlockCall,
    FixedCall,
    NodeFacts,
    Vector,
    length_of_pairs,
    pairs,
    quoted,
    vector,
)

_LEFTOVERS = {"SpaceToDepth": "SpaceToBatch", "DepthToSpace": "BatchToSpace"}


def block_4d(node: NodeFacts) -> BlockCall:
    """Read SpaceToBatch / BatchToSpace with `block_size` and a table of paddings or crops."""
    kind, table = BLOCKS[node.op_type]
    block_size = node.integer("block_size")
    if block_size < 2:
        raise OperatorError(
            f"{node.op_type}: block_size is {block_size}; it must be at least 2",
            code=Code.OUT_OF_RANGE,
        )
    begins, ends = pairs(node, table, 1, TF_TYPES, 2)
    return BlockCall(kind, Vector(2, (block_size,) * 2), begins, ends, "tensorflow-4d", rank=4)


def block_nd(node: NodeFacts) -> BlockCall:
    """Read SpaceToBatchND / BatchToSpaceND: block_shape and a table, as inputs or attributes."""
    leftover = _LEFTOVERS.get(node.op_type)
    kind, table = BLOCKS[leftover or node.op_type.removesuffix("ND")]
    # An attribute takes no input slot: with block_shape an attribute the table is input 1.
    block_input, table_input = (3, 1) if "block_shape" in node.attributes else (1, 2)
    length = length_of_pairs(node, table_input)
    block = vector(node, "block_shape", block_input, TF_TYPES, length)
    begins, ends = pairs(node, table, table_input, TF_TYPES, block.length)
    dialect = "tensorflow-leftover" if leftover else "tensorflow-nd"
    return BlockCall(kind, block, begins, ends, dialect)


def read_patches(node: NodeFacts) -> FixedCall:
    """Read ExtractImagePatches and ExtractVolumePatches with `ksizes`, channels last."""
    volume = node.op_type == "ExtractVolumePatches"
    rank = 5 if volume else 4
    kernel = _spatial_entries(node, "ksizes", rank)
    strides = _spatial_entries(node, "strides", rank)
    if volume and "rates" not in node.attributes:
        rates = (1,) * len(kernel)
    else:
        rates = _spatial_entries(node, "rates", rank)
    if volume and set(rates) != {1}:
        raise OperatorError(
            "ExtractVolumePatches has no rates; they must be 1", code=Code.ATTRIBUTE
        )
    layout = node.attributes.get("data_format", "NDHWC" if volume else "NHWC")
    if layout not in ("NHWC", "NDHWC"):
        raise OperatorError(
            f"attribute data_format {quoted(layout)} is not a channels-last layout",
            code=Code.ATTRIBUTE,
        )
    padding = node.string("padding")
    same: AutoPad = "same_unclamped" if volume else "same_upper"
    auto_pads: dict[str, AutoPad] = {"SAME": same, "VALID": "valid"}
    if padding not in auto_pads:
        raise OperatorError(
            f"attribute padding must be SAME or VALID, not {quoted(padding)}", code=Code.ATTRIBUTE
        )
    operator = ExtractPatches(kernel, strides, rates, auto_pads[padding], "channels_last")
    return FixedCall(operator, "tensorflow")


def _spatial_entries(node: NodeFacts, name: str, rank: int) -> tuple[int, ...]:
    values = node.integers(name, rank)
    if values[0] != 1 or values[-1] != 1:
        raise OperatorError(
            f"attribute {name} is {list(values)}; its first and last entry (batch, channel) must be 1",
            code=Code.ATTRIBUTE,
        )
    check_entries(f"attribute {name}", values, 1)
    return values[1:-1]
