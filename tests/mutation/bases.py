"""Nets around the operators, and what is drawn of them: right and wrong conversions.

A net is a head, which holds the operator and gives `z`, with a tail of ordinary nodes; a region that
becomes a convolution; or one of `models/`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx
import running
import subjects
from judging import Judge, apart
from nets import KINDS, TF, Feeds, Net, Rng, net, parsed, renamed, weight

import onnx_spatial

#: A block of 2 by 2, without paddings or crops.
BLOCK = {"block": np.array([2, 2]), "none": np.zeros((2, 2), np.int64)}


@dataclass(frozen=True)
class Head:
    """Nodes that hold the spatial operator, from input x to a value z of rank 4.

    Attributes:
        text: the nodes.
        constants: that they read.
        channels: of z.
        step: of legal sizes.
    """

    text: str
    constants: Mapping[str, np.ndarray]
    channels: int
    step: Mapping[str, int]


_EVEN = {"h": 2, "w": 2}
HEADS: dict[str, Head] = {
    "space_to_batch": Head(f"z = {TF}.SpaceToBatchND (x, block, none)", BLOCK, 3, _EVEN),
    "batch_to_space": Head(f"z = {TF}.BatchToSpaceND (x, block, none)", BLOCK, 3, {"n": 4}),
    "patches": Head(
        f"z = {TF}.ExtractImagePatches <ksizes = [1, 2, 2, 1], strides = [1, 1, 1, 1], "
        'rates = [1, 1, 1, 1], padding = "SAME"> (x)',
        {},
        12,
        {},
    ),
    "dilated": Head(
        f"blocks = {TF}.SpaceToBatchND (x, block, ring); "
        "turned = Transpose <perm = [0, 3, 1, 2]> (blocks); summed = Conv (turned, hw); "
        "back = Transpose <perm = [0, 2, 3, 1]> (summed); "
        f"z = {TF}.BatchToSpaceND (back, block, none)",
        {**BLOCK, "ring": np.full((2, 2), 2), "hw": weight("hw", 6, 3, 3, 3)},
        6,
        _EVEN,
    ),
}


def tailed(
    head: str,
    name: str,
    text: str,
    constants: Mapping[str, np.ndarray] | None = None,
    **options: Any,
) -> Net:
    """Build a net of a head and nodes behind it, which read z (or x) and give y; options of `net`."""
    start = HEADS[head]
    stored = {**start.constants, **(constants or {})}
    text = f"{start.text}; {text}"
    return net(f"{head}/{name}", "float[n,h,w,3] x", text, stored, step=start.step, **options)


def rename_inner(model: onnx.ModelProto, head: str) -> None:
    """Give the values behind a head other names, so that none means something else than before."""
    kept = {o for n in parsed(HEADS[head].text)[0] for o in n.output}
    kept |= {v.name for v in (*model.graph.input, *model.graph.output)}
    inner = {o for n in model.graph.node for o in n.output} - kept
    renamed(model, {n: f"{n}_again" for n in inner if n and not n.startswith(("z/", "blocks/"))})


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


def patched(stride: int, kernel: int, padding: str, tail: str = "y = Relu (k)") -> Net:
    """ExtractImagePatches and a 1x1 Conv, which become a strided Conv."""
    return net(
        f"patches {kernel} by {stride} {padding} {tail.split('=')[1].split()[0]}",
        "float[n,h,w,3] x",
        f"z = {TF}.ExtractImagePatches <ksizes = [1, {kernel}, {kernel}, 1], "
        f"strides = [1, {stride}, {stride}, 1], rates = [1, 1, 1, 1], "
        f'padding = "{padding}"> (x); t = Transpose <perm = [0, 3, 1, 2]> (z); '
        f"k = Conv (t, pw); {tail}",
        {"pw": weight("pw", 4, 3 * kernel * kernel, 1, 1)},
        offset={"h": 0 if padding == "SAME" else kernel, "w": 0 if padding == "SAME" else kernel},
    )


_BN = "BatchNormalization (a, gamma, beta, mean, var)"
_BETWEEN = (
    "r = Relu (v)",
    "a = Add (v, bias); r = Relu (a)",
    f"a = Add (v, bias); m = {_BN}; r = Relu (m)",
    "s = Sigmoid (v); a = Tanh (v); r = Mul (s, a)",
    "r = LeakyRelu <alpha = 0.1> (v)",
)


@cache
def regions() -> dict[str, Net]:
    """Nets whose operators become part of a convolution."""
    made = [_dilated(b) for b in _BETWEEN]
    made += [_dilated(b, rank=3) for b in _BETWEEN[:4]]
    made.append(_dilated(_BETWEEN[0], "float16"))
    made += [patched(s, s, p) for s in (8, 16, 32) for p in ("SAME", "VALID")]
    made += [patched(8, 3, "SAME"), patched(16, 5, "VALID", "y = Sigmoid (k)")]
    made += [patched(s, s + 3, "SAME") for s in (8, 16, 32)]
    return {n.name: n for n in made}


@cache
def whole() -> dict[str, Net]:
    """Nets of models/, and small ones with ordinary nodes."""
    names = ("deeplab", "yolov2_dynamic", "wavenet", "wavenet_noncausal", "raft")
    made = [subjects.get(name) for name in names]
    for head in HEADS:
        tail = "q = Relu (z); a = Mul (q, $1.7); b = Add (a, $0.3); y = Sigmoid (b)"
        made.append(tailed(head, "relu", tail))
        made.append(tailed(head, "mean", "m = ReduceMean <axes = [3]> (z); y = Sub (z, m)"))
        norm = "m = ReduceMean <axes = [3]> (z); d = Sub (z, m); e = Mul (d, d); "
        norm += "v = ReduceMean <axes = [3]> (e); f = Add (v, $0.001); g = Sqrt (f); y = Div (d, g)"
        made.append(tailed(head, "norm", norm))
        channels = HEADS[head].channels
        bytes_ = np.random.default_rng(channels).integers(-128, 128, (channels, 8), np.int8)
        tail = "w = DequantizeLinear (w8, scale); y = MatMul (z, w)"
        made.append(tailed(head, "int8 weight", tail, {"w8": bytes_, "scale": np.float32(0.01)}))
        table = weight("table", 8, 4, scale=1.0)
        tail = "a = ArgMax <axis = 3, keepdims = 0> (z); y = Gather (table, a)"
        made.append(tailed(head, "table", tail, {"table": np.resize(table, (channels, 4))}))
    return {n.name: n for n in made}


@cache
def everything() -> dict[str, Net]:
    """Nets of both kinds."""
    return regions() | whole()


def converted(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the conversion, not verified."""
    return onnx_spatial.convert(model, verify=False).model


