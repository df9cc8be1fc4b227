"""What is no operator of ours is compared by itself where it is not the original's."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from adapter import verify
from hand_lowered import model

from onnx_spatial.verification.checks import other_nodes

#: A wrong weight of `small` changes y by less than its tolerance.
NET = """
    g (float[N,6] x) => (float[N,6] y)
      <float[6] large = {100, 200, 300, 400, 500, 600}, float[6] small = {SMALL}>
    { a = Mul(x, small) b = Tanh(a) c = Mul(x, large) y = Add(b, c) }
"""
RIGHT = "0.01, 0.02, 0.03, 0.04, 0.05, 0.06"


def net(small: str = RIGHT) -> onnx.ModelProto:
    return model(NET.replace("SMALL", small))


def test_a_weight_that_the_output_hides() -> None:
    result = verify(net(), net(RIGHT.replace("0.01", "0.0101")))
    assert result.status == "failed"
    difference = result.first_difference
    assert difference is not None
    assert (difference.kind, difference.name, difference.graph) == ("value", "a", "main graph")
    assert all(o.max_relative_error < o.tolerance for o in result.outputs)
    assert "does not change this node" in str(result.advice)


@pytest.mark.parametrize(
    "body",
    [
        "a = Mul(small, x) b = Tanh(a) c = Mul(x, large) y = Add(b, c)",
        "k = Identity(small) a = Mul(x, k) b = Tanh(a) c = Mul(large, x) y = Add(c, b)",
        "z = Constant<value_float = 0.0>() s = Sub(z, small) m = Mul(x, s) a = Neg(m)"
        " b = Tanh(a) c = Mul(x, large) y = Add(b, c)",
    ],
)
def test_the_same_written_otherwise_is_right(body: str) -> None:
    after = net()
    text = NET.replace("SMALL", RIGHT).split("{ a")[0] + "{ " + body + " }"
    result = verify(after, model(text))
    assert result, result.message


@pytest.mark.parametrize("front", ["y = MatMul(x, w)", "k = MatMul(x, w) y = Tanh(k)"])
def test_one_weight_in_a_long_sum(front: str) -> None:
    """Beside 256 products it is as rounding would be: weights are compared by their bytes."""
    ones = ", ".join(["1"] * 256)
    text = f"g (float[64,256] x) => (float[64,1] y) <float[256,1] w = {{{ones}}}> {{ {front} }}"
    before = model(text)
    after = onnx.ModelProto.FromString(before.SerializeToString())
    weights = onnx.numpy_helper.to_array(after.graph.initializer[0]).copy()
    weights[100] *= np.float32(1.000001)
    after.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weights, "w"))
    result = verify(before, after)
    assert result.status == "failed"
    assert "its weights are not those of the original" in result.message
    assert verify(before, model(text.replace("MatMul(x, w)", "Gemm(x, w)"))).status == "passed"


BEHIND_A_FOREIGN_OPERATOR = """
    g (float[N,C,H,W] x) => (float[N,D,E,F] y) <float[1,1,2,2] w = {1, -2, 3, 0.5}>
    { r = Relu(x) v = loc.Foo(r) c = Conv(v, w) y = Tanh(c) }
"""


def test_a_weight_behind_an_operator_that_no_runtime_has() -> None:
    """Which sizes its output may have is unknown, and makes no difference to a weight."""
    before = model(BEHIND_A_FOREIGN_OPERATOR)
    result = verify(before, model(BEHIND_A_FOREIGN_OPERATOR.replace("-2", "-2.02")))
    assert result.status == "failed"
    assert "Conv node '<c>'" in result.message
    same = verify(before, before)
    assert same.status == "unverified" and same.operators_only


@pytest.mark.parametrize("kept", [False, True])
def test_a_function_that_redefines_a_standard_operator(kept: bool) -> None:
    before, after = model(BEHIND_A_FOREIGN_OPERATOR), model(BEHIND_A_FOREIGN_OPERATOR)
    text = '<domain: "", opset_import: ["" : 17]> Relu (v) => (o) { o = Neg (v) }'
    for each in (before, after) if kept else (after,):
        each.functions.append(onnx.parser.parse_function(text))
    result = verify(before, after)
    assert result.status == "unverified" and result.operators_only == kept
    line = "function 'Relu' was added, which redefines a standard operator"
    assert (line in result.problems) != kept


BODY = """
    g (float[N,6] x) => (float[N,6] y)
      <float zero = {0}, float two = {2}, float six = {6}, float[6] w = {1, 1, 1, 1, 1, 1}>
    { BODY }
