"""TensorFlow's spellings: which operator each one asks for, and the rules that it must keep."""

from __future__ import annotations

import numpy as np
import pytest
from vocabulary import BatchToSpace, ExtractPatches, InputFacts, NodeFacts, SpaceToBatch, read

from onnx_spatial import OperatorError

I32, I64 = np.int32, np.int64
facts = InputFacts
IMAGE = InputFacts("float32", ("N", 4, 6, 3))
EIP = {"ksizes": (1, 3, 2, 1), "strides": (1, 2, 1, 1), "rates": (1, 1, 2, 1), "padding": "SAME"}
EVP = {"ksizes": (1, 1, 2, 3, 1), "strides": (1, 3, 2, 1, 1), "padding": "SAME"}


def node(
    op_type: str, *inputs: object, data: InputFacts = IMAGE, **attributes: object
) -> NodeFacts:
    facts = [i if isinstance(i, InputFacts) or i is None else InputFacts.of(i) for i in inputs]
    return NodeFacts(op_type, "", (data, *facts), attributes)


def table(*pairs: tuple[int, int], dtype: type = I32) -> np.ndarray:
    return np.array(pairs, dtype).reshape(len(pairs), 2)


#: Tables of nothing, for one axis and two; node types.
T1, T2 = table((0, 0)), table((0, 0), (0, 0))
S2B, B2S, S2BND, B2SND = "SpaceToBatch", "BatchToSpace", "SpaceToBatchND", "BatchToSpaceND"


# SpaceToBatch / BatchToSpace with block_size


@pytest.mark.parametrize(
    ("op_type", "operator"), [("SpaceToBatch", SpaceToBatch), ("BatchToSpace", BatchToSpace)]
)
@pytest.mark.parametrize("dtype", [I32, I64])
def test_4d_is_nd_with_a_square_block(op_type, operator, dtype):
    amounts = table((1, 1), (0, 2), dtype=dtype)
    call = read(node(op_type, amounts, data=facts("float32", (4, 2, 4, 3)), block_size=2))
    assert call.operator == operator((2, 2), ((1, 1), (0, 2)))
    assert (call.dialect, call.rank) == ("tensorflow-4d", 4)


def test_4d_ignores_attributes_that_say_nothing_of_the_meaning():
    amounts = T2
    call = read(node(S2B, amounts, block_size=2, Tidx=3, T=1, _output_shapes=(1,)))
    assert call.operator == SpaceToBatch((2, 2), ((0, 0), (0, 0)))


@pytest.mark.parametrize(
    ("made", "rule"),
    [
        (node(S2B, T2), "attribute block_size is missing"),
        (node(S2B, T2, block_size=1), "block_size is 1; .* at least 2"),
        (node(S2B, T2, block_size=2.0), "attribute block_size must be an integer, not float 2.0"),
        (
            node(S2B, T2, block_size=(2, 2)),
            r"attribute block_size must be an integer, not the list \[2, 2\]",
        ),
        (node(S2B, block_size=2), "paddings is missing: neither input 1 nor an attribute"),
        (node(B2S, None, block_size=2), "crops is missing"),
        (
            node(B2S, facts("int32", (2, 3)), block_size=2),
            r"crops must have shape \[2, 2\], not \[2, 3\]",
        ),
        (
            node(S2B, np.array([2, 2]), T2, block_size=2),
            "has 3 inputs where its spelling has 2 at most",
        ),
        (
            node(S2B, T2, block_size=2, block_shape=(2, 2)),
            "has both .* and .*, which are two different spellings",
        ),
        (
            node(S2B, paddings=(1, 1, 0), block_size=2),
            "attribute paddings must hold 2 entries per blocked axis, row by row, not 3 entries",
        ),
    ],
)
def test_4d_rules(made, rule):
    with pytest.raises(OperatorError, match=rule):
        read(made)


# SpaceToBatchND / BatchToSpaceND


