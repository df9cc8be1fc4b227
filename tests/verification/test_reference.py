"""The reference in double precision, and the magnitudes that errors are judged by."""

from __future__ import annotations

import importlib

import numpy as np
import onnx
import pytest
from hand_lowered import model

from onnx_spatial.model import traversal
from onnx_spatial.verification.compare import to_float64
from onnx_spatial.verification.compare.error_bounds import magnitudes
from onnx_spatial.verification.compare.exactness import Exactness
from onnx_spatial.verification.compare.reference import Expected
from onnx_spatial.verification.runtime.numpy_conv import run_node
from onnx_spatial.verification.runtime.program import Program

#: One line each, of x [N,2,H,W] and constants that are negative somewhere.
ARITHMETIC = [
    "y = Conv(x, w, b)",
    "y = ConvTranspose(x, w, b)",
    "y = Add(x, p)",
    "y = Add(p, x)",
    "y = Sub(x, p)",
    "y = Sub(p, x)",
    "y = Mul(x, p)",
    "y = Div(x, p)",
    "y = Sum(x, p, x)",
    "y = Max(x, p)",
    "y = Min(x, p)",
    "y = PRelu(x, p)",
    "y = BatchNormalization(x, b, b, b, v)",
    "y = MaxPool<kernel_shape = [2, 2]>(x)",
    "y = AveragePool<kernel_shape = [2, 2]>(x)",
    "y = MatMul(x, m)",
    "y = Where(some, x, p)",
    "k = Shape(x)\n e = Expand(p, k)\n y = Concat<axis = 1>(e, x)",
    "y = Sigmoid(x)",
    "y = Tanh(x)",
    "y = Relu(x)",
    "y = LeakyRelu(x)",
    "y = Softplus(x)",
    "y = Neg(x)",
    "k = Shape(x)\n a = Sub(x, p)\n b2 = Mul(a, x)\n c = Reshape(b2, k)\n y = Transpose(c)",
    "t = Transpose<perm = [0, 2, 3, 1]>(x)\n s = tf.SpaceToBatchND(t, block, none)\n y = Sub(s, b)",
]
CONSTANTS = """
    float[2,2,1,1] w = {0.5, -2, 3, -0.25}, float[2] b = {-1.5, 0.75}, float[2] v = {0.5, 2},
    float[1,2,1,1] p = {-3, 0.5}, float[4,2] m = {1, -1, 2, -2, 0.5, -3, 0.1, -0.7}, bool some = {1},
    int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}
"""


def text(body: str) -> onnx.ModelProto:
    return model(f"g (float[N,2,H,W] x) => (float[A,B,C,D] y) <{CONSTANTS}> {{ {body} }}")


def sites_of(found: onnx.ModelProto) -> list[int]:
    nodes = enumerate(traversal.nodes(found))
    return [i for i, (_, _, n) in nodes if n.op_type == "SpaceToBatchND"]


@pytest.mark.parametrize("body", ARITHMETIC)
def test_magnitudes_bound_the_values_and_their_errors(body: str) -> None:
    parsed = text(body)
    rng = np.random.default_rng(3)
    x = rng.standard_normal((3, 2, 4, 4)).astype(np.float32)
    wide = to_float64.doubled(parsed, "")
    kernels = {"Conv": run_node}
    precise = Program(wide, sites_of(wide), kernels=kernels).run({"x": x.astype(float)})["y"]
    found = magnitudes(wide, sites_of(wide))
    assert found is not None
    size = Program(found[0], found[1], kernels=kernels).run({"x": np.abs(x.astype(float))})["y"]
    assert precise.dtype == size.dtype == np.float64
    assert size.shape == precise.shape
    assert (np.abs(precise) <= size * (1 + 1e-12)).all()
    # What one rounding of each input does is at most a unit of the magnitude, or a few.
    moved = x * (1 + 2.0**-23 * rng.choice([-1, 1], x.shape))
    other = Program(wide, sites_of(wide), kernels=kernels).run({"x": moved})["y"]
    assert (np.abs(other - precise) <= 4 * 2.0**-23 * size).all()


@pytest.mark.parametrize(
    "body", ["y = Softmax(x)", "y = Div(p, x)", "y = Exp(x)", "y = loc.Own(x)", "y = Pow(x, p)"]
)
def test_operators_without_a_rule(body: str) -> None:
    assert magnitudes(to_float64.doubled(text(body), ""), []) is None


