"""Build what tf2onnx writes when it cannot convert a node: renamed nodes in the default domain.

The dilation rate is an input of the model, so block_shape is not constant. tf2onnx renames
SpaceToBatchND to SpaceToDepth and BatchToSpaceND to DepthToSpace before it notices, reports an
error, and writes the file all the same: nodes of standard ONNX by name and domain, with three
inputs instead of one and without the attribute that they need. The model checker rejects the file.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import _build  # first: it settles how TensorFlow starts

# isort: split
import numpy as np
import tensorflow as tf


def main() -> None:
    rng = np.random.default_rng(10)
    depthwise = _build.kernel(rng, (3, 3, 4, 1), fan_in=9)
    signature = [
        tf.TensorSpec([None, None, None, 4], name="image"),
        tf.TensorSpec([2], tf.int32, name="rate"),
    ]

    @tf.function(input_signature=signature)
    def atrous(image: tf.Tensor, rate: tf.Tensor) -> dict[str, tf.Tensor]:
        paddings, crops = tf.required_space_to_batch_paddings(
            tf.shape(image)[1:3], rate, tf.stack([rate, rate], 1)
        )
        x = tf.space_to_batch_nd(image, rate, paddings)
        x = tf.nn.relu(tf.nn.depthwise_conv2d(x, depthwise, [1, 1, 1, 1], "VALID"))
        return {"features": tf.batch_to_space(x, rate, crops) + image}

    image = rng.uniform(-1, 1, (2, 13, 16, 4)).astype(np.float32)
    rate = np.array([2, 3], np.int32)
    # The failure is the point; its traceback is not worth a screenful.
    logging.getLogger("tf2onnx").setLevel(logging.CRITICAL)
    exported = _build.export_function(atrous, signature, custom=())
    features = atrous(image, rate)["features"].numpy()
    expect = {"SpaceToDepth": 1, "DepthToSpace": 1}
    _build.record(__file__, exported, [image, rate], [features], expect=expect)


if __name__ == "__main__":
    main()
