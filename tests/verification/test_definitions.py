"""Definitions of values: what is written otherwise and means the same, and what does not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from adapter import verify
from hand_lowered import model
from onnx import helper, numpy_helper

from onnx_spatial.verification.match.definitions import Definitions
from onnx_spatial.verification.match.graphs import Graphs

#: What `a` is made of changes y by less than the tolerance of y.
HIDING = """
    g (float[N,6] x) => (float[N,6] y) <float[6] large = {100, 200, 300, 400, 500, 600} STORED>
    { BODY b = Tanh(a) c = Mul(x, large) y = Add(b, c) }
"""
RIGHT, WRONG = "0.01, 0.02, 0.03, 0.04, 0.05, 0.06", "0.0101, 0.02, 0.03, 0.04, 0.05, 0.06"


def hiding(body: str, stored: str = "", opset: int = 17) -> onnx.ModelProto:
    return model(HIDING.replace("BODY", body).replace("STORED", stored), opset=opset)


def numbers(text: str) -> np.ndarray:
    return np.array(text.split(", "), np.float32)


def initializer(values: str) -> onnx.ModelProto:
    return hiding("a = Mul(x, w)", f", float[6] w = {{{values}}}")


def constant(values: str) -> onnx.ModelProto:
    return hiding(f"w = Constant<value = float[6] {{{values}}}>() a = Mul(x, w)")


def constant_floats(values: str) -> onnx.ModelProto:
    return hiding(f"w = Constant<value_floats = [{values}]>() a = Mul(x, w)")


def computed_constant(values: str) -> onnx.ModelProto:
    return hiding(
        "w = Mul(k, two) a = Mul(x, w)", f", float[6] k = {{{values}}}, float two = {{0.5}}"
    )


def half_stored(values: str) -> onnx.ModelProto:
    return hiding(
        "a = Mul(x, w)", ", float[6] w = {" + ", ".join(map(str, numbers(values) / 2)) + "}"
    )


def sparse(values: str) -> onnx.SparseTensorProto:
    place = numpy_helper.from_array(np.arange(6) * 7)
    return helper.make_sparse_tensor(numpy_helper.from_array(numbers(values), "s"), place, [6, 6])


def sparse_initializer(values: str) -> onnx.ModelProto:
    made = hiding("a = MatMul(x, s)")
    made.graph.sparse_initializer.append(sparse(values))
    return made


def sparse_constant(values: str) -> onnx.ModelProto:
    made = hiding("a = MatMul(x, s)")
    made.graph.node.insert(0, helper.make_node("Constant", [], ["s"], sparse_value=sparse(values)))
    return made


def dense(values: str) -> onnx.ModelProto:
    made = hiding("a = MatMul(x, s)")
    made.graph.initializer.append(numpy_helper.from_array(np.diag(numbers(values)), "s"))
    return made


def recurrent(
    values: str, op_type: str = "LSTM", outputs: tuple[str, ...] = ("", "h")
) -> onnx.ModelProto:
    """Only the last state of the network is read."""
    made = hiding("a = Squeeze(h, axis)", ", int64[1] axis = {0}")
    rng = np.random.default_rng(0)
    gates = {"LSTM": 4, "GRU": 3}[op_type]
    weight = rng.standard_normal((1, 6 * gates, 6), np.float32)
    weight[0, 0] *= numbers(values)[0] * 100
    tensors = {"w": weight, "r": rng.standard_normal((1, 6 * gates, 6), np.float32)}
    made.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in tensors.items())
    steps = helper.make_node("Unsqueeze", ["x", "axis"], ["steps"])
    net = helper.make_node(op_type, ["steps", "w", "r"], outputs, hidden_size=6)
    made.graph.node.insert(0, net)
    made.graph.node.insert(0, steps)
    return made


def gru(values: str) -> onnx.ModelProto:
    return recurrent(values, "GRU")


def last_cell(values: str) -> onnx.ModelProto:
    return recurrent(values, "LSTM", ("", "", "h"))


def second_output(values: str) -> onnx.ModelProto:
    """The first output of the Split is right in any case."""
    nodes = "p, whole = Split<axis = 1>(x, sizes) q = Gather<axis = 1>(whole, at)"
    join = "t = Concat<axis = 1>(p, q) a = Mul(t, small)"
    at = "0, 1, 2, 3" if values == RIGHT else "0, 1, 2, 2"
    stored = f", int64[4] at = {{{at}}}, int64[2] sizes = {{2, 4}}, float small = {{0.00001}}"
    return hiding(f"{nodes} {join}", stored)


def second_output_itself(_: str) -> onnx.ModelProto:
    join = "p, q = Split<axis = 1>(x, sizes) t = Concat<axis = 1>(p, q) a = Mul(t, small)"
    return hiding(join, ", int64[2] sizes = {2, 4}, float small = {0.00001}")


def function(text: str, call: str = "a = loc.f(x)") -> onnx.ModelProto:
    made = hiding(call)
    whole = "g (float[N] x) => (float[N] y) { y = loc.f(x) }"
    made.functions.extend(
        model(f'{whole} <domain: "loc", opset_import: ["": 17]> f {text}').functions
    )
    return made


def function_of_unknown_types(values: str) -> onnx.ModelProto:
    return function(f"(x) => (y) {{ w = Constant<value = float[6] {{{values}}}>() y = Mul(x, w) }}")


def function_attribute(values: str) -> onnx.ModelProto:
    slope = "alpha: float = @slope" if values == RIGHT else "alpha = 0.0101"
    body = f"<slope>(x) => (y) {{ n = Neg(x) y = LeakyRelu<{slope}>(n) }}"
    return function(body, "a = loc.f<slope = 0.01>(x)")


def function_default(values: str) -> onnx.ModelProto:
    slope = numbers(values)[0]
    body = "(x) => (y) { n = Neg(x) y = LeakyRelu<alpha: float = @slope>(n) }"
    return function(f"<slope: float = {slope}>{body}")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (constant, initializer),
        (initializer, constant),
        (constant, constant_floats),
        (constant_floats, initializer),
        (computed_constant, half_stored),
        (sparse_initializer, sparse_initializer),
        (sparse_initializer, dense),
        (sparse_constant, sparse_constant),
        (sparse_constant, dense),
        (recurrent, recurrent),
        (gru, gru),
        (last_cell, last_cell),
        (second_output_itself, second_output),
        (function_of_unknown_types, function_of_unknown_types),
        (function_attribute, function_attribute),
        (function_default, function_default),
    ],
)
def test_what_was_not_compared(
    before: Callable[[str], onnx.ModelProto], after: Callable[[str], onnx.ModelProto]
) -> None:
    """The outputs of the whole hide the error; the other way to write the same passes."""
    assert verify(before(RIGHT), after(RIGHT)), verify(before(RIGHT), after(RIGHT)).message
    result = verify(before(RIGHT), after(WRONG))
    assert result.status == "failed", result.message
    assert "its output differs" in result.message


BRANCH = """
    g (float[N,3,4] x) => (float[N,3,4] y) <int64 none = {0}>
    {
        sizes = Shape(x) least = ReduceMin<keepdims = 0>(sizes) usual = GreaterOrEqual(least, none)
        y = If (usual) <
            then_branch = then () => (float[N,3,4] a) { a = Identity(x) },
            else_branch = els () => (float[N,3,4] b) { ELSE }
        >
    }
    <domain: "loc", opset_import: ["": 17]> f (x) => (y) { t = Tanh(x) y = OP(t) }