def test_everything_is_made_double() -> None:
    parsed = model("""
        g (float16[N] x, float[N] z, int64[N] i) => (float[N] y)
        {
            s = Shape(x)
            c = ConstantOfShape(s)
            d = ConstantOfShape<value = float16[1] {2}>(s)
            e = Constant<value_float = 0.5>()
            f = Cast<to = 1>(x)
            j = Cast<to = 1>(i)
            y = Sum(f, z, c, e, j)
        }""")
    tenth = onnx.numpy_helper.from_array(np.array(0.1, np.float16), "a")
    parsed.graph.initializer.append(tenth)
    before = parsed.SerializeToString()
    wide = to_float64.doubled(parsed, "")
    assert parsed.SerializeToString() == before
    assert [v.type.tensor_type.elem_type for v in wide.graph.input] == [11, 11, 7]
    assert {t.data_type for t in traversal.tensors(wide)} == {11}
    # 0.1 in half precision, not 0.1
    assert onnx.numpy_helper.to_array(wide.graph.initializer[0]) == np.float64(np.float16(0.1))
    feeds = {"x": np.array([0.1]), "z": np.array([0.2]), "i": np.array([3], np.int64)}
    found = Program(wide, []).run(feeds)["y"]
    assert found.dtype == np.float64
    assert found[0] == pytest.approx(3.8, abs=1e-15)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("q = QuantizeLinear(x, s, z)\n y = DequantizeLinear(q, s, z)", "QuantizeLinear"),
        ("i = Cast<to = 7>(x)\n y = Cast<to = 1>(i)", "Cast"),
        ("y = Round(x)", "Round"),
        ("g = Greater(x, p)\n y = Where(g, x, p)", "Greater"),
        ("y = RandomNormalLike(x)", "RandomNormalLike"),
        (
            "i = Identity(x)\n g = Greater(i, p)\n y = If (g) <then_branch = a () => (float t) "
            "{ t = Floor(x) }, else_branch = b () => (float t) { t = Neg(x) }>",
            "Greater",
        ),
    ],
)
def test_what_has_steps(body: str, reason: str) -> None:
    parsed = model(
        f"g (float[N] x) => (float[N] y) <float p = {{1}}, float s = {{1}}, "
        f"uint8 z = {{0}}> {{ {body} }}"
    )
    assert str(to_float64.obstacle(parsed)).startswith(reason)


def test_steps_of_sizes_are_none_of_data() -> None:
    parsed = model("""
        g (float[N] x) => (float[N] y) <float two = {2}>
        {
            s = Shape(x)
            f = Cast<to = 1>(s)
            h = Div(f, two)
            u = Ceil(h)
            i = Cast<to = 7>(u)
            e = Expand(x, i)
            y = Relu(e)
        }""")
    assert to_float64.obstacle(parsed) is None


def expected(own: list[float], precise: list[float], unit: float) -> Expected:
    exactness = Exactness(arithmetic=True)
    return Expected(np.array(own, np.float32), exactness, np.array(precise), unit, ulps=4)


@pytest.mark.parametrize(
    ("actual", "mismatches"),
    [
        ([1, 0, np.inf], 0),
        ([1 + 3e-6, 4e-6, np.inf], 0),
        ([1 + 5e-6, 0, np.inf], 1),
        ([1, np.nan, np.inf], 1),
        ([1, 0, 3e38], 1),
        ([np.inf, 0, -np.inf], 2),
    ],
)
def test_the_verdict(actual: list[float], mismatches: int) -> None:
    """1e60 is infinite in float32, and so it has to be."""
    wanted = expected([1, 0, np.inf], [1, 0, 1e60], 1e-6)
    x = np.zeros(3, np.float32)
    check = wanted.check("isolated", True, x, np.array(actual, np.float32))
    assert (check.mismatches, check.passed) == (mismatches, mismatches == 0)
    assert not check.exact


def test_a_unit_that_is_not_known_lets_nothing_pass() -> None:
    wanted = expected([1], [1], np.nan)
    x = np.zeros(1, np.float32)
    assert wanted.check("isolated", True, x, np.ones(1, np.float32)).passed
    assert not wanted.check("isolated", True, x, np.full(1, 1.5, np.float32)).passed


def test_the_shortest_type() -> None:
    short = model("g (float[N] x) => (float[N] y) { h = Cast<to = 10>(x)\n y = Cast<to = 1>(h) }")
    plain = model("g (float[N] x) => (float[N] y) { y = Neg(x) }")
    whole = model("g (int64[N] x) => (int64[N] y) { y = Neg(x) }")
    assert to_float64.coarsest([plain, short]) == 2.0**-10
    assert to_float64.coarsest([plain, whole]) == 2.0**-23
    assert to_float64.coarsest([whole]) is None


def test_very_large_data_is_compared_in_its_own_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Double precision of a volume of 128 x 128 x 128 voxels takes gigabytes."""
    reference = importlib.import_module("onnx_spatial.verification.compare.reference")
    made = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[N,64] x) => (float[N,64] y) { y = MatMul(x, x) }"""
    )
    x = np.random.default_rng(0).uniform(-1, 1, (64, 64)).astype(np.float32)
    program = Program(made, [])
    own = program.run({"x": x})["y"]
    known = reference.Reference(program, "y", 2.0**-23)
    assert known.expected({"x": x}, own).precise is not None
    monkeypatch.setattr(reference, "MOST_ELEMENTS", x.size)
    assert known.expected({"x": x}, own).precise is None
    assert known.obstacle == "its data is very large"


def test_the_parts_of_a_model_share_what_double_precision_may_take() -> None:
    reference = importlib.import_module("onnx_spatial.verification.compare.reference")
    made = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[N,8] x) => (float[N,8] y) { y = MatMul(x, x) }"""
    )
    x = np.ones((8, 8), np.float32)
    program = Program(made, [])
    own, budget = program.run({"x": x})["y"], reference.Budget()
    parts = [reference.Reference(program, "y", 2.0**-23, budget) for _ in range(2)]
    assert parts[0].expected({"x": x}, own).precise is not None
    assert 0 < budget.left < reference.SECONDS
    budget.left = 0.0
    assert all(part.expected({"x": x}, own).precise is None for part in parts)
