"""Transposes around an operator become part of it, and never when anybody else needs them."""

from __future__ import annotations

from random import Random

import numpy as np
import onnx
import pytest
import reference
import running
import sampling
import structure
from adapter import convert, plan, verify
from building import OPENVINO, one_node
from hypothesis import given
from neighbours import between_transposes, unturned
from onnx import parser

from onnx_spatial import ConversionError
from onnx_spatial.conversion import pipeline as planning
from onnx_spatial.fusion import transposes
from onnx_spatial.lowering import Lowered, Request

HEAD = '<ir_version: {ir}, opset_import: ["" : 17, "com.microsoft" : 1, "local" : 1]>\n'
TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
BLOCKS = "<int32[2] block = {2, 3}, int32[2,2] pads = {1, 0, 2, 1}>"


@pytest.fixture(autouse=True)
def dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the lowerings cost: what can be absorbed is worth it."""
    monkeypatch.setattr(transposes, "transpose_cost", lambda dims, perm, itemsize: 1e9)


def model(text: str, ir: int = 9) -> onnx.ModelProto:
    """Text in which M. stands for the domain of the operators."""
    made = HEAD.format(ir=ir) + text.replace("M.", "com.microsoft.").replace("BLOCKS", BLOCKS)
    return parser.parse_model(made)


def image(*shape: int) -> np.ndarray:
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)


def table(*pairs: tuple[int, int]) -> np.ndarray:
    return np.array(pairs, np.int32)


OPERATORS = {
    "space to batch, rank 3": one_node(
        "SpaceToBatchND", (image(2, 5, 3), np.array([2]), table((1, 2)))
    ),
    "space to batch": one_node(
        "SpaceToBatchND", (image(2, 4, 5, 3), np.array([2, 3]), table((1, 1), (0, 1)))
    ),
    "batch to space": one_node(
        "BatchToSpaceND", (image(12, 2, 3, 2), np.array([2, 3]), table((1, 1), (0, 4)))
    ),
    "space to batch, 4-D": one_node(
        "SpaceToBatch", (image(2, 3, 4, 3), table((1, 0), (0, 0))), block_size=2
    ),
    "batch to space, rank 5": one_node(
        "BatchToSpaceND", (image(8, 2, 3, 2, 2), np.array([2, 1, 2]), table((1, 0), (0, 0), (0, 1)))
    ),
    "space to batch, OpenVINO": one_node(
        "SpaceToBatch",
        (image(2, 2, 4, 6), *(np.array(v) for v in ([1, 1, 2, 3], [0, 0, 1, 0], [0, 0, 1, 0]))),
        domain=OPENVINO,
    ),
    "leftover": one_node(
        "SpaceToDepth", (image(2, 4, 6, 3), np.array([2, 3]), table((0, 0), (0, 0))), domain=""
    ),
    "patches": one_node(
        "ExtractImagePatches",
        (image(2, 5, 7, 3),),
        ksizes=[1, 3, 2, 1],
        strides=[1, 2, 2, 1],
        rates=[1, 1, 2, 1],
        padding="SAME",
    ),
    "patches side by side": one_node(
        "ExtractImagePatches",
        (image(2, 4, 6, 3),),
        ksizes=[1, 2, 2, 1],
        strides=[1, 2, 2, 1],
        rates=[1, 1, 1, 1],
        padding="VALID",
    ),
    "patches, OpenVINO": one_node(
        "ExtractImagePatches",
        (image(2, 3, 5, 7),),
        domain=OPENVINO,
        sizes=[3, 2],
        strides=[2, 2],
        rates=[1, 2],
        auto_pad="same_lower",
    ),
    "volumes": one_node(
        "ExtractVolumePatches",
        (image(1, 3, 4, 5, 2),),
        ksizes=[1, 2, 2, 1, 1],
        strides=[1, 1, 2, 1, 1],
        padding="VALID",
    ),
}


def shape_of(made: onnx.ModelProto) -> tuple[int, ...]:
    return tuple(d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim)


def absorbed(made: onnx.ModelProto, **options) -> list[tuple[str, ...]]:
    return [site.absorbed for site in plan(made, **options).operators]


def verified(made: onnx.ModelProto, converted: onnx.ModelProto) -> None:
    """Verification, which knows nothing of what was done, says so; each operator on its own."""
    result = verify(made, converted)
    assert result, result.message
    assert result.evidence == "proven" and all(site.ran for site in result.operators)


@pytest.mark.parametrize("around", ["before", "behind", "both"])
@pytest.mark.parametrize("name", OPERATORS)
def test_transposes_on_either_side_are_absorbed(name: str, around: str) -> None:
    shape = shape_of(OPERATORS[name])
    rank = len(shape)
    turned = (0, *range(2, rank), 1)
    back = (0, rank - 1, *range(1, rank - 1))
    before = turned if around != "behind" else None
    behind = (back,) if around != "before" else ()
    made = between_transposes(OPERATORS[name], rank, before=before, behind=behind)
    names = [*(["front"] if before else []), *(["behind0"] if behind else [])]
    site, *others = plan(made).operators
    assert not others
    assert list(site.absorbed) == names
    assert site.declined == ()
    assert site.nodes_before == 1 + len(names)
    converted = reference.agree(made, {"x": unturned(image(*shape), before)})
    assert not {"front", "behind0"} & {n.name for n in converted.graph.node}
    assert not {"data", "result"} & {o for n in converted.graph.node for o in n.output}
    verified(made, converted)


@pytest.mark.parametrize("perms", [((1, 0, 2, 3), (3, 2, 1, 0)), ((3, 2, 1, 0), (2, 0, 3, 1))])
def test_any_permutation(perms: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    before, behind = perms
    for name in ("space to batch", "batch to space", "patches"):
        shape = shape_of(OPERATORS[name])
        made = between_transposes(OPERATORS[name], 4, before=before, behind=[behind])
        assert absorbed(made) == [("front", "behind0")]
        verified(made, reference.agree(made, {"x": unturned(image(*shape), before)}))


@given(rng=sampling.randoms)
def test_random_transposes_around_random_operators(rng: Random) -> None:
    sample = sampling.SPELLINGS[rng.choice(list(sampling.SPELLINGS))](rng)
    data = sample.inputs[0]
    form = sampling.form(rng, sample)
    rank, rank_behind = data.ndim, sample.expected.ndim

    def perm(count: int) -> tuple[int, ...]:
        return tuple(rng.sample(range(count), count))

    before = perm(rank) if rng.random() < 0.8 else None
    same = perm(rank_behind)
    behind = rng.choice(((), (same,), (same,), (same, same), (same, perm(rank_behind))))
    outputs = [n for n in ("data", "result", "t0", "t1") if rng.random() < 0.1]
    there = {*(["data"] if before else []), *(["result"] if behind else [])}
    there |= {f"t{i}" for i in range(len(behind))}
    kept = [n for n in outputs if n in there]
    front_read = before is not None and rng.random() < 0.2
    made = between_transposes(
        form.model(sample),
        rank,
        before=before,
        behind=behind,
        front_read=front_read,
        outputs=kept,
    )
    converted = convert(made, prefer=form.strategy)
    feeds = form.feeds(sample) | {"x": unturned(data, before)}
    expected = {"data": data, "also": data, "result": sample.expected, "y": sample.expected}
    for number, axes in enumerate(behind):
        turned = np.transpose(sample.expected, axes)
        expected |= {f"t{number}": turned, f"y{number}": turned}
    for level in running.LEVELS:
        results = running.run(converted, feeds, level)
        for value, result in zip(made.graph.output, results, strict=True):
            wanted = np.ascontiguousarray(expected[value.name]).reshape(expected[value.name].shape)
            assert running.same_bits(result, wanted), f"{sample}\n{form}\n{value.name}"


def test_the_output_may_have_another_rank() -> None:
    x = np.arange(96, dtype=np.float32).reshape(2, 3, 4, 4)
    patches = {
        "sizes": [2, 3, 2, 2, 4],
        "splits": [1, 1, 2, 1],
        "order": [0, 2, 1, 3, 4],
        "joins": [1, 1, 3],
    }
    site = one_node("Rearrange", [x], domain="onnx_spatial", **patches)
    made = between_transposes(site, 4, behind=[(2, 0, 1)])
    assert absorbed(made) == [("behind0",)]
    (actual,) = running.run(convert(made), {"x": x})
    moved = x.reshape(2, 3, 2, 2, 4).transpose(0, 2, 1, 3, 4).reshape(2, 2, 24)
    np.testing.assert_array_equal(actual, moved.transpose(2, 0, 1))


# Who else needs them


def test_a_transpose_in_front_that_others_read_stays_for_them() -> None:
    made = between_transposes(
        OPERATORS["space to batch"], 4, before=TO_NHWC, behind=[TO_NCHW], front_read=True
    )
    assert absorbed(made) == [("behind0",)]
    converted = reference.agree(made, {"x": unturned(image(2, 4, 5, 3), TO_NHWC)})
    assert "front" in [n.name for n in converted.graph.node]
    verified(made, converted)


def test_a_transpose_in_front_that_is_an_output_stays() -> None:
    made = between_transposes(OPERATORS["patches"], 4, before=TO_NHWC, outputs=["data"])
    assert absorbed(made) == [()]
    verified(made, reference.agree(made, {"x": unturned(image(2, 5, 7, 3), TO_NHWC)}))


class Free(Lowered):
    cost = 0.0


class Dear(Lowered):
    cost = 1.0


@pytest.fixture
def cheaper(monkeypatch: pytest.MonkeyPatch) -> None:
    """The movement itself costs less from in front of the Transpose, wherever that stays."""
    real = planning.lower_preferring

    def lower(request: Request, *limits: object) -> Lowered:
        made = real(request, *limits)
        return (Free if request.before else Dear)(**vars(made))

    monkeypatch.setattr(planning, "lower_preferring", lower)


def test_a_transpose_in_front_is_absorbed_where_it_stays_if_that_is_cheaper(cheaper) -> None:
    made = between_transposes(OPERATORS["space to batch"], 4, before=TO_NHWC, front_read=True)
    (site,) = plan(made).operators
    assert site.absorbed == ()  # it is still there
    converted = convert(made)
    (reader,) = (n for n in converted.graph.node if "data" in n.input)
    assert list(reader.output) == ["also"]
    verified(made, converted)


def test_the_output_of_a_transpose_behind_may_be_the_models() -> None:
    made = between_transposes(
        OPERATORS["batch to space"], 4, before=TO_NHWC, behind=[TO_NCHW], outputs=["t0"]
    )
    assert absorbed(made) == [("front", "behind0")]
    verified(made, reference.agree(made, {"x": unturned(image(12, 2, 3, 2), TO_NHWC)}))


def test_equal_transposes_behind_become_one_value_and_all_names_stay() -> None:
    made = between_transposes(
        OPERATORS["patches"], 4, behind=[TO_NCHW, TO_NCHW, TO_NCHW], outputs=["t1", "t2"]
    )
    assert absorbed(made) == [("behind0", "behind1", "behind2")]
    converted = reference.agree(made, {"x": image(2, 5, 7, 3)})
    copies = [n for n in converted.graph.node if n.op_type == "Identity" and n.metadata_props]
    assert [list(n.output) for n in copies] == [["t2"], ["t0"]]
    assert {n.input[0] for n in copies} == {"t1"}
    verified(made, converted)


def test_a_transpose_behind_that_nobody_reads_goes_too() -> None:
    made = between_transposes(OPERATORS["patches"], 4, behind=[TO_NCHW, TO_NCHW])
    del made.graph.output[1:]
    made.graph.node.remove(next(n for n in made.graph.node if n.output[0] == "y1"))
    assert absorbed(made) == [("behind0", "behind1")]
    converted = reference.agree(made, {"x": image(2, 5, 7, 3)})
    assert "t1" not in {o for n in converted.graph.node for o in n.output}


@pytest.mark.parametrize(
    ("behind", "outputs", "reason"),
    [
        ([TO_NCHW, TO_NHWC], [], "other Transposes of the output"),
        ([TO_NCHW], ["result"], "is a graph output or read by name"),
    ],
)
def test_behind_all_or_none(behind, outputs, reason) -> None:
    made = between_transposes(
        OPERATORS["space to batch"], 4, before=TO_NHWC, behind=behind, outputs=outputs
    )
    site = plan(made).operators[0]
    assert site.absorbed == ("front",)
    made = between_transposes(OPERATORS["space to batch"], 4, behind=behind, outputs=outputs)
    (declined,) = plan(made).operators[0].declined
    assert reason in declined and "'behind0'" in declined
    verified(made, reference.agree(made, {"x": image(2, 4, 5, 3)}))


OTHERS = {
    "another node": "u = Relu(b)",
    "a branch": """u = If (yes) < then_branch = t () => (float[?,?,?,?] q) { q = Relu(b) },
        else_branch = e () => (float[?,?,?,?] r) { r = Neg(x) } >""",
    "a branch, as it is": """u = If (yes) < then_branch = t () => (float[?,?,?,?] b) { },
        else_branch = e () => (float[?,?,?,?] r) { r = Neg(x) } >""",
    "a branch in a branch": """u = If (yes) <
        then_branch = t () => (float[?,?,?,?] q) {
            q = If (yes) < then_branch = tt () => (float[?,?,?,?] i) { i = Relu(b) },
                           else_branch = te () => (float[?,?,?,?] j) { j = Neg(b) } > },
        else_branch = e () => (float[?,?,?,?] r) { r = Neg(x) } >""",
}


@pytest.mark.parametrize("name", OTHERS)
def test_nothing_is_absorbed_behind_what_others_read(name: str) -> None:
    made = model(f"""g (float[1,3,3,3] x, bool yes) => (float[?,?,?,?] y, float[?,?,?,?] u) BLOCKS {{
        [site] b = M.SpaceToBatchND(x, block, pads)
        [behind] y = Transpose <perm = [0, 3, 1, 2]> (b)
        {OTHERS[name]}
    }}""")
    (site,) = plan(made).operators
    assert site.absorbed == ()
    (declined,) = site.declined
    assert "read" in declined and "'behind'" in declined
    feeds = [{"x": image(1, 3, 3, 3), "yes": np.array(flag)} for flag in (True, False)]
    if name != "a branch, as it is":  # which some runtimes take, and onnx's checker does not
        verified(made, reference.agree(made, *feeds))


def test_a_branch_that_is_listed_before_what_it_reads() -> None:
    made = model(f"""g (float[1,3,3,3] x, bool yes) => (float[?,?,?,?] y, float[?,?,?,?] u) BLOCKS {{
        {OTHERS["a branch"]}
        [site] b = M.SpaceToBatchND(x, block, pads)
        [behind] y = Transpose <perm = [0, 3, 1, 2]> (b)
    }}""")
    converted = plan(made)
    assert converted.operators[0].absorbed == ()
    assert converted.model is not None
    assert "b" in {o for n in converted.model.graph.node for o in n.output}


def test_a_transpose_that_a_branch_reads_keeps_its_name() -> None:
    made = model(
        """g (float[1,4,6,3] x, bool yes) => (float[?,?,?,?] u) BLOCKS {
        [site] b = M.SpaceToBatchND(x, block, none)
        [one] y = Transpose <perm = [0, 3, 1, 2]> (b)
        [two] z = Transpose <perm = [0, 3, 1, 2]> (b)
        v = Neg(z)
        u = If (yes) < then_branch = t () => (float[?,?,?,?] q) { q = Relu(y) },
                       else_branch = e () => (float[?,?,?,?] r) { r = Neg(v) } >
    }""".replace("BLOCKS", "<int32[2] block = {2, 3}, int32[2,2] none = {0, 0, 0, 0}>")
    )
    assert absorbed(made) == [("one", "two")]
    feeds = [{"x": image(1, 4, 6, 3), "yes": np.array(flag)} for flag in (True, False)]
    converted = reference.agree(made, *feeds)
    assert {"y", "z"} <= {o for n in converted.graph.node for o in n.output}
    verified(made, converted)


def test_two_operators_behind_one_transpose_leave_it() -> None:
    made = model("""g (float[1,3,32,36] x) => (float[?,?,?,?] y, float[?,?,?,?] z)
        <int32[2] block = {2, 3}, int32[2,2] none = {0, 0, 0, 0}> {
        [front] a = Transpose <perm = [0, 2, 3, 1]> (x)
        y = M.SpaceToBatchND(a, block, none)
        z = M.SpaceToBatchND(a, block, none)
    }""")
    assert absorbed(made) == [(), ()]
    verified(made, reference.agree(made, {"x": image(1, 3, 32, 36)}))


def test_the_last_reader_takes_a_transpose_with_it(cheaper) -> None:
    made = model("""g (float[1,3,4,6] x) => (float[?,?,?,?] y, float[?,?,?,?] z)
        <int32[2] block = {2, 3}, int32[2,2] none = {0, 0, 0, 0}> {
        [front] a = Transpose <perm = [0, 2, 3, 1]> (x)
        y = M.SpaceToBatchND(a, block, none)
        z = M.SpaceToBatchND(a, block, none)
    }""")
    assert absorbed(made) == [(), ("front",)]
    verified(made, reference.agree(made, {"x": image(1, 3, 4, 6)}))


def test_a_transpose_between_two_operators_goes_once() -> None:
    made = model("""g (float[1,4,6,3] x) => (float[?,?,?,?] y)
        <int32[2] block = {2, 3}, int32[2,2] none = {0, 0, 0, 0}, int32[2] other = {2, 1}> {
        [s2b] a = M.SpaceToBatchND(x, block, none)
        [turn] b = Transpose <perm = [0, 2, 1, 3]> (a)
        [b2s] y = M.BatchToSpaceND(b, other, none)
    }""")
    assert absorbed(made) == [("turn",), ()]
    verified(made, reference.agree(made, {"x": image(1, 4, 6, 3)}))


# What is known


def test_dims_that_only_the_run_knows() -> None:
    data = (image(2, 4, 5, 3), np.array([2, 3]), table((1, 1), (0, 1)))
    made = one_node("SpaceToBatchND", data, shape=("N", "H", None, 3))
    made = between_transposes(made, 4, before=TO_NHWC, behind=[TO_NCHW])
    assert absorbed(made) == [("front", "behind0")]
    feeds = [{"x": unturned(image(*s), TO_NHWC)} for s in ((2, 4, 5, 3), (1, 2, 8, 3))]
    verified(made, reference.agree(made, *feeds))


def test_parameters_that_only_the_run_knows() -> None:
    data = (image(12, 2, 3, 2), np.array([2, 3]), table((1, 1), (0, 4)))
    made = one_node("BatchToSpaceND", data, run_time={1, 2}, shape=(None, 2, "W", "C"))
    made = between_transposes(made, 4, before=TO_NHWC, behind=[TO_NCHW])
    assert absorbed(made) == [("front", "behind0")]
    feeds = {"x": unturned(data[0], TO_NHWC), "p1": data[1], "p2": data[2]}
    verified(made, reference.agree(made, feeds))


def test_an_unknown_rank_is_left_alone() -> None:
    made = one_node("SpaceToBatchND", (image(2, 4, 3), np.array([2]), table((0, 0))), shape=None)
    made = between_transposes(made, 3, behind=[(2, 1, 0)])
    (site,) = plan(made).operators
    assert (site.absorbed, site.declined) == ((), ())


def test_transposes_that_say_nothing_useful_are_left_alone() -> None:
    made = between_transposes(OPERATORS["patches"], 4, before=TO_NHWC, behind=[TO_NCHW])
    for change in ("twice", "no permutation", "reference"):
        odd = onnx.ModelProto()
        odd.CopyFrom(made)
        for node in (n for n in odd.graph.node if n.op_type == "Transpose"):
            if change == "twice":
                node.attribute.add().CopyFrom(node.attribute[0])
            elif change == "no permutation":
                node.attribute[0].ints[0] = 3
            else:
                node.attribute[0].ref_attr_name = "perm"
        assert absorbed(odd) == [()], change


def test_a_local_function_called_transpose_is_none() -> None:
    for domain in ("local", ""):
        made = between_transposes(OPERATORS["patches"], 4, before=TO_NHWC, behind=[TO_NCHW])
        if all(o.domain != domain for o in made.opset_import):
            made.opset_import.add(domain=domain, version=1)
        for node in (n for n in made.graph.node if n.op_type == "Transpose"):
            node.domain = domain
        own = made.functions.add(domain=domain, name="Transpose", input=["x"], output=["y"])
        own.opset_import.add(domain="", version=17)
        own.node.add(op_type="Neg", input=["x"], output=["y"])
        assert absorbed(made) == [()], domain


# Where it stands

BODY = """
    [front] p = Transpose <perm = [0, 2, 3, 1]> (t)
    [site] q = M.SpaceToBatchND(p, block, pads)
    [behind] b = Transpose <perm = [0, 3, 1, 2]> (q)
