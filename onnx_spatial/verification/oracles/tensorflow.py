"""Run operators with TensorFlow's eager kernels on the CPU."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from onnx_spatial.operators import BatchToSpace, ExtractPatches, Operator, SpaceToBatch
from onnx_spatial.verification.arrays import Array
from onnx_spatial.verification.oracles.silent import Silent

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

#: Words in errors about limits of TensorFlow, not about illegal inputs.
_LIMITS = ("non-zero", "must be positive", "blocked dims", "supported")


def run(operator: Operator, x: Array) -> Array:
    """Run an operator with TensorFlow.

    Raises:
        Silent: TensorFlow has no kernel for it.
    """
    import tensorflow as tf

    try:
        result = _call(tf, operator, x).numpy()
    except (tf.errors.NotFoundError, tf.errors.UnimplementedError):
        raise Silent(f"TensorFlow has no kernel for {x.dtype.name} of rank {x.ndim}") from None
    except TypeError as error:  # a type that the operator does not list
        raise Silent(f"TensorFlow rejects it: {str(error).splitlines()[0]}") from None
    except tf.errors.InvalidArgumentError as error:
        if any(words in str(error) for words in _LIMITS):
            raise Silent(f"TensorFlow rejects it: {str(error).splitlines()[0]}") from None
        raise
    if x.dtype.kind == "O":
        texts = np.empty(result.size, object)
        texts[:] = [t.decode() for t in result.reshape(-1)]
        return texts.reshape(result.shape)
    return np.asarray(result)


def _call(tf: Any, operator: Operator, x: Array) -> Any:
    if isinstance(operator, SpaceToBatch | BatchToSpace):
        return _blocks(tf, operator, x)
    if isinstance(operator, ExtractPatches):
        return _patches(tf, operator, x)
    raise Silent(f"TensorFlow has no {operator.name}")


def _blocks(tf: Any, operator: SpaceToBatch | BatchToSpace, x: Array) -> Any:
    name = operator.name
    amounts = "paddings" if isinstance(operator, SpaceToBatch) else "crops"
    table = {amounts: np.array(operator.amounts, np.int64).reshape(-1, 2)}
    block = operator.block_shape
    # The 4-D operator is another kernel than the ND one.
    if x.ndim == 4 and len(block) == 2 and block[0] == block[1] >= 2:
        return getattr(tf.raw_ops, name)(input=tf.constant(x), block_size=block[0], **table)
    shape = np.array(block, np.int64)
    return getattr(tf.raw_ops, f"{name}ND")(input=tf.constant(x), block_shape=shape, **table)


def _patches(tf: Any, operator: ExtractPatches, x: Array) -> Any:
    if operator.major != "place" or len(operator.kernel) == 1:
        raise Silent("TensorFlow puts places before channels, and has no patches along one axis")
    if operator.auto_pad == "same_lower":
        raise Silent("TensorFlow has no SAME that pads more in front")
    volume = len(operator.kernel) == 3
    if volume != (operator.auto_pad == "same_unclamped") and operator.auto_pad != "valid":
        raise Silent("TensorFlow pads SAME differently for this number of axes")
    if operator.clamp_negative and 0 in operator.output_shape(x.shape):
        raise Silent("TensorFlow refuses windows that do not fit")
    if x.dtype.kind in "Ob":
        raise Silent(f"TensorFlow has no patches of {x.dtype.name}")
    first = operator.layout == "channels_first"
    data = tf.constant(np.moveaxis(x, 1, -1) if first else x)
    sizes = {"ksizes": [1, *operator.kernel, 1], "strides": [1, *operator.strides, 1]}
    padding = "VALID" if operator.auto_pad == "valid" else "SAME"
    if volume:
        if set(operator.rates) != {1}:
            raise Silent("TensorFlow has no rates for volumes")
        result = tf.raw_ops.ExtractVolumePatches(input=data, **sizes, padding=padding)
    else:
        rates = [1, *operator.rates, 1]
        result = tf.raw_ops.ExtractImagePatches(images=data, **sizes, rates=rates, padding=padding)
    rank = x.ndim
    return tf.transpose(result, [0, rank - 1, *range(1, rank - 1)]) if first else result
