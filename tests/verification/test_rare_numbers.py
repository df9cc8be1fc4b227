"""Mistakes that only unusual numbers show, in fused regions and in other nodes that were changed."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from adapter import verify
from hand_lowered import model

from onnx_spatial.verification.run.data import Assignment
from onnx_spatial.verification.runtime.program import Program
from onnx_spatial.verification.sizes import rare_numbers
from onnx_spatial.verification.sizes.model_numbers import numbers_of
from onnx_spatial.verification.sizes.trial_runs import Trial

#: The oldest onnxruntime that is supported computes some right forms otherwise.
OLD = tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 31)

CONSTANTS = """
    <int32[1] block = {2}, int32[1,2] pads = {0, 0}, int32[1,2] crops = {0, 0}, float zero = {0},
     float low = {-1000}, float high = {1000}, float tiny = {0.0005},
     float[2,2,2] w = {1, -2, 3, 0.5, -1, 2, 0.25, -3}>
"""
ORIGINAL = f"""
    g (float[N,T,2] x) => (float[A,B,C] z) {CONSTANTS}
    {{
        s = tf.SpaceToBatchND(x, block, pads)
        t = Transpose<perm = [0, 2, 1]>(s)
        c = Conv<pads = [1, 0]>(t, w)
        r = Transpose<perm = [0, 2, 1]>(c)
        y = tf.BatchToSpaceND(r, block, crops)
        z = Relu(y)
    }}
"""
CONVERTED = f"""
    g (float[N,T,2] x) => (float[A,B,C] z) {CONSTANTS}
    {{
        t1 = Transpose<perm = [0, 2, 1]>(x)
        FRONT
        c1 = Conv<pads = [2, 0], dilations = [2]>(a, w)
        BEHIND
        y = Transpose<perm = [0, 2, 1]>(b)
        z = Relu(y)
    }}
"""


def fused(text: str, place: str) -> onnx.ModelProto:
    """The fused region with nodes in front of its convolution or behind it."""
    nodes = {"FRONT": "a = Identity(t1)", "BEHIND": "b = Identity(c1)"}
    source, output = ("t1", "a") if place == "FRONT" else ("c1", "b")
    nodes[place] = text.format(i=source, o=output)
    return model(CONVERTED.replace("FRONT", nodes["FRONT"]).replace("BEHIND", nodes["BEHIND"]))


@pytest.mark.parametrize("place", ["FRONT", "BEHIND"])
@pytest.mark.parametrize(
    "text",
    [
        "{o} = Clip({i}, low, high)",
        "{o} = Min({i}, high)",
        "n = IsNaN({i}) {o} = Where(n, zero, {i})",
        "n = IsInf({i}) {o} = Where(n, zero, {i})",
        "d = Abs({i}) n = Less(d, tiny) {o} = Where(n, d, {i})",
    ],
)
def test_nodes_inside_a_fused_region(text: str, place: str) -> None:
    result = verify(model(ORIGINAL), fused(text, place))
    assert result.status == "failed"
    assert "together with" in result.message


@pytest.mark.parametrize("place", ["FRONT", "BEHIND"])
def test_nodes_inside_a_fused_region_that_change_nothing(
    place: str, nothing_is_proven: None
) -> None:
    for text in ("{o} = Identity({i})", "m = Neg({i}) {o} = Neg(m)", "{o} = Max({i}, {i})"):
        result = verify(model(ORIGINAL), fused(text, place))
        assert result.status == "passed", result.message
        assert result.operators[0].proven == "sampled"


NODES = """
    g (float[N,6] x) => (OUT y)
      <float zero = {0}, float half = {0.5}, float two = {2}, float limit = {37.5},
       float[6] w = {1, 1, 1, 1, 1, 1},
       float scale = {0.1}, uint8 offset = {128}, float eps = {0.00001}, float ceiling = {100000}>
    { BODY }
"""
HALF_AWAY = "g = Sign(d) a = Abs(d) h = Add(a, half) f = Floor(h) r = Mul(f, g)"
NORMALISE = """
    m = ReduceMean<axes = [1]>(x) d = Sub(x, m) SQUARES
    e = Add(v, eps) s = Sqrt(e) y = Div(d, s)
