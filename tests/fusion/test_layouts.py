"""Transpose, Squeeze and Unsqueeze next to fused nodes cancel, also across what lies between them."""

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
import running
import structure
from adapter import convert, verify
from fusion.region_models import check, model
from onnx import numpy_helper

import onnx_spatial
from onnx_spatial.model.graph import marks

RNG = np.random.default_rng(8)
CHANGES = {"Transpose", "Squeeze", "Unsqueeze"}
ENTRY, EXIT = ["Transpose", "Unsqueeze"], ["Squeeze", "Transpose"]
TABLES: dict[str, Any] = {
    "block": [2], "pads": [[2, 2]], "crops": [[0, 0]], "ends": [1, 3], "axis": [1], "last": [100],
    "borders": [0, 1, 0, 0, 3, 0], "bias": RNG.normal(size=4).astype(np.float32),
    "w": RNG.normal(size=(4, 4, 1, 3)).astype(np.float32),
    "point": RNG.normal(size=(4, 4, 1, 1)).astype(np.float32),
}  # fmt: skip
SHAPES = ((1, 6, 4), (2, 8, 4))


def layer(x: str, y: str) -> str:
    """A dilated convolution of signals [batch, time, channels] as TensorFlow writes it."""
    return f"""
        {y}_s = SpaceToBatchND({x}, block, pads)
        {pointwise(f"{y}_s", f"{y}_b").replace("point", "w")}
        {y} = BatchToSpaceND({y}_b, block, crops)
    """


def pointwise(x: str, y: str) -> str:
    """A convolution with a kernel of size 1, which is not fused."""
    return f"""
        {y}_u = Unsqueeze({x}, one)
        {y}_t = Transpose <perm = [0, 3, 1, 2]> ({y}_u)
        {y}_c = Conv({y}_t, point)
        {y}_q = Squeeze({y}_c, two)
        {y} = Transpose <perm = [0, 2, 1]> ({y}_q)
    """


def build(body: str, gives: str = "float[N,?,?] y", **options: Any) -> onnx.ModelProto:
    given = options.pop("given", "float[N,L,4] x")
    return model(body, given=given, gives=gives, **{**TABLES, **options})


def changes(found: onnx.ModelProto) -> list[str]:
    return sorted(n.op_type for n in structure.nodes(found) if n.op_type in CHANGES)


RESIDUAL = f"""
    {layer("x", "a")} a1 = Add(a, bias) a2 = Relu(a1)
    {layer("a2", "b")} b1 = Add(b, bias) b2 = Relu(b1)
    {pointwise("x", "p")}
    sum = Add(b2, p)
    {layer("sum", "c")} c1 = Add(c, bias) c2 = Relu(c1)
    z = Add(sum, c2)
    {pointwise("z", "y")}
"""


def test_a_net_with_residual_sums_has_one_change_of_layout_at_each_end() -> None:
    made = build(RESIDUAL)
    converted = check(made, *SHAPES)
    assert changes(converted) == sorted(ENTRY + EXIT)
    others = [op for op in structure.ops(converted) if op not in CHANGES]
    assert sorted(others) == sorted(["Conv"] * 5 + ["Relu"] * 3 + ["Add"] * 2)
    result = verify(made, converted)
    assert result.evidence == "proven", result.message
    assert {site.proven for site in result.operators} == {"all sizes"}
    (pointer,) = [n for n in converted.graph.node if n.op_type == "Add" and n.output[0] == "y_t"]
    pointer.op_type = "Sub"
    assert not verify(made, converted)


