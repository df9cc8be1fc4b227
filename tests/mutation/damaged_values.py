"""Wrong conversions with a value that is wrong where small and usual data does not go.

A value of a converted net is clipped, loses its NaNs or bits, is cut, or is wrong at rare sizes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import bases
import editing
import numpy as np
import onnx
from drawn import Deception, converted, converted_net, data
from nets import TF, Feeds, Net, Rng, net
from onnx import helper, numpy_helper
from wrong import parsed


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
    shaped = onnx.ModelProto()
    shaped.CopyFrom(model)
    graph = onnx.shape_inference.infer_shapes(shaped, data_prop=True).graph
    known = {v.name: v.type.tensor_type for v in (*graph.value_info, *graph.output, *graph.input)}
    made = {v.name for v in model.graph.input}
    found = []
    for spot in editing.spots(model):
        if spot.holder is not model.graph or not made.intersection(spot.node.input):
            continue
        if spot.node.op_type in ("Shape", "Size"):
            continue
        made.update(spot.node.output)
        name = spot.node.output[0]
        kind = known.get(name)
        if kind is None or not kind.HasField("shape") or len(kind.shape.dim) < 3:
            continue
        if kind.elem_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
            continue
        rank = len(kind.shape.dim)
        axes = [a for a in range(rank) if not kind.shape.dim[a].HasField("dim_value")]
        found.append(Value(spot.number, name, rank, kind.elem_type, tuple(axes)))
    return found


def behind(model: onnx.ModelProto, value: Value, text: str) -> onnx.ModelProto:
    """Put nodes from `s` to `t` behind a value; `$` numbers become constants of its type."""
    nodes, stored = _nodes(text, value.element_type)

    def insert(source: str, target: str) -> list[onnx.NodeProto]:
        inner = {n: f"{source}_{n}" for node in nodes for n in node.output} | {
            "s": source,
            "t": target,
        }
        for node in nodes:
            node.input[:] = [inner.get(n, n) for n in node.input]
            node.output[:] = [inner.get(n, n) for n in node.output]
        return nodes

    copy = editing.edited(model, value.number, lambda h, i, node: editing.behind(h, i, insert))
    held = {t.name for t in copy.graph.initializer}
    copy.graph.initializer.extend(t for n, t in stored.items() if n not in held)
    return copy


def _nodes(
    text: str, element_type: int
) -> tuple[list[onnx.NodeProto], dict[str, onnx.TensorProto]]:
    dtype = helper.tensor_dtype_to_np_dtype(element_type)
    stored = {}
    words = []
    for word in text.replace(";", "\n").replace(",", " , ").replace(")", " ) ").split(" "):
        if word.startswith("$"):
            key = "real_" + word[1:].replace("-", "m").replace(".", "p")
            stored[key] = numpy_helper.from_array(np.asarray(float(word[1:]), dtype), key)
            word = key
        words.append(word)
    nodes, numbers = parsed(" ".join(words))
    return nodes, stored | numbers


def pick(number: int, names: Sequence[str]) -> str:
    """Take the names in turn, in an order of their own."""
    return sorted(names, key=lambda name: zlib.crc32(name.encode()))[number % len(names)]


def damaged(
    rng: Rng,
    number: int,
    pool: Sequence[str],
    damage: Callable[[Value, Rng], tuple[str, str, dict[str, list[int]], tuple[str, ...]] | None],
    fits: Callable[[Value], bool] = lambda value: True,
) -> Deception | None:
    """Damage a value of one of the nets.

    `damage` gives words, nodes, sizes to try by letter, and kinds of data to try.
    """
    key = pick(number, pool)
    base, right = bases.everything()[key], converted_net(key)
    places = [v for v in values(right) if fits(v)]
    if not places:
        return None
    value = places[int(rng.integers(len(places)))]
    drawn = damage(value, rng)
    if drawn is None:
        return None
    words, text, sizes, kinds = drawn
    seed = int(rng.integers(1 << 30))

    def feeds() -> Iterator[Feeds]:
        own = np.random.default_rng(seed)
        for kind in kinds:
            for letter, wanted in (sizes or {"n": [2]}).items():
                for size in wanted if letter in base.letters else ():
                    yield base.feeds(own, kind, **{letter: size})

    what = f"{key}: {words} behind {value.name!r}"
    return Deception(what, base.model, right, behind(right, value, text), feeds)


def _relu6(rng: Rng, number: int) -> Deception | None:
    """A Relu becomes a Relu6."""
    pool = [
        k
        for k in bases.everything()
        if any(n.op_type == "Relu" for n in converted_net(k).graph.node)
    ]
    key = pick(number, pool)
    base, right = bases.everything()[key], converted_net(key)
    places = [s for s in editing.spots(right) if s.node.op_type == "Relu"]
    spot = places[int(rng.integers(len(places)))]
    kind = base.model.graph.input[0].type.tensor_type.elem_type
    dtype = helper.tensor_dtype_to_np_dtype(kind)

    def change(holder: editing.Holder, index: int, node: onnx.NodeProto) -> None:
        given = [node.input[0], "six_0", "six_6"]
        node.CopyFrom(helper.make_node("Clip", given, node.output, node.name))
        for value in (0, 6):
            tensor = numpy_helper.from_array(np.asarray(value, dtype), f"six_{value}")
            editing.insert(
                holder, index, [helper.make_node("Constant", [], [tensor.name], value=tensor)]
            )

    wrong = editing.edited(right, spot.number, change)
    return Deception(
        f"{key}: Relu6 at {spot.node.output[0]!r}", base.model, right, wrong, data(base, rng)
    )


def _clipped(rng: Rng, number: int) -> Deception | None:
    limit = (1000, 300, 50, 20)[int(rng.integers(4))]
    text = (f"t = Min (s, ${limit})", f"t = Max (s, $-{limit})")[int(rng.integers(2))]
    return damaged(
        rng,
        number,
        [*bases.everything()],
        lambda v, r: (f"clipped at {limit}", text, {}, ("large", "huge", "offset")),
    )


def _no_nan(rng: Rng, number: int) -> Deception | None:
    text = "i = IsNaN (s); t = Where (i, $0, s)"
    return damaged(
        rng, number, [*bases.everything()], lambda v, r: ("NaN becomes 0", text, {}, ("nan",))
    )


def _axes(value: Value) -> list[int]:
    return [a for a in value.open if a]


def _cut(rng: Rng, number: int) -> Deception | None:
    limit = [400, 1000][int(rng.integers(2))]

    def damage(value: Value, rng: Rng) -> tuple[str, str, dict[str, list[int]], tuple[str, ...]]:
        axis = _axes(value)[int(rng.integers(len(_axes(value))))]
        text = f"t = Slice (s, #0, #{limit}, #{axis})"
        sizes = {a: [limit + 30, 2 * limit + 30] for a in "hw"}
        return f"cut at {limit} on axis {axis}", text, sizes, ("normal",)

    return damaged(rng, number, [*bases.everything()], damage, lambda v: bool(_axes(v)))


def _batch_cut(rng: Rng, number: int) -> Deception | None:
    text = "t = Slice (s, #0, #16, #0)"
    return damaged(
        rng,
        number,
        [*bases.everything()],
        lambda v, r: ("batch cut at 16", text, {"n": [17, 80]}, ("normal",)),
        lambda v: 0 in v.open,
    )


#: What goes wrong where the condition `c` (one bool) holds, from `s` to `t`.
_DAMAGES = {
    "negated": "b = Neg (s); t = Where (c, b, s)",
    "moved by one": "f = Slice (s, #0, #1, #{axis}); g = Slice (s, #0, #-1, #{axis}); "
    "b = Concat <axis = {axis}> (f, g); t = Where (c, b, s)",
    "last one 0": "f = Slice (s, #0, #-1, #{axis}); g = Slice (s, #-1, #9223372036854775807, #{axis}); "
    "e = Sub (g, g); b = Concat <axis = {axis}> (f, e); t = Where (c, b, s)",
}


def _rarely(
    rng: Rng,
    number: int,
    pool: Sequence[str],
    words: str,
    condition: str,
    sizes: list[int],
    axis0: bool,
) -> Deception | None:
    """Go wrong where the size `d` of an axis meets a condition."""

    def damage(value: Value, rng: Rng) -> tuple[str, str, dict[str, list[int]], tuple[str, ...]]:
        axis = 0 if axis0 else _axes(value)[int(rng.integers(len(_axes(value))))]
        name = [*_DAMAGES][int(rng.integers(len(_DAMAGES)))]
        size = f"p = Shape (s); d = Slice (p, #{axis}, #{axis + 1}); {condition}; "
        text = size + _DAMAGES[name].format(axis=axis)
        letters = "n" if axis0 else "hw"
        return f"{words}, axis {axis}: {name}", text, dict.fromkeys(letters, sizes), ("normal",)

    return damaged(rng, number, pool, damage, lambda v: 0 in v.open if axis0 else bool(_axes(v)))


def _remainder(rng: Rng, number: int) -> Deception | None:
    stride = [8, 16, 32][int(rng.integers(3))]
    rest = int(rng.integers(stride))
    return _rarely(
        rng,
        number,
        [*bases.regions()],
        f"at remainder {rest} of {stride}",
        f"m = Mod (d, #{stride}); c = Equal (m, #{rest})",
        [*range(2 * stride, 4 * stride), *range(stride * 32, stride * 64, stride)],
        False,
    )


def _from_256(rng: Rng, number: int) -> Deception | None:
    size = [256, 224, 512][int(rng.integers(3))]
    condition = f"c = GreaterOrEqual (d, #{size})"
    sizes = [size + 8, 2 * size + 16, 4 * size + 64]
    return _rarely(rng, number, [*bases.everything()], f"from {size} on", condition, sizes, False)


def _thousands(rng: Rng, number: int) -> Deception | None:
    size = [1000, 2000, 4000][int(rng.integers(3))]
    pool = [k for k in bases.everything() if k.startswith(("wavenet", "dilated1d"))]
    condition = f"c = Greater (d, #{size})"
    return _rarely(rng, number, pool, f"above {size} steps", condition, [size + 20], False)


def _batch_17(rng: Rng, number: int) -> Deception | None:
    return _rarely(
        rng,
        number,
        [*bases.everything()],
        "batch 17" if number % 2 else "batch 3",
        f"c = Equal (d, #{17 if number % 2 else 3})",
        [17, 68] if number % 2 else [3, 12],
        True,
    )


def by_hand(stride: int, kernel: int, kind: str, remainder: int = 0) -> Deception:
    """Replace patches and a Conv by one Conv; `kind` says with which pads."""
    base = bases.patched(stride, kernel, "SAME")
    pw = numpy_helper.to_array(base.model.graph.initializer[0])
    inner = pw.reshape(4, kernel, kernel, 3).transpose(0, 3, 1, 2)
    pads = max(kernel - stride, 0) if remainder == 0 else max(kernel - remainder, 0)
    auto = 'auto_pad = "SAME_UPPER", '
    if kind == "fixed":
        auto = f"pads = [{pads // 2}, {pads // 2}, {pads - pads // 2}, {pads - pads // 2}], "
    elif kind == "lower":
        auto = 'auto_pad = "SAME_LOWER", '
    made = net(
        "hand",
        "float[n,h,w,3] x",
        "first = Transpose <perm = [0, 3, 1, 2]> (x)\n"
        f" sums = Conv <{auto}strides = [{stride}, {stride}]> (first, cw)\n y = Relu (sums)",
        {"cw": np.ascontiguousarray(inner)},
    )

    def feeds() -> Iterator[Feeds]:
        rng = np.random.default_rng(3)
        for size in range(stride + kernel, 2 * stride + kernel):
            yield base.feeds(rng, "normal", h=size, w=size)

    what = f"{base.name}: {kind} pads of remainder {remainder}"
    return Deception(what, base.model, converted(base.model), made.model, feeds)


def _fixed_pads(rng: Rng, number: int) -> Deception | None:
    stride = (8, 16, 32)[number % 3]
    kernel = stride + int(rng.integers(1, 5))
    kind = ["fixed", "fixed", "lower"][int(rng.integers(3))]
    return by_hand(stride, kernel, kind, int(rng.integers(stride)))


def sized_by_input(number: int) -> tuple[Net, onnx.ModelProto]:
    """Convert by hand so that the nodes read the sizes of the model's input; (net, conversion)."""
    before = ("Relu", "Neg", "Identity", "Abs")[number % 4]
    block = 2 + number % 2
    constants = {"block": np.array([block, block]), "none": np.zeros((2, 2), np.int64)}
    text = f"v = {before} (x)\n y = {TF}.SpaceToBatchND (v, block, none)"
    step = {"h": block, "w": block}
    base = net(f"{before} block {block}", "float[n,h,w,3] x", text, constants, step=step)
    hand = net(
        "hand",
        "float[n,h,w,3] x",
        f"v = {before} (x)\n p = Shape (x)\n n = Slice (p, #0, #1)\n h = Slice (p, #1, #2)\n"
        f" w = Slice (p, #2, #3)\n h2 = Div (h, #{block})\n w2 = Div (w, #{block})\n"
        f" six = Concat <axis = 0> (n, h2, #{block}, w2, #{block}, #3)\n"
        " a = Reshape (v, six)\n b = Transpose <perm = [2, 4, 0, 1, 3, 5]> (a)\n"
        f" m = Mul (n, #{block * block})\n four = Concat <axis = 0> (m, h2, w2, #3)\n"
        " y = Reshape (b, four)",
        step=step,
    )
    return base, hand.model