"""


def branch(nodes: str, op_type: str = "Neg", opset: int = 17) -> onnx.ModelProto:
    return model(BRANCH.replace("ELSE", nodes).replace("OP", op_type), opset=opset)


def of_opset(made: onnx.ModelProto, version: int) -> onnx.ModelProto:
    changed = onnx.ModelProto.FromString(made.SerializeToString())
    (standard,) = (o for o in changed.opset_import if o.domain in ("", "ai.onnx"))
    standard.version = version
    return changed


def test_a_function_that_only_a_branch_calls() -> None:
    before = branch("b = loc.f(x)")
    assert verify(before, branch("c = loc.f(x) b = Identity(c)"))
    assert verify(before, branch("b = loc.f(x)", "Abs")).status == "failed"


def test_a_branch_whose_values_have_other_names() -> None:
    """Nothing compares the values of the branch: it is no run's, and they have no counterpart."""
    before, other = branch("c = Neg(x) b = Abs(c)"), branch("d = Neg(x) e = Abs(d)")
    other.graph.node[-1].attribute[1].g.output[0].name = "e"
    assert verify(before, other)
    other.graph.node[-1].attribute[1].g.node[1].op_type = "Neg"
    result = verify(before, other)
    assert not result
    assert "a graph inside it has other inputs or results" in result.message


@pytest.mark.parametrize(("nodes", "passes"), [("b = Softmax(x)", False), ("b = Tanh(x)", True)])
def test_a_bumped_opset(nodes: str, passes: bool) -> None:
    """The axis of Softmax has another default since opset 13; Tanh accepts more types."""
    before = branch(nodes, opset=12)
    result = verify(before, of_opset(before, 13))
    assert bool(result) is passes
    assert (result.status == "failed") is not passes


def same(before: onnx.ModelProto, after: onnx.ModelProto, name: str = "y") -> bool:
    from onnx_spatial.model.traversal import Place

    return Definitions(Graphs(before), Graphs(after), (None, None)).same(name, Place())


PLAIN = "g (float[1,2,N,M] x) => (float[1,2,A,B] y) <float[2,2,3,3] w, float k = {2}> { NODES }"


@pytest.mark.parametrize(
    ("before", "after", "equal"),
    [
        ("y = Conv(x, w)", "y = Conv<group = 1>(x, w)", True),
        ("y = Conv(x, w)", "y = Conv<group = 2>(x, w)", False),
        ("y = Conv(x, w)", "y = Conv<pads = [0, 0, 0, 0]>(x, w)", False),  # no default is declared
        ("y = Mul(x, k)", "[other] y = Mul(x, k)", True),
        ("y = Mul(x, k)", "i = Identity(x) y = Mul(i, k)", True),
        ("t = Neg(x) y = Mul(t, k)", "v = Neg(x) y = Mul(v, k)", True),
        ("t = Neg(x) y = Mul(t, k)", "v = Abs(x) y = Mul(v, k)", False),
        ("t = Neg(x) y = Mul(t, k)", "t = Abs(x) y = Mul(t, k)", True),  # t itself is not
        ("y = Sub(x, k)", "y = Sub(k, x)", False),
        ("a = RandomNormalLike(x) b = RandomNormalLike(x) y = Sub(a, b)",
         "a = RandomNormalLike(x) y = Sub(a, a)", False),
    ],
)  # fmt: skip
def test_definitions(before: str, after: str, equal: bool) -> None:
    assert same(*(model(PLAIN.replace("NODES", nodes)) for nodes in (before, after))) is equal