"""
#: Of the type of sizes: so few integers, and an output of the model or of a branch.
SIZES = """
    g (int64[3] x, bool flag) => (int64[3] y) <int64 one = {1}, int64 thirty = {30}> { BODY }
"""
BRANCH = """
    y = If (flag) <
        then_branch = then () => (int64[3] p) { BODY },
        else_branch = els () => (int64[3] q) { q = Neg(x) }
    >
"""
WHOLE = """
    g (int64[N,6] x) => (int64[N,6] y) <int64 one = {1}> { BODY }
"""


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (BODY, "y = Relu(x)", "y = Clip(x, zero, six)"),
        (BODY, "y = Tanh(x)", "c = Min(x, two) y = Tanh(c)"),
        (BODY, "y = Mul(x, two)", "n = IsNaN(x) c = Where(n, zero, x) y = Mul(c, two)"),
        (BODY, "y = Reciprocal(x)", "c = Add(x, zero) y = Reciprocal(c)"),
        (
            BODY,
            "m = Greater(x, zero) y = Where(m, two, six)",
            "m = GreaterOrEqual(x, zero) y = Where(m, two, six)",
        ),
        (
            BODY,
            "y = LayerNormalization<epsilon = 0.00001>(x, w)",
            "y = LayerNormalization<epsilon = 0.000011>(x, w)",
        ),
        (SIZES, "y = Add(x, one)", "c = Min(x, thirty) y = Add(c, one)"),
        (
            SIZES.replace("BODY", BRANCH),
            "p = Add(x, one)",
            "c = Min(x, thirty) p = Add(c, one)",
        ),
        (
            WHOLE,
            "y = Add(x, one)",
            "c = Cast<to = 1>(x) o = Cast<to = 1>(one) s = Add(c, o) y = Cast<to = 7>(s)",
        ),
        (
            WHOLE,
            "y = ArgMax<axis = 1, select_last_index = 0>(x)",
            "y = ArgMax<axis = 1, select_last_index = 1>(x)",
        ),
    ],
)
def test_numbers_that_are_seldom(text: str, before: str, after: str) -> None:
    result = verify(model(text.replace("BODY", before)), model(text.replace("BODY", after)))
    assert result.status == "failed"
    assert "was changed" in result.message


LIMITED = """
    g (float[N,6] x) => (float[N,6] y) <float half = {0.5}, float hundred = {100}> { BODY }
