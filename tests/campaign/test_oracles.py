"""The same nodes in TensorFlow and OpenVINO, where these are right.

    pytest -m oracle tests/campaign              a few nodes of each spelling
    pytest -m "slow and oracle" tests/campaign   2,000, as every week

Each oracle answers with the output, or None where the runtime cannot run the node or is known to be
wrong: OpenVINO's CPU SpaceToBatch reads a neighbour instead of 0 where a block exceeds D + pads_begin
(rank 4 and 5), leaves zero-sized dims that are padded up uninitialised, computes 64-bit integers in
32 bits and doubles in floats.
"""

import os
from functools import cache
from random import Random
from typing import Any

import graphs
import ml_dtypes
import numpy as np
import pytest
import running
from building import ELEMENT_TYPES
from graphs import Sample

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

BLOCK_TYPES = tuple(ELEMENT_TYPES)
PATCH_TYPES = tuple(t for t in ELEMENT_TYPES if t not in ("bool", "string"))

#: What OpenVINO's CPU plugin moves without looking at it.
OPENVINO_TYPES = ("float32", "float16", "int8", "uint8", "int32")


def tensorflow(sample: Sample) -> np.ndarray | None:
    """TensorFlow's eager CPU kernel."""
    import tensorflow as tf

    data, *parameters = sample.inputs
    renamed = {"SpaceToDepth": "SpaceToBatchND", "DepthToSpace": "BatchToSpaceND"}
    name = renamed.get(sample.op_type, sample.op_type)
    if name in ("SpaceToBatch", "BatchToSpace") and "block_size" not in sample.attributes:
        name += "ND"  # with three inputs, and named without the suffix
    x = tf.constant(data, tf.bfloat16) if data.dtype == ml_dtypes.bfloat16 else tf.constant(data)
    named = {n: v for n, v in sample.attributes.items() if n != "Tidx"}
    if not name.startswith("Extract"):
        table = "paddings" if name.startswith("Space") else "crops"
        tables = ("block_shape", table) if name.endswith("ND") else (table,)
        wanted = [n for n in tables if n not in named]
        named |= dict(zip(wanted, parameters, strict=True))
        named[table] = np.asarray(named[table]).reshape(-1, 2)
    try:
        call = getattr(tf.raw_ops, name)
        out = call(**{"images" if name == "ExtractImagePatches" else "input": x}, **named)
    except (tf.errors.NotFoundError, tf.errors.UnimplementedError):
        return None  # no kernel for this element type or number of blocked dims
    except tf.errors.InvalidArgumentError as error:
        if "non-zero" in str(error) or "must be positive" in str(error):
            return None
        raise
    result = out.numpy()
    if data.dtype == object:
        texts = [t.decode() for t in result.reshape(-1)]
        return np.array(texts, object).reshape(result.shape)
    return np.asarray(result)


def openvino(sample: Sample) -> np.ndarray | None:
    """OpenVINO's CPU plugin."""
    data = sample.inputs[0]
    if data.dtype.name not in OPENVINO_TYPES or not _openvino_is_right(sample):
        return None
    import openvino as ov
    from openvino import opset13

    parameter = opset13.parameter(data.shape, data.dtype)
    if sample.op_type == "ExtractImagePatches":
        given = sample.attributes
        node = opset13.extract_image_patches(
            parameter, given["sizes"], given["strides"], given["rates"], given["auto_pad"]
        )
    elif sample.op_type == "ReorgYolo":
        node = opset13.reorg_yolo(parameter, np.atleast_1d(sample.attributes["stride"]).tolist())
    else:
        make = (
            opset13.space_to_batch if sample.op_type == "SpaceToBatch" else opset13.batch_to_space
        )
        node = make(parameter, *_lists(sample))
    compiled = _core().compile_model(
        ov.Model([node], [parameter]), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    return np.array(compiled(data)[0])


@cache
def _core() -> Any:
    import openvino as ov

    return ov.Core()


def _openvino_is_right(sample: Sample) -> bool:
    data = sample.inputs[0]
    if 0 in data.shape or 0 in sample.expected.shape:
        return False
    if data.dtype == np.float16 and np.isnan(data).any():
        return False  # it goes through float32, which makes signalling NaNs quiet
    if sample.op_type == "ReorgYolo":
        return data.dtype != np.int32  # it goes through float32
    if sample.op_type == "SpaceToBatch":
        block, begins, _ = _lists(sample)
        return data.ndim not in (4, 5) or not (block > np.array(data.shape) + begins).any()
    return True


def _lists(sample: Sample) -> list[np.ndarray]:
    """Block, begins and ends, which are inputs or attributes."""
    lists = sample.inputs[1:] or [v for v in sample.attributes.values() if isinstance(v, list)]
    return [np.array(values, np.int64) for values in lists]


def types_of(spelling: str) -> tuple[str, ...]:
    """The element types for which the other runtime has kernels that look at nothing."""
    if "openvino" in spelling:
        return OPENVINO_TYPES
    return PATCH_TYPES if "Patches" in spelling else BLOCK_TYPES


#: `Rearrange` is an operator of this package alone.
ELSEWHERE = [spelling for spelling in graphs.SPELLINGS if spelling != "rearrange"]
ORACLES = {"tensorflow": tensorflow, "openvino": openvino}


@pytest.mark.oracle
@pytest.mark.parametrize(
    "numbers", [range(12), pytest.param(range(2000), marks=pytest.mark.slow)], ids=len
)
@pytest.mark.parametrize("spelling", ELSEWHERE)
def test_against_other_runtimes(spelling, numbers):
    """The definition gives what TensorFlow or OpenVINO gives, where these are right."""
    package = "openvino" if "openvino" in spelling else "tensorflow"
    pytest.importorskip(package, reason=f"{package} is not installed")
    types, oracle = types_of(spelling), ORACLES[package]
    told = 0
    for number in numbers:
        rng = Random(f"{spelling} {number}")
        sample = graphs.retyped(rng, graphs.sample(rng, spelling), types)
        wanted = oracle(sample)
        if wanted is not None:
            told += 1
            assert running.same_bits(sample.expected, wanted), f"case {number}: {sample}"
    assert told >= 0.4 * len(numbers), f"only {told} of {len(numbers)} cases could be told"