#: What stands between two layers: it reads r and gives o, of axes [batch, time, channels]. The
#: numbers say how many changes of layout more than those at both ends are left.
BETWEEN: dict[str, tuple[str, int]] = {
    "Pad": ("o = Pad(r, borders)", 0),
    "Slice": ("o = Slice(r, two, last, axis)", 0),
    "Concat and Split": (
        "k = Concat <axis = 2> (r, r) o, rest = Split <axis = -1, num_outputs = 2> (k)", 0
    ),
    "a gate": ("k = Sigmoid(r) l = Tanh(r) o = Mul(k, l)", 0),
    "a largest element": ("k = ReduceMax(r, axis) o = Sub(r, k)", 0),
    "Where": ("k = Greater(r, bias) o = Where(k, r, bias)", 0),
    "a sum along another axis": ("k = ReduceMean(r, two) o = Sub(r, k)", 2),
    "Softmax": ("o = Softmax <axis = 2> (r)", 2),
    "an operand of fewer axes": ("m = ReduceMax <keepdims = 0> (x, ends2) o = Add(r, m)", 1),
    "Transposes that do not cancel": (
        "k = Transpose <perm = [1, 0, 2]> (r) l = Neg(k) o = Transpose <perm = [1, 0, 2]> (l)", 0
    ),
    "Reshapes that change axes of size 1": ("k = Reshape(r, added) l = Relu(k) o = Reshape(l, back)", 0),
    "Reshapes that regroup": ("k = Reshape(r, rows) l = Relu(k) o = Reshape(l, back)", 4),
    "what a caller may replace": ("o = Add(r, given)", 1),
    "an operand of unknown rank": ("o = Add(r, given)", 6),
}  # fmt: skip


@pytest.mark.parametrize("name", BETWEEN)
def test_operators_between_two_layers(name: str) -> None:
    between, more = BETWEEN[name]
    body = f"{layer('x', 'a')} r = Relu(a) {between} {layer('o', 'y')}"
    tables = {"ends2": [0, 1], "added": [0, 1, -1, 4], "back": [0, -1, 4], "rows": [0, -1, 2]}
    feeds = {"given": np.arange(4, dtype=np.float32)} if "given" in between else {}
    inputs = "float[N,L,4] x" + (", float[4] given" if feeds else "")
    made = build(body, given=inputs, opset=18, **tables)
    if "unknown rank" in name:
        made.graph.input[1].type.tensor_type.ClearField("shape")
    elif feeds:  # with a default
        made.graph.initializer.append(numpy_helper.from_array(np.zeros(4, np.float32), "given"))
    assert len(changes(check(made, *SHAPES, **feeds))) == len(ENTRY + EXIT) + more


def test_outputs_keep_their_names_and_layouts_and_changes_elsewhere_and_in_old_files_stay() -> None:
    converted = check(build(RESIDUAL, "float[N,?,?] y, float[N,?,?] sum"), *SHAPES)
    assert [value.name for value in converted.graph.output] == ["y", "sum"]
    assert len(changes(converted)) == len(ENTRY + EXIT) + 2
    made = build(f"""{layer("x", "y_")} e = Einsum <equation = "nlc->nlc"> (y_)
        f = Transpose <perm = [0, 2, 1]> (e) g = Relu(f) h = Transpose <perm = [0, 2, 1]> (g)
        y = Einsum <equation = "nlc->nlc"> (h)""")
    assert list(convert(made).graph.node)[-5:] == list(made.graph.node)[-5:]
    made = build(RESIDUAL)
    made.ir_version = 3  # where initializers are inputs
    for t in made.graph.initializer:
        made.graph.input.append(onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims))
    assert len(changes(convert(made))) <= len(ENTRY + EXIT)


@pytest.mark.parametrize("source", ["x", "z"])
def test_in_a_branch(source: str) -> None:
    inner = f"{layer(source, 'a')} r = Relu(a) {layer('r', 'o')}"
    made = build(f"""yes = Constant <value = bool {{1}}> () z = Relu(x)
        y = If (yes) < then_branch = then () => (float[N,?,?] o) {{ {inner} }},
            else_branch = other () => (float[N,?,?] i) {{ i = Identity({source}) }} >""")
    assert changes(check(made, *SHAPES)) == sorted(ENTRY + EXIT)


def row(layers: int) -> tuple[onnx.ModelProto, list[str]]:
    values = ["x", *(f"a{i}" for i in range(1, layers)), "y"]
    body = [f"{layer(x, y + 'l')} {y} = Relu({y}l)" for x, y in itertools.pairwise(values)]
    return build(" ".join(body)), values


def test_every_convolution_of_a_row_can_be_compared_on_its_own() -> None:
    made, values = row(12)
    converted = check(made, *SHAPES)
    read = (marks.read_mark(p.value) for n in converted.graph.node for p in n.metadata_props)
    assert sorted(mark[0] for mark in read if mark) == sorted(values[1:-1])
    assert {site.proven for site in verify(made, converted).operators} == {"all sizes"}


