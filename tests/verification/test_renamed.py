"""A converted model whose inner values have fresh names is compared value by value all the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from adapter import verify
from hand_lowered import model

import onnx_spatial
from onnx_spatial.model import traversal

NET = """
    g (float[N,3,H,W] x) => (float[N,4,C,D] y)
      <float[4,1,1] s = {S}, float[4,1,1] t = {1, 2, 3, 4},
       float[4,1,1] big = {9, 9, 9, 9}>
    { c = Conv(x, w) m = Mul(c, s) a = Add(m, t) r = Relu(a) d = Conv(r, v) p = Tanh(d) q = Sigmoid(d)
      e = Add(p, q) k = Mul(r, big) y = Add(e, k) }
"""
SCALES, WRONG = "1.5, 2, 0.5, 0.25", "1.5, 2, 0.5, 0.2501"


def net(scales: str = SCALES) -> onnx.ModelProto:
    made = model(NET.replace("{S}", f"{{{scales}}}"))
    rng = np.random.default_rng(0)
    for name, shape in (("w", (4, 3, 3, 3)), ("v", (4, 4, 1, 1))):
        tensor = onnx.numpy_helper.from_array(rng.standard_normal(shape, np.float32), name)
        made.graph.initializer.append(tensor)
    return made


def renamed(made: onnx.ModelProto) -> onnx.ModelProto:
    """Number all values but inputs and outputs of the model, also inside of graphs."""
    copy = onnx.ModelProto.FromString(made.SerializeToString())
    kept = {v.name for v in (*copy.graph.input, *copy.graph.output)} | {""}
    names: dict[str, str] = {}

    def new(name: str) -> str:
        return name if name in kept else names.setdefault(name, f"v{len(names)}")

    for _, graph in traversal.graphs(copy):
        del graph.value_info[:]
        for node in graph.node:
            node.input[:], node.output[:] = map(new, node.input), map(new, node.output)
            node.name = ""
        for value in (*graph.input, *graph.output, *graph.initializer):
            value.name = new(value.name)
    return copy


def node(made: onnx.ModelProto, op_type: str, output: str) -> onnx.NodeProto:
    (only,) = (n for n in made.graph.node if n.op_type == op_type and n.output[0] == output)
    return only


def test_the_same_model() -> None:
    result = verify(net(), renamed(net()))
    assert result
    assert not result.sampled


def test_a_wrong_weight_is_found_where_it_is() -> None:
    result = verify(net(), renamed(net(WRONG)))
    assert result.status == "failed"
    changed = [line for line in result.problems if "was changed" in line]
    assert len(changed) == 1
    assert changed[0].startswith("Mul node '<m>' (main graph)")


def test_swapped_inputs_are_the_same() -> None:
    made = net()
    for output in ("m", "a", "e", "y"):
        (each,) = (n for n in made.graph.node if n.output[0] == output)
        each.input[:] = list(each.input)[::-1]
    assert verify(net(), renamed(made))


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (1.001, False)])
def test_a_scale_that_was_folded_into_the_weight(factor: float, passes: bool) -> None:
    """The convolution is no longer that of the original: its output has no counterpart."""
    made = net()
    weight, scale = (next(t for t in made.graph.initializer if t.name == n) for n in "ws")
    folded = onnx.numpy_helper.to_array(weight) * onnx.numpy_helper.to_array(scale)[..., None]
    folded[3] *= factor
    weight.CopyFrom(onnx.numpy_helper.from_array(folded, "w"))
    made.graph.node.remove(node(made, "Mul", "m"))
    node(made, "Add", "a").input[0] = "c"
    result = verify(net(), renamed(made))
    assert bool(result) is passes, result.message
    assert (result.status == "failed") is not passes


def test_an_operator_is_compared_on_its_own() -> None:
    text = """
        g (float[N,5,6,3] x) => (float[P,Q,R,S] y)
          <int32[2] block = {2, 3}, int32[2,2] pads = {1, 2, 0, 3}>
        { a = Tanh(x) b = tf.SpaceToBatchND(a, block, pads) y = Abs(b) }
    """
    before = model(text)
    after = renamed(onnx_spatial.convert(before, verify=False).model)
    result = verify(before, after)
    assert result
    assert result.operators[0].exact
    (transpose,) = (n for n in after.graph.node if n.op_type == "Transpose")
    transpose.attribute[0].ints[:] = [4, 2, 0, 1, 3, 5]
    assert verify(before, after).status == "failed"


BRANCH = """
    g (float[N,3,4] x) => (float[N,3,4] y) <int64 none = {0}>
    {
        sizes = Shape(x) least = ReduceMin<keepdims = 0>(sizes) usual = GreaterOrEqual(least, none)
        z = If (usual) <
            then_branch = then () => (float[N,3,4] a) { a = Identity(x) },
            else_branch = els () => (float[N,3,4] b) { c = Tanh(x) b = OP(c) }
        >
        y = Neg(z)
    }
"""


def test_a_branch_that_no_run_takes() -> None:
    before = model(BRANCH.replace("OP", "Abs"))
    assert verify(before, renamed(before))
    result = verify(before, renamed(model(BRANCH.replace("OP", "Neg"))))
    assert result.status == "failed"
    assert "Abs node '<b>' (main graph > If z.else_branch) was changed" in result.message
