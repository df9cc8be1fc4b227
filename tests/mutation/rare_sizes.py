"""Conversions that are wrong only for rare sizes, parameters or elements, drawn at random.

    k  =  1 in a rare case of sizes or parameters, else 0
    y  =  z spoiled by k: rows moved, one element changed, an entry inside the conversion one larger

All of it is written with standard nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from random import Random

import editing
import judging
import numpy as np
import onnx
from judging import Pair
from nets import TF, copied, parsed
from onnx import helper
from wrong import Base, spoiled

import onnx_spatial
from onnx_spatial import SpatialError
from onnx_spatial.conversion.options import STRATEGY_NAMES


@dataclass(frozen=True)
class Kind:
    """An operator to convert; legal sizes of each axis are a multiple plus an offset."""

    base: Base
    multiple: tuple[int, ...]
    offset: tuple[int, ...]

    def shape(self, random: Random, large: int | None = None) -> tuple[int, ...]:
        """Draw legal sizes, above 1,000 on one axis if that is given."""
        factors = [random.randint(1, 4) for _ in self.multiple]
        if large is not None:
            factors[large] = 1000 // self.multiple[large] + random.randint(1, 300)
        sizes = zip(self.multiple, factors, self.offset, strict=True)
        return tuple(max(m * f + o, 1) for m, f, o in sizes)


def _blocks(node: str, dims: str, block: list[int], pads: list[list[int]]) -> Base:
    stored = {"block": block, "pads": pads}
    return Base(f"y = {TF}.{node}ND (x, block, pads)", dims, stored)


def _fed(node: str) -> Base:
    text = f"y = {TF}.{node}ND (x, block, pads)"
    return Base(text, stored={"block": [2, 2]}, inputs={"pads": (2, 2)})


_S2B, _B2S, _NONE = "SpaceToBatch", "BatchToSpace", [[0, 0], [0, 0]]
_PATCHES = Base(
    f"y = {TF}.ExtractImagePatches <ksizes = [1, 3, 2, 1], strides = [1, 2, 1, 1], "
    'rates = [1, 2, 3, 1], padding = "SAME"> (x)',
    *("n h w 3", {}),
)
_RUN_TIME = (
    Kind(_fed(_S2B), (1, 2, 2, 1), (0, 0, 0, 0)),
    Kind(_fed(_B2S), (4, 1, 1, 1), (0, 9, 9, 0)),
)
KINDS = (
    Kind(_blocks(_S2B, "n h w c", [2, 2], _NONE), (1, 2, 2, 1), (0, 0, 0, 0)),
    Kind(_blocks(_S2B, "n h w 3", [2, 3], [[1, 2], [0, 4]]), (1, 2, 3, 0), (0, 1, -1, 3)),
    Kind(_blocks(_S2B, "n h c", [4], [[2, 1]]), (1, 4, 1), (0, 1, 0)),
    Kind(_blocks(_B2S, "n h w 2", [3, 2], [[1, 2], [1, 0]]), (6, 1, 1, 0), (0, 1, 1, 2)),
    Kind(_blocks(_B2S, "n h c", [4], [[1, 1]]), (4, 1, 1), (0, 0, 0)),
    Kind(_PATCHES, (1, 1, 1, 0), (0, 2, 2, 3)),
    *_RUN_TIME,
    *_RUN_TIME,  # a parameter is one more number that may be rare
)


@cache
def conversions(number: int) -> tuple[tuple[str, onnx.ModelProto], ...]:
    """Return the conversions of a kind that differ, by lowering."""
    original, found = KINDS[number].base.model(), {}
    for name in (None, *STRATEGY_NAMES):
        try:
            made = onnx_spatial.convert(original, verify=False, prefer=name, fuse=False).model
        except SpatialError:
            continue
        data = made.SerializeToString(deterministic=True)
        found.setdefault(data, (name or "cheapest", made))
    return tuple(found.values())


def draw(seed: int) -> Pair:
    """Draw a wrong conversion, with data that shows it."""
    random = Random(f"targeted {seed}")
    number = random.randrange(len(KINDS))
    base = KINDS[number].base
    lowering, right = random.choice(conversions(number))
    pads = 2 * np.array([[random.randint(0, 4) for _ in range(2)] for _ in range(2)])
    shape, words, condition = _case(KINDS[number], pads, random)
    damage, spoil = _damage(random, right, len(shape))
    x = np.random.default_rng(seed).permutation(int(np.prod(shape))).astype(np.float32)
    feeds = {"x": x.reshape(shape), **({"pads": pads} if base.inputs else {})}
    operator = base.node.rpartition(".")[2].split()[0]
    name = f"rare sizes {seed}: {operator} {shape}, {lowering}, {words}, {damage}"
    original, wrong = base.model(), spoil(condition)
    return Pair(name, original, wrong, partial(judging.moved, original, wrong, feeds))


# ---------------------------------------------------------------- the case

_OF_AXIS = (
    "d = Slice (s, #{axis}, #{next})",
    "d = Gather (s, #{axis})",
    "d_size = Gather (s, ##{axis}); d = Reshape (d_size, #-1)",
    "d_size = Gather (s, ##{axis}); d = Unsqueeze (d_size, #0)",
)
#: What a case is made of; those that are named more often are drawn more often.
_OF = "residue residue size size threshold product product sum sum".split()


def _case(kind: Kind, pads: np.ndarray, random: Random) -> tuple[tuple[int, ...], str, str]:
    """Draw a rare case: a shape in it, in words, and nodes for `k`."""
    axes = [a for a, m in enumerate(kind.multiple) if m]
    axis, other, of = random.choice(axes), random.randrange(len(kind.multiple)), random.choice(_OF)
    if kind.base.inputs and random.random() < 0.5:
        of = "parameter"
    shape = kind.shape(random, axis if of in ("size", "threshold") else None)
    text, value = random.choice(_OF_AXIS).format(axis=axis, next=axis + 1), shape[axis]
    pair = f"d0 = Gather (s, #{axis}); d1 = Gather (s, #{other}); "
    if of == "product":
        text, value = f"{pair} d = Mul (d0, d1)", value * shape[other]
    elif of == "sum":
        text, value = f"{pair} d2 = Mul (d0, #3); d = Add (d2, d1)", 3 * value + shape[other]
    elif of == "parameter":
        entry = random.randrange(4)
        text = f"flat = Reshape (pads, #-1); d = Gather (flat, #{entry})"
        value = int(pads.reshape(-1)[entry])
    test, modulus = "above" if of == "threshold" else "equal", 0
    if of == "residue" or (of in ("product", "sum") and random.random() < 0.7):
        test, modulus = "mod", random.choice([3, 4, 8, 12, 16, 24, 32, 64, 100])
        value %= modulus
    spelled = random.choice(_SPELLINGS[test])
    nodes = spelled.format(v=value, above=value - 1, below=value + 1, m=modulus)
    return shape, f"{of} of axis {axis} {test} {value}", f"{text}; {nodes}; "


_IF = (
    "<then_branch = a () => (int64[1] k1) {{k1 = Identity (#1)}}, "
    "else_branch = o () => (int64[1] k0) {{k0 = Identity (#0)}}>"
)
_EQUAL = (
    "e = Equal (d, #{v}); k = Cast <to = 7> (e)",
    "e = Equal (d, #{v}); k = Where (e, #1, #0)",
    "e0 = Equal (d, #{v}); e = Not (e0); k = Where (e, #0, #1)",
    "e0 = Equal (d, #{v}); e = Squeeze (e0); k = If (e) " + _IF,
    "e0 = Sub (d, #{v}); e1 = Abs (e0); e2 = Sub (#1, e1); k = Max (e2, #0)",
    "e0 = Less (d, #{below}); e1 = Greater (d, #{above}); e = And (e0, e1); k = Cast <to = 7> (e)",
    "e0 = Sub (d, #{v}); e1 = Sign (e0); e2 = Mul (e1, e1); k = Sub (#1, e2)",
    "e0 = LessOrEqual (d, #{v}); e1 = GreaterOrEqual (d, #{v}); e2 = Cast <to = 6> (e0); "
    "e3 = Cast <to = 6> (e1); e4 = Mul (e2, e3); k = Cast <to = 7> (e4)",
)
_REMAINDERS = (
    "r = Mod (d, #{m}); ",
    "r = Mod <fmod = 1> (d, #{m}); ",
    "q = Div (d, #{m}); f = Mul (q, #{m}); r = Sub (d, f); ",
)
_SPELLINGS = {
    "equal": _EQUAL,
    "above": (
        "e = Greater (d, #{above}); k = Cast <to = 7> (e)",
        "e = Less (d, #{v}); k = Where (e, #0, #1)",
        "e0 = Sub (d, #{above}); e1 = Max (e0, #0); k = Min (e1, #1)",
        "e0 = Div (d, #{v}); k = Min (e0, #1)",
        "e0 = Min (d, #{v}); e1 = Equal (e0, #{v}); k = Cast <to = 7> (e1)",
    ),
    "mod": tuple(first + t.replace("(d,", "(r,") for first in _REMAINDERS for t in _EQUAL),
}

# ---------------------------------------------------------------- the damage

_Spoil = Callable[[str], onnx.ModelProto]
_BACKWARDS = "Slice (z, #-1, #-9223372036854775807, #{axis}, #-1)"
_RANGE = "l0 = Gather (t, ##{axis}); i = Range (##0, l0, ##1); l = Reshape (l0, #-1); "
#: What goes wrong by `k`: nodes from `z` to `y`, {axis} and {rank} of `z`.
_DAMAGES = {
    "rows rotated": "u = Slice (z, k, #9223372036854775807, #{axis}); "
    "v = Slice (z, #0, k, #{axis}); y = Concat <axis = {axis}> (u, v)",
    "moved down": "v = Concat <axis = 0> ({ends}, {zeros}); u = Pad (z, v); "
    "l = Gather (t, #{axis}); y = Slice (u, #0, l, #{axis})",
    "indices moved": _RANGE + "j = Add (i, k); m = Mod (j, l); y = Gather <axis = {axis}> (z, m)",
    "indices backwards": _RANGE + "j0 = Sub (l, #1); j1 = Mul (i, #2); j2 = Sub (j0, j1); "
    "j3 = Mul (j2, k); j = Add (i, j3); y = Gather <axis = {axis}> (z, j)",
    "one row": _RANGE + "j0 = Sub (l, #1); e9 = Equal (i, j0); j1 = Cast <to = 7> (e9); "
    "j2 = Mul (j1, k); j3 = Mul (j2, j0); j = Sub (i, j3); y = Gather <axis = {axis}> (z, j)",
    "one element is 0": "{element}; zero = Cast <to = 1> (#0); y = Where (here, zero, z)",
    "negated in a branch": "{branch}Neg (z)}}>",
    "one row too few": "m = Sub (#0, k); l = Gather (t, #{axis}); v = Add (l, m); "
    "y = Slice (z, #0, v, #{axis})",
}


def _damage(random: Random, right: onnx.ModelProto, rank: int) -> tuple[str, _Spoil]:
    """Draw what goes wrong by `k`: in words, and what makes the wrong model."""
    if random.random() < 0.4 and (inner := _inside(random, right)) is not None:
        return inner
    axis, name = random.randrange(rank), random.choice([*_DAMAGES])
    kind = f"float[{','.join('?' * rank)}]"
    element = ["here0 = Cast <to = 9> (k)"]
    for a in range(rank):
        others = ", ".join(f"#{b}" for b in range(rank) if b != a)
        element.append(
            f"l{a} = Gather (t, ##{a}); a{a} = Range (##0, l{a}, ##1); "
            f"b{a} = Concat <axis = 0> ({others}); c{a} = Unsqueeze (a{a}, b{a}); "
            f"p{a} = Mod (c{a}, l{a}); f{a} = Equal (p{a}, #{random.choice([0, 0, 1])}); "
            f"here{'' if a == rank - 1 else a + 1} = And (here{a}, f{a})"
        )
    text = _DAMAGES[name].format(
        axis=axis,
        zeros=", ".join(["#0"] * rank),
        ends=", ".join("k" if a == axis else "#0" for a in range(rank)),
        element="; ".join(element),
        branch=f"c0 = Cast <to = 9> (k); c = Squeeze (c0); y = If (c) <else_branch = no () => "
        f"({kind} y0) {{y0 = Identity (z)}}, then_branch = yes () => ({kind} y1) {{y1 = ",
    )
    return f"{name} on axis {axis}", lambda nodes: spoiled(right, nodes + text)


#: Inputs of nodes that may be whole numbers which the conversion stores.
_WHOLE = {
    **dict.fromkeys(("Pad", "Gather", "Reshape", "Expand", "Split"), (1,)),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), (1,)),
    "Slice": (1, 2),
    "Range": (0, 1),
    "Concat": (0, 1, 2),
}


def _inside(random: Random, right: onnx.ModelProto) -> tuple[str, _Spoil] | None:
    """Draw a whole number that a node of the conversion reads, and let an entry grow by `k`."""
    places = []
    known = editing.constants(right.graph)
    for number, node in enumerate(right.graph.node):
        for at in _WHOLE.get(node.op_type, ()):
            array = known.get(node.input[at]) if at < len(node.input) else None
            if array is not None and array.dtype in (np.int64, np.int32) and 0 < array.size <= 256:
                places.append((number, at, array))
    if not places:
        return None
    number, at, array = random.choice(places)
    entry, sign = random.randrange(array.size), random.choice([1, -1])
    node = right.graph.node[number]
    step = np.zeros(array.shape, array.dtype)
    step.reshape(-1)[entry] = sign

    def spoil(condition: str) -> onnx.ModelProto:
        model = copied(right)
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        nodes, stored = parsed(
            f"s = Shape (x); {condition} k_as = Cast <to = {kind}> (k); "
            f"k_shape = Shape (k_step); k_like = {'Expand' if array.ndim else 'Reshape'} (k_as, "
            "k_shape); k_steps = Mul (k_step, k_like); k_new = Add (k_old, k_steps)"
        )
        nodes[-1].input[0] = node.input[at]
        stored["k_step"] = onnx.numpy_helper.from_array(step, "k_step")
        model.graph.node[number].input[at] = "k_new"
        for each in reversed(nodes):
            model.graph.node.insert(0, each)
        model.graph.initializer.extend(stored.values())
        return model

    return f"entry {entry} of input {at} of {node.op_type} moved by {sign}", spoil
