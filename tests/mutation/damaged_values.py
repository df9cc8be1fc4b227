"""Wrong conversions with a value that is damaged where small and usual data does not go.

A value of a converted net is clipped, loses its NaNs, is cut, or is wrong for some sizes only. Or a net
is converted by hand with the wrong pads.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import bases
import editing
import numpy as np
import onnx
from bases import Deception, converted, converted_net
from nets import TF, Feeds, Net, Rng, net, spliced
from onnx import helper, numpy_helper


@dataclass(frozen=True)
class Value:
    """A computed value of reals in the main graph.

    Attributes:
        number: of the node that gives it.
        name, rank, element_type: its.
        open: axes with sizes that are not known.
    """

    number: int
    name: str
    rank: int
    element_type: int
    open: tuple[int, ...]


def values(model: onnx.ModelProto) -> list[Value]:
    """List the values of reals that follow from data, of rank 3 or more."""
    graph = onnx.shape_inference.infer_shapes(bases.copied(model), data_prop=True).graph
    known = {v.name: v.type.tensor_type for v in (*graph.value_info, *graph.output, *graph.input)}
    made = {v.name for v in model.graph.input}
    found = []
    for spot in editing.spots(model):
        if spot.holder is not model.graph or not made.intersection(spot.node.input):
            continue
        if spot.node.op_type in ("Shape", "Size"):
            continue
        made.update(spot.node.output)
        kind = known.get(spot.node.output[0])
        if kind is None or not kind.HasField("shape") or len(kind.shape.dim) < 3:
            continue
        if kind.elem_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
            axes = [a for a, d in enumerate(kind.shape.dim) if not d.HasField("dim_value")]
            rank = len(kind.shape.dim)
            name = spot.node.output[0]
            found.append(Value(spot.number, name, rank, kind.elem_type, tuple(axes)))
    return found


def pick(number: int, *starts: str) -> str:
    """Take the nets with such names in turn, in an order of their own."""
    names = [name for name in bases.everything() if name.startswith(starts or "")]
    return sorted(names, key=lambda name: zlib.crc32(name.encode()))[number % len(names)]


def _behind(model: onnx.ModelProto, value: Value, text: str) -> onnx.ModelProto:
    """Put nodes from `s` to `t` behind a value."""
    real = helper.tensor_dtype_to_np_dtype(value.element_type).type
    make = spliced(text, real)
    return editing.edited(model, value.number, lambda h, i, node: editing.behind(h, i, make))


@dataclass(frozen=True)
class Damage:
    """What happens to a value `s`, which is `t` then; {axis} is one of its open axes.

    Attributes:
        what: it, in words.
        text: the nodes.
        kinds: of data that shows it.
        sizes: that show it, of the axis.
    """

    what: str
    text: str
    kinds: tuple[str, ...] = ("normal",)
    sizes: tuple[int, ...] = (9,)


#: What goes wrong where the condition `c` (one bool) holds.
_RARELY = (
    "b = Neg (s); t = Where (c, b, s)",
    "f = Slice (s, #0, #1, #{axis}); g = Slice (s, #0, #-1, #{axis}); "
    "b = Concat <axis = {axis}> (f, g); t = Where (c, b, s)",
    "f = Slice (s, #0, #-1, #{axis}); g = Slice (s, #-1, #9223372036854775807, #{axis}); "
    "e = Sub (g, g); b = Concat <axis = {axis}> (f, e); t = Where (c, b, s)",
)


def _clipped(rng: Rng) -> Damage:
    limit = int(rng.choice([6, 50, 300, 1000]))
    text = (f"t = Min (s, ${limit})", f"t = Max (s, $-{limit})")[int(rng.integers(2))]
    return Damage(f"clipped at {limit}", text, ("images", "large", "offset"))


def _no_nan(rng: Rng) -> Damage:
    return Damage("NaN becomes 0", "i = IsNaN (s); t = Where (i, $0, s)", ("nan",))


def _cut(rng: Rng) -> Damage:
    limit = int(rng.choice([16, 400, 1000]))
    text = f"t = Slice (s, #0, #{limit}, #{{axis}})"
    return Damage(f"cut at {limit}", text, sizes=(limit + 30, 2 * limit + 30))


def _for_some_sizes(rng: Rng) -> Damage:
    size = int(rng.choice([3, 17, 256, 1000]))
    rest = int(rng.integers(8))
    what, condition, sizes = (
        (f"at {size}", f"c = Equal (d, #{size})", (size, 2 * size, 4 * size)),
        (f"from {size} on", f"c = GreaterOrEqual (d, #{size})", (size + 8, 4 * size + 64)),
        (f"at remainder {rest} of 8", f"m = Mod (d, #8); c = Equal (m, #{rest})", range(16, 33)),
    )[int(rng.integers(3))]
    text = f"p = Shape (s); d = Gather (p, #{{axis}}); {condition}; "
    return Damage(f"wrong {what}", text + _RARELY[int(rng.integers(3))], sizes=tuple(sizes))


def _damaged(draw: Callable[[Rng], Damage]) -> Callable[[Rng, int], Deception | None]:
    """Damage a value of one of the nets."""

    def damaged(rng: Rng, number: int) -> Deception | None:
        key = pick(number)
        base, right = bases.everything()[key], converted_net(key)
        places = [v for v in values(right) if v.open]
        if not places:
            return None
        value = places[int(rng.integers(len(places)))]
        damage, axis = draw(rng), int(rng.choice(value.open))

        def feeds() -> Iterator[Feeds]:
            own = np.random.default_rng(number)
            for kind in damage.kinds:
                for letter in base.letters:
                    for size in damage.sizes:
                        yield base.feeds(own, kind, **{letter: size})

        wrong = _behind(right, value, damage.text.format(axis=axis))
        what = f"{key}: {damage.what} behind {value.name!r}, axis {axis}"
        return Deception(what, base.model, right, wrong, feeds)

    return damaged


def by_hand(stride: int, kernel: int, pads: str) -> tuple[Net, onnx.ModelProto]:
    """Replace patches and a Conv by one Conv with these pads; (net, conversion)."""
    base = bases.patched(stride, kernel, "SAME")
    weights = numpy_helper.to_array(base.model.graph.initializer[0])
    inner = weights.reshape(4, kernel, kernel, 3).transpose(0, 3, 1, 2)
    text = "first = Transpose <perm = [0, 3, 1, 2]> (x); "
    text += f"sums = Conv <{pads}, strides = [{stride}, {stride}]> (first, cw); y = Relu (sums)"
    constants = {"cw": np.ascontiguousarray(inner)}
    return base, net("hand", "float[n,h,w,3] x", text, constants).model


def _pads_of_one_remainder(rng: Rng, number: int) -> Deception | None:
    stride = (8, 16, 32)[number % 3]
    kernel, rest = stride + int(rng.integers(1, 5)), int(rng.integers(stride))
    amount = kernel - (rest or stride)
    low = max(amount, 0) // 2
    high = max(amount, 0) - low
    pads = (f"pads = [{low}, {low}, {high}, {high}]", 'auto_pad = "SAME_LOWER"')[number % 4 == 3]
    base, wrong = by_hand(stride, kernel, pads)

    def feeds() -> Iterator[Feeds]:
        for size in range(stride + kernel, 2 * stride + kernel):
            yield base.feeds(np.random.default_rng(3), h=size, w=size)

    return Deception(f"{base.name}: {pads}", base.model, converted(base.model), wrong, feeds)


def sized_by_input(number: int) -> tuple[Net, onnx.ModelProto]:
    """Convert by hand so that the nodes read the sizes of the model's input; (net, conversion)."""
    before = ("Relu", "Neg", "Identity", "Abs")[number % 4]
    block = 2 + number % 2
    constants = {"block": np.array([block, block]), "none": np.zeros((2, 2), np.int64)}
    text = f"v = {before} (x); y = {TF}.SpaceToBatchND (v, block, none)"
    step = {"h": block, "w": block}
    base = net(f"{before} block {block}", "float[n,h,w,3] x", text, constants, step=step)
    hand = net(
        "hand",
        "float[n,h,w,3] x",
        f"v = {before} (x); p = Shape (x); n = Slice (p, #0, #1); h = Slice (p, #1, #2); "
        f"w = Slice (p, #2, #3); h2 = Div (h, #{block}); w2 = Div (w, #{block}); "
        f"six = Concat <axis = 0> (n, h2, #{block}, w2, #{block}, #3); "
        "a = Reshape (v, six); b = Transpose <perm = [2, 4, 0, 1, 3, 5]> (a); "
        f"m = Mul (n, #{block * block}); four = Concat <axis = 0> (m, h2, w2, #3); "
        "y = Reshape (b, four)",
    )
    return base, hand.model


CLASSES: dict[str, Callable[[Rng, int], Deception | None]] = {
    "clipped": _damaged(_clipped),
    "NaN becomes 0": _damaged(_no_nan),
    "cut": _damaged(_cut),
    "wrong for some sizes": _damaged(_for_some_sizes),
    "pads of one remainder": _pads_of_one_remainder,
}