"""


@pytest.mark.parametrize(
    ("front", "status"),
    [
        ("a = Sigmoid(x)", "passed"),
        ("t = Tanh(x) c = Abs(t) a = Identity(c)", "passed"),
        # That it is out of reach is seen, and not known.
        (
            "b0 = Sigmoid(x) b1 = Add(b0, half) b2 = Abs(b1) b3 = Sqrt(b2) a = Identity(b3)",
            "unverified",
        ),
        ("a = Mul(x, half)", "failed"),
    ],
)
def test_a_limit_that_what_is_in_front_keeps_out_of_reach(front: str, status: str) -> None:
    text = LIMITED.replace("BODY", f"{front} BODY")
    before, after = "y = Mul(a, half)", "b = Min(a, hundred) y = Mul(b, half)"
    result = verify(model(text.replace("BODY", before)), model(text.replace("BODY", after)))
    assert result.status == status, result.message
    if status == "unverified":
        assert "it differs, but only on values that may never occur in the model" in result.message


#: (original, the same written otherwise, the same with a mistake)
FORMS = {
    "HardSwish": (
        "y = HardSwish(x)",
        "a = Add(x, three) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)",
        "a = Add(x, three) c = Clip(a, zero, six) m = Mul(x, c) d = Constant<value_float = 5.9>()"
        " y = Div(m, d)",
    ),
    "Swish": (
        "s = Sigmoid(x) y = Mul(x, s)",
        "n = Neg(x) e = Exp(n) d = Add(e, one) y = Div(x, d)",
        "i = IsNaN(x) c = Where(i, zero, x) n = Neg(c) e = Exp(n) d = Add(e, one) y = Div(c, d)",
    ),
    "Div": (
        "k = Constant<value_float = 255.0>() y = Div(x, k)",
        "k = Constant<value_float = 0.003921569>() y = Mul(x, k)",
        "k = Constant<value_float = 0.00392>() y = Mul(x, k)",
    ),
    "sums": (
        "a = Mul(x, six) b = Add(a, three) c = Tanh(x) y = Add(b, c)",
        "a = Tanh(x) b = Mul(x, six) c = Add(b, a) y = Add(c, three)",
        "a = Tanh(x) b = Mul(x, six) c = Add(b, a) y = Add(c, one)",
    ),
    "softmax": (
        "m = ReduceMax<axes = [1]>(x) d = Sub(x, m) e = Exp(d) s = ReduceL1<axes = [1]>(e)"
        " z = Div(e, s) y = Sum(z, m)",
        "m = ReduceMax<axes = [1]>(x) z = Softmax<axis = 1>(x) y = Sum(z, m)",
        "m = ReduceMax<axes = [1]>(x) z = Softmax<axis = 0>(x) y = Sum(z, m)",
    ),
    "reciprocal root": (
        "a = Abs(x) b = Add(a, one) s = Sqrt(b) y = Div(one, s)",
        "a = Abs(x) b = Add(a, one) p = Constant<value_float = -0.5>() y = Pow(b, p)",
        "a = Abs(x) b = Add(a, one) p = Constant<value_float = -0.51>() y = Pow(b, p)",
    ),
}
NUMBERS = BODY.replace("six = {6}", "six = {6}, float one = {1}, float three = {3}")


@pytest.mark.parametrize("name", FORMS)
def test_other_forms(name: str) -> None:
    """The largest numbers overflow in one form, and names have another meaning in the other."""
    models = [model(NUMBERS.replace("BODY", body)) for body in FORMS[name]]
    for before, after in (models[:2], models[1::-1]):
        result = verify(before, after)
        assert result.status == "passed", result.message
    assert verify(models[0], models[2]).status == "failed"


BRANCHES = """
    g (float[N,6] x) => (float[N,6] y)
      <float far = {-10000}, float two = {2}, float three = {3}>
    {
        s = ReduceSum<keepdims = 0>(x)
        usual = Greater(s, far)
        y = If (usual) <
            then_branch = then () => (float[N,6] a) { a = Mul(x, two) },
            else_branch = els () => (float[N,6] b) { b = Mul(x, FACTOR) }
        >
    }
"""


def test_a_branch_that_no_run_takes() -> None:
    before = model(BRANCHES.replace("FACTOR", "three"))
    result = verify(before, model(BRANCHES.replace("FACTOR", "two")))
    assert result.status == "failed"
    assert "else_branch) was changed" in result.message
    assert verify(before, model(BRANCHES.replace("x, FACTOR", "three, x")))


def test_more_work_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changed nodes that are neither compared nor proven are counted; outputs are compared anyway."""
    monkeypatch.setattr(other_nodes, "MOST_WORK", 0)
    result = verify(*(model(BRANCHES.replace("FACTOR", factor)) for factor in ("three", "two")))
    assert result.status == "unverified"
    assert "could not be compared: too many nodes were changed" in result.message
    text = NET.replace("SMALL", RIGHT.replace("0.01", "0.0101"))
    result = verify(net(), model(text.replace("Tanh(a)", "Sin(a)")))
    assert result.status == "unverified"
    assert "2 changed nodes were not compared, the first is Mul node '<a>'" in result.message
    proven = NET.replace("SMALL", RIGHT).replace("Mul(x, large)", "Mul(large, x)")
    assert verify(net(), model(proven))


