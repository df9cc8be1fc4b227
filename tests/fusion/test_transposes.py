"""Transposes around an operator become part of it, and never when anybody else needs them."""

from collections.abc import Sequence
from random import Random
from typing import Any

import graphs
import holders
import numpy as np
import onnx
import pytest
import reference
import structure
from adapter import convert, plan, verify
from building import OPENVINO, one_node
from hypothesis import given, settings
from onnx import helper
from parsing import image, model
from running import Case
from vocabulary import LOWERINGS

from onnx_spatial import ConversionError
from onnx_spatial.conversion import pipeline as planning
from onnx_spatial.fusion import neighbours
from onnx_spatial.lowering import Lowered, Request

TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
Perm = tuple[int, ...]


def between_transposes(
    model: onnx.ModelProto,
    rank: int,
    *,
    before: Perm | None = None,
    behind: Sequence[Perm] = (),
    front_read: bool = False,
    outputs: Sequence[str] = (),
) -> onnx.ModelProto:
    """A model of `building.one_node` whose node "site" stands between Transposes.

        x -> front -> data -> site -> result -> behind0 -> t0 -> Identity -> y0, ..

    Args:
        model: with one input x and one output y.
        rank: of x; that of y is the length of what is behind.
        before: of the Transpose in front; x is what goes into it.
        behind: of the Transposes behind; none leaves y as it is.
        front_read: a Neg reads what comes out of the one in front, too.
        outputs: values that are graph outputs beside y0, ...: "data", "result", "t0", ..
    """
    made = onnx.ModelProto.FromString(model.SerializeToString())
    graph, (site,) = made.graph, made.graph.node
    element_type, known = graph.input[0].type.tensor_type.elem_type, structure.dims(made, "x")
    names, unknown = [], [None] * rank
    if before is not None:
        site.input[0] = "data"
        graph.node.insert(0, _transpose(before, "x", "data", "front"))
        declared = known and [known[before.index(axis)] for axis in range(rank)]
        x = helper.make_tensor_value_info("x", element_type, declared)
        graph.input[0].CopyFrom(x)
    if behind:
        site.output[0], unknown = "result", [None] * len(behind[0])
        for number, perm in enumerate(behind):
            graph.node.append(_transpose(perm, "result", f"t{number}", f"behind{number}"))
            graph.node.append(helper.make_node("Identity", [f"t{number}"], [f"y{number}"]))
            names.append(f"y{number}")
        del graph.output[:]
    if front_read:
        graph.node.append(helper.make_node("Identity", ["data"], ["also"]))
        names.append("also")
    for name in (*names, *outputs):
        dims = [None] * rank if name in ("data", "also") else unknown
        graph.output.append(helper.make_tensor_value_info(name, element_type, dims))
    return made


def _transpose(perm: Perm, source: str, target: str, name: str) -> onnx.NodeProto:
    """With the attribute left out where it says what is meant anyway."""
    reverse = perm == tuple(reversed(range(len(perm))))
    given = {} if reverse else {"perm": list(perm)}
    return helper.make_node("Transpose", [source], [target], name, **given)


def unturned(data: np.ndarray, perm: Perm | None) -> np.ndarray:
    """What a Transpose by `perm` makes `data` of."""
    if perm is None:
        return data
    return np.ascontiguousarray(np.transpose(data, np.argsort(perm))).reshape(
        [data.shape[perm.index(axis)] for axis in range(data.ndim)]
    )


