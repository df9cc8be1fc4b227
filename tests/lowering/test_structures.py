"""What is written at every opset for every element type, how little it is, or why nothing is."""

from __future__ import annotations

from random import Random

import ml_dtypes
import numpy as np
import onnx
import pytest
import running
import sampling
import structure
from adapter import convert, refusal
from building import ELEMENT_TYPES, one_node
from sampling import OPSETS, Form, Sample

INT = np.int32

OPERATORS = {
    "SpaceToBatchND": ((2, 3, 5, 2), ([2, 3], [[1, 0], [3, 1]]), {}),
    "BatchToSpaceND": ((12, 2, 3, 2), ([2, 3], [[1, 0], [2, 4]]), {}),
    "ExtractImagePatches": (
        *((2, 5, 4, 2), ()),
        {"ksizes": [1, 3, 2, 1], "strides": [1, 2, 1, 1], "rates": [1, 1, 2, 1], "padding": "SAME"},
    ),
    "ReorgYolo": ((2, 5, 4, 2), (), {"stride": 2}),  # with a channel left over
}


def sample(op_type: str, dtype: str) -> Sample:
    shape, parameters, attributes = OPERATORS[op_type]
    data = sampling.array(Random(dtype), dtype, shape)
    tables = (np.array(each, INT) for each in parameters)
    return Sample(op_type, op_type, sampling.TF, (data, *tables), attributes)


def missing(op_type: str, dtype: str, opset: int, *, static: bool, run_time: bool) -> str | None:
    """What standard operators of the opset lack, in words of the refusal."""
    if dtype == "bfloat16" and opset < 13:
        return "bfloat16 needs 13 or newer"
    if opset < 9 and not static and (op_type in ("ExtractImagePatches", "ReorgYolo") or run_time):
        return "need opset 9"
    if dtype == "string" and op_type == "ExtractImagePatches" and opset < 10:
        return "slices of strings with computed bounds or with steps need opset 10"
    return None


@pytest.mark.parametrize("opset", [7, 9, 10, 13, OPSETS[-1]])
@pytest.mark.parametrize("op_type", OPERATORS)
def test_every_element_type_at_every_opset_that_brought_something(op_type, opset):
    ir_version = max(4, running.ir_version_of(opset))
    for number, dtype in enumerate(ELEMENT_TYPES):
        made = sample(op_type, dtype)
        static = number % 2 == 0
        shape = made.inputs[0].shape if static else ("a", "b", "c", "d")
        form = Form(shape, frozenset(), opset, ir_version, None)
        reason = missing(op_type, dtype, opset, static=static, run_time=False)
        if reason is not None:
            assert reason in refusal(form.model(made)), dtype
            continue
        converted = convert(form.model(made))
        assert converted.opset_import[0].version == opset and converted.ir_version == ir_version
        sampling.check(made, form, converted)


@pytest.mark.parametrize("opset", [7, 9])
@pytest.mark.parametrize("op_type", [name for name in OPERATORS if "Batch" in name])
def test_parameters_of_the_run_and_unknown_ranks_in_older_opsets(op_type, opset):
    made = sample(op_type, "float32")
    sampling.check(made, form := Form(None, frozenset(), opset, 4, None), convert(form.model(made)))
    form = Form((None,) * 4, frozenset({1, 2}), opset, 4, None)
    if opset < 9 and op_type.startswith("BatchTo"):
        said = refusal(form.model(made))
        assert said.startswith(f"the model's opset is {opset}: ") and "--static" in said
        return
    sampling.check(made, form, convert(form.model(made)))


def test_what_nothing_runs_is_refused():
    form = Form((None,) * 4, frozenset(), 6, 4, None)
    said = refusal(form.model(sample("SpaceToBatchND", "float32")))
    assert said.startswith("the model's opset is 6; lowering needs 7 or newer")
    for name in ("float8_e4m3fn", "int4"):
        inputs = (np.zeros((1, 2, 2, 1), getattr(ml_dtypes, name)), np.zeros((2, 2), INT))
        model = one_node("SpaceToBatch", inputs, block_size=2, opset=21, ir_version=10)
        assert refusal(model).endswith("is not supported")


def test_before_ir_4_no_constant_becomes_an_initializer():
    """There an initializer that is not an input is invalid, and one that is could be overridden."""
    made = sample("SpaceToBatchND", "float32")
    old, new = (
        convert(one_node(made.op_type, made.inputs, ir_version=v, opset=11)) for v in (3, 4)
    )
    assert [t.name for t in old.graph.initializer] == ["p1", "p2"]
    assert [v.name for v in old.graph.input] == ["x", "p1", "p2"]
    assert structure.counts(old)["Constant"] >= 3
    assert structure.counts(new)["Constant"] == 0
    onnx.checker.check_model(old)


# SpaceToBatch and BatchToSpace


# Patches


# Choosing
