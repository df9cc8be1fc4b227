"""What stands between SpaceToBatch and BatchToSpace: one function per kind of node.

Each takes a value and gives the next; what it does not apply to it gives back as it is. Where an
operator wants the channels at a certain place, Transposes stand around it, as converters put them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from making import Maker, Value
from onnx import TensorProto

Step = Callable[[Maker, Value], Value]


def spatial(value: Value) -> str:
    """The letters of the axes that a convolution slides along, in order."""
    return "".join(letter for letter in value.axes if letter not in "NC")


def channels_first(value: Value) -> str:
    return "NC" + spatial(value)


def channels_last(value: Value) -> str:
    return "N" + spatial(value) + "C"


def by_channel(make: Maker, value: Value, array: np.ndarray) -> str:
    """Name of a constant [C], shaped to be broadcast over a value."""
    behind = len(value.axes) - 1 - value.axes.index("C")
    full = make.chance(0.2)
    ahead = [1] * value.axes.index("C") if full else []
    return make.constant(array.reshape(*ahead, -1, *[1] * behind))


# --- element by element, and by channel -----------------------------------------------------------


def activation(make: Maker, value: Value) -> Value:
    """An operator of one input that keeps zero or does not."""
    plain: tuple[tuple[str, dict[str, object]], ...] = (
        ("Relu", {}),
        ("Relu", {}),
        ("LeakyRelu", {"alpha": 0.25}),
        ("Sigmoid", {}),
        ("Tanh", {}),
        ("Elu", {}),
        ("Softplus", {}),
        ("HardSigmoid", {}),
        ("Neg", {}),
        ("Abs", {}),
        ("Identity", {}),
    )
    op_type, attributes = make.rng.choice(plain)
    return make.node(op_type, [value], value.axes, stem="act", **attributes)


def clip(make: Maker, value: Value) -> Value:
    low, high = make.rng.choice(((0.0, 6.0), (-0.5, 0.5), (0.25, 1.0)))
    bounds = [make.constant(np.array(bound, np.float32)) for bound in (low, high)]
    return make.node("Clip", [value, *bounds], value.axes, stem="act")


def prelu(make: Maker, value: Value) -> Value:
    slopes = np.abs(make.image([value.size("C")])) / 4
    if make.chance(0.3):
        slope = make.constant(slopes[:1].astype(np.float32))
    else:
        slope = by_channel(make, value, slopes.astype(np.float32))
    return make.node("PRelu", [value, slope], value.axes, stem="act")


def constant_operand(make: Maker, value: Value) -> Value:
    """Add, Sub, Mul, Div, Max or Min with a constant per channel or a scalar, on either side."""
    array = make.image([value.size("C")])
    way = make.rng.choice(("channel", "channel", "scalar", "one"))
    if way == "channel":
        name = by_channel(make, value, array)
    else:
        name = make.constant(array[:1].reshape(() if way == "scalar" else (1,)))
    op_type = make.rng.choice(("Add", "Add", "Mul", "Sub", "Div", "Max", "Min"))
    inputs: list[Value | str] = [value, name]
    if op_type != "Div" and make.chance(0.3):
        inputs.reverse()
    return make.node(op_type, inputs, value.axes, stem="with")


def fed_operand(make: Maker, value: Value) -> Value:
    """A bias or factor per channel that is only known at run time."""
    behind = len(value.axes) - 1 - value.axes.index("C")
    axes = "C" + "I" * behind
    array = make.image([value.size("C"), *[1] * behind])
    op_type = make.rng.choice(("Add", "Mul"))
    return make.node(op_type, [value, make.input(array, axes, "bias")], value.axes, stem="with")


def batch_normalization(make: Maker, value: Value) -> Value:
    value = make.turned(value, channels_first(value))
    size = [value.size("C")]
    scale, bias, mean = (make.constant(make.image(size)) for _ in range(3))
    variance = make.constant(np.abs(make.image(size)))
    inputs = [value, scale, bias, mean, variance]
    return make.node("BatchNormalization", inputs, value.axes, stem="norm", epsilon=1e-3)


def there_and_back(make: Maker, value: Value) -> Value:
    """To float16 and back."""
    if np.abs(value.known.value).max(initial=0) > 1e4:
        return value
    half = make.node("Cast", [value], value.axes, to=TensorProto.FLOAT16)
    if make.chance(0.3):
        half = turn(make, half)
    return make.node("Cast", [half], half.axes, to=TensorProto.FLOAT)


def quantize(make: Maker, value: Value) -> Value:
    """QuantizeLinear and DequantizeLinear, per tensor or per channel."""
    small = quantized(make, value)
    if make.chance(0.3):
        small = turn(make, small)
    return dequantized(make, small)


def quantized(make: Maker, value: Value) -> Value:
    tables, attributes = _steps(make, value)
    return make.node("QuantizeLinear", [value, *tables], value.axes, stem="q", **attributes)


def dequantized(make: Maker, value: Value) -> Value:
    tables, attributes = _steps(make, value)
    return make.node("DequantizeLinear", [value, *tables], value.axes, stem="dq", **attributes)


def _steps(make: Maker, value: Value) -> tuple[list[str], dict[str, object]]:
    """Scale and zero point, whose element type is the same in the whole model."""
    channels, at = value.size("C"), value.axes.index("C")
    each = make.chance(0.4)
    scale = make.numbers.uniform(0.02, 0.05, channels if each else ()).astype(np.float32)
    low = 120 if make.stored == np.uint8 else -8
    zero = make.numbers.integers(low, low + 16, scale.shape).astype(make.stored)
    axis = make.rng.choice((at, at - len(value.axes)))
    attributes = {"axis": axis} if each else {}
    return [make.constant(np.array(scale)), make.constant(np.array(zero))], attributes


# --- layout, channels -----------------------------------------------------------------------------


def turn(make: Maker, value: Value) -> Value:
    """A Transpose to channels first or last."""
    target = make.rng.choice((channels_first(value), channels_last(value)))
    return make.turned(value, target)


def unsqueezed(make: Maker, value: Value) -> Value:
    """A 1-D image with an axis of size 1."""
    at = make.rng.choice((1, 2))
    axes = value.axes[:at] + "U" + value.axes[at:]
    if make.chance(0.6):
        return make.node("Unsqueeze", [value, make.constant([at])], axes)
    return reshaped(make, value, axes)


def squeezed(make: Maker, value: Value) -> Value:
    if "U" not in value.axes:
        return value
    at, axes = value.axes.index("U"), value.axes.replace("U", "")
    if make.chance(0.6):
        axis = make.rng.choice((at, at - len(value.axes)))
        return make.node("Squeeze", [value, make.constant([axis])], axes)
    return reshaped(make, value, axes)


def reshaped(make: Maker, value: Value, axes: str) -> Value:
    """A Reshape to the same axes with or without U, with its target written in one of the ways."""
    static = make.mode == "static"
    make.regroups_channels(value)
    way = make.rng.choice(("copied", "copied", "concrete", "batch") if static else ("copied",))
    target = []
    for at, letter in enumerate(axes):
        size = 1 if letter == "U" else value.size(letter)
        if way == "batch" and letter == "N":
            size = -1
        elif way == "copied" and letter not in "UC":
            size = 0 if value.axes[at] == letter else -1
        target.append(size)
    return make.node("Reshape", [value, make.constant(target)], axes)


def mixed_channels(make: Maker, value: Value) -> Value:
    """MatMul over the channels."""
    value = make.turned(value, channels_last(value))
    weights = make.image([value.size("C"), make.rng.randint(1, 4)]) / 2
    return make.node("MatMul", [value, make.constant(weights)], value.axes, stem="mixed")


def channel_softmax(make: Maker, value: Value) -> Value:
    at = value.axes.index("C")
    return make.node("Softmax", [value], value.axes, axis=at, stem="soft")


def doubled_channels(make: Maker, value: Value) -> Value:
    """Concat of a value and an activation of it."""
    other = activation(make, value)
    axis = value.axes.index("C")
    return make.node("Concat", [value, other], value.axes, axis=axis, stem="both")


def no_expansion(make: Maker, value: Value) -> Value:
    """An Expand that changes nothing."""
    ones = make.constant([1] * len(value.axes))
    return make.node("Expand", [value, ones], value.axes, stem="expanded")


def combined(make: Maker, op_type: str, a: Value, b: Value) -> Value:
    """Two values of the same sizes, in the axes of either."""
    if ("U" in a.axes) != ("U" in b.axes):
        a, b = squeezed(make, a), squeezed(make, b)
    if make.chance(0.5):
        a, b = b, a
    b = make.turned(b, a.axes)
    return make.node(op_type, [a, b], a.axes, stem="sum")


#: What commutes with BatchToSpace, zeros kept or not.
COMMUTING: tuple[Step, ...] = (
    activation,
    activation,
    activation,
    clip,
    prelu,
    constant_operand,
    constant_operand,
    constant_operand,
    batch_normalization,
    turn,
    turn,
)
RARER: tuple[Step, ...] = (
    fed_operand,
    there_and_back,
    quantize,
    mixed_channels,
    channel_softmax,
    doubled_channels,
    no_expansion,
)


def some(make: Maker, value: Value, low: int, high: int, rare: float = 0.1) -> Value:
    """A few of the steps that commute."""
    for _ in range(make.rng.randint(low, high)):
        step = make.rng.choice(RARER if make.chance(rare) else COMMUTING)
        value = step(make, value)
    return value
