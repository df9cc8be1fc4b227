"""Fresh names collide with nothing in the model, wherever it stands."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import parser

from onnx_spatial.model.graph.new_nodes import Names

MODEL = """<ir_version: 9, opset_import: ["" : 17, "local" : 1]>
g (bool c, float[2] input) => (float[2] output) <float[2] init = {1, 2}, float[2] info> {
    [node] info = Relu(input)
    output = If (c) <
        then_branch = t () => (float[2] inner) { [deep] inner = Add(info, init) },
        else_branch = e () => (float[2] other) { other = local.F(info) }>
}
<domain: "local", opset_import: ["" : 17]>
F (argument) => (result) { [body] result = Relu(argument) }
"""


def test_taken_names_get_a_number():
    model = parser.parse_model(MODEL)
    sparse = model.graph.sparse_initializer.add(dims=[2])
    sparse.values.CopyFrom(onnx.numpy_helper.from_array(np.float32([1]), "sparse"))
    names = Names(model)
    taken = "input output init info node inner deep other argument result body c sparse".split()
    assert [names.fresh(name) for name in taken] == [f"{name}_1" for name in taken]


def test_a_name_is_given_once():
    names = Names(parser.parse_model(MODEL))
    assert [names.fresh("n") for _ in range(3)] == ["n", "n_1", "n_2"]