def _bits(rng: Rng, number: int) -> Deception | None:
    base, right = sized_by_input(number)
    places = [v for v in values(right) if v.name != "v"] or values(right)
    value = places[int(rng.integers(len(places)))]
    bits = {
        "-0.0 becomes 0.0": "t = Add (s, $0)",
        "payloads of NaN lost": "i = IsNaN (s); q = Sub (s, s); t = Where (i, q, s)",
        "subnormals become 0": "a = Abs (s); i = Less (a, $1.17549435e-38); j = Equal (s, $0); "
        "k = Not (j); l = And (i, k); t = Where (l, $0, s)",
        "signalling through double": "d = Cast <to = 11> (s); t = Cast <to = 1> (d)",
        "through float16": "d = Cast <to = 10> (s); t = Cast <to = 1> (d)",
    }
    name = [*bits][int(rng.integers(len(bits)))]

    def feeds() -> Iterator[Feeds]:
        own = np.random.default_rng(number)
        x = base.feeds(own, "zeros")["x"]
        yield {"x": x}
        patterns = [0x7FC00001, 0xFFC12345, 0x7F800001, 0x00000001, 0x80000002, 0x7FC00000]
        yield {"x": own.choice(np.array(patterns, np.uint32), x.shape).view(np.float32)}
        yield base.feeds(own, "normal")

    what = f"{base.name}: {name} behind {value.name!r}"
    return Deception(what, base.model, right, behind(right, value, bits[name]), feeds, exact=True)


CLASSES: dict[str, Callable[[Rng, int], Deception | None]] = {
    "Relu6 for Relu": _relu6,
    "clipped at tens to a thousand": _clipped,
    "NaN becomes 0": _no_nan,
    "cut at 400 or 1,000": _cut,
    "batch cut at 16": _batch_cut,
    "wrong at one remainder of 8, 16, 32": _remainder,
    "pads of one remainder": _fixed_pads,
    "wrong from 256 pixels on": _from_256,
    "wrong from 1,000 steps on": _thousands,
    "wrong for a batch of 3 or 17": _batch_17,
    "bits, with sizes of another value": _bits,
}
