"""What is converted and then broken: the zoo with its grid, and small models of every element type.

A subject knows which inputs are legal by itself: nothing here asks the package for sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random

import grid
import numpy as np
import onnx
import sampling

ZOO = Path(__file__).parents[2] / "models"

Feeds = dict[str, np.ndarray]
Rng = np.random.Generator


@dataclass(frozen=True)
class Subject:
    """A model and what may be fed to it.

    Attributes:
        name: folder of the zoo, "row/form" of its grid, or what the model is.
        model: the original.
        feeds: draws legal inputs; sizes vary as far as the model lets them.
        arithmetic: whether outputs are behind floating-point arithmetic.
    """

    name: str
    model: onnx.ModelProto
    feeds: Callable[[Rng], Feeds]
    arithmetic: bool


def _reals(*shape: int) -> Callable[[Rng], np.ndarray]:
    return lambda rng: rng.uniform(-1.5, 1.5, shape).astype(np.float32)


def _deeplab(rng: Rng) -> Feeds:
    n, h, w = rng.integers(1, 4), rng.integers(5, 30), rng.integers(5, 30)
    return {"image": _reals(n, h, w, 3)(rng)}


def _leftover(rng: Rng) -> Feeds:
    n, h, w = rng.integers(1, 4), rng.integers(1, 20), rng.integers(1, 20)
    return {"image": _reals(n, h, w, 4)(rng), "rate": rng.integers(1, 5, 2).astype(np.int32)}


def _openvino_style(rng: Rng) -> Feeds:
    return {"data": _reals(rng.integers(1, 5), 4, 15, 13)(rng)}


def _raft(rng: Rng) -> Feeds:
    shape = (rng.integers(1, 4), 6 * rng.integers(1, 6), 6 * rng.integers(1, 6), 3)
    return {"first": _reals(*shape)(rng), "second": _reals(*shape)(rng)}


def _video(rng: Rng) -> Feeds:
    shape = (rng.integers(1, 5), 8, 16, 12, 3)
    return {"clip": rng.integers(0, 256, shape).astype(np.uint8)}


def _audio(rng: Rng) -> Feeds:
    return {"audio": _reals(rng.integers(1, 4), rng.integers(1, 80), 4)(rng)}


def _yolov2_dynamic(rng: Rng) -> Feeds:
    # Below 8 onnx's evaluator and onnxruntime disagree about MaxPool.
    h, w = 4 * rng.integers(2, 13), 4 * rng.integers(2, 13)
    return {"image": _reals(rng.integers(1, 4), h, w, 3)(rng)}


_FEEDS: Mapping[str, Callable[[Rng], Feeds]] = {
    "deeplab": _deeplab,
    "leftover": _leftover,
    "openvino_style": _openvino_style,
    "raft": _raft,
    "video": _video,
    "wavenet": _audio,
    "wavenet_noncausal": _audio,
    "yolov2_dynamic": _yolov2_dynamic,
}

_HEAD = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.converters.tensorflow" : 1]>'
_TF = "ai.onnx.converters.tensorflow"

#: Name -> (element type, dims as numbers or names, dims of the output, initializers, node).
_MOVEMENT = {
    "s2b_float": (
        "float", "n,h,w,3", "N,H,W,3",
        "int32[2] b = {2, 3}, int32[2,2] p = {1, 2, 0, 4}",
        f"y = {_TF}.SpaceToBatchND (x, b, p)",
    ),
    "b2s_int32": (
        "int32", "n,h,w,2", "N,H,W,2",
        "int32[2] b = {3, 2}, int32[2,2] c = {1, 2, 1, 0}",
        f"y = {_TF}.BatchToSpaceND (x, b, c)",
    ),
    "s2b_strings": (
        "string", "n,5,c", "N,H,c",
        "int64[1] b = {2}, int64[1,2] p = {0, 1}",
        f"y = {_TF}.SpaceToBatchND (x, b, p)",
    ),
    "b2s_bool": (
        "bool", "n,4,3,2", "N,H,W,2",
        "int64[2] b = {2, 2}, int64[2,2] c = {0, 1, 3, 0}",
        f"y = {_TF}.BatchToSpaceND (x, b, c)",
    ),
    "patches_uint8": (
        "uint8", "n,h,w,3", "n,H,W,C", "",
        f"y = {_TF}.ExtractImagePatches <ksizes = [1, 3, 2, 1], strides = [1, 2, 1, 1], "
        'rates = [1, 2, 3, 1], padding = "SAME"> (x)',
    ),
    "patches_float16": (
        "float16", "2,9,7,4", "2,H,W,C", "",
        f"y = {_TF}.ExtractImagePatches <ksizes = [1, 2, 2, 1], strides = [1, 3, 2, 1], "
        'rates = [1, 1, 2, 1], padding = "VALID"> (x)',
    ),
    "volume_double": (
        "double", "n,d,h,4,2", "n,D,H,W,C", "",
        f"y = {_TF}.ExtractVolumePatches <ksizes = [1, 2, 3, 2, 1], strides = [1, 2, 2, 3, 1], "
        'padding = "SAME"> (x)',
    ),
    "s2b_int64_dynamic_pads": (
        "int64", "n,h,w", "N,H,W",
        "int32[2] b = {2, 2}, int64 at_h = {1}, int64 at_w = {2}, int64 two = {2}, "
        "int64[1] one = {1}, int64[2] square = {2, 2}",
        "s = Shape (x)\n h = Gather (s, at_h)\n w = Gather (s, at_w)\n"
        "mh = Mod (h, two)\n mw = Mod (w, two)\n ph = Add (two, mh)\n"
        "z = Sub (two, two)\n z1 = Reshape (z, one)\n ph1 = Reshape (ph, one)\n"
        "mw1 = Reshape (mw, one)\n flat = Concat <axis = 0> (z1, ph1, mw1, z1)\n"
        f"p = Reshape (flat, square)\n y = {_TF}.SpaceToBatchND (x, b, p)",
    ),
}  # fmt: skip

_SIZES: Mapping[str, Callable[[Rng], tuple[int, ...]]] = {
    "s2b_float": lambda r: (
        r.integers(1, 4),
        2 * r.integers(0, 5) + 1,
        3 * r.integers(1, 5) - 1,
        3,
    ),
    "b2s_int32": lambda r: (6 * r.integers(1, 4), r.integers(2, 6), r.integers(1, 6), 2),
    "s2b_strings": lambda r: (r.integers(1, 5), 5, r.integers(1, 5)),
    "b2s_bool": lambda r: (4 * r.integers(1, 4), 4, 3, 2),
    "patches_uint8": lambda r: (r.integers(1, 4), r.integers(1, 14), r.integers(1, 14), 3),
    "patches_float16": lambda r: (2, 9, 7, 4),
    "volume_double": lambda r: (r.integers(1, 4), r.integers(1, 9), r.integers(1, 9), 4, 2),
    "s2b_int64_dynamic_pads": lambda r: tuple(r.integers(1, 12, 3)),
}


def _moved(name: str) -> Subject:
    kind, dims, out, stored, nodes = _MOVEMENT[name]
    text = f"{_HEAD} g ({kind}[{dims}] x) => ({kind}[{out}] y) <{stored}> {{ {nodes} }}"
    types = {"float": "float32", "double": "float64"}

    def feeds(rng: Rng) -> Feeds:
        shape = tuple(int(d) for d in _SIZES[name](rng))
        own = Random(int(rng.integers(1 << 30)))
        x = sampling.array(own, types.get(kind, kind), shape)
        if kind == "float16":  # whose signalling NaNs kernels of onnxruntime's own make quiet
            bits = x.view(np.uint16)
            bits[np.isnan(x)] |= 0x0200
        return {"x": x}

    return Subject(name, onnx.parser.parse_model(text), feeds, arithmetic=False)


@cache
def get(name: str) -> Subject:
    """A subject by name."""
    if name in _MOVEMENT:
        return _moved(name)
    if name in CELLS:
        cell = grid.get(name)
        return Subject(name, grid.model(cell), partial(grid.feeds, cell), arithmetic=False)
    model = onnx.load(str(ZOO / name / "model.onnx"))
    return Subject(name, model, _FEEDS[name], arithmetic=True)


#: Names of all subjects; a model of the zoo that nothing is known of here is left out.
NAMES = (*_FEEDS, *_MOVEMENT)
#: Names of the cells of the zoo's grid, which are too many to be looked at in every form.
CELLS = tuple(cell.name for cell in grid.CELLS)