"""
PLACES = {
    "branch": f"""g (bool flag, float[2,3,3,3] x) => (float[?,?,?,?] y) BLOCKS {{
        t = Neg(x)
        y = If (flag) < then_branch = then () => (float[?,?,?,?] b) {{ {BODY} }},
                        else_branch = els () => (float[?,?,?,?] c) {{ c = Identity(t) }} >
    }}""",
    "scan": f"""g (float[3,2,3,3,3] x, float[2,3,3,3] start)
        => (float[?,?,?,?] last, float[?,?,?,?,?] all) BLOCKS {{
        last, all = Scan <num_scan_inputs = 1, body = turn (float[2,3,3,3] sum, float[2,3,3,3] t)
            => (float[2,3,3,3] next, float[?,?,?,?] b) {{ {BODY} next = Add(sum, t) }} > (start, x)
    }}""",
    "function": f"""g (float[2,3,3,3] x) => (float[?,?,?,?] y) BLOCKS {{
        y = local.F(x, block, pads)
    }}
    <domain: "local", opset_import: ["" : 17, "com.microsoft" : 1]>
    F (t, block, pads) => (b) {{ {BODY} }}""",
}


@pytest.mark.parametrize("place", PLACES)
def test_in_other_graphs(place: str) -> None:
    made = model(PLACES[place])
    assert absorbed(made) == [("front", "behind")]
    converted = convert(made)
    assert not {"front", "behind"} & {n.name for n in structure.nodes(converted)}
    verified(made, converted)


def test_a_transpose_of_the_graph_around_stays(cheaper) -> None:
    made = model("""g (bool flag, float[2,3,4,6] x) => (float[?,?,?,?] y)
        <int32[2] block = {2, 3}, int32[2,2] none = {0, 0, 0, 0}> {
        t = Transpose <perm = [0, 2, 3, 1]> (x)
        y = If (flag) <
            then_branch = then () => (float[?,?,?,?] b) { b = M.SpaceToBatchND(t, block, none) },
            else_branch = els () => (float[?,?,?,?] c) { c = Identity(t) } >
    }""")
    assert absorbed(made) == [()]
    (branch,) = (n for n in convert(made).graph.node if n.op_type == "If")
    assert "t" in {name for n in branch.attribute[0].g.node for name in n.input}


def test_nodes_in_any_order() -> None:
    made = between_transposes(OPERATORS["patches"], 4, before=TO_NHWC, behind=[TO_NCHW])
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in made.graph.node]
    del made.graph.node[:]
    made.graph.node.extend(reversed(nodes))
    assert absorbed(made) == [("front", "behind0")]
    converted = plan(made).model
    assert converted is not None
    verified(made, converted)


# What is said of it


def test_what_was_touched_is_listed_and_vanished_values_are_not_declared() -> None:
    made = between_transposes(OPERATORS["space to batch"], 4, before=TO_NHWC, behind=[TO_NCHW])
    for name in ("data", "result", "t0"):
        made.graph.value_info.add(name=name).type.CopyFrom(made.graph.output[0].type)
    result = plan(made)
    assert result.model is not None
    assert result.touched["nodes_replaced"] == ["site", "front", "behind0"]
    assert {v.name for v in result.model.graph.value_info} == {"t0"}
    assert {"data", "result", "t0"} <= set(result.touched["value_info_changed"])
    assert structure.dims(result.model, "t0") == [12, 3, 3, 2]
    origins = {p.value for n in result.model.graph.node for p in n.metadata_props}
    assert origins == {"SpaceToBatchND site"}


def test_quantization_annotations_keep_their_values() -> None:
    made = between_transposes(OPERATORS["space to batch"], 4, before=TO_NHWC, behind=[TO_NCHW])
    made.graph.quantization_annotation.add(tensor_name="result")
    assert absorbed(made) == [("front",)]


@pytest.mark.parametrize("options", [{"fuse": False}, {"mode": "function"}])
def test_nothing_is_absorbed_unless_asked_for(options) -> None:
    made = between_transposes(OPERATORS["patches"], 4, before=TO_NHWC, behind=[TO_NCHW])
    result = plan(made, **options)
    assert result.operators[0].absorbed == ()
    assert {"front", "behind0"} <= {n.name for n in result.model.graph.node}


def test_what_training_reads_keeps_its_name() -> None:
    made = between_transposes(OPERATORS["space to batch"], 4, before=TO_NHWC, behind=[TO_NCHW])
    made.training_info.add().algorithm.node.add(op_type="Neg", input=["result"], output=["neg"])
    assert absorbed(made) == [("front",)]


def test_what_cannot_be_written_with_its_transposes_is_written_without(monkeypatch) -> None:
    real = planning.lower_preferring

    def lower(request: Request, *limits: object) -> Lowered:
        if request.before is not None:
            raise ConversionError("not from there")
        return real(request, *limits)

    monkeypatch.setattr(planning, "lower_preferring", lower)
    made = between_transposes(OPERATORS["patches"], 4, before=TO_NHWC, behind=[TO_NCHW])
    assert absorbed(made) == [("behind0",)]
    verified(made, convert(made))


def test_a_forced_strategy_is_kept() -> None:
    made = between_transposes(OPERATORS["patches"], 4, before=TO_NHWC, behind=[TO_NCHW])
    (site,) = plan(made, prefer="row-gather").operators
    assert (site.lowering, site.absorbed) == ("row-gather", ("front", "behind0"))


def test_absorption_that_costs_more_is_declined(monkeypatch) -> None:
    monkeypatch.setattr(transposes, "transpose_cost", lambda dims, perm, itemsize: 0.0)
    made = between_transposes(OPERATORS["patches"], 4, before=TO_NHWC, behind=[TO_NCHW])
    (site,) = plan(made).operators
    if not site.absorbed:
        assert site.declined == ("the Transposes around it cost no more than absorbing them",)
    verified(made, convert(made))


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_channels_that_are_cropped_at_run_time_are_not_counted_on(channels):
    """A Gather crops the channels before they are moved."""
    block = np.array([1, 2, 2, 2, 1])
    data = np.arange(8 * 8 * channels, dtype=np.float32).reshape(8, 2, 2, 2, channels)
    begins, ends = np.array([0] * 5), np.array([0, 0, 1, 0, channels - 1])
    shape = [None, None, None, None, channels]
    site = one_node(
        "BatchToSpace",
        (data, block, begins, ends),
        domain=OPENVINO,
        shape=shape,
        run_time=(3,),
    )
    perm = (0, 2, 3, 4, 1)
    made = between_transposes(site, 5, before=perm)
    reference.agree(made, {"x": unturned(data, perm), "p3": ends})
