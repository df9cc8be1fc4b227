"""What conversion does to a model, what it says of it, and above all what it leaves alone."""

import inspect
from dataclasses import fields
from pathlib import Path

import numpy as np
import onnx
import pytest
import reference
import structure
from adapter import convert, plan
from building import one_node
from parsing import image, model
from report_models import net
from running import run

import onnx_spatial
from onnx_spatial import UsageError
from onnx_spatial.conversion.options import ConvertOptions
from onnx_spatial.model import traversal
from onnx_spatial.model.graph import patch_proto

DILATED = """g (float[2,4,6,1] x, float[1,1,3,3] w) => (float[?,?,?,?] z)
    <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0} DECLARED> {
        [in] a = Relu(x)
        [s2b] b = M.SpaceToBatchND(a, block, none)
        [to] c = Transpose <perm = [0, 3, 1, 2]> (b)
        [conv] d = Conv <pads = [1, 1, 1, 1]> (c, w)
        [back] e = Transpose <perm = [0, 2, 3, 1]> (d)
        [b2s] f = M.BatchToSpaceND(e, block, none)
        [out] z = Neg(f)
    }"""


def dilated(declared: str = "") -> onnx.ModelProto:
    return model(DILATED.replace("DECLARED", f", {declared}" if declared else ""))


# Operators


def test_an_operator_says_what_is_done_and_how():
    converted = onnx_spatial.convert(dilated(), fuse=False, prefer="transpose")
    first, second = converted.operators
    described = first.to_dict()
    costs = {key: described.pop(key) for key in ("estimated_us", "candidates")}
    estimate = {"lowering": "transpose", "estimated_us": costs["estimated_us"]}
    assert estimate in costs["candidates"] and costs["estimated_us"] > 0
    assert described == {
        "node": "s2b", "graph": "main graph", "op_type": "SpaceToBatchND", "domain": "com.microsoft",
        "dialect": "tensorflow-nd", "action": "lower", "reason": None, "lowering": "transpose",
        "element_type": "float32", "input_shape": [2, 4, 6, 1], "output_shape": [8, 2, 3, 1],
        "output": "b", "nodes_before": 1, "nodes_after": 3, "function": None, "absorbed": [],
        "declined": [], "between": [], "notes": [], "code": None, "before_us": None,
        "proven": "these sizes", "assumptions": [],
    }  # fmt: skip
    assert (second.node, second.output_shape) == ("b2s", (2, 4, 6, 1))


def test_a_refusal_leaves_the_other_operators_converted_and_is_listed():
    made = model("""g (float[2,4,6,1] x) => (float[?,?,?,?] y, float[?,?,?,?] z)
        <int32[2] block = {2, 2}, int32[2] five = {5, 5}, int32[2,2] none = {0, 0, 0, 0}> {
            [good] y = M.SpaceToBatchND(x, block, none)
            [bad] z = M.SpaceToBatchND(x, five, none)
        }""")
    result = plan(made)
    assert [s.action for s in result.operators] == ["lower", "refuse"]
    assert result.refused == [result.operators[1]]
    assert result.message == (
        "model: SpaceToBatchND 'bad' in main graph on [2, 4, 6, 1]: SpaceToBatch: axis 1: size 4 + "
        "paddings 0 + 0 = 4 is not divisible by its block, 5"
    )
    assert result.model.graph.node[-1] == made.graph.node[-1]


# Opset imports


def test_the_import_stays_while_a_node_in_a_subgraph_needs_it():
    made = model("""g (bool c, float[2,4,4,3] x) => (float[?,?,?,?] y, float[?,?,?,?] z)
        <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}> {
            z = M.SpaceToBatchND(x, block, none)
            y = If (c) <
                then_branch = taken () => (float[?,?,?,?] t) { t = M.FastGelu(x) },
                else_branch = other () => (float[?,?,?,?] e) { e = Neg(x) }>
        }""")
    assert "com.microsoft" in [o.domain for o in plan(made).model.opset_import]


# Declared shapes


def test_shapes_behind_the_operators_become_known_and_wrong_ones_are_replaced():
    """Exporters guess that an operator they do not know keeps the shape."""
    wrong = "float[2,4,6,1] b, float[2,1,4,6] c, float[9,9] d, float[2,4,6,1] f"
    for converted in (convert(dilated(declared), fuse=False) for declared in ("", wrong)):
        assert {name: structure.dims(converted, name) for name in "abcdef"} == {
            "a": None,  # in front of them: none of our business
            "b": [8, 2, 3, 1],
            "c": [8, 1, 2, 3],
            "d": [8, 1, 2, 3],
            "e": [8, 2, 3, 1],
            "f": [2, 4, 6, 1],
        }
        assert len(converted.graph.value_info) == 5


