"""Build a causal WaveNet with whole gated units inside a space-to-batch region; length unknown.

Signals are [batch, time, channels], so the spatial nodes have rank 3 and one blocked axis. Each
layer pads the past, brings every r-th sample together, and runs filter, gate, tanh, sigmoid and
their product there before going back: two convolutions and three elementwise nodes lie between
SpaceToBatchND and BatchToSpaceND. A plain causal layer of Keras would not do: tf2onnx folds
SpaceToBatchND, one convolution, BatchToSpaceND into a dilated Conv when the pads are only filling.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import _build  # first: it settles how TensorFlow starts

# isort: split
import numpy as np
import tensorflow as tf

BANDS, HIDDEN, LEVELS = 4, 8, 6
RATES = (1, 2, 4, 8)
WIDTH = 2


class WaveNet:
    """The stack of gated residual layers, its weights drawn once from a fixed seed."""

    def __init__(self, rng: np.random.Generator) -> None:
        def conv(*shape: int) -> _build.Array:
            return _build.kernel(rng, shape)

        self.enter = conv(1, BANDS, HIDDEN)
        self.filters = [conv(WIDTH, HIDDEN, HIDDEN) for _ in RATES]
        self.gates = [conv(WIDTH, HIDDEN, HIDDEN) for _ in RATES]
        self.skips = [conv(1, HIDDEN, HIDDEN) for _ in RATES]
        self.residuals = [conv(1, HIDDEN, HIDDEN) for _ in RATES]
        self.leave = conv(1, HIDDEN, LEVELS)

    def __call__(self, audio: tf.Tensor) -> tf.Tensor:
        x = tf.nn.conv1d(audio, self.enter, 1, "VALID")
        total = 0.0
        for layer, rate in enumerate(RATES):
            past = tf.pad(x, [[0, 0], [(WIDTH - 1) * rate, 0], [0, 0]])
            gated = tf.nn.with_space_to_batch(past, [rate], "VALID", self.gated_unit(layer))
            total += tf.nn.conv1d(gated, self.skips[layer], 1, "VALID")
            x += tf.nn.conv1d(gated, self.residuals[layer], 1, "VALID")
        return tf.nn.conv1d(tf.nn.relu(total), self.leave, 1, "VALID")

    def gated_unit(self, layer: int) -> Callable[[tf.Tensor, int, str], tf.Tensor]:
        def unit(x: tf.Tensor, _: int, padding: str) -> tf.Tensor:
            signal = tf.nn.conv1d(x, self.filters[layer], 1, padding)
            gate = tf.nn.conv1d(x, self.gates[layer], 1, padding)
            return tf.tanh(signal) * tf.sigmoid(gate)

        return unit


def main() -> None:
    rng = np.random.default_rng(2)
    net = WaveNet(rng)
    signature = [tf.TensorSpec([None, None, BANDS], name="audio")]

    @tf.function(input_signature=signature)
    def wavenet(audio: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"levels": net(audio)}

    # 45 samples: the largest rate does not divide them, so the last block is filled up.
    audio = rng.uniform(-1, 1, (3, 45, BANDS)).astype(np.float32)
    exported = _build.export_function(wavenet, signature)
    domain = _build.CONVERTER_DOMAIN
    expect = {f"{domain}:SpaceToBatchND": 3, f"{domain}:BatchToSpaceND": 3}
    _build.record(__file__, exported, [audio], [net(audio).numpy()], expect=expect)


if __name__ == "__main__":
    main()
