"""Which nodes of a model a rank limit does not admit."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

from onnx_spatial.conversion.limits import LimitReport, check_limits


def check(text: str | onnx.ModelProto, max_rank: int) -> LimitReport:
    model = parser.parse_model(text) if isinstance(text, str) else text
    return check_limits(model, max_rank)


def names(report: LimitReport) -> list[str]:
    return [each.node for each in report.nodes]


SIX = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,4,6,3] x) => (float[6,4,3] y)
<int64[6] six = {1, 2, 2, 3, 2, 3}, int64[3] three = {6, 4, 3}> {
    [split] a = Reshape(x, six)
    [turn] b = Transpose <perm = [0, 1, 3, 2, 4, 5]> (a)
    [join] c = Reshape(b, three)
    [relu] y = Relu(c)
}"""


def test_every_node_that_reads_or_computes_a_tensor_above_the_rank():
    report = check(SIX, 5)
    assert names(report) == ["split", "turn", "join"]
    split, turn, join = report.nodes
    assert (split.value, turn.value, join.value) == ("a", "a", "b")
    assert (turn.rank, turn.op_type, turn.domain) == (6, "Transpose", "")
    assert turn.shape == (1, 2, 2, 3, 2, 3)
    assert turn.graph == "main graph"
    assert turn.reason == "rank 6, the limit is 5"
    assert report.text == "3 nodes do not fit rank 5"
    assert report.unknown == ()


def test_weights_count_as_data():
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.standard_normal((2, 3, 3, 3, 3)).astype(np.float32), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], name="conv")]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, [1, 3, 5, 5, 5])],
        [value("y", TensorProto.FLOAT, None)],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (conv,) = check(model, 4).nodes
    assert (conv.op_type, conv.rank, conv.value) == ("Conv", 5, "x")


def test_nodes_that_compute_constants_do_not_count():
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2,3] x, float[n,3] u) => (float[2,3] y, int64[2] z)
    <float[6,1] w = {1, 2, 3, 4, 5, 6}, int64[6] six = {1, 1, 1, 2, 1, 3}, int64[2] two = {2, 3}> {
        [split] a = Reshape(w, six)
        [turn] b = Transpose(a)
        [join] c = Reshape(b, two)
        [static] s = Shape(x)
        [dynamic] z = Shape(u)
        [use] y = Add(x, c)
    }"""
    assert names(check(text, 5)) == []


def test_large_weights_are_constants_too():
    """Their values are not read."""
    weight = np.zeros((1, 1, 1, 1, 100, 300), np.float32)
    nodes = [
        helper.make_node("Transpose", ["w"], ["a"], perm=[1, 0, 2, 3, 4, 5], name="turn"),
        helper.make_node("Add", ["x", "a"], ["y"], name="add"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, [100, 300])],
        [value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert names(check(model, 5)) == ["add"]


def test_bodies_and_functions():
    text = """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
    g (float[1,2,3,4] x, bool c) => (float[?,?,?,?] y) {
        [choose] y = If (c) <
            then_branch = t () => (float[?,?,?,?] o) { [called] o = f.fold(x) },
            else_branch = e () => (float[?,?,?,?] p) { [plain] p = Relu(x) }
        >
    }
    <domain: "f", opset_import: ["" : 17]>
    fold (a) => (b) {
        six = Constant <value_ints = [1, 1, 2, 3, 2, 2]> ()
        four = Constant <value_ints = [1, 2, 3, 4]> ()
        [split] s = Reshape(a, six)
        [join] b = Reshape(s, four)
    }"""
    report = check(text, 4)
    assert [(each.node, each.graph) for each in report.nodes] == [
        ("split", "function f:fold"),
        ("join", "function f:fold"),
    ]


def test_unknown_ranks_are_no_errors():
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2,3] x, int64[r] s) => (float y) {
        [open] a = Reshape(x, s)
        [sum] y = ReduceSum <keepdims = 0> (a)
    }"""
    report = check(text, 4)
    assert report.nodes == () and report.text is None
    assert [each.node for each in report.unknown] == ["open", "sum"]
    assert report.unknown[0].reason == "the rank of 'a' is unknown"
    assert report.unknown[0].rank is None


def test_sequences_have_no_rank():
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,3] x) => (float[?,?] y) {
        [wrap] s = SequenceConstruct(x)
        [join] y = ConcatFromSequence <axis = 0> (s)
    }"""
    report = check(text, 4)
    assert report.nodes == () and report.unknown == ()