@pytest.fixture(autouse=True)
def dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the lowerings cost: what can be absorbed is worth it."""
    monkeypatch.setattr(neighbours, "transpose_cost", lambda dims, perm, itemsize: 1e9)


def blocks(kind: str, shape: tuple[int, ...], block: list[int], table: Any, **options: Any):
    return one_node(kind, (image(*shape), np.array(block), np.array(table, np.int32)), **options)


S2B = blocks("SpaceToBatchND", (2, 4, 5, 3), [2, 3], [[1, 1], [0, 1]])
PATCHES = one_node(
    "ExtractImagePatches", (image(2, 5, 7, 3),),
    ksizes=[1, 3, 2, 1], strides=[1, 2, 2, 1], rates=[1, 1, 2, 1], padding="SAME",
)  # fmt: skip
#: One operator of each rule and of ranks 3 to 5.
OPERATORS = {
    "space to batch": S2B,
    "rank 3": blocks("SpaceToBatchND", (2, 5, 3), [2], [[1, 2]]),
    "rank 5": blocks("BatchToSpaceND", (8, 2, 3, 2, 2), [2, 1, 2], [[1, 0], [0, 0], [0, 1]]),
    "OpenVINO": one_node(
        "SpaceToBatch",
        (image(2, 2, 4, 6), *(np.array(v) for v in ([1, 1, 2, 3], [0, 0, 1, 0], [0, 0, 1, 0]))),
        domain=OPENVINO,
    ),
    "leftover": blocks("SpaceToDepth", (2, 4, 6, 3), [2, 3], [[0, 0], [0, 0]], domain=""),
    "patches": PATCHES,
    "volumes": one_node(
        "ExtractVolumePatches", (image(1, 3, 4, 5, 2),),
        ksizes=[1, 2, 2, 1, 1], strides=[1, 1, 2, 1, 1], padding="VALID",
    ),
}  # fmt: skip


def shape_of(made: onnx.ModelProto) -> tuple[int, ...]:
    return tuple(d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim)


def absorbed(made: onnx.ModelProto, **options: Any) -> list[tuple[str, ...]]:
    return [site.absorbed for site in plan(made, **options).operators]


def assert_agree(made: onnx.ModelProto, *feeds: dict[str, np.ndarray]) -> onnx.ModelProto:
    """The converted model, bit for bit as the definitions say, each operator proven on its own."""
    converted = reference.assert_agree(made, *feeds)
    result = verify(made, converted)
    assert result.evidence == "proven" and all(site.ran for site in result.operators), (
        result.message
    )
    return converted


@pytest.mark.parametrize("name", OPERATORS)
def test_transposes_on_both_sides_are_absorbed(name: str) -> None:
    shape = shape_of(OPERATORS[name])
    rank = len(shape)
    before, behind = (0, *range(2, rank), 1), [(0, rank - 1, *range(1, rank - 1))]
    made = between_transposes(OPERATORS[name], rank, before=before, behind=behind)
    names = ["front", "behind0"]
    (site,) = plan(made).operators
    assert (list(site.absorbed), site.declined, site.nodes_before) == (names, (), 3)
    converted = assert_agree(made, {"x": unturned(image(*shape), before)})
    assert not {"front", "behind0"} & {n.name for n in converted.graph.node}
    assert not {"data", "result"} & {o for n in converted.graph.node for o in n.output}


@settings(max_examples=20)
@given(case=graphs.graphs(*graphs.SPELLINGS), rng=graphs.randoms)
def test_random_transposes_around_random_operators(case: graphs.NodeCase, rng: Random) -> None:
    data, given = case.feeds["x"], case.expected["y"]
    rank, rank_behind = data.ndim, given.ndim

    def perm(count: int) -> tuple[int, ...]:
        return tuple(rng.sample(range(count), count))

    before = perm(rank) if rng.random() < 0.8 else None
    same = perm(rank_behind)
    behind = rng.choice(((), (same,), (same,), (same, same), (same, perm(rank_behind))))
    there = ["data"] * bool(before) + ["result"] * bool(behind)
    there += [f"t{i}" for i in range(len(behind))]
    made = between_transposes(
        case.model, rank, before=before, behind=behind,
        front_read=before is not None and rng.random() < 0.2,
        outputs=[name for name in there if rng.random() < 0.1],
    )  # fmt: skip
    found = {"data": data, "also": data, "result": given, "y": given}
    for number, axes in enumerate(behind):
        found |= dict.fromkeys((f"t{number}", f"y{number}"), np.transpose(given, axes))
    expected = {v.name: np.ascontiguousarray(found[v.name]) for v in made.graph.output}
    feeds = case.feeds | {"x": unturned(data, before)}
    lowering = rng.choice((None, None, *LOWERINGS))
    graphs.check(Case(made, feeds, expected, 0.0, case.about), convert(made, prefer=lowering))


# Who else needs them

FRONT = {"before": TO_NHWC, "behind": [TO_NCHW]}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({**FRONT, "front_read": True}, ("behind0",)),
        ({"before": TO_NHWC, "outputs": ["data"]}, ()),
        ({**FRONT, "outputs": ["t0"]}, ("front", "behind0")),
        ({**FRONT, "outputs": ["result"]}, ("front",)),
        ({"before": TO_NHWC, "behind": [TO_NCHW, TO_NHWC]}, ("front",)),
        ({"behind": [TO_NCHW] * 3, "outputs": ["t1", "t2"]}, ("behind0", "behind1", "behind2")),
    ],
)
def test_what_others_read_stays_for_them(
    options: dict[str, Any], expected: tuple[str, ...]
) -> None:
    made = between_transposes(S2B, 4, **options)
    assert absorbed(made) == [expected]
    converted = assert_agree(made, {"x": unturned(image(2, 4, 5, 3), options.get("before"))})
    there = {o for n in converted.graph.node for o in n.output}
    assert set(options.get("outputs", ())) <= there
    if options.get("behind") and expected in ((), ("front",)):
        (site,) = plan(between_transposes(S2B, 4, **{**options, "before": None})).operators
        assert "is a graph output" in site.declined[0] or "other Transposes" in site.declined[0]


def test_what_nothing_reads_goes_and_what_annotations_and_training_name_stays() -> None:
    made = between_transposes(PATCHES, 4, behind=[TO_NCHW, TO_NCHW])
    del made.graph.output[1:]
    made.graph.node.remove(next(n for n in made.graph.node if n.output[0] == "y1"))
    assert absorbed(made) == [("behind0", "behind1")]
    assert_agree(made, {"x": image(2, 5, 7, 3)})
    annotated, trained = (between_transposes(S2B, 4, **FRONT) for _ in range(2))
    annotated.graph.quantization_annotation.add(tensor_name="result")
    trained.training_info.add().algorithm.node.add(op_type="Neg", input=["result"], output=["neg"])
    assert absorbed(annotated) == absorbed(trained) == [("front",)]


TABLES = "<int32[2] block = {2, 3}, int32[2] other = {2, 1}, int32[2,2] none = {0, 0, 0, 0}>"
READERS = {
    "another node": "u = Relu(b)",
    "a branch in a branch": """u = If (yes) <
        then_branch = t () => (float[?,?,?,?] q) {
            q = If (yes) < then_branch = tt () => (float[?,?,?,?] i) { i = Relu(b) },
                           else_branch = te () => (float[?,?,?,?] j) { j = Neg(b) } > },
        else_branch = e () => (float[?,?,?,?] r) { r = Neg(x) } >""",
}


@pytest.mark.parametrize("name", READERS)
def test_nothing_is_absorbed_behind_what_others_read(name: str) -> None:
    made = model(f"""g (float[1,4,3,3] x, bool yes) => (float[?,?,?,?] y, float[?,?,?,?] u) {TABLES} {{
        [site] b = M.SpaceToBatchND(x, block, none)
        [behind] y = Transpose <perm = [0, 3, 1, 2]> (b)
        {READERS[name]}
    }}""")
    (site,) = plan(made).operators
    assert site.absorbed == () and "'behind'" in site.declined[0]
    assert_agree(made, *({"x": image(1, 4, 3, 3), "yes": np.array(yes)} for yes in (True, False)))
    made.graph.node.reverse()  # a branch may be listed before what it reads
    assert absorbed(made) == [()]


# What is known


@pytest.mark.parametrize("run_time", [(), (1, 2)])
def test_dims_and_parameters_that_only_the_run_knows(run_time: tuple[int, ...]) -> None:
    block, table = np.array([2, 3]), np.array([[1, 1], [0, 1]], np.int32)
    data = (image(2, 4, 5, 3), block, table)
    made = one_node("SpaceToBatchND", data, shape=("N", "H", None, 3), run_time=run_time)
    made = between_transposes(made, 4, **FRONT)
    assert absorbed(made) == [("front", "behind0")]
    more = {"p1": block, "p2": table} if run_time else {}
    shapes = ((2, 4, 5, 3), (1, 2, 8, 3))
    assert_agree(made, *({"x": unturned(image(*s), TO_NHWC), **more} for s in shapes))


@pytest.mark.parametrize("channels", [1, 4])
def test_channels_that_are_cropped_at_run_time_are_not_counted_on(channels: int) -> None:
    """A Gather crops the channels before they are moved."""
    ends, perm, x = (
        np.array([0, 0, 1, 0, channels - 1]),
        (0, 2, 3, 4, 1),
        image(8, 2, 2, 2, channels),
    )
    inputs = (x, np.array([1, 2, 2, 2, 1]), np.zeros(5, np.int64), ends)
    known = {"domain": OPENVINO, "shape": [None] * 4 + [channels], "run_time": (3,)}
    made = between_transposes(one_node("BatchToSpace", inputs, **known), 5, before=perm)
    reference.assert_agree(made, {"x": unturned(x, perm), "p3": ends})


@pytest.mark.parametrize("change", ["no permutation", "reference", "local", ""])
def test_nodes_that_are_no_transposes_are_left_alone(change: str) -> None:
    made = between_transposes(PATCHES, 4, **FRONT)
    for node in (n for n in made.graph.node if n.op_type == "Transpose"):
        if change == "no permutation":
            node.attribute[0].ints[0] = 3
        elif change == "reference":
            node.attribute[0].ref_attr_name = "perm"
        else:  # the domain of a function of this name
            node.domain = change
    if change in ("local", ""):
        if change:
            made.opset_import.add(domain=change, version=1)
        own = made.functions.add(domain=change, name="Transpose", input=["x"], output=["y"])
        own.opset_import.add(domain="", version=17)
        own.node.add(op_type="Neg", input=["x"], output=["y"])
    assert absorbed(made) == [()]


# Where it stands


@pytest.mark.parametrize("holder", ["branch", "function"])
def test_in_other_graphs(holder: str) -> None:
    made = holders.HOLDERS[holder](between_transposes(S2B, 4, **FRONT))
    assert absorbed(made) == [("front", "behind0")]
    converted = convert(made)
    assert not {"front", "behind0"} & {n.name for n in structure.nodes(converted)}
    assert verify(made, converted).evidence == "proven"


# What is said of it, and what decides


def test_what_was_touched_is_listed_and_vanished_values_are_not_declared() -> None:
    made = between_transposes(S2B, 4, **FRONT)
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


def test_options_costs_and_what_can_be_written_decide(monkeypatch: Any) -> None:
    made, real = between_transposes(PATCHES, 4, **FRONT), planning.lower_preferring
    assert absorbed(made, fuse=False) == absorbed(made, mode="function") == [()]
    (site,) = plan(made, prefer="row-gather").operators
    assert (site.lowering, site.absorbed) == ("row-gather", ("front", "behind0"))
    with monkeypatch.context() as patch:
        patch.setattr(neighbours, "transpose_cost", lambda dims, perm, itemsize: 0.0)
        (site,) = plan(made).operators
        assert site.absorbed or "cost no more than absorbing them" in site.declined[0]

    def lower(request: Request, *limits: object) -> Lowered:
        if request.before is not None:
            raise ConversionError("not from there")
        return real(request, *limits)

    monkeypatch.setattr(planning, "lower_preferring", lower)
    assert absorbed(made) == [("behind0",)]
    assert_agree(made, {"x": unturned(image(2, 5, 7, 3), TO_NHWC)})
