"""Build DeepLab v3 on a MobileNet-like backbone; every spatial size is unknown.

Keras writes each dilated layer as SpaceToBatchND, convolution, BatchToSpaceND. With padding="same"
and an unknown image size the pads and crops are arithmetic on the run-time shape, which tf2onnx
does not fold back into a dilated Conv: these are the nodes that DeepLab users are left with.
The backbone has depthwise and dense atrous layers with residuals; the head is ASPP: three rates
side by side, image-level pooling, and a bilinear resize to the size of the input.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import _build  # first: it settles how TensorFlow starts

# isort: split
import keras
import numpy as np
import tensorflow as tf
from keras import layers

CLASSES = 5


class ResizeLike(layers.Layer):
    """Bilinear resize of the first input to the height and width of the second."""

    def call(self, inputs: list[tf.Tensor]) -> tf.Tensor:
        x, like = inputs
        return tf.image.resize(x, tf.shape(like)[1:3])


def norm_relu(x: keras.KerasTensor) -> keras.KerasTensor:
    return layers.ReLU(max_value=6.0)(layers.BatchNormalization()(x))


def separable(
    x: keras.KerasTensor, filters: int, *, stride: int = 1, rate: int = 1
) -> keras.KerasTensor:
    x = layers.DepthwiseConv2D(
        3, strides=stride, dilation_rate=rate, padding="same", use_bias=False
    )(x)
    return norm_relu(layers.Conv2D(filters, 1, use_bias=False)(norm_relu(x)))


def deeplab() -> keras.Model:
    image = layers.Input((None, None, 3), name="image")
    x = norm_relu(layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(image))
    x = separable(x, 16, stride=2)
    x = layers.Add()([x, separable(x, 16, rate=2)])
    dense = layers.Conv2D(16, 3, dilation_rate=2, padding="same", use_bias=False)(x)
    x = layers.Add()([x, norm_relu(dense)])

    branches = [norm_relu(layers.Conv2D(8, 1, use_bias=False)(x))]
    branches += [separable(x, 8, rate=rate) for rate in (2, 4, 6)]
    pooled = layers.GlobalAveragePooling2D(keepdims=True)(x)
    pooled = norm_relu(layers.Conv2D(8, 1, use_bias=False)(pooled))
    branches.append(ResizeLike()([pooled, x]))
    x = norm_relu(layers.Conv2D(16, 1, use_bias=False)(layers.Concatenate()(branches)))
    logits = ResizeLike(name="logits")([layers.Conv2D(CLASSES, 1)(x), image])
    return keras.Model(image, logits, name="deeplab")


def main() -> None:
    rng = np.random.default_rng(1)
    model = deeplab()
    _build.seed_weights(model, rng)
    exported = _build.export_keras(model, [tf.TensorSpec([None, None, None, 3], name="image")])
    # 37 x 42 gives 10 x 11 feature maps: no rate divides both, so the pads are uneven.
    image = rng.uniform(-1, 1, (2, 37, 42, 3)).astype(np.float32)
    logits = model(image, training=False).numpy()
    domain = _build.CONVERTER_DOMAIN
    expect = {f"{domain}:SpaceToBatchND": 5, f"{domain}:BatchToSpaceND": 5}
    _build.record(__file__, exported, [image], [logits], expect=expect)


if __name__ == "__main__":
    main()
