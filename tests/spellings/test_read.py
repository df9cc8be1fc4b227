"""Which operator a node asks for, in the spellings of TensorFlow and OpenVINO, and its rules.

That every spelling means what its runtime does is said by `test_cases`, the grid and random nodes.
"""

from functools import partial

import numpy as np
import pytest
import structure
from adapter import convert
from building import OPENVINO, TF, one_node
from vocabulary import (
    PYTHON_DOMAIN,
    BatchToSpace,
    ExtractPatches,
    InputFacts,
    NodeFacts,
    ReorgYolo,
    SpaceToBatch,
    read,
    recognize,
)

from onnx_spatial import OperatorError

IMAGE, SIGNAL = InputFacts("float32", ("N", 4, 6, 3)), InputFacts("float32", (4, 2, 6))
EIP = {"ksizes": (1, 3, 2, 1), "strides": (1, 2, 1, 1), "rates": (1, 1, 2, 1), "padding": "SAME"}
EVP = {"ksizes": (1, 1, 2, 3, 1), "strides": (1, 3, 2, 1, 1), "padding": "SAME"}
OV = {"sizes": (3, 2), "strides": (2, 1), "rates": (1, 2), "auto_pad": "same_lower"}
#: Tables of nothing, for one axis and two.
T1, T2 = np.zeros((1, 2), np.int32), np.zeros((2, 2), np.int32)


def node(op_type: str, *inputs: object, data: object = IMAGE, **attributes: object) -> NodeFacts:
    """A node on data; lists become int64 tables."""
    facts = [
        i if isinstance(i, InputFacts) or i is None else InputFacts.of(np.array(i))
        for i in (data, *inputs)
    ]
    return NodeFacts(op_type, "", tuple(facts), attributes)


def given(*shape: int | str | None, dtype: str = "int64") -> InputFacts:
    """An input of which only the type and shape are known."""
    return InputFacts(dtype, shape)


S2BND, B2SND = partial(node, "SpaceToBatchND"), partial(node, "BatchToSpaceND")
S2B4, B2S4 = partial(node, "SpaceToBatch"), partial(node, "BatchToSpace")
S2B, B2S = partial(S2B4, data=SIGNAL), partial(B2S4, data=SIGNAL)
EXTRACT = partial(node, "ExtractImagePatches")
TF_PATCHES, OV_PATCHES = partial(EXTRACT, **EIP), partial(EXTRACT, **OV)
REORG = partial(node, "ReorgYolo", data=InputFacts("float32", ("N", 4, 6, None)))
VOLUME = partial(node, "ExtractVolumePatches", data=InputFacts("float32", (1, 10, 4, 4, 2)), **EVP)


@pytest.mark.parametrize(
    ("made", "operator", "dialect", "rank"),
    [
        (S2B4(T2, block_size=2, Tidx=3, T=1), SpaceToBatch((2, 2), T2.tolist()), "tensorflow-4d", 4),
        (S2B4([2, 1], T2), SpaceToBatch((2, 1), T2.tolist()), "tensorflow-nd", None),
        (S2BND([2, 3], None, paddings=(0, 2, 1, 2)), SpaceToBatch((2, 3), ((0, 2), (1, 2))),
         "tensorflow-nd", None),
        (node("DepthToSpace", [2], T1, data=SIGNAL), BatchToSpace((2,), ((0, 0),)),
         "tensorflow-leftover", None),
        (S2BND(np.zeros(0, np.int32), np.zeros((0, 2), np.int32)), SpaceToBatch((), ()),
         "tensorflow-nd", None),
        (S2B([1, 2, 2], None, [0, 1, 2], pads_begin=(0, 1, 0)),
         SpaceToBatch((2, 2), ((1, 1), (0, 2))), "openvino", 3),
        (B2S(block_shape=(1, 2, 1), crops_begin=(0, 1, 0), crops_end=(0, 0, 0)),
         BatchToSpace((2, 1), ((1, 0), (0, 0))), "openvino", 3),
        (TF_PATCHES(), ExtractPatches((3, 2), (2, 1), (1, 2), "same_upper"), "tensorflow", 4),
        (VOLUME(rates=(1, 1, 1, 1, 1)),
         ExtractPatches((1, 2, 3), (3, 2, 1), (1, 1, 1), "same_unclamped"), "tensorflow", 5),
        (OV_PATCHES(auto_pad="SAME_UPPER"), ExtractPatches(
            (3, 2), (2, 1), (1, 2), "same_upper", "channels_first", clamp_negative=True),
         "openvino", 4),
        (REORG(stride=(2, 3)), ReorgYolo(2), "openvino", 4),
    ],
)  # fmt: skip
def test_what_a_node_means(made, operator, dialect, rank):
    call = read(made)
    assert (call.operator, call.dialect, call.rank) == (operator, dialect, rank)