TURNS = """
    g (float[N,6] x, int64 trips) => (float[N,6] y)
      <bool yes = {1}, int64 nine = {9}, float half = {0.5}>
    {
        y = Loop (trips, yes, x) <
            body = turn (int64 i, bool go, float[N,6] a) => (bool go2, float[N,6] a2) {
                go2 = Identity(go)
                late = Greater(i, nine)
                s = Mul(a, half)
                n = Neg(s)
                a2 = Where(late, LATE, s)
            }
        >
    }
"""


def test_a_turn_that_no_run_comes_to() -> None:
    """Not failed: nothing here knows whether there is such a turn."""
    result = verify(model(TURNS.replace("LATE", "s")), model(TURNS.replace("LATE", "n")))
    assert result.status == "unverified"
    assert "body) was changed: it differs, but only on values" in result.message
    assert not result.operators_only


def test_a_default_that_became_a_constant() -> None:
    text = """
        g (float[N,6] x, int64[1] k) => (float[N,1] y) <int64[1] k = {2}, int64[1] copy = {2}>
        { y = Gather<axis = 1>(x, WHICH) }
    """
    before = model(text.replace("WHICH", "k"))
    assert verify(before, model(text.replace("WHICH", "copy"))).status == "failed"
    assert verify(before, before)


def test_sizes_that_are_mixed_up_and_mostly_alike() -> None:
    """Right wherever both leave the same remainder."""
    text = """
        g (float[N,H,W] x) => (float[N,A,W] y)
          <int64[1] at = {AXIS}, int64[1] five = {5}, int64[3] zero = {0, 0, 0}, int64[1] no = {0}>
        {
            s = Shape(x) size = Gather<axis = 0>(s, at) over = Mod(size, five)
            far = Div(over, four) pads = Concat<axis = 0>(zero, no, far, no)
            y = Pad(x, pads)
        }
    """.replace("int64[1] no", "int64[1] four = {4}, int64[1] no")
    before, after = (model(text.replace("AXIS", axis)) for axis in "12")
    assert verify(before, before)
    result = verify(before, after)
    assert result.status == "failed"
    assert len(result.runs) > len(verify(before, before).runs)


def test_a_table_that_differs_where_no_data_reads_it() -> None:
    text = """
        g (float[N,8] x) => (float[N,8] y)
          <float scale = {0.1}, uint8 zero = {128}, float[256] table = {TABLE}>
        { q = QuantizeLinear(x, scale, zero) i = Cast<to = 7>(q) y = Gather(table, i) }
    """
    numbers = [str(n) for n in range(256)]
    before = model(text.replace("TABLE", ", ".join(numbers)))
    numbers[201] = "5"
    result = verify(before, model(text.replace("TABLE", ", ".join(numbers))))
    assert result.status == "unverified"
    assert "1 of 256 elements differ" in result.message
    assert verify(before, before)


def test_an_output_that_also_reads_another_input() -> None:
    text = """
        g (float[N,6] x, float b) => (float[N,6] y, float z) <float limit = {0.123}>
        { z = Neg(b) BODY }
    """
    before = model(text.replace("BODY", "y = Relu(x)"))
    wrong = "e = Equal(b, limit) n = Neg(x) w = Where(e, n, x) y = Relu(w)"
    result = verify(before, model(text.replace("BODY", wrong)))
    assert result.status == "unverified"
    assert "it also reads 'b'" in result.message
