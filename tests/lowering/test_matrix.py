"""Every opset, element type and IR version: it runs bit for bit, or the refusal says why not."""

from __future__ import annotations

from random import Random

import numpy as np
import onnx
import onnx.parser
import pytest
import running
import sampling
import structure
from adapter import convert, refusal
from building import ELEMENT_TYPES, one_node
from sampling import OPSETS, Form, Sample

INT = np.int32

OPERATORS = {
    "SpaceToBatchND padded": (
        "SpaceToBatchND",
        (2, 3, 5, 2),
        (np.array([2, 3], INT), np.array([[1, 0], [3, 1]], INT)),
        {},
    ),
    "BatchToSpaceND cropped": (
        "BatchToSpaceND",
        (12, 2, 3, 2),
        (np.array([2, 3], INT), np.array([[1, 0], [2, 4]], INT)),
        {},
    ),
    "ExtractImagePatches SAME": (
        "ExtractImagePatches",
        (2, 5, 4, 2),
        (),
        {"ksizes": [1, 3, 2, 1], "strides": [1, 2, 1, 1], "rates": [1, 1, 2, 1], "padding": "SAME"},
    ),
    "ReorgYolo": ("ReorgYolo", (2, 8, 4, 6), (), {"stride": 2}),
    "ReorgYolo with a channel left over": ("ReorgYolo", (2, 5, 4, 2), (), {"stride": [2]}),
}


def sample(operator: str, dtype: str) -> Sample:
    op_type, shape, parameters, attributes = OPERATORS[operator]
    data = sampling.array(Random(dtype), dtype, shape)
    return Sample(operator, op_type, sampling.TF, (data, *parameters), attributes)


def needs_places(sample: Sample, form: Form) -> bool:
    """Whether the run has to count something, which it can since opset 9."""
    known = form.shape == sample.inputs[0].shape
    return form.opset < 9 and not known and "left over" in sample.spelling


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
def test_every_element_type_at_every_opset(operator, opset, symbolic):
    for dtype in list(ELEMENT_TYPES)[(opset + symbolic) % 2 :: 2]:
        made = sample(operator, dtype)
        shape = (f"d{i}" for i in range(4)) if symbolic else made.inputs[0].shape
        form = Form(tuple(shape), frozenset(), opset, running.ir_version_of(opset), None)
        model = form.model(made)
        if dtype == "bfloat16" and opset < 13:
            wanted = f"the model's opset is {opset}; bfloat16 needs 13 or newer"
            assert str(refusal(model)).startswith(wanted)
            continue
        sampling.check(made, form, convert(model))


@pytest.mark.parametrize("opset", [7, 9])
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_element_type_in_older_opsets(operator, opset):
    for dtype in set(ELEMENT_TYPES) - {"bfloat16"}:
        made = sample(operator, dtype)
        for symbolic in (False, True):
            shape = ("d", *made.inputs[0].shape[1:]) if symbolic else made.inputs[0].shape
            form = Form(tuple(shape), frozenset(), opset, 4, None)
            if dtype == "string" and "Extract" in operator and opset < 10:
                wanted = "slices of strings with computed bounds or with steps need opset 10"
                assert wanted in str(refusal(form.model(made)))
                continue
            if needs_places(made, form):
                assert "need opset 9" in str(refusal(form.model(made)))
                continue
            converted = convert(form.model(made))
            assert converted.opset_import[0].version == opset
            onnx.checker.check_model(converted)
            sampling.check(made, form, converted)


@pytest.mark.parametrize("run_time", [False, True], ids=["stored", "computed"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_sizes_of_the_run_in_older_opsets(operator, run_time):
    made = sample(operator, "float32")
    inputs = frozenset(range(1, len(made.inputs))) if run_time else frozenset()
    for opset in (7, 8, 9, 10):
        form = Form((None,) * 4, inputs, opset, 4, None)
        model = form.model(made)
        sizes = made.op_type in ("ExtractImagePatches", "ReorgYolo")
        if opset < 9 and (sizes or (run_time and operator.startswith("BatchTo"))):
            said = str(refusal(model))
            assert said.startswith(f"the model's opset is {opset}: ")
            assert "--static" in said and "version_converter" not in said
            continue
        sampling.check(made, form, convert(model))


def test_an_opset_that_nothing_runs_is_refused():
    form = Form((None,) * 4, frozenset(), 6, 4, None)
    said = refusal(form.model(sample("SpaceToBatchND padded", "float32")))
    assert str(said).startswith("the model's opset is 6; lowering needs 7 or newer")


def test_before_ir_4_no_constant_becomes_an_initializer():
    """There an initializer that is not an input is invalid, and one that is could be overridden."""
    made = sample("SpaceToBatchND padded", "float32")
    old, new = (
        convert(one_node(made.op_type, made.inputs, ir_version=v, opset=11)) for v in (3, 4)
    )
    assert [t.name for t in old.graph.initializer] == ["p1", "p2"]
    assert [v.name for v in old.graph.input] == ["x", "p1", "p2"]
    assert structure.counts(old)["Constant"] >= 3
    assert structure.counts(new)["Constant"] == 0


@pytest.mark.parametrize("dtype", ["float8e4m3fn", "int4"])
def test_types_that_onnxruntime_does_not_move_are_refused(dtype):
    import ml_dtypes

    type_ = np.dtype(getattr(ml_dtypes, dtype.replace("8e4m3fn", "8_e4m3fn")))
    data = np.zeros((1, 2, 2, 1), type_)
    made = one_node(
        "SpaceToBatch", (data, np.zeros((2, 2), INT)), block_size=2, opset=21, ir_version=10
    )
    assert refusal(made) == f"element type {dtype.upper()} is not supported"
