"""Every lowering is exact at every opset for every element type, and writes little; or says why not."""

from dataclasses import replace
from functools import partial
from random import Random

import graphs
import ml_dtypes
import numpy as np
import onnx
import pytest
import running
import structure
from adapter import convert, plan, refusal
from building import ELEMENT_TYPES, TF, one_node
from graphs import OPSETS, Form, Sample
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabulary import LOWERINGS

import onnx_spatial
from onnx_spatial.lowering import emitter, row_gather, select

NAMES = list(LOWERINGS)


def still(rng: Random) -> Sample:
    """Nothing is moved: blocks of 1 without pads, windows of 1, cells of 1."""
    kinds = ("SpaceToBatch", "BatchToSpace", "ExtractImagePatches", "ReorgYolo")
    sample = graphs.sample(rng, *(f"openvino {kind}" for kind in kinds))
    if "stride" in sample.attributes:
        return replace(sample, attributes={"stride": 1})
    if "sizes" in sample.attributes:
        return replace(sample, attributes={**sample.attributes, "sizes": [1, 1], "strides": [1, 1]})
    count = sample.inputs[0].ndim
    tables = (np.ones(count, int), np.zeros(count, int), np.zeros(count, int))
    return replace(sample, inputs=(sample.inputs[0], *tables), attributes={})


def empty(rng: Random) -> Sample:
    while True:
        sample = graphs.sample(rng)
        if 0 in sample.inputs[0].shape or 0 in sample.expected.shape:
            return sample


def square(rng: Random) -> Sample:
    """The last two axes in equal blocks, floats."""
    b = rng.choice([2, 3])
    batch, channels = rng.choice([1, 2]), rng.choice([1, 3])
    x = np.array([batch, channels, b * rng.randint(1, 3), b * rng.randint(1, 3)])
    if rng.random() < 0.5:
        x[0] *= b * b
        op_type = "BatchToSpaceND"
    else:
        op_type = "SpaceToBatchND"
    data = graphs.array(rng, rng.choice(["float32", "float64"]), tuple(int(d) for d in x))
    table = np.zeros((3, 2), np.int32)
    return Sample(op_type, TF, (data, np.array([1, b, b], np.int32), table))


#: Lowerings that few nodes are for, with those.
RARE = {"identity": still, "empty": empty, "space-to-depth": square}


@pytest.mark.parametrize("name", NAMES)
def test_each_is_taken_when_asked_for_and_exact(name):
    taken = 0
    for seed in range(120):
        rng = Random(f"{name} {seed}")
        sample = RARE.get(name, graphs.sample)(rng)
        case = graphs.form(rng, sample).case(sample)
        made = plan(case.model, prefer=name)
        if made.operators[0].lowering == name:
            assert made.model is not None
            graphs.check(case, made.model)
            taken += 1
        if taken == 5:
            return
    raise AssertionError(f"{name} took {taken} of 120 nodes")


@settings(max_examples=50)
@given(case=graphs.graphs(*graphs.SPELLINGS))
def test_the_cheapest_is_exact(case):
    graphs.check(case, convert(case.model))


@pytest.mark.parametrize("lowering", ["row-gather", "planes", "slices", None])
@pytest.mark.parametrize("known", [True, False], ids=["static", "symbolic"])
def test_an_empty_axis_has_nothing_to_start_inside_of(lowering, known):
    """ExtractVolumePatches SAME with stride > kernel starts inside, but not inside of nothing."""
    data = np.zeros((1, 1, 0, 0, 2), np.float32)
    ints = {"ksizes": [1, 3, 3, 2, 1], "strides": [1, 3, 1, 5, 1], "padding": "SAME"}
    shape = data.shape if known else ("a", "b", "c", "d", "e")
    sample = Sample("ExtractVolumePatches", TF, (data,), ints)
    case = Form(shape, frozenset(), 17, 8).case(sample)
    graphs.check(case, convert(case.model, prefer=lowering))


@settings(max_examples=30)
@given(case=graphs.graphs(*graphs.SPELLINGS), limit=st.sampled_from((3, 4, 5)))
def test_a_rank_limit_is_kept_or_the_reason_given(case, limit):
    made = plan(case.model, max_rank=limit)
    (site,) = made.operators
    if made.model is None:
        assert site.action == "refuse" and site.reason
        return
    known = onnx.shape_inference.infer_shapes(made.model)
    new = [v for v in known.graph.value_info if v.type.tensor_type.HasField("shape")]
    assert all(len(v.type.tensor_type.shape.dim) <= limit for v in new)
    graphs.check(case, made.model)
    shape = case.feeds["x"].shape
    if case.form.shape == shape and len(shape) <= limit and not case.form.run_time:
        assert site.action == "lower"


