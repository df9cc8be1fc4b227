"""Export small TensorFlow nets twice: with the spatial operators, and as tf2onnx writes them by itself.

    python tests/mutation/exporting.py FOLDER

writes NAME.onnx, NAME.tf2onnx-default.onnx and NAME.npz (inputs). Needs TensorFlow and tf2onnx
(models/requirements.txt); `rewritten_by_tools` compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "models"))

import _build  # first: it settles how TensorFlow starts

# isort: split
import keras
import numpy as np
import onnx
import tensorflow as tf


def _dilated(rank: int, rates: tuple[int, ...]) -> keras.Model:
    """Dilated convolutions with BatchNormalization and residual sums."""
    layers = keras.layers
    image = layers.Input((*(None,) * rank, 3))
    conv = {1: layers.Conv1D, 2: layers.Conv2D}[rank]
    x = conv(8, 1)(image)
    for rate in rates:
        y = conv(8, 3, padding="same", dilation_rate=rate, use_bias=rate > 2)(x)
        y = layers.BatchNormalization()(y)
        x = x + keras.ops.relu(y)
    model = keras.Model(image, conv(4, 1)(x))
    _build.seed_weights(model, np.random.default_rng(rank))
    return model


def _patches(kernel: int, stride: int, padding: str) -> Callable[[tf.Tensor], tf.Tensor]:
    """Patches and a product with a matrix."""
    matrix = _build.kernel(np.random.default_rng(kernel), (kernel * kernel * 3, 8))

    def run(image: tf.Tensor) -> tf.Tensor:
        sizes, strides = [1, kernel, kernel, 1], [1, stride, stride, 1]
        patches = tf.image.extract_patches(image, sizes, strides, [1, 1, 1, 1], padding)
        return tf.nn.relu(tf.linalg.matmul(patches, matrix))

    return run


def _reorganised(image: tf.Tensor) -> tf.Tensor:
    """SpaceToBatch and BatchToSpace of run-time sizes around a pool."""
    size = tf.shape(image)[1:3]
    pads = tf.stack([tf.zeros_like(size), (2 - size % 2) % 2], 1)
    x = tf.space_to_batch(image, [2, 2], pads)
    return tf.batch_to_space(tf.nn.max_pool2d(x, 2, 1, "SAME"), [2, 2], pads)


_IMAGE = (2, 33, 41, 3)
NETS = {
    "dilated_1d": (lambda: _dilated(1, (1, 2, 4, 8)), (2, 75, 3)),
    "dilated_2d": (lambda: _dilated(2, (2, 3)), _IMAGE),
    "patches_same": (lambda: _patches(3, 2, "SAME"), _IMAGE),
    "patches_valid": (lambda: _patches(4, 3, "VALID"), _IMAGE),
    "reorganised": (lambda: _reorganised, _IMAGE),
}


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, (make, shape) in NETS.items():
        function = make()
        signature = [tf.TensorSpec([None] * (len(shape) - 1) + [3], tf.float32, name="x")]
        called = tf.function(lambda x, f=function: {"y": f(x)}, input_signature=signature)
        for suffix, custom in (("", _build.SPATIAL_OPS), (".tf2onnx-default", ())):
            model = _build.export_function(called, signature, custom=custom)
            onnx.save(model, folder / f"{name}{suffix}.onnx")
        x = np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)
        np.savez(folder / f"{name}.npz", x=x)
        print(name)


if __name__ == "__main__":
    main()