def guessed(declared: str) -> onnx.ModelProto:
    """What an exporter declares of y (and z, an output) if it thinks that the shape stays."""
    return model(f"""g (float[1,H,W,1] x) => (float[?,?,?,?] z, int64[4] s)
        <int32[2] block = {{2, 1}}, int32[2,2] pads = {{1, 1, 0, 0}}, {declared}> {{
            y = M.SpaceToBatchND(x, block, pads)
            z = Neg(y)
            s = Shape(z)
        }}""")


@pytest.mark.parametrize("declared", ["float[1,4,6,1] y", "float[1,4,6,1] z", "float[1,H,W,1] z"])
def test_guesses_of_sizes_that_nothing_confirms_are_dropped(declared):
    """onnxruntime would believe them, and take dims of one name to be of one size."""
    converted = reference.assert_agree(guessed(declared), {"x": image(1, 4, 6, 1)})
    for name in "yz":
        for info in converted.graph.value_info:
            if info.name == name:
                batch, height, width, channels = structure.dims(converted, name)
                assert (batch, channels) == (2, 1)
                assert height is None
                assert width in (None, "W")  # a block of 1 leaves the width alone


NONE = "int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}"

#: Graphs, and what is declared of their values behind the operator. onnx's inference calls unknown dims
#: unk__0, unk__1, ..; in a file these names would say that sizes differ.
DECLARED = {
    "names of dims that stay": (
        """g (float[2,4,W,C] x) => (float[?,?,?,?] z)
            <int32[2] block = {2, 1}, int32[2,2] none = {0, 0, 0, 0}> {
            y = M.SpaceToBatchND(x, block, none) z = Relu(y) }""",
        {"y": [4, 2, "W", "C"]},
    ),
    "no names that inference made up": (
        f"""g (float[N,H,W,1] x, float[K,1,3,3] w) => (float[?,?,?,?] z) <{NONE}> {{
            a = M.SpaceToBatchND(x, block, none)
            b = Transpose <perm = [0, 3, 1, 2]> (a)
            c = Conv <strides = [2, 2]> (b, w)
            d = Concat <axis = 2> (c, c)
            z = Transpose <perm = [0, 2, 3, 1]> (d) }}""",
        {"a": [None, None, None, 1], "b": [None, 1, None, None], "c": [None, "K", None, None]}
        | {"d": [None, "K", None, None]},
    ),
    "what the owner of an unknown operator says": (
        f"""g (float[2,4,4,1] x) => (float[?,?,?,?] z) <{NONE}, float[5,7] u> {{
            y = M.SpaceToBatchND(x, block, none) u = com.example.Strange(y) z = Neg(u) }}""",
        {"u": [5, 7]},
    ),
}


@pytest.mark.parametrize("name", DECLARED)
def test_what_is_declared_behind_operators(name):
    text, expected = DECLARED[name]
    converted = plan(model(text), fuse=False).model
    assert {value: structure.dims(converted, value) for value in expected} == expected


# Options


def test_static_fixes_dims_by_name_everywhere_and_unknown_choices_are_refused():
    tables = (np.array([2, 2]), np.zeros((2, 2), np.int64))
    made = one_node("SpaceToBatchND", (image(2, 4, 6, 3), *tables), shape=("N", "H", "W", 3))
    frozen = convert(made, static={"H": 4, "N": 2})
    assert structure.dims(frozen, "x") == [2, 4, "W", 3]
    assert structure.dims(made, "x") == ["N", "H", "W", 3]
    for wrong in ("mode", "prefer"):
        with pytest.raises(UsageError, match=f"{wrong} must be one of .*, not 'magic'"):
            plan(made, **{wrong: "magic"})
    with pytest.raises(UsageError, match="no symbolic dim named D, Q"):
        plan(made, static={"Q": 1, "H": 4, "D": 2})
    sizes = {-1: "0 or more, not -1", True: "0 or more, not True", 2**70: "below 2"}
    for size, words in sizes.items():
        with pytest.raises(UsageError, match=f"the size of dim H must be {words}"):
            plan(made, static={"H": size})
    assert structure.dims(convert(made, static={"H": np.int64(4)}), "x")[1] == 4
    for limit in (0, True, "5"):
        with pytest.raises(UsageError, match=f"max_rank must be 1 or more, not {limit!r}"):
            plan(made, max_rank=limit)
    with pytest.raises(UsageError, match="verify must be True, False or VerifyOptions, not 'yes'"):
        onnx_spatial.convert(made, verify="yes")


