"""Export small TensorFlow and Keras nets with tf2onnx, in two forms and with TensorFlow's outputs.

    pip install -r models/requirements.txt
    python -m benchmarks.exports FOLDER            all nets; --only TEXT some

writes for each net

    FOLDER/NAME/model.onnx      spatial operators kept: --custom-ops, and the rewriting of tf2onnx that
                                makes dilated convolutions of some of them is off
    FOLDER/NAME/default.onnx    the default export; missing where tf2onnx refuses the net
    FOLDER/NAME/data.npz        inputs by name, and TensorFlow's output y

The nets stand for what users have: each is small, and spells its operators as published code does.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

# tf2onnx names nodes in the order of hashes, which Python draws anew for each run.
if __name__ == "__main__" and os.environ.get("PYTHONHASHSEED") != "0":
    os.environ["PYTHONHASHSEED"] = "0"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

from models import _build  # first: it settles how TensorFlow starts

# isort: split
import keras
import numpy as np
import onnx
import tensorflow as tf
import tf2onnx
from keras import layers

Shape = Sequence[int | None]
#: A function of tensors, and for each of them its name, declared shape and recorded shape.
Net = tuple[Callable[..., tf.Tensor], dict[str, tuple[Shape, Sequence[int]]]]

_RNG = np.random.default_rng(0)
_ONES = [1, 1, 1, 1]


def _weights(*shape: int, fan_in: int = 0) -> _build.Array:
    # An array: a tf.Tensor from outside of a function becomes an input of the exported model.
    return _build.kernel(_RNG, shape, fan_in=fan_in)


def _patches(
    x: tf.Tensor, size: int, stride: int = 1, rate: int = 1, padding: str = "SAME"
) -> tf.Tensor:
    window, step, rates = ([1, n, n, 1] for n in (size, stride, rate))
    return tf.image.extract_patches(x, window, step, rates, padding)


def _keras(shape: Shape, build: Callable[[Any], Any]) -> Callable[..., tf.Tensor]:
    """Return a Keras model, its weights drawn; `shape` includes the batch."""
    x = keras.Input(shape[1:], batch_size=shape[0])
    model = keras.Model(x, build(x))
    _build.seed_weights(model, _RNG)
    return lambda image: model(image, training=False)


def _one(net: Callable[..., tf.Tensor], declared: Shape, recorded: Sequence[int]) -> Net:
    return net, {"x": (declared, recorded)}


# ---------------------------------------------------------------- dilated convolutions


def _aspp(shape: Shape) -> Callable[..., tf.Tensor]:
    def build(x: Any) -> Any:
        x = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(x)
        same = {"padding": "same", "use_bias": False}
        y = layers.Conv2D(8, 3, dilation_rate=2, **same)(x)
        x = layers.Add()([x, layers.ReLU()(layers.BatchNormalization()(y))])
        branches = [layers.Conv2D(4, 1)(x)]
        for rate in (2, 4, 6):
            y = layers.Conv2D(4, 3, dilation_rate=rate, **same)(x)
            branches.append(layers.ReLU()(layers.BatchNormalization()(y)))
        return layers.Conv2D(3, 1)(layers.Concatenate()(branches))

    return _keras(shape, build)


def deeplab_aspp_static() -> Net:
    """Atrous spatial pyramid pooling behind a residual layer, all sizes known."""
    shape = [1, 33, 28, 3]
    return _one(_aspp(shape), shape, shape)


def deeplab_aspp_dynamic() -> Net:
    """The same with an unknown batch and image: pads and crops are computed in the run."""
    shape = [None, None, None, 3]
    return _one(_aspp(shape), shape, [2, 31, 38, 3])


def wavenet_causal_static() -> Net:
    """Causal gated layers: two convolutions, tanh, sigmoid and a product inside one region."""
    units = [
        (rate, *(_weights(2, 6, 6) for _ in range(2)), _weights(1, 6, 6)) for rate in (1, 2, 4)
    ]

    def net(x: tf.Tensor) -> tf.Tensor:
        total = 0.0
        for rate, signal, gate, mix in units:

            def unit(t: tf.Tensor, _: Any, padding: str, s: Any = signal, g: Any = gate) -> Any:
                kept = tf.sigmoid(tf.nn.conv1d(t, g, 1, padding))
                return tf.tanh(tf.nn.conv1d(t, s, 1, padding)) * kept

            past = tf.pad(x, [[0, 0], [rate, 0], [0, 0]])
            y = tf.nn.with_space_to_batch(past, [rate], "VALID", unit)
            y = tf.nn.conv1d(y, mix, 1, "VALID")
            total, x = total + y, x + y
        return total

    return _one(net, [1, 40, 6], [1, 40, 6])


def tcn_causal_dynamic() -> Net:
    """Residual blocks of causal Conv1D layers, batch and time unknown."""
    shape = [None, None, 4]

    def build(x: Any) -> Any:
        for rate in (1, 2, 4):
            y = layers.Conv1D(4, 3, dilation_rate=rate, padding="causal", activation="relu")(x)
            y = layers.Conv1D(4, 3, dilation_rate=rate, padding="causal", activation="relu")(y)
            x = layers.Add()([x, y])
        return x

    return _one(_keras(shape, build), shape, [3, 37, 4])


def gated_shared_dynamic() -> Net:
    """Filter and gate are layers of their own that read one shared SpaceToBatchND."""
    shape = [None, None, 4]

    def build(x: Any) -> Any:
        for rate in (2, 4):
            same = {"dilation_rate": rate, "padding": "same"}
            signal = layers.Conv1D(4, 3, activation="tanh", **same)(x)
            gate = layers.Conv1D(4, 3, activation="sigmoid", **same)(x)
            x = layers.Add()([x, layers.Conv1D(4, 1)(layers.Multiply()([signal, gate]))])
        return x

    return _one(_keras(shape, build), shape, [2, 29, 4])


def separable_dynamic() -> Net:
    """Depthwise and separable layers, one with a depth multiplier."""
    shape = [None, None, None, 4]

    def build(x: Any) -> Any:
        x = layers.DepthwiseConv2D(3, dilation_rate=3, padding="same")(x)
        x = layers.SeparableConv2D(6, 3, dilation_rate=2, padding="same", activation="relu")(x)
        return layers.DepthwiseConv2D(3, dilation_rate=2, depth_multiplier=2, padding="valid")(x)

    return _one(_keras(shape, build), shape, [2, 15, 18, 4])


def conv3d_dynamic() -> Net:
    """Three blocked axes."""
    shape = [None, None, None, None, 2]

    def build(x: Any) -> Any:
        x = layers.Conv3D(3, 3, dilation_rate=2, padding="same", activation="relu")(x)
        return layers.Conv3D(2, (1, 3, 3), dilation_rate=(1, 2, 2), padding="same")(x)

    return _one(_keras(shape, build), shape, [2, 6, 9, 8, 2])


def atrous_transpose_static() -> Net:
    """A transposed atrous convolution: SpaceToBatchND, ConvTranspose, BatchToSpaceND."""
    weight = _weights(3, 3, 4, 3, fan_in=27)

    def net(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(tf.nn.atrous_conv2d_transpose(x, weight, [2, 17, 14, 4], 2, "SAME"))

    return _one(net, [2, 17, 14, 3], [2, 17, 14, 3])


def pools_dynamic() -> Net:
    """Average and maximum pools with dilations, as `tf.nn.pool` blocks them."""

    def net(x: tf.Tensor) -> tf.Tensor:
        mean = tf.nn.pool(x, [3, 3], "AVG", padding="VALID", dilations=[2, 2])
        most = tf.nn.pool(x, [3, 3], "MAX", padding="VALID", dilations=[2, 2])
        return tf.concat([mean, most], 3)

    return _one(net, [None, None, None, 3], [2, 14, 17, 3])


def residual_static() -> Net:
    """A dilated residual net with hybrid rates and an addition inside a region, batch 2."""
    kernels = [_weights(3, 3, 6, 6) for _ in range(4)]

    def region(x: tf.Tensor, rate: int, kernel: _build.Array) -> tf.Tensor:
        def inside(t: tf.Tensor, _: Any, padding: str) -> tf.Tensor:
            return tf.nn.relu(tf.nn.conv2d(t, kernel, 1, padding) + t[:, 1:-1, 1:-1])

        return tf.nn.with_space_to_batch(x, [rate, rate], "VALID", inside)

    def net(x: tf.Tensor) -> tf.Tensor:
        for rate, kernel in zip((1, 2, 3, 2), kernels, strict=True):
            shortcut = x
            x = tf.pad(x, [[0, 0], [rate, rate], [rate, rate], [0, 0]])
            x = shortcut + region(x, rate, kernel)
        return x

    return _one(net, [2, 13, 16, 6], [2, 13, 16, 6])


def quantised_static() -> Net:
    """Fake-quantised activations and weights around and inside atrous layers."""
    kernels = [_weights(3, 3, 4, 4) for _ in range(2)]

    # 0 is a step of both scales; sums of their products are never halfway between two steps, where
    # TensorFlow and ONNX round apart.
    def quantised(x: tf.Tensor, scale: float = 0.03) -> tf.Tensor:
        return tf.quantization.fake_quant_with_min_max_args(x, -128 * scale, 127 * scale)

    def net(x: tf.Tensor) -> tf.Tensor:
        for kernel in kernels:

            def inside(t: tf.Tensor, _: Any, padding: str, kernel: Any = kernel) -> tf.Tensor:
                return quantised(tf.nn.conv2d(quantised(t), quantised(kernel, 0.01573), 1, padding))

            x = tf.pad(x, [[0, 0], [2, 2], [2, 2], [0, 0]])
            x = tf.nn.relu(tf.nn.with_space_to_batch(x, [2, 2], "VALID", inside))
        return x

    return _one(net, [1, 12, 10, 4], [1, 12, 10, 4])


def batch_mixed_static() -> Net:
    """A region whose parts look at each other: normalized over the blocks, so it may not be fused."""
    kernel = _weights(3, 3, 4, 4)

    def net(x: tf.Tensor) -> tf.Tensor:
        def inside(t: tf.Tensor, _: Any, padding: str) -> tf.Tensor:
            t = tf.nn.conv2d(t, kernel, 1, padding)
            return t - tf.reduce_mean(t, axis=0, keepdims=True)

        return tf.nn.with_space_to_batch(x, [2, 2], "VALID", inside)

    return _one(net, [2, 12, 10, 4], [2, 12, 10, 4])


# ---------------------------------------------------------------- patches


def patches_dynamic() -> Net:
    """Patches of several kinds: SAME and VALID, strides above the window, rates."""
    project = _weights(27, 6)

    def net(x: tf.Tensor) -> tf.Tensor:
        parts = [
            _patches(x, 3, 2),
            _patches(x, 3, 2, 2),
            _patches(x, 2, 2, padding="VALID"),
            _patches(x, 1, 2),
        ]
        parts[0] = parts[0] @ project
        means = [tf.reduce_mean(part, axis=[1, 2]) for part in parts]
        return tf.concat([tf.reshape(parts[0], [tf.shape(x)[0], -1]), *means], 1)

    return _one(net, [None, None, None, 3], [2, 11, 14, 3])


def vit_embedding_static() -> Net:
    """Patch embeddings of ViT by Keras and by tf.image, 4 x 4."""
    project = _weights(48, 8)

    def net(x: tf.Tensor) -> tf.Tensor:
        one = tf.reshape(_patches(x, 4, 4, padding="VALID"), [2, 12, 48]) @ project
        return one + tf.reshape(keras.ops.image.extract_patches(x, 4), [2, 12, 48]) @ project

    return _one(net, [2, 16, 12, 3], [2, 16, 12, 3])


def inpainting_static() -> Net:
    """Contextual attention: patches of foreground and background, matched and pasted."""

    def net(fg: tf.Tensor, bg: tf.Tensor) -> tf.Tensor:
        keys, query = (tf.reshape(_patches(each, 3), [1, 64, 36]) for each in (bg, fg))
        query, keys = (tf.transpose(each, [0, 2, 1]) for each in (query, keys))
        norm = tf.sqrt(tf.reduce_sum(keys * keys, axis=1, keepdims=True))
        keys = keys / tf.maximum(norm, 1e-4)
        scores = tf.reshape(tf.matmul(query, keys, transpose_a=True), [1, 8, 8, 8, 8])
        scores = tf.reshape(tf.transpose(scores, [0, 2, 1, 4, 3]), [1, 64, 64])
        pasted = tf.matmul(tf.nn.softmax(scores * 10.0), keys, transpose_b=True)
        return tf.reshape(pasted, [1, 8, 8, 36])

    shape = [1, 8, 8, 4]
    return net, {"fg": (shape, shape), "bg": (shape, shape)}


def involution_dynamic() -> Net:
    """Involution: patches weighted by kernels that the features generate."""
    reduce, span = _weights(1, 1, 4, 2), _weights(1, 1, 2, 18)

    def net(x: tf.Tensor) -> tf.Tensor:
        batch, height, width = tf.unstack(tf.shape(x)[:3])
        kernels = tf.nn.conv2d(tf.nn.relu(tf.nn.conv2d(x, reduce, 1, "SAME")), span, 1, "SAME")
        kernels = tf.reshape(kernels, [batch, height, width, 9, 2, 1])
        padded = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
        windows = _patches(padded, 3, padding="VALID")
        windows = tf.reshape(windows, [batch, height, width, 9, 2, 2])
        return tf.reshape(tf.reduce_sum(windows * kernels, 3), [batch, height, width, 4])

    return _one(net, [None, None, None, 4], [2, 9, 12, 4])


def raft_loop_dynamic() -> Net:
    """Recurrent refinement: each step of a loop reads 3 x 3 patches of two maps."""
    update = _weights(1, 1, 38, 2)

    def net(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        windows = _patches(second, 3)
        cost = tf.concat([windows[..., i::4] * first[..., i : i + 1] for i in range(2)], 3)

        def step(i: tf.Tensor, flow: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            seen = tf.concat([_patches(flow, 3), cost, flow], 3)
            return i + 1, flow + tf.tanh(tf.nn.conv2d(seen, update, 1, "SAME"))

        shapes = [tf.TensorShape([]), tf.TensorShape([None, None, None, 2])]
        flow = tf.while_loop(lambda i, _: i < 3, step, [0, first[..., :2]], shapes)
        return flow[1]

    shape = [None, None, None, 4]
    return net, {"first": (shape, [2, 9, 8, 4]), "second": (shape, [2, 9, 8, 4])}


def video_tubelets_static() -> Net:
    """Tubelet embedding of ViViT: `tf.extract_volume_patches`."""
    project = _weights(48, 6)

    def net(x: tf.Tensor) -> tf.Tensor:
        tubes = [1, 2, 4, 2, 1]
        return tf.extract_volume_patches(x, tubes, tubes, "VALID") @ project

    return _one(net, [2, 4, 12, 8, 3], [2, 4, 12, 8, 3])


def yolo_reorg_dynamic() -> Net:
    """The passthrough layer of YOLOv2 as darkflow writes it, beside `tf.nn.space_to_depth`."""
    coarse = _weights(3, 3, 4, 4)

    def net(x: tf.Tensor) -> tf.Tensor:
        deep = tf.nn.leaky_relu(tf.nn.conv2d(x, coarse, 2, "VALID"), 0.1)
        reorg = _patches(x[:, :-1, :-1], 2, 2, padding="VALID")
        return tf.concat([reorg, tf.nn.space_to_depth(x[:, :-1, :-1], 2), deep], 3)

    return _one(net, [None, None, None, 4], [2, 13, 17, 4])


# ---------------------------------------------------------------- reshapes that move data


def pixel_shuffle_dynamic() -> Net:
    """ESPCN: `tf.nn.depth_to_space`, and the same by Reshape and Transpose, in order CRD."""
    one, two = _weights(3, 3, 3, 8), _weights(3, 3, 2, 12)

    def net(x: tf.Tensor) -> tf.Tensor:
        x = tf.nn.depth_to_space(tf.nn.relu(tf.nn.conv2d(x, one, 1, "SAME")), 2)
        x = tf.nn.conv2d(x, two, 1, "SAME")
        batch, height, width = tf.unstack(tf.shape(x)[:3])
        x = tf.transpose(tf.reshape(x, [batch, height, width, 3, 2, 2]), [0, 1, 4, 2, 5, 3])
        return tf.reshape(x, [batch, 2 * height, 2 * width, 3])

    return _one(net, [None, None, None, 3], [2, 7, 6, 3])


def swin_windows_static() -> Net:
    """Shifted windows of Swin: roll, partition, attention inside windows, and all of it back."""
    qkv = _weights(8, 24)

    def net(x: tf.Tensor) -> tf.Tensor:
        y = tf.roll(x, [-2, -2], [1, 2])
        y = tf.transpose(tf.reshape(y, [1, 3, 4, 2, 4, 8]), [0, 1, 3, 2, 4, 5])
        y = tf.reshape(tf.reshape(y, [6, 16, 8]) @ qkv, [6, 16, 3, 2, 4])
        query, key, value = tf.unstack(tf.transpose(y, [2, 0, 3, 1, 4]))
        y = tf.nn.softmax(tf.matmul(query, key, transpose_b=True)) @ value
        y = tf.reshape(tf.transpose(y, [0, 2, 1, 3]), [1, 3, 2, 4, 4, 8])
        y = tf.reshape(tf.transpose(y, [0, 1, 3, 2, 4, 5]), [1, 12, 8, 8])
        return x + tf.roll(y, [2, 2], [1, 2])

    return _one(net, [1, 12, 8, 8], [1, 12, 8, 8])


def mobilevit_unfold_static() -> Net:
    """MobileViT: unfold into 2 x 2 pixels by patches, attention between patches, fold."""
    mix = _weights(4, 4)

    def net(x: tf.Tensor) -> tf.Tensor:
        y = tf.reshape(x, [2 * 4, 2, 3, 2 * 4])
        y = tf.reshape(tf.transpose(y, [0, 2, 1, 3]), [2, 12, 4, 4])
        y = tf.transpose(y, [0, 2, 1, 3])
        y = tf.nn.softmax(tf.matmul(y, y, transpose_b=True)) @ y @ mix
        y = tf.reshape(tf.transpose(y, [0, 2, 1, 3]), [2 * 4, 3, 2, 2 * 4])
        return tf.reshape(tf.transpose(y, [0, 2, 1, 3]), [2, 8, 6, 4])

    return _one(net, [2, 8, 6, 4], [2, 8, 6, 4])


def channel_shuffle_dynamic() -> Net:
    """ShuffleNet: grouped pointwise layers with their channels shuffled between."""
    first, second = _weights(1, 1, 4, 8), _weights(3, 3, 8, 1, fan_in=9)

    def net(x: tf.Tensor) -> tf.Tensor:
        y = tf.nn.relu(tf.nn.conv2d(x, first, 1, "SAME"))
        batch, height, width = tf.unstack(tf.shape(y)[:3])
        y = tf.transpose(tf.reshape(y, [batch, height, width, 2, 4]), [0, 1, 2, 4, 3])
        y = tf.reshape(y, [batch, height, width, 8])
        return tf.nn.depthwise_conv2d(y, second, _ONES, "SAME")

    return _one(net, [None, None, None, 4], [2, 6, 9, 4])


NETS: tuple[Callable[[], Net], ...] = (
    deeplab_aspp_static,
    deeplab_aspp_dynamic,
    wavenet_causal_static,
    tcn_causal_dynamic,
    gated_shared_dynamic,
    separable_dynamic,
    conv3d_dynamic,
    atrous_transpose_static,
    pools_dynamic,
    residual_static,
    quantised_static,
    batch_mixed_static,
    patches_dynamic,
    vit_embedding_static,
    inpainting_static,
    involution_dynamic,
    raft_loop_dynamic,
    video_tubelets_static,
    yolo_reorg_dynamic,
    pixel_shuffle_dynamic,
    swin_windows_static,
    mobilevit_unfold_static,
    channel_shuffle_dynamic,
)


def export(make: Callable[[], Net], folder: Path) -> str:
    """Write one net to its folder; return a line about it."""
    net, declared = make()
    signature = [tf.TensorSpec(shape, name=name) for name, (shape, _) in declared.items()]
    function = tf.function(lambda *tensors: {"y": net(*tensors)}, input_signature=signature)
    data = {
        name: _RNG.uniform(-1, 1, shape).astype(np.float32) for name, (_, shape) in declared.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "data.npz", **data, y=function(*data.values())["y"].numpy())
    with mock.patch("tf2onnx.tfonnx.rewrite_conv_dilations", lambda _, nodes: nodes):
        kept = _build.export_function(function, signature)
    assert [value.name for value in kept.graph.input] == [*declared]
    count = sum(1 for _ in _build.spatial_nodes(kept))
    onnx.save(kept, folder / "model.onnx")
    default = _build.export_function(function, signature, custom=())
    try:
        onnx.checker.check_model(default)
    except onnx.checker.ValidationError as error:  # tf2onnx leaves what it cannot convert
        (folder / "default.onnx").unlink(missing_ok=True)
        return f"{count} spatial nodes, no default export: {str(error).splitlines()[0]}"
    onnx.save(default, folder / "default.onnx")
    return f"{count} spatial nodes"


def main() -> None:
    """Export the nets."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="only nets whose name contains this text")
    options = parser.parse_args()
    logging.getLogger("tf2onnx").setLevel(logging.CRITICAL)
    for make in NETS:
        if options.only in make.__name__:
            # Each net has its own seed and numbers of names, so that `--only` writes the same.
            globals()["_RNG"] = np.random.default_rng(0)
            tf2onnx.utils.INTERNAL_NAME = 1
            print(f"{make.__name__}: {export(make, options.folder / make.__name__)}", flush=True)


if __name__ == "__main__":
    main()
