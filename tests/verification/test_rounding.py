"""What rounding does to a model decides where no fixed tolerance fits."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from adapter import verify
from onnx import numpy_helper, parser

import onnx_spatial
from onnx_spatial.verification.compare.rounding import Movement, Rounding, Verdict
from onnx_spatial.verification.runtime.program import Program

TF = "ai.onnx.converters.tensorflow"

#: Behind a convolution that becomes a dilated one: `r` to `y`.
TAILS = {
    "sine of thousands": "k = Constant<value_float = 3000.0>() a = Mul(r, k) y = Sin(a)",
    "reciprocal": "y = Reciprocal(r)",
    "logarithm": "a = Abs(r) y = Log(a)",
    "sharp softmax": "k = Constant<value_float = 5000.0>() a = Mul(r, k) y = Softmax<axis = 3>(a)",
    "steep sigmoid": "k = Constant<value_float = 9000.0>() a = Mul(r, k) y = Sigmoid(a)",
    "fraction": "k = Constant<value_float = 10000.0>() a = Mul(r, k) f = Floor(a) y = Sub(a, f)",
    "labels": "l = ArgMax<axis = 3>(r) y = Cast<to = 1>(l)",
    "steps": """sc = Constant<value_float = 0.00002>() zp = Constant<value = uint8 {128}>()
        q = QuantizeLinear(r, sc, zp) y = DequantizeLinear(q, sc, zp)""",
    "sampling": """t = Transpose<perm = [0, 3, 1, 2]>(r) from = Constant<value_ints = [0]>()
        to = Constant<value_ints = [2]>() ax = Constant<value_ints = [3]>()
        grid = Slice(r, from, to, ax) y = GridSample(t, grid)""",
    "chaos": "o = Constant<value_float = 1.0>() k = Constant<value_float = 3.9>() x0 = Sigmoid(r)"
    + "".join(
        f" m{i} = Sub(o, x{i}) n{i} = Mul(x{i}, m{i}) x{i + 1} = Mul(n{i}, k)" for i in range(20)
    )
    + " y = Identity(x20)",
}


def net(tail: str, shape: str = "1, 64, 48, 3") -> onnx.ModelProto:
    made = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17, "{TF}" : 1]>
        g (float[{shape}] x) => (float y)
        <int32[2] block = {{2, 2}}, int32[2,2] pads = {{2, 2, 2, 2}},
         int32[2,2] crops = {{0, 0, 0, 0}}> {{
            s = {TF}.SpaceToBatchND(x, block, pads)
            t1 = Transpose<perm = [0, 3, 1, 2]>(s)
            c = Conv<kernel_shape = [3, 3]>(t1, w, b)
            t2 = Transpose<perm = [0, 2, 3, 1]>(c)
            r = {TF}.BatchToSpaceND(t2, block, crops)
            {tail}
        }}"""
    )
    rng = np.random.default_rng(3)
    weights = {"w": rng.normal(0, 0.3, (5, 3, 3, 3)), "b": rng.normal(0, 0.1, 5)}
    for name, values in weights.items():
        made.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
    return made


