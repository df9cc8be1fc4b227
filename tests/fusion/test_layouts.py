"""Transpose, Squeeze and Unsqueeze next to fused nodes cancel, also across what lies between them."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import regions
import running
import structure
from adapter import convert, plan, verify
from onnx import numpy_helper, parser

from onnx_spatial.conversion import graph_editor
from onnx_spatial.fusion.layout import Layout, single_steps
from onnx_spatial.fusion.layouts import LayoutGraph, commuting
from onnx_spatial.model.graph import layout_marks

RNG = np.random.default_rng(8)
CHANGES = {"Transpose", "Squeeze", "Unsqueeze"}
TABLES = {
    "block": [2],
    "pads": [[2, 2]],
    "crops": [[0, 0]],
    "one": [1],
    "two": [2],
}


def layer(x: str, y: str, weight: str = "w") -> str:
    """A dilated convolution of signals [batch, time, channels] as TensorFlow writes it."""
    return f"""
        {y}_s = tf.SpaceToBatchND({x}, block, pads)
        {y}_u = Unsqueeze({y}_s, one)
        {y}_t = Transpose <perm = [0, 3, 1, 2]> ({y}_u)
        {y}_c = Conv({y}_t, {weight})
        {y}_q = Squeeze({y}_c, two)
        {y}_b = Transpose <perm = [0, 2, 1]> ({y}_q)
        {y} = tf.BatchToSpaceND({y}_b, block, crops)
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


def model(
    body: str, gives: str = "float[N,?,?] y", ir: int = 9, opset: int = 17, **tables: object
) -> onnx.ModelProto:
    """A graph of a signal x, with weights and tables."""
    head = f'<ir_version: {ir}, opset_import: ["" : {opset}, "tf" : 1]>'
    made = parser.parse_model(f"{head} g (float[N,L,4] x) => ({gives}) {{ {body} }}")
    arrays = {name: np.array(table, np.int64) for name, table in {**TABLES, **tables}.items()}
    for name, shape in {"w": (4, 4, 1, 3), "point": (4, 4, 1, 1), "bias": (4,)}.items():
        arrays[name] = RNG.normal(size=shape).astype(np.float32)
    read = {name for node in structure.nodes(made) for name in node.input}
    for name in sorted(read & arrays.keys()):
        made.graph.initializer.append(numpy_helper.from_array(arrays[name], name))
    return made


