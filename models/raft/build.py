"""Build iterative optical flow like RAFT, with patches inside the body of a Loop.

Each turn of the ``tf.while_loop`` looks up the correlation of the first frame's features with the
3 x 3 neighbourhood of the second frame's, updates a hidden state and the flow, and upsamples the
flow as RAFT does: a convex combination of the 3 x 3 coarse neighbours. Batch, height and width are
unknown. Both patch nodes therefore sit in a subgraph, where the shapes come from the Loop: one
reads a tensor that the converter carries through the loop unchanged, one a tensor of the turn.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import _build  # first: it settles how TensorFlow starts

# isort: split
import numpy as np
import tensorflow as tf

FEATURES, HIDDEN, SCALE, TURNS = 6, 6, 2, 3


class Raft:
    """Encoder, update and upsampling, their weights drawn once from a fixed seed."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.encoder = _build.kernel(rng, (3, 3, 3, FEATURES))
        self.context = _build.kernel(rng, (3, 3, 3, HIDDEN))
        self.hidden = _build.kernel(rng, (3, 3, HIDDEN + 9 + 2, HIDDEN))
        self.flow = _build.kernel(rng, (3, 3, HIDDEN, 2))
        self.mask = _build.kernel(rng, (1, 1, HIDDEN, SCALE * SCALE * 9))

    def __call__(self, first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        source = conv(first, self.encoder, stride=SCALE)
        target = conv(second, self.encoder, stride=SCALE)
        hidden = tf.tanh(conv(first, self.context, stride=SCALE))
        flow = tf.zeros_like(source[..., :2])
        large = tf.zeros_like(first[..., :2])

        def turn(
            step: tf.Tensor, hidden: tf.Tensor, flow: tf.Tensor, _: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            seen = tf.concat([hidden, correlate(source, target), flow], 3)
            hidden = tf.tanh(conv(seen, self.hidden))
            flow += conv(hidden, self.flow)
            return step + 1, hidden, flow, upsample(flow, conv(hidden, self.mask))

        # The reshapes in upsample hide from TensorFlow that no turn changes a size.
        images = (tf.TensorShape([None, None, None, channels]) for channels in (HIDDEN, 2, 2))
        return tf.while_loop(
            lambda step, *_: step < TURNS,
            turn,
            (tf.constant(0), hidden, flow, large),
            shape_invariants=(tf.TensorShape([]), *images),
        )[-1]


def conv(x: tf.Tensor, weights: _build.Array, *, stride: int = 1) -> tf.Tensor:
    return tf.nn.conv2d(x, weights, stride, "SAME")


def neighbours(x: tf.Tensor) -> tf.Tensor:
    """Return the 3 x 3 neighbours of each pixel, [batch, height, width, 9, channels]."""
    ones = [1, 1, 1, 1]
    patches = tf.image.extract_patches(x, [1, 3, 3, 1], ones, ones, "SAME")
    return tf.reshape(patches, tf.concat([tf.shape(x)[:3], [9, x.shape[3]]], 0))


def correlate(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """Correlate each pixel with its neighbours in the target, [batch, height, width, 9]."""
    return tf.reduce_mean(source[..., tf.newaxis, :] * neighbours(target), 4)


def upsample(flow: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Multiply height and width by SCALE: each new pixel is a weighted mean of 9 coarse ones."""
    batch, height, width = (tf.shape(flow)[axis] for axis in range(3))
    weights = tf.nn.softmax(tf.reshape(mask, [batch, height, width, SCALE * SCALE, 9, 1]), 4)
    mixed = tf.reduce_sum(weights * neighbours(SCALE * flow)[..., tf.newaxis, :, :], 4)
    mixed = tf.reshape(mixed, [batch, height, width, SCALE, SCALE, 2])
    mixed = tf.transpose(mixed, [0, 1, 3, 2, 4, 5])
    return tf.reshape(mixed, [batch, height * SCALE, width * SCALE, 2])


def main() -> None:
    rng = np.random.default_rng(6)
    net = Raft(rng)
    signature = [tf.TensorSpec([None, None, None, 3], name=name) for name in ("first", "second")]

    @tf.function(input_signature=signature)
    def raft(first: tf.Tensor, second: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"flow": net(first, second)}

    first = rng.uniform(-1, 1, (2, 24, 18, 3)).astype(np.float32)
    second = np.roll(first, 1, axis=2)
    exported = _build.export_function(raft, signature)
    expect = {f"{_build.CONVERTER_DOMAIN}:ExtractImagePatches": 2}
    _build.record(__file__, exported, [first, second], [net(first, second).numpy()], expect=expect)


if __name__ == "__main__":
    main()
