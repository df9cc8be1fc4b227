"""Steps along the channels: sums, maxima, normalisations, and moves that regroup or repeat channels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from making import Maker, Value
from onnx import TensorProto
from steps import channels_first, channels_last

Step = Callable[[Maker, Value], Value]


def running_sum(make: Maker, value: Value) -> Value:
    at = value.axes.index("C")
    axis = make.constant(np.array(make.rng.choice((at, at - len(value.axes)))))
    modes = {"exclusive": make.rng.randint(0, 1), "reverse": make.rng.randint(0, 1)}
    return make.node("CumSum", [value, axis], value.axes, stem="running", **modes)


def largest(make: Maker, value: Value) -> Value:
    """The largest channels, in order."""
    at, count = value.axes.index("C"), make.constant([make.rng.randint(1, value.size("C"))])
    axes = [value.axes] * 2
    values, places = make.split(
        "TopK", [value, count], axes, axis=at, largest=make.rng.randint(0, 1)
    )
    make.unwanted.add(places.name)
    return values


def place_of_largest(make: Maker, value: Value) -> Value:
    """The channel with the largest element, where rounding does not decide which one that is."""
    at, known = value.axes.index("C"), value.known
    ranked = np.sort(known.value, at)
    count = value.size("C")
    gaps = np.diff(ranked.take([max(count - 2, 0), count - 1], at), axis=at)
    if count > 1 and gaps.min(initial=1) <= 4 * known.slack.max(initial=0) + 1e-5:
        return value
    place = make.node("ArgMax", [value], value.axes, axis=at, stem="place")
    return make.node("Cast", [place], value.axes, to=TensorProto.FLOAT)


def normalized(make: Maker, value: Value) -> Value:
    at, known = value.axes.index("C"), value.known
    deviation = known.value.std(at).min(initial=1)
    if deviation < 0.1 or known.slack.max(initial=0) > 1e-3 * deviation:
        return value
    return make.node("MeanVarianceNormalization", [value], value.axes, axes=[at], stem="norm")


def more_channels(make: Maker, value: Value) -> Value:
    """A Pad of the channels, in one of its modes."""
    at, rank = value.axes.index("C"), len(value.axes)
    pads = [0] * 2 * rank
    pads[at], pads[at + rank] = make.rng.randint(0, 1), make.rng.randint(0, 2)
    inputs: list[Value | str] = [value, make.constant(pads)]
    if make.chance(0.4):
        inputs.append(make.constant(np.array(make.rng.choice((0.0, 0.5)), np.float32)))
    return make.node("Pad", inputs, value.axes, stem="padded")


def repeated(make: Maker, value: Value) -> Value:
    repeats = [2 if letter == "C" else 1 for letter in value.axes]
    return make.node("Tile", [value, make.constant(repeats)], value.axes, stem="tiled")


def shuffled(make: Maker, value: Value) -> Value:
    """ShuffleNet: channels in groups, groups and members exchanged, and flat again."""
    if make.chance(0.5):
        value = make.turned(value, make.rng.choice((channels_first(value), channels_last(value))))
    make.regroups_channels(value)
    at, channels = value.axes.index("C"), value.size("C")
    groups = make.rng.choice([g for g in range(1, channels + 1) if channels % g == 0])
    split = value.axes.replace("C", "GC")
    apart = _reshaped(make, value, split, {"G": groups, "C": channels // groups})
    swapped = value.axes.replace("C", "CG")
    perm = [split.index(letter) for letter in swapped]
    turned = make.node("Transpose", [apart], swapped, perm=perm)
    assert turned.axes[at] == "C"
    return _reshaped(make, turned, value.axes, {"C": channels})


def _reshaped(make: Maker, value: Value, axes: str, free: dict[str, int]) -> Value:
    """A Reshape that keeps all axes but the ones given by size."""
    if make.mode == "static" and make.chance(0.7):
        target = [free[a] if a in free else value.size(a) for a in axes]
        return make.node("Reshape", [value, make.constant(target)], axes)
    shape = make.node("Shape", [value])
    parts = [
        make.constant([free[a]])
        if a in free
        else make.node("Gather", [shape, make.constant([value.axes.index(a)])])
        for a in axes
    ]
    return make.node("Reshape", [value, make.node("Concat", parts, axis=0)], axes)


def dense(make: Maker, value: Value) -> Value:
    """A layer on rows: Reshape [-1, C], MatMul, bias, activation, and back."""
    value = make.turned(value, channels_last(value))
    make.regroups_channels(value)
    channels, outputs = value.size("C"), make.rng.randint(1, 4)
    rows = make.node("Reshape", [value, make.constant([-1, channels])])
    matrix = make.constant(make.image([channels, outputs]) / 2)
    result = make.node("MatMul", [rows, matrix], stem="mixed")
    if make.chance(0.6):
        result = make.node("Add", [result, make.constant(make.image([outputs]))])
    if make.chance(0.6):
        result = make.node(make.rng.choice(("Relu", "Tanh", "Sigmoid")), [result])
    if 0 in value.shape or (make.mode == "static" and make.chance(0.5)):
        target = make.constant([*value.shape[:-1], outputs])
        return make.node("Reshape", [result, target], value.axes)
    shape = make.node("Shape", [value])
    leading = make.constant(list(range(len(value.axes) - 1)))
    parts = [make.node("Gather", [shape, leading]), make.constant([outputs])]
    return make.node("Reshape", [result, make.node("Concat", parts, axis=0)], value.axes)


STEPS: tuple[Step, ...] = (
    running_sum,
    largest,
    place_of_largest,
    normalized,
    more_channels,
    repeated,
    shuffled,
    dense,
)
