"""Build the tokens of a video transformer with ExtractVolumePatches; the batch is unknown.

The clip is uint8, as it comes from a decoder, and becomes float only after the patches are cut.
Two ways of cutting it: tubelets that tile it without overlap, and single pixels taken at a
coarse grid with SAME padding. In the second the stride is larger than the kernel, where the volume
operator starts inside the clip while ExtractImagePatches would start at its corner.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import _build  # first: it settles how TensorFlow starts

# isort: split
import numpy as np
import tensorflow as tf

WIDTH = 6


def embed(patches: tf.Tensor, weights: _build.Array) -> tf.Tensor:
    """Multiply every position of the grid by the same weights, [batch, positions, WIDTH]."""
    tokens = tf.matmul(tf.cast(patches, tf.float32) / 255.0, weights)
    return tf.reshape(tokens, [-1, int(np.prod(patches.shape[1:4])), WIDTH])


def main() -> None:
    rng = np.random.default_rng(8)
    tubelets = _build.kernel(rng, (2 * 4 * 4 * 3, WIDTH))
    samples = _build.kernel(rng, (1 * 1 * 2 * 3, WIDTH))
    signature = [tf.TensorSpec([None, 8, 16, 12, 3], tf.uint8, name="clip")]

    @tf.function(input_signature=signature)
    def tokens(clip: tf.Tensor) -> dict[str, tf.Tensor]:
        tiled = tf.extract_volume_patches(clip, [1, 2, 4, 4, 1], [1, 2, 4, 4, 1], "VALID")
        sampled = tf.extract_volume_patches(clip, [1, 1, 1, 2, 1], [1, 3, 5, 5, 1], "SAME")
        return {"tokens": tf.concat([embed(tiled, tubelets), embed(sampled, samples)], 1)}

    clip = rng.integers(0, 256, (2, 8, 16, 12, 3), np.uint8)
    exported = _build.export_function(tokens, signature)
    expect = {f"{_build.CONVERTER_DOMAIN}:ExtractVolumePatches": 2}
    expected = tokens(clip)["tokens"].numpy()
    _build.record(__file__, exported, [clip], [expected], expect=expect)


if __name__ == "__main__":
    main()
