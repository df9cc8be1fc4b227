"""Build small nets as tf2onnx exports them by default: spatial operators as chains of standard nodes.

onnxruntime loads every one of these files. `onnx-spatial optimize` finds the chains, and makes dilated
convolutions of them, or patches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import _build  # first: it settles how TensorFlow starts

# isort: split
import keras
import numpy as np
import tensorflow as tf
import tf2onnx.tfonnx
from keras import layers

#: Nets that are exported without tf2onnx's own search for dilated convolutions.
UNSEARCHED = frozenset({"causal_static"})

#: A function of one tensor, the declared shape of the tensor, and the recorded one.
Net = tuple[Callable[[tf.Tensor], tf.Tensor], Sequence[int | None], Sequence[int]]


def in_layers(
    rng: np.random.Generator, shape: Sequence[int | None], *stack: keras.Layer
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a net of layers, one behind the other."""
    x = first = keras.Input(shape[1:], batch_size=shape[0])
    for layer in stack:
        x = layer(x)
    model = keras.Model(first, x)
    _build.seed_weights(model, rng)
    return lambda image: model(image, training=False)


def gated(rng: np.random.Generator) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return two convolutions and a gate in blocks of time."""
    signal, gate = (_build.kernel(rng, (2, 4, 4)) for _ in range(2))

    def unit(x: tf.Tensor, _: int, padding: str) -> tf.Tensor:
        pair = [tf.nn.conv1d(x, weight, 1, padding) for weight in (signal, gate)]
        return tf.tanh(pair[0]) * tf.sigmoid(pair[1])

    return lambda audio: tf.nn.with_space_to_batch(
        tf.pad(audio, [[0, 0], [4, 0], [0, 0]]), [4], "VALID", unit
    )


def in_loop(rng: np.random.Generator) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a loop with an atrous convolution in its body."""
    weight = _build.kernel(rng, (3, 3, 4, 4))

    def step(x: tf.Tensor) -> tf.Tensor:
        def conv(y: tf.Tensor, _: int, padding: str) -> tf.Tensor:
            return tf.nn.conv2d(y, weight, 1, padding)

        return tf.tanh(
            tf.nn.with_space_to_batch(x, [2, 2], "SAME", conv, filter_shape=tf.constant([3, 3]))
        )

    def net(image: tf.Tensor) -> tf.Tensor:
        shapes = [tf.TensorShape([]), tf.TensorShape([None, None, None, 4])]
        _, last = tf.while_loop(
            lambda i, _: i < 3, lambda i, x: (i + 1, step(x)), [0, image], shape_invariants=shapes
        )
        return last

    return net


def nets(rng: np.random.Generator) -> dict[str, Net]:
    """Return the nets by the names of their folders."""
    atrous = {"padding": "same", "activation": "relu"}
    line, image = [None] * 2 + [4], [None] * 3 + [4]
    return {
        "conv1d": (
            in_layers(rng, line, layers.Conv1D(4, 3, dilation_rate=2, **atrous)),
            line,
            [2, 27, 4],
        ),
        "gated_static": (gated(rng), [1, 32, 4], [1, 32, 4]),
        "conv2d": (
            in_layers(
                rng,
                image,
                layers.Conv2D(4, 3, dilation_rate=2, padding="same", use_bias=False),
                layers.BatchNormalization(),
                layers.ReLU(),
                layers.Conv2D(3, 3, dilation_rate=4, **atrous),
            ),
            image,
            [2, 13, 18, 4],
        ),
        "in_loop": (in_loop(np.random.default_rng(8)), image, [1, 9, 10, 4]),
        "keras_patches": (
            lambda x: keras.ops.image.extract_patches(x, 4, padding="valid"),
            [2, 12, 16, 3],
            [2, 12, 16, 3],
        ),
        "causal_static": (
            in_layers(
                np.random.default_rng(9),
                [1, 24, 4],
                *(
                    layers.Conv1D(4, 3, dilation_rate=rate, padding="causal", activation="relu")
                    for rate in (1, 2, 4)
                ),
            ),
            [1, 24, 4],
            [1, 24, 4],
        ),
    }


def main() -> None:
    rng = np.random.default_rng(7)
    for name, (net, declared, recorded) in nets(rng).items():
        signature = [tf.TensorSpec(declared, name="x")]
        function = tf.function(lambda x, net=net: {"y": net(x)}, input_signature=signature)
        x = rng.uniform(-1, 1, recorded).astype(np.float32)
        folder = Path(__file__).resolve().parent / name
        folder.mkdir(exist_ok=True)
        search = tf2onnx.tfonnx.rewrite_conv_dilations
        if name in UNSEARCHED:
            tf2onnx.tfonnx.rewrite_conv_dilations = lambda graph, operators: operators
        exported = _build.export_function(function, signature, custom=())
        tf2onnx.tfonnx.rewrite_conv_dilations = search
        y = function(tf.constant(x))["y"].numpy()
        _build.record(str(folder / "build.py"), exported, [x], [y], expect={})


if __name__ == "__main__":
    main()