def check(made: onnx.ModelProto) -> onnx.ModelProto:
    """The converted model, which gives what it gives without fusion."""
    fused, plain = (convert(made, domains=["tf"], fuse=fuse) for fuse in (True, False))
    onnx.checker.check_model(fused)
    for shape in ((1, 6, 4), (2, 8, 4)):
        fed = {"x": RNG.normal(size=shape).astype(np.float32)}
        for level in running.LEVELS:
            results = (running.run_session(running.session(m, level), fed) for m in (fused, plain))
            for one, other in zip(*results, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    return fused


def changes(found: onnx.ModelProto) -> list[str]:
    return [op for op in structure.ops(found) if op in CHANGES]


ENTRY, EXIT = ["Transpose", "Unsqueeze"], ["Squeeze", "Transpose"]

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
    converted = check(model(RESIDUAL))
    assert sorted(changes(converted)) == sorted(ENTRY + EXIT)
    others = [op for op in structure.ops(converted) if op not in CHANGES]
    assert sorted(others) == sorted(["Conv"] * 5 + ["Relu"] * 3 + ["Add"] * 2)


def test_every_sum_is_proven_for_all_sizes() -> None:
    made = model(RESIDUAL)
    result = verify(made, convert(made, domains=["tf"]), domains=["tf"])
    assert result, result.message
    assert {site.proven for site in result.operators} == {"all sizes"}
    assert result.evidence == "proven"


def test_a_wrong_layout_is_found() -> None:
    made = model(RESIDUAL)
    converted = convert(made, domains=["tf"])
    (pointer,) = [n for n in converted.graph.node if n.op_type == "Add" and n.output[0] == "y_t"]
    pointer.op_type = "Sub"
    assert not verify(made, converted, domains=["tf"])


def test_values_that_are_outputs_keep_their_names_and_layouts() -> None:
    gives = "float[N,?,?] y, float[N,?,?] sum, float[N,?,?] a_t"
    converted = check(
        model(RESIDUAL.replace("a_t", "a_i"), gives.replace(", float[N,?,?] a_t", ""))
    )
    assert [value.name for value in converted.graph.output] == ["y", "sum"]
    assert len(changes(converted)) == len(ENTRY + EXIT) + 2


def test_transposes_that_meet_become_one() -> None:
    body = f"""
        t = Transpose <perm = [1, 0, 2]> (x) u = Transpose <perm = [2, 1, 0]> (t)
        v = Transpose <perm = [1, 2, 0]> (u)
        {layer("v", "a")}
        f = Transpose <perm = [1, 2, 0]> (a) y = Transpose <perm = [0, 2, 1]> (f)
    """
    converted = check(model(body))
    assert structure.ops(converted).count("Transpose") <= 2
    assert structure.ops(converted)[-2:] == EXIT


def test_a_reshape_that_adds_or_removes_axes_of_size_1_is_one_of_them() -> None:
    swapped = RESIDUAL.replace("a_u = Unsqueeze(a_s, one)", "a_u = Reshape(a_s, added)")
    swapped = swapped.replace("q = Squeeze(p_c, two)", "q = Reshape(p_c, removed)")
    swapped = swapped.replace("y_u = Unsqueeze(z, one)", "y_u = Reshape(z, last)")
    made = model(swapped, added=[0, 1, -1, 4], removed=[0, 4, -1], last=[0, 1, -1, 4])
    assert sorted(changes(check(made))) == sorted(ENTRY + EXIT)


def test_a_reshape_that_regroups_stays() -> None:
    body = (
        f"{layer('x', 'a')} k = Reshape(a, rows) r = Relu(k) o = Reshape(r, back) {layer('o', 'y')}"
    )
    converted = check(model(body, rows=[0, -1, 2], back=[0, -1, 4]))
    assert structure.ops(converted).count("Reshape") == 2


FAR = """
    e = Einsum <equation = "nlc->nlc"> (y_)
    f = Transpose <perm = [0, 2, 1]> (e) g = Relu(f) h = Transpose <perm = [0, 2, 1]> (g)
    y = Einsum <equation = "nlc->nlc"> (h)
"""


def test_changes_of_layout_elsewhere_stay() -> None:
    made = model(layer("x", "y_") + FAR)
    converted = convert(made, domains=["tf"])
    kept = list(made.graph.node)[-5:]
    assert list(converted.graph.node)[-5:] == kept


#: Nodes between two layers: they read r and give o, of axes [batch, time, channels].
COMMUTING = {
    "Pad": ("o = Pad(r, borders)", 0),
    "Pad and its axes": ("o = Pad(r, ends, , axis)", 0),
    "Slice": ("o = Slice(r, two, last, axis)", 0),
    "Concat and Split": ("k = Concat <axis = 2> (r, r) o, rest = Split <axis = -1> (k)", 0),
    "Concat in time": ("o = Concat <axis = 1> (r, r)", 0),
    "a gate": ("k = Sigmoid(r) l = Tanh(r) o = Mul(k, l)", 0),
    "constants": ("k = Mul(r, bias) l = Max(k, bias, r) o = PRelu(l, bias)", 0),
    "a largest element": ("k = ReduceMax <axes = [1]> (r) o = Sub(r, k)", 0),
    "Where": ("k = Greater(r, bias) o = Where(k, r, bias)", 0),
    "a sum along another axis": ("k = ReduceMean <axes = [2]> (r) o = Sub(r, k)", 2),
    "Softmax": ("o = Softmax <axis = 2> (r)", 2),
    "times": ("k = Constant <value_floats = [1.0, 2.0]> () l = ReduceSum(k) o = Mul(r, l)", 0),
}


@pytest.mark.parametrize(("between", "more"), COMMUTING.values(), ids=COMMUTING)
def test_operators_between_two_layers(between: str, more: int) -> None:
    tables = {
        "borders": [0, 1, 0, 0, 3, 0],
        "ends": [1, 3],
        "axis": [1],
        "last": [100],
        "reversed": [3, 2, 1, 0],
    }
    opset = 18 if ", axis)" in between and "Pad" in between else 17
    body = f"{layer('x', 'a')} r = Relu(a) {between} {layer('o', 'y')}"
    converted = check(model(body, opset=opset, **tables))
    assert len(changes(converted)) == len(ENTRY + EXIT) + more


def test_an_operand_of_fewer_axes_is_changed_alone() -> None:
    body = f"""
        {layer("x", "a")} r = Relu(a)
        m = ReduceMax <axes = [0, 1], keepdims = 0> (x)
        o = Add(r, m)
        {layer("o", "y")}
    """
    converted = check(model(body))
    assert sorted(changes(converted)) == sorted([*ENTRY, "Unsqueeze", *EXIT])


@pytest.mark.parametrize("ir", [3, 9])
def test_constants_that_are_nodes_count(ir: int) -> None:
    made = model(RESIDUAL, ir=ir)
    if ir < 4:
        known = {t.name: t for t in made.graph.initializer}
        made.graph.input.extend(
            onnx.helper.make_tensor_value_info(name, t.data_type, t.dims)
            for name, t in known.items()
        )
    converted = convert(made, domains=["tf"])
    assert len(converted.graph.node) < len(made.graph.node)
    assert len(changes(converted)) <= len(ENTRY + EXIT)


def test_a_constant_that_the_caller_may_replace_is_changed_in_the_run() -> None:
    body = f"{layer('x', 'a')} r = Add(a, given) {layer('r', 'y')}"
    made = model(body)
    made.graph.input.append(onnx.helper.make_tensor_value_info("given", 1, [4]))
    made.graph.initializer.append(numpy_helper.from_array(np.zeros(4, np.float32), "given"))
    converted = convert(made, domains=["tf"])
    fed = {
        "x": RNG.normal(size=(2, 6, 4)).astype(np.float32),
        "given": np.arange(4, dtype=np.float32),
    }
    results = [
        running.run(m, fed)[0] for m in (converted, convert(made, domains=["tf"], fuse=False))
    ]
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5)
    assert sorted(changes(converted)) == sorted([*ENTRY, "Unsqueeze", *EXIT])