@cache
def converted_net(key: str) -> onnx.ModelProto:
    """Return the conversion of one of the nets."""
    return converted(everything()[key].model)


def copied(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the same model as another message."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


@dataclass
class Deception:
    """A wrong conversion.

    Attributes:
        what: base and mistake.
        original: the model that was converted.
        right: its right conversion.
        wrong: the wrong one.
        feeds: data on which they may differ, the likeliest first.
        fact: why it is wrong where no run shows it.
        runnable: makes each of the models one that the judges can run.
    """

    what: str
    original: onnx.ModelProto
    right: onnx.ModelProto
    wrong: onnx.ModelProto
    feeds: Callable[[], Iterable[Feeds]] = field(default=lambda: ())
    fact: str = ""
    runnable: Callable[[onnx.ModelProto], onnx.ModelProto] = field(default=lambda model: model)

    def shown(self) -> str | None:
        """Return how it differs from the original; None if no data shows it."""
        original, right, wrong = map(self.runnable, (self.original, self.right, self.wrong))
        found = None if self.fact else Judge(original, right, self.feeds()).difference(wrong)
        return self.fact or (found and ": ".join(found))


@dataclass
class Equivalent:
    """A right conversion.

    Attributes:
        what: base and rewriting.
        original: the model that was converted.
        rewritten: the conversion.
        feeds: makes inputs.
        rounds: whether its outputs are rounded to steps or another type, and so may be far apart.
    """

    what: str
    original: onnx.ModelProto
    rewritten: onnx.ModelProto
    feeds: Callable[[], Feeds]
    rounds: bool = False

    def shown(self) -> str | None:
        """Return how it differs from the plain conversion in onnxruntime; None if it is right."""
        models, feeds = (converted(self.original), self.rewritten), self.feeds()
        for a, b in zip(*(running.run(m, feeds, running.LEVELS[0]) for m in models), strict=True):
            error = apart(a, b)
            if error > (2e-2 if a.dtype == np.float16 else 1e-4) and not self.rounds:
                return f"{error:.1e} of the largest value apart"
        return None


def equivalent(base: Net, what: str, model: onnx.ModelProto, rounds: bool = False) -> Equivalent:
    """Return a right conversion of a net."""
    return Equivalent(
        what, base.model, model, lambda: base.feeds(np.random.default_rng(11)), rounds
    )


def data(base: Net, rng: Rng, kinds: Sequence[str] = KINDS) -> Callable[[], Iterator[Feeds]]:
    """Draw data of each kind for a net, later."""
    seed = int(rng.integers(1 << 30))
    return lambda: (base.feeds(np.random.default_rng([seed, i]), k) for i, k in enumerate(kinds))
