"""What tests/golden does not say of the 176 executable cases, each as a model of one node."""

from __future__ import annotations

import cases
import definitions
import numpy as np
import pytest
import running
import structure
from adapter import convert

from onnx_spatial import ConversionError

ALL = cases.load()
POSITIVE = [c for c in ALL if c.error is None and not c.is_complex]
COMPLEX = [c for c in ALL if c.error is None and c.is_complex]
NEGATIVE = [c for c in ALL if c.error is not None]

#: For each case that must be refused, words of the rule that it breaks.
RULES = {
    "neg_ov_b2s_shapes_differ": "crops_begin must be 1-D",
    "neg_ov_b2s_rank1": "rank 2 or more",
    "spec_ov_b2s_crops0_not_0": r"crops_begin\[0\] is 1; the entry of the batch axis must be 0",
    "neg_ov_b2s_crop_end_negative": "must not be negative",
    "spec_ov_b2s_block0_not_1": r"block_shape\[0\] is 2; the entry of the batch axis must be 1",
    "neg_ov_b2s_crop_too_large_runtime": r"crops 3 \+ 2 exceed the size",
    "neg_ov_eip_rates_zero": r"rates\[0\] is 0; it must be at least 1",
    "neg_ov_eip_sizes_zero": "is 0; it must be at least 1",
    "neg_ov_eip_rates_len1": "rates must have 2 entries, not 1",
    "neg_ov_s2b_float_block": "block_shape must be an integer type, not float32",
    "spec_ov_s2b_block0_not_1": r"block_shape\[0\] is 2; the entry of the batch axis must be 1",
    "spec_ov_s2b_block_too_long": "block_shape has 5 entries but data has rank 4",
    "spec_ov_s2b_block_too_short": "block_shape has 3 entries but data has rank 4",
    "spec_ov_s2b_pads0_not_0": r"pads_begin\[0\] is 1; the entry of the batch axis must be 0",
    "neg_ov_s2b_rank1": "rank 2 or more",
    "spec_ov_s2b_pads_negative_rank3": "is -1; it must not be negative",
    "neg_4d_BatchToSpace_block_0": "block_size is 0; it must be at least 2",
    "neg_4d_b2s_batch_not_divisible": "batch 1 is not divisible by 9",
    "neg_4d_b2s_batch_divisible_by_block_not_square": "batch 6 is not divisible by 4",
    "neg_4d_s2b_not_divisible_width": "not divisible by its block, 3",
    "neg_4d_s2b_rank5": "rank 4",
    "neg_4d_s2b_rank3": "rank 4",
    "neg_eip_rank5": "rank 4",
    "neg_eip_valid_negative_out_stride3": "negative output size -1",
    "neg_eip_zero_height_valid": "negative output size -1",
    "neg_eip_ksizes_depth": "ksizes is .* first and last entry .* must be 1",
    "neg_evp_k0": r"ksizes\[1\] is 0; it must be at least 1",
    "neg_evp_negative_out": "negative output size -1",
    "neg_tflite_b2s_crop_too_large": r"crops 3 \+ 2 exceed the size",
    "neg_tflite_s2b_not_divisible": "not divisible by its block, 2",
    "neg_b2snd_block0": r"block_shape\[0\] is 0; it must be at least 1",
    "neg_b2snd_block_two_negatives": r"block_shape\[0\] is -1; it must be at least 1",
    "neg_s2bnd_not_divisible_second_dim": "axis 2: .* not divisible by its block, 3",
    "neg_s2bnd_block_dtype_int16": "block_shape must be int32 or int64, not int16",
    "neg_s2bnd_pad_negative_divisible": r"paddings\[0\]\[1\] is -1; it must not be negative",
    "neg_s2bnd_block_dtype_uint32": "block_shape must be int32 or int64, not uint32",
    "neg_s2bnd_output_batch_overflow": "not divisible|overflow",
    "neg_s2bnd_pads_cols_3": r"paddings must have shape \[2, 2\], not \[2, 3\]",
}


def ids(chosen: list[cases.Case]) -> dict[str, object]:
    return {"argvalues": chosen, "ids": [c.id for c in chosen]}


@pytest.mark.parametrize("case", **ids([c for c in POSITIVE if not c.quantised]))
def test_the_definitions_agree(case):
    result = definitions.node(case.op_type, case.inputs, case.attributes)
    assert running.same_bits(result, case.expected)


@pytest.mark.parametrize("case", **ids([c for c in NEGATIVE if not c.may_accept]))
def test_broken_rules_are_refused_by_name_or_fail_in_runs_that_are_checked(case):
    with pytest.raises(ConversionError, match=f"'site' in main graph.*{RULES[case.id]}"):
        convert(case.model())
    for run_time in (False, True):
        model = case.model(symbolic=True, run_time_parameters=run_time)
        try:
            checked = convert(model, checked=True)
        except ConversionError:
            continue
        for level in running.LEVELS:
            session = running.session(checked, level)
            with pytest.raises(Exception, match=r"Non-zero status|RUNTIME_EXCEPTION|Invalid"):
                running.run_session(session, case.feeds(run_time_parameters=run_time))


def test_what_only_one_runtime_refuses_or_breaks_no_rule_runs_checked_too():
    limits = [c for c in NEGATIVE if c.may_accept]
    assert (len(ALL), len(NEGATIVE), len(limits), len(COMPLEX)) == (176, 40, 2, 5)
    for case in (*limits, *POSITIVE[::9]):
        expected = case.expected
        if expected is None:
            expected = definitions.node(case.op_type, case.inputs, case.attributes)
        for symbolic in (False, True):
            (output,) = running.run(
                convert(case.model(symbolic=symbolic), checked=True), case.feeds()
            )
            assert running.same_bits(np.asarray(output), expected), case.id


@pytest.mark.parametrize("case", **ids(COMPLEX))
def test_complex_tensors_are_refused(case):
    with pytest.raises(ConversionError, match=r"'site'.*onnxruntime has no complex tensors"):
        convert(case.model())


def most_nodes(case: cases.Case) -> int:
    """How many nodes a statically shaped model of the case may hold."""
    if "Extract" not in case.op_type:
        return 7  # a second stage is a Transpose and a Reshape more
    attributes = case.attributes
    kernel = attributes.get("ksizes", attributes.get("sizes"))
    if kernel == attributes["strides"] and set(attributes.get("rates", [1])) == {1}:
        return 5
    return 4 + case.inputs[0].ndim - 1


@pytest.mark.parametrize("case", **ids([c for c in POSITIVE if not c.quantised]))
def test_static_shapes_make_few_nodes_and_none_that_is_idle(case):
    textbook = "row-gather" if "Extract" in case.op_type else "transpose"
    assert 1 <= len(convert(case.model(), prefer=textbook).graph.node) <= most_nodes(case)
    converted = convert(case.model())
    counts = structure.counts(converted)
    assert not counts.keys() & {"Shape", "Where", "Constant", "If"}
    if structure.ops(converted) == ["Identity"]:  # the output needs a node that gives it its name
        assert case.expected.size == 0 or np.array_equal(case.inputs[0], case.expected)
    else:
        assert not structure.idle(converted)
