"""BatchToSpace directly behind SpaceToBatch leaves a Pad, a Slice or nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import reference
import structure
from adapter import plan, verify
from hypothesis import given, settings
from hypothesis import strategies as st
from region_models import model

NONE = [[0, 0], [0, 0]]


def pair(
    first: Any, second: Any, *, dims: str = "12,4,6,1", extra: str = "",
    gives: str = "float[?,?,?,?] z", block: tuple[int, int] = (2, 3), back: Any = None, **more: Any,
) -> onnx.ModelProto:  # fmt: skip
    """SpaceToBatchND and BatchToSpaceND, with their tables."""
    body = f"""a = Neg(x) [one] b = SpaceToBatchND(a, front, p)
        [two] c = BatchToSpaceND(b, back, q) z = Neg(c) {extra}"""
    tables = {"front": block, "back": back or block, "p": first, "q": second}
    dtype = {name: np.array(table, np.int32) for name, table in tables.items()}
    return model(body, given=f"float[{dims}] x", gives=gives, **dtype, **more)


def image(*shape: int) -> np.ndarray:
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)


def agree(made: onnx.ModelProto, *shapes: tuple[int, ...]) -> onnx.ModelProto:
    """The converted model, which gives what the definitions say, bit for bit, and is proven."""
    converted = reference.agree(made, *({"x": image(*shape)} for shape in shapes))
    result = verify(made, converted)
    assert result.evidence == "proven", result.message
    return converted


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        (NONE, NONE, ["Identity"]),
        ([[1, 1], [0, 3]], [[1, 1], [0, 3]], ["Identity"]),
        ([[1, 1], [3, 0]], [[1, 0], [0, 0]], ["Pad"]),
        (NONE, [[1, 2], [0, 3]], ["Slice"]),
        ([[2, 0], [0, 0]], [[0, 2], [0, 0]], ["Pad", "Slice"]),
    ],
)
def test_what_is_left(first: Any, second: Any, left: list[str]) -> None:
    made = pair(first, second)
    one, two = plan(made).operators
    assert one.lowering == two.lowering == "unblocked"
    assert (one.nodes_before, two.nodes_before) == (1, 1)
    assert one.nodes_after + two.nodes_after == len(left)
    converted = agree(made, (12, 4, 6, 1))
    assert structure.ops(converted) == ["Neg", *left, "Neg"]
    assert plan(made).touched["nodes_replaced"] == ["one", "two"]
    assert structure.dims(converted, "b") is None


OTHERS = {"extra": "y = Neg(b)", "gives": "float[?,?,?,?] z, float[?,?,?,?] y"}


def test_other_blocks_are_left_to_each_on_its_own() -> None:
    made = pair(NONE, NONE, back=(3, 2), dims="36,6,6,1")
    one, _ = plan(made).operators
    assert "its blocks [3, 2] are not those" in one.declined[0]
    agree(made, (36, 6, 6, 1))


def test_a_value_between_them_that_others_need_stays() -> None:
    made = pair(NONE, NONE, **OTHERS)
    one, two = plan(made).operators
    assert (one.lowering, two.lowering) != (
        "unblocked",
        "unblocked",
    ) and two.lowering == "unblocked"
    agree(made, (12, 4, 6, 1))


def test_sizes_and_parameters_that_only_the_run_knows() -> None:
    made = pair([[1, 1], [0, 3]], [[2, 2], [1, 3]], dims="N,H,W,C")
    assert plan(made).operators[0].lowering == "unblocked"
    agree(made, (1, 4, 6, 2), (2, 2, 3, 1))


def test_a_chain_cancels_pair_by_pair_and_the_same_operator_twice_is_no_pair() -> None:
    chain = """a = SpaceToBatchND(x, block, none) b = BatchToSpaceND(a, block, none)
        c = SpaceToBatchND(b, block, none) d = BatchToSpaceND(c, block, none) y = Neg(d)"""
    made = model(chain, given="float[1,4,6,2] x")
    assert structure.ops(agree(made, (1, 4, 6, 2))) == ["Identity", "Identity", "Neg"]
    twice = pair(NONE, NONE, dims="1,4,9,1")
    twice.graph.node[2].op_type = "SpaceToBatchND"
    assert [site.declined for site in plan(twice).operators] == [(), ()]


amounts = st.integers(0, 2)


@settings(max_examples=60)
@given(amounts, amounts, amounts, amounts)
def test_all_pads_and_crops_of_one_axis(low: int, high: int, begin: int, end: int) -> None:
    """Exact for everything that cancels; the model's own sizes say what is legal."""
    size = 3 if (low + high) % 2 else 4
    tables = ([[low, high], [0, 0]], [[begin, end], [0, 0]])
    made = pair(*tables, block=(2, 1), dims=f"2,{size},2,1")
    if not plan(made).refused:
        reference.agree(made, {"x": image(2, size, 2, 1)})
