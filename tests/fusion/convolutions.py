"""Convs of any kernel, pads, dilations, strides and groups that fit what they are given."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from making import SAME_OF_UNKNOWN_SIZE, Maker, Value
from steps import channels_first


def conv(
    make: Maker,
    value: Value,
    *,
    kernel: Sequence[int] | None = None,
    channels: int | None = None,
    same: bool = False,
    stride: dict[str, int] | None = None,
    plain: bool = False,
    bias: bool | None = None,
    stored: bool = False,
) -> Value:
    """A Conv in channels-first axes, of any kernel, pads, dilations and groups that fit.

    Args:
        make: the model.
        value: in any axes.
        kernel: sizes to prefer, one for each spatial axis; they are cut where they do not fit.
        channels: of the output.
        same: the sizes stay.
        stride: of axes, by letter.
        plain: neither pads nor dilations.
        bias: whether it has one; random if None.
        stored: the kernel is an int8 constant behind DequantizeLinear.
    """
    value = make.turned(value, channels_first(value))
    rng, letters, sizes = make.rng, value.axes[2:], value.shape[2:]
    strides = [(stride or {}).get(letter, 1) for letter in letters]
    auto_pad = _auto_pad(make, same=same, plain=plain)
    if "SAME" in auto_pad and max(strides) > 1 and make.mode != "static":
        make.obstacles.add(SAME_OF_UNKNOWN_SIZE)
    dilations, pads, kernels = [], [], []
    for axis, (letter, size) in enumerate(zip(letters, sizes, strict=True)):
        wanted = kernel[axis] if kernel else rng.choice((1, 2, 2, 3, 3, 3, 4))
        dilation = rng.choice((1, 1, 1, 1, 2, 3))
        if plain or auto_pad or letter == "U":
            dilation = 1
        wanted = 1 if letter == "U" else wanted
        low, high = 0, 0
        if same:
            total = (wanted - 1) * dilation
            low = rng.choice((total // 2, total - total // 2, 0))
            high = total - low
        elif not plain and not auto_pad and letter != "U" and make.chance(0.3):
            low, high = rng.randint(0, 2), rng.randint(0, 2)
        while "SAME" not in auto_pad and (wanted - 1) * dilation + 1 > size + low + high:
            if dilation > 1:
                dilation -= 1
            else:
                wanted -= 1
        dilations.append(dilation)
        pads.append((low, high))
        kernels.append(wanted)
    attributes: dict[str, object] = {"kernel_shape": kernels}
    if auto_pad:
        attributes["auto_pad"] = auto_pad
    elif any(map(any, pads)) or make.chance(0.5):
        attributes["pads"] = [low for low, _ in pads] + [high for _, high in pads]
    if max(dilations) > 1 or make.chance(0.5):
        attributes["dilations"] = dilations
    if max(strides) > 1 or make.chance(0.5):
        attributes["strides"] = strides
    weights = _weights(make, value, kernels, channels, attributes)
    name = _stored(make, weights) if stored else make.constant(weights, "kernel")
    inputs: list[Value | str] = [value, name]
    if make.chance(0.1):
        del attributes["kernel_shape"]
    if bias or (bias is None and make.chance(0.4)):
        inputs.append(make.constant(make.image([len(weights)]), "bias"))
    return make.node("Conv", inputs, value.axes, stem="conv", **attributes)


def _auto_pad(make: Maker, *, same: bool, plain: bool) -> str:
    """Mostly nothing. Never SAME with dilations, which onnxruntime does not run."""
    if make.chance(0.8):
        return ""
    if same:
        return make.rng.choice(("SAME_UPPER", "SAME_LOWER"))
    if plain:
        return "VALID"
    return make.rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))


def _weights(
    make: Maker,
    value: Value,
    kernels: Sequence[int],
    channels: int | None,
    attributes: dict[str, object],
) -> np.ndarray:
    """The kernel; sets `group`."""
    have = value.size("C")
    kind = make.rng.choice(("dense", "dense", "depthwise", "grouped"))
    group, outputs = 1, channels or make.rng.randint(1, 4)
    if kind == "depthwise" and (channels is None or channels % have == 0):
        group, outputs = have, channels or have * make.rng.choice((1, 1, 2))
    elif kind == "grouped" and have % 2 == 0 and (channels is None or channels % 2 == 0):
        group, outputs = 2, channels or 2 * make.rng.randint(1, 2)
    if group > 1 or make.chance(0.5):
        attributes["group"] = group
    fan_in = have // group * prod(kernels)
    return make.image([outputs, have // group, *kernels]) / np.float32(fan_in**0.5)


def _stored(make: Maker, weights: np.ndarray) -> str:
    """Name of the kernel, quantized per output channel."""
    scale = np.abs(weights).max(tuple(range(1, weights.ndim))) / np.float32(127)
    steps = np.rint(weights / scale.reshape(-1, *[1] * (weights.ndim - 1))).astype(np.int8)
    tables = [steps, scale, np.zeros(len(scale), np.int8)]
    names = [make.constant(table, "kernel") for table in tables]
    return make.node("DequantizeLinear", names, "", axis=0, stem="kernel").name
