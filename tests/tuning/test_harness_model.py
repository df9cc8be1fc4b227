"""The net that a lowering is measured in: it moves the data, and onnxruntime leaves its ends alone."""

from __future__ import annotations

from pathlib import Path

import asking
import numpy as np
import onnx
import onnxruntime as ort
import pytest
import running
from building import ELEMENT_TYPES, element_type, one_node
from onnx import helper
from sampling import Random, array

from onnx_spatial.lowering import candidates
from onnx_spatial.tuning import HarnessData, harness_model
from onnx_spatial.verification.arrays import same_bits
from onnx_spatial.verification.runtime.sessions import Session

BLOCK = np.array([2, 3], np.int32)
PADS = np.array([[1, 0], [2, 1]], np.int32)
SHAPE = (2, 3, 6, 2)


def model(dtype: str = "float32", opset: int = 17, **options) -> onnx.ModelProto:
    data = array(Random(dtype), dtype, SHAPE)
    return one_node("SpaceToBatchND", [data, BLOCK, PADS], opset=opset, **options)


def nets(made: onnx.ModelProto, dtype: str = "float32"):
    """The net without the operator and one for each lowering of the model's only site."""
    ((request, _),) = asking.requests(made)
    request = request.apart()
    given = HarnessData(SHAPE, ELEMENT_TYPES[dtype], (BLOCK, PADS))
    ways = candidates(request)
    assert ways
    found = [harness_model.build(request, given, way, 4) for way in ways]
    return [harness_model.build(request, given, None, 4), *found], harness_model.feeds(
        request, given
    )


@pytest.mark.parametrize("opset", [11, 13, running.newest_opset()])
@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
def test_onnxruntime_keeps_the_ends_and_adds_nothing(dtype, opset, tmp_path: Path):
    if dtype == "bfloat16" and opset < 13:
        return
    for made in nets(model(dtype, opset), dtype)[0]:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
        ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
        nodes = onnx.load(tmp_path / "optimised.onnx").graph.node
        names = [node.name for node in nodes]
        assert names[0] == "producer" or "producer" in names
        assert names[-1] == "consumer"
        assert not {n.op_type for n in nodes} & {"Cast", "MemcpyToHost"} - {
            n.op_type for n in made.graph.node
        }


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
def test_the_net_computes_the_operator(dtype):
    every, feeds = nets(model(dtype), dtype)
    for made in every[1:]:
        made.graph.output.append(helper.make_tensor_value_info("y", ELEMENT_TYPES[dtype], None))
        session = Session(made.SerializeToString(), optimise=True)
        y = session.run({n: a for n, a in feeds.items() if n in session.inputs})["y"]
        assert y.shape == (12, 2, 3, 2)
        x = feeds["x"][0]
        # Offsets (1, 2) of the block: the first row and column behind the padding.
        assert same_bits(np.ascontiguousarray(y[10:12, 0, 0]), np.ascontiguousarray(x[:, 0, 0]))


def test_what_the_model_leaves_open_stays_open():
    made = model(shape=["N", 3, None, 2], run_time={1, 2})
    every, feeds = nets(made)
    for net_ in every:
        dims = [d.dim_param or d.dim_value for d in net_.graph.input[0].type.tensor_type.shape.dim]
        assert dims == [1, "d0", 3, "d2", 2]
    assert [v.name for v in every[0].graph.input] == ["x"]
    assert [v.name for v in every[1].graph.input] == ["x", "input_1", "input_2"]
    assert element_type(feeds["input_1"]) == onnx.TensorProto.INT32
    assert feeds["x"].shape == (1, *SHAPE)


def test_what_is_known_is_not_fed():
    every, _ = nets(model())
    assert all([v.name for v in net_.graph.input] == ["x"] for net_ in every)