@pytest.mark.parametrize(
    "made",
    [
        S2BND(given(None), given(2, 2)),
        S2BND(given("M"), T2),
        S2BND(given(2), InputFacts("int64", None)),
        S2BND(InputFacts(), given(2, None)),
        S2BND([2, 2], InputFacts(None, None)),
        S2B(*[given(3)] * 3, data=InputFacts("float32", None)),
        S2B(*[given(None)] * 3),
        S2B(InputFacts(), InputFacts(), given(3, dtype="int8"), data=InputFacts()),
    ],
)
def test_the_number_of_blocked_axes_is_found_wherever_it_shows(made):
    assert read(made).blocked == 2


def test_what_is_not_known_is_read_when_it_runs():
    call = read(S2BND(given(2), [[1, 1], [0, 2]]))
    assert call.operator is None
    assert call.output_shape((1, 4, 4, 3)) == (None, None, None, 3)
    bound = call.bind((np.zeros((1, 4, 4, 3)), np.array([3, 2]), np.array([[1, 1], [0, 2]])))
    assert bound == SpaceToBatch((3, 2), ((1, 1), (0, 2)))


MISSING = [
    *((TF_PATCHES, name) for name in ("ksizes", "strides", "rates", "padding")),
    *((OV_PATCHES, name) for name in ("strides", "rates", "auto_pad")),
    (partial(REORG, stride=2), "stride"),
    (partial(S2B4, T2, block_size=2), "block_size"),
]


@pytest.mark.parametrize(("make", "name"), MISSING)
def test_an_attribute_that_is_missing_is_named(make, name):
    made = make()
    left = {k: v for k, v in made.attributes.items() if k != name}
    with pytest.raises(OperatorError, match=f"attribute {name} is missing"):
        read(NodeFacts(made.op_type, made.domain, made.inputs, left))