@pytest.mark.parametrize(
    ("op_type", "operator", "dialect"),
    [
        ("SpaceToBatchND", SpaceToBatch, "tensorflow-nd"),
        ("BatchToSpaceND", BatchToSpace, "tensorflow-nd"),
        ("SpaceToDepth", SpaceToBatch, "tensorflow-leftover"),
        ("DepthToSpace", BatchToSpace, "tensorflow-leftover"),
        ("SpaceToBatch", SpaceToBatch, "tensorflow-nd"),  # exporters that dropped the ND
        ("BatchToSpace", BatchToSpace, "tensorflow-nd"),
    ],
)
@pytest.mark.parametrize("types", [(I32, I32), (I32, I64), (I64, I32), (I64, I64)])
def test_nd_in_any_mix_of_integer_types(op_type, operator, dialect, types):
    block, amounts = np.array([2, 1], types[0]), table((1, 1), (0, 2), dtype=types[1])
    call = read(node(op_type, block, amounts, data=facts("float32", (4, 2, 4))))
    assert call.operator == operator((2, 1), ((1, 1), (0, 2)))
    assert (call.dialect, call.rank) == (dialect, None)


@pytest.mark.parametrize(
    "made",
    [
        node(S2BND, block_shape=(2, 3), paddings=(0, 2, 1, 2)),
        node(S2BND, np.array([2, 3]), paddings=(0, 2, 1, 2)),
        node(S2BND, table((0, 2), (1, 2)), block_shape=(2, 3)),
        node(S2B, block_shape=(2, 3), paddings=(0, 2, 1, 2)),
        node(S2BND, np.array([2, 3]), None, paddings=(0, 2, 1, 2)),
    ],
    ids=["both", "paddings", "block_shape", "without ND", "missing input"],
)
def test_nd_parameters_as_attributes(made):
    assert read(made).operator == SpaceToBatch((2, 3), ((0, 2), (1, 2)))


def test_nd_without_blocked_axes_is_a_copy():
    call = read(node(S2BND, np.zeros(0, I32), np.zeros((0, 2), I32)))
    assert call.operator == SpaceToBatch((), ())


def test_what_is_not_known_is_read_when_it_runs():
    call = read(node(S2BND, facts("int32", (2,)), table((1, 1), (0, 2))))
    assert call.operator is None
    assert call.output_shape((1, 4, 4, 3)) == (None, None, None, 3)
    bound = call.bind((np.zeros((1, 4, 4, 3)), np.array([3, 2]), table((1, 1), (0, 2))))
    assert bound == SpaceToBatch((3, 2), ((1, 1), (0, 2)))


@pytest.mark.parametrize(
    "made",
    [
        node(S2BND, facts("int64", (None,)), facts("int64", (2, 2))),
        node(S2BND, facts("int64", ("M",)), T2),
        node(S2BND, facts("int64", (2,)), facts("int64", None)),
        node(S2BND, InputFacts(), facts("int64", (2, None))),
        node(S2BND, np.array([2, 2]), InputFacts(None, None)),
    ],
)
def test_nd_number_of_blocked_axes_is_found_wherever_it_shows(made):
    assert read(made).blocked == 2


@pytest.mark.parametrize(
    ("made", "rule"),
    [
        (node(S2BND), "block_shape is missing: neither input 1 nor an attribute"),
        (node(S2BND, np.array([2])), "paddings is missing: neither input 2"),
        (node(B2SND, np.array([2])), "crops is missing: neither input 2"),
        (node(S2BND, np.array([2.0, 2.0]), T2), "block_shape must be int32 or int64, not float64"),
        (node(S2BND, np.array([[2]]), T1), "block_shape must be 1-D"),
        (node(S2BND, facts("int32", ()), T1), r"block_shape must be 1-D, not of shape \[\]"),
        (
            node(S2BND, np.array([2]), np.zeros(2, I32)),
            r"paddings must have shape \[1, 2\], not \[2\]",
        ),
        (
            node(S2BND, facts("int64", None), facts("int64", None)),
            "block_shape is computed at run time and its length is unknown",
        ),
        # What is known must keep its rules although the rest is not known yet.
        (node(B2SND, facts("int32", (1,)), table((-1, 0))), "crops.0..0. is -1"),
        (
            node(S2BND, facts("int32", (4,)), facts("int32", None)),
            "4 blocked dims need an input of rank 5 or more",
        ),
        (
            node(S2BND, np.array([2, 3]), T2, block_shape=(2, 2)),
            "has 3 inputs where its spelling has 2 at most",
        ),
        (node(S2BND, np.array([2]), T1, T1), "has 4 inputs where its spelling has 3 at most"),
    ],
)
def test_nd_rules(made, rule):
    with pytest.raises(OperatorError, match=rule):
        read(made)