def changed(model: onnx.ModelProto, name: str, factor: float) -> onnx.ModelProto:
    """The same with one weight times a factor."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    (tensor,) = (t for t in copy.graph.initializer if t.name == name)
    values = numpy_helper.to_array(tensor).copy()
    values.flat[values.size // 2] *= factor
    tensor.CopyFrom(numpy_helper.from_array(values, name))
    return copy


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS)
def test_no_right_conversion_is_refused_where_rounding_grows(tail: str) -> None:
    original = net(tail)
    result = onnx_spatial.convert(original)
    assert [n.op_type for n in result.model.graph.node].count("Conv") == 1
    assert result.verification.status == "passed", result.verification.message
    # And a weight that is wrong by a thousandth is still found.
    assert verify(original, changed(result.model, "w", 1.001)).status == "failed"


@pytest.mark.parametrize("tail", ["y = Reciprocal(r)", TAILS["sine of thousands"]])
def test_the_report_says_what_was_accepted_and_why(tail: str) -> None:
    found = onnx_spatial.convert(net(tail)).verification
    accepted = [o for o in found.outputs if o.accepted is not None]
    assert accepted and all(o.passed and o.max_relative_error > o.tolerance for o in accepted)
    assert all("rounding" in o.reason or "optimisations" in o.reason for o in accepted)
    assert "no more than rounding moves the original" in found.message
    assert {o["accepted"] for o in found.to_dict()["outputs"]} <= {
        None,
        "rounding",
        "optimised original",
    }


def behind_dequantised(reader: str) -> onnx.ModelProto:
    """A net with a weight of 8 bits behind an operator."""
    made = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17, "{TF}" : 1]>
        g (float[4, 6, 7, 3] x) => (float y)
        <int64[2] block = {{2, 2}}, int64[2,2] none = {{0, 0, 0, 0}}, float scale = {{0.01}}> {{
            z = {TF}.BatchToSpaceND(x, block, none)
            w = DequantizeLinear(w8, scale)
            {reader}
        }}"""
    )
    w8 = np.random.default_rng(5).integers(-128, 128, (3, 8), np.int8)
    made.graph.initializer.append(numpy_helper.from_array(w8, "w8"))
    return made


@pytest.mark.parametrize(
    "reader",
    [
        "y = MatMul(z, w)",
        "u = MatMul(x, w) m = ReduceMax<keepdims = 0>(u) v = MatMul(z, w) y = Add(v, m)",
    ],
)
def test_the_original_is_optimised_together_with_its_weights(reader: str) -> None:
    """onnxruntime's extended level makes one MatMulNBits, which is less precise, of both nodes."""
    original = behind_dequantised(reader)
    result = onnx_spatial.convert(original)
    assert result.verification.status == "passed", result.verification.message
    (w8,) = (t for t in original.graph.initializer if t.name == "w8")
    wrong = onnx.ModelProto.FromString(result.model.SerializeToString())
    (stored,) = (t for t in wrong.graph.initializer if t.name == "w8")
    values = numpy_helper.to_array(w8).copy()
    values[0, 0] ^= 1
    stored.CopyFrom(numpy_helper.from_array(values, "w8"))
    assert verify(original, wrong).status == "failed"
    slightly = onnx.ModelProto.FromString(result.model.SerializeToString())
    product = next(n for n in slightly.graph.node if n.op_type == "MatMul" and n.input[0] == "z")
    name, product.output[0] = product.output[0], "product"
    slightly.graph.initializer.append(numpy_helper.from_array(np.float32(1.001), "factor"))
    at = list(slightly.graph.node).index(product) + 1
    slightly.graph.node.insert(at, onnx.helper.make_node("Mul", ["product", "factor"], [name]))
    assert verify(original, slightly).status == "failed"


ALONE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,64] x) => (float[N,5] y) {
    k = Constant<value_float = 40000.0>() m = MatMul(x, w) a = Mul(m, k) y = Sin(a)
}"""


def unstable() -> onnx.ModelProto:
    made = parser.parse_model(ALONE)
    weights = np.random.default_rng(2).normal(0, 1, (64, 5)).astype(np.float32)
    made.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return made


def test_a_model_is_itself() -> None:
    """onnxruntime's optimiser rounds otherwise, in the original as well."""
    result = verify(unstable(), unstable())
    assert result, result.message


def test_a_wrong_weight_is_found_where_rounding_is_large() -> None:
    assert verify(unstable(), changed(unstable(), "w", 1.001)).status == "failed"


