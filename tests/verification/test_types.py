"""Every element type, with bit patterns that only exact data movement survives."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from adapter import verify
from hand_lowered import model, space_to_batch, space_to_batch_lowered
from onnx import TensorProto

from onnx_spatial.verification.arrays import (
    differing_bits,
    dtype_of,
    same_bits,
)
from onnx_spatial.verification.run.data import INTEGER_MODES, patterns, usual

TYPES = [
    *("float16", "bfloat16", "float", "double", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool", "string"),
]
PADDED = [
    "float16",
    "float",
    "double",
    "int8",
    "int32",
    "int64",
    "uint8",
    "uint32",
    "uint64",
    "bool",
]

UNPADDED = """
g (TYPE[N,4,6,3] x) => (TYPE[P,Q,R,S] y) <int32[2] block = {2, 3}, int32[2,2] none = {0, 0, 0, 0},
   int64[6] s = {-1, 2, 2, 2, 3, 3}, int64[4] m = {-1, 2, 2, 3}>
{ BODY }
"""
SITE = "[site] y = tf.SpaceToBatchND(x, block, none)"
LOWERED = "a = Reshape(x, s)\n b = Transpose<perm = [2, 4, 0, 1, 3, 5]>(a)\n y = Reshape(b, m)"


@pytest.mark.parametrize("element_type", TYPES)
def test_pass_and_fail(element_type: str) -> None:
    text = UNPADDED.replace("TYPE", element_type)
    original = model(text.replace("BODY", SITE))
    result = verify(original, model(text.replace("BODY", LOWERED)))
    assert result, result.message
    assert {c.dtype for c in result.operators[0].checks} == {result.outputs[0].dtype}
    wanted = {"float": "float32", "double": "float64"}.get(element_type, element_type)
    assert result.outputs[0].dtype == wanted
    wrong = verify(original, model(text.replace("BODY", LOWERED.replace("2, 4, 0", "2, 0, 4"))))
    assert wrong.status == "failed"


@pytest.mark.parametrize("element_type", PADDED)
def test_padded(element_type: str) -> None:
    assert verify(space_to_batch(element_type), space_to_batch_lowered(element_type))


def test_where_loses_the_sign_of_zero() -> None:
    """A lowering by Where turns -0.0 into 0.0: only the bits tell."""
    text = UNPADDED.replace("TYPE", "float").replace(
        "BODY", LOWERED.replace("y = ", "c = ") + "\n TAIL"
    )
    original = model(UNPADDED.replace("TYPE", "float").replace("BODY", SITE))
    tail = "yes = IsNaN(c)\n no = Not(yes)\n either = Or(yes, no)\n y = Where(either, c, c)"
    result = verify(original, model(text.replace("TAIL", tail)))
    assert result.status == "failed"
    assert result.operators[0].passed is False


@pytest.mark.parametrize(
    "name", ["FLOAT16", "BFLOAT16", "FLOAT", "DOUBLE", "INT8", "UINT64", "BOOL", "STRING"]
)
def test_patterns_are_distinct(name: str) -> None:
    element_type = getattr(TensorProto, name)
    for shape in ((), (1,), (2,), (5, 7), (0, 3)):
        array = patterns(element_type, shape, np.random.default_rng(1))
        again = patterns(element_type, shape, np.random.default_rng(1))
        assert array.shape == shape
        assert array.dtype == dtype_of(element_type)
        assert same_bits(array, again)
        if array.size > 2 and name != "BOOL":
            values = array.reshape(-1)
            bits = (
                values.tolist() if name == "STRING" else values.view(f"u{array.itemsize}").tolist()
            )
            assert len(set(bits)) == array.size


def test_patterns_hold_the_corners() -> None:
    array = patterns(TensorProto.FLOAT, (200,), np.random.default_rng(0))
    bits = set(array.view(np.uint32).tolist())
    assert {0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x00000001} <= bits
    half = patterns(TensorProto.FLOAT16, (70000,), np.random.default_rng(0)).view(np.uint16)
    assert len(set(half.tolist())) == 65536 - 2 * 511  # all but the signalling NaNs
    strings = patterns(TensorProto.STRING, (9,), np.random.default_rng(0)).tolist()
    assert "" in strings
    assert set(patterns(TensorProto.BOOL, (5,), np.random.default_rng(0)).tolist()) == {True, False}


@pytest.mark.parametrize("mode", INTEGER_MODES)
def test_usual_data(mode: str) -> None:
    rng = np.random.default_rng(3)
    floats = usual(TensorProto.FLOAT, (40, 50), rng, mode)
    assert len(np.unique(floats)) == floats.size
    assert -1.5 <= floats.min() < 0 < floats.max() <= 1.5
    integers = usual(TensorProto.INT64, (40, 50), rng, mode)
    assert abs(integers).max() <= 2000
    if mode != "wide":
        assert integers.min() >= 0
    assert usual(TensorProto.UINT8, (40, 50), rng, mode).dtype == np.uint8
    assert usual(TensorProto.BFLOAT16, (3,), rng, mode).dtype == ml_dtypes.bfloat16


def test_bits_tell_what_equality_does_not() -> None:
    a = np.array([0.0, np.nan, 1.0], np.float32)
    b = np.array([-0.0, np.nan, 1.0], np.float32)
    assert differing_bits(a, b).tolist() == [True, False, False]
    assert differing_bits(np.float32(0.0).reshape(()), np.float32(-0.0).reshape(())).shape == ()
    words = np.array([["a", ""]], object)
    assert not same_bits(words, np.array([["a", "b"]], object))
    assert not same_bits(a, a.astype(np.float64))
