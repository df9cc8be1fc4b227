"""Right conversions whose sums round otherwise, in front of nodes where that shows."""

from __future__ import annotations

import re
from collections.abc import Callable

import bases
import numpy as np
from bases import tailed
from drawn import Equivalent, converted
from nets import TF, Net, Rng, net, weight
from onnx import TensorProto, helper


def _equivalent(base: Net, what: str, rounds: bool) -> Equivalent:
    return Equivalent(what, base.model, converted(base.model), base, rounds=rounds)


def _patches(kernel: int, stride: int, padding: str) -> str:
    return (
        f"z = {TF}.ExtractImagePatches <ksizes = [1, {kernel}, {kernel}, 1], "
        f'strides = [1, {stride}, {stride}, 1], rates = [1, 1, 1, 1], padding = "{padding}"> (x)'
    )


def _quantised(rng: Rng, number: int) -> Equivalent:
    """Patches, MatMul and QuantizeLinear: merged sums round the other way now and then."""
    kernel, stride = ((3, 2), (2, 2), (5, 3), (4, 4))[number % 4]
    dtype = np.dtype(("uint8", "int8")[number // 4 % 2])
    channels = (8, 32)[number // 8 % 2]
    padding = ("VALID", "SAME")[number // 16 % 2]
    base = net(
        f"patches {kernel} by {stride} {padding}, MatMul, QuantizeLinear {dtype}",
        "float[n,h,w,4] x",
        f"{_patches(kernel, stride, padding)}; k = MatMul (z, pw); "
        "y = QuantizeLinear (k, scale, zero)",
        {
            "pw": weight(f"pw{number}", 4 * kernel * kernel, channels, scale=0.1),
            "scale": np.float32(0.013),
            "zero": np.array(128 if dtype == np.uint8 else 0, dtype),
        },
        outputs={"y": helper.np_dtype_to_tensor_dtype(dtype)},
        offset={"h": kernel, "w": kernel},
    )
    return _equivalent(base, f"{base.name} {number}", rounds=True)


#: Nodes behind a convolution, from z to y, and the type of y.
_ENDS = {
    "QuantizeLinear": (
        "q = QuantizeLinear (z, scale, zero); y = DequantizeLinear (q, scale, zero)",
        TensorProto.FLOAT,
    ),
    "Round": ("a = Mul (z, $7); y = Round (a)", TensorProto.FLOAT),
    "Floor": ("a = Mul (z, $7); y = Floor (a)", TensorProto.FLOAT),
    "ArgMax": ("y = ArgMax <axis = 3> (z)", TensorProto.INT64),
    "Greater": ("y = Greater (z, $0.1)", TensorProto.BOOL),
    "Cast": ("a = Mul (z, $50); y = Cast <to = 6> (a)", TensorProto.INT32),
    "TopK": ("a, y = TopK (z, #2)", TensorProto.INT64),
}


def _integers(rng: Rng, number: int) -> Equivalent:
    """Reals become integers behind a convolution."""
    name = [*_ENDS][number % len(_ENDS)]
    text, element_type = _ENDS[name]
    constants = {"scale": np.float32(0.02), "zero": np.uint8(100)}
    base = tailed("dilated", name, text, constants, outputs={"y": element_type})
    return _equivalent(base, f"{base.name} {number}", rounds=True)


def _grid_sample(rng: Rng, number: int) -> Equivalent:
    """GridSample of an image of common size, or of a small one."""
    size = (256, 64, 128, 33)[number % 4]
    mode = ("bilinear", "nearest", "bicubic")[number // 4 % 3]
    base = net(
        f"GridSample {size} {mode}",
        f"float[1,{size},{size},4] x, float[1,{size},{size},2] g",
        f"u = {TF}.SpaceToBatchND (x, block, ring); t = Transpose <perm = [0, 3, 1, 2]> (u); "
        "k = Conv (t, w0); l = Transpose <perm = [0, 2, 3, 1]> (k); "
        f"b = {TF}.BatchToSpaceND (l, block, crops); c = Transpose <perm = [0, 3, 1, 2]> (b); "
        f'd = GridSample <mode = "{mode}"> (c, g); y = Relu (d)',
        {
            **bases.BLOCK,
            "ring": np.array([[2, 2 + size % 2]] * 2),
            "crops": np.array([[0, size % 2]] * 2),
            "w0": weight("w0", 4, 4, 3, 3),
        },
    )
    return _equivalent(base, f"{base.name} {number}", rounds=mode == "nearest")


#: Nodes from z to y.
_TAILS = (
    "y = MatMul (z, big)",
    "k = MatMul (z, big); y = Softmax <axis = 3> (k)",
    "k = MatMul (z, big); a = Mul (k, $30); y = Sin (a)",
    "k = MatMul (z, big); y = Exp (k)",
    "k = MatMul (z, big); a = Abs (k); b = Add (a, $0.001); y = Log (b)",
    "k = MatMul (z, big); a = Mul (k, $20); y = Softmax <axis = 3> (a)",
    "k = MatMul (z, big); y = Erf (k)",
    "a = Mul (z, z); b = ReduceSum <keepdims = 1> (a, #3); c = Sqrt (b); y = Div (z, c)",
    "k = MatMul (z, big); y = Tanh (k)",
)


def _wide(rng: Rng, number: int) -> Equivalent:
    """Sums of thousands of products, and functions of them."""
    channels = (512, 2048)[number % 2]
    tail = _TAILS[number // 2 % len(_TAILS)]
    region = number // 2 // len(_TAILS) % 2
    head, dims = _patches(2, 2, "VALID"), f"n,h,w,{channels // 4}"
    constants = {"big": weight(f"big{channels}", channels, 8)}
    if region:
        channels, dims = 512, "n,h,w,512"
        head = (
            f"u = {TF}.SpaceToBatchND (x, block, none); t = Transpose <perm = [0, 3, 1, 2]> (u); "
            "s = Conv (t, one); l = Transpose <perm = [0, 2, 3, 1]> (s); "
            f"z = {TF}.BatchToSpaceND (l, block, none)"
        )
        constants = bases.BLOCK | {
            "one": weight("one", 512, 512, 1, 1),
            "big": weight("big512", 512, 8),
        }
    operators = " ".join(re.findall(r"= ([A-Z]\w+)", tail))
    even = {"h": 2, "w": 2}
    base = net(
        f"{'dilated' if region else 'patches'} {channels} {operators}",
        f"float[{dims}] x",
        f"{head}; {tail}",
        constants,
        opset=18,
        step=even,
        offset=even,
    )
    return _equivalent(base, f"{base.name} {number}", rounds="Sin" in tail)


CLASSES: dict[str, Callable[[Rng, int], Equivalent]] = {
    "quantised behind merged sums": _quantised,
    "integers behind convolutions": _integers,
    "GridSample": _grid_sample,
    "wide reductions and tails": _wide,
}
