"""Patches whose channels come before the places of a window, as torch.nn.Unfold has them."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from building import one_node
from vocabulary import CHAIN_DOMAIN, ExtractPatches, as_json

import onnx_spatial

WINDOWS = {"tiles": (2, 2, 1), "overlapping": (3, 1, 1), "strided": (2, 3, 2)}


def model(operator: ExtractPatches, shape) -> onnx.ModelProto:
    data = np.zeros([d if isinstance(d, int) else 1 for d in shape], np.float32)
    said = as_json(operator)
    return one_node(operator.name, (data,), domain=CHAIN_DOMAIN, shape=shape, parameters=said)


@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_kernel(axes, layout):
    by_channel = ExtractPatches(
        (2,) * axes, (2,) * axes, (1,) * axes, "valid", layout, major="channel"
    )
    by_place = ExtractPatches((2,) * axes, (2,) * axes, (1,) * axes, "valid", layout)
    sizes = [4, 6, 5][:axes]
    shape = [2, 3, *sizes] if layout == "channels_first" else [2, *sizes, 3]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    axis = by_place.channel_axis
    one, other = by_channel(x), by_place(x)
    for channel, place in itertools.product(range(3), range(2**axes)):
        np.testing.assert_array_equal(
            one.take(channel * 2**axes + place, axis), other.take(place * 3 + channel, axis)
        )


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("strategy", ["planes", "row-gather", "transpose"])
def test_lowerings(strategy, window, layout, dynamic):
    operator = ExtractPatches(*((n, n) for n in window), "same_upper", layout, major="channel")
    shape = [2, 3, 7, 6] if layout == "channels_first" else [2, 7, 6, 3]
    if dynamic:
        shape = [d if d == 3 else f"d{i}" for i, d in enumerate(shape)]
    result = onnx_spatial.convert(model(operator, shape), domains=[CHAIN_DOMAIN], prefer=strategy)
    (site,) = result.operators
    assert result.verification.status == "passed"
    tiles, computed = window == (2, 2, 1), dynamic and strategy == "row-gather"
    assert (site.lowering == strategy) == (not computed and (tiles or strategy != "transpose"))


def test_rows_behind_the_last_window_go():
    """The first rows of the image are the patches, in order, and a last row is in none."""
    operator = ExtractPatches((2, 1), (3, 1), (1, 1), "valid", "channels_first")
    result = onnx_spatial.convert(
        model(operator, [1, 1, 3, 2]), domains=[CHAIN_DOMAIN], prefer="planes"
    )
    assert result.operators[0].lowering == "planes"
    assert result.verification.status == "passed"
