"""Build a non-causal WaveNet of plain Keras layers, padding="same" on both sides; length unknown.

Filter and gate are two dilated Conv1D of the same rate on the same signal. TensorFlow's graph
optimizer merges their two identical SpaceToBatchND and leaves their two BatchToSpaceND, so each
layer of the file has one SpaceToBatchND with two readers. A rewrite that takes the node away with
the first of them breaks the second.
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

BANDS, HIDDEN, LEVELS = 4, 8, 6
RATES = (1, 2, 4)


def wavenet() -> keras.Model:
    audio = layers.Input((None, BANDS), name="audio")
    x = layers.Conv1D(HIDDEN, 3, padding="same")(audio)
    skips = []
    for rate in RATES:
        dilated = {"kernel_size": 3, "padding": "same", "dilation_rate": rate}
        signal = layers.Conv1D(HIDDEN, activation="tanh", **dilated)(x)
        gate = layers.Conv1D(HIDDEN, activation="sigmoid", **dilated)(x)
        gated = layers.Multiply()([signal, gate])
        skips.append(layers.Conv1D(HIDDEN, 1)(gated))
        x = layers.Add()([x, layers.Conv1D(HIDDEN, 1)(gated)])
    levels = layers.Conv1D(LEVELS, 1, name="levels")(layers.ReLU()(layers.Add()(skips)))
    return keras.Model(audio, levels, name="wavenet")


def main() -> None:
    rng = np.random.default_rng(3)
    model = wavenet()
    _build.seed_weights(model, rng)
    exported = _build.export_keras(model, [tf.TensorSpec([None, None, BANDS], name="audio")])
    audio = rng.uniform(-1, 1, (2, 39, BANDS)).astype(np.float32)
    levels = model(audio, training=False).numpy()
    domain = _build.CONVERTER_DOMAIN
    expect = {f"{domain}:SpaceToBatchND": 2, f"{domain}:BatchToSpaceND": 4}
    _build.record(__file__, exported, [audio], [levels], expect=expect)


if __name__ == "__main__":
    main()
