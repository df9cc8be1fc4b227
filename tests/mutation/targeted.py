"""Conversions that are wrong only for rare sizes, parameters or elements, drawn at random.

A mutant computes a number `k` from sizes, which is 1 in a rare case and else 0, and lets something go
wrong by `k`: rows of the result, its padding, one element, an entry of a shape or of a table inside the
conversion. All of it is written with standard nodes. Its harmless twin does the same in a case that no
size is in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from random import Random

import editing
import numpy as np
import onnx
from onnx import helper
from wrong import TF, Base, parsed, spoiled

import onnx_spatial
from onnx_spatial import SpatialError
from onnx_spatial.conversion.options import STRATEGY_NAMES

_PATCHES = (
    f"y = {TF}.ExtractImagePatches <ksizes = [1, {{}}, {{}}, 1], strides = [1, {{}}, {{}}, 1], "
)
_PATCHES += 'rates = [1, {}, {}, 1], padding = "{}"> (x)'


@dataclass(frozen=True)
class Kind:
    """An operator to convert, and its legal sizes.

    Attributes:
        base: the model.
        multiple, offset: of each axis: legal sizes are a multiple plus the offset.
        parameters: draws run-time parameters that are legal with any of these sizes.
    """

    base: Base
    multiple: tuple[int, ...]
    offset: tuple[int, ...]
    parameters: Callable[[Random], dict[str, np.ndarray]] = lambda random: {}

    def shape(self, random: Random, large: int | None) -> tuple[int, ...]:
        """Draw legal sizes, above 1,000 on one axis if that is given."""
        small = [
            m * random.randint(1, 4) + o for m, o in zip(self.multiple, self.offset, strict=True)
        ]
        if large is not None:
            small[large] = self.multiple[large] * (
                1000 // self.multiple[large] + random.randint(1, 300)
            )
            small[large] += self.offset[large]
        return tuple(max(size, 1) for size in small)


def _blocks(node: str, block: list[int], pads: list[list[int]], dims: str, opset: int = 18) -> Base:
    return Base(
        f"y = {TF}.{node} (x, block, pads)", dims, {"block": block, "pads": pads}, opset=opset
    )


def _patches(dims: str, *settings: object) -> Base:
    return Base(_PATCHES.format(*settings), dims, {})


def _even(random: Random) -> dict[str, np.ndarray]:
    return {"pads": 2 * np.array([[random.randint(0, 4) for _ in range(2)] for _ in range(2)])}


_S2B, _B2S, _NONE = "SpaceToBatchND", "BatchToSpaceND", [[0, 0], [0, 0]]
_FED = Base(f"y = {TF}.{_B2S} (x, block, pads)", stored={"block": [2, 2]}, inputs={"pads": (2, 2)})
_VOLUME = _blocks(_S2B, [2, 1, 2], [[0, 1], [1, 0], [2, 0]], "n,d,h,w,2")

KINDS = (
    Kind(_blocks(_S2B, [2, 2], _NONE, "n,h,w,c"), (1, 2, 2, 1), (0, 0, 0, 0)),
    Kind(_blocks(_S2B, [2, 3], [[1, 2], [0, 4]], "n,h,w,3"), (1, 2, 3, 0), (0, 1, -1, 3)),
    Kind(_blocks(_S2B, [4], [[2, 1]], "n,h,c"), (1, 4, 1), (0, 1, 0)),
    Kind(_blocks(_S2B, [3, 2], [[2, 2], [1, 1]], "n,h,w", 13), (1, 3, 2), (0, 2, 0)),
    Kind(_VOLUME, (1, 2, 1, 2, 0), (0, 1, 0, 0, 2)),
    Kind(_blocks(_B2S, [2, 2], _NONE, "n,h,w,c"), (4, 1, 1, 1), (0, 0, 0, 0)),
    Kind(_blocks(_B2S, [3, 2], [[1, 2], [1, 0]], "n,h,w,2"), (6, 1, 1, 0), (0, 1, 1, 2)),
    Kind(_blocks(_B2S, [4], [[1, 1]], "n,h,c", 13), (4, 1, 1), (0, 0, 0)),
    Kind(_patches("n,h,w,c", 3, 3, 1, 1, 1, 1, "SAME"), (1, 1, 1, 1), (0, 2, 2, 0)),
    Kind(_patches("n,h,w,3", 3, 2, 2, 1, 2, 3, "SAME"), (1, 1, 1, 0), (0, 2, 2, 3)),
    Kind(_patches("n,h,w,2", 2, 3, 2, 3, 1, 2, "VALID"), (1, 1, 1, 0), (0, 5, 6, 2)),
    Kind(Base(stored={"block": [2, 2]}, inputs={"pads": (2, 2)}), (1, 2, 2, 1), (0,) * 4, _even),
    Kind(_FED, (4, 1, 1, 1), (0, 9, 9, 0), _even),
)

#: Kinds with run-time parameters.
_RUN_TIME = [number for number, kind in enumerate(KINDS) if kind.base.inputs]


@dataclass(frozen=True)
class Mutant:
    """A wrong conversion, and its harmless twin.

    Attributes:
        what: operator and sizes, strategy, case, damage.
        kind: what it is wrong for.
        original, mutant, twin: models.
        inputs: data and parameters for which the mutant is said to be wrong.
    """

    what: tuple[str, str, str, str]
    kind: str
    original: onnx.ModelProto
    mutant: onnx.ModelProto
    twin: onnx.ModelProto | None
    inputs: dict[str, np.ndarray]


@cache
def conversions(number: int) -> tuple[tuple[str, onnx.ModelProto], ...]:
    """Return the conversions of a kind that differ, by strategy."""
    base, found, seen = KINDS[number].base, [], set()
    for strategy in (None, *STRATEGY_NAMES):
        try:
            made = onnx_spatial.convert(base.model(), verify=False, prefer=strategy, fuse=False)
        except SpatialError:
            continue
        data = made.model.SerializeToString(deterministic=True)
        if data not in seen:
            seen.add(data)
            found.append((strategy or "cheapest", made.model))
    return tuple(found)


def draw(seed: int) -> Mutant:
    """Draw a mutant and its twin."""
    random = Random(f"targeted {seed}")
    number = random.choice([*range(len(KINDS)), *_RUN_TIME])
    kind = KINDS[number]
    strategy, right = random.choice(conversions(number))
    about, name, shape, parameters, value, case, never = _case(kind, random)
    spelled = random.choice(_SPELLINGS[case.split()[0]])
    damage, text, edit = _damage(random, right, len(shape))
    condition, twin = (
        f"{value}\n{spelled.format(**numbers)}\n" for numbers in (_numbers(case), _numbers(never))
    )
    rng = np.random.default_rng(seed)
    x = rng.permutation(int(np.prod(shape))).astype(np.float32).reshape(shape)
    original = kind.base.model()
    models = []
    for nodes in (condition, twin):
        models.append(edit(right, nodes) if edit else spoiled(right, nodes + text))
    what = (
        f"{kind.base.node.split('.')[-1].split()[0]} {shape}",
        strategy,
        f"{name} {case}",
        damage,
    )
    return Mutant(
        what, f"wrong for {about}", original, models[0], models[1], {"x": x, **parameters}
    )


def _numbers(case: str) -> dict[str, int]:
    _, modulus, value = case.split()
    return {"m": int(modulus), "v": int(value), "above": int(value) - 1, "below": int(value) + 1}


def _case(
    kind: Kind, random: Random
) -> tuple[str, str, tuple[int, ...], dict[str, np.ndarray], str, str, str]:
    """Draw a rare case: sizes, parameters, the nodes for the number, the case and an impossible one."""
    axes = [a for a, m in enumerate(kind.multiple) if m]
    axis = random.choice(axes)
    about = random.choice(
        ["residue", "residue", "size", "size", "batch", "threshold", "product", "sum"]
    )
    if kind.base.inputs and random.random() < 0.5:
        about = "parameter"
    if about == "batch":
        axis = 0
    large = axis if about in ("size", "threshold") else None
    shape, parameters = kind.shape(random, large), kind.parameters(random)
    size = random.choice(
        [
            f"d = Slice (s, #{axis}, #{axis + 1})",
            f"d = Gather (s, #{axis})",
            f"d_size = Gather (s, ##{axis})\n d = Reshape (d_size, #-1)",
            f"d_size = Gather (s, ##{axis})\n d = Unsqueeze (d_size, #0)",
        ]
    )
    value = shape[axis]
    if about == "product":
        other = random.choice(range(len(shape)))
        size = f"d0 = Gather (s, #{axis})\n d1 = Gather (s, #{other})\n d = Mul (d0, d1)"
        value *= shape[other]
    elif about == "sum":
        other = random.choice(range(len(shape)))
        size = f"d0 = Gather (s, #{axis})\n d1 = Gather (s, #{other})\n"
        size += " d2 = Mul (d0, #3)\n d = Add (d2, d1)"
        value = 3 * value + shape[other]
    elif about == "parameter":
        entry = random.randrange(4)
        size = f"flat = Reshape (pads, #-1)\n d = Gather (flat, #{entry})"
        value = int(parameters["pads"].reshape(-1)[entry])
    if about == "threshold":
        return (
            _ABOUT[about],
            f"axis {axis}",
            shape,
            parameters,
            size,
            f"above 0 {value}",
            f"above 0 {2**40}",
        )
    if about in ("size", "batch", "parameter") or random.random() < 0.3:
        return (
            _ABOUT[about],
            f"axis {axis}",
            shape,
            parameters,
            size,
            f"equal 0 {value}",
            f"equal 0 {-value - 1}",
        )
    modulus = random.choice([3, 4, 8, 12, 16, 24, 32, 64, 100])
    rest = value % modulus
    if about == "product" or about == "sum":
        about = f"residue of a {about}"
    return (
        _ABOUT[about],
        f"axis {axis}",
        shape,
        parameters,
        size,
        f"mod {modulus} {rest}",
        f"mod {modulus} {modulus + rest}",
    )


_EQUAL = (
    "e = Equal ({d}, #{v})\n k = Cast <to = 7> (e)",
    "e = Equal ({d}, #{v})\n k = Where (e, #1, #0)",
    "e0 = Equal ({d}, #{v})\n e = Not (e0)\n k = Where (e, #0, #1)",
    "e0 = Equal ({d}, #{v})\n e = Squeeze (e0)\n k = If (e) <then_branch = a () => (int64[1] k1) "
    "{{k1 = Identity (#1)}}, else_branch = o () => (int64[1] k0) {{k0 = Identity (#0)}}>",
    "e0 = Sub ({d}, #{v})\n e1 = Abs (e0)\n e2 = Sub (#1, e1)\n k = Max (e2, #0)",
    "e0 = Less ({d}, #{below})\n e1 = Greater ({d}, #{above})\n e = And (e0, e1)\n"
    "k = Cast <to = 7> (e)",
    "e0 = Sub ({d}, #{v})\n e1 = Sign (e0)\n e2 = Mul (e1, e1)\n k = Sub (#1, e2)",
    "e0 = Sub ({d}, #{v})\n e1 = Cast <to = 9> (e0)\n e2 = Not (e1)\n k = Cast <to = 7> (e2)",
    "e0 = LessOrEqual ({d}, #{v})\n e1 = GreaterOrEqual ({d}, #{v})\n e2 = Cast <to = 6> (e0)\n"
    "e3 = Cast <to = 6> (e1)\n e4 = Mul (e2, e3)\n k = Cast <to = 7> (e4)",
)
_ABOVE = (
    "e = Greater ({d}, #{above})\n k = Cast <to = 7> (e)",
    "e = Less ({d}, #{v})\n k = Where (e, #0, #1)",
    "e0 = Sub ({d}, #{above})\n e1 = Max (e0, #0)\n k = Min (e1, #1)",
    "e0 = Div ({d}, #{v})\n k = Min (e0, #1)",
    "e0 = Min ({d}, #{v})\n e1 = Equal (e0, #{v})\n k = Cast <to = 7> (e1)",
)


def _filled(texts: tuple[str, ...], number: str, before: str = "") -> tuple[str, ...]:
    return tuple(before + text.replace("{d}", number) for text in texts)


_SPELLINGS = {
    "equal": _filled(_EQUAL, "d"),
    "above": _filled(_ABOVE, "d"),
    "mod": (
        *_filled(_EQUAL, "r", "r = Mod (d, #{m})\n"),
        *_filled(_EQUAL, "r", "r = Mod <fmod = 1> (d, #{m})\n"),
        *_filled(_EQUAL, "r", "q = Div (d, #{m})\n f = Mul (q, #{m})\n r = Sub (d, f)\n"),
    ),
}

_ABOUT = {
    "residue": "one residue class of a size",
    "size": "one size above 1,000",
    "batch": "one batch",
    "threshold": "sizes above a threshold",
    "product": "one product of sizes",
    "sum": "one sum of sizes",
    "parameter": "one value of a run-time parameter",
    "residue of a product": "one residue class of a product of sizes",
    "residue of a sum": "one residue class of a sum of sizes",
}

_Edit = Callable[[onnx.ModelProto, str], onnx.ModelProto]


def _in_branch(rank: int, wrong: str) -> str:
    kind = f"float[{','.join('?' * rank)}]"
    return (
        "c0 = Cast <to = 9> (k)\n c = Squeeze (c0)\n"
        f"y = If (c) <then_branch = yes () => ({kind} y1) {{y1 = {wrong}}}, "
        f"else_branch = no () => ({kind} y0) {{y0 = Identity (z)}}>"
    )


def _damage(random: Random, right: onnx.ModelProto, rank: int) -> tuple[str, str, _Edit | None]:
    """Draw what goes wrong by `k`: in words, and as nodes behind `z` or as an edit of the conversion."""
    if random.random() < 0.4:
        inner = _inside(random, right)
        if inner is not None:
            return inner
    axis = random.randrange(rank)
    largest = "#9223372036854775807"
    range_ = (
        f"l0 = Gather (t, ##{axis})\n r0 = Constant <value_int = 0> ()\n"
        "r1 = Constant <value_int = 1> ()\n"
        "i = Range (r0, l0, r1)\n l = Reshape (l0, #-1)\n"
    )
    zeros = ", ".join(["#0"] * rank)
    ends = ", ".join("k" if a == axis else "#0" for a in range(rank))
    element = ""
    for a in range(rank):
        others = ", ".join(f"#{b}" for b in range(rank) if b != a)
        element += (
            f"l{a} = Gather (t, ##{a})\n a{a} = Range (none, l{a}, single)\n"
            f"b{a} = Concat <axis = 0> ({others})\n c{a} = Unsqueeze (a{a}, b{a})\n"
            f"p{a} = Mod (c{a}, l{a})\n f{a} = Equal (p{a}, #{random.choice([0, 0, 1])})\n"
        )
    element = (
        "none = Constant <value_int = 0> ()\n single = Constant <value_int = 1> ()\n" + element
    )
    chain = "g0 = Identity (f0)\n" + "".join(
        f"g{a} = And (g{a - 1}, f{a})\n" for a in range(1, rank)
    )
    texts = {
        "rows rotated": f"u = Slice (z, k, {largest}, #{axis})\n v = Slice (z, #0, k, #{axis})\n"
        f"y = Concat <axis = {axis}> (u, v)",
        "moved up": f"u = Slice (z, k, {largest}, #{axis})\n v = Concat <axis = 0> ({zeros}, {ends})\n"
        "y = Pad (u, v)",
        "moved down": f"v = Concat <axis = 0> ({ends}, {zeros})\n u = Pad (z, v)\n"
        f"l = Gather (t, #{axis})\n y = Slice (u, #0, l, #{axis})",
        "indices moved": range_ + "j = Add (i, k)\n m = Mod (j, l)\n"
        f"y = Gather <axis = {axis}> (z, m)",
        "indices backwards": range_ + "j0 = Sub (l, #1)\n j1 = Mul (i, #2)\n j2 = Sub (j0, j1)\n"
        f"j3 = Mul (j2, k)\n j = Add (i, j3)\n y = Gather <axis = {axis}> (z, j)",
        "one row": range_ + "j0 = Sub (l, #1)\n e9 = Equal (i, j0)\n j1 = Cast <to = 7> (e9)\n"
        f"j2 = Mul (j1, k)\n j3 = Mul (j2, j0)\n j = Sub (i, j3)\n y = Gather <axis = {axis}> (z, j)",
        "one element is 0": element + chain + "w0 = Cast <to = 9> (k)\n"
        f"w1 = And (g{rank - 1}, w0)\n zero = Cast <to = 1> (#0)\n y = Where (w1, zero, z)",
        "one element of another place": element + chain + "w0 = Cast <to = 9> (k)\n"
        f"w1 = And (g{rank - 1}, w0)\n back = Slice (z, #-1, #-9223372036854775807, #{axis}, #-1)\n"
        "y = Where (w1, back, z)",
        "negated in a branch": _in_branch(rank, "Neg (z)"),
        "backwards in a branch": _in_branch(
            rank, f"Slice (z, #-1, #-9223372036854775807, #{axis}, #-1)"
        ),
        "one row too few": f"m = Sub (#0, k)\n l = Gather (t, #{axis})\n v = Add (l, m)\n"
        f"y = Slice (z, #0, v, #{axis})",
    }  # fmt: skip
    name = random.choice([*texts])
    return f"{name} on axis {axis}", texts[name], None


def _inside(random: Random, right: onnx.ModelProto) -> tuple[str, str, _Edit] | None:
    """Draw a whole number that a node of the conversion reads, and let an entry grow by `k`."""
    places = []
    known = editing.constants(right.graph)
    data = {
        "Slice": (1, 2),
        "Pad": (1,),
        "Gather": (1,),
        "Reshape": (1,),
        "Expand": (1,),
        "Split": (1,),
    }
    data |= {
        "Add": (1,),
        "Sub": (1,),
        "Mul": (1,),
        "Div": (1,),
        "Range": (0, 1),
        "Concat": (0, 1, 2),
    }
    for number, node in enumerate(right.graph.node):
        for at in data.get(node.op_type, ()):
            array = known.get(node.input[at]) if at < len(node.input) else None
            if array is not None and array.dtype in (np.int64, np.int32) and 0 < array.size <= 256:
                places.append((number, at, array))
    if not places:
        return None
    number, at, array = random.choice(places)
    entry = random.randrange(array.size)
    sign = random.choice([1, -1])

    def edit(model: onnx.ModelProto, condition: str) -> onnx.ModelProto:
        return _spoiled_inside(model, condition, number, at, array, entry, sign)

    node = right.graph.node[number]
    return f"entry {entry} of input {at} of {node.op_type} moved by {sign}", "", edit


def _spoiled_inside(
    right: onnx.ModelProto,
    condition: str,
    number: int,
    at: int,
    array: np.ndarray,
    entry: int,
    sign: int,
) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(right)
    step = np.zeros(array.shape, array.dtype)
    step.reshape(-1)[entry] = sign
    nodes, stored = parsed("s = Shape (x)\n" + condition)
    added = [
        helper.make_node("Cast", ["k"], ["k_as"], to=helper.np_dtype_to_tensor_dtype(array.dtype))
    ]
    flat = "k_as"
    if not array.ndim:
        nodes_shape, more = parsed(
            "empty = Constant <value_ints = [0]> ()\n none = Slice (empty, #0, #0)"
        )
        added += [*nodes_shape, helper.make_node("Reshape", ["k_as", "none"], ["k_scalar"])]
        stored |= more
        flat = "k_scalar"
    old = right.graph.node[number].input[at]
    added += [
        helper.make_node("Mul", ["k_step", flat], ["k_steps"]),
        helper.make_node("Add", [old, "k_steps"], ["k_new"]),
    ]
    stored["k_step"] = onnx.numpy_helper.from_array(step, "k_step")
    model.graph.node[number].input[at] = "k_new"
    for node in reversed([*nodes, *added]):
        model.graph.node.insert(0, node)
    model.graph.initializer.extend(stored.values())
    return model


def mutants(seeds: range) -> Iterator[Mutant]:
    """Yield a mutant for each seed."""
    return map(draw, seeds)