# ExtractImagePatches / ExtractVolumePatches


def test_image_patches_are_channels_last():
    call = read(node("ExtractImagePatches", **EIP))
    assert call.operator == ExtractPatches((3, 2), (2, 1), (1, 2), "same_upper", "channels_last")
    assert call.operator.clamp_negative is False
    assert (call.dialect, call.rank) == ("tensorflow", 4)


def test_volume_patches_do_not_clamp_what_same_leaves_over():
    data = facts("float32", (1, 10, 4, 4, 2))
    call = read(node("ExtractVolumePatches", data=data, **EVP))
    assert call.operator == ExtractPatches((1, 2, 3), (3, 2, 1), (1, 1, 1), "same_unclamped")
    assert call.rank == 5


@pytest.mark.parametrize("op_type", ["ExtractImagePatches", "ExtractVolumePatches"])
def test_valid(op_type):
    data = IMAGE if op_type == "ExtractImagePatches" else facts("float32", (1, 4, 4, 4, 2))
    given = EIP if op_type == "ExtractImagePatches" else EVP
    call = read(node(op_type, data=data, **{**given, "padding": "VALID"}))
    assert call.operator.auto_pad == "valid"


def test_volume_patches_may_say_that_their_rates_are_1():
    data = facts("float32", (1, 4, 4, 4, 2))
    call = read(node("ExtractVolumePatches", data=data, **EVP, rates=(1, 1, 1, 1, 1)))
    assert call.operator.rates == (1, 1, 1)
    with pytest.raises(OperatorError, match="ExtractVolumePatches has no rates; they must be 1"):
        read(node("ExtractVolumePatches", data=data, **EVP, rates=(1, 2, 1, 1, 1)))


@pytest.mark.parametrize("name", ["ksizes", "strides", "rates", "padding"])
def test_image_patches_need_every_attribute(name):
    given = {k: v for k, v in EIP.items() if k != name}
    with pytest.raises(OperatorError, match=f"attribute {name} is missing"):
        read(node("ExtractImagePatches", **given))


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"ksizes": (1, 2, 2, 2)}, "ksizes is .*; its first and last entry .* must be 1"),
        ({"rates": (1, 1, 1)}, "attribute rates must have 4 entries, not 3"),
        ({"ksizes": (1, 0, 1, 1)}, r"attribute ksizes\[1\] is 0; it must be at least 1"),
        ({"strides": (1, 1, -1, 1)}, r"attribute strides\[2\] is -1; it must be at least 1"),
        ({"ksizes": 3}, "attribute ksizes must be a list of integers, not int 3"),
        ({"padding": "same"}, "attribute padding must be SAME or VALID, not 'same'"),
        ({"padding": "EXPLICIT"}, "attribute padding must be SAME or VALID, not 'EXPLICIT'"),
        ({"padding": 1}, "attribute padding must be a string, not int 1"),
        ({"data_format": "NCHW"}, "data_format 'NCHW' is not a channels-last layout"),
        ({"auto_pad": "valid"}, "has both ksizes and auto_pad, which are two different spellings"),
    ],
)
def test_patch_rules(changed, rule):
    with pytest.raises(OperatorError, match=rule):
        read(node("ExtractImagePatches", **{**EIP, **changed}))


def test_a_valid_window_larger_than_the_image_is_an_error():
    with pytest.raises(OperatorError, match="window of 7 elements on size 4"):
        read(
            node(
                "ExtractImagePatches",
                ksizes=(1, 7, 1, 1),
                strides=(1, 1, 1, 1),
                rates=(1, 1, 1, 1),
                padding="VALID",
            )
        )
