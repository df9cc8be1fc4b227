"""Define nodes that break a rule, in TensorFlow's spellings and in those that tf2onnx leaves."""

from __future__ import annotations

from broken_models.case import Case, block, one_node, pairs

IMAGE = "float[2,4,6,3]"
S2B, B2S = "TF.SpaceToBatchND(x, block, amounts)", "TF.BatchToSpaceND(x, block, amounts)"
NEUTRAL = pairs(0, 0, 0, 0)


def _rule(wrong: str, *says: str, call: str, x: str = IMAGE, constants: str = "") -> Case:
    return Case(wrong, "conversion", ("'broken'", *says), one_node(call, x, constants))


def _nd(wrong: str, *says: str, call: str = S2B, x: str = IMAGE, **parameters: str) -> Case:
    given = {"block": block(2, 3), "amounts": NEUTRAL, **parameters}
    return _rule(wrong, *says, call=call, x=x, constants=", ".join(filter(None, given.values())))


def _four(wrong: str, *says: str, call: str, x: str = IMAGE, amounts: str = NEUTRAL) -> Case:
    return _rule(wrong, *says, call=call, x=x, constants=amounts)


def _patches(wrong: str, *says: str, x: str = IMAGE, volume: bool = False, **changed: str) -> Case:
    ones = ", 1" * (2 if volume else 1)
    attributes = {"ksizes": f"[1, 2, 2{ones}]", "strides": f"[1, 1, 1{ones}]"}
    if not volume:
        attributes["rates"] = "[1, 1, 1, 1]"
    attributes = {**attributes, "padding": '"VALID"', **changed}
    listed = ", ".join(f"{name} = {value}" for name, value in attributes.items() if value)
    op_type = "ExtractVolumePatches" if volume else "ExtractImagePatches"
    return _rule(wrong, *says, call=f"TF.{op_type} <{listed}> (x)", x=x)


SPACE_TO_BATCH = {
    "block_does_not_divide": _nd(
        "SpaceToBatchND: the block does not divide the width",
        *("axis 2: size 7", "its block, 3"),
        x="float[2,4,7,3]",
    ),
    "block_zero": _nd(
        "SpaceToBatchND: an entry of the block shape is 0",
        *("block_shape[0] is 0", "at least 1"),
        block=block(0, 3),
    ),
    "paddings_negative": _nd(
        "SpaceToBatchND: a padding is negative",
        *("paddings[1][0] is -1", "not be negative"),
        amounts=pairs(0, 0, -1, 1),
    ),
    "paddings_too_few": _nd(
        "SpaceToBatchND: two blocked axes, paddings for one",
        *("paddings must have shape [2, 2]", "not [1, 2]"),
        amounts=pairs(0, 0),
    ),
    "paddings_missing": _nd(
        "SpaceToBatchND: the third input is missing",
        *("paddings is missing", "input 2"),
        call="TF.SpaceToBatchND(x, block)",
        amounts="",
    ),
    "block_of_floats": _nd(
        "SpaceToBatchND: the block shape holds reals",
        *("block_shape must be int32 or int64", "not float32"),
        block="float[2] block = {2.0, 3.0}",
    ),
    "rank_too_low": _nd(
        "SpaceToBatchND: two blocked axes, data with one axis behind the batch",
        *("2 blocked dims", "rank 3 or more", "[2, 6]"),
        x="float[2,6]",
    ),
    "block_twice": _nd(
        "SpaceToBatchND: the 4-D form's block_size and a block_shape at once",
        *("block_size", "block_shape", "two different spellings"),
        call="TF.SpaceToBatchND <block_size = 2, block_shape = [2, 3]> (x, amounts)",
        block="",
    ),
    "data_is_a_sequence": _nd(
        "SpaceToBatchND: the data input is a sequence of images",
        *("the data input", "sequence"),
        x="seq(float[2,4,6,3])",
    ),
    "block_size_1": _four(
        "SpaceToBatch, 4-D form: a block of 1, which TensorFlow refuses",
        *("block_size is 1", "at least 2"),
        call="TF.SpaceToBatch <block_size = 1> (x, amounts)",
    ),
    "leftover_block_negative": _nd(
        "SpaceToDepth with three inputs, as tf2onnx leaves SpaceToBatchND: a negative block",
        *("SpaceToDepth", "block_shape[1] is -3", "at least 1"),
        call="SpaceToDepth(x, block, amounts)",
        block=block(2, -3),
    ),
}

