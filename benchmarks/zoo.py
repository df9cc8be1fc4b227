"""Build the models that `nets` times, at realistic sizes, each converted by tf2onnx in two ways.

`deeplab` is an ASPP head with rates 12, 24, 36 on 65x65x256 features of a 513x513 image, behind atrous
layers of rates 2 and 4; `wavenet` has ten gated layers on a second of sound; `yolov2` reorganizes
26x26x64; `patches` is the patch embedding of ViT-B/16; `involution` has 7x7 windows on 56x56x64.
Structure and sizes are those of the real models; the weights are random.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import onnx

Array = npt.NDArray[Any]

#: Suffix of the files that tf2onnx writes by default, without spatial operators.
DEFAULT = ".tf2onnx-default.onnx"
DOMAIN = "ai.onnx.converters.tensorflow"
SPATIAL_OPS = (
    "SpaceToBatch",
    "BatchToSpace",
    "SpaceToBatchND",
    "BatchToSpaceND",
    "ExtractImagePatches",
)
OPSET = 17


def build(folder: Path) -> None:
    """Export every model, with spatial operators and without."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    import logging

    import tensorflow as tf
    import tf2onnx

    for logger in ("tensorflow", "tf2onnx"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    folder.mkdir(parents=True, exist_ok=True)
    for name, (make, shape, declared) in NETS.items():
        rng = np.random.default_rng(0)
        net = make(tf, rng)
        x = rng.uniform(-1, 1, shape).astype(np.float32)
        signature = [tf.TensorSpec(declared, name="x")]
        function = tf.function(net, input_signature=signature)
        np.savez(folder / f"{name}.npz", x=x, y=function(tf.constant(x)).numpy())
        left: dict[str, Any] = {
            "custom_ops": dict.fromkeys(SPATIAL_OPS, DOMAIN),
            "extra_opset": [onnx.helper.make_opsetid(DOMAIN, 1)],
        }
        for suffix, options in ((".onnx", left), (DEFAULT, {})):
            tf2onnx.convert.from_function(
                function,
                signature,
                opset=OPSET,
                output_path=str(folder / (name + suffix)),
                **options,
            )
        exported = onnx.load(folder / f"{name}.onnx")
        count = sum(node.op_type in SPATIAL_OPS for node in exported.graph.node)
        click.echo(f"{folder / name}.onnx: {count} spatial operators", err=True)


class _Weights:
    """Draws convolution kernels that keep the size of activations."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def __call__(self, *shape: int) -> Array:
        return self._draw(shape, int(np.prod(shape[:-1])))

    def depthwise(self, channels: int) -> Array:
        """Draw a 3x3 kernel per channel."""
        return self._draw((3, 3, channels, 1), 9)

    def _draw(self, shape: Sequence[int], fan_in: int) -> Array:
        drawn: Array = self.rng.standard_normal(shape) * np.sqrt(2 / fan_in)
        return drawn.astype(np.float32)


def _deeplab(tf: Any, rng: np.random.Generator) -> Callable[[Any], Any]:
    draw = _Weights(rng)
    stem = [draw(3, 3, 3, 32), draw(3, 3, 32, 64), draw(3, 3, 64, 256)]
    atrous = [(rate, draw.depthwise(256), draw(1, 1, 256, 256)) for rate in (2, 4)]
    aspp = [(rate, draw(3, 3, 256, 256)) for rate in (12, 24, 36)]
    narrow, join = draw(1, 1, 256, 256), draw(1, 1, 4 * 256, 21)

    def dilated(x: Any, rate: int, convolve: Callable[[Any], Any]) -> Any:
        """Convolve with padding SAME as Keras does: pads and crops are computed at run time."""
        size = tf.shape(x)[1:3]
        base = tf.constant([[rate, rate], [rate, rate]])
        pads, crops = tf.required_space_to_batch_paddings(size, [rate, rate], base)
        return tf.batch_to_space(
            convolve(tf.space_to_batch(x, [rate, rate], pads)), [rate, rate], crops
        )

    def net(x: Any) -> Any:
        for weights in stem:
            x = tf.nn.relu6(tf.nn.conv2d(x, weights, 2, "SAME"))
        for rate, depthwise, point in atrous:

            def convolve(t: Any, weights: Array = depthwise) -> Any:
                return tf.nn.depthwise_conv2d(t, weights, [1, 1, 1, 1], "VALID")

            y = tf.nn.relu6(dilated(x, rate, convolve))
            x += tf.nn.relu6(tf.nn.conv2d(y, point, 1, "SAME"))
        branches = [tf.nn.relu(tf.nn.conv2d(x, narrow, 1, "SAME"))]
        for rate, weights in aspp:

            def dense(t: Any, weights: Array = weights) -> Any:
                return tf.nn.conv2d(t, weights, 1, "VALID")

            branches.append(tf.nn.relu(dilated(x, rate, dense)))
        return tf.nn.conv2d(tf.concat(branches, 3), join, 1, "SAME")

    return net


def _wavenet(tf: Any, rng: np.random.Generator) -> Callable[[Any], Any]:
    draw, hidden = _Weights(rng), 64
    enter, leave = draw(1, 16, hidden), draw(1, hidden, 32)
    rates = [2**layer for layer in range(10)]
    layers = [[draw(2, hidden, hidden) for _ in "fg"] + [draw(1, hidden, hidden)] for _ in rates]

    def net(x: Any) -> Any:
        x = tf.nn.conv1d(x, enter, 1, "VALID")
        total = 0.0
        for rate, (signal, gate, mix) in zip(rates, layers, strict=True):

            def unit(
                t: Any, _: Any, padding: str, signal: Array = signal, gate: Array = gate
            ) -> Any:
                kept = tf.sigmoid(tf.nn.conv1d(t, gate, 1, padding))
                return tf.tanh(tf.nn.conv1d(t, signal, 1, padding)) * kept

            past = tf.pad(x, [[0, 0], [rate, 0], [0, 0]])
            y = tf.nn.conv1d(
                tf.nn.with_space_to_batch(past, [rate], "VALID", unit), mix, 1, "VALID"
            )
            total += y
            x += y
        return tf.nn.conv1d(tf.nn.relu(total), leave, 1, "VALID")

    return net


def _yolov2(tf: Any, rng: np.random.Generator) -> Callable[[Any], Any]:
    draw = _Weights(rng)
    stem = [draw(3, 3, 3, 32), draw(3, 3, 32, 64), draw(3, 3, 64, 128), draw(3, 3, 128, 512)]
    fine, coarse = draw(1, 1, 512, 64), draw(3, 3, 512, 512)
    head, last = draw(3, 3, 512 + 256, 256), draw(1, 1, 256, 425)

    def net(x: Any) -> Any:
        for weights in stem:
            x = tf.nn.leaky_relu(tf.nn.conv2d(x, weights, 2, "SAME"), 0.1)
        passed = tf.nn.leaky_relu(tf.nn.conv2d(x, fine, 1, "SAME"), 0.1)
        four = [1, 2, 2, 1]
        reorg = tf.image.extract_patches(passed, four, four, [1, 1, 1, 1], "VALID")
        deep = tf.nn.leaky_relu(tf.nn.conv2d(x, coarse, 2, "SAME"), 0.1)
        y = tf.nn.leaky_relu(tf.nn.conv2d(tf.concat([reorg, deep], 3), head, 1, "SAME"), 0.1)
        return tf.nn.conv2d(y, last, 1, "SAME")

    return net


def _patches(tf: Any, rng: np.random.Generator) -> Callable[[Any], Any]:
    project = _Weights(rng)(768, 768)

    def net(x: Any) -> Any:
        window = [1, 16, 16, 1]
        patches = tf.image.extract_patches(x, window, window, [1, 1, 1, 1], "VALID")
        return tf.reshape(patches, [-1, 14 * 14, 768]) @ project

    return net


def _involution(tf: Any, rng: np.random.Generator) -> Callable[[Any], Any]:
    draw, side, channels, groups, kernel = _Weights(rng), 56, 64, 4, 7
    enter = draw(3, 3, 3, channels)
    reduce, span = draw(1, 1, channels, 16), draw(1, 1, 16, kernel * kernel * groups)

    def net(x: Any) -> Any:
        x = tf.nn.relu(tf.nn.conv2d(x, enter, 4, "SAME"))
        weights = tf.nn.conv2d(tf.nn.relu(tf.nn.conv2d(x, reduce, 1, "SAME")), span, 1, "SAME")
        weights = tf.reshape(weights, [-1, side, side, kernel * kernel, groups, 1])
        windows = [1, kernel, kernel, 1]
        patches = tf.image.extract_patches(x, windows, [1] * 4, [1] * 4, "SAME")
        shape = [-1, side, side, kernel * kernel, groups, channels // groups]
        y = tf.reduce_sum(tf.reshape(patches, shape) * weights, 3)
        return tf.reshape(y, [-1, side, side, channels])

    return net


#: For each model: its builder, the shape of its data, and its declared shape.
NETS: dict[str, tuple[Callable[..., Any], Sequence[int], Sequence[int | None]]] = {
    "deeplab": (_deeplab, (1, 513, 513, 3), (None, None, None, 3)),
    "wavenet": (_wavenet, (1, 16000, 16), (1, 16000, 16)),
    "wavenet_dynamic": (_wavenet, (1, 16000, 16), (None, None, 16)),
    "yolov2": (_yolov2, (1, 416, 416, 3), (1, 416, 416, 3)),
    "patches": (_patches, (1, 224, 224, 3), (1, 224, 224, 3)),
    "involution": (_involution, (1, 224, 224, 3), (1, 224, 224, 3)),
}