BEHIND = """
    s = SpaceToBatchND(x, three_blocks, around) c = Conv(s, w3)
    b = BatchToSpaceND(c, three_blocks, zeros)
    t = Transpose <perm = [1, 0, 2, 3]> (b) a = {} r = Relu(a) {}
"""


@pytest.mark.parametrize(
    ("add", "back", "left"),
    [
        ("Add(t, shifts)", "y = Transpose <perm = [1, 0, 2, 3]> (r)", "Conv Relu"),
        ("Add(t, shifts)", "y = Transpose <perm = [1, 2, 3, 0]> (r)", "Conv Relu Transpose"),
        (
            "Add(t, shifts)",
            "q = Transpose <perm = [1, 2, 3, 0]> (r) k = ReduceSum <keepdims = 0> (t) y = Add(q, k)",
            "Conv Transpose ReduceSum Add Relu Transpose Add",
        ),
    ],
)
def test_transposes_behind_cancel_or_become_one(add: str, back: str, left: str) -> None:
    made = model(
        BEHIND.format(add, back), given="float[2,3,8,12] x", three_blocks=[1, 2, 2],
        around=[[0, 0], [2, 2], [2, 2]], zeros=[[0, 0]] * 3,
        w3=RNG.normal(size=(4, 3, 3, 3)).astype(np.float32),
        shifts=np.arange(4, dtype=np.float32).reshape(4, 1, 1, 1),
    )  # fmt: skip
    converted = check(made, (2, 3, 8, 12))
    assert sorted(op for op in structure.ops(converted) if op != "Identity") == sorted(left.split())


# Between convolutions that nothing fuses `optimize` removes them


def causal(x: str, y: str) -> str:
    """A causal convolution of signals [batch, time, channels] and a Relu, as exporters write them."""
    dilated = (
        pointwise(f"{y}_p", f"{y}_b")
        .replace("point", "w")
        .replace("Conv", "Conv <dilations = [1, 2]> ")
    )
    return f"{y}_p = Pad({x}, past) {dilated} {y}_a = Add({y}_b, bias) {y} = Relu({y}_a)"


def residual(blocks: int) -> str:
    """Blocks of two causal convolutions with an Add around them."""
    names = ["x", *(f"b{block}" for block in range(1, blocks)), "y"]
    return " ".join(
        f"{causal(x, f'{y}_1')} {causal(f'{y}_1', f'{y}_2')} {y} = Add({y}_2, {x})"
        for x, y in itertools.pairwise(names)
    )


IF = f"""n = Size(x) limit = Constant <value_int = 100> () c = Greater(n, limit) y = If(c) <
    then_branch = a () => (float[N,?,?] y_then) {{ {residual(2).replace("y =", "y_then =")} }},
    else_branch = b () => (float[N,?,?] y_else) {{ y_else = Identity(x) }} >"""


@pytest.mark.parametrize(("body", "before"), [(residual(3), 24), (IF, 16)], ids=["main", "If"])
def test_optimize_removes_changes_between_convolutions(body: str, before: int) -> None:
    given = build(body, past=[0, 4, 0, 0, 0, 0])
    result = onnx_spatial.optimize(given)
    assert (len(changes(given)), len(changes(result.model))) == (before, len(ENTRY + EXIT))
    assert result.verification
    for shape in ((1, 1, 4), (3, 17, 4)):
        x = {"x": RNG.normal(size=shape).astype(np.float32)}
        (expected,), (actual,) = running.run(given, x), running.run(result.model, x)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)
    assert f"{before - 4} changes of layout removed" in result.summary.text
    assert not onnx_spatial.optimize(result.model).changed
    assert not onnx_spatial.convert(given).changed


def test_a_change_in_front_of_a_sum_along_its_axis_stays() -> None:
    turn = "<perm = [0, 2, 1]>"
    body = f"t = Transpose {turn} (x) m = MatMul(t, x) y = Transpose {turn} (m)"
    assert not onnx_spatial.optimize(build(body)).changed