def test_initializers_that_may_be_fed_have_magnitudes_too() -> None:
    """Of IR 3, as PyTorch exported: every initializer is an input as well."""
    made = parser.parse_model("""<ir_version: 3, opset_import: ["" : 8]>
        g (float[2,4,6,6] x, float[4,1,3,3] w, float[4] b) => (float[2,4,4,4] y) {
            y = Conv<group = 4, kernel_shape = [3, 3]>(x, w, b)
        }""")
    rng = np.random.default_rng(1)
    for name, shape in (("w", (4, 1, 3, 3)), ("b", (4,))):
        # All negative: without their magnitudes those of the sums would cancel.
        values = -np.abs(rng.normal(0, 0.1, shape)).astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(values, name))
    result = verify(made, made)
    assert result, result.message
    assert all(o.max_ulps < 3 for o in result.outputs if o.max_ulps is not None)


def movement(expected: np.ndarray, *others: np.ndarray) -> Movement:
    found = Movement(expected)
    for other in others:
        found.add(other)
    return found


def test_a_difference_of_the_size_of_rounding_is_accepted() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(0, 1, 5000).astype(np.float32)
    moved = movement(y, *(y + rng.normal(0, 1e-4, y.shape).astype(np.float32) for _ in range(3)))
    noise = rng.normal(0, 1e-4, y.shape).astype(np.float32)
    assert moved.verdict(y + noise) is Verdict.ACCEPTED
    assert moved.verdict(y + 5 * noise) is Verdict.UNDECIDED
    assert moved.verdict(y + 1000 * noise) is Verdict.DIFFERS
    one = y.copy()
    one[7] += 0.1
    assert moved.verdict(one) is Verdict.DIFFERS


def test_what_moves_far_may_move_far_and_nothing_else() -> None:
    """Behind 1 / x: the elements that rounding moves by thousands are always the same."""
    rng = np.random.default_rng(0)
    y, wild = np.ones(5000, np.float32), np.arange(5000) < 40
    runs = [y + np.where(wild, rng.normal(0, 1e3, 5000), 0).astype(np.float32) for _ in range(3)]
    moved = movement(y, *runs)
    assert moved.verdict(y + np.where(wild, 900, 0).astype(np.float32)) is not Verdict.DIFFERS
    assert moved.verdict(y + np.where(wild, 0, 1e-3).astype(np.float32)) is Verdict.DIFFERS
    small = np.where(np.arange(5000) == 4000, np.float32(1), np.float32(0))
    assert moved.verdict(y + small, each=True) is Verdict.DIFFERS


def test_labels_jump_about_as_often_as_rounding_makes_them() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 21, 100_000)

    def jumped(count: int) -> np.ndarray:
        found = labels.copy()
        found[rng.permutation(labels.size)[:count]] += 1
        return found

    moved = movement(labels, jumped(20), jumped(30))
    assert moved.verdict(jumped(40)) is Verdict.ACCEPTED
    assert moved.verdict(jumped(300)) is Verdict.UNDECIDED
    assert moved.verdict(jumped(20_000)) is Verdict.DIFFERS
    assert movement(labels, labels).verdict(jumped(50)) is Verdict.DIFFERS


def test_an_output_that_is_nothing_but_rounding_decides_nothing() -> None:
    rng = np.random.default_rng(0)
    y, *others = (rng.uniform(-1, 1, 5000).astype(np.float32) for _ in range(5))
    assert movement(y, *others[:3]).verdict(others[3]) is Verdict.UNDECIDED


@pytest.mark.parametrize("kind", ["float", "float16", "double"])
def test_rounding_is_of_the_size_of_the_type(kind: str) -> None:
    text = f"""<ir_version: 9, opset_import: ["" : 18]>
        g ({kind}[N,64] x, bool on) => ({kind}[N,64] y, {kind}[N,64] moved, int64[2] size) {{
            m = MatMul(x, x)
            y = If (on) <
                then_branch = t () => ({kind}[N,64] a) {{ a = Tanh(m) }},
                else_branch = e () => ({kind}[N,64] b) {{ b = Neg(m) }}
            >
            moved = Transpose<perm = [1, 0]>(x)
            size = Shape(m)
        }}"""
    made = parser.parse_model(text)
    program = Program(made, [])
    dtype = {"float": np.float32, "float16": np.float16, "double": np.float64}[kind]
    x = np.random.default_rng(0).uniform(-1, 1, (64, 64)).astype(dtype)
    feeds = {"x": x, "on": np.array(True)}
    outputs = program.run(feeds)
    found = Rounding(program).of(feeds, outputs, optimised=False)
    epsilon = np.finfo(dtype).eps
    assert found["y"].runs == 3
    assert epsilon / 2 < found["y"].largest < 100 * epsilon
    assert found["moved"].largest == 0 and found["size"].changed == 0