"""
TWO_PASSES = NORMALISE.replace("SQUARES", "q = Mul(d, d) v = ReduceMean<axes = [1]>(q)")
ONE_PASS = NORMALISE.replace(
    "SQUARES", "q = Mul(x, x) p = ReduceMean<axes = [1]>(q) n = Mul(m, m) v = Sub(p, n)"
)
#: A sum of it with a number is judged by the magnitudes of its terms.
VARIANCE = "m = ReduceMean<axes = [1]>(x) {} y = Add(v, eps)"
TWO = "d = Sub(x, m) q = Mul(d, d) v = ReduceMean<axes = [1]>(q)"
OPPOSITE = "f = Sub(m, x) q = Mul(f, f) v = ReduceMean<axes = [1]>(q)"
ONE = "q = Mul(x, x) p = ReduceMean<axes = [1]>(q) n = Mul(m, m) v = Sub(p, n)"
NORM = "y = LayerNormalization<epsilon = 0.00001>(x, w)"
ABOVE = "m = Greater(x, limit) y = Where(m, two, half)"
CASES = [
    (
        "y = Round(x)",
        f"d = Identity(x) {HALF_AWAY} y = Identity(r)",
        "i = Neg(x) j = Round(i) y = Neg(j)",
    ),
    (
        ABOVE,
        ABOVE.replace("Greater", "GreaterOrEqual"),
        "m = Less(limit, x) y = Where(m, two, half)",
    ),
    (
        "q = QuantizeLinear(x, scale, offset) y = DequantizeLinear(q, scale, offset)",
        f"d = Div(x, scale) {HALF_AWAY} o = Cast<to = 1>(offset) k = Add(r, o)"
        " q = Cast<to = 2>(k) y = DequantizeLinear(q, scale, offset)",
        "i = Identity(x) q = QuantizeLinear(i, scale, offset)"
        " y = DequantizeLinear(q, scale, offset)",
    ),
    ("y = Relu(x)", "y = Clip(x, zero, ceiling)", "y = Max(x, zero)"),
    (
        "y = ThresholdedRelu<alpha = 20.0>(x)",
        "k = Constant<value_float = 20.0>() g = GreaterOrEqual(x, k) y = Where(g, x, zero)",
        "k = Constant<value_float = 20.0>() g = Less(k, x) y = Where(g, x, zero)",
    ),
    (
        "y = HardSigmoid<alpha = 0.01, beta = 0.5>(x)",
        "k = Constant<value_float = 0.01>() m = Mul(x, k) h = Add(m, half) y = Max(h, zero)",
        "k = Constant<value_float = 0.01>() m = Mul(x, k) h = Add(half, m)"
        " o = Constant<value_float = 1.0>() y = Clip(h, zero, o)",
    ),
    pytest.param(
        NORM,
        ONE_PASS,
        TWO_PASSES,
        marks=pytest.mark.skipif(OLD, reason="its LayerNormalization loses the variance itself"),
    ),
    (VARIANCE.format(TWO), VARIANCE.format(ONE), VARIANCE.format(OPPOSITE)),
    (
        "c = Max(x, limit) y = Mul(c, two)",
        "e = Equal(x, limit) a = Add(x, half) u = Where(e, a, x) c = Max(u, limit) y = Mul(c, two)",
        "c = Max(limit, x) y = Add(c, c)",
    ),
]


@pytest.mark.parametrize(("before", "wrong", "right"), CASES)
def test_numbers_of_the_model_itself(before: str, wrong: str, right: str) -> None:
    text = NODES.replace("OUT", "float[N,6]")
    original = model(text.replace("BODY", before))
    assert verify(original, model(text.replace("BODY", wrong))).status == "failed"
    result = verify(original, model(text.replace("BODY", right)))
    assert result.status == "passed", result.message


#: (declared shape, output type, original, wrong, right)
INTEGERS = [
    (  # a list, as sizes are
        "N",
        "bool",
        "a = Add(x, one) y = Greater(a, large)",
        "c = Cast<to = 6>(x) d = Cast<to = 7>(c) a = Add(d, one) y = Greater(a, large)",
        "a = Add(one, x) y = Greater(a, large)",
    ),
    (
        "4",
        "bool",
        "a = Add(x, one) y = Greater(a, large)",
        "c = Cast<to = 6>(x) d = Cast<to = 7>(c) a = Add(d, one) y = Greater(a, large)",
        "a = Add(one, x) y = Less(large, a)",
    ),
    (  # none of the few usual ones is negative
        "1, 3",
        "int64",
        "y = Div(x, two)",
        "f = Cast<to = 11>(x) t = Cast<to = 11>(two) d = Div(f, t) g = Floor(d) y = Cast<to = 7>(g)",
        "n = Neg(x) m = Neg(two) y = Div(n, m)",
    ),
]


@pytest.mark.parametrize(("shape", "output", "before", "wrong", "right"), INTEGERS)
def test_integers_that_are_no_sizes(
    shape: str, output: str, before: str, wrong: str, right: str
) -> None:
    text = f"""
        g (int64[{shape}] x) => ({output}[{shape}] y)
          <int64 one = {{1}}, int64 two = {{2}}, int64 large = {{5000000000}}> {{ BODY }}
    """
    original = model(text.replace("BODY", before))
    assert verify(original, model(text.replace("BODY", wrong))).status == "failed"
    result = verify(original, model(text.replace("BODY", right)))
    assert result.status == "passed", result.message


@pytest.mark.parametrize("pattern", ["IsNaN", "IsInf"])
def test_an_input_of_few_elements_meets_each_special_number(pattern: str) -> None:
    text = "g (float[1] x) => (float[1] y) <float zero = {0}> { BODY }"
    original = model(text.replace("BODY", "y = Neg(x)"))
    wrong = f"n = {pattern}(x) c = Where(n, zero, x) y = Neg(c)"
    assert verify(original, model(text.replace("BODY", wrong))).status == "failed"
    assert verify(original, model(text.replace("BODY", "c = Identity(x) y = Neg(c)")))


def test_numbers_of_a_model() -> None:
    """Constants, attributes and their defaults; halves; where a slope ends and a step rounds."""
    text = """
        g (float[N] x, uint8 z) => (float[N] y) <float scale = {0.25}, float[2] limits = {3, 7}>
        { a = HardSigmoid(x) b = LeakyRelu<alpha = 0.125>(a) c = Mul(b, scale) y = Mul(c, limits) }
    """
    numbers = numbers_of([model(text)])
    assert {0.125, 0.25, 3.0, 7.0, 3.5, 4.0} <= set(numbers)
    assert any(abs(n - 2.5) < 1e-6 for n in numbers if not isinstance(n, str))  # (1 - 0.5) / 0.2


def test_integers_that_may_be_sizes_stay_as_they_are() -> None:
    """A tensor of two thousand million elements would not fit into memory."""
    text = """
        g (int64[2] size, int64[2] ids) => (float[A,B] y, int64[2] z)
        { y = ConstantOfShape(size) z = Neg(ids) }
    """
    usual = {"size": np.array([2, 3]), "ids": np.array([2, 3])}
    trial = Trial(Assignment({}), usual, {}, set())
    runs = list(rare_numbers.runs(Program(model(text), ()), trial, ["constants"], [9.0], 0))
    assert runs
    assert all(run.feeds["size"].tolist() == [2, 3] for run in runs)
    met = {int(n) for run in runs for n in run.feeds["ids"]}
    assert {9, -9, 10, 2**31, -(2**31) - 1} <= met
    assert np.iinfo(np.int64).min not in met


@pytest.mark.parametrize(
    ("inside", "status"),
    [("a = Clip(t1, low, high)", "unverified"), ("a = Identity(t1)", "passed")],
)
def test_a_limit_that_no_run_of_the_model_reaches(inside: str, status: str) -> None:
    """Not failed, and not passed: that it is out of reach is seen, and not known."""
    in_front = "p = Sigmoid(x) u = MatMul(p, k)"
    constants = CONSTANTS.replace("float zero", "float[2,2] k = {0.5, 0.3, 0.2, 0.1}, float zero")
    after = CONVERTED.replace("FRONT", inside).replace("BEHIND", "b = Identity(c1)")
    before, after = (
        text.replace(CONSTANTS, constants)
        .replace("s = tf.SpaceToBatchND(x", f"{in_front} s = tf.SpaceToBatchND(u")
        .replace(
            "t1 = Transpose<perm = [0, 2, 1]>(x)", f"{in_front} t1 = Transpose<perm = [0, 2, 1]>(u)"
        )
        for text in (ORIGINAL, after)
    )
    result = verify(model(before), model(after))
    assert result.status == status, result.message


def test_reals_next_to_a_constant() -> None:
    """Also opposites, whatever the sign of the constant; an input of three elements meets them all."""
    program = Program(model("g (float[3] x) => (float[3] y) { y = Neg(x) }"), ())
    trial = Trial(Assignment({}), {"x": np.ones(3, np.float32)}, {}, set())
    runs = rare_numbers.runs(program, trial, ["constants"], [6.0], 0)
    met = np.concatenate([run.feeds["x"] for run in runs])
    six = np.float32(6)
    near = {six, np.nextafter(six, np.float32(7)), np.nextafter(six, np.float32(5))}
    assert near | {-n for n in near} == set(met)


#: A form, another one of the same function, a wrong one, and the verdict on the second.
SAME = {
    "Softplus": (
        "y = Softplus(v)",
        "e = Exp(v) p = Add(e, one) y = Log(p)",
        "e = Exp(v) p = Add(e, half) y = Log(p)",
        "unverified",
    ),
    "Softmax": (
        "y = Softmax<axis = 1>(v)",
        "e = Exp(v) p = ReduceSum<keepdims = 1>(e, last) y = Div(e, p)",
        "e = Exp(v) p = ReduceSum<keepdims = 1>(e, last) q = Add(p, half) y = Div(e, q)",
        "unverified",
    ),
    "LogSoftmax": (
        "y = LogSoftmax<axis = 1>(v)",
        "p = Softmax<axis = 1>(v) y = Log(p)",
        "p = Softmax<axis = 0>(v) y = Log(p)",
        "unverified",
    ),
    "LpNormalization": (
        "y = LpNormalization<axis = 1, p = 2>(v)",
        "n = ReduceL2<axes = [1]>(v) y = Div(v, n)",
        "n = ReduceL1<axes = [1]>(v) y = Div(v, n)",
        "unverified",
    ),
    "Relu": ("y = Relu(v)", "y = Clip(v, zero)", "y = Clip(v, zero, thousand)", "passed"),
    "Relu with a limit": (
        "y = Relu(v)",
        "y = Clip(v, zero, most)",
        "n = IsInf(v) w = Where(n, zero, v) y = Relu(w)",
        "passed",
    ),
}


@pytest.mark.parametrize(("before", "after", "wrong", "status"), SAME.values(), ids=SAME)
def test_numbers_that_overflow_in_one_form(
    before: str, after: str, wrong: str, status: str
) -> None:
    """They raise a doubt; usual numbers, and finite results of all numbers, decide."""

    def net(text: str) -> onnx.ModelProto:
        return model(
            f"""g (float[24,16] x) => (float[24,16] y)
            <float one = {{1}}, float half = {{0.5}}, float zero = {{0}}, float thousand = {{1000}},
             float most = {{3.4028234663852886e38}}, int64[1] last = {{1}}> {{
                v = Neg(x) {text}
            }}"""
        )

    assert verify(net(before), net(after)).status == status
    assert verify(net(after), net(before)).status == status
    assert verify(net(before), net(wrong)).status == "failed"


def test_numbers_that_overflow_inside_a_fused_region() -> None:
    """Usual numbers in a run of the whole model do not settle it."""
    conv = "c = Conv<pads = [1, 0]>(t, w)"
    before = model(ORIGINAL.replace(conv, f"{conv.replace('c =', 's0 =')} c = Softplus(s0)"))
    form = "k = Constant<value_float = ONE>() e = Exp({i}) p = Add(e, k) {o} = Log(p)"
    assert verify(before, fused(form.replace("ONE", "1.0"), "BEHIND")).status == "unverified"
    assert verify(before, fused(form.replace("ONE", "1.01"), "BEHIND")).status == "failed"


#: (inputs, output, original, wrong, right) of nodes behind sums, averages and masks.
AGGREGATES = [
    (
        "float[N,8,6] x",
        "float[N,8,6]",
        "y = Relu(x)",
        "m = ReduceMean<keepdims = 0>(x) c = Greater(m, limit) n = Neg(x) r = Relu(x)"
        " y = Where(c, n, r)",
        "m = ReduceMean<keepdims = 0>(x) c = Greater(m, limit) r = Relu(x) y = Where(c, r, r)",
    ),
    (
        "float[1,2,8,8] x",
        "float[1,2,A,B]",
        "a = AveragePool<kernel_shape = [4, 4], strides = [4, 4]>(x) g = Greater(a, limit)"
        " y = Cast<to = 1>(g)",
        "a_ = AveragePool<kernel_shape = [4, 4], strides = [4, 4]>(x)"
        " g_ = GreaterOrEqual(a_, limit) y = Cast<to = 1>(g_)",
        "a_ = AveragePool<kernel_shape = [4, 4], strides = [4, 4]>(x) g_ = Less(limit, a_)"
        " y = Cast<to = 1>(g_)",
    ),
    (
        "uint8[N,16,16] x",
        "int32[N]",
        "c = Cast<to = 6>(x) y = ReduceSum<keepdims = 0>(c, axes)",
        "c_ = Cast<to = 6>(x) s_ = ReduceSum<keepdims = 0>(c_, axes) y = Min(s_, most)",
        "c_ = Cast<to = 6>(x) i_ = Identity(c_) y = ReduceSum<keepdims = 0>(i_, axes)",
    ),
    (
        "bool[N,64] k, float[N,64] x",
        "float[N]",
        "f = Cast<to = 1>(k) c = ReduceSum<keepdims = 0>(f, last) p = Mul(f, x)"
        " s = ReduceSum<keepdims = 0>(p, last) y = Div(s, c)",
        "f = Cast<to = 1>(k) c = ReduceSum<keepdims = 0>(f, last) p = Mul(f, x)"
        " s = ReduceSum<keepdims = 0>(p, last) m = Max(c, one) y = Div(s, m)",
        "f = Cast<to = 1>(k) c = ReduceSum<keepdims = 0>(f, last) p = Mul(x, f)"
        " s = ReduceSum<keepdims = 0>(p, last) y = Div(s, c)",
    ),
    (
        "bool[64] k",
        "int64",
        "c = Cast<to = 7>(k) y = ReduceSum<keepdims = 0>(c)",
        "c_ = Cast<to = 7>(k) s_ = ReduceSum<keepdims = 0>(c_) y = Min(s_, few)",
        "c_ = Cast<to = 7>(k) i_ = Identity(c_) y = ReduceSum<keepdims = 0>(i_)",
    ),
    (  # the rest of equal numbers without their mean is rounding
        "float[N,96] x",
        "float[N,96]",
        "y = LayerNormalization<epsilon = 0.00001>(x, ones)",
        "m = ReduceMean<axes = [1]>(x) d = Sub(x, m) q = Mul(d, d) v = ReduceMean<axes = [1]>(q)"
        " e = Add(v, large) s = Sqrt(e) y = Div(d, s)",
        "m = ReduceMean<axes = [1]>(x) d = Sub(x, m) q = Mul(d, d) v = ReduceMean<axes = [1]>(q)"
        " e = Add(v, small) s = Sqrt(e) y = Div(d, s)",
    ),
]


@pytest.mark.parametrize(("inputs", "output", "before", "wrong", "right"), AGGREGATES)
def test_sums_averages_and_masks(
    inputs: str, output: str, before: str, wrong: str, right: str
) -> None:
    ones = ", ".join(["1"] * 96)
    text = f"""
        g ({inputs}) => ({output} y)
          <float limit = {{128}}, float one = {{1}}, float small = {{0.00001}}, float large = {{0.1}},
           int32 most = {{65000}}, int64 few = {{60}}, int64[2] axes = {{1, 2}},
           int64[1] last = {{1}}, float[96] ones = {{{ones}}}> {{ BODY }}
    """
    original = model(text.replace("BODY", before))
    # NaN of numbers may follow from another order of operations: that is left open.
    assert verify(original, model(text.replace("BODY", wrong))).status in ("failed", "unverified")
    result = verify(original, model(text.replace("BODY", right)))
    assert result.status == "passed", result.message


#: (inputs, output, original, wrong, right) of integers that are sizes, positions, axes or counts.
POSITIONS = [
    (
        "float[N,4,3] x, int64[1] p",
        "y = Slice(x, p, far, second)",
        "q = Max(p, none) y = Slice(x, q, far, second)",
        "q = Max(p, p) y = Slice(x, q, far, second)",
    ),
    (
        "float[N,4,3] x, int64[1] p",
        "y = CumSum(x, p)",
        "c = Less(p, none) q = Where(c, none, p) y = CumSum(x, q)",
        "c = Less(p, none) r = Add(p, three) q = Where(c, r, p) y = CumSum(x, q)",
    ),
    (
        "float[N,2,3] x, int64[3] p",
        "y = Tile(x, p)",
        "q = Min(p, fifty) y = Tile(x, q)",
        "q = Min(p, huge) y = Tile(x, q)",
    ),
    pytest.param(
        "float[N,2,3] x, int64[6] p",
        "y = Pad(x, p)",
        "q = Abs(p) y = Pad(x, q)",
        "a = Neg(p) q = Neg(a) y = Pad(x, q)",
        marks=pytest.mark.skipif(OLD, reason="its Pad reads any memory for pads of both signs"),
    ),
]


@pytest.mark.parametrize(("inputs", "before", "wrong", "right"), POSITIONS)
def test_limits_of_sizes_and_positions(inputs: str, before: str, wrong: str, right: str) -> None:
    text = f"""
        g ({inputs}) => (float[A,B,C] y)
          <int64[1] none = {{0}}, int64[1] second = {{1}}, int64[1] three = {{3}},
           int64[1] far = {{1000000}}, int64[1] fifty = {{50}}, int64[1] huge = {{60000}}>
        {{ BODY }}
    """
    original = model(text.replace("BODY", before))
    assert verify(original, model(text.replace("BODY", wrong))).status == "failed"
    result = verify(original, model(text.replace("BODY", right)))
    assert result.status == "passed", result.message


def test_a_step_that_was_negative() -> None:
    text = "g (int64 a, int64 b, int64 d) => (int64[N] y) { BODY }"
    original = model(text.replace("BODY", "y = Range(a, b, d)"))
    wrong = model(text.replace("BODY", "s = Abs(d) y = Range(a, b, s)"))
    right = model(text.replace("BODY", "n = Neg(d) s = Neg(n) y = Range(a, b, s)"))
    assert verify(original, wrong).status == "failed"
    assert verify(original, right).status == "passed"


def limits(before: str, after: str, **usual: object) -> list[dict[str, list[int]]]:
    """The small inputs of all runs on the limits of a replacement."""
    feeds = {name: np.array(value, np.int64) for name, value in usual.items()}
    trial = Trial(Assignment({}), feeds, {}, set())
    program = Program(model(before), ())
    runs = rare_numbers.runs(program, trial, ["limits"], [], 0, model(after))
    return [{name: array.tolist() for name, array in run.feeds.items()} for run in runs]


def test_several_inputs_take_their_limits_at_once() -> None:
    text = """
        g (int64 a, int64 b) => (bool y) <int64 three = {3}, int64 seven = {7}>
        { p = Equal(a, three) q = Equal(b, seven) y = OP(p, q) }
    """
    runs = limits(text.replace("OP", "Or"), text.replace("OP", "And"), a=1, b=1)
    assert {"a": 3, "b": 7} in runs
    assert {"a": 4, "b": 1} in runs
    assert {"a": 1, "b": -1} in runs


@pytest.mark.parametrize(
    "text",
    [
        "m = Sub(a, three) y = Div(three, m)",
        "m = Sub(a, three) y = Mod(three, m)",
        "y = Range(a, three, three)",  # nothing computes with it
    ],
)
def test_integers_without_limits_to_try(text: str) -> None:
    """A division by zero ends the process."""
    made = f"g (int64 a) => (int64[N] y) <int64 three = {{3}}> {{ {text} }}"
    assert limits(made, made, a=2) == []


def test_limits_of_sizes_are_small() -> None:
    """Neither memory nor time for tensors of thousands of millions of elements."""
    text = """
        g (int64[2] a) => (float[A,B] y) <int64 huge = {4000000}, int64 few = {20}>
        { m = Min(a, huge) k = Max(m, few) y = ConstantOfShape(k) }
    """
    numbers = [n for run in limits(text, text, a=[1, 2]) for n in run["a"]]
    assert 21 in numbers
    assert max(numbers) <= 2**12