def test_nodes_in_another_order_are_left_alone() -> None:
    made = model(RESIDUAL)
    nodes = list(made.graph.node)[::-1]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    converted = plan(made, domains=["tf"]).model
    assert converted is not None
    assert not structure.spatial(converted)
    assert len(changes(converted)) > len(ENTRY + EXIT)


def test_in_a_branch() -> None:
    inner = f"{layer('x', 'a')} r = Relu(a) {layer('r', 'o')}"
    branch = model(
        f"""
        yes = Constant <value = bool {{1}}> ()
        y = If (yes) <
            then_branch = then () => (float[N,?,?] o) {{ {inner} }},
            else_branch = other () => (float[N,?,?] i) {{ i = Identity(x) }}
        >
        """
    )
    converted = check(branch)
    ops = [n.op_type for n in structure.nodes(converted) if n.op_type in CHANGES]
    assert sorted(ops) == sorted(ENTRY + EXIT)


def test_a_branch_that_reads_what_a_node_outside_computes() -> None:
    inner = f"{layer('z', 'a')} r = Relu(a) {layer('r', 'o')}"
    branch = model(
        f"""
        yes = Constant <value = bool {{1}}> ()
        z = Relu(x)
        y = If (yes) <
            then_branch = then () => (float[N,?,?] o) {{ {inner} }},
            else_branch = other () => (float[N,?,?] i) {{ i = Identity(z) }}
        >
        """
    )
    ops = [n.op_type for n in structure.nodes(check(branch)) if n.op_type in CHANGES]
    assert sorted(ops) == sorted(ENTRY + EXIT)


