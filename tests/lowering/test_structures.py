"""What each strategy writes: the nodes, their constants, and how little there is of both."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import structure
from adapter import convert, plan, refusal
from building import one_node

from onnx_spatial import UsageError

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


# SpaceToBatch and BatchToSpace


@pytest.mark.parametrize(
    ("model", "ops"),
    [
        (s2b((2, 4, 6, 3), [2, 3], [[0, 0], [0, 0]]), "Reshape Transpose Reshape"),
        (s2b((2, 3, 6, 3), [1, 1], [[1, 0], [0, 0]]), "Pad"),
        (s2b((2, 4, 6, 3), [1, 1], [[0, 0], [0, 0]]), "Identity"),
        (s2b((1, 2, 2, 3), [2, 2], [[0, 0], [0, 0]]), "Reshape"),  # nothing changes places
        (b2s((12, 4, 6, 3), [2, 3], [[0, 0], [1, 0]]), "Reshape Transpose Reshape Slice"),
    ],
)
def test_blocks_of_static_shapes(model, ops):
    assert structure.ops(convert(model, prefer="transpose")) == ops.split()


@pytest.mark.parametrize("dtype", [np.float16, np.int16, np.uint16, object])
def test_types_without_a_pad_kernel_are_padded_by_concat(dtype):
    converted = convert(
        s2b((2, 3, 6, 3), [2, 3], [[1, 0], [0, 0]], dtype=dtype), prefer="transpose"
    )
    assert structure.ops(converted) == ["Concat", "Reshape", "Transpose", "Reshape"]


# Patches


@pytest.mark.parametrize(
    ("model", "ops"),
    [
        (patches((2, 7, 6, 3), 3, 3, padding="VALID"), "Slice Reshape Transpose Reshape"),
        (patches((2, 7, 7, 3), 3, 3), "Pad Reshape Transpose Reshape"),
        (patches((2, 7, 7, 3), 1, 1), "Identity"),
    ],
)
def test_windows_that_tile_the_image(model, ops):
    assert structure.ops(convert(model, prefer="transpose")) == ops.split()


# Choosing


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
