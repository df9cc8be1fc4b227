"""Operators that compute, from their definitions, and what float32 arithmetic may add to each.

A Conv of K terms adds K roundings of the sum of their magnitudes; where rounding may fall either way
(Cast to float16, QuantizeLinear) the slack says which elements that concerns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
from known import Attributes, Known, given, handler, ints

#: One rounding in float32, with as much again for operators that runtimes fold into one.
ULP = 2.0**-23
#: What the runtimes' approximations of tanh, sigmoid and exp are off by.
APPROXIMATION = 1e-6


def _monotone(
    x: Known, function: Callable[[np.ndarray], np.ndarray], error: float = 0.0, roundings: float = 1
) -> Known:
    """Of a function that never turns back: what is between the ends of the slack."""
    value, reach = function(x.value), x.slack + roundings * ULP * np.abs(x.value)
    around = np.maximum(
        np.abs(function(x.value + reach) - value), np.abs(value - function(x.value - reach))
    )
    return Known(value, around + error + ULP * np.abs(value))


def _unary(
    op_type: str, function: Callable[[np.ndarray, Attributes], np.ndarray], error: float = 0.0
) -> None:
    @handler(op_type)
    def element_by_element(inputs: list[Known], attributes: dict[str, Any]) -> Known:
        return _monotone(inputs[0], lambda v: function(v, attributes), error)


def _leaky(v: np.ndarray, a: Attributes) -> np.ndarray:
    return np.where(v >= 0, v, v * np.float64(np.float32(a.get("alpha", 0.01))))


def _sigmoid(v: np.ndarray, a: Attributes) -> np.ndarray:
    return 1 / (1 + np.exp(-v))


def _hard_sigmoid(v: np.ndarray, a: Attributes) -> np.ndarray:
    return np.clip(v * a.get("alpha", 0.2) + a.get("beta", 0.5), 0, 1)


_unary("Relu", lambda v, a: np.maximum(v, 0))
_unary("LeakyRelu", _leaky)
_unary("Sigmoid", _sigmoid, APPROXIMATION)
_unary("Tanh", lambda v, a: np.tanh(v), APPROXIMATION)
_unary("Elu", lambda v, a: np.where(v >= 0, v, np.expm1(np.minimum(v, 0))), APPROXIMATION)
_unary("Softplus", lambda v, a: np.logaddexp(0, v), APPROXIMATION)
_unary("HardSigmoid", _hard_sigmoid, APPROXIMATION)


@handler("Neg")
def neg(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    return Known(-inputs[0].value, inputs[0].slack)


@handler("Abs")
def abs_(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    return Known(np.abs(inputs[0].value), inputs[0].slack)


@handler("Clip")
def clip(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    low = -np.inf if inputs[1] is None else inputs[1].value
    high = np.inf if len(inputs) < 3 else inputs[2].value
    return _monotone(inputs[0], lambda v: np.clip(v, low, high))


@handler("PRelu")
def prelu(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    x, slope = inputs[0], inputs[1].value
    value = np.where(x.value >= 0, x.value, x.value * slope)
    factor = np.maximum(1, np.abs(slope))
    return Known(value, factor * x.slack + ULP * np.abs(value))


def _times(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x * y


def _arithmetic(op_type: str, function: Callable[[Any, Any], Any], integers: Any = None) -> None:
    @handler(op_type)
    def two(inputs: list[Known], attributes: dict[str, Any]) -> Known:
        a, b = inputs
        if a.slack is None or b.slack is None:
            return Known((integers or function)(a.value, b.value))
        value = function(a.value, b.value)
        large, small = np.abs(a.value), np.abs(b.value)
        if op_type == "Mul":
            slack = large * b.slack + small * a.slack + a.slack * b.slack + ULP * np.abs(value)
        elif op_type == "Div":  # by a constant
            slack = a.slack / small + 2 * ULP * np.abs(value)
        else:
            slack = a.slack + b.slack + ULP * (large + small)
        return Known(value, slack)


def _towards_zero(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(a.dtype)


_arithmetic("Add", lambda a, b: a + b)
_arithmetic("Sub", lambda a, b: a - b)
_arithmetic("Mul", _times)
_arithmetic("Div", lambda a, b: a / b, _towards_zero)
_arithmetic("Max", np.maximum)
_arithmetic("Min", np.minimum)


@handler("Cast")
def cast(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    x, to = inputs[0], onnx.helper.tensor_dtype_to_np_dtype(attributes["to"])
    if to.kind != "f":
        return Known(x.value.astype(to))
    if x.slack is None:
        return given(x.value.astype(to))
    if to.itemsize >= 4:
        return x
    return _monotone(x, lambda v: v.astype(to).astype(np.float64))


def _per_channel(parameter: np.ndarray, axis: int, rank: int) -> np.ndarray:
    if parameter.ndim == 0:
        return parameter
    return parameter.reshape([-1 if i == axis % rank else 1 for i in range(rank)])


@handler("BatchNormalization")
def batch_normalization(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    x = inputs[0]
    scale, bias, mean, variance = (_per_channel(k.value, 1, x.value.ndim) for k in inputs[1:])
    factor = scale / np.sqrt(variance + np.float64(np.float32(attributes.get("epsilon", 1e-5))))
    value = (x.value - mean) * factor + bias
    size = (np.abs(x.value) + np.abs(mean)) * np.abs(factor) + np.abs(bias)
    return Known(value, np.abs(factor) * x.slack + 4 * ULP * size)


@handler("QuantizeLinear")
def quantize_linear(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    x, scale, zero = inputs
    axis, rank = attributes.get("axis", 1), x.value.ndim
    limits = np.iinfo(zero.value.dtype)
    factor = _per_channel(scale.value, axis, rank)
    offset = _per_channel(zero.value.astype(np.float64), axis, rank)

    def quantized(v: np.ndarray) -> np.ndarray:
        return np.clip(np.rint(v / factor) + offset, limits.min, limits.max)

    found = _monotone(x, quantized, roundings=4)
    return Known(found.value, np.rint(found.slack))


@handler("DequantizeLinear")
def dequantize_linear(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    x, scale, zero = inputs
    axis, rank = attributes.get("axis", 1), x.value.ndim
    factor = _per_channel(scale.value, axis, rank)
    value = (x.value - _per_channel(zero.value.astype(np.float64), axis, rank)) * factor
    steps = 0.0 if x.slack is None else x.slack
    return Known(value, steps * np.abs(factor) + ULP * np.abs(value))


@handler("MatMul")
def matmul(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    x, w = inputs
    rounding = (w.shape[-2] + 4) * ULP
    slack = (x.slack + rounding * np.abs(x.value)) @ np.abs(w.value)
    return Known(x.value @ w.value, slack)


@handler("Softmax")
def softmax(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    x, axis = inputs[0], attributes.get("axis", -1)
    raised = np.exp(x.value - x.value.max(axis, keepdims=True))
    value = raised / raised.sum(axis, keepdims=True)
    reach = 2 * x.slack.max(axis, keepdims=True)
    return Known(value, value * np.expm1(reach) + APPROXIMATION)


@handler("CumSum")
def running_sum(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    x, axis = inputs[0], int(inputs[1].value)

    def summed(values: np.ndarray) -> np.ndarray:
        values = np.flip(values, axis) if attributes.get("reverse", 0) else values
        total = np.cumsum(values, axis) - (values if attributes.get("exclusive", 0) else 0)
        return np.flip(total, axis) if attributes.get("reverse", 0) else total

    rounding = (x.shape[axis] + 2) * ULP
    error = (x.slack + rounding * np.abs(x.value)).sum(axis, keepdims=True)
    return Known(summed(x.value), np.broadcast_to(error, x.shape))


@handler("TopK")
def top_k(inputs: list[Known], attributes: dict[str, Any]) -> list[Known]:
    x, axis = inputs[0], attributes.get("axis", -1)
    sign = -1 if attributes.get("largest", 1) else 1
    places = np.argsort(sign * x.value, axis, kind="stable")
    places = places.take(range(ints(inputs[1])[0]), axis)
    slack = x.slack.max(axis, keepdims=True)
    values = np.take_along_axis(x.value, places, axis)
    return [Known(values, np.broadcast_to(slack, values.shape)), Known(places)]


@handler("ArgMax")
def arg_max(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    axis = attributes.get("axis", 0)
    return Known(inputs[0].value.argmax(axis, keepdims=bool(attributes.get("keepdims", 1))))


@handler("MeanVarianceNormalization")
def mean_variance(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    """Of numbers that differ much more than they are off."""
    x, axes = inputs[0], tuple(attributes["axes"])
    deviation = x.value.std(axes, keepdims=True)
    value = (x.value - x.value.mean(axes, keepdims=True)) / deviation
    large = np.abs(x.value).max(axes, keepdims=True)
    off = x.slack.max(axes, keepdims=True) + 16 * ULP * large
    relative = 2 * off / deviation + 64 * ULP * (large / deviation) ** 2
    return Known(value, 2 * off / deviation + np.abs(value) * relative + 1e-6)


@handler("ReduceMean")
def reduce_mean(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    x, keep = inputs[0], bool(attributes.get("keepdims", 1))
    held = ints(inputs[1]) if len(inputs) > 1 else attributes.get("axes")
    axes = tuple(held) if held is not None else None
    terms = x.value.size if axes is None else prod(x.shape[a] for a in axes)
    error = x.slack + (terms + 2) * ULP * np.abs(x.value)
    return Known(x.value.mean(axes, keepdims=keep), error.mean(axes, keepdims=keep))


def _pool(
    inputs: list[Known],
    attributes: dict[str, Any],
    combine: Callable[[np.ndarray, np.ndarray], np.ndarray],
    fill: float = 0.0,
) -> np.ndarray:
    """What a pool makes of its taps, and of whether each of them lies within the image."""
    x, kernel = inputs[0].value, attributes["kernel_shape"]
    strides = attributes.get("strides", [1] * len(kernel))
    dilations = attributes.get("dilations", [1] * len(kernel))
    pads = [(0, 0), (0, 0), *conv_pads(x.shape[2:], kernel, strides, dilations, attributes)]
    inside = np.pad(np.ones(x.shape), pads)
    padded = np.pad(x, pads, constant_values=fill)
    taps, within = (
        np.stack([_tap(v, at, kernel, strides, dilations) for at in np.ndindex(*kernel)])
        for v in (padded, inside)
    )
    return combine(taps, within)


def _slack(x: Known) -> list[Known]:
    return [given(x.slack + 2 * ULP * np.abs(x.value))]


@handler("MaxPool")
def max_pool(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    dtype = inputs[0].value.dtype
    least = -np.inf if dtype.kind == "f" else np.iinfo(dtype).min
    value = _pool(inputs, attributes, lambda taps, _: taps.max(0), least)
    if inputs[0].slack is None:
        return Known(value)
    return Known(value, _pool(_slack(inputs[0]), attributes, lambda taps, _: taps.max(0)))


@handler("AveragePool")
def average_pool(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    def mean(taps: np.ndarray, within: np.ndarray) -> np.ndarray:
        counted = len(taps) if attributes.get("count_include_pad", 0) else within.sum(0)
        return taps.sum(0) / counted

    terms = prod(attributes["kernel_shape"])
    large = [given(np.abs(inputs[0].value) * (terms + 2) * ULP + inputs[0].slack)]
    return Known(_pool(inputs, attributes, mean), _pool(large, attributes, mean))


@handler("LpPool")
def lp_pool(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    """p = 1 or 2."""
    p = attributes.get("p", 2)

    def norm(taps: np.ndarray, _: np.ndarray) -> np.ndarray:
        return (np.abs(taps) ** p).sum(0) ** (1 / p)

    value = _pool(inputs, attributes, norm)
    slack = _pool([given(inputs[0].slack)], attributes, lambda taps, _: taps.sum(0))
    return Known(
        value, slack + (prod(attributes["kernel_shape"]) + 8) * ULP * value + APPROXIMATION
    )


def _tap(
    x: np.ndarray,
    at: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> np.ndarray:
    """What the element `at` of a kernel meets, for every place of the kernel."""
    where = [slice(None), slice(None)]
    for size, i, k, s, d in zip(x.shape[2:], at, kernel, strides, dilations, strict=True):
        places = (size - (k - 1) * d - 1) // s + 1
        where.append(slice(i * d, i * d + (places - 1) * s + 1, s))
    return x[tuple(where)]


def conv_pads(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    attributes: Attributes,
) -> list[tuple[int, int]]:
    """Begin and end of each axis, with auto_pad resolved."""
    rank, mode = len(kernel), attributes.get("auto_pad", "NOTSET")
    if mode in ("NOTSET", "VALID"):
        amounts = attributes.get("pads", [0] * 2 * rank) if mode == "NOTSET" else [0] * 2 * rank
        return list(zip(amounts[:rank], amounts[rank:], strict=True))
    pairs = []
    for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        total = max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size)
        small, large = total // 2, total - total // 2
        pairs.append((small, large) if mode == "SAME_UPPER" else (large, small))
    return pairs


@handler("Conv")
def conv(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    """One term after the other: each element of the kernel adds what it meets, times itself."""
    x, w = inputs[0], inputs[1].value
    kernel, groups = w.shape[2:], attributes.get("group", 1)
    strides = attributes.get("strides", [1] * len(kernel))
    dilations = attributes.get("dilations", [1] * len(kernel))
    pads = conv_pads(x.shape[2:], kernel, strides, dilations, attributes)

    def convolve(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        padded = np.pad(values, [(0, 0), (0, 0), *pads])
        split = weights.reshape(groups, -1, *weights.shape[1:])  # group, output, input, taps..
        total = 0.0
        for at in np.ndindex(*kernel):
            met = _tap(padded, at, kernel, strides, dilations)
            terms = met.reshape(met.shape[0], groups, met.shape[1] // groups, -1)
            total = total + split[(..., *at)] @ terms
        return total.reshape(values.shape[0], weights.shape[0], *met.shape[2:])

    value = convolve(x.value, w)
    rounding = (prod(w.shape[1:]) + 4) * ULP
    error = inputs[1].slack
    slack = convolve(x.slack + rounding * np.abs(x.value), np.abs(w))
    if error is not None and error.any():
        slack += convolve(np.abs(x.value), error)
    if len(inputs) > 2:
        bias = _per_channel(inputs[2].value, 1, x.value.ndim)
        value, slack = value + bias, slack + ULP * np.abs(bias)
    return Known(value, slack + ULP * np.abs(value))


@handler("ConvTranspose")
def conv_transpose(inputs: list[Known], attributes: dict[str, Any]) -> Known:
    """Stride 1: a Conv with other pads and the kernel turned round."""
    w, groups = inputs[1].value, attributes.get("group", 1)
    rank = w.ndim - 2
    split = w.reshape(groups, -1, *w.shape[1:]).swapaxes(1, 2)  # group, output, input, taps..
    turned = np.flip(split.reshape(-1, *split.shape[2:]), tuple(range(2, w.ndim)))
    dilations = attributes.get("dilations", [1] * rank)
    reaches = [(k - 1) * d for k, d in zip(w.shape[2:], dilations, strict=True)]
    own = attributes.get("pads", [0] * 2 * rank)
    pads = [r - pad for r, pad in zip(reaches * 2, own, strict=True)]
    more = {"pads": pads, "dilations": dilations, "group": groups}
    return conv([inputs[0], given(turned), *inputs[2:]], more)