def test_an_output_that_differs_in_every_run_is_told_once() -> None:
    original = net("y = Sin(r)", "N, H, W, 3")
    converted = onnx_spatial.convert(original, verify=False).model
    result = verify(original, changed(converted, "w", 1.5))
    wrong = [o for o in result.outputs if o.passed is False and not o.optimised]
    told = [p for p in result.problems if "output 'y'" in p]
    assert len(wrong) > 1 and len(told) == 1


def test_a_sequence_of_one_tensor_is_compared() -> None:
    made = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[4,4] x) => (seq(float[4,4]) y) { m = MatMul(x, x) y = SequenceConstruct(m) }""")
    result = verify(made, made)
    assert result and [o.name for o in result.outputs] == ["y[0]", "y[0]"]


def test_sizes_are_no_reals_that_follow_from_data() -> None:
    """What is computed from shapes with reals, as PyTorch exports it, stays as it is."""
    made = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[N,64] x) => (float[A,B] y) <float half = {0.5}, int64[1] one = {1},
            int64[1] zero = {0}, float k = {20000}> {
            s = Shape(x) f = Cast<to = 1>(s) h = Mul(f, half) d = Floor(h) n = Cast<to = 7>(d)
            rows = Slice(n, zero, one) part = Slice(x, zero, rows, zero)
            m = MatMul(part, w) a = Mul(m, k) y = Sin(a)
        }""")
    weights = np.random.default_rng(2).normal(0, 1, (64, 5)).astype(np.float32)
    made.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    x = np.random.default_rng(0).uniform(-1, 1, (10, 64)).astype(np.float32)
    program = Program(made, [])
    outputs = program.run({"x": x})
    found = Rounding(program).of({"x": x}, outputs, optimised=False)
    assert outputs["y"].shape == (5, 5) and found["y"].runs == 3 and found["y"].largest > 0


def test_a_region_left_open_by_rounding_is_decided_on_small_numbers() -> None:
    """Behind the sine of thousands nothing can be told; behind that of tenths it can."""
    original = net("k = Constant<value_float = 30000.0>() a = Mul(r, k) y = Sin(a)")
    text = original.SerializeToString()
    inside = onnx.ModelProto.FromString(text)
    names = {"r": "before", "y": "r"}
    sine = [n for n in inside.graph.node if n.op_type in ("Constant", "Mul", "Sin")]
    back = next(n for n in inside.graph.node if n.op_type == "BatchToSpaceND")
    for node in (*sine, back):
        del inside.graph.node[list(inside.graph.node).index(node)]
    sine[1].input[0], sine[2].output[0], back.input[0] = "t2", names["r"], names["r"]
    back.output[0] = "y"
    inside.graph.node.extend([*sine, back])
    result = onnx_spatial.convert(inside)
    assert [n.op_type for n in result.model.graph.node].count("Conv") == 1
    assert result.verification.status == "passed", result.verification.message
    assert verify(inside, changed(result.model, "w", 1.001)).status == "failed"


def test_a_few_jumps_where_none_was_measured() -> None:
    steps = np.full(20_000, 7, np.uint8)

    def jumped(count: int, size: int = steps.size) -> np.ndarray:
        return steps[:size] + (np.arange(size) < count).astype(np.uint8)

    assert movement(steps, steps, steps).verdict(jumped(3)) is Verdict.ACCEPTED
    assert movement(steps, steps, steps).verdict(jumped(9)) is Verdict.DIFFERS
    few = steps[:400]
    assert movement(few, few, few).verdict(jumped(1, 400)) is Verdict.UNDECIDED
    assert movement(few, few, few).verdict(jumped(3, 400)) is Verdict.DIFFERS


