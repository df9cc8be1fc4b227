"""What breaks an operator's rules in the run only: an error, or at most a tensor without elements."""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import onnx
import onnx.parser
import pytest
import running
import structure
from adapter import convert
from building import one_node
from lowering import illegal
from vocabulary import LOWERINGS

import onnx_spatial

#: The cheapest lowering, and those that can be asked for; one that does not apply is the cheapest again.
NAMES = [None, *LOWERINGS]
INT = np.int64


def campaign(first: int, last: int, **options: bool) -> dict[str, list[int]]:
    """The illegal runs of these numbers, in a process of their own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(illegal.outcomes, range(first, last), **options).result()


def data(shape: Sequence[int], dtype: type = np.float32) -> np.ndarray:
    return np.arange(1, 1 + np.prod(shape)).reshape(shape).astype(dtype)


def fails(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> bool:
    """Whether runs of it fail, optimised or not."""
    failed = 0
    for level in running.LEVELS:
        opened = running.session(model, level)
        try:
            running.run_session(opened, feeds)
        except Exception:  # as onnxruntime raises it
            failed += 1
    return failed == len(running.LEVELS)


LONG = [
    pytest.param(n, n + 1000, c, marks=pytest.mark.slow)
    for n in range(0, 10_000, 1000)
    for c in (0, 1)
]


@pytest.mark.parametrize(("first", "last", "checked"), [(0, 24, 0), (340, 350, 1), *LONG])
def test_no_illegal_run_is_answered_with_numbers_nor_a_checked_one_at_all(first, last, checked):
    found = campaign(first, last, checked=bool(checked))
    assert found["numbers"] == [] and (not checked or found["empty"] == [])
    assert len(found["error"]) > len(found["refused"]) / 2


IMAGE, NONE = ("N", "H", "W", "C"), [[0, 0], [0, 0]]
#: Operator, data, block and table that break a rule, and which of them only the run knows. Concat skips
#: parts without elements and leaves their share unset; Gather takes what it is told.
ILLEGAL = {
    "an odd height": ("SpaceToBatchND", (1, 5, 6, 2), [3, 2], NONE, (), IMAGE),
    "one row": ("SpaceToBatchND", (1, 1, 3, 2), [2, 2], NONE, (), IMAGE),
    "six images": ("BatchToSpaceND", (6, 2, 2, 4), [2, 2], NONE, (), IMAGE),
    **{
        f"{op_type}, {block or table}": (
            op_type, (4, 4, 4, 2), block or [2, 2], table or NONE, (1,) if block else (2,), (4, 4, 4, 2),
        )
        for op_type in ("SpaceToBatchND", "BatchToSpaceND")
        for block, table in (
            (None, [[-1, 1], [0, 0]]), (None, [[0, 0], [-2, 0]]), ([-1, -1], None), ([0, 2], None),
            ([1, -4], None),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "opset"),
    [(name, opset) for name, call in ILLEGAL.items() for opset in ((11,) if call[4] else (7, 17))],
)
def test_what_breaks_a_rule_in_the_run_fails_in_every_lowering(name, opset):
    op_type, shape, block, table, run_time, declared = ILLEGAL[name]
    inputs = (data(shape), np.array(block), np.array(table))
    model = one_node(op_type, inputs, shape=declared, run_time=run_time, opset=opset)
    feeds = {"x": inputs[0], **{f"p{i}": inputs[i] for i in run_time}}
    for lowering in NAMES:
        assert fails(convert(model, prefer=lowering), feeds), lowering


@pytest.mark.parametrize("lowering", NAMES)
@pytest.mark.parametrize(("size", "opset"), [(1, 11), (3, 17)])
def test_a_window_beyond_the_image_gives_no_numbers(size, opset, lowering):
    """-1 windows are none, and not the elements up to the last one."""
    x, ones = data((1, size, 6, 2)), {name: [1, 1, 1, 1] for name in ("strides", "rates")}
    ints = {**ones, "ksizes": [1, 5, 1, 1], "padding": "VALID"}
    model = one_node("ExtractImagePatches", (x,), shape=(1, "H", "W", 2), opset=opset, **ints)
    plain = convert(model, prefer=lowering)
    for level in running.LEVELS:
        opened = running.session(plain, level)
        try:
            (result,) = running.run_session(opened, {"x": x})
        except Exception:  # as onnxruntime raises it
            continue
        assert result.size == 0
    assert fails(convert(model, prefer=lowering, checked=True), {"x": x})


def test_what_is_known_before_the_run_is_not_checked_in_it():
    x = data((1, 4, 6, 2))
    for shape in (x.shape, ("N", 4, 6, 2)):
        model = one_node("SpaceToBatchND", (x, np.array([2, 2]), np.ones((2, 2), INT)), shape=shape)
        plain, checked = convert(model), convert(model, checked=True)
        assert structure.ops(plain) == structure.ops(checked)
        assert len(plain.graph.node) <= 5


@pytest.mark.parametrize("crops", [[-1, 0, 0, 0], [0, 0, -1, 0], [1, 0, 0, 0]])
def test_an_illegal_crop_that_overrides_one_of_a_region_fails_where_checked(crops):
    """Without `checked` a fused region gives values there: docs/operators.md lists it."""
    domain = "org.openvinotoolkit"
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17, "{domain}" : 1]>
        g (float[N,3,H,W] x, int64[4] begins) => (float[?,?,?,?] y)
        <int64[4] begins = {{0, 0, 0, 0}}, int64[4] none = {{0, 0, 0, 0}},
         int64[4] block = {{1, 1, 2, 2}}> {{
            s = {domain}.SpaceToBatch(x, block, none, none)
            r = Relu(s)
            y = {domain}.BatchToSpace(r, block, begins, none)
        }}""")
    feeds = {"x": data((2, 3, 8, 8)), "begins": np.array(crops)}
    assert fails(convert(model, checked=True), feeds)
    assert fails(convert(model, fuse=False), feeds)
    session = onnx_spatial.InferenceSession(model=model, mode="custom-op")
    with pytest.raises(onnx_spatial.OperatorError, match="must"):
        session.run(None, feeds)
