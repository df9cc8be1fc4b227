"""What each strategy writes: the nodes, their constants, and how little there is of both."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import structure
from adapter import convert, plan, refusal
from building import one_node
from onnx import helper
from vocabulary import LOWERINGS

from onnx_spatial import UsageError
from onnx_spatial.lowering.core.nodes import INT64_MAX

I32 = np.int32


def s2b(dims: tuple[int, ...], block: list[int], pads: list[list[int]], **options):
    dtype = options.pop("dtype", np.float32)
    data = np.zeros(dims, dtype) if dtype is not object else np.full(dims, "", object)
    table = np.array(pads, I32).reshape(-1, 2)
    return one_node("SpaceToBatchND", (data, np.array(block, I32), table), **options)


def b2s(dims: tuple[int, ...], block: list[int], crops: list[list[int]], **options):
    table = np.array(crops, I32).reshape(-1, 2)
    data = np.zeros(dims, np.float32)
    return one_node("BatchToSpaceND", (data, np.array(block, I32), table), **options)


def patches(
    dims: tuple[int, ...], k: int, s: int, r: int = 1, padding: str = "SAME", **options
) -> onnx.ModelProto:
    dtype = options.pop("dtype", np.float32)
    ints = {"ksizes": [1, k, k, 1], "strides": [1, s, s, 1], "rates": [1, r, r, 1]}
    return one_node(
        "ExtractImagePatches", (np.zeros(dims, dtype),), **ints, padding=padding, **options
    )


def node(model: onnx.ModelProto, op_type: str) -> onnx.NodeProto:
    return next(n for n in model.graph.node if n.op_type == op_type)


def attribute(model: onnx.ModelProto, op_type: str, name: str) -> object:
    found = next(a for a in node(model, op_type).attribute if a.name == name)
    return helper.get_attribute_value(found)


def constants(model: onnx.ModelProto, op_type: str) -> list[object]:
    """The initializers that the first node of a type reads, as lists."""
    held = {t.name for t in model.graph.initializer}
    names = [i for i in node(model, op_type).input if i in held]
    return [structure.initializer(model, name).tolist() for name in names]


def ends(model: onnx.ModelProto) -> list[object]:
    """The ends of all Slices, which are constants."""
    slices = [n for n in model.graph.node if n.op_type == "Slice"]
    return [structure.initializer(model, n.input[2]).tolist() for n in slices]


# SpaceToBatch and BatchToSpace


@pytest.mark.parametrize(
    ("model", "ops"),
    [
        (s2b((2, 4, 6, 3), [2, 3], [[0, 0], [0, 0]]), "Reshape Transpose Reshape"),
        (s2b((2, 3, 6, 3), [2, 3], [[1, 0], [0, 0]]), "Pad Reshape Transpose Reshape"),
        (s2b((2, 3, 6, 3), [1, 1], [[1, 0], [0, 0]]), "Pad"),
        (s2b((2, 4, 6, 3), [1, 1], [[0, 0], [0, 0]]), "Identity"),
        (s2b((2, 4), [], []), "Identity"),
        (s2b((1, 2, 2, 3), [2, 2], [[0, 0], [0, 0]]), "Reshape"),  # nothing changes places
        (b2s((12, 4, 6, 3), [2, 3], [[0, 0], [0, 0]]), "Reshape Transpose Reshape"),
        (b2s((12, 4, 6, 3), [2, 3], [[0, 0], [1, 0]]), "Reshape Transpose Reshape Slice"),
        (b2s((12, 4, 6, 3), [1, 1], [[0, 0], [1, 0]]), "Slice"),
        (b2s((12, 4, 6, 3), [1, 1], [[0, 0], [0, 0]]), "Identity"),
    ],
)
def test_blocks_of_static_shapes(model, ops):
    assert structure.ops(convert(model, prefer="transpose")) == ops.split()


def test_axes_that_stay_together_are_one_axis_of_the_transpose():
    converted = convert(s2b((2, 4, 6, 8, 5, 3), [2], [[0, 0]]), prefer="transpose")
    # [2, 2 cells, 2 offsets, the rest in one] -> offsets first
    assert constants(converted, "Reshape") == [[4, 2, 720]]
    assert attribute(converted, "Transpose", "perm") == [1, 0, 2]


def test_an_axis_with_a_block_of_1_is_not_split():
    converted = convert(s2b((2, 4, 6, 3), [1, 2], [[0, 0], [0, 0]]), prefer="transpose")
    assert len(attribute(converted, "Transpose", "perm")) <= 4


def test_one_unknown_dim_needs_no_arithmetic():
    converted = convert(s2b((2, 4, 6, 3), [2, 2], [[0, 0], [0, 0]], shape=("N", 4, 6, 3)))
    assert structure.ops(converted) == ["Reshape", "Transpose", "Reshape"]
    assert constants(converted, "Reshape")[0].count(-1) == 1


def test_sizes_that_are_read_at_run_time_are_read_once():
    converted = convert(
        s2b((2, 4, 6, 3), [2, 2], [[1, 1], [0, 0]], shape=("N", "H", "W", "C"), run_time=(1, 2))
    )
    assert structure.counts(converted)["Shape"] == 1  # for all dims
    assert structure.counts(converted)["Where"] == 2  # whether all of a table are sizes at all


def test_rows_of_unknown_sizes_are_added_up():
    model = b2s((4, 8, 8, 64), [2, 2], [[0, 0], [1, 0]], shape=("N", "H", "W", 64))
    counted = structure.counts(convert(model, prefer="gather"))
    assert counted["Range"] and counted["Add"]
    assert "Transpose" not in counted


@pytest.mark.parametrize("amount", [0, 3])
def test_an_end_crop_of_an_unknown_size_counts_from_the_end(amount):
    converted = convert(b2s((12, 4, 6, 3), [2, 3], [[1, amount], [0, 0]], shape=("N", "H", "W", 3)))
    starts, ends, _ = constants(converted, "Slice")
    assert starts == [1]
    assert ends == [-3 if amount else 2**63 - 1]  # -0 would be the front


def test_crops_of_known_sizes_are_absolute():
    converted = convert(b2s((12, 4, 6, 3), [2, 3], [[1, 0], [0, 2]]), prefer="transpose")
    assert constants(converted, "Slice")[:2] == [[1, 0], [8, 16]]


def test_an_unknown_rank_is_put_back_at_run_time():
    model = s2b((2, 4, 6, 3, 2), [2, 2], [[0, 0], [0, 0]], shape=None)
    converted = convert(model, prefer="transpose")
    assert {"Shape", "ReduceProd", "Transpose"} <= structure.counts(converted).keys()
    assert len(attribute(converted, "Transpose", "perm")) <= 2 * 2 + 2


@pytest.mark.parametrize("dtype", [np.float16, np.int16, np.uint16, object])
def test_types_without_a_pad_kernel_are_padded_by_concat(dtype):
    converted = convert(
        s2b((2, 3, 6, 3), [2, 3], [[1, 0], [0, 0]], dtype=dtype), prefer="transpose"
    )
    assert structure.ops(converted) == ["Concat", "Reshape", "Transpose", "Reshape"]


def test_bool_has_a_pad_kernel_from_opset_13_on():
    for opset, op_type in ((12, "Concat"), (13, "Pad")):
        model = s2b(
            (2, 3, 6, 3), [2, 3], [[1, 0], [0, 0]], dtype=np.bool_, opset=opset, ir_version=7
        )
        assert structure.ops(convert(model, prefer="transpose"))[0] == op_type


def test_row_gather_knows_its_index_beforehand():
    converted = convert(b2s((4, 2, 2, 3), [2, 2], [[0, 1], [0, 0]]), prefer="row-gather")
    assert structure.ops(converted) == ["Reshape", "Gather", "Reshape"]
    (rows,) = constants(converted, "Gather")
    assert rows == [0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7]
    padded = convert(s2b((1, 2, 2), [3], [[1, 0]]), prefer="row-gather")
    assert structure.ops(padded) == ["Reshape", "Concat", "Gather", "Reshape"] or (
        structure.ops(padded) == ["Reshape", "Concat", "Gather"]
    )
    assert constants(padded, "Gather") == [[-1, 0, 1]]  # -1 is the row of zeros behind the others


# Patches


@pytest.mark.parametrize(
    ("model", "ops"),
    [
        (patches((2, 6, 6, 3), 3, 3, padding="VALID"), "Reshape Transpose Reshape"),
        (patches((2, 7, 6, 3), 3, 3, padding="VALID"), "Slice Reshape Transpose Reshape"),
        (patches((2, 7, 7, 3), 3, 3), "Pad Reshape Transpose Reshape"),
        (patches((2, 7, 7, 3), 1, 1), "Identity"),
        (patches((2, 6, 6, 3), 6, 6, padding="VALID"), "Reshape"),
    ],
)
def test_windows_that_tile_the_image(model, ops):
    assert structure.ops(convert(model, prefer="transpose")) == ops.split()


def test_padding_of_known_images_is_a_row_of_zeros():
    converted = convert(patches((1, 2, 2, 3), 2, 1), prefer="row-gather")
    assert structure.ops(converted) == ["Reshape", "Concat", "Gather", "Reshape"]
    (rows,) = constants(converted, "Gather")
    assert rows == [0, 1, 2, 3, 1, -1, 3, -1, 2, 3, -1, -1, 3, -1, -1, -1]


def test_an_unknown_size_with_stride_1_still_has_known_padding():
    model = patches((2, 6, 6, 3), 3, 1, shape=("N", "H", "W", "C"))
    for strategy in ("row-gather", "slices"):
        converted = convert(model, prefer=strategy)
        assert constants(converted, "Pad") == [[0, 1, 1, 0, 0, 1, 1, 0]]


def test_phases_of_an_unknown_size_are_transposed_not_sliced_with_steps():
    """All bounds are constants: the padding leaves as much behind each tap, whatever the size.

    Where no Pad cuts off the last axis of the data, it leaves a cell more.
    """
    cell, two = [[1, -1], [2, -1], [1, INT64_MAX]], [[1, -2], [2, -2], [1, -1]]
    for padding, dtype, left in (
        ("SAME", np.float32, cell),
        ("SAME", np.float16, cell),
        ("VALID", np.float32, two),
        ("VALID", np.float16, two),
    ):
        shape = (1, "H", "W", 1)
        model = patches((1, 9, 9, 1), 3, 2, padding=padding, shape=shape, dtype=dtype)
        converted = convert(model, prefer="planes")
        assert structure.counts(converted)["Transpose"]
        assert all(len(n.input) > 1 for n in converted.graph.node if n.op_type == "Split")  # sizes
        assert ends(converted) == left
        assert all(len(n.input) < 5 for n in converted.graph.node if n.op_type == "Slice")


def test_places_of_a_window_are_counted_from_the_end_of_an_unknown_size():
    model = patches((1, 9, 9, 4), 2, 2, padding="VALID", shape=(1, "H", "W", 4))
    converted = convert(model, prefer="slices")
    last = INT64_MAX
    assert ends(converted) == [[-1, -1], [-1, last], [last, -1], [last, last]]


def test_an_unknown_batch_is_no_part_of_an_index():
    for strategy, shape in (
        ("planes", ("N", 8, 8, 2)),
        ("row-gather", ("N", "H", "W", 2)),
    ):
        converted = convert(patches((2, 8, 8, 2), 3, 1, shape=shape), prefer=strategy)
        assert attribute(converted, "Gather", "axis") == 1
        assert ("Range" in structure.ops(converted)) == (strategy == "row-gather")


def test_rows_of_volumes_are_added_up_unless_their_padding_is_computed():
    for stride, padding, lowering in (
        (2, "VALID", "row-gather"),
        (1, "SAME", "row-gather"),
        (2, "SAME", "planes"),
    ):
        ints = {"ksizes": [1, 3, 3, 3, 1], "strides": [1, *[stride] * 3, 1], "padding": padding}
        data, shape = np.zeros((1, 4, 5, 6, 2), np.float32), ("N", "D", "H", "W", 2)
        model = one_node("ExtractVolumePatches", (data,), shape=shape, **ints)
        (site,) = plan(model, prefer="row-gather").operators
        assert site.lowering == lowering


def test_windows_too_large_for_slices_are_gathered_whatever_is_known():
    """100 places in a row are too many Slices for planes, 300 for slices."""
    for shape in (("N", "H", "W", 2), (1, 3, 400, 2)):
        for k, padding in ((100, "VALID"), (300, "SAME")):
            ints = {"ksizes": [1, 1, k, 1], "strides": [1, 1, 40, 1], "rates": [1] * 4}
            data = (np.arange(2400, dtype=np.float32).reshape(1, 3, 400, 2),)
            model = one_node("ExtractImagePatches", data, shape=shape, **ints, padding=padding)
            (site,) = plan(model).operators
            assert site.lowering == "row-gather"


def test_only_windows_that_leave_gaps_need_no_padding_at_all():
    """The zeros of SAME are never fewer than none where windows overlap, so that no Max is needed."""
    for kernel, stride, clamped in ((3, 2, False), (2, 2, False), (2, 3, True)):
        model = patches((1, 9, 9, 4), kernel, stride, shape=(1, "H", "W", 4))
        assert ("Max" in structure.ops(convert(model, prefer="row-gather"))) == clamped


# Choosing


def test_strategies_are_named_once():
    names = list(LOWERINGS)
    assert len(set(names)) == len(names)


RANKS = [((2, 4, 6, 3), [2, 2], 4), ((2, 4, 6, 4, 2), [2, 3, 2], 5)]


def test_an_unknown_strategy_is_refused():
    model = s2b((2, 4, 6, 3), [2, 3], [[0, 0], [0, 0]])
    with pytest.raises(UsageError, match=r"prefer must be one of identity, .*, not 'no such'"):
        plan(model, prefer="no such")


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize(("shape", "block", "needed"), RANKS)
def test_a_rank_limit_that_nothing_keeps_says_which_one_would_do(shape, block, needed, limit):
    model = s2b(shape, block, [[0, 0]] * len(block))
    assert refusal(model, max_rank=limit) == (
        f"no lowering fits: it needs tensors of rank {needed}, the limit is {limit} "
        f"(use --max-rank {needed} or more)"
    )
    assert plan(model, max_rank=needed)


@pytest.mark.parametrize("strategy", ["transpose", "gather", "row-gather", "slices"])
def test_a_rank_limit_takes_another_way_where_there_is_one(strategy):
    model = s2b((2, 4, 6, 3), [2, 2], [[0, 0], [0, 0]])
    assert structure.ops(convert(model, prefer="transpose")) == ["Reshape", "Transpose", "Reshape"]
    (site,) = plan(model, prefer=strategy, max_rank=4).operators
    assert site.lowering == strategy
    staged = structure.counts(convert(model, prefer="transpose", max_rank=4))
    assert staged["Transpose"] == 2


def test_a_slow_permutation_is_cut_into_stages():
    """NCHW: one Transpose would walk element by element, two are estimated to be faster."""
    model = s2b((1, 64, 256, 256), [1, 2, 2], [[0, 0]] * 3)
    for options in ({"prefer": "transpose"}, {"prefer": "transpose", "max_rank": 4}):
        assert structure.counts(convert(model, **options))["Transpose"] == 2