RULES = [
    (S2B4(T2, block_size=1), "block_size is 1; .* at least 2"),
    (S2B4(T2, block_size=2.0), "attribute block_size must be an integer, not float 2.0"),
    (S2B4(T2, block_size=(2, 2)), r"block_size must be an integer, not the list \[2, 2\]"),
    (S2B4(block_size=2), "paddings is missing: neither input 1 nor an attribute"),
    (B2S4(None, block_size=2), "crops is missing"),
    (B2S4(given(2, 3), block_size=2), r"crops must have shape \[2, 2\], not \[2, 3\]"),
    (S2B4([2, 2], T2, block_size=2), "has 3 inputs where its spelling has 2 at most"),
    (S2B4(T2, block_size=2, block_shape=(2, 2)), "has both .* and .*, which are two different"),
    (S2B4(paddings=(1, 1, 0), block_size=2), "2 entries per blocked axis, row by row, not 3"),
    (S2B4(T2, data=given(2, 4, 4), block_size=2), "rank 4"),
    (S2B([1, 2, 2, 2], [0] * 4, [0] * 4), "block_shape has 4 entries but data has rank 3"),
    (S2BND(), "block_shape is missing: neither input 1 nor an attribute"),
    (S2BND([2.0, 2.0], T2), "block_shape must be int32 or int64, not float64"),
    (S2BND([[2]], T1), "block_shape must be 1-D"),
    (S2BND(given(), T1), r"block_shape must be 1-D, not of shape \[\]"),
    (S2BND([2], [0, 0]), r"paddings must have shape \[1, 2\], not \[2\]"),
    (S2BND(*[InputFacts("int64", None)] * 2), "computed at run time and its length is unknown"),
    # What is known must keep its rules although the rest is not known yet.
    (B2SND(given(1), [[-1, 0]]), "crops.0..0. is -1"),
    (S2BND(given(4), InputFacts("int32", None)), "4 blocked dims need an input of rank 5 or more"),
    (S2BND([2], T1, T1), "has 4 inputs where its spelling has 3 at most"),
    # By the names and places of the file: the operator itself knows no entry of the batch.
    (B2S([1, 1, 1], [0, 0, 0], [3, 0, 0]), r"crops_end\[0\] is 3; the entry of the batch axis"),
    (S2B([1, 1, 0], [0, 0, 0], [0, 0, 0]), r"^block_shape\[2\] is 0; .* 1$"),
    (S2B([1, 1, 1], [0, 0, 0], [0, -1, 0]), r"^pads_end\[1\] is -1; it must not be negative"),
    (S2B([1, 2, 2], [0, 0], [0, 0, 0]), "pads_begin has 2 entries, block_shape has 3"),
    (S2B([1, 2, 2], given(3, dtype="bool"), [0, 0, 0]), "pads_begin must be an integer type"),
    (S2B([1, 2, 2], None, [0, 0, 0]), "pads_begin is missing: neither input 2 nor an attribute"),
    (S2B([1, 2, 2], [0, 0, 0], [0, 0, 0], block_shape=(1, 2, 2)), "has 4 inputs where its .* 3 at"),
    (
        S2B(block_shape=(1, 2), pads_begin=(0, 0), paddings=(0, 0)),
        "has both paddings and pads_begin",
    ),
    (TF_PATCHES(ksizes=(1, 2, 2, 2)), "ksizes is .*; its first and last entry .* must be 1"),
    (TF_PATCHES(rates=(1, 1, 1)), "attribute rates must have 4 entries, not 3"),
    (TF_PATCHES(strides=(1, 1, -1, 1)), r"attribute strides\[2\] is -1; it must be at least 1"),
    (TF_PATCHES(ksizes=3), "attribute ksizes must be a list of integers, not int 3"),
    (TF_PATCHES(padding="same"), "attribute padding must be SAME or VALID, not 'same'"),
    (TF_PATCHES(padding=1), "attribute padding must be a string, not int 1"),
    (TF_PATCHES(data_format="NCHW"), "data_format 'NCHW' is not a channels-last layout"),
    (TF_PATCHES(auto_pad="valid"), "has both ksizes and auto_pad, which are two different"),
    (
        TF_PATCHES(ksizes=(1, 7, 1, 1), strides=(1,) * 4, padding="VALID"),
        "window of 7 elements on size 4",
    ),
    (VOLUME(rates=(1, 2, 1, 1, 1)), "ExtractVolumePatches has no rates; they must be 1"),
    (
        OV_PATCHES(auto_pad="notset"),
        "auto_pad must be valid, same_upper or same_lower, not 'notset'",
    ),
    (OV_PATCHES(sizes="3,3"), "attribute sizes must be a list of integers"),
    (OV_PATCHES(data=given(1, 3, 10)), r"must have rank 4, not \[1, 3, 10\]"),
    (EXTRACT(data=None), "the data input is missing"),
    (REORG(stride=()), "attribute stride is an empty list"),
    (REORG(stride="2"), "attribute stride must be an integer, not str '2'"),
    (REORG(stride=(2.0,)), "attribute stride must be a list of integers"),
    (REORG(stride=0), "stride is 0; it must be an integer, at least 1"),
    (REORG(stride=2**40), "32 bits at most"),
    (REORG(stride=3), r"4 channels; there must be stride \* stride = 9 or more"),
    (REORG(stride=2, data=given(1, 4, 5, 4)), "axis 2: size 5 is not divisible by the stride, 2"),
    (REORG(stride=2, data=given(4, 4, 4)), "must have rank 4"),
    (REORG(IMAGE, stride=2), "has 2 inputs where its spelling has 1 at most"),
    (
        NodeFacts("ExtractPatches", PYTHON_DOMAIN, (IMAGE,), {"parameters": "kernel=2,2"}),
        "attribute parameters holds no parameters of ExtractPatches",
    ),
]


@pytest.mark.parametrize(("made", "rule"), RULES)
def test_a_broken_rule_is_told_in_the_words_of_the_file(made, rule):
    with pytest.raises(OperatorError, match=rule):
        read(made)


# Domains


@pytest.mark.parametrize(
    ("op_type", "domain", "inputs", "is_ours"),
    [
        *((f"{kind}{nd}", domain, 1, True)
          for kind in ("SpaceToBatch", "BatchToSpace", "ExtractImagePatches", "ExtractVolumePatches")
          for nd in ("", "ND")[: 1 + ("Batch" in kind)] for domain in ("", "com.example", TF)),
        # Leftovers that tf2onnx renamed have three inputs and the default domain.
        *((op, domain, count, (domain, count) == ("", 3)) for op in ("SpaceToDepth", "DepthToSpace")
          for domain, count in (("", 3), ("", 1), ("com.example", 3))),
        *((op, "", 3, False) for op in ("Conv", "SpaceToBatchNd", "ExtractGlimpse", "Im2Col")),
    ],
)  # fmt: skip
def test_the_operators_are_recognized_and_nothing_else(op_type, domain, inputs, is_ours):
    assert bool(recognize(op_type, domain, inputs)) == is_ours


def test_a_domain_of_the_users_own_can_be_named_and_one_that_the_file_forgot_is_known():
    for domain, domains in (("com.example", ["com.example"]), (TF, []), (OPENVINO, [])):
        inputs = (np.zeros((2, 4, 4, 3)), np.array([2, 2], np.int32), T2)
        model = one_node("SpaceToBatchND", inputs, domain=domain)
        if not domains:
            del model.opset_import[1:]
        converted = convert(model, domains=domains)
        assert structure.ops(converted) == ["Reshape", "Transpose", "Reshape"]
        assert [o.domain for o in converted.opset_import] == [""]