# The summary


@pytest.mark.parametrize("options", [{}, {"fuse": False}, {"mode": "function"}])
def test_rows_of_the_summary_add_up_to_the_nodes_and_the_files_are_measured(options):
    made = dilated()
    result = onnx_spatial.convert(made, verify=False, **options)
    found = result.summary
    rows = [(row.nodes_before, row.nodes_after) for row in found.replacements]
    rows += [(before, after) for _, _, before, after in found.other_nodes()]
    totals = tuple(sum(each.nodes.values()) for each in (found.before, found.after))
    assert tuple(map(sum, zip(*rows, strict=True))) == totals
    assert min(map(min, rows)) >= 0 and totals[0] == 7 and found.before.nodes["Transpose"] == 2
    for figures, model_ in ((found.before, made), (found.after, result.model)):
        assert figures.bytes == len(model_.SerializeToString())
    if "mode" in options:  # a call, and the function is counted once
        assert [row.nodes_after for row in found.replacements] == [1, 1]
    else:
        ops = structure.counts(result.model)
        assert found.after.nodes == {name: ops[name] for name in found.after.nodes}


def test_a_node_that_two_regions_share_is_a_member_of_one_row():
    path = Path(__file__).parents[2] / "models/wavenet_noncausal/model.onnx"
    rows = onnx_spatial.convert(path, verify=False).summary.replacements
    members = [label for row in rows for label in row.members]
    assert len(rows) == 4 and len(members) == len({*members})


@pytest.mark.parametrize(
    ("group", "kind"), [(1, "Conv 3x3, dilation 2, 1"), (4, "depthwise 3x3, dilation 2, 4")]
)
def test_a_region_is_one_row_of_the_summary(group, kind):
    text = DILATED.replace("4,6,1] x", f"4,6,{group}] x").replace("[1,1,3,3] w", "[4,1,3,3] w")
    made = model(text.replace("DECLARED", "").replace("1]> (c", f"1], group = {group}> (c"))
    found = onnx_spatial.convert(made, verify=False).summary
    assert found.text == "2 operators became 1 dilated convolution"
    (row,) = found.replacements
    kind += " -> 4" * (group == 1)
    assert (row.node, row.what, row.nodes_before) == ("conv", f"{kind} channels", 5)
    assert (found.before.operators, found.after.operators) == (2, 0)
    assert found.estimate is None  # no runtime runs the operators: there is no time to compare with


def test_nodes_that_only_served_operators_are_a_row_of_their_own():
    path = Path(__file__).parents[2] / "models" / "wavenet" / "model.onnx"
    found = onnx_spatial.convert(path, verify=False).summary
    assert found.other_nodes() == [
        ("removed with them", "shape arithmetic and layout", 66, 0),
        ("other nodes", "", 26, 26),
    ]


def test_the_keywords_of_convert_have_the_same_defaults():
    keywords = inspect.signature(onnx_spatial.convert).parameters
    assert {f.name: f.default for f in fields(ConvertOptions)} == {
        f.name: keywords[f.name].default for f in fields(ConvertOptions)
    }


# Of a large model only the part around the operators is edited; the rest keeps its place and bytes


@pytest.mark.parametrize(("distance", "fuse"), [(0, False), (4, True)])
def test_nodes_far_from_operators_keep_their_order_and_the_result_is_that_of_the_whole(
    distance: int, fuse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = net(150, 3)
    whole = onnx_spatial.convert(model, fuse=fuse, verify=False).model
    monkeypatch.setattr(patch_proto, "DISTANCE", distance)
    starts = [i for i, n in enumerate(model.graph.node) if n.domain]
    near = patch_proto.part_around(traversal.Index(model), starts)
    assert near.main is not None and len(near.main) < len(model.graph.node)
    made = onnx_spatial.convert(model, fuse=fuse, verify=False).model
    onnx.checker.check_model(made, full_check=True)
    one, other = (sorted(map(str, each.graph.node)) for each in (made, whole))
    assert one == other
    kept = [n.name for n in model.graph.node if n.op_type in ("Add", "Sigmoid", "Tanh")]
    assert len(kept) > 80 and [n.name for n in made.graph.node if n.name in kept] == kept
    x = {"x": np.random.default_rng(0).standard_normal((1, 2, 4, 4)).astype(np.float32)}
    for one, other in zip(run(made, x), run(whole, x), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
