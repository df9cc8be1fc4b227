"""onnx's own checker and shape inference on prepared models, when they are asked to know them."""

from __future__ import annotations

from collections.abc import Iterator

import alone
import numpy as np
import onnx
import pytest
from building import OPENVINO, one_node
from onnx import helper

from onnx_spatial import custom_ops, schemas
from onnx_spatial.operators.spellings.python_ops import DOMAIN

DATA = np.zeros((4, 4, 6, 3), np.float32)
BLOCK, NONE = np.array([2, 2]), np.zeros((2, 2), int)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    custom_ops.register_schemas()
    yield
    schemas.deregister()


def inferred(model: onnx.ModelProto) -> list[int | str | None]:
    """The shape behind the operator itself, before the Reshape tells it; checked in full."""
    prepared = custom_ops.prepare(model)
    del prepared.graph.value_info[:]
    (site,) = (n for n in prepared.graph.node if n.domain == DOMAIN)
    onnx.checker.check_model(prepared, full_check=True)
    found = onnx.shape_inference.infer_shapes(
        prepared, check_type=True, strict_mode=True, data_prop=True
    )
    (info,) = (v for v in found.graph.value_info if v.name == site.output[0])
    assert info.type.tensor_type.elem_type == prepared.graph.input[0].type.tensor_type.elem_type
    return [
        d.dim_value if d.HasField("dim_value") else d.dim_param or None
        for d in info.type.tensor_type.shape.dim
    ]


def test_static_shapes():
    assert inferred(one_node("SpaceToBatchND", (DATA, BLOCK, NONE))) == [16, 2, 3, 3]
    assert inferred(one_node("BatchToSpaceND", (DATA, BLOCK, NONE))) == [1, 8, 12, 3]
    given = {"ksizes": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "rates": [1, 1, 1, 1]}
    model = one_node("ExtractImagePatches", (DATA,), padding="SAME", **given)
    assert inferred(model) == [4, 2, 3, 27]


def test_symbolic_shapes_and_parameters_of_the_run():
    model = one_node("SpaceToBatchND", (DATA, BLOCK, NONE), shape=["n", "h", 6, "c"])
    shape = inferred(model)
    assert (shape[2], shape[3]) == (3, "c")
    model = one_node("SpaceToBatchND", (DATA, BLOCK, NONE), shape=["n", "h", 6, "c"], run_time=(2,))
    assert inferred(model)[3] == "c"


def test_tables_with_an_entry_for_the_batch():
    parameters = (np.array([1, 2, 2, 1]), np.zeros(4, int), np.zeros(4, int))
    model = one_node("SpaceToBatch", (DATA, *parameters), domain=OPENVINO, run_time=(2,))
    assert inferred(model)[0] == 16


def test_a_node_that_is_no_operator_of_ours_is_found_by_the_checker():
    prepared = custom_ops.prepare(one_node("SpaceToBatchND", (DATA, BLOCK, NONE)))
    site = prepared.graph.node[0]
    del site.input[2:]
    with pytest.raises(onnx.checker.ValidationError, match="input size 2 not in range"):
        onnx.checker.check_model(prepared)


def test_types_that_operators_do_not_take_are_found_by_the_checker():
    prepared = custom_ops.prepare(one_node("SpaceToBatchND", (DATA, BLOCK, NONE)))
    for value in (*prepared.graph.input, *prepared.graph.output):
        value.CopyFrom(helper.make_tensor_value_info(value.name, 10, [4, 4, 6, 3]))
    with pytest.raises(onnx.shape_inference.InferenceError, match="float16"):
        onnx.checker.check_model(prepared, full_check=True)


def test_what_breaks_a_rule_has_no_shape_but_the_rest_of_the_model_has():
    prepared = custom_ops.prepare(one_node("SpaceToBatchND", (DATA, BLOCK, NONE), run_time=(2,)))
    prepared.graph.input[0].type.tensor_type.shape.dim.pop()
    prepared.graph.input[0].type.tensor_type.shape.dim.pop()
    found = onnx.shape_inference.infer_shapes(prepared)
    assert [v.name for v in found.graph.value_info]


def test_a_program_that_knows_the_schemas_ends():
    alone.python(
        """
        from onnx_spatial import custom_ops, schemas
        custom_ops.register_schemas()
        import onnx
        onnx.checker.check_model(custom_ops.prepare(model), full_check=True)
        """,
        timeout=60,
    )
