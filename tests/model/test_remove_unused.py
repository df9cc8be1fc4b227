"""Constants that only the original reads go; everything else stays."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

import onnx_spatial
from onnx_spatial.model.graph.remove_unused import remove_unused_constants

HEAD = '<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>\n'


def edited(text: str, *names: str) -> tuple[onnx.ModelProto, set[str]]:
    """Remove nodes from a model and then what is unused; return it and the names that are gone."""
    original = parser.parse_model(HEAD + text)
    model = deepcopy(original)
    kept = [node for node in model.graph.node if node.name not in names]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model, {
        name for found in remove_unused_constants(original, model).values() for name in found
    }


def graph(nodes: str, constants: str = "float[1] c = {2.0}, float[1] idle = {3.0}") -> str:
    return f"g (float[2] x) => (float[2] y) <{constants}> {{ {nodes} }}"


@pytest.mark.parametrize(
    ("nodes", "gone", "left"),
    [
        ("[a] z = Add(x, c) [b] y = Neg(x)", {"c"}, ["b"]),
        ("[a] z = Add(x, c) [b] y = Mul(x, c)", set(), ["b"]),
        (
            "[k] k = Identity(c) [n] n = Concat <axis = 0> (k) [a] z = Add(x, n) [b] y = Neg(x)",
            {"k", "n", "c"},
            ["b"],
        ),
        ("[s] s = Shape(x) [a] z = Expand(c, s) [b] y = Neg(x)", {"c"}, ["s", "b"]),
    ],
)
def test_constants_go_that_only_the_replaced_node_read(nodes, gone, left):
    model, found = edited(graph(nodes), "a")
    assert (found, [node.name for node in model.graph.node]) == (gone, left)
    kept = [name for name in ("c", "idle") if name not in gone]
    assert [t.name for t in model.graph.initializer] == kept


def test_what_a_branch_reads_stays():
    branch = "=> (float[2] t) { t = Add(x, c) }"
    text = graph(
        f"[a] z = Add(x, c) [b] y = If (cond) <then_branch = g1 () {branch}, else_branch = g2 () "
        f"{branch}>",
        "float[1] c = {2.0}, bool cond = {1}",
    )
    assert edited(text, "a")[1] == set()


def test_an_initializer_that_can_be_overridden_stays():
    original = parser.parse_model(HEAD + graph("[a] z = Add(x, c) [b] y = Neg(x)"))
    original.graph.input.append(helper.make_tensor_value_info("c", 1, [1]))
    model = deepcopy(original)
    del model.graph.node[0]
    assert remove_unused_constants(original, model) == {}


def test_what_annotations_name_stays():
    original = parser.parse_model(HEAD + graph("[a] z = Add(x, c) [b] y = Neg(x)"))
    note = original.graph.quantization_annotation.add(tensor_name="x")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="c")
    model = deepcopy(original)
    del model.graph.node[0]
    assert remove_unused_constants(original, model) == {}


def test_conversion_removes_and_reports_them():
    text = """g (float[1,4,4,1] x) => (float[4,2,2,1] y) <int64[2] idle = {2, 2}> {
        k = Constant <value = int32[2] {2, 2}> ()
        block = Cast <to = 7> (k)
        pads = Constant <value = int64[2,2] {0, 0, 0, 0}> ()
        y = com.microsoft.SpaceToBatchND(x, block, pads)
    }"""
    made = parser.parse_model(HEAD + text)
    sparse = made.graph.sparse_initializer.add(dims=[4])
    sparse.values.CopyFrom(numpy_helper.from_array(np.float32([1]), "sparse"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([2])))
    result = onnx_spatial.convert(made)
    assert result.verification
    assert "idle" in {t.name for t in result.model.graph.initializer}
    assert [s.values.name for s in result.model.graph.sparse_initializer] == ["sparse"]
    assert result.touched["nodes_removed"] == ["<k>", "<block>", "<pads>"]
    assert result.touched["initializers_removed"] == []
