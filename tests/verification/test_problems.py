"""A failed verification begins with what explains it, and says everything once."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from adapter import verify
from fused_by_hand import CASES, filled
from hand_lowered import model, space_to_batch, space_to_batch_lowered
from onnx import numpy_helper

import onnx_spatial
from onnx_spatial.model import traversal
from onnx_spatial.verification import Check, OperatorResult, OutputResult
from onnx_spatial.verification.checks.conclude import conclude
from onnx_spatial.verification.checks.findings import (
    ChangedNode,
    Findings,
    NodeChange,
    OperatorCheck,
)
from onnx_spatial.verification.diagnosis import advice

NET = """
    g (float[N,6] x) => (float[N,6] y, float[N,6] z) <float[6] w = {1, 2, 3, 4, 5, 6}> {
        a = Mul(x, w)  b = LeakyRelu<alpha = 0.5>(a)  c = Sub(b, x)
        y = Tanh(c)  z = Neg(y)
    }
"""


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        (
            "3, 4, 5",
            "3, 4, 9",
            "Mul node '<a>' (main graph) was changed: it reads another constant 'w': "
            "1 of 6 elements differ, by at most 0.67 of the largest value; [4] is 9, not 5",
        ),
        ("alpha = 0.5", "alpha = 0.25", "it has another 'alpha': 0.25, not 0.5"),
        ("LeakyRelu<alpha = 0.5>", "LeakyRelu", "it has no attribute 'alpha'"),
        ("Sub(b, x)", "Sub(x, b)", "it reads its inputs in another order: x, b"),
        ("Sub(b, x)", "Add(b, x)", "Sub node '<c>' (main graph) was changed: it is Add, not Sub"),
        (
            "<float[6] w = {1, 2, 3, 4, 5, 6}>",
            "<float[1] w = {1}>",
            "it is float [1], not float [6]",
        ),
    ],
)
def test_the_change_of_a_node_is_named_before_its_consequences(old, new, change):
    result = verify(model(NET), model(NET.replace(old, new)))
    assert change in result.message
    assert change in result.problems[0]
    assert [p.partition(":")[0] for p in result.problems[1:]] == ["output 'y'"]
    assert "(and 1 more for the same reason)" in result.problems[1]  # z
    assert result.first_difference.kind == "value"
    assert "does not change this node" in result.advice and "--no-fuse" not in result.advice


def test_a_weight_in_a_fused_region_is_named():
    case = CASES["gate"]
    wrong = filled(case.converted)
    tensor = next(t for t in wrong.graph.initializer if t.name == "filter")
    values = numpy_helper.to_array(tensor).copy()
    values[4, 1, 1] *= 1.5
    tensor.CopyFrom(numpy_helper.from_array(values, "filter"))
    result = verify(filled(case.original), wrong)
    assert result.message.startswith("failed: initializer 'filter' of Conv node ")
    assert "elements differ, by at most" in result.problems[0]
    assert "together with Conv node" in result.problems[1]
    assert "does not change this constant" in str(result.advice)


def test_a_wrong_operator_is_named_before_the_outputs():
    result = verify(space_to_batch(), space_to_batch_lowered(perm="4, 2, 0, 1, 3, 5"))
    assert [problem.split()[0] for problem in result.problems] == ["SpaceToBatchND", "output"]
    assert "--no-fuse" in str(result.advice)


def test_equal_reasons_are_counted():
    two = """g (float[N,4,6,3] x) => (float[A,B,C,D] y, float[A,B,C,D] z)
        <int32[2] block = {2, 3}, int32[2,2] pads = {0, 0, 0, 0}> {
        [s] y = tf.SpaceToBatchND(x, block, pads)  [t] z = tf.SpaceToBatchND(x, block, pads) }"""
    converted = onnx_spatial.convert(model(two), verify=False).model
    for node in converted.graph.node:
        if node.op_type == "Transpose":
            perm = next(a for a in node.attribute if a.name == "perm")
            perm.ints[:] = list(range(len(perm.ints)))
    result = verify(model(two), converted)
    assert result.status == "failed"
    assert sum("SpaceToBatchND node" in problem for problem in result.problems) == 1
    assert "(and 1 more for the same reason)" in result.message


def result(name: str, optimised: bool, reason: str | None = "it differs") -> OutputResult:
    return OutputResult(
        name, 0, optimised, "float32", (2,), 2, passed=reason is None, reason=reason
    )


def test_one_line_for_each_output():
    outputs = [
        result("both", False),
        result("both", True, "it differs in another way"),
        result("on", False, None),
        result("on", True, "it is wrong"),
        result("off", False, "it is false"),
        result("off", True, None),
        *(result(f"same {n}", False, "all the same") for n in range(3)),
    ]
    assert conclude(Findings(outputs=outputs)).problems == [
        "output 'both': it differs",
        "output 'on' with optimisations on: it is wrong",
        "output 'off' with optimisations off: it is false",
        "output 'same 0' with optimisations off: all the same (and 2 more for the same reason)",
    ]


def test_a_change_in_the_node_itself_comes_before_one_of_what_it_reads():
    changes = [NodeChange("reads 'b' in place of 'a'", inside=False), None]
    changes.append(NodeChange("has another 'alpha': 2, not 1", inside=True))
    nodes = []
    for number, change in enumerate(changes):
        node = onnx.helper.make_node("Elu", ["x"], [f"y{number}"], name=f"n{number}")
        nodes.append(ChangedNode(node, traversal.Place(), change))
        check = Check("isolated", False, "float32", (2,), 2, 1, f"reason {number}")
        nodes[-1].record(check, {}, f"y{number}")
    nodes.append(ChangedNode(node, traversal.Place()))  # nothing differs
    found = conclude(Findings(changed=nodes))
    assert [problem[:13] for problem in found.problems] == [
        "Elu node 'n2'",
        "Elu node 'n0'",
        "Elu node 'n1'",
    ]
    assert found.first_difference is nodes[2].difference
    assert found.problems[0] == (
        "Elu node 'n2' (main graph) was changed: it has another 'alpha': 2, not 1; its output differs: "
        "reason 2"
    )


def test_differences_that_only_differ_in_figures_are_one_line():
    nodes = []
    for number in range(5):
        node = onnx.helper.make_node("Elu", ["x"], [f"y{number}"], name=f"n{number}")
        nodes.append(ChangedNode(node, traversal.Place()))
        reason = f"{number + 1} of 20 elements differ, by at most {number}e-2 of the largest value"
        nodes[-1].record(Check("isolated", False, "float32", (2,), 2, 1, reason), {}, f"y{number}")
    (problem,) = conclude(Findings(changed=nodes)).problems
    assert "1 of 20 elements differ" in problem
    assert problem.endswith(" (and 4 more for the same reason)")


def test_outputs_alone_do_not_verify_operators():
    found = conclude(Findings(outputs_only=True, obstacles=["random numbers"]))
    assert found.status == "unverified" and not found.operators_only
    assert conclude(Findings(obstacles=["random numbers"])).operators_only


@pytest.mark.parametrize(
    ("products", "text"),
    [
        (("Conv node 'c'",), "1 of 1 operator within tolerance as parts of convolutions"),
        (("QLinearConv node 'c'",), "1 of 1 operator within tolerance as parts of convolutions"),
        (("MatMul node 'm'",), "1 of 1 operator within tolerance together with other nodes"),
        ((), "1 of 1 operator within tolerance together with other nodes"),
    ],
)
def test_convolutions_are_named_where_there_are_some(products, text):
    check = Check("isolated", False, "float32", (2,), 2, exact=False)
    site = OperatorResult("s", "main graph", "SpaceToBatchND", "", [check])
    info = SimpleNamespace(known_domain=True, index=0, error=None)
    found = conclude(Findings([OperatorCheck(info, site, products=products)]))
    assert text in found.message


def test_a_model_that_runs_at_no_size_is_told_once():
    result = verify(space_to_batch(), space_to_batch_lowered(split="-1, 4, 2, 3, 3, 1009"))
    assert sum("the converted model does not run" in p for p in result.problems) == 1


def small(body: str, **changes: object) -> onnx.ModelProto:
    made = model(f"g (float[N,6] x) => (float[N,6] y) {{ {body} }}")
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("converted", "text"),
    [
        (small("y = loc.Foo(x)"), "has an operator that onnxruntime"),
        (small("y = Relu(x)", ir_version=99), "does not know this IR version"),
    ],
)
def test_advice_for_a_model_that_does_not_load(converted, text):
    result = verify(small("y = Relu(x)"), converted)
    assert result.status == "failed"
    assert result.first_difference.kind == "model"
    assert len(result.problems) == 1
    assert text in str(result.advice)


@pytest.mark.parametrize("version", [99, 1])
def test_an_opset_with_which_the_model_does_not_load(version):
    body = "c = Constant<value_int = 1>() y = Dropout(x)"
    converted = small(body)
    converted.opset_import[0].version = version
    result = verify(small(body), converted)
    assert result.message == (
        f"failed: the opset was changed: it is {version}, not 17 (and 1 more)"
    )
    assert result.problems[1].startswith("the converted model does not load: ")
    assert "the opset of the first" in str(result.advice)


def test_both_models_may_have_an_opset_that_is_too_new():
    message = "the converted model does not load: Opset 99 is under development"
    assert "does not know this opset" in advice._load_advice(message)


def test_an_input_with_another_declared_shape():
    text = "g (float[N,M] x) => (float[A,B] y) { y = Relu(x) }"
    result = verify(model(text), model(text.replace("[N,M]", "[N,6]")))
    assert "declares another shape for this input" in str(result.advice)


def test_no_figures_of_many_digits():
    original, wrong = model(NET), model(NET.replace("3, 4, 5", "3, 4, 1e9"))
    result = verify(original, wrong)
    text = " ".join([result.message, *result.problems])
    assert "units in the last place" not in text and " inf " not in text
    assert "more than 1000 times the error that rounding can make" in text


def test_nodes_that_were_changed_but_not_compared_are_named():
    sizes = """g (float[N,M] x) => (float[A,B] y) <int64[1] k = {-1}> {
        s = Shape<start = 0, end = 1>(x)  t = Concat<axis = 0>(s, k)  y = Reshape(x, t) }"""
    result = verify(model(sizes), model(sizes.replace("(s, k)", "(k, s)")))
    assert result.status == "failed"
    (line,) = [p for p in result.problems if p.startswith("Concat node")]
    assert line.endswith("was changed: it reads its inputs in another order: k, s")
    assert "does not change this node" in str(result.advice)


def test_values_of_all_kinds_are_shown():
    text = 'g (string[N] x) => (string[N] y) <string[1] w = {"a"}> { y = StringConcat(x, w) }'
    original = model(text, opset=20, ir_version=9)
    wrong = model(text.replace('"a"', '"b"'), opset=20, ir_version=9)
    assert "[0] is b, not a" in verify(original, wrong).message
    whole = model("g (int64[N] x) => (int64[N] y) <int64[2] w = {1, 2}> { y = Gather(w, x) }")
    other = onnx.ModelProto.FromString(whole.SerializeToString())
    other.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([1, 3]), "w"))
    assert "[1] is 3, not 2" in verify(whole, other).problems[0]
