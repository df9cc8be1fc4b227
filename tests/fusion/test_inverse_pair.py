"""Opposite operators, one directly behind the other, leave a Pad, a Slice or nothing."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
import reference
import structure
from adapter import convert, plan, verify
from onnx import parser

HEAD = '<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1, "org.openvinotoolkit" : 1]>\n'


def pair(
    *,
    forward: bool,
    first: str,
    second: str,
    block: str = "2, 3",
    shape: str = "12,4,6,1",
    extra: str = "",
    outputs: str = "float[?,?,?,?] z",
) -> onnx.ModelProto:
    """SpaceToBatchND and BatchToSpaceND, or the other way round, with their tables."""
    one, two = ("SpaceToBatchND", "BatchToSpaceND")[:: 1 if forward else -1]
    return parser.parse_model(f"""{HEAD} g (float[{shape}] x) => ({outputs})
        <int32[2] block = {{{block}}}, int32[2,2] p = {{{first}}}, int32[2,2] q = {{{second}}}> {{
        a = Neg(x)
        [one] b = com.microsoft.{one}(a, block, p)
        [two] c = com.microsoft.{two}(b, block, q)
        z = Neg(c)
        {extra}
    }}""")


def image(*shape: int) -> np.ndarray:
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)


def verified(made: onnx.ModelProto, converted: onnx.ModelProto) -> None:
    result = verify(made, converted)
    assert result, result.message
    assert result.evidence == "proven" and all(site.ran for site in result.operators)


#: The region between the two, which holds nothing, or the rule for the other direction.
NAMES = {True: "unblocked", False: "cancelled"}

CASES = [
    (True, "0, 0, 0, 0", "0, 0, 0, 0", ["Identity"]),
    (True, "1, 1, 0, 3", "1, 1, 0, 3", ["Identity"]),
    (True, "1, 1, 3, 0", "1, 0, 0, 0", ["Pad"]),
    (True, "0, 0, 0, 0", "1, 2, 0, 3", ["Slice"]),
    (True, "2, 0, 0, 0", "0, 2, 0, 0", ["Pad", "Slice"]),
    (False, "0, 0, 0, 0", "0, 0, 0, 0", ["Identity"]),
    (False, "0, 0, 0, 0", "2, 0, 3, 6", ["Pad"]),
    (False, "2, 4, 0, 3", "0, 0, 0, 0", ["Slice"]),
]


@pytest.mark.parametrize(("forward", "first", "second", "left"), CASES)
def test_what_is_left(forward: bool, first: str, second: str, left: list[str]) -> None:
    made = pair(forward=forward, first=first, second=second)
    one, two = plan(made).operators
    assert one.lowering == two.lowering == NAMES[forward]
    assert (one.nodes_before, two.nodes_before) == (1, 1)
    assert one.nodes_after + two.nodes_after == len(left)
    converted = reference.agree(made, {"x": image(12, 4, 6, 1)})
    assert structure.ops(converted) == ["Neg", *left, "Neg"]
    assert plan(made).touched["nodes_replaced"] == ["one", "two"]
    assert structure.dims(converted, "b") is None
    verified(made, converted)


DECLINED = [
    (False, "1, 1, 0, 0", "1, 1, 0, 0", "side that was cropped"),
    (False, "0, 0, 0, 0", "1, 1, 0, 0", "multiples of the block"),
    (False, "2, 0, 0, 0", "0, 2, 0, 0", "both pad and crop"),
]


@pytest.mark.parametrize(("forward", "first", "second", "reason"), DECLINED)
def test_what_is_left_to_each_on_its_own(forward, first, second, reason) -> None:
    made = pair(forward=forward, first=first, second=second)
    one, two = plan(made).operators
    (declined,) = one.declined
    assert reason in declined and "'two'" in declined
    assert "cancelled" not in (one.lowering, two.lowering)
    verified(made, reference.agree(made, {"x": image(12, 4, 6, 1)}))


def test_sizes_that_only_the_run_knows() -> None:
    made = pair(forward=True, first="1, 1, 0, 3", second="2, 2, 1, 3", shape="N,H,W,C")
    assert plan(made).operators[0].lowering == "unblocked"
    verified(made, reference.agree(made, {"x": image(1, 4, 6, 2)}, {"x": image(2, 2, 3, 1)}))


@pytest.mark.parametrize(
    ("extra", "outputs"),
    [
        ("y = Neg(b)", "float[?,?,?,?] z, float[?,?,?,?] y"),
        ("", "float[?,?,?,?] z, float[?,?,?,?] b"),
    ],
)
@pytest.mark.parametrize("forward", [True, False])
def test_a_value_between_them_that_others_need_stays(forward, extra: str, outputs: str) -> None:
    none = "0, 0, 0, 0"
    made = pair(forward=forward, first=none, second=none, extra=extra, outputs=outputs)
    one, two = plan(made).operators
    if forward:
        assert two.lowering == "unblocked"
    else:
        (declined,) = one.declined
        assert "other nodes read the value between" in declined
    assert one.lowering not in NAMES.values()
    verified(made, reference.agree(made, {"x": image(12, 4, 6, 1)}))


@pytest.mark.parametrize(
    ("forward", "reason"), [(True, "its blocks [3, 2] are not those"), (False, "blocks differ")]
)
def test_other_blocks_keep_both(forward: bool, reason: str) -> None:
    made = pair(forward=forward, first="0, 0, 0, 0", second="0, 0, 0, 0", shape="36,6,6,1")
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array([3, 2], np.int32), "o"))
    made.graph.node[2].input[1] = "o"
    (declined,) = plan(made).operators[0].declined
    assert reason in declined
    verified(made, reference.agree(made, {"x": image(36, 6, 6, 1)}))


def test_parameters_that_only_the_run_knows() -> None:
    def with_table(forward: bool) -> onnx.ModelProto:
        made = pair(forward=forward, first="0, 0, 0, 0", second="0, 0, 0, 0")
        made.graph.initializer.remove(next(t for t in made.graph.initializer if t.name == "q"))
        made.graph.input.append(onnx.helper.make_tensor_value_info("q", 6, [2, 2]))
        return made

    (declined,) = plan(with_table(False)).operators[0].declined
    assert "run time" in declined
    made = with_table(True)
    assert structure.ops(convert(made))[1:-1].count("Slice") == 1
    feeds = {"x": image(12, 4, 6, 1), "q": np.array([[1, 0], [0, 2]], np.int32)}
    reference.agree(made, feeds)


def test_a_chain_cancels_pair_by_pair() -> None:
    made = parser.parse_model(f"""{HEAD} g (float[1,4,6,2] x) => (float[?,?,?,?] e)
        <int32[2] block = {{2, 3}}, int32[2,2] none = {{0, 0, 0, 0}}> {{
        a = com.microsoft.SpaceToBatchND(x, block, none)
        b = com.microsoft.BatchToSpaceND(a, block, none)
        c = com.microsoft.SpaceToBatchND(b, block, none)
        d = com.microsoft.BatchToSpaceND(c, block, none)
        e = Neg(d)
    }}""")
    converted = reference.agree(made, {"x": image(1, 4, 6, 2)})
    assert structure.ops(converted) == ["Identity", "Identity", "Neg"]
    verified(made, converted)


def test_the_same_operator_twice_is_no_pair() -> None:
    made = pair(forward=True, first="0, 0, 0, 0", second="0, 0, 0, 0", shape="1,4,9,1")
    made.graph.node[2].op_type = "SpaceToBatchND"
    assert [s.declined for s in plan(made).operators] == [(), ()]


def test_modes_without_fusion_keep_both() -> None:
    made = pair(forward=True, first="0, 0, 0, 0", second="0, 0, 0, 0")
    kept = structure.ops(convert(made, fuse=False, prefer="transpose"))
    assert kept.count("Transpose") == 2


def test_all_pads_and_crops_of_one_axis() -> None:
    """Exact for everything that cancels; the model's own sizes say what is legal."""
    cancelled = 0
    for forward, low, high, begin, end in itertools.product((True, False), *[range(3)] * 4):
        made = pair(
            forward=forward,
            first=f"{low}, {high}, 0, 0",
            second=f"{begin}, {end}, 0, 0",
            block="2, 1",
            shape="2,3,2,1" if (low + high) % 2 and forward else "2,4,2,1",
        )
        if plan(made).refused:
            continue
        cancelled += plan(made).operators[1].lowering == NAMES[forward]
        size = made.graph.input[0].type.tensor_type.shape.dim[1].dim_value
        reference.agree(made, {"x": image(2, size, 2, 1)})
    assert cancelled >= 85
