"""OpenVINO's spellings: one entry per dim, the batch included, and channels first."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from vocabulary import (
    DOMAINS,
    BatchToSpace,
    ExtractPatches,
    InputFacts,
    NodeFacts,
    ReorgYolo,
    SpaceToBatch,
    read,
    recognise,
)

from onnx_spatial import OperatorError
from onnx_spatial.operators.spellings import python_ops

DATA = InputFacts("float32", (4, 2, 6))
PATCHES = {"sizes": (3, 2), "strides": (2, 1), "rates": (1, 2), "auto_pad": "same_lower"}
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def block(
    op_type: str, *inputs: object, data: InputFacts | None = DATA, **attributes: object
) -> NodeFacts:
    facts = [
        i if isinstance(i, InputFacts) or i is None else InputFacts.of(np.array(i)) for i in inputs
    ]
    return NodeFacts(op_type, "org.openvinotoolkit", (data, *facts), attributes)


s2b, b2s = (partial(block, op_type) for op_type in ("SpaceToBatch", "BatchToSpace"))


@pytest.mark.parametrize(
    ("op_type", "operator"), [("SpaceToBatch", SpaceToBatch), ("BatchToSpace", BatchToSpace)]
)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_the_batch_has_an_entry_of_its_own_in_any_integer_type(op_type, operator, dtype):
    entries = (np.array(v, dtype) for v in ([1, 2, 2], [0, 1, 0], [0, 1, 2]))
    call = read(block(op_type, *entries))
    assert call.operator == operator((2, 2), ((1, 1), (0, 2)))
    assert (call.dialect, call.rank) == ("openvino", 3)


@pytest.mark.parametrize(
    "made",
    [
        s2b(block_shape=(1, 2, 2), pads_begin=(0, 1, 0), pads_end=(0, 1, 2)),
        s2b([1, 2, 2], pads_begin=(0, 1, 0), pads_end=(0, 1, 2)),
        s2b(data=InputFacts(), block_shape=(1, 2, 2), pads_begin=(0, 1, 0), pads_end=(0, 1, 2)),
    ],
    ids=["all", "pads", "unknown data"],
)
def test_parameters_as_attributes(made):
    assert read(made).operator == SpaceToBatch((2, 2), ((1, 1), (0, 2)))


@pytest.mark.parametrize(
    "made",
    [
        s2b(None, [0, 1, 0], [0, 1, 2], block_shape=(1, 2, 2)),
        s2b(None, None, [0, 1, 2], block_shape=(1, 2, 2), pads_begin=(0, 1, 0)),
        s2b([1, 2, 2], None, [0, 1, 2], pads_begin=(0, 1, 0)),
    ],
    ids=["block_shape", "block_shape and begins", "begins"],
)
def test_an_input_whose_parameter_is_an_attribute_is_left_out(made):
    assert read(made).operator == SpaceToBatch((2, 2), ((1, 1), (0, 2)))


def test_crops_as_attributes():
    made = b2s(block_shape=(1, 2, 1), crops_begin=(0, 1, 0), crops_end=(0, 0, 0))
    assert read(made).operator == BatchToSpace((2, 1), ((1, 0), (0, 0)))


@pytest.mark.parametrize(
    "made",
    [
        s2b(*[InputFacts("int64", (3,))] * 3, data=InputFacts("float32", None)),
        s2b(*[InputFacts("int64", (None,))] * 3),
        s2b(*[InputFacts("int64", None)] * 3),
        s2b(InputFacts(), InputFacts(), InputFacts("int8", (3,)), data=InputFacts()),
    ],
)
def test_the_rank_is_found_wherever_it_shows(made):
    call = read(made)
    assert (call.blocked, call.rank) == (2, 3)


def test_at_run_time_the_batch_entry_is_passed_over():
    call = read(s2b(*[InputFacts("int64", (3,))] * 3))
    values = [np.array(v) for v in ([1, 2, 2], [0, 1, 0], [0, 1, 2])]
    assert call.bind((None, *values)) == SpaceToBatch((2, 2), ((1, 1), (0, 2)))


@pytest.mark.parametrize(
    ("made", "rule"),
    [
        (
            b2s([1, 1, 1], [0, 0, 0], [3, 0, 0]),
            r"crops_end\[0\] is 3; the entry of the batch axis must be 0",
        ),
        # By the names and places of the file: the operator itself knows no entry of the batch.
        (s2b([1, 1, 0], [0, 0, 0], [0, 0, 0]), r"^block_shape\[2\] is 0; .* 1$"),
        (s2b([1, 1, 1], [0, 0, 0], [0, -1, 0]), r"^pads_end\[1\] is -1; it must not be negative"),
        (s2b([1, 2, 2], [0, 0], [0, 0, 0]), "pads_begin has 2 entries, block_shape has 3"),
        (b2s([1, 2, 2], [0, 0, 0], [0, 0, 0, 0]), "crops_end has 4 entries, block_shape has 3"),
        (
            s2b([1, 2, 2], InputFacts("bool", (3,)), [0, 0, 0]),
            "pads_begin must be an integer type, not bool",
        ),
        (
            s2b(*[InputFacts("int64", None)] * 3, data=InputFacts()),
            "block_shape is computed at run time and its length is unknown",
        ),
        (
            s2b([1, 2, 2], None, [0, 0, 0]),
            "pads_begin is missing: neither input 2 nor an attribute",
        ),
        (b2s([1, 2, 2], crops_begin=(0, 0, 0)), "crops_end is missing"),
        # Said twice, or in two spellings at once: nobody can know which is meant.
        (
            s2b([1, 2, 2], [0, 1, 0], pads_begin=(0, 0, 0), pads_end=(0, 1, 2)),
            "has 3 inputs where its spelling has 2 at most",
        ),
        (
            s2b([1, 2, 2], [0, 1, 0], [0, 0, 0], block_shape=(1, 2, 2)),
            "has 4 inputs where its spelling has 3 at most",
        ),
        (
            s2b(block_shape=(1, 2), pads_begin=(0, 0), paddings=(0, 0)),
            "has both paddings and pads_begin, which are two different spellings",
        ),
    ],
)
def test_block_rules(made, rule):
    with pytest.raises(OperatorError, match=rule):
        read(made)


def patches(data: InputFacts | None = None, **changed: object) -> NodeFacts:
    image = data or InputFacts("float32", (1, 3, 10, 10))
    return NodeFacts("ExtractImagePatches", "org.openvinotoolkit", (image,), {**PATCHES, **changed})


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("valid", "valid"),
        ("same_upper", "same_upper"),
        ("same_lower", "same_lower"),
        ("VALID", "valid"),
        ("SAME_UPPER", "same_upper"),
    ],
)
def test_patches_are_channels_first_and_clamp(written, meant):
    call = read(patches(auto_pad=written))
    assert call.operator == ExtractPatches(
        (3, 2), (2, 1), (1, 2), meant, "channels_first", clamp_negative=True
    )
    assert (call.dialect, call.rank) == ("openvino", 4)


@pytest.mark.parametrize("domain", ["", "org.openvinotoolkit", "ai.onnx.converters.tensorflow"])
def test_patches_are_told_by_their_attributes_not_their_domain(domain):
    image = InputFacts("float32", (1, 5, 5, 5))
    tf = {"ksizes": (1, 3, 2, 1), "strides": (1, 2, 1, 1), "rates": (1, 1, 2, 1), "padding": "SAME"}
    assert read(NodeFacts("ExtractImagePatches", domain, (image,), PATCHES)).dialect == "openvino"
    assert read(NodeFacts("ExtractImagePatches", domain, (image,), tf)).dialect == "tensorflow"


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        (
            {"auto_pad": "explicit"},
            "auto_pad must be valid, same_upper or same_lower, not 'explicit'",
        ),
        ({"auto_pad": "notset"}, "auto_pad must be valid, same_upper or same_lower"),
        ({"sizes": "3,3"}, "attribute sizes must be a list of integers"),
        ({"data": InputFacts("float32", (1, 3, 10))}, r"must have rank 4, not \[1, 3, 10\]"),
    ],
)
def test_patch_rules(changed, rule):
    with pytest.raises(OperatorError, match=rule):
        read(patches(**changed))


@pytest.mark.parametrize("name", ["strides", "rates", "auto_pad"])
def test_patches_need_every_attribute(name):
    made = patches()
    given = {k: v for k, v in PATCHES.items() if k != name}
    with pytest.raises(OperatorError, match=f"attribute {name} is missing"):
        read(NodeFacts(made.op_type, made.domain, made.inputs, given))


def reorg(*, data: InputFacts | None = None, **attributes: object) -> NodeFacts:
    image = data or InputFacts("float32", ("N", 4, 6, None))
    return NodeFacts("ReorgYolo", "org.openvinotoolkit", (image,), attributes)


@pytest.mark.parametrize("stride", [2, (2,), (2, 3)])
def test_reorg_takes_an_integer_or_the_first_of_a_list(stride):
    call = read(reorg(stride=stride))
    assert call.operator == ReorgYolo(2)
    assert (call.dialect, call.rank) == ("openvino", 4)
    assert call.output_shape(("N", 4, 6, None)) == ("N", 16, 3, None)


@pytest.mark.parametrize("domain", sorted(DOMAINS - {python_ops.DOMAIN}))
def test_reorg_is_recognised_in_every_known_domain(domain):
    assert recognise("ReorgYolo", domain, 1)
    made = reorg(stride=2)
    assert read(NodeFacts(made.op_type, domain, made.inputs, made.attributes)).dialect == "openvino"


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({}, "attribute stride is missing"),
        ({"stride": ()}, "attribute stride is an empty list"),
        ({"stride": "2"}, "attribute stride must be an integer, not str '2'"),
        ({"stride": 2.0}, "attribute stride must be an integer"),
        ({"stride": (2.0,)}, "attribute stride must be a list of integers"),
        ({"stride": 0}, "stride is 0; it must be an integer, at least 1"),
        ({"stride": -2}, "stride is -2; it must be an integer, at least 1"),
        ({"stride": 2**40}, "32 bits at most"),
        ({"stride": 3}, r"4 channels; there must be stride \* stride = 9 or more"),
        (
            {"stride": 2, "data": InputFacts("float32", (1, 4, 5, 4))},
            "axis 2: size 5 is not divisible by the stride, 2",
        ),
        (
            {"stride": 2, "data": InputFacts("float32", (1, 4, 4, 7))},
            "axis 3: size 7 is not divisible by the stride, 2",
        ),
        ({"stride": 2, "data": InputFacts("float32", (4, 4, 4))}, "must have rank 4"),
        ({"stride": 2, "data": InputFacts("float32", (0, 3, 0, 4))}, "3 channels"),
    ],
)
def test_reorg_rules(given, rule):
    with pytest.raises(OperatorError, match=rule):
        read(reorg(**given))


def test_reorg_has_one_input():
    image = InputFacts("float32", (1, 4, 4, 4))
    with pytest.raises(OperatorError, match="has 2 inputs where its spelling has 1 at most"):
        read(NodeFacts("ReorgYolo", "", (image, image), {"stride": 2}))
