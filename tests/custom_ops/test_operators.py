"""Every operator, spelling, type and version, run by Python operators in onnxruntime."""

from __future__ import annotations

from random import Random

import definitions
import numpy as np
import programs
import pytest
import running
import sampling
from building import ELEMENT_TYPES, feeds_of, one_node
from test_cases import NEGATIVE, POSITIVE, ids

from onnx_spatial import ConversionError, OperatorError, custom_ops

pytest.importorskip("onnxruntime_extensions")


@pytest.mark.parametrize("case", **ids(POSITIVE))
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
def test_equals_what_the_runtime_returned(case, symbolic):
    for run_time_parameters in (False, True):
        model = case.model(symbolic=symbolic, run_time_parameters=run_time_parameters)
        feeds = case.feeds(run_time_parameters=run_time_parameters)
        (result,) = programs.run(model, feeds)
        assert running.same_bits(result, case.expected)


@pytest.mark.parametrize("case", **ids([c for c in NEGATIVE if not c.may_accept]))
def test_broken_rules_are_refused_before_the_run_or_in_it(case):
    with pytest.raises(ConversionError, match="'site' in main graph"):
        custom_ops.prepare(case.model())
    model = case.model(symbolic=True, run_time_parameters=True)
    with pytest.raises((ConversionError, OperatorError), match="'site' in main graph"):
        programs.opened(model).run(None, case.feeds(run_time_parameters=True))


@pytest.mark.parametrize("count", [4, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("spelling", sampling.SPELLINGS)
def test_random_nodes_in_random_models(spelling, count):
    # Opsets 11 and newer, static, symbolic and unknown shapes and ranks, empty tensors, all types.
    for number in range(count):
        rng = Random(f"custom-op {spelling} {number}")
        sample = sampling.SPELLINGS[spelling](rng)
        form = sampling.form(rng, sample)
        (result,) = programs.run(form.model(sample), form.feeds(sample))
        assert running.same_bits(result, sample.expected), f"{sample}\n{form}"


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
@pytest.mark.parametrize(
    ("op_type", "shape"), [("SpaceToBatchND", (4, 3, 2, 3)), ("BatchToSpaceND", (4, 3, 2, 0))]
)
def test_every_bit_of_every_type_survives(dtype, op_type, shape):
    x = sampling.array(Random(dtype), dtype, shape)
    inputs = (x, np.array([2, 2]), np.array([[1, 0], [1, 1]]))
    expected = definitions.node(op_type, inputs, {})
    declarations = (shape, ("n", "h", "w", "c"), None)
    for opset, declared in zip((13, 17, running.newest_opset()), declarations, strict=True):
        ir = running.ir_version_of(opset)
        model = one_node(op_type, inputs, shape=declared, opset=opset, ir_version=ir)
        (result,) = programs.run(model, {"x": x})
        assert running.same_bits(result, expected)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_opsets_older_than_lowering_knows(dtype):
    x = sampling.array(Random(0), dtype, (4, 2, 2, 3))
    inputs = (x, np.array([2, 2], np.int32), np.array([[1, 0], [0, 1]], np.int32))
    for opset, ir_version in ((7, 3), (9, 4), (10, 5)):
        ir = {"opset": opset, "ir_version": ir_version}
        model = one_node("BatchToSpaceND", inputs, run_time=(2,), **ir)
        (result,) = programs.run(model, feeds_of(model, inputs))
        assert running.same_bits(result, definitions.node("BatchToSpaceND", inputs, {}))


@pytest.mark.parametrize(("dtype", "opset"), [("float32", 5), ("float16", 10), ("bfloat16", 12)])
def test_opsets_that_are_too_old_are_refused(dtype, opset):
    x = sampling.array(Random(0), dtype, (4, 2, 2, 3))
    inputs = (x, np.array([2, 2]), np.zeros((2, 2), int))
    model = one_node("BatchToSpaceND", inputs, opset=opset, ir_version=4)
    with pytest.raises(ConversionError, match=f"the model's opset is {opset}"):
        custom_ops.prepare(model)


def test_the_batch_entry_of_openvinos_spelling_is_checked_in_the_run():
    x = sampling.array(Random(0), "float32", (4, 4, 4, 3))
    good = (x, np.array([1, 2, 2, 1]), np.zeros(4, int), np.zeros(4, int))
    model = one_node(
        "SpaceToBatch", good, domain="org.openvinotoolkit", shape=list("nhwc"), run_time=(1, 2, 3)
    )
    session = programs.opened(model)
    (result,) = session.run(None, feeds_of(model, good))
    assert running.same_bits(result, definitions.node("SpaceToBatch", good, {}))
    for number, wrong in ((1, [2, 2, 2, 1]), (2, [1, 0, 0, 0]), (3, [2, 0, 0, 0])):
        inputs = [*good[:number], np.array(wrong), *good[number + 1 :]]
        with pytest.raises(OperatorError, match="the entry of the batch axis must be"):
            session.run(None, feeds_of(model, inputs))


def test_strings_keep_what_python_operators_would_lose():
    # onnxruntime-extensions cuts strings at a zero byte and aborts on bytes that are no UTF-8.
    inputs = (np.array([["a", "b"]] * 4, object), np.array([2]), np.zeros((1, 2), int))
    model = one_node("BatchToSpaceND", inputs)
    model.graph.input.pop(0)
    stored = model.graph.initializer.add(name="x", data_type=8, dims=[4, 2])
    stored.string_data.extend([b"\xff\xfe", b"a\0b", b"", b"c"] * 2)
    prepared = custom_ops.prepare(model)
    prepared.graph.output[0].name = "same"
    prepared.graph.node.add(op_type="Equal", input=["y", "y"], output=["same"])
    prepared.graph.output[0].type.tensor_type.elem_type = 9
    prepared.opset_import[0].version = 19
    (same,) = programs.own(prepared).run(None, {})
    assert same.shape == (2, 4)
    assert same.all()
