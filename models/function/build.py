"""Build spatial nodes in a local function that is called twice, with different sizes.

Written by hand as ONNX text. The function's block shape, paddings and crops are attributes of the
call, which reach the nodes through Constant nodes: inside the function nothing is known, at each
call everything is. The second call also has another number of channels than the first.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import _build  # first: it settles how TensorFlow starts

# isort: split
import numpy as np
import onnx
import onnx.parser
import tensorflow as tf
from onnx import numpy_helper

HEIGHT, WIDTH = 14, 11

TEXT = f"""
<
    ir_version: {_build.IR_VERSION},
    opset_import: ["" : {_build.OPSET}, "zoo.layers" : 1, "{_build.CONVERTER_DOMAIN}" : 1]
>
function (float[batch, {HEIGHT}, {WIDTH}, 3] image) => (float[batch, 7, 5, 6] features)
{{
    [fine] fine = zoo.layers.Atrous
        <block_shape = [2, 2], paddings = [2, 2, 2, 3], crops = [0, 0, 0, 1], channels = 3>
        (image, fine_weight)
    planes = Transpose <perm = [0, 3, 1, 2]> (fine)
    [widen] wide = Conv (planes, widen_weight)
    pooled = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (wide)
    pixels = Transpose <perm = [0, 2, 3, 1]> (pooled)
    [coarse] features = zoo.layers.Atrous
        <block_shape = [3, 1], paddings = [3, 5, 1, 1], crops = [0, 2, 0, 0], channels = 6>
        (pixels, coarse_weight)
}}
<
    domain: "zoo.layers",
    opset_import: ["" : {_build.OPSET}, "{_build.CONVERTER_DOMAIN}" : 1]
>
Atrous <block_shape, paddings, crops, channels> (x, weight) => (y)
{{
    pairs = Constant <value_ints = [-1, 2]> ()
    block_shape = Constant <value_ints: ints = @block_shape> ()
    flat_paddings = Constant <value_ints: ints = @paddings> ()
    paddings = Reshape (flat_paddings, pairs)
    flat_crops = Constant <value_ints: ints = @crops> ()
    crops = Reshape (flat_crops, pairs)
    [to_batch] blocks = {_build.CONVERTER_DOMAIN}.SpaceToBatchND (x, block_shape, paddings)
    planes = Transpose <perm = [0, 3, 1, 2]> (blocks)
    [depthwise] filtered = Conv <group: int = @channels> (planes, weight)
    active = Relu (filtered)
    pixels = Transpose <perm = [0, 2, 3, 1]> (active)
    [to_space] y = {_build.CONVERTER_DOMAIN}.BatchToSpaceND (pixels, block_shape, crops)
}}
"""


def in_onnx(weights: dict[str, _build.Array]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(TEXT)
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in weights.items()
    )
    return model


def in_tensorflow(image: _build.Array, weights: dict[str, _build.Array]) -> tf.Tensor:
    def atrous(
        x: tf.Tensor, name: str, block: list[int], paddings: list[list[int]], crops: list[list[int]]
    ) -> tf.Tensor:
        x = tf.space_to_batch_nd(x, block, paddings)
        kernel = weights[f"{name}_weight"].transpose(2, 3, 0, 1)
        x = tf.nn.relu(tf.nn.depthwise_conv2d(x, kernel, [1, 1, 1, 1], "VALID"))
        return tf.batch_to_space(x, block, crops)

    x = atrous(image, "fine", [2, 2], [[2, 2], [2, 3]], [[0, 0], [0, 1]])
    x = tf.nn.conv2d(x, weights["widen_weight"].transpose(2, 3, 1, 0), 1, "VALID")
    x = tf.nn.max_pool2d(x, 2, 2, "VALID")
    return atrous(x, "coarse", [3, 1], [[3, 5], [1, 1]], [[0, 2], [0, 0]])


def main() -> None:
    rng = np.random.default_rng(9)
    weights = {
        "fine_weight": _build.kernel(rng, (3, 1, 3, 3), fan_in=9),
        "widen_weight": _build.kernel(rng, (6, 3, 1, 1), fan_in=3),
        "coarse_weight": _build.kernel(rng, (6, 1, 3, 3), fan_in=9),
    }
    image = rng.uniform(-1, 1, (2, HEIGHT, WIDTH, 3)).astype(np.float32)
    features = in_tensorflow(image, weights).numpy()
    domain = _build.CONVERTER_DOMAIN
    expect = {f"{domain}:SpaceToBatchND": 1, f"{domain}:BatchToSpaceND": 1}
    _build.record(__file__, in_onnx(weights), [image], [features], expect=expect)


if __name__ == "__main__":
    main()