@pytest.mark.parametrize("name", ["gather", "row-gather", "element-gather", "planes"])
def test_long_indices_are_exact(name, monkeypatch):
    """Runtimes add tables up when they load; those of these samples are taken for long ones."""
    for module in (emitter, row_gather):
        monkeypatch.setattr(module, "MAX_STORED_ENTRIES", 0)
    for seed in range(15):
        rng = Random(seed)
        sample = graphs.sample(rng)
        shape = sample.inputs[0].shape
        form = replace(graphs.form(rng, sample), shape=shape, run_time=frozenset())
        case = form.case(sample)
        select._rank_present.cache_clear()
        made = plan(case.model, prefer=name)
        assert made.model is not None
        graphs.check(case, made.model)
    select._rank_present.cache_clear()


# Sizes of 0


def test_crops_of_the_run_from_an_axis_without_elements():
    """The estimated crops exceed the axis: an estimated time is no root of a negative number."""
    model = onnx.parser.parse_model("""
        <ir_version: 7, opset_import: ["" : 12, "org.openvinotoolkit" : 1]>
        g (float[a,b,c,3,0,2] x, int8[6] ends) => (float[d,e,f,g,h,i] y)
        <int8[6] block = {1, 1, 2, 4, 1, 1}, int8[6] begins = {0, 0, 1, 0, 0, 0}> {
            y = org.openvinotoolkit.BatchToSpace(x, block, begins, ends)
        }""")
    made = onnx_spatial.convert(model, verify=False).model
    x = np.zeros((8, 4, 3, 3, 0, 2), np.float32)
    feeds = {"x": x, "ends": np.array([0, 0, 1, 4, 0, 0], np.int8)}
    (y,) = running.run(made, feeds)
    assert y.shape == (1, 4, 4, 8, 0, 2)


INT = np.int32

OPERATORS = {
    "SpaceToBatchND": ((2, 3, 5, 2), ([2, 3], [[1, 0], [3, 1]]), {}),
    "BatchToSpaceND": ((12, 2, 3, 2), ([2, 3], [[1, 0], [2, 4]]), {}),
    "ExtractImagePatches": (
        *((2, 5, 4, 2), ()),
        {"ksizes": [1, 3, 2, 1], "strides": [1, 2, 1, 1], "rates": [1, 1, 2, 1], "padding": "SAME"},
    ),
    "ReorgYolo": ((2, 5, 4, 2), (), {"stride": 2}),  # with a channel left over
}


def sample_of(op_type: str, dtype: str) -> Sample:
    shape, parameters, attributes = OPERATORS[op_type]
    data = graphs.array(Random(dtype), dtype, shape)
    tables = (np.array(each, INT) for each in parameters)
    return Sample(op_type, TF, (data, *tables), attributes)


def missing(op_type: str, dtype: str, opset: int, *, static: bool, run_time: bool) -> str | None:
    """What standard operators of the opset lack, in words of the refusal."""
    if dtype == "bfloat16" and opset < 13:
        return "bfloat16 needs 13 or newer"
    if opset < 9 and not static and (op_type in ("ExtractImagePatches", "ReorgYolo") or run_time):
        return "need opset 9"
    if dtype == "string" and op_type == "ExtractImagePatches" and opset < 10:
        return "slices of strings with computed bounds or with steps need opset 10"
    return None


@pytest.mark.parametrize("opset", [7, 9, 10, 13, OPSETS[-1]])
@pytest.mark.parametrize("op_type", OPERATORS)
def test_every_element_type_at_every_opset_that_brought_something(op_type, opset):
    ir_version = max(4, running.ir_version_of(opset))
    for number, dtype in enumerate(ELEMENT_TYPES):
        made = sample_of(op_type, dtype)
        static = number % 2 == 0
        shape = made.inputs[0].shape if static else ("a", "b", "c", "d")
        case = Form(shape, frozenset(), opset, ir_version).case(made)
        reason = missing(op_type, dtype, opset, static=static, run_time=False)
        if reason is not None:
            assert reason in refusal(case.model), dtype
            continue
        converted = convert(case.model)
        assert converted.opset_import[0].version == opset and converted.ir_version == ir_version
        graphs.check(case, converted)


@pytest.mark.parametrize("opset", [7, 9])
@pytest.mark.parametrize("op_type", [name for name in OPERATORS if "Batch" in name])
def test_parameters_of_the_run_and_unknown_ranks_in_older_opsets(op_type, opset):
    made = sample_of(op_type, "float32")
    case = Form(None, frozenset(), opset, 4).case(made)
    graphs.check(case, convert(case.model))
    case = Form((None,) * 4, frozenset({1, 2}), opset, 4).case(made)
    if opset < 9 and op_type.startswith("BatchTo"):
        said = refusal(case.model)
        assert said.startswith(f"the model's opset is {opset}: ") and "--static" in said
        return
    graphs.check(case, convert(case.model))


