"""Names of inner values are hints: one that means something else is no difference."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from adapter import verify
from hand_lowered import TF, model
from onnx import numpy_helper

import onnx_spatial
from onnx_spatial import Verification

RNG = np.random.default_rng(5)
WEIGHTS = RNG.normal(0, 0.3, (5, 3, 3, 3)).astype(np.float32)
SCALE, SHIFT, MEAN = (RNG.normal(1, 0.3, 5).astype(np.float32) for _ in range(3))
VARIANCE = RNG.uniform(0.5, 2, 5).astype(np.float32)

NET = """
    g (float[1,16,12,3] x) => (float[1,A,B,C] y)
      <int32[2] block = {2, 2}, int32[2,2] pads = {2, 2, 2, 2}, int32[2,2] crops = {0, 0, 0, 0}>
    { BODY }
"""
CONV = (
    "t = Transpose<perm = [0, 3, 1, 2]>(s) c = Conv<kernel_shape = [3, 3]>(t, w, b) FOLDED "
    "u = Transpose<perm = [0, 2, 3, 1]>(r)"
)
SPATIAL = f"s = tf.SpaceToBatchND(x, block, pads) {CONV} z = tf.BatchToSpaceND(u, block, crops)"


def net(body: str, **stored: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> onnx.ModelProto:
    made = model(NET.replace("BODY", body))
    for name, values in stored.items():
        made.graph.initializer.append(numpy_helper.from_array(values, name))
    return made


def normalised() -> onnx.ModelProto:
    """A net with a BatchNormalization behind its Conv."""
    body = SPATIAL.replace(
        "FOLDED", "n = BatchNormalization(c, gamma, beta, mean, var) r = Relu(n)"
    )
    zero = np.zeros(5, np.float32)
    return net(
        f"{body} y = Identity(z)",
        w=WEIGHTS,
        b=zero,
        gamma=SCALE,
        beta=SHIFT,
        mean=MEAN,
        var=VARIANCE,
    )


def folded(kept: str, error: float = 1.0) -> onnx.ModelProto:
    """The same with the normalisation in the weights; the folded value has the name `kept`."""
    scale = SCALE.astype(np.float64)
    scale[2] *= error
    scale /= np.sqrt(VARIANCE + 1e-5)
    weights = (WEIGHTS * scale[:, None, None, None]).astype(np.float32)
    bias = (SHIFT - MEAN * scale).astype(np.float32)
    body = SPATIAL.replace("FOLDED", "r = Relu(c)").replace("c = ", f"{kept} = ")
    return net(f"{body} y = Identity(z)".replace("Relu(c)", f"Relu({kept})"), w=weights, b=bias)


def converted(source: onnx.ModelProto, *, fuse: bool = True) -> onnx.ModelProto:
    return onnx_spatial.convert(source, fuse=fuse, verify=False).model


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("kept", ["c", "n"])
def test_a_normalisation_folded_into_its_convolution(kept: str, fuse: bool) -> None:
    for before, after in ((normalised(), folded(kept)), (folded(kept), normalised())):
        result = verify(before, converted(after, fuse=fuse))
        assert result.status == "passed", result.message
    wrong = converted(folded(kept, 1.01), fuse=fuse)
    assert verify(normalised(), wrong).status == "failed"


def counted(before: int, error: float = 1.0) -> onnx.ModelProto:
    """A net whose values are counted, with so many pairs of Transposes in front."""
    count = iter(range(1, 100))
    lines, value = [], "x"
    for op in (*["Transpose<perm = [0, 2, 1, 3]>"] * (2 * before), "Relu", "S2B", "B2S", "Tanh"):
        name = f"v{next(count)}"
        call = {
            "S2B": "tf.SpaceToBatchND({0}, block, pads)",
            "B2S": "tf.BatchToSpaceND({0}, block, crops)",
        }.get(op, op + "({0})")
        lines.append(f"{name} = {call.format(value)}")
        value = name
    text = f"{' '.join(lines)} k = Constant<value_float = {error}>() y = Mul({value}, k)"
    return net(text)


@pytest.mark.parametrize("fuse", [True, False])
def test_values_counted_anew(fuse: bool) -> None:
    for before, after in ((0, 1), (1, 0), (0, 2)):
        result = verify(counted(before), converted(counted(after), fuse=fuse))
        assert result.status == "passed", result.message
    wrong = converted(counted(1, 1.001), fuse=fuse)
    assert verify(counted(0), wrong).status == "failed"


def reused(op: str) -> onnx.ModelProto:
    """The lowered operator's name is that of a transposed value."""
    made = converted(net("z = tf.SpaceToBatchND(x, block, pads) y = Relu(z)"), fuse=False)
    *nodes, relu = list(made.graph.node)
    for node in nodes:
        node.output[:] = ["lowered" if name == "z" else name for name in node.output]
    assert list(relu.input) == ["z"]
    del made.graph.node[:]
    make, perm = onnx.helper.make_node, [0, 2, 1, 3]
    nodes.append(make("Transpose", ["lowered"], ["z"], perm=perm))
    nodes.append(make("Transpose", ["z"], ["again"], perm=perm))
    nodes.append(make(op, ["again"], ["y"]))
    made.graph.node.extend(nodes)
    del made.graph.value_info[:]
    return made


