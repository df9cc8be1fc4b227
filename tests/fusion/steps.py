"""What stands between SpaceToBatch and BatchToSpace: one function for each kind of node.

Each takes a value and gives the next; what it does not apply to it gives back as it is. Where an
operator wants the channels at a certain place, Transposes stand around it, as converters put them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from making import Input, Maker, Value
from onnx import TensorProto

Step = Callable[[Maker, Value], Value]

#: Operators of single elements; the first three of four keep zeros.
_UNARY = ("Relu", "Relu", "Tanh", "LeakyRelu", "Neg", "Abs", "Elu", "Sigmoid", "Softplus")


def first(make: Maker, value: Value) -> Value:
    """The value with its channels in front, or as near as a convolution wants them."""
    return make.turned(value, "NC" + value.spatial)


def last(make: Maker, value: Value) -> Value:
    return make.turned(value, "N" + value.spatial + "C")


def turn(make: Maker, value: Value) -> Value:
    return make.rng.choice((first, last))(make, value)


def unsqueezed(make: Maker, value: Value) -> Value:
    """A 1-D image with an axis of size 1; or without it, where it has one."""
    adds = "U" not in value.axes
    at = make.rng.choice((1, 2)) if adds else value.axes.index("U")
    axes = value.axes[:at] + "U" + value.axes[at:] if adds else value.axes.replace("U", "")
    if make.chance(0.6):
        op_type = "Unsqueeze" if adds else "Squeeze"
        return make.node(op_type, [value, make.constant([at])], axes)
    sizes = [1 if letter == "U" else value.size(letter) for letter in axes]
    return make.reshaped(value, axes, sizes)


def squeezed(make: Maker, value: Value) -> Value:
    return unsqueezed(make, value) if "U" in value.axes else value


# Element by element, and by channel


def unary(make: Maker, value: Value) -> Value:
    return make.node(make.rng.choice(_UNARY), [value], value.axes)


def clip(make: Maker, value: Value) -> Value:
    low, high = make.rng.choice(((0.0, 6.0), (-0.5, 0.5), (0.25, 1.0)))
    bounds = [make.constant(np.array(bound, np.float32)) for bound in (low, high)]
    return make.node("Clip", [value, *bounds], value.axes)


def by_channel(make: Maker, value: Value, array: np.ndarray) -> np.ndarray:
    """An array [C], shaped to be broadcast over a value."""
    at = value.axes.index("C")
    return array.reshape(*[1] * at * make.chance(0.2), -1, *[1] * (len(value.axes) - 1 - at))


def operand(make: Maker, value: Value) -> Value:
    """A constant or an input that is a scalar, or one number per channel, on either side."""
    op_type = make.rng.choice(("Add", "Add", "Mul", "Sub", "Div", "Max", "Min", "PRelu"))
    array = make.image([value.size("C")])
    if op_type == "PRelu":
        array = np.abs(array)
    array = array[:1] if make.chance(0.4) else by_channel(make, value, array)
    if make.chance(0.1) and array.ndim > 1:
        return make.node(op_type, [value, make.input(array, "?" * array.ndim)], value.axes)
    inputs: list[Input] = [value, make.constant(array)]
    if op_type not in ("Div", "PRelu") and make.chance(0.3):
        inputs.reverse()
    return make.node(op_type, inputs, value.axes)


def batch_normalization(make: Maker, value: Value) -> Value:
    if make.opset < 14:  # the evaluator takes it for training
        return value
    value = first(make, value)
    size = [value.size("C")]
    tables = [make.image(size) for _ in range(3)] + [np.abs(make.image(size))]
    return make.node("BatchNormalization", [value, *map(make.constant, tables)], value.axes)


def half(make: Maker, value: Value) -> Value:
    """To float16 and back."""
    if np.abs(value.array).max(initial=0) > 1e4:
        return value
    small = make.node("Cast", [value], value.axes, to=TensorProto.FLOAT16)
    small = turn(make, small) if make.chance(0.3) else small
    return make.node("Cast", [small], small.axes, to=TensorProto.FLOAT)


def quantized(make: Maker, value: Value, op_type: str = "QuantizeLinear") -> Value:
    """QuantizeLinear or its inverse, of the whole tensor or per channel."""
    channels, each = value.size("C"), make.chance(0.4)
    scale = make.numbers.uniform(0.02, 0.05, channels if each else ()).astype(np.float32)
    low = 120 if make.stored == np.uint8 else -8
    zero = make.numbers.integers(low, low + 16, scale.shape).astype(make.stored)
    at = value.axes.index("C")
    axis = {"axis": make.rng.choice((at, at - len(value.axes)))} if each else {}
    tables = [make.constant(np.array(scale)), make.constant(np.array(zero))]
    return make.node(op_type, [value, *tables], value.axes, **axis)


def there_and_back(make: Maker, value: Value) -> Value:
    small = quantized(make, value)
    small = turn(make, small) if make.chance(0.3) else small
    return quantized(make, small, "DequantizeLinear")


# Convolutions and pools


def windows(
    make: Maker, value: Value, *, same: bool = False, padded: bool = True, dilated: bool = True
) -> tuple[list[int], list[int], list[int]]:
    """Kernel, pads, all beginnings first, and dilations that fit an image of channels first."""
    kernels, pairs, dilations = [], [], []
    for letter, size in zip(value.axes[2:], value.shape[2:], strict=True):
        kernel = 1 if letter == "U" else make.rng.choice((1, 2, 2, 3, 3, 3))
        dilation = make.rng.choice((1, 1, 2, 3)) if dilated and letter != "U" else 1
        most = kernel - 1 if padded and letter != "U" else 0
        pair = (make.rng.randint(0, most), make.rng.randint(0, most))
        if same:
            total = (kernel - 1) * dilation
            low = make.rng.choice((total // 2, total - total // 2, 0))
            pair = (low, total - low)
        while not same and (kernel - 1) * dilation + 1 > size + sum(pair):
            kernel, dilation, pair = (kernel, 1, pair) if dilation > 1 else (kernel - 1, 1, (0, 0))
        kernels.append(max(kernel, 1))
        pairs.append(pair)
        dilations.append(dilation)
    return kernels, [low for low, _ in pairs] + [high for _, high in pairs], dilations


def conv(
    make: Maker, value: Value, *, channels: int = 0, same: bool = False, stride: str = ""
) -> Value:
    """A Conv of any kernel, pads, dilations and groups; with stride 2 along the axes `stride`."""
    value = first(make, value)
    auto = make.chance(0.15)
    kernel, pads, dilations = windows(
        make, value, same=same, padded=not auto and make.chance(0.4), dilated=not auto
    )
    attributes: dict[str, object] = {"kernel_shape": kernel}
    if auto:
        ways = ("SAME_UPPER", "SAME_LOWER") if same else ("SAME_UPPER", "VALID", "NOTSET")
        attributes["auto_pad"] = make.rng.choice(ways)
    elif any(pads) or make.chance(0.5):
        attributes["pads"] = pads
    if max(dilations) > 1 or make.chance(0.5):
        attributes["dilations"] = dilations
    if stride:
        attributes["strides"] = [2 if a in stride else 1 for a in value.axes[2:]]
    have, outputs, group = value.size("C"), channels or make.rng.randint(1, 4), 1
    if make.chance(0.3) and outputs % have == 0:
        attributes["group"] = group = have
    weights = make.image([outputs, have // group, *kernel])
    weights /= np.float32(weights[0].size ** 0.5)
    inputs: list[Input] = [value]
    if make.chance(0.1):  # a kernel that is stored as int8
        table = np.clip(np.rint(weights * 50), -127, 127).astype(np.int8)
        scale = make.constant(np.array(0.02, np.float32))
        inputs.append(make.node("DequantizeLinear", [make.constant(table), scale]))
    else:
        inputs.append(make.constant(weights, "kernel"))
    if make.chance(0.4):
        inputs.append(make.constant(make.image([outputs])))
    return make.node("Conv", inputs, value.axes, **attributes)


def conv_transpose(make: Maker, value: Value) -> Value:
    """Without groups, which onnx's evaluator gets wrong."""
    value = first(make, value)
    kernel, _, dilations = windows(make, value, padded=False, dilated=make.chance(0.3))
    reaches = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    pads = [make.rng.randint(0, r) if s > r else 0 for r, s in
            zip(reaches * 2, [size // 2 for size in value.shape[2:]] * 2, strict=True)]  # fmt: skip
    outputs = make.rng.randint(1, 3)
    weights = make.image([value.size("C"), outputs, *kernel])
    inputs: list[Input] = [value, make.constant(weights, "kernel")]
    if make.chance(0.4):
        inputs.append(make.constant(make.image([outputs])))
    options = {"pads": pads, "dilations": dilations}
    return make.node("ConvTranspose", inputs, value.axes, **options)


def pool(make: Maker, value: Value) -> Value:
    """Without zeros around, of which onnx's evaluator computes too few windows or fails."""
    value = first(make, value)
    op_type = make.rng.choice(("MaxPool", "MaxPool", "AveragePool"))
    kernel, pads, _ = windows(make, value, padded=False, dilated=False)
    attributes: dict[str, object] = {"kernel_shape": kernel}
    if make.chance(0.5):  # onnxruntime looks for the attribute, not for its numbers
        attributes["pads"] = pads
    if op_type == "AveragePool" and make.chance(0.4):
        attributes["count_include_pad"] = make.rng.randint(0, 1)
    return make.node(op_type, [value], value.axes, **attributes)


# Along the channels


def matmul(make: Maker, value: Value) -> Value:
    value = last(make, value)
    weights = make.constant(make.image([value.size("C"), make.rng.randint(1, 4)]) / 2)
    return make.node("MatMul", [value, weights], value.axes)


def softmax(make: Maker, value: Value) -> Value:
    return make.node("Softmax", [value], value.axes, axis=value.axes.index("C"))


def doubled(make: Maker, value: Value) -> Value:
    other = unary(make, value)
    return make.node("Concat", [value, other], value.axes, axis=value.axes.index("C"))


def arg_max(make: Maker, value: Value) -> Value:
    """The channel of the largest element, where rounding does not decide which one that is."""
    at = value.axes.index("C")
    gaps = np.diff(np.sort(value.array, at), axis=at)
    if value.size("C") > 1 and gaps.min(initial=1) < 1e-3:
        return value
    place = make.node("ArgMax", [value], value.axes, axis=at)
    return make.node("Cast", [place], value.axes, to=TensorProto.FLOAT)


# What is declined


def mean_over(make: Maker, value: Value, letters: str) -> Value:
    axes = [value.axes.index(letter) for letter in letters]
    if make.opset >= 18:
        return make.node("ReduceMean", [value, make.constant(axes)], value.axes)
    return make.node("ReduceMean", [value], value.axes, axes=axes)


def gated_by_mean(make: Maker, value: Value) -> Value:
    """Scaled by a mean over space or over the batch."""
    letters = make.rng.choice(("N", value.spatial.replace("U", "")))
    return make.node("Mul", [value, mean_over(make, value, letters)], value.axes)


def positional(make: Maker, value: Value) -> Value:
    """Plus what is not the same everywhere in space, or over the batch; it may be an input."""
    letters = make.rng.choice(("N", *value.spatial, value.axes))
    array = make.image(
        [s if a in letters else 1 for a, s in zip(value.axes, value.shape, strict=True)]
    )
    other = make.input(array, "?" * array.ndim) if make.chance(0.5) else make.constant(array)
    return make.node("Add", [value, other], value.axes)


def soft_in_space(make: Maker, value: Value) -> Value:
    at = value.axes.index(make.rng.choice(("N", *value.spatial)))
    return make.node("Softmax", [value], value.axes, axis=at)


def enlarged(make: Maker, value: Value) -> Value:
    value = first(make, value)
    if len(value.axes) > 4:
        return value
    factors = [1.0 if letter in "NCU" else 2.0 for letter in value.axes]
    options = {"coordinate_transformation_mode": "asymmetric", "mode": "nearest"}
    scales = make.constant(np.array(factors, np.float32))
    return make.node("Resize", [value, "", scales], value.axes, nearest_mode="floor", **options)


def padded(make: Maker, value: Value) -> Value:
    """A Pad in space or of the channels, of zeros or not."""
    letter = make.rng.choice([a for a in value.axes if a not in "NU"])
    pads = [make.rng.randint(0, 2) if a == letter else 0 for a in value.axes * 2]
    number = [make.constant(np.array(0.5, np.float32))] if make.chance(0.3) else []
    return make.node("Pad", [value, make.constant(pads), *number], value.axes)


def sliced(make: Maker, value: Value) -> Value:
    at = value.axes.index(make.rng.choice([a for a in value.axes if a not in "NU"]))
    start = make.rng.randint(0, max(value.shape[at] - 1, 0))
    bounds = [make.constant([v]) for v in (start, 2**31, at)]
    return make.node("Slice", [value, *bounds], value.axes)


def reversed_batch(make: Maker, value: Value) -> Value:
    order = make.constant(range(value.size("N"))[::-1])
    return make.node("Gather", [value, order], value.axes, axis=value.axes.index("N"))


def dense(make: Maker, value: Value) -> Value:
    """A layer on rows: Reshape [-1, C], MatMul, and back."""
    value = last(make, value)
    rows = make.node("Reshape", [value, make.constant([-1, value.size("C")])])
    outputs = make.rng.randint(1, 4)
    matrix = make.constant(make.image([value.size("C"), outputs]) / 2)
    product = make.node("MatMul", [rows, matrix])
    shape = make.node("Shape", [value])
    leading = make.node("Gather", [shape, make.constant(range(len(value.axes) - 1))])
    target = make.node("Concat", [leading, make.constant([outputs])], axis=0)
    return make.node("Reshape", [product, target], value.axes)


def others(make: Maker, value: Value) -> Value:
    """Operators along the channels that are not in the table."""
    at, way = value.axes.index("C"), make.rng.choice(("CumSum", "TopK", "Tile", "Expand"))
    if way == "TopK":
        count = make.constant([make.rng.randint(1, value.size("C"))])
        return make.nodes_of("TopK", [value, count], [value.axes, ""], axis=at)[0]
    tables = {
        "CumSum": make.constant(np.array(at)),
        "Tile": make.constant([2 if a == "C" else 1 for a in value.axes]),
        "Expand": make.constant([1] * len(value.axes)),
    }
    return make.node(way, [value, tables[way]], value.axes)


#: What commutes with BatchToSpace: the steps, and how often each comes up.
COMMUTING: dict[Step, int] = {
    unary: 6, clip: 2, operand: 8, batch_normalization: 2, turn: 4, there_and_back: 1, half: 1,
    matmul: 1, softmax: 1, doubled: 1, arg_max: 1,
}  # fmt: skip
#: What does not, or is declined on purpose.
DECLINED: Sequence[Step] = (
    pool, gated_by_mean, positional, soft_in_space, enlarged, padded, sliced, reversed_batch, dense,
    others,
)  # fmt: skip


def some(make: Maker, value: Value, low: int, high: int) -> Value:
    """A few of the steps that commute."""
    count = make.rng.randint(low, high)
    for step in make.rng.choices(list(COMMUTING), list(COMMUTING.values()), k=count):
        value = step(make, value)
    return value


def combined(make: Maker, a: Value, b: Value) -> Value | None:
    """A sum or product of two values, if they have the same sizes, in the axes of either."""
    pairs = [dict(zip(v.axes, v.shape, strict=True)) for v in (a, b)]
    if any({k: s for k, s in p.items() if k != "U"} != {k: s for k, s in pairs[0].items() if k != "U"}
           for p in pairs):  # fmt: skip
        return None
    if ("U" in a.axes) != ("U" in b.axes):
        a, b = squeezed(make, a), squeezed(make, b)
    a, b = make.rng.sample((a, b), 2)
    op_type = make.rng.choice(("Add", "Add", "Mul", "Sub"))
    return make.node(op_type, [a, make.turned(b, a.axes)], a.axes)
