"""Build an atrous layer of the 4-D operators SpaceToBatch and BatchToSpace; the batch is unknown.

These are TensorFlow's first operators for the purpose: one `block_size` for both axes, given as an
attribute, and only two inputs. Graphs written before the ND operators, and by hand since, hold
them. tf2onnx has no converter for them and keeps two attributes of the TensorFlow node: the
`block_size` and, on one of them, the element type of the crops.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import _build  # first: it settles how TensorFlow starts

# isort: split
import numpy as np
import tensorflow as tf

BLOCK = 3


def main() -> None:
    rng = np.random.default_rng(7)
    enter = _build.kernel(rng, (1, 1, 3, 8))
    depthwise = _build.kernel(rng, (3, 3, 8, 1), fan_in=9)
    leave = _build.kernel(rng, (1, 1, 8, 4))
    signature = [tf.TensorSpec([None, 17, 20, 3], name="image")]

    @tf.function(input_signature=signature)
    def atrous(image: tf.Tensor) -> dict[str, tf.Tensor]:
        x = tf.nn.relu(tf.nn.conv2d(image, enter, 1, "VALID"))
        # BLOCK on each side for the kernel's reach, the rest to fill up the last block; cropping
        # less than one block of the filling away leaves the size of the image.
        x = tf.raw_ops.SpaceToBatch(
            input=x, paddings=[[BLOCK, BLOCK + 1], [BLOCK, BLOCK + 1]], block_size=BLOCK
        )
        x = tf.nn.depthwise_conv2d(x, depthwise, [1, 1, 1, 1], "VALID")
        x = tf.raw_ops.BatchToSpace(input=x, crops=[[0, 1], [0, 1]], block_size=BLOCK)
        return {"features": tf.nn.conv2d(x, leave, 1, "VALID")}

    image = rng.uniform(-1, 1, (2, 17, 20, 3)).astype(np.float32)
    exported = _build.export_function(atrous, signature)
    domain = _build.CONVERTER_DOMAIN
    expect = {f"{domain}:SpaceToBatch": 1, f"{domain}:BatchToSpace": 1}
    features = atrous(image)["features"].numpy()
    _build.record(__file__, exported, [image], [features], expect=expect)


if __name__ == "__main__":
    main()