def test_no_region_has_more_nodes_than_without(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [regions.build(4, number) for number in range(16)]
    improved = [convert(case.model) for case in cases]
    monkeypatch.setattr(graph_editor, "with_fewer_changes", lambda *_, **__: None)
    plain = [convert(case.model) for case in cases]
    pairs = list(zip(improved, plain, strict=True))
    assert all(len(a.graph.node) <= len(b.graph.node) for a, b in pairs)
    assert sum(len(b.graph.node) - len(a.graph.node) for a, b in pairs) > 4


def test_the_graph_is_viewed_no_more_often_for_many_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    views: list[LayoutGraph] = []

    def view(*arguments: object) -> LayoutGraph:
        views.append(LayoutGraph(*arguments))  # type: ignore[arg-type]
        return views[-1]

    monkeypatch.setattr(graph_editor, "LayoutGraph", view)
    counts = []
    for layers in (4, 16):
        values = ["x", *(f"a{i}" for i in range(1, layers)), "y"]
        body = [f"{layer(x, y + 'l')} {y} = Relu({y}l)" for x, y in itertools.pairwise(values)]
        views.clear()
        converted = plan(model(" ".join(body)), domains=["tf"]).model
        assert converted is not None and sorted(changes(converted)) == sorted(ENTRY + EXIT)
        counts.append(len(views))
    assert 0 < counts[0] == counts[1]


def test_the_work_follows_the_operators_not_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long row of nodes in front of a layer, only those near it are tried."""
    tried: list[object] = []

    def rank(node: ir.Node, graph: LayoutGraph) -> int | None:
        tried.append(node)
        return commuting_rank(node, graph)

    commuting_rank = commuting.rank
    monkeypatch.setattr(commuting, "rank", rank)
    row = "".join(f"i{n + 1} = Neg(i{n})\n" for n in range(2000))
    made = model(f"i0 = Neg(x) {row} {layer('i2000', 'a')} y = Relu(a)")
    converted = plan(made, domains=["tf"]).model
    assert converted is not None and sorted(changes(converted)) == sorted(ENTRY + EXIT)
    assert 0 < len(set(tried)) < 600


def test_every_convolution_of_a_row_can_be_compared_on_its_own() -> None:
    values = ["x", *(f"a{i}" for i in range(1, 12)), "y"]
    body = [f"{layer(x, y + 'l')} {y} = Relu({y}l)" for x, y in itertools.pairwise(values)]
    made = model(" ".join(body))
    converted = check(made)
    marks = (layout_marks.read(p.value) for n in converted.graph.node for p in n.metadata_props)
    assert sorted(mark[0] for mark in marks if mark) == sorted(values[1:-1])
    result = verify(made, converted, domains=["tf"])
    assert {site.proven for site in result.operators} == {"all sizes"}


STRIDED = """
    t = Transpose <perm = [0, 3, 1, 2]> (x) c = Conv <pads = [1, 1, 1, 1]> (t, w)
    u = Transpose <perm = [0, 2, 3, 1]> (c) r = Relu(u)
    p = tf.ExtractImagePatches
        <ksizes = [1, 3, 3, 1], strides = [1, 2, 2, 1], rates = [1, 1, 1, 1], padding = "VALID"> (r)
    q = Transpose <perm = [0, 3, 1, 2]> (p) d = Conv(q, v)
    e = Transpose <perm = [0, 2, 3, 1]> (d) f = Sigmoid(e)
    k = Transpose <perm = [0, 3, 1, 2]> (f) z = Conv(k, o) y = Transpose <perm = [0, 2, 3, 1]> (z)
"""


def test_transposes_around_an_activation_next_to_a_strided_convolution() -> None:
    made = parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17, "tf" : 1]>'
        f"g (float[N,H,W,3] x) => (float[?,?,?,?] y) {{ {STRIDED} }}"
    )
    for name, shape in {"w": (8, 3, 3, 3), "v": (16, 72, 1, 1), "o": (5, 16, 1, 1)}.items():
        array = RNG.normal(size=shape).astype(np.float32)
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    converted = convert(made, domains=["tf"])
    result = verify(made, converted, domains=["tf"])
    assert result, result.message
    # The kernel is a Reshape and a Transpose of the weight v.
    assert structure.ops(converted) == [
        *("Transpose", "Conv", "Relu"),
        *("Reshape", "Transpose", "Conv", "Sigmoid"),
        *("Conv", "Transpose"),
    ]


# Layouts


def some_layout(random: Random, rank: int) -> Layout:
    """A change that adds axes, and removes none but the first two, which have size 1."""
    axes: list[int | None] = [a for a in range(rank) if a > 1 or random.random() < 0.7]
    random.shuffle(axes)
    for _ in range(random.randrange(3)):
        axes.insert(random.randrange(len(axes) + 1), None)
    return Layout(rank, tuple(axes))


def applied(layout: Layout, array: np.ndarray) -> np.ndarray:
    for op_type, numbers in layout.steps():
        if op_type == "Transpose":
            array = array.transpose(numbers)
        else:
            change = np.squeeze if op_type == "Squeeze" else np.expand_dims
            array = change(array, numbers)
    return array


def test_layouts_are_what_their_nodes_do() -> None:
    random = Random(3)
    array = np.arange(24).reshape(1, 1, 2, 3, 4)
    for _ in range(300):
        layout = some_layout(random, 5)
        changed = applied(layout, array)
        assert np.array_equal(layout.array(array), changed)
        assert np.array_equal(applied(layout.inverse, changed), array)
        assert layout.then(layout.inverse).is_identity
        parts = single_steps(layout)
        assert all(len(part.steps()) == 1 for part in parts)
        stepwise = array
        for part in parts:
            stepwise = applied(part, stepwise)
        assert np.array_equal(stepwise, changed)


def test_axes_that_are_removed_and_added_are_moved_at_most_once() -> None:
    squeezed, unsqueezed = Layout(4, (0, 1, 3)), Layout(3, (0, 1, None, 2))
    assert squeezed.then(unsqueezed).is_identity
    assert [op for op, _ in squeezed.then(Layout(3, (0, None, 1, 2))).steps()] == ["Transpose"]