#: Behind patches with a MatMul, which become one convolution.
STEPS = {
    "steps": "uint8 y) { q = QuantizeLinear(m, scale, zero) y = Identity(q)",
    "product of steps": "int32 y) { q = QuantizeLinear(m, scale, zero) y = MatMulInteger(q, v, zero)",
    "real steps": "float y) { q = QuantizeLinear(m, scale, zero) y = DequantizeLinear(q, scale, zero)",
}


def patches(tail: str, seed: int) -> onnx.ModelProto:
    output, nodes = tail.split(") {")
    made = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 17, "{TF}" : 1]>
        g (float[2,6,64,8] x) => ({output})
        <float scale = {{0.02}}, uint8 zero = {{128}}> {{
            p = {TF}.ExtractImagePatches<ksizes = [1, 3, 3, 1], strides = [1, 1, 1, 1],
                rates = [1, 1, 1, 1], padding = "SAME">(x)
            m = MatMul(p, w) {nodes}
        }}""")
    rng = np.random.default_rng(seed)
    weights = rng.normal(0, 0.2, (72, 64)).astype(np.float32)
    stored = {"w": weights, "v": rng.integers(-100, 100, (64, 8)).astype(np.int8)}
    for name, values in stored.items():
        made.graph.initializer.append(numpy_helper.from_array(values, name))
    return made


@pytest.mark.parametrize("tail", STEPS.values(), ids=STEPS)
def test_steps_behind_a_region_of_reals_may_flip(tail: str) -> None:
    original = patches(tail, seed=3)  # of which one flips, with optimisations off
    result = onnx_spatial.convert(original, verify=onnx_spatial.VerifyOptions(seed=3))
    assert result.verification.status == "passed", result.verification.message
    assert "Conv" in [n.op_type for n in result.model.graph.node]
    name = max(result.model.graph.initializer, key=lambda t: len(t.raw_data)).name
    assert verify(original, changed(result.model, name, 1.01)).status == "failed"


@pytest.mark.parametrize("op", ["ReduceL2", "ReduceSumSquare"])
def test_a_sum_of_a_million(op: str) -> None:
    """The more terms, the further two orders of them are apart."""
    result = onnx_spatial.convert(net(f"y = {op}<axes = [1, 2, 3]>(r)", "1, 512, 410, 3"))
    assert result.verification.status == "passed", result.verification.message


QUARTER = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,8] x) => (float[N,8] y) {{
    k = Constant<value_float = 0.25>() a = Mul(x, k) {} y = Add(r, x)
}}"""
#: Of halves it makes the next number away from zero.
HALF_AWAY = """h = Constant<value_float = 0.5>()
    s = Sign(a) b = Abs(a) c = Add(b, h) f = Floor(c) r = Mul(s, f)"""


def test_a_power_of_two_rounds_nothing() -> None:
    """A quarter of a number is a tie in any form, so rounding does not explain where it goes."""
    before = parser.parse_model(QUARTER.format("r = Round(a)"))
    assert verify(before, parser.parse_model(QUARTER.format(HALF_AWAY))).status == "failed"
    assert verify(before, parser.parse_model(QUARTER.format("n = Neg(a) m = Round(n) r = Neg(m)")))


def test_an_element_that_one_run_moves_alone_excuses_no_other() -> None:
    y = np.ones(5000, np.float32)
    alone, wrong, close = y.copy(), y.copy(), y.copy()
    alone[0] += 1e-3
    wrong[1] += 0.3
    close[1] += 2e-3
    moved = movement(y, alone, y, y)
    assert moved.verdict(wrong, each=True) is Verdict.DIFFERS
    assert moved.verdict(close, each=True) is Verdict.ACCEPTED
