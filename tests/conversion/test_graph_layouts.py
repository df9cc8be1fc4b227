"""`optimize` removes changes of layout between convolutions; of a large model only parts are edited."""

from __future__ import annotations

import numpy as np
import onnx
import parsing
import pytest
import running
from onnx import numpy_helper, parser

import onnx_spatial
from onnx_spatial.conversion.graph_layouts import number_of_changes, remove_layout_changes
from onnx_spatial.model.graph import part
from tests.running import run

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


def layered(body: str, ir: int = 9) -> onnx.ModelProto:
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
    given = layered(residual(3))
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
    assert not onnx_spatial.convert(given).changed


def test_a_change_in_front_of_a_sum_along_its_axis_stays():
    given = layered("""t = Transpose <perm = [0, 2, 1]> (x) m = MatMul(t, x)
        y = Transpose <perm = [0, 2, 1]> (m)""")
    assert remove_layout_changes(given) is None
    assert not onnx_spatial.optimize(given).changed


def test_bodies_of_if():
    given = layered(
        f"""n = Size(x)
            limit = Constant <value_int = 100> ()
            c = Greater(n, limit)
            y = If(c) <
              then_branch = a () => (float[N,?,?] y_then) {{ {residual(2).replace("y =", "y_then =")} }},
              else_branch = b () => (float[N,?,?] y_else) {{ y_else = Identity(x) }}
            >"""
    )
    arrays = layered(residual(1)).graph.initializer
    given.graph.initializer.extend(arrays)
    made = onnx_spatial.optimize(given).model
    assert number_of_changes(made) == 4
    for length in (3, 40):
        x = RNG.normal(size=(1, length, 4)).astype(np.float32)
        (expected,), (actual,) = running.run(given, {"x": x}), running.run(made, {"x": x})
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)


# Of a large model only the part around the operators is edited; the rest keeps its place and bytes


def interleaved(seed: int, convolutions: int, count: int = 150) -> onnx.ModelProto:
    """Sums of earlier values, with dilated convolutions among them; any value may be read late."""
    rng = np.random.default_rng(seed)
    lines, values, number = [], ["x"], iter(range(1000))

    def add(node: str) -> str:
        lines.append(f"[n{(n := next(number))}] n{n} = {node}")
        return f"n{n}"

    for index in range(count):
        a, b = (values[-1 - min(len(values) - 1, int(rng.geometric(0.3)) - 1)] for _ in "ab")
        if index % 40 == 20:
            value = add(f"M.SpaceToBatchND ({a}, block, pads)")
            if not convolutions:
                add(f"Neg ({value})")  # the pair around it computes nothing, but its value is read
            for _ in range(convolutions):
                value = add(f"Conv <kernel_shape = [1, 3], pads = [0, 1, 0, 1]> ({value}, w)")
            values.append(add(f"M.BatchToSpaceND ({value}, block, pads)"))
        else:
            values.append(add(f"{'Max' if index % 2 else 'Add'} ({a}, {b})"))
    made = parsing.model(f"""g (float[1,3,4,W] x)
        => (float[?,?,?,?] {values[-1]}, float[?,?,?,?] {values[7]})
        <int64[2] block = {{1, 2}}, int64[2,2] pads = {{0, 0, 0, 0}}> {{ {" ".join(lines)} }}""")
    w = rng.uniform(0, 0.5, (3, 3, 1, 3)).astype(np.float32)
    made.graph.initializer.append(numpy_helper.from_array(w, "w"))
    return made


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("distance", "convolutions", "fuse"), [(0, 0, True), (0, 1, False), (4, 1, True), (2, 6, True)]
)
def test_nodes_far_from_operators_keep_their_order_and_the_result_is_that_of_the_whole(
    seed: int, distance: int, convolutions: int, fuse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = interleaved(seed, convolutions)
    whole = onnx_spatial.convert(model, fuse=fuse, verify=False).model
    monkeypatch.setattr(part, "DISTANCE", distance)
    near = part.part_around(model, [i for i, n in enumerate(model.graph.node) if n.domain])
    assert near.main is not None and len(near.main) < len(model.graph.node)
    made = onnx_spatial.convert(model, fuse=fuse, verify=False).model
    onnx.checker.check_model(made, full_check=True)
    if convolutions <= distance or not fuse:  # else the part ends inside the convolutions
        one, other = (sorted(map(str, each.graph.node)) for each in (made, whole))
        assert one == other
    kept = {n.name for n in model.graph.node if n.op_type in ("Add", "Max")}
    order = sorted(kept, key=lambda name: int(name[1:]))
    assert [n.name for n in made.graph.node if n.name in kept] == order
    x = np.random.default_rng(seed).standard_normal((1, 3, 4, 6)).astype(np.float32)
    for one, other in zip(run(made, {"x": x}), run(whole, {"x": x}), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
