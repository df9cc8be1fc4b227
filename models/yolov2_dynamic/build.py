"""Build the passthrough of YOLOv2 with ExtractImagePatches as reorg layer; every size is unknown.

darkflow writes YOLOv2's reorg as ``tf.extract_image_patches`` with 2 x 2 patches, stride 2: a
space-to-depth of the fine feature map, which then joins the coarse one. The recorded image gives the
reorg layer an odd feature map, whose last row VALID padding drops.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import _build  # first: it settles how TensorFlow starts

# isort: split
import numpy as np
import tensorflow as tf

#: For each of two anchors: box, objectness and two classes.
OUTPUTS = 2 * (4 + 1 + 2)


class YoloV2:
    """A few layers of the detector, its weights drawn once from a fixed seed."""

    def __init__(self, rng: np.random.Generator) -> None:
        def conv(size: int, inputs: int, outputs: int) -> tuple[_build.Array, _build.Array]:
            bias = rng.uniform(-0.5, 0.5, outputs).astype(np.float32)
            return _build.kernel(rng, (size, size, inputs, outputs)), bias

        self.stem = [conv(3, 3, 6), conv(3, 6, 8)]
        self.deep = [conv(3, 8, 12), conv(1, 12, 8)]
        self.fine = conv(1, 8, 4)
        self.head = [conv(3, 8 + 4 * 4, 12), conv(1, 12, OUTPUTS)]

    def __call__(self, image: tf.Tensor) -> tf.Tensor:
        x = image
        for weights in self.stem:
            x = pool(leaky(x, weights))
        fine, coarse = leaky(x, self.fine), pool(x)
        for weights in self.deep:
            coarse = leaky(coarse, weights)
        reorg = tf.image.extract_patches(fine, [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], "VALID")
        x = leaky(tf.concat([reorg, coarse], 3), self.head[0])
        return convolve(x, self.head[1])


def convolve(x: tf.Tensor, weights: tuple[_build.Array, _build.Array]) -> tf.Tensor:
    return tf.nn.bias_add(tf.nn.conv2d(x, weights[0], 1, "SAME"), weights[1])


def leaky(x: tf.Tensor, weights: tuple[_build.Array, _build.Array]) -> tf.Tensor:
    return tf.nn.leaky_relu(convolve(x, weights), 0.1)


def pool(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.max_pool2d(x, 2, 2, "VALID")


def main() -> None:
    rng = np.random.default_rng(4)
    net = YoloV2(rng)
    signature = [tf.TensorSpec([None, None, None, 3], name="image")]

    def yolov2_dynamic(image: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"detections": net(image)}

    image = rng.uniform(0, 1, (3, 36, 40, 3)).astype(np.float32)
    function = tf.function(yolov2_dynamic, input_signature=signature)
    exported = _build.export_function(function, signature)
    expect = {f"{_build.CONVERTER_DOMAIN}:ExtractImagePatches": 1}
    _build.record(__file__, exported, [image], [net(image).numpy()], expect=expect)


if __name__ == "__main__":
    main()
