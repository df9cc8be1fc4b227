"""The model without its weights: what shape inference and the inliner get to see."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import structure
from onnx import TensorProto, helper, parser

from onnx_spatial.model.graph.strip import SMALL, strip_types, strip_weights

MODEL = """<ir_version: 9, opset_import: ["" : 17, "local" : 1]>
g (bool c, float[2,2] x) => (float[2,2] y) <float[2] small = {1, 2}> {
    big = Constant <value = float[2,2] {1, 2, 3, 4}> ()
    y = If (c) <
        then_branch = t () => (float[2,2] v) { v = Add(x, small) },
        else_branch = e () => (float[2,2] w) { w = local.F <k = 3> (x) }>
}
<domain: "local", opset_import: ["" : 17]>
F <k> (x) => (y) { y = Relu(x) }
"""


def test_small_tensors_stay_and_large_ones_keep_only_type_and_shape():
    model = parser.parse_model(MODEL)
    large = onnx.numpy_helper.from_array(np.ones((SMALL, 2), np.float16), "large")
    model.graph.initializer.append(large)
    model.graph.node[0].attribute[0].t.CopyFrom(large)
    copy = strip_weights(model)
    small, shrunk = copy.graph.initializer
    assert small == model.graph.initializer[0]
    constant = copy.graph.node[0].attribute[0].t
    for tensor in (shrunk, constant):
        assert (tensor.name, tensor.data_type, list(tensor.dims)) == (
            "large",
            TensorProto.FLOAT16,
            [SMALL, 2],
        )
        assert not tensor.raw_data
    assert copy.ByteSize() < 2000
    assert model.graph.initializer[1] == large


def test_everything_else_is_copied():
    model = parser.parse_model(MODEL)
    sparse = model.graph.sparse_initializer.add(dims=[4])
    sparse.values.CopyFrom(onnx.numpy_helper.from_array(np.float32([1]), "s"))
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.array([2])))
    copy = strip_weights(model)
    for each in (model, copy):
        for node in structure.nodes(each):  # an empty name and no name are the same
            for field in ("name", "overload", "domain"):
                if not getattr(node, field):
                    node.ClearField(field)
    assert copy.graph == model.graph
    assert copy.functions == model.functions


def test_missing_imports_are_added_for_the_inference_only():
    model = parser.parse_model(MODEL)
    model.graph.node[0].domain = "strange"
    model.functions[0].node[0].domain = "stranger"
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("local", 1))
    copy = strip_weights(model)
    assert {o.domain for o in copy.opset_import} >= {"", "local", "strange", "stranger"}
    assert "stranger" in {o.domain for o in copy.functions[0].opset_import}
    assert len(model.opset_import) == 1


def test_nodes_without_types_keep_names_documentation_and_graphs():
    model = parser.parse_model(MODEL)
    for node in model.graph.node:
        node.doc_string = f"what {node.op_type} does"
    copy = strip_types(model)
    assert [v.name for v in copy.graph.input] == ["c", "x", "small"]
    assert [n.doc_string for n in copy.graph.node] == ["what Constant does", "what If does"]
    assert [a.name for n in copy.graph.node for a in n.attribute] == ["then_branch", "else_branch"]
    assert [n.op_type for n in copy.graph.node[1].attribute[0].g.node] == ["Add"]
    assert copy.functions[0].node[0].op_type == "Relu"
    assert not copy.graph.initializer


@pytest.mark.parametrize("strip", [strip_weights, strip_types])
def test_a_name_that_is_no_text_is_refused(strip):
    data = parser.parse_model(MODEL.replace("Relu", "Rexx")).SerializeToString()
    with pytest.raises(UnicodeDecodeError):
        strip(onnx.ModelProto.FromString(data.replace(b"Rexx", b"Re\xff\xfe")))
