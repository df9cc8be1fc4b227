"""Random models around SpaceToBatch -> .. -> BatchToSpace, of every class that fusion must get right.

    case = regions.build(seed, number)

A case is made from its numbers alone. All is legal by construction: every value is known while the
model is written, so that sizes, pads and crops can be chosen to fit. They need not make sense. Pads and
crops are constants, graph inputs, or what `required_space_to_batch_paddings` of TensorFlow computes:

    fill = (block - (size + base_begin + base_end) % block) % block
    pads = [base_begin, base_end + fill]        crops = [0, fill]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from random import Random

import numpy as np
import steps
from making import MODES, Case, Maker, Value
from onnx import TensorProto

Pairs = list[tuple[int, int]]


@dataclass(frozen=True)
class Scene:
    """What a model is about: axes outside of the blocks, which of them are blocked, the spelling."""

    layout: str
    outer: str
    letters: str
    block: tuple[int, ...]
    form: str

    def of(self, letter: str) -> int:
        """The block of an axis."""
        return self.block[self.letters.index(letter)] if letter in self.letters else 1


@dataclass(frozen=True)
class Region:
    """What lies behind one SpaceToBatch.

    Attributes:
        about: axes and blocks.
        pads: one entry for each blocked axis.
        base: what of the pads is not computed.
        fill: a vector of what is; None if all is constant.
        tables: names of block and pads.
        entry: its output, in the axes in which things go on.
    """

    about: Scene
    pads: Pairs
    base: Pairs
    fill: Value | None
    tables: list[str]
    entry: Value


def scene(rng: Random) -> Scene:
    layout = rng.choice(("channels last",) * 5 + ("channels first",) * 3 + ("unsqueezed",) * 2)
    count = 1 if layout == "unsqueezed" else rng.choice((1, 1, 2, 2, 2, 2, 2, 3))
    digits = "012"[:count][:: -1 if rng.random() < 0.05 else 1]
    outer = f"NC{digits}" if layout == "channels first" else f"N{digits}C"
    form = rng.choice(("ND",) * 6 + ("OpenVINO",) * (3 if layout == "channels first" else 1))
    letters = outer[1:] if layout == "channels first" or form == "OpenVINO" else digits
    if form == "ND" and layout == "channels last" and rng.random() < 0.15:
        letters = digits[: rng.randint(1, count)]
    about = blocked(rng, Scene(layout, outer, letters, (), form))
    if letters == digits and count == 2 and len(set(about.block)) == 1 and rng.random() < 0.2:
        about = replace(about, form="4-D" if about.block[0] > 1 and form == "ND" else form)
    return about


def blocked(rng: Random, about: Scene) -> Scene:
    """The scene with other blocks."""
    most = 4 if len(about.letters) < 3 else 2
    one, equal = rng.choice((2, 2, 2, 3, most)), rng.random() < 0.6
    blocks = [min(one, most) if equal else rng.randint(1, most) for _ in about.letters]
    if "C" in about.letters:
        blocks[about.letters.index("C")] = 2 if rng.random() < 0.02 else 1
    form = "ND" if about.form == "4-D" else about.form
    return replace(about, block=tuple(blocks), form=form)


def image(make: Maker, about: Scene) -> Value:
    """What goes into SpaceToBatch: an input, or what a Pad, a Conv or others make of one."""
    rng = make.rng
    sizes = {"N": rng.choice((1, 1, 2)), "C": rng.choice((1, 2, 2, 3, 4))}
    sizes["C"] *= about.of("C")
    for a in about.outer:
        if a not in "NC":
            b = about.of(a)
            sizes[a] = max(1, rng.randint(1, 5 if b < 3 else 3) * b - rng.randint(0, 3))
    axes = about.outer
    way = rng.choice(("input",) * 3 + ("turned",) * 2 + ("active", "padded", "conv"))
    if way == "turned":
        spatial = axes.replace("N", "").replace("C", "")
        axes = f"NC{spatial}" if axes[1] != "C" else f"N{spatial}C"
    value = make.input(make.image([sizes[letter] for letter in axes]), axes)
    if way == "padded":
        low = [rng.randint(0, 3) if letter not in "NC" else 0 for letter in axes]
        value = make.node("Pad", [value, make.constant([*low, *[0] * len(axes)])], axes)
    elif way != "turned" and way != "input":
        value = steps.conv(make, value) if way == "conv" else steps.some(make, value, 1, 2)
    return make.turned(value, about.outer)


# Pads and crops


def filling(make: Maker, x: Value, about: Scene, base: Pairs) -> Value:
    """The arithmetic on the shape of a value."""
    dtype = make.rng.choice((np.int32, np.int64))
    shape = make.node("Shape", [x])
    if dtype == np.int32:
        shape = make.node("Cast", [shape], to=TensorProto.INT32)
    places = [x.axes.index(letter) for letter in about.letters]
    if places == list(range(places[0], places[-1] + 1)) and make.chance(0.6):
        bounds = [make.constant([v]) for v in (places[0], places[-1] + 1)]
        sizes = make.node("Slice", [shape, *bounds])
    else:
        sizes = make.node("Gather", [shape, make.constant(places)])
    blocks = make.constant(np.array(about.block, dtype))
    total = make.node("Add", [sizes, make.constant(np.array([sum(p) for p in base], dtype))])
    if make.chance(0.2):  # -(size + base) mod block
        return make.node("Mod", [make.node("Neg", [total]), blocks])
    rest = make.node("Mod", [total, blocks])
    lack = make.node("Sub", [blocks, rest])
    if make.chance(0.5):
        return make.node("Mod", [lack, blocks])
    whole = make.node("Mul", [make.node("Div", [lack, blocks]), blocks])
    return make.node("Sub", [lack, whole])


def tables_of(
    make: Maker, about: Scene, pairs: Pairs, fill: Value | None, *, fed: bool = False
) -> list[str]:
    """Names of block and table of an operator; `fill` is added to the ends of the pairs."""
    dtype = make.rng.choice((np.int32, np.int64)) if fill is None else fill.array.dtype
    begins, ends = (np.array([pair[i] for pair in pairs], dtype) for i in (0, 1))
    put = make.fed if fed else make.constant
    block: Sequence[int] = about.block
    if about.form == "OpenVINO":
        block = (1, *about.block)
        begins, ends = (np.array([0, *side], dtype) for side in (begins, ends))
    block_fed = make.mode == "run-time" and about.form == "ND" and make.chance(0.05)
    block_name = (make.fed if block_fed else make.constant)(np.array(block, dtype), "block")
    if fill is None:
        if about.form == "OpenVINO":
            return [block_name, put(begins, "begins"), put(ends, "ends")]
        return [block_name, put(np.stack([begins, ends], 1), "table")]
    low = make.constant(begins)
    if about.form == "OpenVINO":
        zero = make.constant(np.array([0], dtype))
        fill = make.node("Concat", [zero, fill], axis=0)
    high = fill if not ends.any() and make.chance(0.5) else make.node(
        "Add", [make.constant(ends), fill]
    )  # fmt: skip
    if about.form == "OpenVINO":
        return [block_name, low, high.name]
    if make.chance(0.5):
        one = make.constant([1])
        columns = [make.node("Unsqueeze", [side, one]) for side in (low, high)]
        return [block_name, make.node("Concat", columns, axis=1).name]
    both = make.node("Concat", [low, high], axis=0)
    rows = make.node("Reshape", [both, make.constant([2, len(pairs)])])
    return [block_name, make.node("Transpose", [rows], perm=[1, 0]).name]


def base_pads(make: Maker, about: Scene, letter: str) -> tuple[int, int]:
    """What an exporter pads by for reasons of its own, before whole blocks are made."""
    rng, b = make.rng, about.of(letter)
    if letter == "C":
        return (rng.randint(0, 2), 0) if make.chance(0.02) else (0, 0)
    total = rng.choice((1, 2, 2)) * b
    random = (rng.randint(0, b + 1), rng.randint(0, 2 * b))
    half = (total // 2, total - total // 2)
    return rng.choice((half, half, (total, 0), (0, 0), (0, 0), random))


def enter(make: Maker, about: Scene, x: Value, base: Pairs | None = None) -> Region:
    """A SpaceToBatch on x, with pads that may come from its shape."""
    base = base or [base_pads(make, about, letter) for letter in about.letters]
    lack = [-(x.size(a) + sum(p)) % about.of(a) for a, p in zip(about.letters, base, strict=True)]
    pads = [(low, high + more) for (low, high), more in zip(base, lack, strict=True)]
    fill = filling(make, x, about, base) if make.mode == "computed" else None
    fed = make.mode == "run-time" and make.chance(0.8)
    names = tables_of(make, about, pads if fill is None else base, fill, fed=fed)
    entry = make.spatial("SpaceToBatch", x, names, about.form)
    if about.layout == "unsqueezed":
        entry = steps.unsqueezed(make, entry)
    return Region(about, pads, base, fill, names, entry)


def leave(make: Maker, region: Region, value: Value, about: Scene | None = None) -> Value:
    """A BatchToSpace, with crops of any kind that leave something (or, seldom, nothing)."""
    own, about = about is None, about or region.about
    rest = "".join(a for a in about.outer[1:] if a not in about.letters)
    value = make.turned(steps.squeezed(make, value), f"N{about.letters}{rest}")
    room = [value.size(a) * b for a, b in zip(about.letters, about.block, strict=True)]
    crops, fill = cropped(make, region, room, about, own=own)
    whole = region.base if fill else region.pads
    if own and about.form == "ND" and crops == whole and fill is region.fill and make.chance(0.7):
        names = region.tables  # as WaveNet: pads and crops are one tensor
    else:
        fed = make.mode == "run-time" and make.chance(0.8)
        names = tables_of(make, about, crops, fill, fed=fed)
        if own and about.form != "OpenVINO" and make.chance(0.5):
            names = [region.tables[0], *names[1:]]
    return make.spatial("BatchToSpace", value, names, about.form)


def cropped(
    make: Maker, region: Region, room: Sequence[int], about: Scene, *, own: bool
) -> tuple[Pairs, Value | None]:
    """Crops that leave something of `room`, and what is added to their ends."""
    rng, none = make.rng, [(0, 0)] * len(room)
    some, strange = list(none), list(none)
    for i, (letter, size, block) in enumerate(zip(about.letters, room, about.block, strict=True)):
        if size and (letter != "C" or make.chance(0.02)):
            some[i] = (rng.randint(0, block + 1), rng.randint(0, block + 1))
            low = rng.randint(0, size - 1)
            strange[i] = (low, rng.randint(0, size - low - (not make.chance(0.02))))
    ways: list[tuple[Pairs, Value | None]] = [(none, None), (some, None), (strange, None)]
    if own and region.fill is not None:
        ways += [(none, region.fill)] * 4 + [(region.base, region.fill)] * 2
    elif own:
        filled = [(0, high - base) for (_, high), (_, base) in
                  zip(region.pads, region.base, strict=True)]  # fmt: skip
        ways += [(filled, None)] * 3 + [(region.pads, None)] * 2
    rng.shuffle(ways)
    for pairs, fill in ways:
        added = fill.array.tolist() if fill else [0] * len(pairs)
        left = [r - sum(p) - more for r, p, more in zip(room, pairs, added, strict=True)]
        if min(left) >= (0 if pairs is strange or 0 in room else 1):
            return pairs, fill
    return none, None


def after(make: Maker, value: Value) -> None:
    """What reads a result: nothing, the next layer, its shape, or the caller."""
    for _ in range(make.rng.choice((0, 1, 1, 1, 2))):
        way = make.rng.choice(("steps", "conv", "shape", "output"))
        if way == "steps":
            steps.some(make, value, 1, 3)
        elif way == "conv" and 0 not in value.shape:
            steps.conv(make, value)
        else:
            make.outputs.append(value.name)
            if way == "shape":
                make.node("Shape", [value])


# The kinds


def row(
    make: Maker, about: Scene, *, first: steps.Step | None = None, layers: Sequence[int] = (1, 2)
) -> None:
    """Convs in a row with what commutes between them, and perhaps one other step."""
    region = enter(make, about, image(make, about))
    value = steps.some(make, region.entry, 0, 1)
    early = make.chance(0.5)
    value = first(make, value) if first and early else value
    for _ in range(make.rng.choice(layers)):
        value = steps.some(make, steps.conv(make, value, same=make.chance(0.3)), 0, 2)
        value = steps.squeezed(make, value) if make.chance(0.2) else value
    value = first(make, value) if first and not early else value
    after(make, leave(make, region, steps.some(make, value, 0, 1)))


def strided(make: Maker, about: Scene) -> None:
    """Stride 2 along some axes, mostly where the block is 1."""
    letters = [a for a in about.outer if a not in "NC"]
    axis = make.rng.choice(letters)
    if make.chance(0.6):
        block = [1 if a == axis else b for a, b in zip(about.letters, about.block, strict=True)]
        about = replace(about, block=tuple(block), form=about.form.replace("4-D", "ND"))
    row(make, about, first=partial(steps.conv, stride=axis), layers=(0, 1))


def graph(make: Maker, about: Scene, *, read_outside: bool = False) -> None:
    """Branches, gates and residual sums that grow at random, and what others read of them."""
    region = enter(make, about, image(make, about))
    alive = [region.entry]
    for _ in range(make.rng.randint(2, 6)):
        value = make.rng.choice(alive[-2:])
        if make.chance(0.5):
            alive.append(steps.conv(make, value, same=make.chance(0.6), channels=value.size("C")))
        elif make.chance(0.5):
            alive.append(steps.some(make, value, 1, 1))
        elif (found := steps.combined(make, value, make.rng.choice(alive))) is not None:
            alive.append(found)
    if read_outside:
        value = make.rng.choice(alive)
        make.rng.choice((
            lambda: make.outputs.append(value.name),
            lambda: make.node("Shape", [value]),
            lambda: steps.mean_over(make, value, value.spatial),
        ))()  # fmt: skip
    for value in make.rng.sample(
        alive[1:] or alive, min(len(alive) - 1, make.rng.choice((1, 1, 2))) or 1
    ):
        after(make, leave(make, region, value))
    after(make, leave(make, region, alive[-1]))


def consecutive(make: Maker, about: Scene) -> None:
    """Regions one after the other, with the same blocks or others."""
    x = image(make, about)
    for _ in range(make.rng.randint(2, 3)):
        region = enter(make, about, x)
        y = leave(make, region, steps.some(make, steps.conv(make, region.entry), 0, 1))
        if 0 in y.shape:
            break
        x = make.turned(steps.some(make, y, 0, 2), about.outer)
        about = blocked(make.rng, about) if make.chance(0.4) else about
    after(make, x)


def nested(make: Maker, about: Scene) -> None:
    """A region within a region; undone in the right order, or in the wrong one."""
    outer = enter(make, about, image(make, about))
    value = steps.some(make, steps.squeezed(make, outer.entry), 0, 1)
    about = blocked(make.rng, about) if make.chance(0.4) else about
    inner = enter(make, about, make.turned(value, about.outer))
    value = steps.conv(make, inner.entry)
    for region in (inner, outer)[:: -1 if make.chance(0.3) else 1]:
        value = leave(make, region, value)
        if 0 in value.shape:
            break
        value = steps.some(make, value, 0, 1)
    after(make, value)


def side_by_side(make: Maker, about: Scene) -> None:
    """One image through regions of several rates, which meet again where they fit."""
    x, results = image(make, about), list[Value]()
    for _ in range(make.rng.randint(2, 3)):
        region = enter(make, about, x)
        y = leave(make, region, steps.conv(make, region.entry, channels=2))
        results.append(steps.some(make, y, 0, 1))
        about = blocked(make.rng, about)
    for other in results[1:]:
        after(make, steps.combined(make, results[0], other) or other)


def two_images(make: Maker, about: Scene) -> None:
    """Two images blocked alike, padded alike or each in its way, added if they fit."""
    x = make.input(make.image([make.rng.randint(2, 7) for _ in about.outer]), about.outer, "same")
    y = make.input(make.image(x.shape), x.axes, "same" if make.chance(0.8) else "")
    one = enter(make, about, x)
    two = enter(make, about, y, one.base if make.chance(0.8) else None)
    value = steps.combined(make, one.entry, two.entry)
    after(make, leave(make, one, value or one.entry))
    if value is None:
        after(make, leave(make, two, two.entry))


def unequal(make: Maker, about: Scene) -> None:
    """Other blocks behind than in front; or the same ones of axes that have changed places."""
    region = enter(make, about, image(make, about))
    value = steps.conv(make, region.entry) if make.chance(0.8) else region.entry
    if len(about.letters) > 1 and make.chance(0.5):
        order = make.rng.sample(range(len(about.letters)), len(about.letters))
        letters, block = "".join(about.letters[i] for i in order), [about.block[i] for i in order]
    else:
        whole, letters = prod(about.block), about.letters
        divisors = [d for d in range(1, whole + 1) if whole % d == 0]
        block = [make.rng.choice(divisors) for _ in letters]
        while whole % prod(block):
            block[block.index(max(block))] = 1
    form = "ND" if about.form == "4-D" else about.form
    after(
        make,
        leave(make, region, value, replace(about, letters=letters, block=tuple(block), form=form)),
    )


def before_pool(make: Maker, about: Scene) -> None:
    """A region, or a SpaceToBatch that only pads, in front of a pool."""
    if make.chance(0.4):
        block = (1,) * len(about.block)
        about = replace(about, block=block, form=about.form.replace("4-D", "ND"))
    region = enter(make, about, image(make, about))
    value = region.entry
    if max(about.block) > 1 or make.chance(0.5):
        value = leave(make, region, steps.some(make, value, 0, 2))
    if 0 not in value.shape:
        value = steps.pool(make, steps.squeezed(make, value))
    after(make, value)


def declined(make: Maker, about: Scene) -> None:
    row(make, about, first=make.rng.choice(steps.DECLINED))


def transposed(make: Maker, about: Scene) -> None:
    row(make, about, first=steps.conv_transpose, layers=(0, 0, 1))


#: How often each kind comes up.
KINDS: dict[Callable[[Maker, Scene], None], int] = {
    row: 6, graph: 6, consecutive: 3, strided: 2, transposed: 1, side_by_side: 2, two_images: 1,
    before_pool: 2, nested: 1, unequal: 1, declined: 3, partial(graph, read_outside=True): 2,
}  # fmt: skip
NAMES = {k.__name__ if hasattr(k, "__name__") else "read outside": k for k in KINDS}


def build(seed: int, number: int, kind: str | None = None) -> Case:
    """The case of a seed and a number; of a given kind, if any."""
    rng = Random(f"{seed} {number}")
    drawn = rng.choices(list(NAMES), list(KINDS.values()))[0]
    mode = rng.choices(MODES, (7, 4, 6, 3))[0]
    about, make = scene(rng), Maker(rng, mode)
    NAMES[kind or drawn](make, about)
    return make.case({"kind": kind or drawn, "layout": about.layout, "mode": mode})