def test_the_name_of_an_operator_used_again() -> None:
    before = net("z = tf.SpaceToBatchND(x, block, pads) y = Relu(z)")
    result = verify(before, reused("Relu"))
    assert result.status == "passed", result.message
    assert verify(before, reused("LeakyRelu")).status == "failed"


PAIR = "p = Sigmoid(x) q = Tanh(x) y = Sub(p, q)"


def test_two_names_swapped() -> None:
    assert verify(net(PAIR), net("q = Sigmoid(x) p = Tanh(x) y = Sub(q, p)")).status == "passed"
    assert verify(net(PAIR), net("q = Sigmoid(x) p = Tanh(x) y = Sub(p, q)")).status == "failed"


def hides(front: str) -> Verification:
    text = "y = Clip(a, zero, one)"
    ends = "zero = Constant<value_float = 0.0>() one = Constant<value_float = 1.0>()"
    return verify(net(f"{ends} a = Relu(x) {text}"), net(f"{ends} {front} {text}"))


def test_a_difference_that_a_later_node_hides() -> None:
    """Both models use the value in the same way: doubt, where no output can show it."""
    result = hides("a = Identity(x)")
    assert result.status == "unverified"
    assert "value 'a' differs, but no output shows it" in result.message
    assert hides("k = Constant<value_float = 0.25>() a = Min(x, k)").status == "failed"


def test_an_operator_that_is_wrong_where_the_whole_does_not_run() -> None:
    """It has the same values in an ordinary run: its name means the same."""
    front = f"s = {TF}.SpaceToBatchND(x, block, pads) a = Tanh(s)"
    before = model(NET.replace("1,16,12,3", "N,4,4,3").replace("BODY", f"{front} y = Exp(a)"))
    wrong = converted(before, fuse=False)
    nodes = list(wrong.graph.node)
    position = next(i for i, n in enumerate(nodes) if "s" in n.output)
    nodes[position].output[0] = "long"
    kept = onnx.helper.make_node("Slice", ["long", "from", "to", "axis"], ["s"])
    nodes.insert(position + 1, kept)
    del wrong.graph.node[:]
    wrong.graph.node.extend(nodes)
    for name, value in (("from", 0), ("to", 40), ("axis", 0)):
        wrong.graph.initializer.append(numpy_helper.from_array(np.array([value]), name))
    result = verify(before, wrong)
    assert result.status == "failed"
    assert result.first_difference is not None and result.first_difference.kind == "operator"


TURNED = {
    "of another type": ("ArgMax<axis = 3>({0})", "Cast<to = 1>({1})"),
    "of another shape": ("Transpose<perm = [0, 3, 2, 1]>({0})", "Conv({1}, w)"),
    "read with another": ("ReduceMean<axes = [3]>({0})", "Sub({0}, {1})"),
    "limited later": ("Clip({0}, zero, one)", "Exp({1})"),
}


def turned(behind: tuple[str, str], names: tuple[str, str], error: float = 1.0) -> onnx.ModelProto:
    """A net with two values of these names behind each other, and its result times `error`."""
    lines = (
        f"zero = Constant<value_float = 0.0>() one = Constant<value_float = 1.0>() "
        f"k = Constant<value_float = {error}>() {names[0]} = tf.SpaceToBatchND(x, block, pads) "
        f"{names[1]} = {behind[0]} e = {behind[1]} y = Mul(e, k)"
    )
    return net(lines.format(*names), w=WEIGHTS[:, :, :1, :1])


@pytest.mark.parametrize("behind", TURNED.values(), ids=TURNED)
def test_the_name_of_a_value_for_the_one_before(behind: tuple[str, str]) -> None:
    """An output that is computed from it in another way does not show that it means the same."""
    before = turned(behind, ("s", "a"))
    result = verify(before, converted(turned(behind, ("a", "own")), fuse=False))
    assert result.status == "passed", result.message
    wrong = converted(turned(behind, ("a", "own"), 1.001), fuse=False)
    assert verify(before, wrong).status == "failed"
