"""Lowerings that are right at the usual sizes, and wrong at others, are found out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from adapter import verify
from hand_lowered import model
from vocabulary import InputFacts, NodeFacts, read

from onnx_spatial import convert
from onnx_spatial.verification.sizes import edge_shapes as module
from onnx_spatial.verification.sizes import operator_shapes
from onnx_spatial.verification.sizes.edge_shapes import edge_samples
from onnx_spatial.verification.sizes.operator_shapes import ShapeSample, draw_sample

BEFORE = """
    g (float[N,H,W,C] x) => (float[P,Q,R,S] y)
      <int32[2] block = {2, 2}, int32[2,2] none = {0, 0, 0, 0}>
    { y = tf.SpaceToBatchND(x, block, none) }
"""
RUN_TIME = """
    g (float[N,H,W,3] x, int32[2] block, int32[2,2] table) => (float[P,Q,R,S] y)
    { y = tf.OPERATOR(x, block, table) }
"""


def behind(original: onnx.ModelProto, nodes: str, constants: str) -> onnx.ModelProto:
    """The right conversion with nodes from `whole` to its output y."""
    converted = convert(original, verify=False).model
    more = model(
        f"g (float[A,B,C,D] whole) => (float[P,Q,R,S] y) <{constants}> {{ {nodes} }}"
    ).graph
    for node in converted.graph.node:
        node.output[:] = ["whole" if name == "y" else name for name in node.output]
    converted.graph.node.extend(more.node)
    converted.graph.initializer.extend(more.initializer)
    return converted


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ("u = Unsqueeze(whole, axis) y = Squeeze(u)", "int64[1] axis = {0}"),
        ("y = Slice(whole, from, to)", "int64[2] from = {0, 0}, int64[2] to = {1000, 1000}"),
        ("s = Shape(whole) l = Max(s, one) y = Reshape(whole, l)", "int64 one = {1}"),
        *(
            (f"s = Shape(whole) c = Cast<to={t}>(s) l = Cast<to=7>(c) y = Reshape(whole, l)", "")
            for t in (3, 5, 10)  # int8, int16, float16
        ),
    ],
)
def test_sizes_that_are_seldom_met(nodes: str, constants: str) -> None:
    before = model(BEFORE)
    result = verify(before, behind(before, nodes, constants or "int64 nothing = {0}"))
    assert result.status == "failed"
    assert any(check.how == "isolated" for check in result.operators[0].checks)


@pytest.mark.parametrize("operator", ["SpaceToBatchND", "BatchToSpaceND"])
@pytest.mark.parametrize(
    "bad",
    [
        "k = ReduceMax<keepdims=0>(block) bad = Equal(k, one)",
        "k = ReduceMax<keepdims=0>(block) bad = Greater(k, three)",
        "k = ReduceMax<keepdims=0>(table) bad = Equal(k, zero)",
        "k = ReduceMax<keepdims=0>(table) b = ReduceMax<keepdims=0>(block) bad = Greater(k, b)",
    ],
)
def test_parameters_that_are_seldom_met(operator: str, bad: str) -> None:
    before = model(RUN_TIME.replace("OPERATOR", operator))
    constants = "int32 zero = {0}, int32 one = {1}, int32 three = {3}"
    wrong = behind(before, f"{bad} n = Neg(whole) y = Where(bad, n, whole)", constants)
    result = verify(before, wrong)
    assert result.status == "failed"
    assert verify(before, convert(before, verify=False).model)


def test_what_is_known_stays_and_what_is_open_becomes_unusual() -> None:
    parameters = [np.array([2, 3], np.int32), np.array([[1, 2], [0, 3]], np.int32)]
    data = InputFacts("float32", ("N", "H", "W", 5))
    facts = NodeFacts("SpaceToBatchND", "", (data, *map(InputFacts.of, parameters)))
    usual = draw_sample(facts, np.random.default_rng(0), 0)
    assert usual is not None
    found = list(edge_samples(facts, usual, 17))
    operator = read(facts).bind([None, *parameters])
    assert all(d.unusual and d.shape[3] == 5 and operator.output_shape(d.shape) for d in found)
    shapes = [d.shape for d in found]
    assert (1, 1, 3, 5) in shapes  # 1 + 3 rows are two blocks, 3 + 3 columns too
    assert any(h == w for _, h, w, _ in shapes)
    assert 0 in {n for n, *_ in shapes}
    longest = [max(d.shape) for d in found if d.large]
    assert len(longest) == 3
    assert min(longest) > 2_000
    assert max(d.elements for d in found) < 300_000


@pytest.mark.parametrize("dims", [("N", "S", "S", 5), ("S", "S", "W", 5), ("N", "H", "S", "S")])
def test_dims_of_one_name_stay_alike(dims: tuple[str | int, ...]) -> None:
    parameters = [np.array([2, 2], np.int32), np.zeros((2, 2), np.int32)]
    data = InputFacts("float32", dims)
    facts = NodeFacts("SpaceToBatchND", "", (data, *map(InputFacts.of, parameters)))
    usual = draw_sample(facts, np.random.default_rng(0), 0)
    assert usual is not None
    found = list(edge_samples(facts, usual, 17))
    assert len(found) > 2
    first = dims.index("S")
    assert all(d.shape[first] == d.shape[dims.index("S", first + 1)] for d in found)


def test_nothing_is_unusual_where_all_is_known() -> None:
    data = InputFacts("float32", (2, 6, 6, 3))
    zeros = np.zeros((2, 2), np.int32)
    block = np.array([2, 3], np.int32)
    facts = NodeFacts("SpaceToBatchND", "", (data, InputFacts.of(block), InputFacts.of(zeros)))
    usual = draw_sample(facts, np.random.default_rng(0), 0)
    assert usual is not None
    assert list(edge_samples(facts, usual, 17)) == []


@pytest.mark.parametrize("opset", [11, 13, 14])
def test_no_empty_batch_is_asked_of_an_opset_that_cannot_reshape_one(opset: int) -> None:
    before = model(RUN_TIME.replace("OPERATOR", "SpaceToBatchND"))
    before.opset_import[0].version = opset
    assert before.opset_import[0].domain == ""
    result = verify(before, convert(before, verify=False).model)
    assert result, result.message
    (site,) = result.operators
    assert any(0 in c.shape for c in site.checks) is (opset >= 14)


def test_a_block_of_a_thousand_million_takes_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    data = InputFacts("float32", ("N", "H", 5))
    block, pads = np.array([10**9], np.int64), np.zeros((1, 2), np.int64)
    facts = NodeFacts("SpaceToBatchND", "", (data, InputFacts.of(block), InputFacts.of(pads)))
    tried: list[int] = []

    def fits(operator: object, rank: int, axes: Sequence[int], size: int) -> bool:
        tried.append(size)
        assert len(tried) < 10_000
        return operator_shapes.fits(operator, rank, axes, size)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "fits", fits)
    found = list(edge_samples(facts, ShapeSample((2, 10**9, 5), {}, 10**10), 17))
    assert tried
    assert all(d.shape[1] == 10**9 for d in found)
