"""`optimize` removes changes of layout between convolutions, where nothing else is fused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import running
from onnx import numpy_helper, parser

import onnx_spatial
from onnx_spatial.conversion.graph_editor import number_of_changes, remove_layout_changes

RNG = np.random.default_rng(4)


def causal(x: str, y: str, pads: str) -> str:
    """A causal convolution of signals [batch, time, channels] and a Relu, as exporters write them."""
    return f"""
        {y}_p = Pad({x}, {pads})
        {y}_u = Unsqueeze({y}_p, one)
        {y}_t = Transpose <perm = [0, 3, 1, 2]> ({y}_u)
        {y}_c = Conv <dilations = [1, 2]> ({y}_t, w)
        {y}_q = Squeeze({y}_c, two)
        {y}_b = Transpose <perm = [0, 2, 1]> ({y}_q)
        {y}_a = Add({y}_b, bias)
        {y} = Relu({y}_a)
    """


def model(body: str, ir: int = 9) -> onnx.ModelProto:
    head = f'<ir_version: {ir}, opset_import: ["" : 17]>'
    made = parser.parse_model(f"{head} g (float[N,L,4] x) => (float[N,?,?] y) {{ {body} }}")
    arrays = {
        "one": np.array([1]),
        "two": np.array([2]),
        "pads": np.array([0, 4, 0, 0, 0, 0]),
        "w": RNG.normal(size=(4, 4, 1, 3)).astype(np.float32),
        "bias": RNG.normal(size=4).astype(np.float32),
    }
    read = {name for node in made.graph.node for name in node.input}
    for name in sorted(read & arrays.keys()):
        made.graph.initializer.append(numpy_helper.from_array(arrays[name], name))
    return made


def residual(blocks: int) -> str:
    """Blocks of two causal convolutions with an Add around them."""
    body, x = "", "x"
    for block in range(blocks):
        name = f"b{block}"
        body += causal(x, f"{name}_1", "pads") + causal(f"{name}_1", f"{name}_2", "pads")
        y = "y" if block == blocks - 1 else name
        body += f"{y} = Add({name}_2, {x})\n"
        x = y
    return body


def test_residual_adds_of_a_tcn():
    given = model(residual(3))
    result = onnx_spatial.optimize(given)
    made = result.model
    assert (number_of_changes(given), number_of_changes(made)) == (24, 4)
    assert result.verification
    for shape in ((1, 1, 4), (3, 17, 4)):
        x = RNG.normal(size=shape).astype(np.float32)
        (expected,), (actual,) = running.run(given, {"x": x}), running.run(made, {"x": x})
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)
    assert "20 changes of layout removed" in result.summary.text
    assert onnx_spatial.optimize(made).changed is False


def test_convert_leaves_them():
    assert not onnx_spatial.convert(model(residual(2))).changed


@pytest.mark.parametrize(
    "body",
    [
        # One layer alone has no change too many, and MatMul sums along the last axis.
        causal("x", "y", "pads").replace("y_a = Add(y_b, bias)", "y_a = Neg(y_b)"),
        """t = Transpose <perm = [0, 2, 1]> (x)
           m = MatMul(t, x)
           y = Transpose <perm = [0, 2, 1]> (m)""",
    ],
)
def test_nothing_to_remove(body):
    given = model(body)
    assert remove_layout_changes(given) is None
    assert not onnx_spatial.optimize(given).changed


def test_bodies_of_if():
    given = model(
        f"""n = Size(x)
            limit = Constant <value_int = 100> ()
            c = Greater(n, limit)
            y = If(c) <
              then_branch = a () => (float[N,?,?] y_then) {{ {residual(2).replace("y =", "y_then =")} }},
              else_branch = b () => (float[N,?,?] y_else) {{ y_else = Identity(x) }}
            >"""
    )
    arrays = model(residual(1)).graph.initializer
    given.graph.initializer.extend(arrays)
    made = onnx_spatial.optimize(given).model
    assert number_of_changes(made) == 4
    for length in (3, 40):
        x = RNG.normal(size=(1, length, 4)).astype(np.float32)
        (expected,), (actual,) = running.run(given, {"x": x}), running.run(made, {"x": x})
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)
