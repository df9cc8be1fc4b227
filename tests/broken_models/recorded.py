"""Define correct models with recorded data that is damaged or belongs to another model."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np
from onnx import numpy_helper

from broken_models.case import MODEL, Case, parsed, serialized

Array = np.ndarray
SET = "test_data_set_0"

SPACE_TO_BATCH = """net (float[N,4,6,1] image) => (float[M,2,2,1] blocks)
<int32[2] block = {2, 3}, int32[2,2] paddings = {0, 0, 0, 0}> {
    [s2b] blocks = TF.SpaceToBatchND(image, block, paddings)
}"""
BATCH_TO_SPACE = """net (float[M,2,2,1] blocks) => (float[N,h,w,1] image)
<int32[2] block = {2, 3}, int32[2,2] crops = {0, 1, 0, 0}> {
    [b2s] image = TF.BatchToSpaceND(blocks, block, crops)
}"""
TF_PATCHES = """net (float[N,4,4,3] image) => (float[N,3,3,12] windows) {
    [patches] windows = TF.ExtractImagePatches <ksizes = [1, 2, 2, 1], strides = [1, 1, 1, 1],
        rates = [1, 1, 1, 1], padding = "VALID"> (image)
}"""
OV_PATCHES = """net (float[N,2,4,4] image) => (float[N,8,4,4] windows) {
    [patches] windows = OV.ExtractImagePatches <sizes = [2, 2], strides = [1, 1],
        rates = [1, 1], auto_pad = "same_lower"> (image)
}"""
VOLUME = """net (float[N,4,4,4,1] clip) => (float[N,3,3,3,8] cubes) {
    [cubes] cubes = TF.ExtractVolumePatches <ksizes = [1, 2, 2, 2, 1], strides = [1, 1, 1, 1, 1],
        padding = "VALID"> (clip)
}"""
DENSE = """net (float[N,4,6,1] image) => (float[M,2,2,2] features)
<int32[2] block = {2, 3}, int32[2,2] paddings = {0, 0, 0, 0}, float[1,2] weight = {0.5, -0.25}> {
    [s2b] blocks = TF.SpaceToBatchND(image, block, paddings)
    [dense] features = MatMul(blocks, weight)
}"""


def counted(*shape: int) -> Array:
    """Return an array of 1, 2, 3, ... in which every moved element shows."""
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


IMAGE = counted(2, 4, 6, 1)
BLOCKS = counted(12, 2, 2, 1)


def space_to_batch(x: Array, order: str = "hwnHWc") -> Array:
    """Apply SpaceToBatch with blocks of 2 x 3; `order` permutes the axes N H h W w c."""
    split = x.reshape(len(x), 2, 2, 2, 3, 1)
    moved = split.transpose(["nHhWwc".index(axis) for axis in order])
    return np.ascontiguousarray(moved.reshape(6 * len(x), 2, 2, 1))


def batch_to_space(x: Array, crop: int = 1) -> Array:
    """Apply BatchToSpace, and crop this number of rows at the end."""
    moved = x.reshape(2, 3, 2, 2, 2, 1).transpose(2, 3, 0, 4, 1, 5)
    return np.ascontiguousarray(moved.reshape(2, 4, 6, 1)[:, : 4 - crop])


def windows(x: Array, axes: int) -> Array:
    """Return all windows of 2 elements per spatial axis of x[N, spatial.., C]: [N, .., C, k..]."""
    spatial = tuple(range(1, 1 + axes))
    return np.lib.stride_tricks.sliding_window_view(x, (2,) * axes, spatial)


def tensor(name: str, array: Array) -> bytes:
    return bytes(numpy_helper.from_array(array, name).SerializeToString(deterministic=True))


def data(inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> dict[str, bytes]:
    """Return the files of a data set."""
    return {
        f"{SET}/{kind}_{number}.pb": tensor(name, np.ascontiguousarray(array))
        for kind, values in (("input", inputs), ("output", outputs))
        for number, (name, array) in enumerate(values.items())
    }


def _case(
    wrong: str,
    *says: str,
    model: str = SPACE_TO_BATCH,
    inputs: Mapping[str, Array] | None = None,
    outputs: Mapping[str, Array] | None = None,
    other: Mapping[str, bytes] | None = None,
) -> Case:
    held = {MODEL: serialized(parsed(model))}
    held |= data(inputs or {"image": IMAGE}, outputs or {"blocks": space_to_batch(IMAGE)})
    return Case(wrong, "recorded-data", says, {**held, **(other or {})})


def _archive(**arrays: Array) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


PIXELS = counted(1, 4, 4, 3)
PLANES = counted(1, 2, 4, 4)
CLIP = counted(1, 4, 4, 4, 1)
_UPPER = np.pad(PLANES, ((0, 0), (0, 0), (0, 1), (0, 1))).transpose(0, 2, 3, 1)

CASES = {
    "recorded_minor_major": _case(
        "SpaceToBatchND recorded with the image as the major index of the batch, as torch users do",
        *(
            "'blocks'",
            "differs from the recorded data",
            "of 48 elements",
            "belongs to another model",
        ),
        outputs={"blocks": space_to_batch(IMAGE, "nhwHWc")},
    ),
    "recorded_by_columns": _case(
        "SpaceToBatchND recorded with the block's columns before its rows",
        *("'blocks'", "differs from the recorded data", "of 48 elements differ"),
        outputs={"blocks": space_to_batch(IMAGE, "whnHWc")},
    ),
    "recorded_channels_as_unfold": _case(
        "ExtractImagePatches recorded with the channels before the window, as torch.nn.Unfold does",
        *("'windows'", "differs from the recorded data", "of 108 elements differ"),
        model=TF_PATCHES,
        inputs={"image": PIXELS},
        outputs={"windows": windows(PIXELS, 2).reshape(1, 3, 3, 12)},
    ),
    "recorded_same_upper": _case(
        "OpenVINO's same_lower recorded as same_upper",
        *("'windows'", "differs from the recorded data", "of 128 elements differ"),
        model=OV_PATCHES,
        inputs={"image": PLANES},
        outputs={"windows": windows(_UPPER, 2).transpose(0, 4, 5, 3, 1, 2).reshape(1, 8, 4, 4)},
    ),
    "recorded_volume_by_columns": _case(
        "ExtractVolumePatches recorded with the last axis of a window first",
        *("'cubes'", "differs from the recorded data", "of 216 elements differ"),
        model=VOLUME,
        inputs={"clip": CLIP},
        outputs={
            "cubes": windows(CLIP, 3).transpose(0, 1, 2, 3, 7, 6, 5, 4).reshape(1, 3, 3, 3, 8)
        },
    ),
    "recorded_without_crop": _case(
        "BatchToSpaceND recorded without its crop",
        *("'image'", "[2, 3, 6, 1]", "[2, 4, 6, 1]"),
        model=BATCH_TO_SPACE,
        inputs={"blocks": BLOCKS},
        outputs={"image": batch_to_space(BLOCKS, 0)},
    ),
    "recorded_as_double": _case(
        "an output recorded in another element type",
        *("'blocks'", "float32", "float64"),
        outputs={"blocks": space_to_batch(IMAGE).astype(np.float64)},
    ),
    "recorded_input_of_wrong_size": _case(
        "an input recorded in a size that the model does not take",
        *("test_data_set_0", "'image'", "[N, 4, 6, 1]", "not [2, 4, 5, 1]"),
        inputs={"image": IMAGE[:, :, :5]},
    ),
    "recorded_input_too_many": _case(
        "an input recorded that the model does not have",
        *("input_1.pb", "only 1 input", "none of them called 'mask'"),
        inputs={"image": IMAGE, "mask": IMAGE},
    ),
    "recorded_input_missing": Case(
        "a recorded output without the input that it belongs to",
        "recorded-data",
        ("input_0.pb", "is missing", "'image'"),
        {
            MODEL: serialized(parsed(SPACE_TO_BATCH)),
            f"{SET}/output_0.pb": tensor("blocks", space_to_batch(IMAGE)),
        },
    ),
    "recorded_file_damaged": _case(
        "a recorded output that was cut off",
        *("output_0.pb", "not a serialized TensorProto"),
        other={f"{SET}/output_0.pb": tensor("blocks", space_to_batch(IMAGE))[:-9]},
    ),
    "recorded_nan": _case(
        "a recorded output with a NaN in it",
        *("'features'", "NaN or infinity"),
        model=DENSE,
        outputs={"features": space_to_batch(IMAGE) * np.float32([np.nan, -0.25])},
    ),
    "weight_changed": _case(
        "one weight is another one than that which the data was recorded with",
        *("'features'", "by at most 0.02 of the largest value", "0.0001 is allowed"),
        model=DENSE,
        outputs={"features": space_to_batch(IMAGE) * np.float32([0.51, -0.25])},
    ),
    "recorded_archive_of_another": Case(
        "an .npz whose arrays bear other names than the model's input",
        "recorded-data",
        ("model.npz", "no array for image", "it has picture, blocks"),
        {
            MODEL: serialized(parsed(SPACE_TO_BATCH)),
            "model.npz": _archive(picture=IMAGE, blocks=space_to_batch(IMAGE)),
        },
    ),
}
