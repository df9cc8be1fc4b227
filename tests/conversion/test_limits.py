"""Which nodes of a model a rank limit does not admit."""

from __future__ import annotations

import onnx
from onnx import parser

from onnx_spatial.conversion.limits import LimitReport, check_limits


def check(text: str | onnx.ModelProto, max_rank: int) -> LimitReport:
    model = parser.parse_model(text) if isinstance(text, str) else text
    return check_limits(model, max_rank)


def names(report: LimitReport) -> list[str]:
    return [each.node for each in report.nodes]


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


def test_sequences_have_no_rank():
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,3] x) => (float[?,?] y) {
        [wrap] s = SequenceConstruct(x)
        [join] y = ConcatFromSequence <axis = 0> (s)
    }"""
    report = check(text, 4)
    assert report.nodes == () and report.unknown == ()
