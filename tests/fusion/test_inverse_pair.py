"""Opposite operators in a row leave a Pad, a Slice or nothing; nets, hardly more than by hand."""

from pathlib import Path
from typing import Any

import native
import numpy as np
import onnx
import pytest
import reference
import running
import structure
from adapter import convert, plan, verify
from fusion.region_models import model
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing import image

from onnx_spatial.validation import data_sets

NONE = [[0, 0], [0, 0]]


def pair(
    forward: bool, first: Any, second: Any, *, dims: str = "12,4,6,1", extra: str = "",
    gives: str = "float[?,?,?,?] z", block: tuple[int, int] = (2, 3), back: Any = None, **more: Any,
) -> onnx.ModelProto:  # fmt: skip
    """SpaceToBatchND and BatchToSpaceND, or the other way round, with their tables."""
    one, two = ("SpaceToBatchND", "BatchToSpaceND")[:: 1 if forward else -1]
    body = f"""a = Neg(x) [one] b = {one}(a, front, p) [two] c = {two}(b, back, q) z = Neg(c) {extra}"""
    tables = {"front": block, "back": back or block, "p": first, "q": second}
    dtype = {name: np.array(table, np.int32) for name, table in tables.items()}
    return model(body, given=f"float[{dims}] x", gives=gives, **dtype, **more)


def assert_agree(made: onnx.ModelProto, *shapes: tuple[int, ...]) -> onnx.ModelProto:
    """The converted model, which gives what the definitions say, bit for bit, and is proven."""
    converted = reference.assert_agree(made, *({"x": image(*shape)} for shape in shapes))
    result = verify(made, converted)
    assert result.evidence == "proven", result.message
    return converted


@pytest.mark.parametrize(
    ("forward", "first", "second", "left"),
    [
        (True, NONE, NONE, ["Identity"]),
        (True, [[1, 1], [0, 3]], [[1, 1], [0, 3]], ["Identity"]),
        (True, [[1, 1], [3, 0]], [[1, 0], [0, 0]], ["Pad"]),
        (True, NONE, [[1, 2], [0, 3]], ["Slice"]),
        (True, [[2, 0], [0, 0]], [[0, 2], [0, 0]], ["Pad", "Slice"]),
        (False, NONE, NONE, ["Identity"]),
        (False, NONE, [[2, 0], [3, 6]], ["Pad"]),
        (False, [[2, 4], [0, 3]], NONE, ["Slice"]),
    ],
)
def test_what_is_left(forward: bool, first: Any, second: Any, left: list[str]) -> None:
    made = pair(forward, first, second)
    one, two = plan(made).operators
    # The region between the two, which holds nothing, or the rule for the other direction.
    assert one.lowering == two.lowering == ("unblocked" if forward else "cancelled")
    assert (one.nodes_before, two.nodes_before) == (1, 1)
    assert one.nodes_after + two.nodes_after == len(left)
    converted = assert_agree(made, (12, 4, 6, 1))
    assert structure.ops(converted) == ["Neg", *left, "Neg"]
    assert plan(made).touched["nodes_replaced"] == ["one", "two"]
    assert structure.dims(converted, "b") is None


OTHERS = {"extra": "y = Neg(b)", "gives": "float[?,?,?,?] z, float[?,?,?,?] y"}


@pytest.mark.parametrize(
    ("forward", "first", "second", "options", "reason"),
    [
        (False, [[1, 1], [0, 0]], [[1, 1], [0, 0]], {}, "side that was cropped"),
        (False, NONE, [[1, 1], [0, 0]], {}, "multiples of the block"),
        (False, [[2, 0], [0, 0]], [[0, 2], [0, 0]], {}, "both pad and crop"),
        (False, NONE, NONE, OTHERS, "other nodes read the value between"),
        (False, NONE, NONE, {"back": (3, 2), "dims": "36,6,6,1"}, "blocks differ"),
        (True, NONE, NONE, {"back": (3, 2), "dims": "36,6,6,1"}, "its blocks [3, 2] are not those"),
    ],
)
def test_what_is_left_to_each_on_its_own(
    forward: bool, first: Any, second: Any, options: dict[str, Any], reason: str
) -> None:
    made = pair(forward, first, second, **options)
    one, two = plan(made).operators
    assert reason in one.declined[0]
    assert "cancelled" not in (one.lowering, two.lowering)
    assert_agree(made, (36, 6, 6, 1) if "dims" in options else (12, 4, 6, 1))


