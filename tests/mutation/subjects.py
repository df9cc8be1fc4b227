"""What is converted and then broken: models/, small models of every element type, nets, the grid.

    net  =  a region of nodes that becomes a convolution

A subject knows which inputs are legal by itself: nothing here asks the package for sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import grid
import numpy as np
import onnx
from nets import TF, Feeds, Net, Rng, net, weight

ZOO = Path(__file__).parents[2] / "models"

#: Inputs of the nets of models/, steps and least values of their sizes, bounds of integers.
_ZOO = {
    "deeplab": ({"image": "n h w 3"}, {}, {"h": 5, "w": 5}),
    "leftover": ({"image": "n h w 4", "rate": "2"}, {}, {}, {"rate": (1, 5)}),
    "openvino_style": ({"data": "n 4 15 13"}, {}, {}),
    "raft": ({"first": "n h w 3", "second": "n h w 3"}, {"h": 6, "w": 6}, {}),
    "video": ({"clip": "n 8 16 12 3"}, {}, {}, {"clip": (0, 256)}),
    "wavenet": ({"audio": "n h 4"}, {}, {}),
    "wavenet_noncausal": ({"audio": "n h 4"}, {}, {}),
    # Below 8 onnx's evaluator and onnxruntime disagree about MaxPool.
    "yolov2_dynamic": ({"image": "n h w 3"}, {"h": 4, "w": 4}, {"h": 8, "w": 8}),
}


def _zoo(name: str) -> Net:
    inputs, step, offset, *bounds = _ZOO[name]
    dims = {n: tuple(int(d) if d.isdigit() else d for d in t.split()) for n, t in inputs.items()}
    return Net(name, onnx.load(ZOO / name / "model.onnx"), dims, step, offset, *bounds)


def _blocks(**amounts: object) -> dict[str, np.ndarray]:
    return {name: np.array(values, np.int32) for name, values in amounts.items()}


_S2B, _B2S = (f"y = {TF}.{node} (x, b, p)" for node in ("SpaceToBatchND", "BatchToSpaceND"))
_IMAGE = f"y = {TF}.ExtractImagePatches <ksizes = [1, {{}}, 1], strides = [1, {{}}, 1], "
_IMAGE += 'rates = [1, {}, 1], padding = "{}"> (x)'
_VOLUME = (
    f"y = {TF}.ExtractVolumePatches <ksizes = [1, 2, 3, 2, 1], strides = [1, 2, 2, 3, 1], "
    'padding = "SAME"> (x)'
)
_COMPUTED = (
    "s = Shape (x); h = Gather (s, #1); w = Gather (s, #2); mh = Mod (h, #2); mw = Mod (w, #2); "
    "ph = Add (#2, mh); z = Sub (#2, #2); flat = Concat <axis = 0> (z, ph, mw, z); "
    f"two = Concat <axis = 0> (#2, #2); p = Reshape (flat, two); {_S2B}"
)
#: Models that move data of one type.
_MOVED = {
    made.name: made
    for made in (
        net(
            *("s2b_float", "float[n,h,w,3] x", _S2B, _blocks(b=[2, 3], p=[[1, 2], [0, 4]])),
            step={"h": 2, "w": 3},
            offset={"h": 1, "w": 2},
        ),
        net(
            *("b2s_int32", "int32[n,h,w,2] x", _B2S, _blocks(b=[3, 2], p=[[1, 2], [1, 0]])),
            step={"n": 6},
            offset={"n": 6, "h": 2},
        ),
        net("s2b_strings", "string[n,5,c] x", _S2B, _blocks(b=[2], p=[[0, 1]])),
        net(
            *("b2s_bool", "bool[n,4,3,2] x", _B2S, _blocks(b=[2, 2], p=[[0, 1], [3, 0]])),
            step={"n": 4},
            offset={"n": 4},
        ),
        net("patches_uint8", "uint8[n,h,w,3] x", _IMAGE.format("3, 2", "2, 1", "2, 3", "SAME")),
        net(
            "patches_float16", "float16[2,9,7,4] x", _IMAGE.format("2, 2", "3, 2", "1, 2", "VALID")
        ),
        net("volume_double", "double[n,d,h,4,2] x", _VOLUME),
        net("s2b_int64_dynamic_pads", "int64[n,h,w] x", _COMPUTED, _blocks(b=[2, 2])),
    )
}

# ---------------------------------------------------------------- regions


_EVEN = {"h": 2, "w": 2}


def _dilated(between: str, kind: str = "float", channels: int = 4, rank: int = 4) -> Net:
    """SpaceToBatch, Conv, other nodes from `v` to `r`, Conv, BatchToSpace."""
    axes = rank - 2
    front, back = ("[0, 2, 1]", "[0, 2, 1]") if axes == 1 else ("[0, 3, 1, 2]", "[0, 2, 3, 1]")
    dims = {1: "n,h,3", 2: "n,h,w,3"}[axes]
    dtype = {"float": np.float32, "float16": np.float16}[kind]
    one = (1,) * axes
    constants = {
        "block": np.array([2] * axes),
        "ring": np.full((axes, 2), 2),
        "none": np.zeros((axes, 2), np.int64),
        "w0": weight("w0", channels, 3, *(3,) * axes, dtype=dtype),
        "w1": weight("w1", channels, channels, *one, dtype=dtype),
        "b0": weight("b0", channels, dtype=dtype, scale=0.3),
        "bias": weight("bias", channels, *one, dtype=dtype, scale=0.3),
        "gamma": 1 + weight("gamma", channels, dtype=dtype, scale=0.1),
        "beta": weight("beta", channels, dtype=dtype, scale=0.1),
        "mean": weight("mean", channels, dtype=dtype, scale=0.1),
        "var": 1 + np.abs(weight("var", channels, dtype=dtype, scale=0.2)),
    }
    operators = " ".join(re.findall(r"= ([A-Z]\w+)", between))
    return net(
        f"dilated{axes}d {operators} {kind}",
        f"{kind}[{dims}] x",
        f"u = {TF}.SpaceToBatchND (x, block, ring); t = Transpose <perm = {front}> (u); "
        f"v = Conv (t, w0, b0); {between}; o = Conv (r, w1); l = Transpose <perm = {back}> (o); "
        f"y = {TF}.BatchToSpaceND (l, block, none)",
        constants,
        step=_EVEN,
    )


def _patched(stride: int, kernel: int, padding: str, tail: str = "y = Relu (k)") -> Net:
    """ExtractImagePatches and a 1x1 Conv, which become a strided Conv."""
    least = 0 if padding == "SAME" else kernel
    return net(
        f"patches {kernel} by {stride} {padding} {tail.split('=')[1].split()[0]}",
        "float[n,h,w,3] x",
        f"z = {TF}.ExtractImagePatches <ksizes = [1, {kernel}, {kernel}, 1], "
        f"strides = [1, {stride}, {stride}, 1], rates = [1, 1, 1, 1], "
        f'padding = "{padding}"> (x); t = Transpose <perm = [0, 3, 1, 2]> (z); '
        f"k = Conv (t, pw); {tail}",
        {"pw": weight("pw", 4, 3 * kernel * kernel, 1, 1)},
        offset={"h": least, "w": least},
    )


_BETWEEN = (
    "r = Relu (v)",
    "a = Add (v, bias); r = Relu (a)",
    "a = Add (v, bias); m = BatchNormalization (a, gamma, beta, mean, var); r = Relu (m)",
    "s = Sigmoid (v); a = Tanh (v); r = Mul (s, a)",
    "r = LeakyRelu <alpha = 0.1> (v)",
)


def _regions() -> Iterator[Net]:
    yield from map(_dilated, _BETWEEN)
    yield from (_dilated(between, rank=3) for between in _BETWEEN[:4])
    yield _dilated(_BETWEEN[0], "float16")
    yield from (_patched(8, 8, "SAME"), _patched(16, 16, "VALID"), _patched(8, 11, "SAME"))
    yield from (_patched(8, 3, "SAME"), _patched(16, 5, "VALID", "y = Sigmoid (k)"))


#: Nets whose operators become part of a convolution.
NETS = {made.name: made for made in _regions()}


# ---------------------------------------------------------------- all of them


@dataclass(frozen=True)
class _Cell(Net):
    """A cell of the grid, which knows its inputs."""

    cell: grid.Cell | None = None

    def random(self, rng: Rng, kind: str = "normal") -> Feeds:
        return grid.feeds(self.cell, rng)


@cache
def get(name: str) -> Net:
    """A subject by name."""
    if name in _ZOO:
        return _zoo(name)
    if name in _MOVED or name in NETS:
        return (_MOVED | NETS)[name]
    cell = grid.get(name)
    return _Cell(name, grid.model(cell), {}, cell=cell)


def moves(name: str) -> bool:
    """Whether a subject only moves data, so that every bit counts."""
    return name not in _ZOO and name not in NETS


#: Names of those that are looked at in every form; a model of the zoo that nothing is known of here is
#: left out.
NAMES = (*_ZOO, *_MOVED)
#: Names of the cells of the zoo's grid, which are too many to be looked at in every form.
CELLS = tuple(cell.name for cell in grid.CELLS)
