"""Operators that look across space or batch, and operands that are not the same everywhere."""

from __future__ import annotations

import numpy as np
from making import Maker, Value
from steps import Step, channels_first, spatial


def max_pool(make: Maker, value: Value) -> Value:
    value = make.turned(value, channels_first(value))
    kernel = [min(2, size) for size in value.shape[2:]]
    return make.node("MaxPool", [value], value.axes, kernel_shape=kernel, stem="pooled")


def space_softmax(make: Maker, value: Value) -> Value:
    at = value.axes.index(make.rng.choice([a for a in spatial(value) if a != "U"]))
    return make.node("Softmax", [value], value.axes, axis=at, stem="soft")


def batch_softmax(make: Maker, value: Value) -> Value:
    return make.node("Softmax", [value], value.axes, axis=0, stem="soft")


def enlarged(make: Maker, value: Value) -> Value:
    value = make.turned(value, channels_first(value))
    if len(value.axes) > 4:
        return max_pool(make, value)
    factors = [1.0, 1.0] + [1.0 if letter == "U" else 2.0 for letter in value.axes[2:]]
    scales = make.constant(np.array(factors, np.float32))
    return make.node(
        "Resize",
        [value, "", scales],
        value.axes,
        coordinate_transformation_mode="asymmetric",
        mode="nearest",
        nearest_mode="floor",
    )


def mean_over(make: Maker, value: Value, letters: str, *, keep: bool = True) -> Value:
    axes = [value.axes.index(letter) for letter in letters]
    if make.opset >= 18:
        inputs: list[Value | str] = [value, make.constant(axes)]
        return make.node("ReduceMean", inputs, value.axes, keepdims=int(keep), stem="mean")
    return make.node("ReduceMean", [value], value.axes, axes=axes, keepdims=int(keep), stem="mean")


def squeeze_and_excite(make: Maker, value: Value) -> Value:
    """Scaled by a mean over space: broadcast over space."""
    mean = mean_over(make, value, spatial(value).replace("U", ""))
    gate = make.node("Sigmoid", [mean], value.axes)
    return make.node("Mul", [value, gate], value.axes)


def less_batch_mean(make: Maker, value: Value) -> Value:
    return make.node("Sub", [value, mean_over(make, value, "N")], value.axes)


def positional(make: Maker, value: Value) -> Value:
    """A constant that is not the same everywhere in space, or over the batch."""
    letters = make.rng.choice(("N", *(a for a in spatial(value) if a != "U"), spatial(value) + "C"))
    shape = [size if a in letters else 1 for a, size in zip(value.axes, value.shape, strict=True)]
    return make.node("Add", [value, make.constant(make.image(shape))], value.axes)


def foreign(make: Maker, value: Value) -> Value:
    """An operand that comes from elsewhere, as large as the blocks."""
    letters = make.rng.choice((value.axes, "N", spatial(value).replace("U", "")))
    shape = [size if a in letters else 1 for a, size in zip(value.axes, value.shape, strict=True)]
    other = make.input(make.image(shape), "?" * len(shape), "foreign")
    return make.node("Add", [value, other], value.axes)


def padded(make: Maker, value: Value) -> Value:
    """A Pad inside of the blocks."""
    amounts = [
        (0, 0) if a in "NCU" else (make.rng.randint(0, 1), make.rng.randint(0, 2))
        for a in value.axes
    ]
    table = make.constant([low for low, _ in amounts] + [high for _, high in amounts])
    inputs: list[Value | str] = [value, table]
    if make.chance(0.3):
        inputs.append(make.constant(np.array(0.5, np.float32)))
    return make.node("Pad", inputs, value.axes, stem="padded")


def sliced(make: Maker, value: Value) -> Value:
    """A Slice inside of the blocks."""
    at = value.axes.index(make.rng.choice([a for a in spatial(value) if a != "U"]))
    start = make.rng.randint(0, value.shape[at] - 1)
    bounds = [make.constant([v]) for v in (start, 2**31, at)]
    return make.node("Slice", [value, *bounds], value.axes, stem="sliced")


def turned_batch(make: Maker, value: Value) -> Value:
    """The batch in the opposite order."""
    size = value.size("N")
    order = make.constant(list(range(size))[::-1])
    return make.node("Gather", [value, order], value.axes, axis=value.axes.index("N"))


def conv_transpose(make: Maker, value: Value) -> Value:
    value = make.turned(value, channels_first(value))
    kernel = [1 if a == "U" else 2 for a in value.axes[2:]]
    weights = make.image([value.size("C"), 2, *kernel]) / 4
    return make.node("ConvTranspose", [value, make.constant(weights)], value.axes)


#: Operators that look across space or batch; some could be rewritten, none need be.
ACROSS: tuple[Step, ...] = (
    max_pool,
    space_softmax,
    batch_softmax,
    enlarged,
    squeeze_and_excite,
    less_batch_mean,
    positional,
    foreign,
    padded,
    sliced,
    turned_batch,
    conv_transpose,
)