def test_sizes_and_parameters_that_only_the_run_knows() -> None:
    made = pair(True, NONE, NONE, **OTHERS)  # a value between them that others need stays
    one, two = plan(made).operators
    assert one.lowering != "unblocked" and two.lowering == "unblocked"
    assert_agree(made, (12, 4, 6, 1))
    made = pair(True, [[1, 1], [0, 3]], [[2, 2], [1, 3]], dims="N,H,W,C")
    assert plan(made).operators[0].lowering == "unblocked"
    assert_agree(made, (1, 4, 6, 2), (2, 2, 3, 1))
    made = pair(False, NONE, NONE)
    made.graph.initializer.remove(next(t for t in made.graph.initializer if t.name == "q"))
    made.graph.input.append(onnx.helper.make_tensor_value_info("q", 6, [2, 2]))
    assert "run time" in plan(made).operators[0].declined[0]


def test_a_chain_cancels_pair_by_pair_and_the_same_operator_twice_is_no_pair() -> None:
    chain = """a = SpaceToBatchND(x, block, none) b = BatchToSpaceND(a, block, none)
        c = SpaceToBatchND(b, block, none) d = BatchToSpaceND(c, block, none) y = Neg(d)"""
    made = model(chain, given="float[1,4,6,2] x")
    assert structure.ops(assert_agree(made, (1, 4, 6, 2))) == ["Identity", "Identity", "Neg"]
    twice = pair(True, NONE, NONE, dims="1,4,9,1")
    twice.graph.node[2].op_type = "SpaceToBatchND"
    assert [site.declined for site in plan(twice).operators] == [(), ()]


amounts = st.integers(0, 2)


@settings(max_examples=60)
@given(st.booleans(), amounts, amounts, amounts, amounts)
def test_all_pads_and_crops_of_one_axis(
    forward: bool, low: int, high: int, begin: int, end: int
) -> None:
    """Exact wherever the definitions have numbers, and refused everywhere else."""
    size = 3 if (low + high) % 2 and forward else 4
    tables = ([[low, high], [0, 0]], [[begin, end], [0, 0]])
    made = pair(forward, *tables, block=(2, 1), dims=f"2,{size},2,1")
    feeds = {"x": image(2, size, 2, 1)}
    try:
        reference.run(made, feeds)
    except ValueError:  # a broken rule
        assert plan(made).refused
    else:
        reference.assert_agree(made, feeds)


# By hand

ZOO = Path(__file__).parents[2] / "models"


@pytest.mark.parametrize("name", native.NETS)
def test_a_net_has_hardly_more_nodes_than_by_hand_which_gives_what_was_recorded(name):
    exported = onnx.load(ZOO / name / "model.onnx")
    by_hand = native.NETS[name](exported)
    onnx.checker.check_model(by_hand, full_check=True)
    assert {node.domain for node in by_hand.graph.node} == {""}
    data = data_sets.read(ZOO / name / "test_data_set_0", by_hand)
    for output, recorded in zip(
        running.run(by_hand, dict(data.inputs)), data.outputs.values(), strict=True
    ):
        np.testing.assert_allclose(output, recorded, rtol=0, atol=1e-5)
    count, converted = len(structure.ops(by_hand)), len(structure.ops(convert(exported)))
    # Of the tiles 3 nodes more than SpaceToDepth, 2 for the kernel of the strided Conv.
    assert count <= converted <= count + (6 if name == "openvino_style" else 3)
