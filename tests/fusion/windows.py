"""Pools and ConvTranspose of any kernel, pads and dilations that fit what they are given."""

from __future__ import annotations

import numpy as np
from making import POOL, Maker, Value
from steps import channels_first

#: The opset in which each pool gets dilations.
DILATIONS_SINCE = {"AveragePool": 19, "LpPool": 18, "MaxPool": 10}


def pool(make: Maker, value: Value) -> Value:
    """A pool of one of the three kinds."""
    value = make.turned(value, channels_first(value))
    op_type = make.rng.choice(("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"))
    since = DILATIONS_SINCE[op_type]
    dilated = make.opset >= since and make.chance(0.3)
    kernel, pads, dilations = _windows(make, value, padded=make.chance(0.3), dilated=dilated)
    attributes: dict[str, object] = {"kernel_shape": kernel}
    if any(pads) or make.chance(0.5):  # onnxruntime looks for the attribute, not for its numbers
        attributes["pads"] = pads
    elif make.chance(0.1):
        attributes["auto_pad"] = "VALID"
    if dilated:
        attributes["dilations"] = dilations
    if make.chance(0.3):
        attributes["strides"] = [1] * len(kernel)
    if op_type == "AveragePool" and make.chance(0.4):
        attributes["count_include_pad"] = make.rng.randint(0, 1)
    make.obstacles.add(POOL)
    if op_type == "LpPool" and make.chance(0.5):
        attributes["p"] = 1
    return make.node(op_type, [value], value.axes, stem="pooled", **attributes)


def conv_transpose(make: Maker, value: Value) -> Value:
    value = make.turned(value, channels_first(value))
    channels = value.size("C")
    group = channels if make.chance(0.3) else 1
    dilated = make.chance(0.3)
    kernel, pads, dilations = _windows(make, value, padded=make.chance(0.4), dilated=dilated)
    reaches = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)] * 2
    pads = [min(pad, reach) for pad, reach in zip(pads, reaches, strict=True)]
    count = len(kernel)
    for axis, size in enumerate(value.shape[2:]):
        if size + reaches[axis] - pads[axis] - pads[axis + count] < 1:
            pads[axis] = pads[axis + count] = 0
    attributes: dict[str, object] = {}
    if any(pads) or make.chance(0.3):
        attributes["pads"] = pads
    if dilated:
        attributes["dilations"] = dilations
    if group > 1:
        attributes["group"] = group
    outputs = make.rng.randint(1, 3)
    weights = make.image([channels, outputs, *kernel]) / np.float32(4)
    inputs: list[Value | str] = [value, make.constant(weights, "kernel")]
    if make.chance(0.4):
        inputs.append(make.constant(make.image([outputs * group]), "bias"))
    return make.node("ConvTranspose", inputs, value.axes, stem="conv", **attributes)


def _windows(
    make: Maker, value: Value, *, padded: bool, dilated: bool
) -> tuple[list[int], list[int], list[int]]:
    """Kernel, pads, all of the beginnings first, and dilations that fit the image."""
    kernels, pairs, dilations = [], [], []
    for letter, size in zip(value.axes[2:], value.shape[2:], strict=True):
        kernel = 1 if letter == "U" else make.rng.choice((1, 2, 2, 3, 3))
        dilation = make.rng.randint(1, 3) if dilated and letter != "U" else 1
        most = (
            kernel - 1 if padded and dilation == 1 else 0
        )  # a window in the padding has no maximum
        pair = make.rng.randint(0, most), make.rng.randint(0, most)
        while (kernel - 1) * dilation + 1 > size + sum(pair):
            kernel, dilation, pair = kernel - 1, 1, (0, 0)
        kernels.append(kernel)
        pairs.append(pair)
        dilations.append(dilation)
    return kernels, [low for low, _ in pairs] + [high for _, high in pairs], dilations
