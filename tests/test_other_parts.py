"""What stands beside our operators in a model does not stand in their way, however odd it is."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import running
import structure
from definitions import space_to_batch
from onnx import TensorProto, helper, parser

import onnx_spatial
from onnx_spatial.model.inference import constant_folding, shape_inference
from onnx_spatial.model.io import reader

TF = "ai.onnx.converters.tensorflow"
HEAD = f'<ir_version: 8, opset_import: ["" : 17, "{TF}" : 1]>\n'
PARAMETERS = "int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}"


def model(body: str = "z = M.SpaceToBatchND(x, block, none)", more: str = "") -> onnx.ModelProto:
    return parser.parse_model(
        HEAD
        + f"g (float[1,4,4,1] x) => (float[a,b,c,d] z) <{PARAMETERS}{more}> {{ {body} }}".replace(
            "M.", f"{TF}."
        )
    )


def test_a_map_type_is_kept():
    made = model("z = M.SpaceToBatchND(x, block, none) m = Neg(x)")
    kind = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(1, [2]))
    made.graph.value_info.add(name="m").type.CopyFrom(kind)
    converted = onnx_spatial.convert(made, verify=False).model
    assert [v.type for v in converted.graph.value_info if v.name == "m"] == [kind]


def test_a_sparse_constant_is_kept_and_run():
    values = onnx.numpy_helper.from_array(np.float32([3]), "v")
    sparse = helper.make_sparse_tensor(values, onnx.numpy_helper.from_array(np.int64([1])), [2])
    made = model("y = M.SpaceToBatchND(x, block, none) z = Neg(y)")
    made.graph.node.append(helper.make_node("Constant", [], ["s"], sparse_value=sparse))
    result = onnx_spatial.convert(made)
    assert result.verification
    assert result.model.graph.node[-1] == made.graph.node[-1]


@pytest.mark.parametrize("kind", ["sequence", "optional"])
def test_data_that_is_no_tensor_is_refused(kind):
    op_type = {"sequence": "SequenceConstruct", "optional": "Optional"}[kind]
    made = model(f"s = {op_type} (x) z = M.SpaceToBatchND(s, block, none)")
    with pytest.raises(onnx_spatial.ConversionError, match=f"is of {kind} type, not a dense"):
        onnx_spatial.convert(made)


def test_a_parameter_that_cannot_be_read_is_named():
    made = model()
    del made.graph.initializer[0].int32_data[1:]
    with pytest.raises(
        onnx_spatial.ConversionError, match=r"'block' is damaged: it does not hold int32\[2\]"
    ):
        onnx_spatial.convert(made)


def test_a_weight_that_cannot_be_read_is_left_to_the_verification():
    made = model("y = M.SpaceToBatchND(x, block, none) z = Mul(y, w)", ", float[1] w = {2}")
    made.graph.initializer[-1].ClearField("float_data")
    result = onnx_spatial.convert(made)
    assert result.changed and result.verification.status == "unverified"


def test_nodes_that_look_like_probes_are_the_files_own():
    made = model()
    probe = helper.make_node(shape_inference.PROBE, ["x"], ["p"], domain=shape_inference.DOMAIN)
    made.graph.node.append(probe)
    made.graph.node[0].attribute.append(helper.make_attribute(shape_inference.NUMBER, 7))
    result = onnx_spatial.convert(made, verify=False)
    assert structure.spatial(result.model) == []
    assert result.model.graph.node[-1] == probe


def test_a_constant_of_the_wrong_kind_is_not_known():
    node = helper.make_node("Constant", [], ["c"])
    node.attribute.add(name="value_ints", type=onnx.AttributeProto.TENSOR)
    graph = helper.make_graph([node], "g", [], [])
    assert constant_folding.ConstantScope(graph, {"": 17}).value("c") is None


def test_a_body_of_scan_keeps_the_rank_of_what_it_returns():
    """onnxruntime wants to see it, and inference does not find it before opset 14."""
    made = parser.parse_model(f"""<ir_version: 7, opset_import: ["" : 13, "{TF}" : 1]>
        g (float[3,N,H,W,C] x, int32[2] block, int32[2,2] pads) => (float[a,b,c,d,e] z) {{
            z = Scan <num_scan_inputs = 1, body = body (float[N,H,W,C] v) => (float[?,?,?,?] w) {{
                w = {TF}.SpaceToBatchND(v, block, pads)
            }}> (x)
    }}""")
    converted = onnx_spatial.convert(made, verify=False).model
    x = np.arange(3 * 16, dtype=np.float32).reshape(3, 1, 4, 4, 1)
    parameters = {"block": np.int32([2, 2]), "pads": np.zeros((2, 2), np.int32)}
    (z,) = running.run(converted, {"x": x, **parameters})
    none = [(0, 0), (0, 0)]
    assert running.same_bits(z, np.stack([space_to_batch(part, (2, 2), none) for part in x]))


def test_a_size_is_fixed_inside_sequences_too():
    made = model()
    inner = helper.make_tensor_type_proto(TensorProto.FLOAT, ["N", 2])
    made.graph.value_info.add(name="s").type.CopyFrom(helper.make_sequence_type_proto(inner))
    copy, missing = reader.freeze(made, {"N": 5})
    assert missing == set()
    sequence = copy.graph.value_info[0].type.sequence_type
    assert shape_inference.dims(sequence.elem_type) == (5, 2)


def test_thousands_of_branches_do_without_shapes():
    """onnx's inference takes quadratic time there; what it would find is left to the run."""
    made = model()
    many = helper.make_graph([helper.make_node("Neg", ["x"], ["q"])] * 50, "t", [], [])
    node = helper.make_node("If", ["c"], ["o"], then_branch=many, else_branch=many)
    made.graph.node.extend([node] * 700)
    inferred = shape_inference.infer(made, lambda number, types: None)
    assert inferred is made
    del made.graph.node[10:]
    assert shape_inference.infer(made, lambda number, types: None) is not made


def test_a_long_index_is_computed_when_the_model_runs():
    made = parser.parse_model(
        HEAD
        + f"""g (float[1,4000,4000,1] x) => (float[a,b,c,d] z) {{
            z = {TF}.ExtractImagePatches <ksizes = [1, 3000, 1, 1], strides = [1, 1, 2000, 1],
                rates = [1, 1, 1, 1], padding = "VALID"> (x)
        }}"""
    )
    converted = onnx_spatial.convert(made, verify=False, prefer="row-gather").model
    assert converted.ByteSize() < 100_000
    x = np.arange(16_000_000, dtype=np.float32).reshape(1, 4000, 4000, 1)
    (z,) = running.run(converted, {"x": x})
    assert z.shape == (1, 1001, 2, 3000)
    assert z[0, 1000, 1].tolist() == x[0, 1000:4000, 2000, 0].tolist()


def test_messages_do_not_show_all_of_what_is_endless():
    made = model()
    dims = made.graph.input[0].type.tensor_type.shape
    for _ in range(5000):
        dims.dim.add().dim_value = 2
    made.graph.node.extend([made.graph.node[0]] * 0)
    with pytest.raises(onnx_spatial.ConversionError) as caught:
        onnx_spatial.convert(made)
    assert "... 5004 dims]" in str(caught.value)
    assert len(str(caught.value)) < 500