def test_what_nothing_runs_is_refused():
    form = Form((None,) * 4, frozenset(), 6, 4)
    said = refusal(form.model(sample_of("SpaceToBatchND", "float32")))
    assert said.startswith("the model's opset is 6; lowering needs 7 or newer")
    for name in ("float8_e4m3fn", "int4"):
        inputs = (np.zeros((1, 2, 2, 1), getattr(ml_dtypes, name)), np.zeros((2, 2), INT))
        model = one_node("SpaceToBatch", inputs, block_size=2, opset=21, ir_version=10)
        assert refusal(model).endswith("is not supported")


def test_before_ir_4_no_constant_becomes_an_initializer():
    """There an initializer that is not an input is invalid, and one that is could be overridden."""
    made = sample_of("SpaceToBatchND", "float32")
    old, new = (
        convert(one_node(made.op_type, made.inputs, ir_version=v, opset=11)) for v in (3, 4)
    )
    assert [t.name for t in old.graph.initializer] == ["p1", "p2"]
    assert [v.name for v in old.graph.input] == ["x", "p1", "p2"]
    assert structure.counts(old)["Constant"] >= 3
    assert structure.counts(new)["Constant"] == 0
    onnx.checker.check_model(old)


# How little it is


def blocks(
    op_type: str, dims: tuple[int, ...], block: list[int], table: list[list[int]], dtype=np.float32
):
    data = np.full(dims, "", object) if dtype is object else np.zeros(dims, dtype)
    return one_node(op_type, (data, np.array(block, INT), np.array(table, INT)))


def patches(dims: tuple[int, ...], size: int, padding: str):
    """Windows that tile the image."""
    ints = {"ksizes": [1, size, size, 1], "strides": [1, size, size, 1], "rates": [1] * 4}
    return one_node("ExtractImagePatches", (np.zeros(dims, np.float32),), **ints, padding=padding)


NONE = [[0, 0], [0, 0]]
S2B, B2S = partial(blocks, "SpaceToBatchND"), partial(blocks, "BatchToSpaceND")
PLAIN = S2B((2, 4, 6, 3), [2, 2], NONE)


@pytest.mark.parametrize(
    ("model", "ops"),
    [
        (S2B((2, 4, 6, 3), [2, 3], NONE), "Reshape Transpose Reshape"),
        (S2B((2, 3, 6, 3), [1, 1], [[1, 0], [0, 0]]), "Pad"),
        (S2B((2, 4, 6, 3), [1, 1], NONE), "Identity"),
        (S2B((1, 2, 2, 3), [2, 2], NONE), "Reshape"),  # nothing changes places
        (B2S((12, 4, 6, 3), [2, 3], [[0, 0], [1, 0]]), "Reshape Transpose Reshape Slice"),
        # Types without a kernel of Pad are padded by Concat.
        *((S2B((2, 3, 6, 3), [2, 3], [[1, 0], [0, 0]], dtype), "Concat Reshape Transpose Reshape")
          for dtype in (np.float16, np.int16, np.uint16, object)),
        (patches((2, 7, 6, 3), 3, "VALID"), "Slice Reshape Transpose Reshape"),
        (patches((2, 7, 7, 3), 3, "SAME"), "Pad Reshape Transpose Reshape"),
        (patches((2, 7, 7, 3), 1, "SAME"), "Identity"),
    ],
)  # fmt: skip
def test_no_more_is_written_than_needed(model, ops):
    assert structure.ops(convert(model, prefer="transpose")) == ops.split()


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize(
    ("model", "needed"), [(PLAIN, 4), (S2B((2, 4, 6, 4, 2), [2, 3, 2], [[0, 0]] * 3), 5)]
)
def test_a_rank_limit_that_nothing_keeps_says_which_one_would_do(model, needed, limit):
    assert refusal(model, max_rank=limit) == (
        f"no lowering fits: it needs tensors of rank {needed}, the limit is {limit} "
        f"(use --max-rank {needed} or more)"
    )
    assert plan(model, max_rank=needed)


@pytest.mark.parametrize("lowering", ["transpose", "gather", "row-gather", "slices"])
def test_a_rank_limit_takes_another_way_where_there_is_one(lowering):
    (site,) = plan(PLAIN, prefer=lowering, max_rank=4).operators
    assert site.lowering == lowering
    staged = structure.counts(convert(PLAIN, prefer="transpose", max_rank=4))
    assert staged["Transpose"] == 2


@pytest.mark.parametrize("mode", ["lower", "function"])
def test_why_a_preferred_lowering_is_not_taken_is_said(mode):
    (site,) = plan(PLAIN, prefer="planes", mode=mode).operators
    assert site.lowering != "planes"
    assert site.notes == ("not lowered by planes: not a patch operator",)
    assert plan(PLAIN, prefer=site.lowering, mode=mode).operators[0].notes == ()