BATCH_TO_SPACE = {
    "batch_not_divisible": _nd(
        "BatchToSpaceND: the block does not divide the batch",
        *("batch 8 is not divisible by 6", "[2, 3]"),
        call=B2S,
        x="float[8,4,6,3]",
    ),
    "crops_too_large": _nd(
        "BatchToSpaceND: more is cropped than there is",
        *("axis 1: crops 5 + 4", "4 * 2 = 8"),
        call=B2S,
        x="float[6,4,6,3]",
        amounts=pairs(5, 4, 0, 0),
    ),
    "crops_negative": _nd(
        "BatchToSpaceND: a crop is negative",
        *("crops[0][1] is -2", "not be negative"),
        call=B2S,
        x="float[6,4,6,3]",
        amounts=pairs(0, -2, 0, 0),
    ),
    "crops_not_in_pairs": _four(
        "BatchToSpace, 4-D form: crops of three axes",
        *("crops must have shape [2, 2]", "[3, 2]"),
        call="TF.BatchToSpace <block_size = 2> (x, amounts)",
        x="float[8,4,6,3]",
        amounts=pairs(0, 0, 0, 0, 0, 0),
    ),
    "leftover_batch": _nd(
        "DepthToSpace with three inputs, as tf2onnx leaves BatchToSpaceND: the batch does not divide",
        *("DepthToSpace", "batch 8 is not divisible by 6"),
        call="DepthToSpace(x, block, amounts)",
        x="float[8,4,6,3]",
    ),
}

PATCHES = {
    "ksizes_of_batch": _patches(
        "ExtractImagePatches: a window of 2 images",
        *("ksizes is [2, 2, 2, 1]", "batch", "must be 1"),
        ksizes="[2, 2, 2, 1]",
    ),
    "stride_zero": _patches(
        "ExtractImagePatches: a stride of 0",
        *("strides[1] is 0", "at least 1"),
        strides="[1, 0, 1, 1]",
    ),
    "rate_zero": _patches(
        "ExtractImagePatches: a rate of 0",
        *("rates[2] is 0", "at least 1"),
        rates="[1, 1, 0, 1]",
    ),
    "strides_missing": _patches(
        "ExtractImagePatches: no strides", "strides is missing", strides=""
    ),
    "padding_in_lower_case": _patches(
        "ExtractImagePatches: padding in lower case",
        *("padding must be SAME or VALID", "'same'"),
        padding='"same"',
    ),
    "window_beyond_image": _patches(
        "ExtractImagePatches, VALID: the window is larger than the image",
        *("axis 0: a window of 9", "size 4"),
        rates="[1, 8, 1, 1]",
    ),
    "patches_twice": _patches(
        "ExtractImagePatches: TensorFlow's ksizes and OpenVINO's sizes at once",
        *("ksizes", "sizes", "two different spellings"),
        sizes="[2, 2]",
    ),
    "volume_rates": _patches(
        "ExtractVolumePatches: rates, which it has not",
        *("ExtractVolumePatches has no rates", "must be 1"),
        x="float[2,4,6,4,3]",
        volume=True,
        rates="[1, 2, 1, 1, 1]",
    ),
    "volume_is_an_image": _patches(
        "ExtractVolumePatches: data of rank 4",
        *("rank 5", "[2, 4, 6, 3]"),
        volume=True,
    ),
}

CASES = {**SPACE_TO_BATCH, **BATCH_TO_SPACE, **PATCHES}
